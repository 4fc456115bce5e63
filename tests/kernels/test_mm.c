/* Matmul kernels: every tier has the bits of ref, ref is right, rows do not influence each other, nothing outside
 * the arguments is touched. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "support/kernel_data.h"

typedef enum x_fill { X_RANDOM, X_ENDS, X_ZERO_BLOCKS, X_TINY, X_HUGE, X_FILLS } x_fill;

/* A packed matrix between guard pages and its exact values. */
typedef struct matrix {
  df_weights w;
  test_guard guard;
  float *values; /* [n][k] */
} matrix;

static matrix matrix_make(df_dtype type, test_fill fill, uint32_t n, uint32_t k, bool at_end) {
  uint64_t rng = 1 + (uint64_t)type * 7919 + n * 131 + k + (uint64_t)fill * 17;
  uint32_t values = 1, bytes = 1;
  assert_true(df_dtype_block((int)type, &values, &bytes));
  const size_t row_bytes = (size_t)k / values * bytes;
  uint8_t *file = df_calloc(n, row_bytes);
  test_fill_blocks(type, fill, &rng, (size_t)n * k, file);
  matrix mx = {.w = {.pack = df_pack_of(type), .n = n, .k = k}};
  assert_true(df_pack_strip_bytes(mx.w.pack, k, &mx.w.strip_bytes));
  mx.guard = test_guard_alloc(df_strips(n) * mx.w.strip_bytes, at_end);
  mx.w.data = mx.guard.p;
  df_pack_strips(&mx.w, type, file, row_bytes, NULL, 0, df_strips(n));
  mx.values = df_calloc((size_t)n * k, sizeof(float));
  df_dequant(type, file, (size_t)n * k, mx.values);
  df_free(file);
  return mx;
}

static void matrix_release(matrix *mx) {
  test_guard_free(&mx->guard);
  df_free(mx->values);
}

static float x_scale(x_fill fill, uint64_t *rng) {
  const float u = (test_uniform(rng) + 1.5f) * 0.01f;
  return fill == X_TINY ? u * 1e-39f : fill == X_HUGE ? u * 1e37f : u;
}

static df_actq actq_make(x_fill fill, uint64_t *rng) {
  df_actq a = {.scale = x_scale(fill, rng)};
  const uint64_t pattern = test_random(rng) >> 61;
  int32_t lo = 0, hi = 0;
  for (int i = 0; i < DF_QBLOCK; i++) {
    a.q[i] = (int8_t)((int)((test_random(rng) >> 33) % 255) - 127);
    if (fill == X_ENDS) a.q[i] = pattern == 0 ? 127 : pattern == 1 ? -127 : test_random(rng) >> 63 ? 127 : -127;
    if (fill == X_ZERO_BLOCKS && pattern > 1) a.q[i] = 0;
    *(i < 16 ? &lo : &hi) += a.q[i];
  }
  if (fill == X_ZERO_BLOCKS && pattern > 1) a.scale = 0;
  a.scale_sum = a.scale * (float)(lo + hi);
  a.off4 = -8 * (lo + hi);
  a.off8 = -128 * (lo + hi);
  a.off6_lo = -32 * lo;
  a.off6_hi = -32 * hi;
  return a;
}

/* m rows for k inputs, between guard pages; element i of row c in *row_of(c). */
static test_guard x_make(df_pack pack, x_fill fill, uint32_t m, uint32_t k, uint64_t seed, bool at_end) {
  uint64_t rng = seed;
  if (df_pack_wants_q8(pack)) {
    test_guard g = test_guard_alloc((size_t)m * (k / DF_QBLOCK) * sizeof(df_actq), at_end);
    for (size_t i = 0; i < (size_t)m * (k / DF_QBLOCK); i++) ((df_actq *)(void *)g.p)[i] = actq_make(fill, &rng);
    return g;
  }
  test_guard g = test_guard_alloc((size_t)m * k * sizeof(float), at_end);
  for (size_t i = 0; i < (size_t)m * k; i++) {
    float v = test_uniform(&rng);
    if (fill == X_ENDS) v = v < 0 ? -127.0f : 127.0f;
    if (fill == X_ZERO_BLOCKS && v > 0) v = 0;
    if (fill == X_TINY) v *= 1e-39f;
    if (fill == X_HUGE) v *= 1e37f;
    ((float *)(void *)g.p)[i] = v;
  }
  return g;
}

/* Row c alone, as a one-row tile. */
static test_guard x_row(df_pack pack, const test_guard *x, uint32_t m, uint32_t k, uint32_t c) {
  if (df_pack_wants_q8(pack)) {
    test_guard g = test_guard_alloc((k / DF_QBLOCK) * sizeof(df_actq), true);
    for (size_t kb = 0; kb < k / DF_QBLOCK; kb++)
      memcpy(g.p + kb * sizeof(df_actq), x->p + (kb * m + c) * sizeof(df_actq), sizeof(df_actq));
    return g;
  }
  test_guard g = test_guard_alloc(k * sizeof(float), true);
  memcpy(g.p, x->p + (size_t)c * k * sizeof(float), k * sizeof(float));
  return g;
}

/* Equal bits; a NaN (infinity minus infinity in the huge cases) equals any NaN. */
static void assert_floats_same(const float *a, const float *b, size_t n) {
  for (size_t i = 0; i < n; i++)
    if (memcmp(&a[i], &b[i], 4) != 0 && !(isnan(a[i]) && isnan(b[i])))
      fail_msg("element %zu: %a is not %a", i, (double)a[i], (double)b[i]);
}

/* Runs one call into guarded memory; rows lie `ld` apart and the gap must stay as it was. */
static float *run(const df_kernels *kern, const df_weights *w, uint32_t s0, uint32_t s1, const void *x, uint32_t m,
                  bool at_end) {
  const size_t width = (size_t)(s1 - s0) * DF_LANES, ld = width + 5;
  test_guard out = test_guard_alloc(((m - 1) * ld + width) * sizeof(float), at_end);
  float *o = (float *)(void *)out.p, *dense = df_calloc(m * width, sizeof *dense);
  kern->mm[w->pack](w, s0, s1, x, m, o, ld);
  for (uint32_t c = 0; c < m; c++) {
    memcpy(dense + c * width, o + c * ld, width * sizeof *o);
    for (size_t i = width; i < ld && c + 1 < m; i++) assert_memory_equal(o + c * ld + i, "\xA5\xA5\xA5\xA5", 4);
  }
  test_guard_free(&out);
  return dense;
}

static void tiers_case(df_dtype type, test_fill fill, x_fill xf, uint32_t n, uint32_t k, uint32_t m, bool at_end) {
  matrix mx = matrix_make(type, fill, n, k, at_end);
  test_guard x = x_make(mx.w.pack, xf, m, k, 99 + m, at_end);
  const uint32_t strips = df_strips(n);
  float *want = run(df_kernels_get(DF_TIER_REF), &mx.w, 0, strips, x.p, m, at_end);
  for (uint32_t i = n; i < strips * DF_LANES; i++) /* missing outputs are zero rows */
    for (uint32_t c = 0; c < m; c++) assert_memory_equal(&want[c * strips * DF_LANES + i], "\0\0\0\0", 4);
  for (int t = DF_TIER_REF + 1; t < DF_TIER_COUNT; t++) {
    const df_kernels *kern = df_kernels_get((df_cpu_tier)t);
    if (!kern) continue;
    float *got = run(kern, &mx.w, 0, strips, x.p, m, at_end);
    assert_floats_same(got, want, (size_t)m * strips * DF_LANES);
    df_free(got);
  }
  df_free(want);
  test_guard_free(&x);
  matrix_release(&mx);
}

static bool legal_k(df_dtype type, uint32_t k) {
  uint32_t values = 1, bytes = 1;
  return df_dtype_block((int)type, &values, &bytes) && k % values == 0;
}

static void test_mm__tiers_all_rows(void **state) {
  (void)state;
  for (int t = 0; t < TEST_DTYPES; t++)
    for (uint32_t m = 1; m <= DF_TILE_ROWS; m++) {
      tiers_case(test_dtypes[t], TEST_FILL_RANDOM, X_RANDOM, 83, 768, m, m % 2);
      if (legal_k(test_dtypes[t], 96)) tiers_case(test_dtypes[t], TEST_FILL_RANDOM, X_RANDOM, 113, 96, m, true);
      if (legal_k(test_dtypes[t], 7)) tiers_case(test_dtypes[t], TEST_FILL_RANDOM, X_RANDOM, 131, 7, m, false);
    }
}

static void test_mm__tiers_shapes(void **state) {
  (void)state;
  static const uint32_t n[] = {1, 16, 17, 33, 64, 150}, k[] = {1, 2, 3, 31, 32, 64, 160, 256, 512, 1280};
  for (int t = 0; t < TEST_DTYPES; t++)
    for (int i = 0; i < 6; i++)
      for (int j = 0; j < 10; j++) {
        if (!legal_k(test_dtypes[t], k[j])) continue;
        tiers_case(test_dtypes[t], TEST_FILL_RANDOM, X_RANDOM, n[i], k[j], 1 + (uint32_t)(i * 7 + j * 3) % 16, i % 2);
        tiers_case(test_dtypes[t], TEST_FILL_SPARSE, X_ZERO_BLOCKS, n[i], k[j], 1 + (uint32_t)(i + j) % 4, i % 2 == 0);
      }
}

static void test_mm__tiers_adversarial(void **state) {
  (void)state;
  static const uint32_t m[] = {1, 2, 3, 5, 8, 11, 16};
  for (int t = 0; t < TEST_DTYPES; t++)
    for (int f = 0; f < TEST_FILLS; f++)
      for (int xf = 0; xf < X_FILLS; xf++)
        for (int i = 0; i < 7; i++) tiers_case(test_dtypes[t], (test_fill)f, (x_fill)xf, 40, 512, m[i], i % 2);
}

/* Many strips and long k: whatever is done in groups of strips and chunks of k has a full and a partial one. */
static void test_mm__tiers_large(void **state) {
  (void)state;
  static const uint32_t m[] = {1, 4, 9, 16}, k[] = {515, 768};
  for (int t = 0; t < TEST_DTYPES; t++)
    for (int i = 0; i < 4; i++)
      for (int j = 0; j < 2; j++)
        if (legal_k(test_dtypes[t], k[j])) tiers_case(test_dtypes[t], TEST_FILL_RANDOM, X_RANDOM, 300, k[j], m[i], j);
}

/* Row c of an m-row call equals the one-row call, in every tier. */
static void test_mm__rows_independent(void **state) {
  (void)state;
  const uint32_t n = 70, k = 512, strips = df_strips(n), width = strips * DF_LANES;
  for (int t = 0; t < TEST_DTYPES; t++) {
    matrix mx = matrix_make(test_dtypes[t], TEST_FILL_RANDOM, n, k, true);
    for (uint32_t m = 2; m <= DF_TILE_ROWS; m += m < 5 ? 1 : 3) {
      test_guard x = x_make(mx.w.pack, X_RANDOM, m, k, m, true);
      for (int tier = DF_TIER_REF; tier < DF_TIER_COUNT; tier++) {
        const df_kernels *kern = df_kernels_get((df_cpu_tier)tier);
        if (!kern) continue;
        float *all = run(kern, &mx.w, 0, strips, x.p, m, true);
        for (uint32_t c = 0; c < m; c += tier == DF_TIER_REF ? 3 : 1) {
          test_guard one = x_row(mx.w.pack, &x, m, k, c);
          float *alone = run(kern, &mx.w, 0, strips, one.p, 1, true);
          assert_memory_equal(alone, all + c * width, width * sizeof(float));
          df_free(alone);
          test_guard_free(&one);
        }
        df_free(all);
      }
      test_guard_free(&x);
    }
    matrix_release(&mx);
  }
}

/* Any division of the strips among callers gives the same. */
static void test_mm__strip_ranges(void **state) {
  (void)state;
  const uint32_t n = 290, k = 256, strips = df_strips(n), m_list[] = {1, 3, 6, 16};
  for (int t = 0; t < TEST_DTYPES; t++) {
    matrix mx = matrix_make(test_dtypes[t], TEST_FILL_RANDOM, n, k, true);
    for (int i = 0; i < 4; i++)
      for (int tier = DF_TIER_REF; tier < DF_TIER_COUNT; tier++) {
        const df_kernels *kern = df_kernels_get((df_cpu_tier)tier);
        if (!kern) continue;
        const uint32_t m = m_list[i];
        test_guard x = x_make(mx.w.pack, X_RANDOM, m, k, m, true);
        float *all = run(kern, &mx.w, 0, strips, x.p, m, true);
        for (uint32_t s0 = 0, len = 1; s0 < strips; s0 += len, len = len % 5 + 1) {
          const uint32_t s1 = s0 + len < strips ? s0 + len : strips, width = (s1 - s0) * DF_LANES;
          float *part = run(kern, &mx.w, s0, s1, x.p, m, true);
          for (uint32_t c = 0; c < m; c++)
            assert_memory_equal(part + c * width, all + (c * strips + s0) * DF_LANES, width * sizeof(float));
          df_free(part);
        }
        df_free(all);
        test_guard_free(&x);
      }
    matrix_release(&mx);
  }
}

/* Against a product in double of the exact weights and the dequantised activations. */
static void oracle_case(df_dtype type, uint32_t n, uint32_t k, uint32_t m) {
  matrix mx = matrix_make(type, TEST_FILL_RANDOM, n, k, true);
  test_guard x = x_make(mx.w.pack, X_RANDOM, m, k, 5 + m, true);
  const uint32_t width = df_strips(n) * DF_LANES;
  const bool quant = df_pack_wants_q8(mx.w.pack);
  float *got = run(df_kernels_get(df_cpu_best_tier()), &mx.w, 0, df_strips(n), x.p, m, true);
  for (uint32_t c = 0; c < m; c++)
    for (uint32_t r = 0; r < n; r++) {
      double sum = 0, size = 0, w_max = 0;
      for (uint32_t i = 0; i < k; i++) {
        const df_actq *b = (const df_actq *)(const void *)x.p + (size_t)(i / DF_QBLOCK) * m + c;
        const double xv =
            quant ? (double)b->scale * b->q[i % DF_QBLOCK] : (double)((const float *)(const void *)x.p)[c * k + i];
        const double wv = (double)mx.values[(size_t)r * k + i];
        if (i % DF_QBLOCK == 0) w_max = 0;
        w_max = fmax(w_max, fabs(wv));
        sum += wv * xv;
        size += quant ? w_max * fabs(xv) : fabs(wv * xv);
      }
      /* Roundings: two or four per block (or one per k), each at most 2^-24 of what has been summed, min and scale
       * parts being a few times larger than their sum; and of the weight itself where the file's formula rounds. */
      const double bound = size * ((quant ? 4 * (k / DF_QBLOCK) : k) + 16) * 0x1p-24;
      if (!(fabs((double)got[c * width + r] - sum) <= bound))
        fail_msg("%s row %u: %g is not %g (bound %g)", df_dtype_name((int)type), r, (double)got[c * width + r], sum,
                 bound);
      assert_true(bound < 0.002 * size);
    }
  df_free(got);
  test_guard_free(&x);
  matrix_release(&mx);
}

static void test_mm__double_oracle(void **state) {
  (void)state;
  for (int t = 0; t < TEST_DTYPES; t++)
    for (uint32_t m = 1; m <= DF_TILE_ROWS; m += 5) {
      oracle_case(test_dtypes[t], 37, 256, m);
      oracle_case(test_dtypes[t], 64, 1024, m);
    }
}

/* The table: every entry is set, tiers beyond the processor are refused. */
static void test_kernels_get__tiers(void **state) {
  (void)state;
  for (int t = DF_TIER_REF; t < DF_TIER_COUNT; t++) {
    const df_kernels *kern = df_kernels_get((df_cpu_tier)t);
    assert_int_equal(kern != NULL, df_cpu_tier_fits((df_cpu_tier)t));
    if (!kern) continue;
    assert_int_equal(kern->tier, t);
    for (int p = 0; p < DF_PACK_COUNT; p++) {
      assert_non_null(kern->mm[p]);
      /* Products of 8-bit activations are every tier's own. */
      for (int u = DF_TIER_REF; u < t && df_pack_wants_q8((df_pack)p); u++) {
        const df_kernels *other = df_kernels_get((df_cpu_tier)u);
        if (other) assert_true(kern->mm[p] != other->mm[p]);
      }
    }
    assert_non_null(kern->unpack_row);
  }
  assert_null(df_kernels_get(DF_TIER_COUNT));
  assert_null(df_kernels_get((df_cpu_tier)-1));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_kernels_get__tiers),    cmocka_unit_test(test_mm__double_oracle),
      cmocka_unit_test(test_mm__tiers_all_rows),    cmocka_unit_test(test_mm__tiers_shapes),
      cmocka_unit_test(test_mm__tiers_adversarial), cmocka_unit_test(test_mm__tiers_large),
      cmocka_unit_test(test_mm__rows_independent),  cmocka_unit_test(test_mm__strip_ranges),
  };
  return cmocka_run_group_tests_name("mm", tests, NULL, NULL);
}
