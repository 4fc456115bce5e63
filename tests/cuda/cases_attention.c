/* cases_attention.c - attention over token-major K/V against the CPU executor: TILE, SPLIT with MERGE, the rotation
 * inside. */
#include <math.h>
#include <string.h>

#include "cuda/cuda_rig.h"

typedef struct setup {
  uint32_t e, heads, n_kv, seqs, max_rows; /* rows: of one sequence, at most */
  uint32_t rows[8], len[8];
  bool causal;
  uint32_t window;
  df_mask_layout mask;
  df_kv_type type;
  bool quantise, bad; /* out.q; infinities and NaN in K, V */
  uint32_t tile_rows;
} setup;

typedef struct attention {
  df_op_attn op;
  df_op_rope_kv rope;
  df_batch *batch;
  uint32_t rows, parts_bytes;
} attention;

/* Sequences whose slots are scattered; the last rows of each are the pass's. */
static void fill_batch(rig *r, const setup *s, df_batch *b, uint32_t slots, uint32_t max_pages) {
  uint32_t total = 0, used = 1;
  b->pos = rig_new(r, 256 * 4, RIG_RAW, "pos");
  b->slot = rig_new(r, 256 * 4, RIG_RAW, "slot");
  b->q_start = rig_new(r, 64, RIG_RAW, "q_start");
  b->kv_len = rig_new(r, 64, RIG_RAW, "kv_len");
  b->page_table = rig_new(r, (size_t)s->seqs * max_pages * 4, RIG_RAW, "page_table");
  for (uint32_t i = 0; i < s->seqs; i++) {
    b->q_start[i] = total;
    b->kv_len[i] = s->len[i];
    for (uint32_t p = 0; p < s->len[i]; p++)
      b->page_table[(size_t)i * max_pages + p] = 1 + (used++ * 7919u) % (slots - 1);
    for (uint32_t t = 0; t < s->rows[i]; t++, total++) {
      b->pos[total] = s->len[i] - s->rows[i] + t;
      b->slot[total] = b->page_table[(size_t)i * max_pages + b->pos[total]];
    }
  }
  b->q_start[s->seqs] = total;
  b->n_rows = total;
  b->n_seqs = b->n_live = s->seqs;
  b->max_pages = max_pages;
  b->max_rows = total;
  b->max_seqs = s->seqs;
}

static df_mask_buffer *fill_mask(rig *r, const setup *s, const df_batch *b) {
  static df_mask_buffer m;
  size_t bytes = 0;
  m.start = rig_new(r, s->seqs * sizeof *m.start, RIG_RAW, "mask start");
  for (uint32_t i = 0; i < s->seqs; i++) {
    m.start[i] = bytes;
    bytes += df_mask_seq_bytes(b, i, s->mask);
  }
  m.bytes = rig_new(r, bytes, RIG_RAW, "mask");
  m.cap = bytes;
  for (size_t i = 0; i < bytes; i++) m.bytes[i] = rig_below(r, 3) != 0;
  if (bytes > 3) m.bytes[0] = m.bytes[1] = 0;
  return &m;
}

static void fill_kv(rig *r, const setup *s, df_kv_view *kv, size_t n) {
  const rig_kind kind = s->type == DF_KV_F16 ? RIG_F16 : RIG_F32;
  const size_t size = s->type == DF_KV_F16 ? 2 : 4;
  for (int i = 0; i < 2; i++) {
    uint8_t *p = rig_new(r, n * size, kind, i ? "V" : "K");
    for (size_t j = 0; j < n; j++) {
      float v;
      rig_fill(r, &v, 1, s->bad && j % 7 == 0 ? 3 : 0);
      const uint16_t h = df_f32_to_f16(v);
      memcpy(p + j * size, s->type == DF_KV_F16 ? (const void *)&h : &v, size);
    }
    *(i ? &kv->v : &kv->k) = p;
  }
  kv->type = s->type;
  kv->token_major = true;
  kv->block_slots = 1;
  kv->head_bytes = 16 * s->e * size;
}

static attention make(rig *r, const setup *s) {
  attention a = {0};
  uint32_t longest = 1, all = 0, slots = 8192; /* 7919 is prime to slots - 1: no slot twice */
  for (uint32_t i = 0; i < s->seqs; i++) {
    longest = s->len[i] > longest ? s->len[i] : longest;
    all += s->rows[i];
  }
  const uint32_t width = (s->heads + 2 * s->n_kv) * s->e, group = s->heads / s->n_kv;
  a.rows = all;
  a.batch = rig_new(r, sizeof *a.batch, RIG_SKIP, "batch");
  fill_batch(r, s, a.batch, slots, longest + 3);
  float *x = rig_floats(r, (size_t)all * width, "qkv");
  rig_fill(r, x, (size_t)all * width, 0);
  df_op_attn *op = &a.op;
  *op = (df_op_attn){.batch = a.batch,
                     .q = x,
                     .q_ld = width,
                     .out = {.k = s->heads * s->e},
                     .n_heads = s->heads,
                     .n_kv = s->n_kv,
                     .head_dim = s->e,
                     .scale = 1.0f / sqrtf((float)s->e),
                     .causal = s->causal,
                     .window = s->window,
                     .mask_layout = s->mask,
                     .tile_rows = s->tile_rows,
                     .n_tiles = (s->max_rows + s->tile_rows - 1) / s->tile_rows,
                     .n_split = 1,
                     .max_chunks = (longest + 63) / 64 + 1};
  op->out.f = rig_floats(r, (size_t)all * op->out.k, "out");
  if (s->quantise)
    op->out.q = rig_new(r, ((size_t)all + 15) / 16 * 16 * (op->out.k / DF_QBLOCK) * sizeof(df_actq), RIG_RAW, "out.q");
  fill_kv(r, s, &op->kv, (size_t)slots * s->n_kv * s->e);
  if (s->mask != DF_MASK_NONE) op->mask = fill_mask(r, s, a.batch);
  a.parts_bytes = s->seqs * s->n_kv * op->n_tiles * op->max_chunks * s->tile_rows * group * (16 + s->e) * 4;
  float *tables = rig_floats(r, (size_t)(longest + 1) * s->e, "cos sin"), *norms = rig_floats(r, 2 * s->e, "norms");
  rig_fill(r, tables, (size_t)(longest + 1) * s->e, 0);
  rig_fill(r, norms, 2 * s->e, 0);
  a.rope = (df_op_rope_kv){.q = x,
                           .k = x + s->heads * s->e,
                           .v = x + (s->heads + s->n_kv) * s->e,
                           .q_ld = width,
                           .k_ld = width,
                           .v_ld = width,
                           .q_norm = norms,
                           .k_norm = norms + s->e,
                           .eps = 1e-6f,
                           .cos = tables,
                           .sin = tables + (size_t)(longest + 1) * s->e / 2,
                           .pos = a.batch->pos,
                           .slot = a.batch->slot,
                           .n_rows = &a.batch->n_rows,
                           .kv = op->kv,
                           .n_heads = s->heads,
                           .n_kv = s->n_kv,
                           .head_dim = s->e};
  return a;
}

static void skip(rig *r, const void *host) {
  for (uint32_t i = 0; i < r->n_blocks; i++)
    if (r->block[i].host == host) r->block[i].kind = RIG_SKIP;
}

/* form 0: TILE without parts, 1: TILE with, 2: SPLIT and MERGE launched one by one, 3: as one, 4: NAIVE; rope 1: the
 * rotation in front as an op of its own, 2: as one kernel where that is possible. */
static void attn_case(rig *r, const setup *s, uint32_t form, uint32_t rope, const char *name) {
  attention a = make(r, s);
  rig_list l = {.n = 0};
  if (form) a.op.parts = rig_new(r, a.parts_bytes, RIG_SKIP, "parts");
  if (rope) rig_add(&l, DF_OP_ROPE_KV, &a.rope);
  if (rope == 2) skip(r, a.rope.q);
  if (form == 2 || form == 3) {
    rig_add(&l, DF_OP_ATTN_SPLIT, &a.op);
    rig_add(&l, DF_OP_ATTN_MERGE, &a.op);
  } else {
    rig_add(&l, form == 4 ? DF_OP_ATTN_NAIVE : DF_OP_ATTN_TILE, &a.op);
  }
  const bool one_by_one = form == 2 || rope == 1;
  rig_run_device(r, &l, a.rows, s->seqs, one_by_one);
  rig_run_host(r, &l, a.rows, s->seqs);
  rig_compare(
      r, "attention %s: e %u heads %u/%u seqs %u rows %u len %u causal %d window %u mask %u f16 %d form %u rope %u",
      name, s->e, s->heads, s->n_kv, s->seqs, s->rows[0], s->len[0], s->causal, s->window, s->mask,
      s->type == DF_KV_F16, form, rope);
  rig_clear(r);
}

static void all_forms(rig *r, const setup *s, const char *name) {
  for (uint32_t form = 0; form < 5; form++) attn_case(r, s, form, 0, name);
  for (uint32_t rope = 1; rope < 3; rope++)
    for (uint32_t form = rope == 2 ? 1 : 0; form < 4; form += 1 + (rope == 2)) attn_case(r, s, form, rope, name);
}

static void decode_cases(rig *r) {
  static const uint32_t lens[] = {1, 2, 63, 64, 65, 130, 700};
  for (uint32_t i = 0; i < sizeof lens / sizeof *lens; i++) {
    setup s = {128, 8, 2, 1, 1, {1}, {lens[i]}, true, 0, DF_MASK_NONE, DF_KV_F16, i % 2, false, 16};
    all_forms(r, &s, "decode");
    s.type = DF_KV_F32;
    s.e = 64;
    s.heads = 9, s.n_kv = 3;
    attn_case(r, &s, 3, 2, "decode");
    s.window = 70;
    attn_case(r, &s, 3, 2, "decode");
  }
}

static void block_cases(rig *r) {
  setup s = {64, 6, 2, 3, 16, {16, 16, 16}, {40, 129, 16}, true, 0, DF_MASK_NONE, DF_KV_F16, true, false, 16};
  all_forms(r, &s, "verify");
  s.causal = false;
  all_forms(r, &s, "block");
  for (uint32_t m = DF_MASK_QLEN; m <= DF_MASK_FULL; m++) {
    s.mask = (df_mask_layout)m;
    s.causal = m == DF_MASK_QLEN;
    all_forms(r, &s, "masked");
  }
  s.bad = true;
  attn_case(r, &s, 3, 0, "masked, bad values");
  s.mask = DF_MASK_NONE;
  s.window = 20;
  s.causal = true;
  all_forms(r, &s, "window");
  attn_case(r, &s, 0, 0, "window, bad values");
}

static void shape_cases(rig *r) {
  static const uint32_t widths[] = {16, 32, 48, 96, 128, 160, 256};
  for (uint32_t i = 0; i < sizeof widths / sizeof *widths; i++)
    for (uint32_t f32 = 0; f32 < 2; f32++) {
      setup s = {
          widths[i], 4, 4 >> (i % 3), 2, 5, {5, 3}, {70, 3}, true, 0, DF_MASK_NONE, f32 ? DF_KV_F32 : DF_KV_F16, false,
          false,     4};
      attn_case(r, &s, 0, 0, "width");
      attn_case(r, &s, 3, 0, "width");
      s.tile_rows = 8;
      attn_case(r, &s, 3, 2, "width");
    }
  setup wide = {128, 32, 4, 2, 16, {16, 7}, {300, 8}, true, 0, DF_MASK_NONE, DF_KV_F16, true, false, 16};
  all_forms(r, &wide, "128 queries");
  setup prefill = {64, 4, 2, 2, 100, {100, 37}, {100, 90}, true, 0, DF_MASK_NONE, DF_KV_F16, true, false, 16};
  attn_case(r, &prefill, 0, 0, "prefill");
  attn_case(r, &prefill, 0, 2, "prefill");
  attn_case(r, &prefill, 2, 1, "prefill");
  prefill.window = 33;
  attn_case(r, &prefill, 0, 1, "prefill, window");
  if (r->quick) return;
  setup many = {
      128,          8,         8,     8,     4, {1, 2, 3, 4, 1, 2, 3, 4}, {900, 64, 65, 200, 128, 127, 3, 513}, true, 0,
      DF_MASK_NONE, DF_KV_F16, false, false, 16};
  all_forms(r, &many, "ragged");
  setup far = {128, 8, 1, 1, 4, {4}, {5000}, true, 0, DF_MASK_NONE, DF_KV_F16, false, false, 16};
  all_forms(r, &far, "long");
}

void test_attention(rig *r) {
  decode_cases(r);
  block_cases(r);
  shape_cases(r);
}
