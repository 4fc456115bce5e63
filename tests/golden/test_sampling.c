/* Sampling and acceptance against float64 reference vectors (sampling.json). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/size.h"
#include "engine/sampler.h"
#include "spec/accept.h"

enum { MAX_V = 64, MAX_S = 16 };

static json_t *g_root;

static int load(void **state) {
  (void)state;
  json_error_t e;
  g_root = json_load_file(DF_SOURCE_DIR "/tests/golden/sampling.json", 0, &e);
  return g_root ? 0 : -1;
}

static int unload(void **state) {
  (void)state;
  json_decref(g_root);
  return 0;
}

static uint32_t read_doubles(const json_t *a, double *out, uint32_t max) {
  const size_t n = json_array_size(a);
  assert_true(n <= max);
  for (size_t i = 0; i < n; i++) out[i] = json_number_value(json_array_get(a, i));
  return (uint32_t)n;
}

static uint32_t read_ids(const json_t *a, int32_t *out, uint32_t max) {
  const size_t n = json_array_size(a);
  assert_true(n <= max);
  for (size_t i = 0; i < n; i++) out[i] = (int32_t)json_integer_value(json_array_get(a, i));
  return (uint32_t)n;
}

static float number_or(const json_t *o, const char *key, double fallback) {
  const json_t *v = json_object_get(o, key);
  return (float)(v ? json_number_value(v) : fallback);
}

static void check_committed(const json_t *c, const df_accept_result *r, const int32_t *drafted) {
  const json_t *expect = json_object_get(c, "expect");
  int32_t want[MAX_S + 1];
  const uint32_t n = read_ids(json_object_get(expect, "committed"), want, MAX_S + 1);
  assert_int_equal(r->accepted, json_integer_value(json_object_get(expect, "accepted")));
  assert_int_equal(n, r->accepted + 1);
  for (uint32_t i = 0; i < r->accepted; i++) assert_int_equal(drafted[i], want[i]);
  assert_int_equal(r->next, want[r->accepted]);
}

static void test_transform__all_cases(void **state) {
  (void)state;
  const json_t *cases = json_object_get(g_root, "transform");
  assert_int_equal(json_array_size(cases), 46);
  df_sampler_scratch scratch;
  assert_int_equal(df_sampler_scratch_init(&scratch, MAX_V, NULL), DF_OK);
  for (size_t ci = 0; ci < json_array_size(cases); ci++) {
    const json_t *c = json_array_get(cases, ci);
    const json_t *jp = json_object_get(c, "params");
    const json_t *expect = json_object_get(c, "expect");
    double wide[MAX_V], want[MAX_V], got[MAX_V];
    float logits[MAX_V];
    const uint32_t vocab = read_doubles(json_object_get(c, "logits"), wide, MAX_V);
    for (uint32_t i = 0; i < vocab; i++) logits[i] = (float)wide[i];
    df_sampling_params p = df_sampling_params_default();
    p.temperature = number_or(jp, "temperature", 1.0);
    p.top_k = (int32_t)number_or(jp, "top_k", 0);
    p.top_p = number_or(jp, "top_p", 1);
    p.min_p = number_or(jp, "min_p", 0);
    p.repetition_penalty = number_or(jp, "repetition_penalty", 1);
    assert_int_equal(df_sampling_params_check(&p, NULL), DF_OK);
    int32_t ids[MAX_V], kept[MAX_V], want_kept[MAX_V], greedy = -1;
    df_seen seen;
    assert_int_equal(df_seen_init(&seen, MAX_V, NULL), DF_OK);
    const uint32_t n_seen = read_ids(json_object_get(jp, "seen"), ids, MAX_V);
    for (uint32_t i = 0; i < n_seen; i++) assert_int_equal(df_seen_push(&seen, ids[i], i % 2, NULL), DF_OK);
    df_token_mask mask = {.banned = ids};
    mask.n_banned = read_ids(json_object_get(jp, "masked"), ids, MAX_V);
    uint32_t n_kept = 0;
    df_error err;
    if (df_sampling_transform(&p, logits, vocab, &seen, &mask, &scratch, got, kept, &n_kept, &greedy, &err) != DF_OK)
      fail_msg("%s: %s", json_string_value(json_object_get(c, "name")), err.msg);
    assert_int_equal(greedy, json_integer_value(json_object_get(expect, "greedy")));
    assert_int_equal(n_kept, read_ids(json_object_get(expect, "kept"), want_kept, MAX_V));
    for (uint32_t i = 0; i < n_kept; i++) assert_int_equal(kept[i], want_kept[i]);
    assert_int_equal(read_doubles(json_object_get(expect, "probs"), want, MAX_V), vocab);
    for (uint32_t i = 0; i < vocab; i++)
      if (fabs(got[i] - want[i]) > 1e-6)
        fail_msg("%s: p[%u] is %.9g, not %.9g", json_string_value(json_object_get(c, "name")), i, got[i], want[i]);
    df_seen_release(&seen);
  }
  df_sampler_scratch_release(&scratch);
}

static void test_accept_compare__greedy_chain(void **state) {
  (void)state;
  const json_t *cases = json_object_get(g_root, "greedy_chain");
  assert_int_equal(json_array_size(cases), 15);
  for (size_t ci = 0; ci < json_array_size(cases); ci++) {
    const json_t *c = json_array_get(cases, ci);
    const json_t *rows = json_object_get(c, "target_logits");
    int32_t drafted[MAX_S], choice[MAX_S + 1], want[MAX_S + 1];
    const uint32_t n = read_ids(json_object_get(c, "drafted"), drafted, MAX_S);
    assert_int_equal(json_array_size(rows), n + 1);
    read_ids(json_object_get(json_object_get(c, "expect"), "target_choice"), want, MAX_S + 1);
    for (uint32_t r = 0; r <= n; r++) {
      double wide[MAX_V];
      float logits[MAX_V];
      const uint32_t vocab = read_doubles(json_array_get(rows, r), wide, MAX_V);
      for (uint32_t i = 0; i < vocab; i++) logits[i] = (float)wide[i];
      choice[r] = df_argmax(logits, vocab);
      assert_int_equal(choice[r], want[r]);
    }
    const df_accept_result res = df_accept_compare(choice, drafted, n);
    check_committed(c, &res, drafted);
  }
}

typedef struct draws {
  const json_t *p;
  const double *u;
  uint32_t asked;
} draws;

static df_status draw_row(void *ctx, uint32_t row, int32_t *id_out, df_error *err) {
  (void)err;
  draws *d = ctx;
  double p[MAX_V];
  const uint32_t vocab = read_doubles(json_array_get(d->p, row), p, MAX_V);
  d->asked++;
  *id_out = df_accept_draw(p, vocab, d->u[row]);
  return DF_OK;
}

static void test_accept_walk__sample_then_compare(void **state) {
  (void)state;
  const json_t *cases = json_object_get(g_root, "sample_then_compare");
  assert_int_equal(json_array_size(cases), 10);
  for (size_t ci = 0; ci < json_array_size(cases); ci++) {
    const json_t *c = json_array_get(cases, ci);
    int32_t drafted[MAX_S];
    double u[MAX_S + 1];
    const uint32_t n = read_ids(json_object_get(c, "drafted"), drafted, MAX_S);
    assert_int_equal(read_doubles(json_object_get(c, "u"), u, MAX_S + 1), n + 1);
    draws d = {json_object_get(c, "p"), u, 0};
    df_accept_result res;
    assert_int_equal(df_accept_walk(draw_row, &d, drafted, n, &res, NULL), DF_OK);
    check_committed(c, &res, drafted);
    assert_int_equal(d.asked, res.accepted + 1);
  }
}

static void test_accept_rejection__all_cases(void **state) {
  (void)state;
  const json_t *cases = json_object_get(g_root, "rejection_chain");
  assert_int_equal(json_array_size(cases), 28);
  for (size_t ci = 0; ci < json_array_size(cases); ci++) {
    const json_t *c = json_array_get(cases, ci);
    static double p[MAX_S + 1][MAX_V], q[MAX_S][MAX_V];
    df_prob_row pr[MAX_S + 1], qr[MAX_S];
    int32_t drafted[MAX_S];
    double u[MAX_S], residual[MAX_V], want[MAX_V];
    const uint32_t n = read_ids(json_object_get(c, "drafted"), drafted, MAX_S);
    assert_int_equal(read_doubles(json_object_get(c, "u"), u, MAX_S), n);
    uint32_t vocab = 0;
    for (uint32_t r = 0; r <= n; r++) {
      vocab = read_doubles(json_array_get(json_object_get(c, "p"), r), p[r], MAX_V);
      pr[r] = (df_prob_row){.prob = p[r], .n = vocab};
      if (r == n) break;
      read_doubles(json_array_get(json_object_get(c, "q"), r), q[r], MAX_V);
      qr[r] = (df_prob_row){.prob = q[r], .n = vocab};
    }
    const df_rejection_input in = {.p = pr,
                                   .q = qr,
                                   .drafted = drafted,
                                   .u = u,
                                   .n_draft = n,
                                   .vocab = vocab,
                                   .v = json_number_value(json_object_get(c, "v"))};
    df_accept_result res;
    assert_int_equal(df_accept_rejection(&in, residual, &res, NULL), DF_OK);
    check_committed(c, &res, drafted);
    const json_t *expect = json_object_get(c, "expect");
    assert_int_equal(res.next, json_integer_value(json_object_get(expect, "token")));
    read_doubles(json_object_get(expect, "residual"), want, MAX_V);
    for (uint32_t i = 0; i < vocab; i++) assert_true(fabs(residual[i] - want[i]) < 1e-9);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_transform__all_cases),
      cmocka_unit_test(test_accept_compare__greedy_chain),
      cmocka_unit_test(test_accept_walk__sample_then_compare),
      cmocka_unit_test(test_accept_rejection__all_cases),
  };
  return cmocka_run_group_tests_name("sampling golden", tests, load, unload);
}
