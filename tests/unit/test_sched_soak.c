/* Thousands of requests at random: submitted, cancelled, late, of all kinds, through pools that are too small. Every
 * text is the one that the request has alone, or the beginning of it; nothing is held at the end. Then the same with
 * every allocation failing once. DF_TEST_LONG makes it longer. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/size.h"
#include "dflash/dflash.h"
#include "support/sample_files.h"
#include "support/sched_rig.h"
#include "support/test_models.h"
#include "support/tiny_target.h"

enum { CTX = 192, N_KINDS = 24, POOL = 180 };

typedef struct fixture {
  tiny_spec spec;
  df_model *m;
  df_draft *d;
  int32_t ids[N_KINDS][CTX];
  df_job job[N_KINDS];
  rig_answer want[N_KINDS];
} fixture;

static uint32_t g_seed;
static uint32_t rnd(uint32_t n) {
  g_seed = g_seed * 1664525u + 1013904223u;
  return (g_seed >> 8) % n;
}

static void make_kind(fixture *f, uint32_t i) {
  static const char *const stops[] = {"qq", "ee", "z"};
  const uint32_t shared = i % 3 * 40, n = shared + 1 + i * 5 % 37;
  for (uint32_t k = 0; k < n; k++) f->ids[i][k] = (int32_t)(k < shared ? k * 3 % 97 : (k * 31 + i * 17) % 251);
  df_job *j = &f->job[i];
  *j = rig_job(f->ids[i], n, 1 + i * 11 % 60);
  j->gen.sampling.seed = i;
  if (i % 2) j->gen.sampling.temperature = 0.9f;
  if (i % 4 == 3) j->gen.sampling.repetition_penalty = 1.2f;
  if (i % 5 == 0) j->gen.stop = stops, j->gen.n_stop = 3;
  if (i % 6 == 0) j->gen.ignore_eos = false, j->gen.min_tokens = 5;
}

static int setup(void **state) {
  fixture *f = df_calloc(1, sizeof *f);
  if (!f) return -1;
  f->spec = tiny_spec_default();
  f->m = tiny_open(&f->spec, 1);
  f->d = tiny_open_draft(&f->spec, f->m);
  for (uint32_t i = 0; i < N_KINDS; i++) {
    make_kind(f, i);
    rig_alone(f->m, POOL, &f->job[i], &f->want[i]);
  }
  *state = f;
  return 0;
}

static int teardown(void **state) {
  fixture *f = *state;
  df_draft_close(f->d);
  df_model_close(f->m);
  df_free(f);
  return 0;
}

/* What may vary without the text varying. */
static df_job random_job(const fixture *f, uint32_t *kind) {
  static const int32_t widths[] = {0, 1, 2, 5, 16};
  *kind = rnd(N_KINDS);
  df_job j = f->job[*kind];
  j.spec_width = widths[rnd(5)];
  j.priority = rnd(4) ? 0 : (int32_t)rnd(3) - 1;
  j.client = rnd(3);
  j.no_cache = rnd(8) == 0;
  j.logprobs = rnd(6) == 0;
  j.n_top = rnd(6) ? 0 : rnd(4);
  j.prompt_logprobs = rnd(12) == 0;
  if (rnd(10) == 0) j.deadline = df_now_ns() + rnd(4000) * 1000u;
  return j;
}

static void check_end(const rig_answer *a, const rig_answer *want, uint32_t kind) {
  char what[32];
  (void)snprintf(what, sizeof what, "kind %u", kind);
  if (a->end.finish != DF_FINISH_CANCELLED) {
    rig_assert_same(a, want, what);
    return;
  }
  assert_true(a->n <= want->n);
  if (memcmp(a->ids, want->ids, a->n * sizeof *a->ids) != 0) fail_msg("%s: other tokens before it was cancelled", what);
}

/* One engine with random work; returns how often requests were parked. */
static uint64_t soak(fixture *f, uint32_t n, uint32_t max_seqs, uint32_t page, bool cache, bool graphs) {
  sched_rig r;
  df_sched_stats st;
  df_sched_params p = {.engine = {.session = df_session_params_default(), .max_seqs = max_seqs}, .max_waiting = 24};
  p.engine.session.n_ctx = POOL;
  p.engine.session.page_size = page;
  p.engine.session.no_graph = !graphs;
  p.engine.kv_tokens = POOL;
  p.prefill_rows = 8 + rnd(60);
  p.no_prefix_cache = !cache;
  rig_init(&r, f->m, f->d, &p);
  uint8_t *kinds = df_calloc(n, 1);
  assert_non_null(kinds);
  for (uint32_t done = 0, made = 0; made < n;) {
    uint32_t kind, index;
    const df_job j = random_job(f, &kind);
    df_error err = {0};
    const df_status s = rig_try(&r, &j, &index, &err);
    if (s == DF_OK) {
      assert_int_equal(index, made);
      kinds[made++] = (uint8_t)kind;
    } else {
      assert_int_equal(s, DF_ERR_BUSY);
      rig_sleep(&r, 100);
    }
    if (rnd(4) == 0) rig_cancel(&r, made - DF_MIN(made, 1 + rnd(20)));
    if (rnd(3) == 0) rig_take(&r);
    if (rnd(40) == 0) df_sched_flush_cache(r.s);
    if (rnd(60) == 0) rig_wait_all(&r);
    for (; done < made && rig_get(&r, done)->done; done++)
      check_end(rig_get(&r, done), &f->want[kinds[done]], kinds[done]);
  }
  rig_wait_all(&r);
  for (uint32_t i = 0; i < n; i++) check_end(rig_get(&r, i), &f->want[kinds[i]], kinds[i]);
  rig_assert_at_rest(&r);
  df_sched_get_stats(r.s, &st);
  assert_int_equal(st.failed, 0);
  assert_true(st.finished > n / 3 && st.cancelled > n / 100);
  df_sched_flush_cache(r.s);
  rig_assert_at_rest(&r);
  df_sched_get_stats(r.s, &st);
  assert_int_equal(st.pages_cached, 0);
  rig_release(&r);
  df_free(kinds);
  return st.preempted;
}

static void test_soak__every_text_and_every_page_is_accounted_for(void **state) {
  fixture *f = *state;
  const uint32_t n = df_test_long() ? 4000 : 400;
  uint64_t parked = 0;
  g_seed = df_test_long() ? (uint32_t)df_now_ns() : 7;
  const uint32_t seed = g_seed;
  parked += soak(f, n, 8, 16, true, true);
  parked += soak(f, n, 16, 1, true, true);
  parked += soak(f, n, 5, 16, false, false);
  parked += soak(f, n / 2, 3, 64, true, true);
  if (parked < 10) fail_msg("only %d requests were parked (seed %u)", (int)parked, seed);
}

/* ---- allocation failures -------------------------------------------------------------------------------- */

static df_sched_params small_params(void) {
  df_sched_params p = {.engine = {.session = df_session_params_default(), .max_seqs = 3}, .max_waiting = 8};
  p.engine.session.n_ctx = POOL;
  p.engine.session.spec_draft_max = 5; /* no calibration at the start: many schedulers are made here */
  p.engine.kv_tokens = POOL - 32;      /* and a page more for each of the other two */
  return p;
}

typedef struct pair {
  df_model *m;
  df_draft *d;
} pair;

static df_status make_sched(void *arg, df_error *err) {
  const pair *p = arg;
  const df_sched_params sp = small_params();
  df_sched *s;
  const df_status st = df_sched_create(p->m, p->d, &sp, &s, err);
  if (st == DF_OK) df_sched_free(s, 0);
  return st;
}

static void test_create__allocation_failures(void **state) {
  fixture *f = *state;
  pair p = {f->m, f->d};
  assert_true(test_each_allocation_fails(make_sched, &p) > 10);
}

/* Four requests while one allocation (or all from there on) fails, then one when memory is back. False when nothing
 * failed any more. */
static bool run_failing(fixture *f, uint64_t at, bool sticky) {
  static const uint32_t kinds[] = {0, 3, 8, 17};
  sched_rig r;
  df_sched_params p = small_params();
  bool hurt = false;
  p.engine.session.no_graph = sticky; /* programs are emitted anew each step: more places to fail */
  rig_init(&r, f->m, f->d, &p);
  rig_reserve(&r, 16);
  uint32_t index[4], n = 0, made[4];
  df_mem_fail_after(at, sticky);
  for (uint32_t i = 0; i < 4; i++) {
    df_error err = {0};
    df_job j = f->job[kinds[i]];
    j.logprobs = i == 1;
    j.spec_width = i == 2 ? 1 : 0;
    const df_status s = rig_try(&r, &j, &index[n], &err);
    if (s != DF_OK && s != DF_ERR_MEMORY) fail_msg("allocation %d: %s", (int)at, err.msg);
    hurt |= s != DF_OK;
    if (s == DF_OK) made[n++] = kinds[i];
  }
  rig_wait_all(&r);
  df_mem_fail_after(0, false);
  for (uint32_t i = 0; i < n; i++) {
    const rig_answer *a = rig_get(&r, index[i]);
    hurt |= a->end.failed != DF_OK;
    if (a->end.failed == DF_OK)
      rig_assert_same(a, &f->want[made[i]], "beside a failed allocation");
    else
      assert_int_equal(a->end.failed, DF_ERR_MEMORY);
    assert_memory_equal(a->ids, f->want[made[i]].ids, a->n * sizeof *a->ids);
  }
  rig_wait(&r, rig_submit(&r, &f->job[5]));
  rig_assert_same(rig_get(&r, r.n - 1), &f->want[5], "after a failed allocation");
  rig_assert_at_rest(&r);
  rig_release(&r);
  return hurt;
}

static void test_submit__allocation_failures(void **state) {
  fixture *f = *state;
  uint32_t failures = 0;
  for (int sticky = 0; sticky < 2; sticky++) {
    /* Some allocations may fail without anyone being hurt: the end is a stretch of them. */
    uint64_t quiet = 0;
    for (uint64_t at = 1; quiet < 60; at += sticky ? 7 : 1) {
      const bool hurt = run_failing(f, at, sticky);
      quiet = hurt ? 0 : quiet + 1;
      failures += hurt;
      assert_true(at < 5000);
    }
  }
  assert_true(failures > 50);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_soak__every_text_and_every_page_is_accounted_for),
      cmocka_unit_test(test_create__allocation_failures),
      cmocka_unit_test(test_submit__allocation_failures),
  };
  return cmocka_run_group_tests_name("sched_soak", tests, setup, teardown);
}
