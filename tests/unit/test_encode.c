/* Rounding to blocks: what is representable comes back bit for bit, everything else closer than the plain rule. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <string.h>

#include "kernels/encode.h"

enum { N = 32 * 64 };

static uint64_t g_seed;

static float noise(void) {
  float sum = 0; /* nearly normal */
  for (int i = 0; i < 6; i++) {
    g_seed = g_seed * 6364136223846793005u + 1442695040888963407u;
    sum += (float)(g_seed >> 40) / (float)(1 << 24) - 0.5f;
  }
  return sum;
}

static double error_of(df_dtype type, const float *x, size_t n) {
  uint8_t bytes[N * 4];
  float y[N];
  double e = 0;
  df_encode(type, x, n, bytes);
  df_dequant(type, bytes, n, y);
  for (size_t i = 0; i < n; i++) e += ((double)x[i] - y[i]) * ((double)x[i] - y[i]);
  return e;
}

/* The rule without a search: scale from the range of the block. */
static double plain_error(df_dtype type, const float *x, size_t n) {
  double e = 0;
  for (size_t b = 0; b < n; b += 32) {
    float lo = x[b], hi = x[b], far = 0;
    for (size_t i = b; i < b + 32; i++) {
      lo = fminf(lo, x[i]), hi = fmaxf(hi, x[i]);
      if (fabsf(x[i]) > fabsf(far)) far = x[i];
    }
    const float d = df_f16_to_f32(df_f32_to_f16(type == DF_Q4_1 ? (hi - lo) / 15 : far / -8));
    const float m = type == DF_Q4_1 ? df_f16_to_f32(df_f32_to_f16(lo)) : -8 * d;
    for (size_t i = b; i < b + 32; i++) {
      const float q = d != 0 ? fmaxf(0, fminf(15, roundf((x[i] - m) / d))) : 0;
      e += ((double)x[i] - (d * q + m)) * ((double)x[i] - (d * q + m));
    }
  }
  return e;
}

static void test_encode__searches_better_scales(void **state) {
  (void)state;
  static const df_dtype k[] = {DF_Q4_0, DF_Q4_1};
  float x[N];
  g_seed = 5;
  for (size_t i = 0; i < N; i++) x[i] = noise() * 0.03f;
  for (int t = 0; t < 2; t++) {
    const double plain = plain_error(k[t], x, N), ours = error_of(k[t], x, N);
    assert_true(ours < 0.95 * plain);
    assert_true(ours > 0.5 * plain); /* and not by leaving something out */
  }
  assert_true(error_of(DF_Q8_0, x, N) < 0.01 * error_of(DF_Q4_1, x, N));
}

static void test_encode__keeps_what_is_representable(void **state) {
  (void)state;
  static const df_dtype k[] = {DF_Q4_0, DF_Q4_1, DF_Q8_0};
  g_seed = 9;
  for (int t = 0; t < 3; t++) {
    float x[64], y[64];
    uint8_t a[256], b[256];
    uint32_t values, bytes;
    for (size_t i = 0; i < 64; i++) x[i] = noise();
    assert_true(df_dtype_block(k[t], &values, &bytes));
    df_encode(k[t], x, 64, a);
    df_dequant(k[t], a, 64, x);
    df_encode(k[t], x, 64, b);
    df_dequant(k[t], b, 64, y);
    for (size_t i = 0; i < 64; i++) assert_true(fabsf(x[i] - y[i]) <= 1e-3f * fabsf(x[i]) + 1e-6f);
    if (k[t] == DF_Q8_0) assert_memory_equal(a, b, 64 / values * bytes);
  }
}

static void test_encode__odd_blocks(void **state) {
  (void)state;
  static const df_dtype k[] = {DF_Q4_0, DF_Q4_1, DF_Q8_0, DF_F32};
  for (int t = 0; t < 4; t++) {
    float x[32] = {0}, y[32];
    uint8_t a[128];
    df_encode(k[t], x, 32, a);
    df_dequant(k[t], a, 32, y);
    for (int i = 0; i < 32; i++) assert_true(y[i] == 0);
    for (int i = 0; i < 32; i++) x[i] = -0.5f; /* constant */
    df_encode(k[t], x, 32, a);
    df_dequant(k[t], a, 32, y);
    for (int i = 0; i < 32; i++) assert_true(fabsf(y[i] + 0.5f) < 0.005f);
    memset(x, 0, sizeof x);
    x[7] = 3; /* one large value */
    df_encode(k[t], x, 32, a);
    df_dequant(k[t], a, 32, y);
    for (int i = 0; i < 32; i++) assert_true(fabsf(y[i] - x[i]) < 0.21f);
  }
}

static void test_can_encode__types(void **state) {
  (void)state;
  assert_true(df_can_encode(DF_F32) && df_can_encode(DF_Q4_0) && df_can_encode(DF_Q4_1) && df_can_encode(DF_Q8_0));
  assert_false(df_can_encode(DF_Q4_K) || df_can_encode(DF_BF16) || df_can_encode(-1) || df_can_encode(999));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_encode__searches_better_scales), cmocka_unit_test(test_encode__keeps_what_is_representable),
      cmocka_unit_test(test_encode__odd_blocks), cmocka_unit_test(test_can_encode__types)};
  return cmocka_run_group_tests_name("encode", tests, NULL, NULL);
}
