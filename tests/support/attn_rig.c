#include "support/attn_rig.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#include <math.h>
#include <string.h>

#include "base/map.h"
#include "base/mem.h"
#include "base/size.h"

static void must(df_status s, const df_error *err) {
  if (s != DF_OK) fail_msg("%s", err->msg);
}

static float *floats(size_t n) {
  float *p = df_pages_alloc(n * sizeof *p);
  assert_non_null(p);
  return p;
}

/* In [-1, 1), by name. */
static float value(uint64_t seed, uint32_t what, uint32_t seq, uint32_t pos, uint32_t i) {
  const uint32_t name[4] = {what, seq, pos, i};
  return (float)(df_hash_bytes(name, sizeof name, seed + 1) >> 40) * 0x1p-23f - 1.0f;
}

static float rounded(df_kv_type t, float x) { return t == DF_KV_F16 ? df_f16_to_f32(df_f32_to_f16(x)) : x; }

/* ---- set-up --------------------------------------------------------------------------------------------- */

static void init_sequences(attn_rig *r) {
  df_error err = {0};
  const uint32_t page = r->s.page_size, per_seq = RIG_LEN + 2 * page;
  must(df_pages_init(&r->pages, page, RIG_SEQS * per_seq, &err), &err);
  for (uint32_t s = 0; s < RIG_SEQS; s++) must(df_kv_seq_init(&r->seq[s], page, RIG_LEN, &err), &err);
  for (uint32_t n = page; n < RIG_LEN + page; n += page) /* pages of the sequences lie between each other */
    for (uint32_t s = RIG_SEQS; s-- > 0;)
      must(df_kv_seq_reserve(&r->seq[s], &r->pages, DF_MIN(n, (uint32_t)RIG_LEN), &err), &err);
  must(df_kv_store_init(&r->store, r->s.kv, 1, r->s.n_kv, r->s.head_dim, &r->pages, NULL, &err), &err);
}

static size_t kv_at(const attn_rig *r, uint32_t seq, uint32_t pos, uint32_t g) {
  return (((size_t)seq * RIG_LEN + pos) * r->s.n_kv + g) * r->s.head_dim;
}

static void init_values(attn_rig *r) {
  const uint32_t kv = r->s.n_kv * r->s.head_dim;
  const size_t n = (size_t)RIG_SEQS * RIG_LEN * kv;
  r->k = floats(n);
  r->v = floats(n);
  for (uint32_t s = 0; s < RIG_SEQS; s++)
    for (uint32_t p = 0; p < RIG_LEN; p++)
      for (uint32_t i = 0; i < kv; i++) {
        r->k[kv_at(r, s, p, 0) + i] = rounded(r->s.kv, value(r->s.seed, 1, s, p, i));
        r->v[kv_at(r, s, p, 0) + i] = rounded(r->s.kv, value(r->s.seed, 2, s, p, i));
      }
}

void attn_rig_init(attn_rig *r, const attn_rig_spec *s) {
  df_error err = {0};
  const df_kernels *kernels = df_kernels_get(df_cpu_best_tier());
  *r = (attn_rig){.s = *s,
                  .width = s->n_kv * s->group * s->head_dim,
                  .shape = {s->n_kv * s->group, s->n_kv, s->head_dim, RIG_LEN, s->threads, NULL, s->page_size}};
  must(df_pool_create(s->threads, &r->pool, &err), &err);
  must(df_cpu_create(r->pool, kernels, &r->cpu, &err), &err);
  init_sequences(r);
  init_values(r);
  const uint32_t blocks = s->page_size == 1 ? RIG_LEN : (uint32_t)(df_round_up(RIG_LEN, 64) / 16);
  must(df_batch_init(&r->batch, RIG_ROWS, RIG_BATCH, blocks, &err), &err);
  must(df_mask_buffer_init(&r->mask, RIG_BATCH, (size_t)RIG_BATCH * 16 * RIG_LEN, &err), &err);
  r->q = floats((size_t)RIG_ROWS * r->width);
  r->out = floats((size_t)RIG_ROWS * r->width);
}

void attn_rig_release(attn_rig *r) {
  const size_t kv = (size_t)RIG_SEQS * RIG_LEN * r->s.n_kv * r->s.head_dim * sizeof(float);
  df_cpu_quiesce(r->cpu);
  df_pages_free(r->k, kv);
  df_pages_free(r->v, kv);
  df_pages_free(r->q, (size_t)RIG_ROWS * r->width * sizeof(float));
  df_pages_free(r->out, (size_t)RIG_ROWS * r->width * sizeof(float));
  df_mask_buffer_release(&r->mask);
  df_batch_release(&r->batch);
  df_kv_store_release(&r->store);
  for (uint32_t s = 0; s < RIG_SEQS; s++) df_kv_seq_release(&r->seq[s], &r->pages);
  df_pages_release(&r->pages);
  df_cpu_free(r->cpu);
  df_pool_free(r->pool);
}

/* ---- pages ---------------------------------------------------------------------------------------------- */

void attn_rig_poison(attn_rig *r) {
  memset(r->store.k, 0xFF, r->store.total_bytes);
  memset(r->store.v, 0xFF, r->store.total_bytes);
}

static void put(const attn_rig *r, uint8_t *mem, size_t index, float x) {
  const uint16_t h = df_f32_to_f16(x);
  if (r->s.kv == DF_KV_F16)
    memcpy(mem + 2 * index, &h, 2);
  else
    memcpy(mem + 4 * index, &x, 4);
}

void attn_rig_write(attn_rig *r, uint32_t seq, uint32_t from, uint32_t to) {
  const uint32_t e = r->s.head_dim, n_kv = r->s.n_kv;
  for (uint32_t p = from; p < to; p++) {
    const size_t slot = df_kv_slot(&r->seq[seq], p);
    for (uint32_t g = 0; g < n_kv; g++)
      for (uint32_t i = 0; i < e; i++) {
        const size_t plain = (slot * n_kv + g) * e + i,
                     block = g * (r->store.head_stride / (r->store.type == DF_KV_F16 ? 2 : 4)) + slot / 16 * 16 * e,
                     at = slot % 16;
        put(r, r->store.k, r->s.page_size == 1 ? plain : block + i * 16 + at, r->k[kv_at(r, seq, p, g) + i]);
        put(r, r->store.v, r->s.page_size == 1 ? plain : block + at * e + i, r->v[kv_at(r, seq, p, g) + i]);
      }
  }
}

/* ---- leaves and passes ---------------------------------------------------------------------------------- */

static const struct {
  const char *name;
  df_status (*create)(const df_attn_shape *, df_attn **, df_error *);
} k_leaves[RIG_LEAVES] = {
    {"flash", df_attn_flash_create}, {"splitkv", df_attn_splitkv_create}, {"naive", df_attn_naive_create}};

const char *attn_rig_leaf_name(uint32_t i) { return k_leaves[i].name; }

uint32_t attn_rig_leaf_rows(uint32_t i) { return i == 1 ? 64 : RIG_ROWS; }

df_attn *attn_rig_leaf(const attn_rig *r, uint32_t i) {
  df_error err = {0};
  df_attn *a;
  must(k_leaves[i].create(&r->shape, &a, &err), &err);
  must(a->ops->graph_init(a, RIG_BATCH, RIG_ROWS, &err), &err);
  return a;
}

static void fill(attn_rig *r, df_mode mode, const attn_rig_item *items, uint32_t n, uint32_t pad) {
  static const int32_t ids[RIG_ROWS];
  memset(r->q, 0xFF, (size_t)RIG_ROWS * r->width * sizeof *r->q);
  memset(r->out, 0xFF, (size_t)RIG_ROWS * r->width * sizeof *r->out);
  df_fill_begin(&r->batch);
  for (uint32_t i = 0; i < n; i++) {
    for (uint32_t j = 0; j < items[i].n; j++)
      for (uint32_t c = 0; c < r->width; c++)
        r->q[(size_t)(r->batch.n_rows + j) * r->width + c] =
            6 * value(r->s.seed, 0, items[i].seq, items[i].first + j, c);
    (void)df_fill_add(&r->batch, &r->seq[items[i].seq], ids, items[i].n, items[i].first, DF_OUT_NONE);
  }
  if (mode != DF_MODE_EXTEND && pad) df_fill_pad(&r->batch, pad, items[0].n);
}

void attn_rig_run(attn_rig *r, df_attn *leaf, df_mode mode, const attn_rig_item *items, uint32_t n, uint32_t pad,
                  df_mask_layout layout, const uint8_t *mask, size_t mask_bytes) {
  df_error err = {0};
  df_program *p;
  fill(r, mode, items, n, pad);
  const uint32_t seqs = DF_MAX(pad, n);
  const uint32_t rows = mode == DF_MODE_EXTEND && pad ? DF_MAX(r->batch.n_rows, 64u) : r->batch.n_rows;
  must(df_program_create(rows, seqs, r->s.threads, &p, &err), &err);
  r->batch.mask_layout = layout;
  r->batch.mask = mask;
  r->batch.mask_bytes = mask_bytes;
  if (mask) must(df_mask_buffer_load(&r->mask, &r->batch, &err), &err);
  const df_attn_pass pass = {p, &r->batch, mode, layout, layout == DF_MASK_NONE ? NULL : &r->mask, 0};
  const df_attn_layer layer = {.q = r->q,
                               .q_ld = r->width,
                               .out = {.f = r->out, .k = r->width},
                               .kv = df_kv_store_layer(&r->store, 0),
                               .causal = !r->s.block,
                               .window = r->s.window};
  must(leaf->ops->emit(leaf, &pass, &layer, &err), &err);
  must(leaf->ops->plan(leaf, p, &r->batch, mode, DF_PHASE_EAGER, &err), &err);
  df_cpu_run(r->cpu, p);
  df_cpu_quiesce(r->cpu);
  df_program_free(p);
}

/* ---- the answer ----------------------------------------------------------------------------------------- */

static bool spec_sees(const attn_rig *r, uint32_t pos, uint32_t len, uint32_t p) {
  if (p >= len || (!r->s.block && p > pos)) return false;
  return r->s.window == 0 || p + r->s.window > pos; /* positions above pos are inside any window */
}

void attn_rig_oracle(const attn_rig *r, uint32_t seq, uint32_t pos, uint32_t len, attn_rig_see may_see, const void *ctx,
                     double *out) {
  const uint32_t e = r->s.head_dim;
  for (uint32_t h = 0; h < r->s.n_kv * r->s.group; h++) {
    double score[RIG_LEN], top = -INFINITY, sum = 0;
    double *y = out + (size_t)h * e;
    memset(y, 0, e * sizeof *y);
    for (uint32_t p = 0; p < len; p++) {
      const float *k = r->k + kv_at(r, seq, p, h / r->s.group);
      score[p] = -INFINITY;
      if (may_see ? !may_see(ctx, p) : !spec_sees(r, pos, len, p)) continue;
      double dot = 0;
      for (uint32_t i = 0; i < e; i++) dot += (double)(6 * value(r->s.seed, 0, seq, pos, h * e + i)) * (double)k[i];
      score[p] = dot / sqrt(e);
      top = fmax(top, score[p]);
    }
    for (uint32_t p = 0; p < len; p++) {
      if (score[p] == -INFINITY) continue;
      const double w = exp(score[p] - top);
      sum += w;
      for (uint32_t i = 0; i < e; i++) y[i] += w * (double)r->v[kv_at(r, seq, p, h / r->s.group) + i];
    }
    for (uint32_t i = 0; i < e && sum > 0; i++) y[i] /= sum;
  }
}

/* ---- the whole programme -------------------------------------------------------------------------------- */

typedef struct check {
  attn_rig r;
  float *want; /* [seq][position][width] */
  const char *leaf;
} check;

static const float *want_row(const check *c, uint32_t seq, uint32_t pos) {
  return c->want + ((size_t)seq * RIG_LEN + pos) * c->r.width;
}

static void assert_rows(const check *c, const attn_rig_item *items, uint32_t n, const char *what) {
  uint32_t row = 0;
  for (uint32_t i = 0; i < n; i++)
    for (uint32_t j = 0; j < items[i].n; j++, row++) {
      if (memcmp(c->r.out + (size_t)row * c->r.width, want_row(c, items[i].seq, items[i].first + j),
                 c->r.width * sizeof(float)) == 0)
        continue;
      const attn_rig_spec *s = &c->r.s;
      fail_msg(
          "%s, %s: sequence %u of %u, row %u, position %u (kv heads %u, group %u, head %u, page %u, %s, window %u)",
          c->leaf, what, i, n, j, items[i].first + j, s->n_kv, s->group, s->head_dim, s->page_size,
          s->kv == DF_KV_F16 ? "f16" : "f32", s->window);
    }
}

static void run_and_assert(check *c, df_attn *a, df_mode mode, const attn_rig_item *items, uint32_t n, uint32_t pad,
                           const char *what) {
  attn_rig_run(&c->r, a, mode, items, n, pad, DF_MASK_NONE, NULL, 0);
  assert_rows(c, items, n, what);
}

/* Row after row, one sequence at a time: the meaning of the words. */
static void fill_table(check *c) {
  df_attn *a = attn_rig_leaf(&c->r, 2);
  for (uint32_t s = 0; s < RIG_SEQS; s++)
    for (uint32_t p = 0; p < RIG_LEN; p++) {
      const attn_rig_item one = {s, p, 1};
      attn_rig_run(&c->r, a, DF_MODE_DECODE, &one, 1, 0, DF_MASK_NONE, NULL, 0);
      memcpy(c->want + ((size_t)s * RIG_LEN + p) * c->r.width, c->r.out, c->r.width * sizeof(float));
    }
  df_attn_free(a);
}

/* Values are below 1, so an absolute bound; every position of one sequence, every seventh of the others. */
static void check_oracle(const check *c) {
  double *y = df_calloc(c->r.width, sizeof *y);
  assert_non_null(y);
  for (uint32_t s = 0; s < RIG_SEQS; s++)
    for (uint32_t p = s; p < RIG_LEN; p += s ? 7 : 1) {
      attn_rig_oracle(&c->r, s, p, p + 1, NULL, NULL, y);
      for (uint32_t i = 0; i < c->r.width; i++) {
        const double d = fabs(y[i] - (double)want_row(c, s, p)[i]);
        if (!(d < 4e-6)) fail_msg("position %u, channel %u: off by %g (window %u)", p, i, d, c->r.s.window);
      }
    }
  df_free(y);
}

static const uint32_t k_starts[] = {0, 1, 13, 15, 16, 47, 50, 62, 63, 64, 99, 112, 113, 126, 127, 128, 130};

static void check_decodes(check *c, df_attn *a) {
  uint32_t at = 0;
  for (uint32_t n = 1; n <= RIG_BATCH; n++) {
    attn_rig_item items[RIG_BATCH];
    for (uint32_t i = 0; i < n; i++, at++)
      items[i] = (attn_rig_item){at % RIG_SEQS, k_starts[at * 5 % DF_COUNT_OF(k_starts)], 1};
    run_and_assert(c, a, DF_MODE_DECODE, items, n, n % 3 == 0 ? RIG_BATCH : 0, "decode");
  }
}

static void check_verifies(check *c, df_attn *a) {
  uint32_t at = 0;
  for (uint32_t w = 1; w <= 16; w++) {
    attn_rig_item items[RIG_BATCH];
    const uint32_t n = 1 + (w * 3 + 1) % RIG_BATCH;
    for (uint32_t i = 0; i < n; i++, at++)
      items[i] = (attn_rig_item){at % RIG_SEQS, k_starts[at % DF_COUNT_OF(k_starts)], w};
    run_and_assert(c, a, DF_MODE_TARGET_VERIFY, items, n, w % 4 == 1 ? RIG_BATCH : 0, "verify");
  }
}

static void check_prefills(check *c, df_attn *a, uint32_t max_rows) {
  static const attn_rig_item k_ragged[][4] = {
      {{0, 0, 17}, {1, 63, 2}, {2, 120, 9}, {0, 64, 1}},
      {{2, 0, 15}, {2, 15, 1}, {1, 16, 33}, {0, 129, 15}},
      {{1, 1, 1}, {0, 62, 3}, {2, 126, 3}, {1, 81, 48}},
  };
  for (size_t i = 0; i < DF_COUNT_OF(k_ragged); i++)
    run_and_assert(c, a, DF_MODE_EXTEND, k_ragged[i], 4, i % 2 ? RIG_BATCH : 0, "ragged prefill");
  /* As many sequences as there may be, and the last one has most of the rows: the far end of any scratch. */
  static const attn_rig_item k_far[RIG_BATCH] = {{0, 140, 1}, {1, 9, 1},  {2, 64, 1}, {0, 128, 1},
                                                 {1, 127, 1}, {2, 77, 1}, {0, 1, 1},  {1, 89, 57}};
  run_and_assert(c, a, DF_MODE_EXTEND, k_far, RIG_BATCH, RIG_BATCH, "full batch");
  static const uint32_t k_lens[] = {15, 16, 17, 63, 64, 65, 127, 128, 129, RIG_LEN};
  for (size_t i = 0; i < DF_COUNT_OF(k_lens); i++) {
    const attn_rig_item one = {(uint32_t)i % RIG_SEQS, 0,
                               DF_MIN(k_lens[i], max_rows)}; /* from the start, or up to the end */
    const attn_rig_item end = {one.seq, k_lens[i] - one.n, one.n};
    run_and_assert(c, a, DF_MODE_EXTEND, i % 2 ? &end : &one, 1, 0, "prefill");
  }
}

/* Nothing behind the last key of the pass is ever looked at, nor any page of others. */
static void check_poisoned(check *c, df_attn *a) {
  for (uint32_t i = 0; i < DF_COUNT_OF(k_starts); i += 3) {
    const attn_rig_item item = {i % RIG_SEQS, k_starts[i], 1 + i % 16};
    attn_rig_poison(&c->r);
    attn_rig_write(&c->r, item.seq, 0, item.first + item.n);
    run_and_assert(c, a, item.n == 1 ? DF_MODE_DECODE : DF_MODE_TARGET_VERIFY, &item, 1, i % 2 ? 4 : 0,
                   "with NaN around");
  }
  for (uint32_t s = 0; s < RIG_SEQS; s++) attn_rig_write(&c->r, s, 0, RIG_LEN);
}

void attn_rig_check_all(const attn_rig_spec *s) {
  check c;
  attn_rig_init(&c.r, s);
  c.want = floats((size_t)RIG_SEQS * RIG_LEN * c.r.width);
  attn_rig_poison(&c.r);
  for (uint32_t i = 0; i < RIG_SEQS; i++) attn_rig_write(&c.r, i, 0, RIG_LEN);
  fill_table(&c);
  check_oracle(&c);
  for (uint32_t i = 0; i < RIG_LEAVES; i++) {
    df_attn *a = attn_rig_leaf(&c.r, i);
    c.leaf = attn_rig_leaf_name(i);
    check_decodes(&c, a);
    check_verifies(&c, a);
    check_prefills(&c, a, attn_rig_leaf_rows(i));
    check_poisoned(&c, a);
    df_attn_free(a);
  }
  df_pages_free(c.want, (size_t)RIG_SEQS * RIG_LEN * c.r.width * sizeof(float));
  attn_rig_release(&c.r);
}
