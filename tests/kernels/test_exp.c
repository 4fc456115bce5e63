/*
 * The exponential and sums of it: df_exp against double precision, every tier against ref bit for bit.
 *
 * df_exp, measured once over every float of [-87.33654, 88] with magnitude >= 2^-26 against exp() in double: at most
 * 1.013 ulp (18 floats above 1, 3 % not the nearest float), never decreasing.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/bits.h"
#include "base/size.h"
#include "kernels/checkkern.h"
#include "kernels/expf.h"

static const df_kernels *ref, *tier[DF_TIER_COUNT];
static unsigned n_tiers;

static double ulps(float got, double want) {
  int e;
  frexp(want, &e);
  return fabs((double)got - want) / ldexp(1.0, e - 24);
}

static void check_exp(float x, double *worst, double *worst_at) {
  float y = df_exp(x);
  double u = ulps(y, exp((double)x));
  bool normal = df_bits_of_float(y) >= 0x00800000u && df_bits_of_float(y) < 0x7f800000u;
  if (!normal) fail_msg("exp(%a) = %a is not normal", (double)x, (double)y);
  if (u > *worst) {
    *worst = u;
    *worst_at = (double)x;
  }
}

/* A little above the largest error of the full sweep. */
#define TEST_EXP_ULP 1.02

static void test_df_exp__close_to_double(void **state) {
  (void)state;
  double worst = 0, at = 0;
  /* A stride that is odd and no multiple of anything visits all mantissa patterns over the exponents. */
  for (uint32_t b = 0; b <= df_bits_of_float(DF_EXP_MAX); b += 977) check_exp(df_float_of_bits(b), &worst, &at);
  for (uint32_t b = 0x80000000u; b <= df_bits_of_float(DF_EXP_MIN); b += 977)
    check_exp(df_float_of_bits(b), &worst, &at);
  check_exp(DF_EXP_MIN, &worst, &at);
  check_exp(DF_EXP_MAX, &worst, &at);
  for (int n = -126; n <= 127; n++) { /* both sides of every change of n */
    float x = (float)((n + 0.5) * 0.6931471805599453);
    for (int d = -20; d <= 20; d++) {
      float y = df_float_of_bits((uint32_t)((int32_t)df_bits_of_float(x) + d));
      if (y >= DF_EXP_MIN && y <= DF_EXP_MAX) check_exp(y, &worst, &at);
    }
  }
  if (worst > TEST_EXP_ULP) fail_msg("exp(%a) is off by %.3f ulp", at, worst);
}

static void test_df_exp__special_values(void **state) {
  (void)state;
  assert_int_equal(df_bits_of_float(df_exp(0.0f)), 0x3f800000u);
  assert_int_equal(df_bits_of_float(df_exp(-0.0f)), 0x3f800000u);
  assert_int_equal(df_bits_of_float(df_exp(df_float_of_bits(1))), 0x3f800000u);
  assert_int_equal(df_bits_of_float(df_exp(nextafterf(DF_EXP_MIN, -100.0f))), 0);
  assert_int_equal(df_bits_of_float(df_exp(-1e30f)), 0);
  assert_int_equal(df_bits_of_float(df_exp(-INFINITY)), 0);
  assert_true(df_exp(88.0f) > 1.6e38f && isfinite(df_exp(88.0f)));
  assert_int_equal(df_bits_of_float(df_exp(nextafterf(88.0f, 89.0f))), df_bits_of_float(df_exp(88.0f)));
  assert_int_equal(df_bits_of_float(df_exp(3e38f)), df_bits_of_float(df_exp(88.0f)));
  assert_int_equal(df_bits_of_float(df_exp(INFINITY)), df_bits_of_float(df_exp(88.0f)));
  assert_true(isnan(df_exp(NAN)));
}

/* The vector exp through attn_merge: parts (max 0, sum 0) and (max x, sum 1) leave exp(x) alone as the sum. */
static void test_df_exp__vector_bits(void **state) {
  (void)state;
  for (unsigned t = 0; t < n_tiers; t++) {
    for (uint32_t b = 0x80000000u; b < 0x80000000u + 0x43000000u; b += 4099) {
      float x = df_float_of_bits(b), a[32] = {0.0f, 0.0f}, p[32] = {x, 1.0f};
      tier[t]->attn_merge(a, p, 0, 1, 16);
      if (df_bits_of_float(a[1]) != df_bits_of_float(df_exp(x)))
        fail_msg("tier %u: exp(%a) = %a", t, (double)x, (double)a[1]);
    }
  }
}

/* The lanes' order by hand, every tail length, every tier: the last vector may not bring anything else in. */
static void test_exp_sum__order_of_lanes(void **state) {
  (void)state;
  ck_rng r = {24};
  for (uint32_t n = 1; n <= 70; n++) {
    ck_buf x = ck_alloc(n * sizeof(float), 4, CK_END);
    ck_fill_f32(&r, CK_WIDE, x.data, n);
    const float *at = x.data;
    float lane[16] = {0}, max = at[0];
    for (uint32_t i = 1; i < n; i++) max = at[i] > max ? at[i] : max;
    for (uint32_t i = 0; i < n; i++) lane[i % 16] += df_exp(at[i] - max);
    for (int h = 8; h >= 1; h /= 2)
      for (int i = 0; i < h; i++) lane[i] += lane[i + h];
    assert_true(lane[0] >= 1);
    for (unsigned t = 0; t <= n_tiers; t++) {
      const float got = (t ? tier[t - 1] : ref)->exp_sum(at, n, max);
      ck_same_f32(lane, &got, 1, "exp_sum n %u tier %u", n, t);
    }
    ck_free(&x);
  }
}

int main(void) {
  ref = df_kernels_get(DF_TIER_REF);
  n_tiers = ck_tiers(tier);
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_df_exp__close_to_double),
      cmocka_unit_test(test_df_exp__special_values),
      cmocka_unit_test(test_df_exp__vector_bits),
      cmocka_unit_test(test_exp_sum__order_of_lanes),
  };
  return cmocka_run_group_tests_name("exp", tests, NULL, NULL);
}
