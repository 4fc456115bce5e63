/* Requests that are pushed out of the pool and come back: whose turn it is to go, and that nothing of them changes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/size.h"
#include "dflash/dflash.h"
#include "support/sched_rig.h"
#include "support/tiny_target.h"

enum { CTX = 256 };

static df_sched_params params(uint32_t max_seqs, uint32_t max_waiting) {
  df_sched_params p = {.engine = {.session = df_session_params_default(), .max_seqs = max_seqs},
                       .max_waiting = max_waiting};
  p.engine.session.n_ctx = CTX;
  return p;
}

static void prompt_of(int32_t *ids, uint32_t n, uint32_t salt) {
  for (uint32_t i = 0; i < n; i++) ids[i] = (int32_t)((i * 31 + salt * 17 + i * i * 7) % 251);
}

/* ---- one request, parked by hand ------------------------------------------------------------------------ */

typedef struct run {
  int32_t ids[RIG_IDS];
  uint32_t n;
  df_finish finish;
} run;

static bool take(void *user, const df_event *ev) {
  run *t = user;
  if (ev->n_ids) memcpy(t->ids + t->n, ev->ids, ev->n_ids * sizeof *ev->ids);
  t->n += ev->n_ids;
  return true;
}

/* Generates, and goes through park and admit behind `at` steps. Returns how many steps it took; *accepted: drafts. */
static uint32_t generate(df_engine *e, const int32_t *ids, uint32_t n, int32_t width, uint32_t at, run *out,
                         uint32_t *accepted) {
  df_error err = {0};
  df_request q, *one = &q;
  df_kv_seq seq;
  df_generate_params g = df_generate_params_default();
  df_request_config c = {.gen = &g, .prompt_logprobs = width == 4};
  uint32_t steps = 0;
  *out = (run){0};
  g.max_tokens = 30;
  g.ignore_eos = true;
  g.sampling.repetition_penalty = width == 3 ? 1.3f : 1.0f;
  g.sampling.temperature = width == 3 ? 0.5f : 0;
  g.on_event = take;
  g.user = out;
  assert_int_equal(df_engine_width(e, width, &c, &err), DF_OK);
  assert_int_equal(df_request_init(&q, e->m, ids, n, e->n_ctx, &c, &err), DF_OK);
  assert_int_equal(df_kv_seq_init(&seq, e->pages.size, e->n_ctx, &err), DF_OK);
  assert_int_equal(df_engine_admit(e, &q, &seq, 0, &err), DF_OK);
  for (; q.state != DF_REQ_DONE; steps++) {
    if (steps == at) {
      assert_int_equal(df_engine_park(e, &q, &seq, &err), DF_OK);
      df_kv_seq_release(&seq, &e->pages);
      assert_int_equal(e->pages.n_free, e->pages.n_pages - 1);
      assert_int_equal(df_kv_seq_init(&seq, e->pages.size, e->n_ctx, &err), DF_OK);
      assert_int_equal(df_engine_admit(e, &q, &seq, 0, &err), DF_OK);
    }
    assert_int_equal(df_engine_step(e, &one, 1, &err), DF_OK);
    assert_int_equal(q.failed, DF_OK);
  }
  out->finish = q.r.finish;
  *accepted = q.r.stats.accepted;
  assert_int_equal(q.r.stats.new_tokens, out->n);
  seq = df_request_park(&q);
  df_kv_seq_release(&seq, &e->pages);
  df_request_release(&q);
  return steps;
}

/* Behind every step, the first and the last of the prompt among them. */
static void test_park__at_every_step(void **state) {
  rig_models *f = *state;
  int32_t ids[40];
  df_engine e;
  df_error err = {0};
  df_engine_params p = {.session = df_session_params_default(), .max_seqs = 2};
  p.session.n_ctx = CTX;
  p.session.spec_draft_max = 15;
  assert_int_equal(df_engine_init(&e, f->m, f->d, &p, &err), DF_OK);
  for (uint32_t i = 0; i < 40; i++) ids[i] = (int32_t)(i % 2 ? 19 : i);
  static const int32_t widths[] = {1, 3, 4, 16};
  uint32_t drafts = 0;
  for (uint32_t w = 0; w < DF_COUNT_OF(widths); w++) {
    run want, got;
    uint32_t accepted, again;
    const uint32_t steps = generate(&e, ids, 5 + 10 * w, widths[w], UINT32_MAX, &want, &accepted);
    assert_int_equal(want.n, 30);
    drafts += accepted;
    for (uint32_t at = 0; at < steps; at++) {
      (void)generate(&e, ids, 5 + 10 * w, widths[w], at, &got, &again);
      assert_int_equal(got.n, want.n);
      assert_memory_equal(got.ids, want.ids, want.n * sizeof *want.ids);
      assert_int_equal(got.finish, want.finish);
      assert_int_equal(again, accepted);
    }
  }
  assert_true(drafts > 5);
  df_engine_release(&e);
}

/* ---- through the scheduler ------------------------------------------------------------------------------ */

/* The one with the higher priority keeps its pages, though it is the younger one. */
static void test_preempt__lowest_priority_goes_first(void **state) {
  rig_models *f = *state;
  int32_t ids[CTX], high_ids[CTX];
  sched_rig r;
  df_sched_params p = params(2, 8);
  p.engine.kv_tokens = 144; /* and a page more: 10 pages of 16, while both want 2 x (3 + 4) */
  rig_init(&r, f->m, f->d, &p);
  prompt_of(ids, 40, 3);
  prompt_of(high_ids, 40, 4);
  df_job low = rig_job(ids, 40, 70), high = rig_job(high_ids, 40, 70);
  high.priority = 1;
  low.spec_width = high.spec_width = 4;
  rig_answer want_low, want_high;
  rig_alone(f->m, CTX, &low, &want_low);
  rig_alone(f->m, CTX, &high, &want_high);
  const uint32_t a = rig_submit_held(&r, &low);
  const uint32_t b = rig_submit(&r, &high);
  rig_go(&r);
  rig_assert_at_rest(&r);
  df_sched_stats st;
  df_sched_get_stats(r.s, &st);
  assert_true(st.preempted >= 1);
  assert_true(rig_get(&r, b)->end.t_done < rig_get(&r, a)->end.t_done);
  rig_assert_same(rig_get(&r, a), &want_low, "low");
  rig_assert_same(rig_get(&r, b), &want_high, "high");
  const uint32_t c = rig_submit(&r, &low);
  rig_wait(&r, c);
  rig_assert_same_drafts(&rig_get(&r, a)->end.stats, &rig_get(&r, c)->end.stats);
  rig_release(&r);
}

/* A prompt of one letter whose answer, continued, is drafted well. */
static void find_repetition(rig_models *f, int32_t *ids) {
  sched_rig r;
  df_sched_params p = params(1, 8);
  rig_init(&r, f->m, f->d, &p);
  for (int32_t letter = 10;; letter++) {
    assert_true(letter < 250);
    for (uint32_t i = 0; i < 40; i++) ids[i] = letter;
    df_job j = rig_job(ids, 40, 90);
    const uint32_t a = rig_submit(&r, &j);
    rig_wait(&r, a);
    memcpy(ids + 40, rig_get(&r, a)->ids, 90 * sizeof *ids);
    j = rig_job(ids, 130, 30);
    j.spec_width = 16;
    const uint32_t b = rig_submit(&r, &j);
    rig_wait(&r, b);
    if (rig_get(&r, b)->end.stats.accepted > 4) break;
  }
  rig_release(&r);
}

/* Of one priority the younger one is parked. What it leaves in the cache has the draft's K and V too, though it never
 * drafted itself. */
static void test_preempt__the_younger_one_leaves_sound_pages(void **state) {
  rig_models *f = *state;
  int32_t ids[CTX], young_ids[CTX];
  sched_rig r;
  df_sched_params p = params(2, 8);
  p.engine.kv_tokens = 176;
  rig_init(&r, f->m, f->d, &p);
  prompt_of(ids, 40, 3);
  find_repetition(f, young_ids);
  df_job old = rig_job(ids, 40, 90), young = rig_job(young_ids, 40, 90);
  old.spec_width = young.spec_width = 1;
  const uint32_t a = rig_submit_held(&r, &old);
  rig_turn(&r);
  const uint32_t b = rig_submit(&r, &young);
  uint32_t parked = 0;
  for (rig_turn(&r); !rig_get(&r, a)->done; rig_turn(&r)) {
    df_sched_slot slot[2];
    const uint32_t n = df_sched_slots(r.s, slot, 2);
    for (uint32_t i = 0; i < n; i++)
      if (slot[i].id == b + 1)
        parked = DF_MAX(parked, slot[i].preemptions);
      else
        assert_int_equal(slot[i].preemptions, 0);
    rig_take(&r);
  }
  rig_go(&r);
  rig_assert_at_rest(&r);
  assert_true(parked >= 1);
  const rig_answer *y = rig_get(&r, b);
  memcpy(young_ids + 40, y->ids, y->n * sizeof *y->ids);
  df_job next = rig_job(young_ids, 40 + y->n, 30);
  next.spec_width = 16;
  uint32_t k[2];
  for (int cold = 0; cold < 2; cold++) {
    next.no_cache = cold == 1;
    k[cold] = rig_submit(&r, &next);
    rig_wait(&r, k[cold]);
  }
  assert_true(rig_get(&r, k[0])->end.stats.cached_tokens >= 112);
  assert_true(rig_get(&r, k[0])->end.stats.accepted > 4);
  rig_assert_same_drafts(&rig_get(&r, k[0])->end.stats, &rig_get(&r, k[1])->end.stats);
  rig_release(&r);
}

/* One that never drafts is cancelled behind `turns` tokens; what it left serves one that drafts. */
static void cancel_and_go_on(rig_models *f, int32_t *ids, uint32_t turns) {
  int32_t first[8];
  sched_rig r;
  const df_sched_params p = params(2, 8);
  rig_init(&r, f->m, f->d, &p); /* a new pool each time: nothing older lies in its pages */
  prompt_of(first, 5, 77);
  df_job j = rig_job(first, 5, 200); /* keeps the turns coming */
  const uint32_t company = rig_submit_held(&r, &j);
  j = rig_job(ids, 40, 90);
  j.spec_width = 1;
  const uint32_t a = rig_submit(&r, &j);
  for (uint32_t k = 0; k < turns; k++) rig_turn(&r);
  rig_cancel(&r, a);
  rig_turn(&r);
  rig_take(&r);
  assert_int_equal(rig_get(&r, a)->end.finish, DF_FINISH_CANCELLED);
  const uint32_t n = 40 + rig_get(&r, a)->n;
  rig_go(&r);
  j = rig_job(ids, n, 40);
  j.spec_width = 16;
  const uint32_t warm = rig_submit(&r, &j);
  j.no_cache = true;
  const uint32_t cold = rig_submit(&r, &j);
  rig_cancel(&r, company);
  rig_assert_at_rest(&r);
  assert_int_equal(rig_get(&r, warm)->end.stats.cached_tokens, (n - 1) / 16 * 16);
  rig_assert_same_drafts(&rig_get(&r, warm)->end.stats, &rig_get(&r, cold)->end.stats);
  rig_release(&r);
}

/* Nor does one that was cancelled, at whatever place of a page, leave pages that the draft has not seen. */
static void test_cancel__leaves_sound_pages(void **state) {
  rig_models *f = *state;
  int32_t ids[CTX];
  find_repetition(f, ids);
  for (uint32_t turns = 20; turns < 60; turns++) cancel_and_go_on(f, ids, turns);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_park__at_every_step),
      cmocka_unit_test(test_preempt__lowest_priority_goes_first),
      cmocka_unit_test(test_preempt__the_younger_one_leaves_sound_pages),
      cmocka_unit_test(test_cancel__leaves_sound_pages),
  };
  return cmocka_run_group_tests_name("sched_preempt", tests, rig_models_open, rig_models_close);
}
