/* Width controller: expectation, costs, the choice, and that probing stays cheap. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>

#include "spec/width.h"

static df_width_costs linear_costs(double first, double per_row, double draft_first, double draft_per_row) {
  static const uint32_t k_rows[] = {1, 4, 8, 16};
  df_width_costs c = {0};
  for (int i = 0; i < 4; i++) {
    df_width_cost_calibrate(&c.verify, k_rows[i], first + per_row * (k_rows[i] - 1), 0, 0);
    df_width_cost_calibrate(&c.draft, k_rows[i], draft_first + draft_per_row * k_rows[i], 0, 0);
  }
  return c;
}

/* Steady acceptance of probability p, as counts. */
static df_width_estimate steady(float p) {
  df_width_estimate e;
  df_width_estimate_init(&e);
  for (uint32_t j = 0; j < DF_WIDTH_MAX; j++) {
    e.tried[j] = 1e8f; /* drowns the prior */
    e.accepted[j] = 1e8f * p;
  }
  return e;
}

static double expected(const df_width_estimate *e, uint32_t width) {
  double tokens[DF_WIDTH_MAX + 1] = {0};
  df_width_expected(e, width, tokens);
  return tokens[width];
}

static void test_expected__geometric_sum(void **state) {
  (void)state;
  const df_width_estimate e = steady(0.5f);
  assert_true(fabs(expected(&e, 1) - 1.0) < 1e-9);
  assert_true(fabs(expected(&e, 2) - 1.5) < 1e-6);
  assert_true(fabs(expected(&e, 5) - 1.9375) < 1e-6);
}

static void test_update__slots_behind_the_miss_keep_their_estimate(void **state) {
  (void)state;
  df_width_estimate e;
  df_width_estimate_init(&e);
  for (uint32_t j = 0; j < DF_WIDTH_MAX; j++) e.tried[j] = 10, e.accepted[j] = 5;
  const df_width_estimate before = e;
  df_width_estimate_update(&e, 7, 2, NULL, 0);
  for (uint32_t j = 0; j < 2; j++) assert_true(e.accepted[j] / e.tried[j] > before.accepted[j] / before.tried[j]);
  assert_true(e.accepted[2] / e.tried[2] < before.accepted[2] / before.tried[2]);
  for (uint32_t j = 3; j < DF_WIDTH_MAX; j++) {
    assert_true(fabs(e.accepted[j] / e.tried[j] - before.accepted[j] / before.tried[j]) < 1e-6);
    assert_true(e.tried[j] < before.tried[j]); /* but it fades */
  }
}

static void test_update__converges_to_the_rate(void **state) {
  (void)state;
  df_width_estimate e;
  df_width_estimate_init(&e);
  for (int i = 0; i < 400; i++) df_width_estimate_update(&e, 3, i % 4 == 0 ? 0 : 3, NULL, 0);
  assert_true(fabs(e.accepted[0] / e.tried[0] - 0.75) < 0.1);
}

static void test_cost__interpolates_between_measured_rows(void **state) {
  (void)state;
  const df_width_costs c = linear_costs(3.0, 0.25, 1.0, 0.1);
  assert_true(fabs(df_width_cost_at(&c.verify, 1, 0) - 3.0) < 1e-9);
  assert_true(fabs(df_width_cost_at(&c.verify, 6, 0) - 4.25) < 1e-9);
  assert_true(fabs(df_width_cost_at(&c.draft, 12, 0) - 2.2) < 1e-9);
  assert_true(fabs(df_width_cost_at(&c.verify, 32, 0) - 2 * (3.0 + 0.25 * 15)) < 1e-9);
  const df_width_costs none = {0};
  assert_true(df_width_cost_at(&none.verify, 4, 100) == 0);
}

static void test_cost__an_outlier_counts_for_little(void **state) {
  (void)state;
  df_width_cost c = {0};
  df_width_cost_add(&c, 8, 0, 4.0);
  df_width_cost_add(&c, 8, 0, 400.0);
  assert_true(df_width_cost_at(&c, 8, 0) <= 4.0 * 1.125 + 1e-9);
}

static void test_cost__grows_with_depth(void **state) {
  (void)state;
  df_width_cost c = {0};
  df_width_cost_calibrate(&c, 1, 3.0, 1000, 4.0);
  df_width_cost_calibrate(&c, 9, 5.0, 1000, 13.0);
  assert_true(fabs(df_width_cost_at(&c, 1, 2000) - 5.0) < 1e-9);
  assert_true(fabs(df_width_cost_at(&c, 5, 500) - (4.0 + 0.0045 * 500)) < 1e-9);
  for (int i = 0; i < 200; i++) df_width_cost_add(&c, 9, 500, 10.0); /* a machine that became slower */
  assert_true(fabs(df_width_cost_at(&c, 9, 500) - 10.0) < 0.05);
  assert_true(df_width_cost_at(&c, 9, 1500) >= 18.0 && df_width_cost_at(&c, 9, 1500) < 19.0);
}

/* A row count that is not measured becomes slower with those that are, so that it does not look cheap. */
static void test_cost__others_follow_the_machine(void **state) {
  (void)state;
  df_width_cost c = {0};
  df_width_cost_calibrate(&c, 1, 3.0, 0, 0);
  df_width_cost_calibrate(&c, 4, 4.0, 0, 0);
  df_width_cost_calibrate(&c, 8, 8.0, 0, 0);
  for (int i = 0; i < 200; i++) df_width_cost_add(&c, 4, 0, 5.0);
  assert_true(fabs(df_width_cost_at(&c, 4, 0) - 5.0) < 0.05);
  assert_true(df_width_cost_at(&c, 8, 0) > 8.8 && df_width_cost_at(&c, 8, 0) < 10.01);
  assert_true(df_width_cost_at(&c, 1, 0) > 3.3 && df_width_cost_at(&c, 1, 0) < 3.76);
}

/* Plain steps behind a draft are dearer for a while: the price of plain decoding is that of the late ones. */
static void test_note__slow_steps_behind_a_draft_are_learnt(void **state) {
  (void)state;
  df_width_costs c = linear_costs(3.0, 0.2, 0.8, 0.1);
  for (int round = 0; round < 30; round++) {
    df_width_note(&c, 1, 4, 4, 0, 3.6, 1.2);
    for (int i = 0; i < 40; i++) df_width_note(&c, 1, 1, 1, 0, 3.0 * (1 + 0.5 * pow(0.8, i)), 0);
  }
  assert_true(fabs(c.third - 0.5 * 0.64) < 0.03);
  assert_true(c.wake > 2.0 && c.wake < 2.5); /* 5 times 0.5, less what the late steps still have of it */
  assert_true(fabs(df_width_cost_at(&c.verify, 1, 0) - 3.0) < 0.03);
  for (int round = 0; round < 50; round++) { /* short looks at plain decoding do not raise it */
    df_width_note(&c, 1, 4, 4, 0, 3.6, 1.2);
    for (int i = 0; i < 3; i++) df_width_note(&c, 1, 1, 1, 0, 3.0 * (1 + 0.5 * pow(0.8, i)), 0);
  }
  assert_true(fabs(df_width_cost_at(&c.verify, 1, 0) - 3.0) < 0.1);
}

/* Draft and verify in one wait: the sum stays, the shares are those of the prices; so prices follow the machine
 * together and keep their proportion. */
static void test_share__keeps_sum_and_proportion(void **state) {
  (void)state;
  df_width_costs c = {0};
  double verify = 11, draft = 1;
  df_width_share(&c, 1, 4, 4, 0, &verify, &draft);
  assert_true(verify == 11 && draft == 1); /* nothing is known */
  df_width_cost_calibrate(&c.verify, 4, 6, 0, 0);
  df_width_cost_calibrate(&c.draft, 4, 2, 0, 0);
  df_width_share(&c, 1, 4, 4, 0, &verify, &draft);
  assert_true(fabs(verify - 9) < 1e-9 && fabs(draft - 3) < 1e-9);
  df_width_share(&c, 2, 2, 2, 0, &verify, &draft); /* as many rows */
  assert_true(fabs(verify - 9) < 1e-9 && fabs(draft - 3) < 1e-9);
  verify = 4, draft = 0;
  df_width_share(&c, 4, 1, 1, 0, &verify, &draft); /* plain steps have no draft */
  assert_true(verify == 4 && draft == 0);
  for (int i = 0; i < 300; i++) {
    verify = 12, draft = 0.01; /* half as fast again */
    df_width_share(&c, 1, 4, 4, 0, &verify, &draft);
    df_width_note(&c, 1, 4, 4, 0, verify, draft);
  }
  assert_true(fabs(df_width_cost_at(&c.verify, 4, 0) - 9) < 0.1);
  assert_true(fabs(df_width_cost_at(&c.draft, 4, 0) - 3) < 0.1);
}

/* What catching up costs is a mean of late measurements, in plain steps of as many requests. */
static void test_catch_up__is_measured(void **state) {
  (void)state;
  df_width_costs c = linear_costs(3.0, 1.0, 0.8, 0.1);
  assert_true(df_width_catch_up_steps(&c, 1, 0) == 0); /* nothing is known: free */
  df_width_note_catch_up(&c, 0.3);
  assert_true(fabs(df_width_catch_up_steps(&c, 1, 0) - 0.1) < 1e-9);
  assert_true(fabs(df_width_catch_up_steps(&c, 4, 0) - 0.05) < 1e-9);
  for (int i = 0; i < 100; i++) df_width_note_catch_up(&c, 0.6);
  assert_true(fabs(df_width_catch_up_steps(&c, 1, 0) - 0.2) < 1e-4);
  assert_true(df_width_catch_up_steps(&(df_width_costs){.catch_up = 1}, 1, 0) == 0);
}

/* Probes of a hopeless draft behind plain steps, of `steps` steps, when a catch-up of `paid` ms is taken for `known`.
 * *spent: times plain decoding. */
static uint32_t probes(double known, double paid, int steps, double *spent) {
  df_width_costs c = linear_costs(3.0, 1.5, 3.0, 0.5);
  df_width_estimate e = steady(0.05f), *one = &e;
  uint32_t n = 0, before = 1;
  c.catch_up = known;
  *spent = 0;
  for (int i = 0; i < steps; i++) {
    const uint32_t w = df_width_choose(&c, &one, 1, 16, 0);
    const double verify = df_width_cost_at(&c.verify, w, 0), draft = df_width_cost_at(&c.draft, w, 0);
    const bool catches_up = w > 1 && before == 1;
    if (w > 1) df_width_estimate_update(&e, w - 1, 0, NULL, 0);
    df_width_note(&c, 1, w, w, 0, verify, w > 1 ? draft : 0);
    df_width_account(&e, df_width_plain_steps(&c, 1, w, w, 0) + (catches_up ? df_width_catch_up_steps(&c, 1, 0) : 0),
                     1);
    *spent += (verify + (w > 1 ? draft : 0) + (catches_up ? paid : 0)) / 3.0 / steps;
    n += w > 1;
    before = w;
  }
  return n;
}

static void test_choose__a_probe_pays_for_catching_up(void **state) {
  (void)state;
  double spent[3];
  const uint32_t none = probes(0, 0, 20000, &spent[0]), counted = probes(6, 6, 20000, &spent[1]),
                 unknown = probes(0, 6, 20000, &spent[2]);
  print_message("probes %u, %u, %u: %.4f, %.4f, %.4f of plain decoding\n", none, counted, unknown, spent[0], spent[1],
                spent[2]);
  assert_true(counted > 20 && counted < none && unknown == none);
  assert_true(spent[0] < 1.03 && spent[1] < 1.03 && spent[2] > spent[1] + 0.01);
}

/* A change to drafting must promise more than it costs; whoever drafts already has nothing to catch up with. */
static void test_choose__a_change_must_be_worth_catching_up(void **state) {
  (void)state;
  df_width_costs c = linear_costs(3.0, 0.1, 1.0, 0.1);
  df_width_estimate e = steady(0.4f), *one = &e;
  const double gain = expected(&e, 3) / df_width_plain_steps(&c, 1, 3, 3, 0);
  assert_true(gain > 1.02 && gain < 1.2);
  c.catch_up = 10 * 3.0;
  assert_true(df_width_choose(&c, &one, 1, 3, 0) > 1); /* nothing waits yet */
  c.drafting = false;
  e.saved = 100; /* it can afford everything */
  df_width_note(&c, 1, 1, 1, 0, 3.0, 0);
  assert_int_equal(df_width_choose(&c, &one, 1, 3, 0), 1);
  c.catch_up = 0;
  assert_true(df_width_choose(&c, &one, 1, 3, 0) > 1);
}

/* A request of which nothing is accepted, however good the others were, loses a few plain steps and no more. */
static void test_account__a_bad_text_loses_little(void **state) {
  (void)state;
  df_width_costs c = linear_costs(3.0, 0.2, 0.8, 0.1);
  df_width_estimate e, all = steady(0.6f), *one = &e;
  double spent = 0;
  df_width_estimate_init(&e);
  df_width_estimate_learn(&e, &all);
  assert_true(df_width_choose(&c, &one, 1, 16, 0) > 1);
  for (int i = 0; i < 400; i++) {
    const uint32_t w = df_width_choose(&c, &one, 1, 16, 0);
    spent += df_width_cost_at(&c.verify, w, 0) + (w > 1 ? df_width_cost_at(&c.draft, w, 0) : 0);
    df_width_account(&e, df_width_plain_steps(&c, 1, w, w, 0), 1);
    if (w > 1)
      df_width_estimate_update(&e, w - 1, 0, NULL, 0);
    else
      df_width_estimate_fade(&e);
  }
  print_message("%.1f plain steps lost of 400\n", spent / 3.0 - 400);
  assert_true(spent < 3.0 * (400 + 14));
  assert_true(fabs(e.saved + spent / 3.0 - 400) < 1e-6); /* the account is exact */
}

/* The answer of a search written out here. */
static uint32_t best_by_hand(double p, double first, double per_row, double d0, double d1, uint32_t max) {
  double best = 1 / first;
  uint32_t w_best = 1;
  for (uint32_t w = 2; w <= max; w++) {
    const double tokens = (1 - pow(p, w)) / (1 - p);
    const double rate = tokens / (first + per_row * (w - 1) + d0 + d1 * w);
    if (rate > best) {
      best = rate;
      w_best = w;
    }
  }
  return w_best;
}

static void test_choose__equals_a_search_by_hand(void **state) {
  (void)state;
  static const float k_p[] = {0.2f, 0.45f, 0.6f, 0.75f, 0.9f, 0.97f};
  for (int i = 0; i < 6; i++)
    for (uint32_t max = 2; max <= 16; max += 7) {
      df_width_costs c = linear_costs(3.0, 0.2, 0.8, 0.1);
      df_width_estimate e = steady(k_p[i]), *one = &e;
      const uint32_t want = best_by_hand(k_p[i], 3.0, 0.2, 0.8, 0.1, max);
      assert_int_equal(df_width_choose(&c, &one, 1, max, 0), want);
    }
}

static void test_choose__a_hopeless_draft_costs_at_most_its_probes(void **state) {
  (void)state;
  df_width_costs c = linear_costs(3.0, 1.5, 3.0, 0.5);
  df_width_estimate e = steady(0.05f), *one = &e;
  double plain = 0, spent = 0;
  uint32_t probes = 0;
  for (int i = 0; i < 20000; i++) {
    const uint32_t w = df_width_choose(&c, &one, 1, 16, 0);
    if (w > 1) {
      probes++;
      df_width_estimate_update(&e, w - 1, 0, NULL, 0);
    }
    df_width_account(&e, df_width_plain_steps(&c, 1, w, w, 0), 1);
    plain += df_width_cost_at(&c.verify, 1, 0);
    spent += df_width_cost_at(&c.verify, w, 0) + (w > 1 ? df_width_cost_at(&c.draft, w, 0) : 0);
  }
  assert_true(probes > 20); /* it keeps looking */
  assert_true(spent / plain < 1.03);
}

static void test_choose__a_probe_finds_a_better_text(void **state) {
  (void)state;
  df_width_costs c = linear_costs(3.0, 0.2, 0.8, 0.1);
  df_width_estimate e = steady(0.01f), *one = &e;
  for (uint32_t j = 0; j < DF_WIDTH_MAX; j++) e.tried[j] = 20, e.accepted[j] = 0.2f;
  uint32_t w = 1;
  for (int i = 0; i < 4000 && w <= 4; i++) {
    w = df_width_choose(&c, &one, 1, 16, 0);
    if (w > 1) df_width_estimate_update(&e, w - 1, w - 1, NULL, 0); /* everything is accepted from now on */
  }
  assert_true(w > 4);
}

static void test_choose__looks_at_the_price_of_plain_decoding_again(void **state) {
  (void)state;
  df_width_costs c = linear_costs(30.0, 0.2, 0.8, 0.1); /* plain steps were dear once */
  df_width_estimate e = steady(0.4f), *one = &e;
  enum { STEPS = 4000 };
  uint32_t last[STEPS];
  for (int i = 0; i < STEPS; i++) {
    last[i] = df_width_choose(&c, &one, 1, 16, 0);
    df_width_note(&c, 1, last[i], last[i], 0, last[i] == 1 ? 10.0 : 30.0, 1.0); /* and are cheap now */
  }
  assert_true(last[0] > 1);
  for (int i = STEPS - 4; i < STEPS; i++) assert_int_equal(last[i], 1);
}

/* A draft that pays for itself many times over is seldom interrupted, one that hardly pays more often. */
static void test_choose__plain_steps_between_drafting_cost_little(void **state) {
  (void)state;
  static const float k_p[] = {0.3f, 0.9f};
  uint32_t plain[2] = {0};
  for (int i = 0; i < 2; i++) {
    df_width_costs c = linear_costs(3.0, 0.1, 0.2, 0.02);
    df_width_estimate e = steady(k_p[i]), *one = &e;
    assert_true(df_width_choose(&c, &one, 1, 16, 0) > 1); /* from the first step on */
    for (int j = 0; j < 10000; j++) plain[i] += df_width_choose(&c, &one, 1, 16, 0) == 1;
  }
  assert_true(plain[0] > 200 && plain[0] < 1000);
  assert_true(plain[1] > 80 && plain[1] < 200);
}

/* A new request starts from what others have seen, and is judged by its own blocks soon. */
static void test_learn__starts_where_others_are(void **state) {
  (void)state;
  df_width_estimate all, e;
  df_width_estimate_init(&all);
  for (int i = 0; i < 200; i++)
    df_width_estimate_update(&all, 7, i % 2 ? 1 : 0, NULL, 0); /* slot 0 half the time, then none */
  df_width_estimate_init(&e);
  const double fresh = expected(&e, 4);
  df_width_estimate_learn(&e, &all);
  assert_true(fabs(expected(&e, 2) - 1.5) < 0.06);
  assert_true(expected(&e, 8) < 1.8 && fresh > 1.8);
  for (int i = 0; i < 12; i++) df_width_estimate_update(&e, 7, 7, NULL, 0);
  assert_true(expected(&e, 4) > 2.5);
}

static void test_choose__without_costs_it_does_not_draft(void **state) {
  (void)state;
  df_width_costs none = {0};
  df_width_estimate e = steady(0.9f), *one = &e;
  assert_int_equal(df_width_choose(&none, &one, 1, 16, 0), 1);
}

static void test_choose__a_group_takes_one_width_for_all(void **state) {
  (void)state;
  df_width_costs c = linear_costs(3.0, 0.2, 0.8, 0.1);
  df_width_cost_calibrate(&c.verify, 32, 3.0 + 0.2 * 31, 0, 0);
  df_width_cost_calibrate(&c.draft, 32, 0.8 + 0.1 * 32, 0, 0);
  df_width_estimate good = steady(0.95f), bad = steady(0.02f), *both[] = {&good, &bad}, *twice[] = {&good, &good};
  const uint32_t mixed = df_width_choose(&c, both, 2, 16, 0), alike = df_width_choose(&c, twice, 2, 16, 0);
  assert_true(mixed >= 1 && mixed < alike);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_expected__geometric_sum),
      cmocka_unit_test(test_update__slots_behind_the_miss_keep_their_estimate),
      cmocka_unit_test(test_update__converges_to_the_rate),
      cmocka_unit_test(test_cost__interpolates_between_measured_rows),
      cmocka_unit_test(test_cost__an_outlier_counts_for_little),
      cmocka_unit_test(test_cost__grows_with_depth),
      cmocka_unit_test(test_cost__others_follow_the_machine),
      cmocka_unit_test(test_note__slow_steps_behind_a_draft_are_learnt),
      cmocka_unit_test(test_choose__equals_a_search_by_hand),
      cmocka_unit_test(test_share__keeps_sum_and_proportion),
      cmocka_unit_test(test_catch_up__is_measured),
      cmocka_unit_test(test_choose__a_probe_pays_for_catching_up),
      cmocka_unit_test(test_choose__a_change_must_be_worth_catching_up),
      cmocka_unit_test(test_account__a_bad_text_loses_little),
      cmocka_unit_test(test_choose__a_hopeless_draft_costs_at_most_its_probes),
      cmocka_unit_test(test_choose__a_probe_finds_a_better_text),
      cmocka_unit_test(test_choose__looks_at_the_price_of_plain_decoding_again),
      cmocka_unit_test(test_choose__plain_steps_between_drafting_cost_little),
      cmocka_unit_test(test_learn__starts_where_others_are),
      cmocka_unit_test(test_choose__without_costs_it_does_not_draft),
      cmocka_unit_test(test_choose__a_group_takes_one_width_for_all),
  };
  return cmocka_run_group_tests_name("width", tests, NULL, NULL);
}
