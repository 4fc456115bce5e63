/* cases_programs.c - a layer and its tail as a list of ops, again and again with overlapping kernels: the bits of the
 * CPU executor for quantised weights, and always the same bits for BF16. */
#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "cuda/cuda_rig.h"
#include "device/cuda/cuda_tune.h"

typedef struct shape {
  uint32_t hidden, ffn, heads, kv, e, vocab, layers;
} shape;

static shape g_shape = {256, 512, 4, 2, 64, 500, 3};
/* Whether the embedding, which is the head too, is F32. */
static bool g_f32_table;
/* Whether few rows are not one kernel either. */
static bool g_refused;

/* Positions of the sequence, and slots, a prime and some: short, or with more parts than a warp joins at once. */
static uint32_t g_len = 130, g_prime = 251;

enum { WHOLE = 2 }; /* launches of a program as one kernel: that, and acceptance */

typedef struct program {
  rig_list list;
  df_batch *batch;
  float *logits;
  uint8_t *k, *v; /* of the last layer */
} program;

static df_act act(rig *r, uint32_t k) {
  return (df_act){.f = rig_floats(r, 48u * k, "act.f"),
                  .q = rig_new(r, 48u * (k / DF_QBLOCK) * sizeof(df_actq), RIG_SKIP, "act.q"),
                  .k = k};
}

static float *vector(rig *r, uint32_t n) {
  float *v = rig_floats(r, n, "vector");
  rig_fill(r, v, n, 0);
  return v;
}

static df_batch *batch_make(rig *r, uint32_t rows) {
  df_batch *b = rig_new(r, sizeof *b, RIG_SKIP, "batch");
  b->ids = rig_new(r, 64 * 4, RIG_RAW, "ids");
  b->pos = rig_new(r, 64 * 4, RIG_RAW, "pos");
  b->slot = rig_new(r, 64 * 4, RIG_RAW, "slot");
  b->q_start = rig_new(r, 64, RIG_RAW, "q_start");
  b->kv_len = rig_new(r, 64, RIG_RAW, "kv_len");
  b->page_table = rig_new(r, g_len * 4, RIG_RAW, "pages");
  b->out_row = rig_new(r, 64 * 4, RIG_RAW, "out_row");
  b->n_rows = rows;
  b->n_out = rows > 2 && rows % 3 == 0 ? rows - 2 : rows;
  b->n_seqs = b->n_live = 1;
  b->max_pages = g_len;
  b->q_start[1] = rows;
  b->kv_len[0] = g_len;
  for (uint32_t i = 0; i < g_len; i++) b->page_table[i] = 1 + i * 5 % g_prime;
  for (uint32_t i = 0; i < rows; i++) {
    b->ids[i] = (int32_t)rig_below(r, g_shape.vocab);
    b->pos[i] = g_len - rows + i;
    b->slot[i] = b->page_table[b->pos[i]];
    b->out_row[i] = rows - 1 - i;
  }
  return b;
}

/* Norms write both forms only where the weights want them, as the model's emission does. */
static df_act form(df_act a, const df_weights *w) {
  if (df_pack_wants_q8(w->pack))
    a.f = NULL;
  else
    a.q = NULL;
  return a;
}

static void add_layer(rig *r, program *p, df_dtype t, float *x, float *qkv, float *parts, df_act normed, df_act out,
                      df_act h) {
  rig_list *l = &p->list;
  const uint32_t width = (g_shape.heads + 2 * g_shape.kv) * g_shape.e;
  df_batch *b = p->batch;
  const df_weights *q = rig_weights(r, t, g_shape.heads * g_shape.e, g_shape.hidden),
                   *k = rig_weights(r, t, g_shape.kv * g_shape.e, g_shape.hidden);
  const df_weights *v = rig_weights(r, t == DF_Q4_K ? DF_Q6_K : t, g_shape.kv * g_shape.e, g_shape.hidden);
  const df_act in = form(normed, q);
  const df_op_norm n1 = {x, vector(r, g_shape.hidden), &b->n_rows, NULL, in, 1e-5f};
  df_op_linear proj = {.x = in, .n_rows = &b->n_rows, .n_parts = 3};
  proj.part[0] = (df_linear_part){q, vector(r, g_shape.heads * g_shape.e), qkv, width};
  proj.part[1] = (df_linear_part){k, NULL, qkv + g_shape.heads * g_shape.e, width};
  proj.part[2] = (df_linear_part){v, NULL, qkv + (g_shape.heads + g_shape.kv) * g_shape.e, width};
  df_op_rope_kv rope = {.q = qkv,
                        .k = qkv + g_shape.heads * g_shape.e,
                        .v = qkv + (g_shape.heads + g_shape.kv) * g_shape.e,
                        .q_ld = width,
                        .k_ld = width,
                        .v_ld = width,
                        .q_norm = vector(r, g_shape.e),
                        .k_norm = vector(r, g_shape.e),
                        .eps = 1e-6f,
                        .cos = vector(r, g_len * g_shape.e / 2),
                        .sin = vector(r, g_len * g_shape.e / 2),
                        .pos = b->pos,
                        .slot = b->slot,
                        .n_rows = &b->n_rows,
                        .n_heads = g_shape.heads,
                        .n_kv = g_shape.kv,
                        .head_dim = g_shape.e};
  rope.kv = (df_kv_view){.k = rig_new(r, (g_prime + 5) * g_shape.kv * g_shape.e * 2, RIG_F16, "K"),
                         .v = rig_new(r, (g_prime + 5) * g_shape.kv * g_shape.e * 2, RIG_F16, "V"),
                         .head_bytes = 16 * g_shape.e * 2,
                         .type = DF_KV_F16,
                         .token_major = true,
                         .block_slots = 1};
  p->k = rope.kv.k;
  p->v = rope.kv.v;
  const df_weights *o = rig_weights(r, t, g_shape.hidden, g_shape.heads * g_shape.e);
  df_op_attn at = {.batch = b,
                   .q = qkv,
                   .q_ld = width,
                   .out = form(out, o),
                   .kv = rope.kv,
                   .n_heads = g_shape.heads,
                   .n_kv = g_shape.kv,
                   .head_dim = g_shape.e,
                   .scale = 0.125f,
                   .causal = true,
                   .tile_rows = 16,
                   .n_tiles = 3,
                   .n_split = 1,
                   .max_chunks = (g_len + 63) / 64 + 1,
                   .parts = parts};
  if (b->n_rows <= 16) at.n_tiles = 1;
  df_op_linear down = {.x = at.out, .n_rows = &b->n_rows, .add = true, .n_parts = 1};
  down.part[0] = (df_linear_part){o, NULL, x, g_shape.hidden};
  const df_op_norm n2 = {x, vector(r, g_shape.hidden), &b->n_rows, NULL, in, 1e-5f};
  df_op_ffn_up up = {.x = in,
                     .n_rows = &b->n_rows,
                     .gate = rig_weights(r, t, g_shape.ffn, g_shape.hidden),
                     .up = rig_weights(r, t, g_shape.ffn, g_shape.hidden)};
  const df_weights *w = rig_weights(r, t, g_shape.hidden, g_shape.ffn);
  up.out = form(h, w);
  rig_add(l, DF_OP_NORM, &n1);
  rig_add(l, DF_OP_LINEAR, &proj);
  rig_add(l, DF_OP_ROPE_KV, &rope);
  rig_add(l, DF_OP_ATTN_SPLIT, &at);
  rig_add(l, DF_OP_ATTN_MERGE, &at);
  rig_add(l, DF_OP_LINEAR, &down);
  rig_add(l, DF_OP_NORM, &n2);
  rig_add(l, DF_OP_FFN_UP, &up);
  df_op_linear last = down;
  last.x = up.out;
  last.part[0].w = w;
  rig_add(l, DF_OP_LINEAR, &last);
}

/* What a draft of rows - 1 tokens left, in three segments. */
static df_drafts make_drafts(rig *r, uint32_t rows, const uint32_t *n_live) {
  float *value = rig_floats(r, 48 * 3, "drafted value");
  uint32_t *id = rig_new(r, 48 * 3 * 4, RIG_RAW, "drafted id");
  int32_t *map = rig_new(r, g_shape.vocab * 4, RIG_RAW, "map");
  rig_fill(r, value, 48 * 3, 0);
  for (uint32_t i = 0; i < 48 * 3; i++) id[i] = 100 * (i % 3) + rig_below(r, 100);
  for (uint32_t i = 0; i < g_shape.vocab; i++) map[i] = (int32_t)(g_shape.vocab - 1 - i);
  return (df_drafts){{value, id, map, 3}, n_live, rows};
}

static void program_make(rig *r, program *p, df_dtype t, uint32_t rows) {
  p->list.n = 0;
  p->batch = batch_make(r, rows);
  df_batch *b = p->batch;
  float *x = rig_floats(r, 48 * g_shape.hidden, "x"),
        *qkv = rig_new(r, 48 * (g_shape.heads + 2 * g_shape.kv) * g_shape.e * 4, RIG_SKIP, "qkv");
  float *parts = rig_new(
      r, (size_t)g_shape.kv * 3 * ((g_len + 63) / 64 + 1) * 16 * (g_shape.heads / g_shape.kv) * (16 + g_shape.e) * 4,
      RIG_SKIP, "parts");
  const df_act normed = act(r, g_shape.hidden), out = act(r, g_shape.heads * g_shape.e), h = act(r, g_shape.ffn),
               tail = act(r, g_shape.hidden);
  df_op_embed embed = {.table = rig_weights(r, g_f32_table ? DF_F32 : t, g_shape.vocab, g_shape.hidden),
                       .ids = b->ids,
                       .n_rows = &b->n_rows,
                       .out = x,
                       .scale = 1.0f};
  if (rows > 1) embed.drafts = make_drafts(r, rows, &b->n_live);
  rig_add(&p->list, DF_OP_EMBED, &embed);
  for (uint32_t i = 0; i < g_shape.layers; i++) add_layer(r, p, t, x, qkv, parts, normed, out, h);
  uint32_t *to_row = rig_new(r, 48 * sizeof *to_row, RIG_RAW, "to_row");
  for (uint32_t i = 0; i < 48; i++) to_row[i] = 47 - i;
  const df_op_tap tap = {.x = x,
                         .dst = rig_floats(r, 48 * g_shape.hidden, "taps"),
                         .ld = g_shape.hidden,
                         .k = g_shape.hidden,
                         .n_rows = &b->n_rows,
                         .to_row = to_row};
  rig_add(&p->list, DF_OP_TAP, &tap);
  p->logits = rig_floats(r, 48 * g_shape.vocab, "logits");
  const df_act in = form(tail, embed.table);
  const df_op_norm norm = {x, vector(r, g_shape.hidden), &b->n_out, b->out_row, in, 1e-5f};
  df_op_linear head = {.x = in, .n_rows = &b->n_out, .n_parts = 1};
  head.part[0] = (df_linear_part){embed.table, NULL, p->logits, g_shape.vocab};
  const df_op_argmax best = {.x = p->logits,
                             .ld = g_shape.vocab,
                             .n = g_shape.vocab,
                             .segments = 8,
                             .n_rows = &b->n_out,
                             .best = rig_floats(r, 48 * 8, "best"),
                             .best_id = rig_new(r, 48 * 8 * 4, RIG_RAW, "best_id")};
  rig_add(&p->list, DF_OP_NORM, &norm);
  rig_add(&p->list, DF_OP_LINEAR, &head);
  rig_add(&p->list, DF_OP_ARGMAX, &best);
  df_op_accept accept = {.best = {best.best, best.best_id, NULL, best.segments},
                         .n_rows = &b->n_out,
                         .token = rig_new(r, 48 * 4, RIG_RAW, "token")};
  if (rows > 1 && rows <= DF_TILE_ROWS && b->n_out == rows) { /* a block leaves all its rows */
    accept.drafts = embed.drafts;
    accept.drafted = rig_new(r, 48 * 4, RIG_RAW, "drafted");
    accept.accepted = rig_new(r, 3 * 4, RIG_RAW, "accepted");
  }
  rig_add(&p->list, DF_OP_ACCEPT, &accept);
}

/* whole: one kernel where the rows are few enough, else as many as without. */
static void quantised_case(rig *r, df_dtype t, uint32_t rows, bool overlap, bool whole) {
  if (!rig_mine(r)) return;
  static program p;
  program_make(r, &p, t, rows);
  r->env.overlap = overlap;
  r->whole = whole;
  const uint32_t max_rows = rows < 3 || rows == 8 ? rows : rows + 1;
  for (uint32_t again = 0; again < (r->quick ? 1u + whole : 6u); again++)
    rig_run_device(r, &p.list, max_rows, 1, false);
  if (whole)
    rig_case(r, (r->launches == WHOLE) == (max_rows <= 8 && !g_refused), "program of %s, %u rows: %u launches",
             df_dtype_name(t), max_rows, r->launches);
  r->env.overlap = true;
  r->whole = false;
  rig_run_host(r, &p.list, max_rows, 1);
  rig_compare(r, "program of %s, %u rows, overlap %d, whole %d", df_dtype_name(t), rows, overlap, whole);
  rig_clear(r);
}

/* Every run, overlapping or not, fused or not, gives the first run's logits; and row j of a pass those of a smaller
 * one. */
static void float_case(rig *r, df_dtype t, uint32_t rows) {
  if (!rig_mine(r)) return;
  static program p;
  program_make(r, &p, t, rows);
  const size_t bytes = (size_t)p.batch->n_out * g_shape.vocab * sizeof(float);
  float *first = df_alloc(bytes), *now = df_alloc(bytes);
  bool finite = true;
  uint32_t launches = 0, whole = 0;
  for (uint32_t again = 0; again < (r->quick ? 3u : 9u); again++) {
    r->env.overlap = again % 3 == 1;
    r->whole = again % 3 == 2;
    rig_run_device(r, &p.list, rows, 1, again == 0);
    *(again % 3 == 2 ? &whole : &launches) = r->launches;
    rig_fetch(r, p.logits, bytes, again ? now : first);
    rig_case(r, again == 0 || memcmp(first, now, bytes) == 0, "program of %s, %u rows, run %u differs",
             df_dtype_name(t), rows, again);
  }
  if (rows <= 8 && t != DF_F8) /* fused: embedding, 5 a layer, tap, head with its norm, argmax, acceptance */
    rig_case(r, launches == 5 * g_shape.layers + 5 && whole == WHOLE, "program of %s, %u rows: %u launches, or %u",
             df_dtype_name(t), rows, launches, whole);
  r->whole = false;
  for (size_t i = 0; i < bytes / sizeof *first; i++) finite &= isfinite(first[i]) != 0;
  rig_case(r, finite, "program of %s, %u rows: logits are not finite", df_dtype_name(t), rows);
  r->env.overlap = true;
  df_free(first);
  df_free(now);
  rig_clear(r);
}

/* One kernel for the whole program, in every way it can run, against one an op: logits, and K and V of the last layer.
 */
static void pass_case(rig *r, df_dtype t, uint32_t rows) {
  static const struct {
    const char *name;
    uint32_t cluster, tiles, words;
  } ways[] = {{"usual", 0, 0, 3},
              {"clusters of 4", 4, 5, 3},
              {"single blocks, counted", 1, 12, 0},
              {"single blocks, words", 1, 12, 8}};
  if (!rig_mine(r)) return;
  static program p;
  program_make(r, &p, t, rows);
  const size_t logits = (size_t)p.batch->n_out * g_shape.vocab * sizeof(float);
  const size_t kv = (size_t)(g_prime + 5) * g_shape.kv * g_shape.e * 2, all = logits + 2 * kv;
  uint8_t *want = df_alloc(all), *got = df_alloc(all);
  const df_cuda_tuning usual = df_cuda_tune;
  r->env.overlap = true;
  for (uint32_t i = 0; i < (rows <= 8 ? 5u : 3u); i++) {
    r->whole = i > 0;
    if (i) df_cuda_tune.persist_cluster = ways[i - 1].cluster;
    if (i) df_cuda_tune.persist_tiles = ways[i - 1].tiles;
    if (i) df_cuda_tune.persist_words = ways[i - 1].words;
    rig_run_device(r, &p.list, rows, 1, i == 0);
    df_cuda_tune = usual;
    rig_fetch(r, p.logits, logits, i ? got : want);
    rig_fetch(r, p.k, kv, (i ? got : want) + logits);
    rig_fetch(r, p.v, kv, (i ? got : want) + logits + kv);
    if (i == 0) continue;
    rig_case(r, r->launches == WHOLE, "pass of %s, %u rows, %s: %u launches", df_dtype_name(t), rows, ways[i - 1].name,
             r->launches);
    size_t at = 0;
    while (at < all && want[at] == got[at]) at++;
    rig_case(r, at == all, "pass of %s, %u rows, %s, %u heads for %u of %u: byte %zu differs (logits end at %zu)",
             df_dtype_name(t), rows, ways[i - 1].name, g_shape.heads, g_shape.kv, g_shape.e, at, logits);
  }
  r->whole = false;
  df_free(want);
  df_free(got);
  rig_clear(r);
}

/* Launches of a program of `rows` rows. */
static uint32_t launches_of(rig *r, uint32_t rows) {
  static program p;
  program_make(r, &p, DF_BF16, rows);
  r->whole = true;
  rig_run_device(r, &p.list, rows, 1, false);
  r->whole = false;
  rig_clear(r);
  return r->launches;
}

/* What runs as one kernel, and what does not. */
static void plan_cases(rig *r) {
  const df_cuda_card card = r->card;
  rig_case(r, launches_of(r, 16) == WHOLE, "16 rows are %u launches", r->launches);
  rig_case(r, launches_of(r, 17) > WHOLE, "17 rows are one kernel");
  r->card.clusters[1] = r->card.clusters[2] = 0;
  rig_case(r, launches_of(r, 9) > WHOLE, "9 rows without clusters are one kernel");
  rig_case(r, launches_of(r, 8) == WHOLE, "8 rows without clusters are %u launches", r->launches);
  r->card = card;
  r->card.shared_bytes = 88 << 10;
  rig_case(r, launches_of(r, 1) > WHOLE, "a row with little shared memory is one kernel");
  r->card = card;
  r->card.major = 8;
  rig_case(r, launches_of(r, 1) > WHOLE, "a row on an older card is one kernel");
  r->card = card;
}

/* Query heads of a KV head, both widths of heads, k that tiles and parts do not divide, every way that operands come.
 */
void test_float_passes(rig *r) {
  static const shape shapes[] = {
      {256, 512, 4, 2, 64, 310, 2}, {280, 328, 4, 1, 128, 300, 2}, {576, 160, 3, 3, 64, 302, 2}};
  const shape usual = g_shape;
  const df_cuda_card card = r->card;
  const bool emulated = strcmp(card.name, "emulated") == 0;
  for (uint32_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
    g_shape = shapes[i];
    if (emulated && i == 0) r->card.n_sm = r->card.clusters[0] = 8, r->card.clusters[1] = 4, r->card.clusters[2] = 2;
    for (uint32_t rows = 1; rows <= 16; rows += r->quick ? rows < 3 ? 1 : rows == 3 ? 5 : 8 : 1)
      pass_case(r, (rows + i) % 3 ? DF_BF16 : DF_F16, rows);
    r->card = card;
  }
  g_shape = usual;
  plan_cases(r);
}

void test_programs(rig *r) {
  static const df_dtype types[] = {DF_Q4_0, DF_Q4_1, DF_Q8_0, DF_Q4_K, DF_Q5_K, DF_F32};
  for (uint32_t i = 0; i < sizeof types / sizeof *types; i++)
    for (uint32_t rows = 1; rows <= 33; rows = rows == 1 ? 16 : 2 * rows + 1)
      quantised_case(r, types[i], rows, i % 2 == 0, false);
  for (uint32_t rows = 1; rows <= 33; rows = rows == 1 ? 4 : rows == 4 ? 16 : 2 * rows + 1) {
    float_case(r, DF_BF16, rows);
    float_case(r, DF_F16, rows);
    float_case(r, DF_F8, rows);
  }
  g_len = 2300;
  g_prime = 4093;
  float_case(r, DF_BF16, 1);
  float_case(r, DF_BF16, 3);
  g_len = 130;
  g_prime = 251;
}

/* Whole passes of quantised weights: one kernel, the CPU executor's bits. */
void test_passes(rig *r) {
  static const df_dtype types[] = {DF_Q4_1, DF_Q4_0, DF_Q8_0, DF_Q4_K, DF_Q5_K, DF_Q5_1};
  const df_cuda_tuning usual = df_cuda_tune;
  const size_t shared = r->card.shared_bytes;
  df_cuda_tune.persist_steps = 0; /* the made-up card is small for what it would have to pay */
  for (uint32_t i = 0; i < sizeof types / sizeof *types; i++) {
    const bool super = types[i] == DF_Q4_K || types[i] == DF_Q5_K;
    for (uint32_t rows = 1; rows <= 9; rows++) {
      g_shape.hidden = super || rows == 2 ? 512 : 288; /* 16 blocks of k, or 9 */
      g_shape.ffn = super ? (rows % 3 ? 768 : 2304) : rows % 3 ? 480 : 1824;
      df_cuda_tune.persist_words = (rows + i) % 4 == 0 ? 3 : 8;
      r->card.shared_bytes = rows % 2 ? shared : shared / 2; /* smaller turns */
      quantised_case(r, types[i], rows, true, true);
    }
  }
  r->card.shared_bytes = shared;
  df_cuda_tune.persist_words = 0;
  for (uint32_t rows = 1; rows <= 8; rows += 3) quantised_case(r, DF_Q4_1, rows, true, true);
  g_refused = true;
  g_f32_table = true;
  quantised_case(r, DF_Q4_1, 2, true, true);
  g_f32_table = false;
  r->card.shared_bytes = 48 << 10; /* too little */
  quantised_case(r, DF_Q4_1, 5, true, true);
  r->card.shared_bytes = shared;
  df_cuda_tune.persist_steps = 1; /* does not pay */
  quantised_case(r, DF_Q4_1, 8, true, true);
  g_refused = false;
  quantised_case(r, DF_Q4_1, 1, true, true);
  df_cuda_tune = usual;
  g_shape.hidden = 256;
  g_shape.ffn = 512;
}
