/* How much of a block is verified: against a search by hand, and that what drafts say of themselves is corrected. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>

#include "spec/cut.h"

static const double k_first = 4.0, k_per_row = 0.5;

static df_width_costs costs_of(uint32_t n) {
  df_width_costs c = {0};
  for (uint32_t w = 1; w <= DF_WIDTH_MAX; w++)
    df_width_cost_calibrate(&c.verify, n * w, k_first + k_per_row * (n * w - 1), 0, 0);
  return c;
}

static uint32_t by_hand(const float (*chance)[DF_WIDTH_MAX], uint32_t n, uint32_t width, double per_ms) {
  double best = -1;
  uint32_t rows = 0;
  for (uint32_t m = 1; m <= width; m++) {
    double tokens = 0;
    for (uint32_t i = 0; i < n; i++)
      for (uint32_t j = 0; j < m; j++) {
        double all = 1;
        for (uint32_t k = 0; k < j; k++) all *= chance[i][k];
        tokens += all;
      }
    const double worth = tokens - per_ms * (k_first + k_per_row * (n * m - 1));
    if (worth > best + 1e-9 || rows == 0) best = worth, rows = m;
  }
  return rows;
}

static void test_rows__equals_a_search_by_hand(void **state) {
  (void)state;
  uint64_t x = 88172645463325252u;
  uint32_t seen[DF_WIDTH_MAX + 1] = {0};
  for (int trial = 0; trial < 3000; trial++) {
    float chance[3][DF_WIDTH_MAX];
    const uint32_t n = 1 + (uint32_t)trial % 3, width = 2 + (uint32_t)trial % 15;
    for (uint32_t i = 0; i < n; i++)
      for (uint32_t j = 0; j < DF_WIDTH_MAX; j++) {
        x ^= x << 13, x ^= x >> 7, x ^= x << 17;
        chance[i][j] = (float)(1 - pow((double)(x >> 40) / 16777216.0, 3));
      }
    const df_width_costs c = costs_of(n);
    const double per_ms = 0.2 * n + 0.1 * (trial % 7);
    const uint32_t rows = df_cut_rows(&c, chance, n, width, 0, per_ms);
    assert_int_equal(rows, by_hand(chance, n, width, per_ms));
    seen[rows]++;
  }
  for (uint32_t m = 1; m <= 6; m++) assert_true(seen[m] > 20);
}

/* A gap in the middle is bridged when what lies behind it is worth it. */
static void test_rows__looks_beyond_a_dear_row(void **state) {
  (void)state;
  df_width_costs c = costs_of(1);
  const float chance[1][DF_WIDTH_MAX] = {{0.9f, 0.9f, 0.9f, 0.9f}};
  df_width_cost_calibrate(&c.verify, 2, k_first + 1.5, 0, 0); /* dearer than three rows: cannot be true */
  df_width_cost_calibrate(&c.verify, 3, k_first + 1.5, 0, 0);
  assert_int_equal(df_cut_rows(&c, chance, 1, 5, 0, 0.7), 5);
  assert_int_equal(df_cut_rows(&c, chance, 1, 5, 0, 3.0), 1);
}

static void test_chance__is_what_the_draft_says_at_first(void **state) {
  (void)state;
  const df_cut_trust none = {{0}, {0}};
  assert_true(fabs(df_cut_chance(&none, 0.3, 1) - 0.3) < 1e-6);
  assert_true(df_cut_chance(&none, 1.0, 1) == 0.99); /* nothing is sure */
  assert_true(df_cut_chance(&none, 0, 1) == 0);
  assert_true(df_cut_chance(&none, NAN, 1) == 0);
  assert_true(fabs(df_cut_chance(&none, 0.4, 0.5) - 0.2) < 1e-6);
  assert_true(df_cut_chance(&none, 0.95, 1.1) == 0.99);
}

/* A draft that promises 0.8 and keeps half of the time, and is right about 0.2. */
static void test_learn__corrects_each_sureness_by_itself(void **state) {
  (void)state;
  df_cut_trust t = {{0}, {0}};
  const float high[] = {0.8f}, low[] = {0.2f};
  for (int i = 0; i < 2000; i++) {
    df_cut_learn(&t, high, 1, i % 2);
    df_cut_learn(&t, low, 1, i % 5 == 0);
  }
  assert_true(fabs(df_cut_chance(&t, 0.8, 1) - 0.5) < 0.02);
  assert_true(fabs(df_cut_chance(&t, 0.2, 1) - 0.2) < 0.02);
}

/* Only drafts up to the first miss say anything, and nothing behind the cut does. */
static void test_learn__counts_up_to_the_first_miss(void **state) {
  (void)state;
  df_cut_trust t = {{0}, {0}};
  const float sure[] = {0.95f, 0.55f, 0.3f, 0.1f};
  df_cut_learn(&t, sure, 3, 1);
  assert_true(t.stood[7] == 1 && t.promised[7] == 0.95f);
  assert_true(t.stood[4] == 0 && t.promised[4] == 0.55f);
  assert_true(t.promised[2] == 0 && t.promised[0] == 0);
}

/* Slots behind a cut count by their chances, as far as they would have been reached. */
static void test_estimate__a_cut_does_not_flatter_the_slots_behind_it(void **state) {
  (void)state;
  df_width_estimate e;
  const float chance[] = {0.9f, 0.5f, 0.4f};
  df_width_estimate_init(&e);
  df_width_estimate_update(&e, 1, 1, chance, 2); /* one verified and right, two cut */
  assert_true(e.tried[0] == 1 && e.accepted[0] == 1);
  assert_true(e.tried[1] == 1 && fabsf(e.accepted[1] - 0.5f) < 1e-6f);
  assert_true(fabsf(e.tried[2] - 0.5f) < 1e-6f && fabsf(e.accepted[2] - 0.2f) < 1e-6f);
  df_width_estimate_init(&e);
  df_width_estimate_update(&e, 1, 0, chance, 2); /* and wrong: the others were not reached */
  assert_true(e.tried[0] == 1 && e.accepted[0] == 0 && e.tried[1] == 0);
  df_width_estimate_init(&e);
  df_width_estimate_update(&e, 0, 0, chance, 1); /* none verified */
  assert_true(e.tried[0] == 1 && fabsf(e.accepted[0] - 0.9f) < 1e-6f && e.tried[1] == 0);
}

/* A request whose drafts keep half of their promises, as sampled ones may. */
static void test_estimate__a_text_that_keeps_less_than_promised(void **state) {
  (void)state;
  df_width_estimate e;
  const float chance[] = {0.8f, 0.8f};
  df_width_estimate_init(&e);
  assert_true(df_width_estimate_trust(&e) == 1);
  df_width_estimate_update(&e, 2, 1, NULL, 0); /* blocks without chances say nothing of them */
  assert_true(df_width_estimate_trust(&e) == 1);
  for (int i = 0; i < 200; i++) df_width_estimate_update(&e, 1, i % 5 < 2, chance, 0);
  assert_true(df_width_estimate_trust(&e) > 0.5 && df_width_estimate_trust(&e) < 0.7);
  for (int i = 0; i < 200; i++) df_width_estimate_update(&e, 2, 2, chance, 0);
  assert_true(df_width_estimate_trust(&e) == 1.1);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_rows__equals_a_search_by_hand),
      cmocka_unit_test(test_rows__looks_beyond_a_dear_row),
      cmocka_unit_test(test_chance__is_what_the_draft_says_at_first),
      cmocka_unit_test(test_learn__corrects_each_sureness_by_itself),
      cmocka_unit_test(test_learn__counts_up_to_the_first_miss),
      cmocka_unit_test(test_estimate__a_cut_does_not_flatter_the_slots_behind_it),
      cmocka_unit_test(test_estimate__a_text_that_keeps_less_than_promised),
  };
  return cmocka_run_group_tests_name("cut", tests, NULL, NULL);
}
