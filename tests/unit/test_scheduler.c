/* Many requests at once on a tiny model: the text of each is the one it has alone, whoever shares the batch, whatever
 * was cached, drafted or parked in between. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/size.h"
#include "dflash/dflash.h"
#include "support/sched_rig.h"
#include "support/tiny_target.h"

enum { CTX = 256, N_JOBS = 20 };

static df_sched_params params(uint32_t max_seqs, uint32_t kv_tokens) {
  df_sched_params p = {.engine = {.session = df_session_params_default(), .max_seqs = max_seqs}, .max_waiting = 64};
  p.engine.session.n_ctx = CTX;
  p.engine.kv_tokens = kv_tokens;
  return p;
}

/* Prompt number i: some share a long prefix, lengths differ, none is special. */
static uint32_t prompt_of(uint32_t i, int32_t *ids) {
  const uint32_t shared = i % 3 == 0 ? 50 : i % 3 == 1 ? 20 : 0, n = shared + 1 + (i * 13) % 40;
  for (uint32_t k = 0; k < n; k++)
    ids[k] = (int32_t)(k < shared ? (k * 31 + k * k * 7) % 251 : (k * 31 + i * 17 + k * k * 7) % 251);
  return n;
}

/* Job number i: greedy, sampled, with penalties, with stops; widths differ. */
static df_job job_of(uint32_t i, int32_t *ids) {
  static const char *const stops[] = {"qq", "\x80", "zz"};
  df_job j = rig_job(ids, prompt_of(i, ids), 40 + i % 5 * 25);
  df_sampling_params *sp = &j.gen.sampling;
  sp->seed = i;
  if (i % 4 == 1) sp->temperature = 0.8f;
  if (i % 4 == 2) sp->temperature = 0.7f, sp->top_p = 0.9f, sp->top_k = 50;
  if (i % 4 == 3) sp->repetition_penalty = 1.2f, sp->frequency_penalty = 0.1f;
  if (i % 5 == 4) j.gen.stop = stops, j.gen.n_stop = 3;
  if (i % 6 == 5) j.gen.ignore_eos = false;
  const int32_t widths[] = {0, 1, 4, 16, 7, 3, 10};
  j.spec_width = widths[i % 7];
  return j;
}

static void run_all(rig_models *f, df_draft *d, const df_sched_params *p, uint32_t n_jobs, const char *what,
                    df_sched_stats *st) {
  int32_t ids[CTX];
  sched_rig r;
  rig_answer *want = df_calloc(n_jobs, sizeof *want);
  assert_non_null(want);
  rig_init(&r, f->m, d, p);
  df_sched_get_stats(r.s, st);
  const uint32_t n_ctx = DF_MIN((uint32_t)CTX, st->pages_total * st->page_size); /* a small pool bounds the context */
  for (uint32_t round = 0; round < 2; round++) { /* the second finds prompts and answers cached */
    uint32_t index[N_JOBS];
    for (uint32_t i = 0; i < n_jobs; i++) {
      const df_job j = job_of(i, ids);
      index[i] = rig_submit(&r, &j);
    }
    rig_wait_all(&r);
    for (uint32_t i = 0; i < n_jobs; i++) {
      const df_job j = job_of(i, ids);
      char name[64];
      if (round == 0) rig_alone(f->m, n_ctx, &j, &want[i]); /* the scheduler rests: the model is free */
      (void)snprintf(name, sizeof name, "%s, round %u, job %u", what, round, i);
      rig_assert_same(rig_get(&r, index[i]), &want[i], name);
      if (j.spec_width == 1 || !d) assert_int_equal(rig_get(&r, index[i])->drafted, 0);
    }
  }
  rig_assert_at_rest(&r);
  df_sched_get_stats(r.s, st);
  df_sched_flush_cache(r.s);
  df_sched_stats after;
  df_sched_get_stats(r.s, &after);
  assert_int_equal(after.pages_cached, 0);
  rig_release(&r);
  df_free(want);
}

static void test_submit__text_does_not_depend_on_the_company(void **state) {
  rig_models *f = *state;
  df_sched_stats st;
  df_sched_params p = params(16, 0);
  run_all(f, f->d, &p, N_JOBS, "16 at once", &st);
  assert_true(st.accepted > 100 && st.prefix_hits > 1000); /* or the test says nothing */
  assert_int_equal(st.preempted, 0);
  run_all(f, NULL, &p, N_JOBS, "16 without a draft", &st);
  assert_int_equal(st.drafted, 0);
  p = params(1, 0);
  run_all(f, f->d, &p, 8, "one by one", &st);
  p = params(3, 0);
  p.no_prefix_cache = true;
  p.prefill_rows = 4;
  run_all(f, f->d, &p, N_JOBS, "3 at once, small chunks, no cache", &st);
  assert_int_equal(st.prefix_queries, 0);
  assert_int_equal(st.cached_tokens, 0);
}

/* Pools so small that requests push each other out again and again. */
static void test_submit__text_survives_preemption(void **state) {
  rig_models *f = *state;
  df_sched_stats st;
  uint64_t preempted = 0;
  const uint32_t pages[] = {16, 1, 64};
  for (uint32_t i = 0; i < DF_COUNT_OF(pages); i++) {
    df_sched_params p = params(8, pages[i] == 64 ? CTX : 160);
    p.engine.session.page_size = pages[i];
    p.prefill_rows = 8;
    run_all(f, f->d, &p, N_JOBS, "small pool", &st);
    preempted += st.preempted;
    p.no_prefix_cache = true;
    run_all(f, f->d, &p, N_JOBS, "small pool, no cache", &st);
    preempted += st.preempted;
  }
  assert_true(preempted > 10);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_submit__text_does_not_depend_on_the_company),
      cmocka_unit_test(test_submit__text_survives_preemption),
  };
  return cmocka_run_group_tests_name("scheduler", tests, rig_models_open, rig_models_close);
}
