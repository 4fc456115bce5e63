/* Rotation frequencies of every scaling against formulas written another way: by how often a pair turns within the
 * original context. Tables against cos and sin in double. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>

#include "base/mem.h"
#include "model/rope.h"

static const double k_two_pi = 6.283185307179586476925;

static df_config config(double base, uint32_t dim, df_rope_scaling scaling, float factor, uint32_t original) {
  df_config c = {.head_dim = dim};
  c.rope = (df_rope_config){.base = (float)base,
                            .dim = dim,
                            .scaling = scaling,
                            .factor = factor,
                            .original_context = original,
                            .low_freq_factor = 1,
                            .high_freq_factor = 4,
                            .beta_fast = 32,
                            .beta_slow = 1,
                            .attention_factor = 1,
                            .mscale = 1,
                            .mscale_all_dim = 1};
  return c;
}

/* base^(-2i/dim) by repeated multiplication. */
static double plain(const df_config *c, uint32_t i) {
  const double ratio = exp(-2.0 * log((double)c->rope.base) / c->rope.dim);
  double f = 1;
  while (i--) f *= ratio;
  return f;
}

/* Full turns of pair i within the original context. */
static double turns(const df_config *c, uint32_t i) { return plain(c, i) * c->rope.original_context / k_two_pi; }

static void close_to(double got, double want, const char *what, uint32_t i) {
  if (!(fabs(got - want) <= 1e-10 * fabs(want))) fail_msg("%s: pair %u is %.17g, expected %.17g", what, i, got, want);
}

static void test_frequency__none_and_linear(void **state) {
  (void)state;
  const df_config a = config(10000, 64, DF_ROPE_NONE, 1, 0), b = config(1e6, 128, DF_ROPE_LINEAR, 4, 0);
  assert_true(df_rope_frequency(&a, 0) == 1);
  for (uint32_t i = 0; i < 32; i++) close_to(df_rope_frequency(&a, i), plain(&a, i), "none", i);
  for (uint32_t i = 0; i < 64; i++) close_to(df_rope_frequency(&b, i), plain(&b, i) / 4, "linear", i);
  assert_true(df_rope_attention_factor(&a) == 1 && df_rope_attention_factor(&b) == 1);
}

/* Pairs with more than `high` turns stay, below `low` they are slowed, between them by their share of the way. */
static void test_frequency__llama3(void **state) {
  (void)state;
  const df_config c = config(500000, 128, DF_ROPE_LLAMA3, 8, 8192);
  uint32_t kept = 0, slowed = 0, blended = 0;
  for (uint32_t i = 0; i < 64; i++) {
    const double t = turns(&c, i), f = plain(&c, i);
    double want = f;
    if (t < 1)
      want = f / 8, slowed++;
    else if (t <= 4)
      want = f * (1.0 / 8 + (t - 1) / 3 * (1 - 1.0 / 8)), blended++;
    else
      kept++;
    close_to(df_rope_frequency(&c, i), want, "llama3", i);
  }
  assert_true(kept > 20 && slowed > 20 && blended > 3); /* all three cases were met */
  assert_true(df_rope_attention_factor(&c) == 1);
}

/* The ramp starts at the last pair with at least beta_fast turns and ends at the first with at most beta_slow. */
static void yarn_ends(const df_config *c, uint32_t *low, uint32_t *high) {
  const uint32_t last = c->rope.dim - 1;
  *low = 0;
  while (turns(c, *low + 1) >= c->rope.beta_fast) ++*low;
  *high = 0;
  while (*high < last && turns(c, *high) > c->rope.beta_slow) ++*high;
}

static void check_yarn(const df_config *c) {
  uint32_t low, high, ramp = 0;
  yarn_ends(c, &low, &high);
  for (uint32_t i = 0; i < c->rope.dim / 2; i++) {
    const double f = plain(c, i), s = c->rope.factor;
    const double w = i <= low ? 0 : i >= high ? 1 : (double)(i - low) / (high - low);
    close_to(df_rope_frequency(c, i), f / s * (w + (1 - w) * s), "yarn", i);
    ramp += w > 0 && w < 1;
  }
  assert_true(ramp > 2);
}

static void test_frequency__yarn(void **state) {
  (void)state;
  df_config c = config(1e6, 128, DF_ROPE_YARN, 4, 32768);
  check_yarn(&c);
  close_to(df_rope_attention_factor(&c), 0.1 * log(4) + 1, "attention factor", 0);
  c = config(10000, 64, DF_ROPE_YARN, 16, 2048);
  check_yarn(&c);
  c.rope.beta_fast = 16, c.rope.beta_slow = 2;
  check_yarn(&c);
}

static void test_attention_factor__yarn_variants(void **state) {
  (void)state;
  df_config c = config(1e6, 128, DF_ROPE_YARN, 40, 4096);
  c.rope.has_attention_factor = true;
  c.rope.attention_factor = 1.25f;
  assert_true(df_rope_attention_factor(&c) == 1.25);
  c.rope.has_mscale = c.rope.has_mscale_all_dim = true; /* these win */
  c.rope.mscale = 1, c.rope.mscale_all_dim = 0.5f;
  close_to(df_rope_attention_factor(&c), (0.1 * log(40) + 1) / (0.05 * log(40) + 1), "mscale", 0);
  c.rope.mscale_all_dim = 0; /* zero switches them off */
  assert_true(df_rope_attention_factor(&c) == 1.25);
  c = config(1e6, 128, DF_ROPE_YARN, 1, 4096);
  assert_true(df_rope_attention_factor(&c) == 1);
}

static void check_table(const df_config *c, const float *factors) {
  enum { POSITIONS = 300 };
  df_rope r;
  df_error err = {0};
  if (df_rope_init(&r, c, factors, POSITIONS, NULL, &err) != DF_OK) fail_msg("%s", err.msg);
  assert_int_equal(r.half, c->head_dim / 2);
  for (uint32_t p = 0; p < POSITIONS; p += 13)
    for (uint32_t i = 0; i < r.half; i++) {
      const double angle = p * df_rope_frequency(c, i) / (factors ? (double)factors[i] : 1),
                   s = df_rope_attention_factor(c);
      assert_true(fabs(r.cos[p * r.half + i] - s * cos(angle)) <= 1e-7 * s);
      assert_true(fabs(r.sin[p * r.half + i] - s * sin(angle)) <= 1e-7 * s);
    }
  df_rope_release(&r);
}

static void test_init__tables(void **state) {
  (void)state;
  float factors[16];
  const df_config a = config(10000, 32, DF_ROPE_NONE, 1, 0), b = config(10000, 32, DF_ROPE_YARN, 4, 64);
  for (int i = 0; i < 16; i++) factors[i] = 1 + (float)i / 4;
  check_table(&a, NULL);
  check_table(&a, factors);
  check_table(&b, NULL);
  df_config partial = a;
  df_rope r;
  partial.rope.dim = 16;
  assert_int_equal(df_rope_init(&r, &partial, NULL, 8, NULL, NULL), DF_ERR_UNSUPPORTED);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_frequency__none_and_linear),
      cmocka_unit_test(test_frequency__llama3),
      cmocka_unit_test(test_frequency__yarn),
      cmocka_unit_test(test_attention_factor__yarn_variants),
      cmocka_unit_test(test_init__tables),
  };
  return cmocka_run_group_tests_name("rope", tests, NULL, NULL);
}
