/* Acceptance rules: counts against plain loops, and the law of the emitted token. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdbool.h>

#include "engine/rng.h"
#include "spec/accept.h"

enum { V = 5 };

static double coin(uint64_t i, uint32_t stream) { return df_rng_uniform(77, i, stream); }

static void test_accept_compare__counts_the_common_prefix(void **state) {
  (void)state;
  for (uint32_t t = 0; t < 2000; t++) {
    int32_t choice[9], draft[8];
    const uint32_t n = (uint32_t)(coin(t, 0) * 9);
    for (uint32_t i = 0; i < 9; i++) choice[i] = (int32_t)(coin(t * 16 + i, 1) * 3);
    for (uint32_t i = 0; i < n; i++) draft[i] = coin(t * 16 + i, 2) < 0.7 ? choice[i] : 9;
    uint32_t want = 0;
    for (uint32_t i = 0; i < n; i++) {
      if (choice[i] != draft[i]) break;
      want = i + 1;
    }
    const df_accept_result r = df_accept_compare(choice, draft, n);
    assert_int_equal(r.accepted, want);
    assert_int_equal(r.next, choice[want]);
  }
}

typedef struct script {
  const int32_t *choice;
  uint32_t fail_at;
  uint32_t calls;
} script;

static df_status scripted(void *ctx, uint32_t row, int32_t *id_out, df_error *err) {
  script *s = ctx;
  assert_int_equal(row, s->calls);
  s->calls++;
  if (row == s->fail_at) return DF_FAIL(err, DF_ERR_CANCELLED, "stopped at row %u", row);
  *id_out = s->choice[row];
  return DF_OK;
}

static void test_accept_walk__stops_asking_at_the_first_miss(void **state) {
  (void)state;
  const int32_t choice[] = {4, 7, 1, 3}, draft[] = {4, 7, 2};
  script s = {choice, 99, 0};
  df_accept_result r;
  assert_int_equal(df_accept_walk(scripted, &s, draft, 3, &r, NULL), DF_OK);
  assert_int_equal(r.accepted, 2);
  assert_int_equal(r.next, 1);
  assert_int_equal(s.calls, 3);
}

static void test_accept_walk__passes_a_failure_on_and_leaves_the_result(void **state) {
  (void)state;
  const int32_t choice[] = {4, 7, 1}, draft[] = {4, 7};
  script s = {choice, 1, 0};
  df_accept_result r = {42, 43};
  df_error err;
  assert_int_equal(df_accept_walk(scripted, &s, draft, 2, &r, &err), DF_ERR_CANCELLED);
  assert_int_equal(r.accepted, 42);
  assert_int_equal(r.next, 43);
}

static void test_accept_draw__edges(void **state) {
  (void)state;
  const double p[] = {0.0, 0.25, 0.0, 0.75, 0.0};
  assert_int_equal(df_accept_draw(p, 5, 0.0), 1);
  assert_int_equal(df_accept_draw(p, 5, 0.2499), 1);
  assert_int_equal(df_accept_draw(p, 5, 0.25), 3); /* exceeds, strictly */
  assert_int_equal(df_accept_draw(p, 5, 0.999999), 3);
  assert_int_equal(df_accept_draw(p, 5, 1.0), 3); /* never a token without weight */
  const double none[] = {0.0, 0.0};
  assert_int_equal(df_accept_draw(none, 2, 0.5), -1);
}

static double chi_square(const uint32_t *count, const double *p, uint32_t n, double total) {
  double x = 0;
  for (uint32_t i = 0; i < n; i++) x += (count[i] - total * p[i]) * (count[i] - total * p[i]) / (total * p[i]);
  return x;
}

/* Whatever q is, the first emitted token follows p, and drafts pass with probability sum min(p, q). */
static void check_law(const double *p, const double *q, bool sparse) {
  enum { N = 40000 };
  const int32_t ids[V] = {4, 2, 0, 1, 3};
  double shuffled[V];
  for (int i = 0; i < V; i++) shuffled[i] = q[ids[i]];
  const df_prob_row pr[2] = {{NULL, p, V}, {NULL, p, V}};
  const df_prob_row qr = sparse ? (df_prob_row){ids, shuffled, V} : (df_prob_row){NULL, q, V};
  uint32_t count[V] = {0}, passed = 0;
  double overlap = 0;
  for (int i = 0; i < V; i++) overlap += fmin(p[i], q[i]);
  for (uint32_t t = 0; t < N; t++) {
    const int32_t d = df_accept_draw(q, V, coin(t, DF_RNG_DRAFT));
    const double u = coin(t, DF_RNG_ACCEPT);
    const df_rejection_input in = {
        .p = pr, .q = &qr, .drafted = &d, .u = &u, .v = coin(t, DF_RNG_RESIDUAL), .n_draft = 1, .vocab = V};
    double residual[V];
    df_accept_result r;
    assert_int_equal(df_accept_rejection(&in, residual, &r, NULL), DF_OK);
    count[r.accepted ? d : r.next]++;
    passed += r.accepted;
  }
  assert_true(chi_square(count, p, V, N) < 18.5); /* 4 degrees of freedom, p = 0.001 */
  assert_true(fabs(passed / (double)N - overlap) < 0.012);
}

static void test_accept_rejection__emits_the_target_distribution(void **state) {
  (void)state;
  const double p[V] = {0.1, 0.4, 0.2, 0.05, 0.25}, near[V] = {0.15, 0.35, 0.2, 0.1, 0.2};
  const double bad[V] = {0.6, 0.02, 0.03, 0.3, 0.05}, point[V] = {0, 0, 1, 0, 0};
  check_law(p, near, false);
  check_law(p, bad, false);
  check_law(p, bad, true);
  check_law(p, point, false);
}

static void test_accept_rejection__rejects_a_draft_the_target_excludes(void **state) {
  (void)state;
  const double p[V] = {0, 1, 0, 0, 0}, q[V] = {0.5, 0.5, 0, 0, 0};
  const df_prob_row pr[2] = {{NULL, p, V}, {NULL, p, V}}, qr = {NULL, q, V};
  const int32_t d = 0;
  const double u = 0.0; /* the luckiest coin */
  const df_rejection_input in = {.p = pr, .q = &qr, .drafted = &d, .u = &u, .v = 0.5, .n_draft = 1, .vocab = V};
  double residual[V];
  df_accept_result r;
  assert_int_equal(df_accept_rejection(&in, residual, &r, NULL), DF_OK);
  assert_int_equal(r.accepted, 0);
  assert_int_equal(r.next, 1);
}

static void test_accept_rejection__refuses_ids_outside_the_vocabulary(void **state) {
  (void)state;
  const double p[V] = {0, 1, 0, 0, 0}, one = 1.0, u = 0.5;
  const int32_t wide = V, negative = -1;
  const df_prob_row pr[2] = {{NULL, p, V}, {NULL, p, V}}, qr = {&wide, &one, 1};
  int32_t d = 1;
  df_rejection_input in = {.p = pr, .q = &qr, .drafted = &d, .u = &u, .v = 0.5, .n_draft = 1, .vocab = V};
  double residual[V];
  df_accept_result r;
  df_error err;
  assert_int_equal(df_accept_rejection(&in, residual, &r, &err), DF_ERR_ARGUMENT);
  assert_string_equal(err.msg, "draft row 0 names token 5 of 5");
  in.drafted = &negative;
  assert_int_equal(df_accept_rejection(&in, residual, &r, &err), DF_ERR_ARGUMENT);
  assert_string_equal(err.msg, "draft 0 is token -1 of 5");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_accept_compare__counts_the_common_prefix),
      cmocka_unit_test(test_accept_walk__stops_asking_at_the_first_miss),
      cmocka_unit_test(test_accept_walk__passes_a_failure_on_and_leaves_the_result),
      cmocka_unit_test(test_accept_draw__edges),
      cmocka_unit_test(test_accept_rejection__emits_the_target_distribution),
      cmocka_unit_test(test_accept_rejection__rejects_a_draft_the_target_excludes),
      cmocka_unit_test(test_accept_rejection__refuses_ids_outside_the_vocabulary),
  };
  return cmocka_run_group_tests_name("accept", tests, NULL, NULL);
}
