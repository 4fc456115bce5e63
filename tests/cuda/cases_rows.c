/* cases_rows.c - row-wise ops against the CPU executor. */
#include <math.h>
#include <string.h>

#include "cuda/cuda_rig.h"
#include "support/kernel_data.h"

static uint32_t *make_counts(rig *r, uint32_t n) {
  uint32_t *p = rig_new(r, 64, RIG_RAW, "n_rows");
  *p = n;
  return p;
}

static df_act make_act(rig *r, uint32_t rows, uint32_t k, bool f, bool q) {
  df_act a = {.k = k};
  if (f) a.f = rig_floats(r, (size_t)rows * k, "out.f");
  if (q) a.q = rig_new(r, ((size_t)rows + 15) / 16 * 16 * (k / DF_QBLOCK) * sizeof(df_actq), RIG_RAW, "out.q");
  return a;
}

static void embed_case(rig *r, df_dtype type, uint32_t k, float scale) {
  const uint32_t n = 37, rows = 5;
  rig_list l = {.n = 0};
  int32_t *ids = rig_new(r, 64, RIG_RAW, "ids");
  for (uint32_t i = 0; i < 8; i++) ids[i] = (int32_t)rig_below(r, n);
  ids[0] = 0, ids[1] = (int32_t)n - 1;
  const df_op_embed a = {.table = rig_weights(r, type, n, k),
                         .ids = ids,
                         .n_rows = make_counts(r, rows),
                         .out = rig_floats(r, 8u * k, "out"),
                         .scale = scale};
  rig_add(&l, DF_OP_EMBED, &a);
  rig_both(r, &l, 8, 1, "embed %s k %u scale %g", df_dtype_name(type), k, (double)scale);
  rig_clear(r);
}

static void norm_case(rig *r, uint32_t k, uint32_t live, uint32_t rows, bool f, bool q, bool map, uint32_t fill) {
  rig_list l = {.n = 0};
  float *x = rig_floats(r, (size_t)rows * k, "x"), *w = rig_floats(r, k, "w");
  rig_fill(r, x, (size_t)rows * k, fill);
  rig_fill(r, w, k, 0);
  uint32_t *row_map = map ? rig_new(r, rows * sizeof *row_map, RIG_RAW, "row_map") : NULL;
  for (uint32_t i = 0; map && i < rows; i++) row_map[i] = rig_below(r, rows);
  const df_op_norm a = {x, w, make_counts(r, live), row_map, make_act(r, rows, k, f, q), 1e-5f};
  rig_add(&l, DF_OP_NORM, &a);
  rig_both(r, &l, rows, 1, "norm k %u rows %u of %u f %d q %d map %d fill %u", k, live, rows, f, q, map, fill);
  rig_clear(r);
}

static void quantize_case(rig *r, uint32_t k, uint32_t live, uint32_t rows, uint32_t fill) {
  rig_list l = {.n = 0};
  float *x = rig_floats(r, (size_t)rows * k, "x");
  rig_fill(r, x, (size_t)rows * k, fill);
  for (uint32_t i = 0; i < 32 && fill == 2; i++) x[i] = i % 2 ? 0.0f : -0.0f; /* a zero block */
  const df_op_quantize a = {x, make_counts(r, live), NULL, make_act(r, rows, k, false, true)};
  rig_add(&l, DF_OP_QUANTIZE, &a);
  rig_both(r, &l, rows, 1, "quantize k %u rows %u of %u fill %u", k, live, rows, fill);
  rig_clear(r);
}

static void tap_case(rig *r, uint32_t k, bool map, bool to) {
  rig_list l = {.n = 0};
  const uint32_t rows = 9;
  float *x = rig_floats(r, rows * k, "x");
  rig_fill(r, x, rows * k, 3);
  uint32_t *row_map = map ? rig_new(r, rows * sizeof *row_map, RIG_RAW, "row_map") : NULL;
  uint32_t *to_row = to ? rig_new(r, rows * sizeof *to_row, RIG_RAW, "to_row") : NULL;
  for (uint32_t i = 0; map && i < rows; i++) row_map[i] = rows - 1 - i;
  for (uint32_t i = 0; to && i < rows; i++) to_row[i] = (i * 4 + 2) % rows; /* each row once */
  const df_op_tap a = {x, rig_floats(r, rows * (3u * k), "dst") + k, 3u * k, k, make_counts(r, 7), row_map, to_row};
  rig_add(&l, DF_OP_TAP, &a);
  rig_both(r, &l, rows, 1, "tap k %u map %d to %d", k, map, to);
  rig_clear(r);
}

static void argmax_case(rig *r, uint32_t n, uint32_t segments, uint32_t fill) {
  rig_list l = {.n = 0};
  const uint32_t rows = 4, ld = n + 3;
  float *x = rig_floats(r, (size_t)rows * ld, "x");
  rig_fill(r, x, (size_t)rows * ld, fill == 9 ? 0 : fill);
  for (uint32_t i = 0; i < n; i++) {
    if (fill == 9) x[i] = NAN;                                       /* nothing wins */
    if (fill == 2) x[ld + i] = i % 5 ? -1.0f : i % 2 ? 0.0f : -0.0f; /* ties of both zeros */
    if (fill == 0) x[2 * ld + i] = floorf(8 * x[2 * ld + i]);        /* many ties */
  }
  const df_op_argmax a = {.x = x,
                          .ld = ld,
                          .n = n,
                          .segments = segments,
                          .n_rows = make_counts(r, 3),
                          .best = rig_floats(r, rows * segments, "best"),
                          .best_id = rig_new(r, rows * segments * sizeof(uint32_t), RIG_RAW, "best_id")};
  rig_add(&l, DF_OP_ARGMAX, &a);
  rig_both(r, &l, rows, 1, "argmax n %u segments %u fill %u", n, segments, fill);
  rig_clear(r);
}

/* Values of many segments, ties, infinities and NaN among them, and ascending ids. */
static df_best make_best(rig *r, uint32_t rows, uint32_t segments, uint32_t fill, bool map) {
  float *value = rig_floats(r, (size_t)rows * segments, "value");
  uint32_t *id = rig_new(r, (size_t)rows * segments * 4, RIG_RAW, "id");
  int32_t *to = map ? rig_new(r, 5 * (size_t)segments * 4, RIG_RAW, "map") : NULL;
  rig_fill(r, value, (size_t)rows * segments, fill);
  for (uint32_t i = 0; i < rows * segments; i++) {
    id[i] = 5 * (i % segments) + rig_below(r, 5);
    if (fill == 0) value[i] = floorf(4 * value[i]); /* many ties */
    if (fill == 1 && i / segments == 1) value[i] = i % segments == 0 ? NAN : 1;
    if (fill == 1 && i / segments == 2) value[i] = NAN;
    if (fill == 1 && i / segments == 3) value[i] = -INFINITY;
  }
  for (uint32_t i = 0; map && i < 5 * segments; i++) to[i] = (int32_t)(i * 7 + 3);
  return (df_best){value, id, to, segments};
}

/* Verify rows that are embedded from a draft's tokens; the rows of padding sequences from their ids. */
static void drafted_embed_case(rig *r, df_dtype type, uint32_t width, uint32_t live, uint32_t segments, uint32_t fill) {
  rig_list l = {.n = 0};
  const bool map = fill % 2 == 1;
  const uint32_t seqs = 4, rows = seqs * width, vocab = (map ? 7 : 1) * 5 * segments + 3, k = 96;
  int32_t *ids = rig_new(r, rows * 4, RIG_RAW, "ids");
  for (uint32_t i = 0; i < rows; i++) ids[i] = (int32_t)rig_below(r, vocab);
  const df_op_embed a = {.table = rig_weights(r, type, vocab, k),
                         .ids = ids,
                         .n_rows = make_counts(r, rows),
                         .out = rig_floats(r, (size_t)rows * k, "out"),
                         .scale = 1.0f,
                         .drafts = {make_best(r, rows, segments, fill, map), make_counts(r, live), width}};
  rig_add(&l, DF_OP_EMBED, &a);
  rig_both(r, &l, rows, seqs, "embed %s of drafts, width %u, %u of %u, segments %u fill %u", df_dtype_name(type), width,
           live, seqs, segments, fill);
  rig_clear(r);
}

/* Few tokens, so that drafts often stand; live sequences and rows in front of padding. width 0: no drafts. */
static void accept_case(rig *r, uint32_t width, uint32_t live, uint32_t segments, uint32_t fill) {
  rig_list l = {.n = 0};
  const uint32_t seqs = 5, rows = width ? seqs * width : 37, n = width ? rows - seqs : 0;
  df_op_accept a = {.best = make_best(r, rows, segments, fill, false),
                    .n_rows = make_counts(r, width ? live * width : live),
                    .token = rig_new(r, rows * 4, RIG_RAW, "token")};
  if (width) {
    a.drafts = (df_drafts){make_best(r, n, segments, fill, fill == 1), make_counts(r, live), width};
    a.drafted = rig_new(r, n * 4, RIG_RAW, "drafted");
    a.accepted = rig_new(r, seqs * 4, RIG_RAW, "accepted");
    for (uint32_t i = 0; i < n; i++) { /* three of four drafts are the target's own */
      if (fill == 1 || rig_below(r, 4) == 0) continue;
      const size_t from = (size_t)(i / (width - 1) * width + i % (width - 1)) * segments, to = (size_t)i * segments;
      memcpy((float *)a.drafts.best.value + to, a.best.value + from, segments * sizeof(float));
      memcpy((uint32_t *)a.drafts.best.id + to, a.best.id + from, segments * sizeof(uint32_t));
    }
  }
  rig_add(&l, DF_OP_ACCEPT, &a);
  rig_both(r, &l, rows, seqs, "accept width %u, %u live, segments %u fill %u", width, live, segments, fill);
  rig_clear(r);
}

/* Token-major K/V with slots anywhere, the sink among them. */
static void rope_case(rig *r, uint32_t e, uint32_t heads, uint32_t n_kv, uint32_t rows, bool q, bool norm,
                      df_kv_type type, uint32_t fill) {
  rig_list l = {.n = 0};
  const uint32_t slots = 64, width = (heads + 2 * n_kv) * e, positions = 300;
  const size_t size = type == DF_KV_F16 ? 2 : 4;
  float *x = rig_floats(r, (size_t)rows * width, "qkv");
  rig_fill(r, x, (size_t)rows * width, fill);
  float *cos = rig_floats(r, positions * e / 2, "cos"), *sin = rig_floats(r, positions * e / 2, "sin");
  rig_fill(r, cos, positions * e / 2, 0);
  rig_fill(r, sin, positions * e / 2, 0);
  float *qn = rig_floats(r, e, "q_norm"), *kn = rig_floats(r, e, "k_norm");
  rig_fill(r, qn, e, 0);
  rig_fill(r, kn, e, 0);
  uint32_t *pos = rig_new(r, rows * 4, RIG_RAW, "pos"), *slot = rig_new(r, rows * 4, RIG_RAW, "slot");
  for (uint32_t i = 0; i < rows; i++) {
    pos[i] = rig_below(r, positions);
    slot[i] = i == 1 ? 0 : (i * 7 + 1) % slots; /* distinct but for the sink */
  }
  const rig_kind kind = type == DF_KV_F16 ? RIG_F16 : RIG_F32;
  df_op_rope_kv a = {.q = q ? x : NULL,
                     .k = x + heads * e,
                     .v = x + (heads + n_kv) * e,
                     .q_ld = width,
                     .k_ld = width,
                     .v_ld = width,
                     .q_norm = norm ? qn : NULL,
                     .k_norm = norm ? kn : NULL,
                     .eps = 1e-6f,
                     .cos = cos,
                     .sin = sin,
                     .pos = pos,
                     .slot = slot,
                     .n_rows = make_counts(r, rows - 1),
                     .n_heads = heads,
                     .n_kv = n_kv,
                     .head_dim = e};
  a.kv = (df_kv_view){.k = rig_new(r, slots * n_kv * e * size, kind, "K"),
                      .v = rig_new(r, slots * n_kv * e * size, kind, "V"),
                      .head_bytes = 16 * e * size,
                      .type = type,
                      .token_major = true,
                      .block_slots = 1};
  rig_add(&l, DF_OP_ROPE_KV, &a);
  rig_both(r, &l, rows, 1, "rope e %u heads %u/%u rows %u q %d norm %d f16 %d fill %u", e, heads, n_kv, rows, q, norm,
           type == DF_KV_F16, fill);
  rig_clear(r);
}

void test_rows(rig *r) {
  for (uint32_t t = 0; t < TEST_DTYPES; t++)
    for (uint32_t i = 0; i < 2; i++) embed_case(r, test_dtypes[t], i ? 1280 : 256, i ? 0.5f : 1.0f);
  embed_case(r, DF_BF16, 37, 1.0f);
  embed_case(r, DF_F32, 5, 2.0f);
  static const uint32_t k[] = {32, 64, 96, 576, 1088, 4096};
  for (uint32_t i = 0; i < sizeof k / sizeof *k; i++)
    for (uint32_t fill = 0; fill < 6; fill++) {
      if (r->quick && i > 3) continue;
      norm_case(r, k[i], 3 + 14 * (fill == 1), 20, fill % 2, true, fill == 2, fill);
      norm_case(r, k[i] + (i == 2 ? 5 : 0), 4, 4, true, false, fill == 1, fill);
      quantize_case(r, k[i], fill == 0 ? 20 : 3, 20, fill);
    }
  norm_case(r, 1, 2, 2, true, false, false, 0);
  norm_case(r, 33, 0, 2, true, false, false, 0);
  tap_case(r, 64, false, false);
  tap_case(r, 1030, true, false);
  tap_case(r, 96, false, true);
  tap_case(r, 260, true, true);
  for (uint32_t fill = 0; fill < 4; fill++) {
    argmax_case(r, 1000, 7, fill);
    argmax_case(r, 5, 4, fill);
    argmax_case(r, r->quick ? 4099 : 151936, 64, fill);
  }
  argmax_case(r, 100, 3, 9);
  for (uint32_t width = 2; width <= 16; width += r->quick ? 7 : 1)
    for (uint32_t fill = 0; fill < 4; fill++)
      drafted_embed_case(r, width % 2 ? DF_Q8_0 : DF_BF16, width, 1 + width % 4, fill == 1 ? 7 + width : 64, fill);
  for (uint32_t width = 2; width <= 16; width += r->quick ? 7 : 1)
    for (uint32_t fill = 0; fill < 4; fill++) accept_case(r, width, 1 + width % 5, fill == 1 ? 7 + width : 64, fill);
  accept_case(r, 0, 37, 64, 0);
  accept_case(r, 0, 17, 4, 1);
  accept_case(r, 0, 0, 4, 2);
  static const uint32_t e[] = {16, 48, 64, 128, 256};
  for (uint32_t i = 0; i < sizeof e / sizeof *e; i++)
    for (uint32_t v = 0; v < 4; v++)
      rope_case(r, e[i], 6, 2, v == 3 ? 40 : 5, v != 1, v % 2, v == 2 ? DF_KV_F32 : DF_KV_F16, v);
}
