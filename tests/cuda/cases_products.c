/* cases_products.c - quantised and F32 products against the CPU executor, bit for bit. */
#include <string.h>

#include "cuda/cuda_rig.h"
#include "device/cuda/cuda_tune.h"
#include "support/kernel_data.h"

/* Rows of activations in both forms: floats, and their blocks made by the reference for `live` rows. */
static df_act make_input(rig *r, uint32_t rows, uint32_t live, uint32_t k, bool q, uint32_t fill) {
  const df_kernels *ref = df_kernels_get(DF_TIER_REF);
  df_act a = {.f = rig_floats(r, (size_t)rows * k, "x"), .k = k};
  rig_fill(r, a.f, (size_t)rows * k, fill);
  if (!q) return a;
  a.q = rig_new(r, ((size_t)rows + 15) / 16 * 16 * (k / DF_QBLOCK) * sizeof(df_actq), RIG_RAW, "x.q");
  for (uint32_t row = 0; row < live; row++) {
    const uint32_t first = row / 16 * 16, m = live - first < 16 ? live - first : 16;
    ref->quantize(a.f + (size_t)row * k, k, a.q + (size_t)first * (k / DF_QBLOCK) + (row - first), m);
  }
  return a;
}

static uint32_t *counts(rig *r, uint32_t n) {
  uint32_t *p = rig_new(r, 64, RIG_RAW, "n_rows");
  *p = n;
  return p;
}

static void linear_case(rig *r, df_dtype type, uint32_t n, uint32_t k, uint32_t live, uint32_t rows, uint32_t fill,
                        bool add, bool bias) {
  rig_list l = {.n = 0};
  const df_weights *w = rig_weights(r, type, n, k);
  df_op_linear a = {.x = make_input(r, rows, live, k, df_pack_wants_q8(w->pack), fill),
                    .n_rows = counts(r, live),
                    .add = add,
                    .n_parts = 1};
  const size_t ld = df_strips(n) * 16u + 3;
  float *y = rig_floats(r, rows * ld, "y"), *b = bias ? rig_floats(r, n, "bias") : NULL;
  rig_fill(r, y, rows * ld, 0);
  if (b) rig_fill(r, b, n, 0);
  a.part[0] = (df_linear_part){w, b, y, ld};
  rig_add(&l, DF_OP_LINEAR, &a);
  rig_both(r, &l, rows, 1, "linear %s %ux%u rows %u of %u fill %u add %d bias %d", df_dtype_name(type), n, k, live,
           rows, fill, add, bias);
  rig_clear(r);
}

/* Several forms and sizes in one op. */
static void mixed_case(rig *r, const df_dtype *types, uint32_t n_parts, uint32_t k, uint32_t live, uint32_t rows) {
  rig_list l = {.n = 0};
  df_op_linear a = {.x = make_input(r, rows, live, k, true, 0), .n_rows = counts(r, live), .n_parts = n_parts};
  size_t ld = 0;
  for (uint32_t i = 0; i < n_parts; i++) ld += df_strips(48 + 17 * i) * 16u;
  float *y = rig_floats(r, rows * ld, "y");
  for (uint32_t i = 0, at = 0; i < n_parts; i++) {
    const uint32_t n = 48 + 17 * i;
    float *b = i % 2 ? rig_floats(r, n, "bias") : NULL;
    if (b) rig_fill(r, b, n, 0);
    a.part[i] = (df_linear_part){rig_weights(r, types[i], n, k), b, y + at, ld};
    at += df_strips(n) * 16;
  }
  rig_add(&l, DF_OP_LINEAR, &a);
  rig_both(r, &l, rows, 1, "mixed linear of %u parts, k %u, rows %u", n_parts, k, live);
  rig_clear(r);
}

static void ffn_case(rig *r, df_dtype gate, df_dtype up, uint32_t n, uint32_t k, uint32_t live, uint32_t rows, bool f) {
  rig_list l = {.n = 0};
  df_op_ffn_up a = {.x = make_input(r, rows, live, k, true, 0),
                    .n_rows = counts(r, live),
                    .gate = rig_weights(r, gate, n, k),
                    .up = rig_weights(r, up, n, k),
                    .out = {.k = n}};
  if (f) a.out.f = rig_floats(r, (size_t)rows * n, "h");
  a.out.q = rig_new(r, ((size_t)rows + 15) / 16 * 16 * (n / DF_QBLOCK) * sizeof(df_actq), RIG_RAW, "h.q");
  rig_add(&l, DF_OP_FFN_UP, &a);
  rig_both(r, &l, rows, 1, "ffn_up %s %s %ux%u rows %u f %d", df_dtype_name(gate), df_dtype_name(up), n, k, live, f);
  rig_clear(r);
}

static void one_type(rig *r, df_dtype type) {
  const bool super = type == DF_Q4_K || type == DF_Q5_K || type == DF_Q6_K;
  const uint32_t k[] = {super ? 256 : 32, super ? 768 : 288, 1536};
  for (uint32_t i = 0; i < 3; i++)
    for (uint32_t fill = 0; fill < 6; fill++) linear_case(r, type, 50, k[i], 1 + fill, 6, fill, fill == 1, fill == 2);
  for (uint32_t rows = 1; rows <= 40; rows += r->quick ? 13 : 1)
    linear_case(r, type, 35, k[1], rows, rows < 20 ? 20 : 40, 0, rows % 2, rows % 3 == 0);
  for (uint32_t rows = 1; rows <= 16 && !r->quick; rows *= 4) { /* many strips, long k */
    linear_case(r, type, 3000, 1024, rows, rows, 0, true, false);
    linear_case(r, type, 96, 8192, rows, rows, 0, false, false);
  }
}

void test_products(rig *r) {
  static const df_dtype types[] = {DF_Q4_0, DF_Q4_1, DF_Q5_0, DF_Q5_1, DF_Q8_0, DF_Q4_K, DF_Q5_K, DF_Q6_K};
  static const df_dtype mix[] = {DF_Q4_K, DF_Q6_K, DF_Q8_0, DF_F32, DF_Q4_K};
  for (uint32_t i = 0; i < sizeof types / sizeof *types; i++) one_type(r, types[i]);
  for (uint32_t rows = 1; rows <= 40; rows += 13) linear_case(r, DF_F32, 37, 77, rows, 40, rows % 4, rows % 2, true);
  mixed_case(r, mix, 5, 512, 3, 4);
  mixed_case(r, mix, 5, 256, 18, 20);
  ffn_case(r, DF_Q4_0, DF_Q4_0, 96, 288, 3, 4, false);
  ffn_case(r, DF_Q4_K, DF_Q6_K, 320, 512, 17, 20, true);
  ffn_case(r, DF_Q8_0, DF_F32, 64, 64, 1, 1, true);
}

/* Where several warps hand a strip's sums to each other: every form, one tile of rows and two, as many turns as there
 * are warps and more, a last turn that not all of them have, and several strips a block. Few, for tools that are slow.
 */
void test_chains(rig *r) {
  static const df_dtype types[] = {DF_Q4_0, DF_Q4_1, DF_Q5_1, DF_Q8_0, DF_Q4_K, DF_Q6_K};
  for (uint32_t i = 0; i < sizeof types / sizeof *types; i++)
    for (uint32_t rows = 3; rows <= 16; rows += 13) {
      linear_case(r, types[i], 33, 1024, rows, rows, 0, true, false);
      linear_case(r, types[i], 20, 3328, rows, rows, 0, false, true);
    }
  const df_cuda_tuning usual = df_cuda_tune;
  for (df_cuda_tune.quant_warps = 2; df_cuda_tune.quant_warps <= 4; df_cuda_tune.quant_warps *= 2)
    for (uint32_t rows = 3; rows <= 16; rows += 13) linear_case(r, DF_Q4_K, 100, 1280, rows, rows, 0, true, false);
  df_cuda_tune = usual;
}
