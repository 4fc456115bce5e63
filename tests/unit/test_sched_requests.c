/* What one request can ask of the scheduler: stops, logprobs, priorities, deadlines, cancelling, limits. The engine
 * thread is held at exact turns, so that nothing here depends on time. */
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

enum { CTX = 256, N_LENGTHS = 11 };

static df_sched_params params(uint32_t max_seqs, uint32_t max_waiting) {
  df_sched_params p = {.engine = {.session = df_session_params_default(), .max_seqs = max_seqs},
                       .max_waiting = max_waiting};
  p.engine.session.n_ctx = CTX;
  return p;
}

static void prompt_of(int32_t *ids, uint32_t n, uint32_t salt) {
  for (uint32_t i = 0; i < n; i++) ids[i] = (int32_t)((i * 31 + salt * 17 + i * i * 7) % 251);
}

/* A prompt whose answer begins with plain letters: the model mostly repeats what it sees. */
static df_job letters_job(df_model *m, int32_t *ids, rig_answer *all) {
  for (uint32_t salt = 0;; salt++) {
    assert_true(salt < 200);
    prompt_of(ids, 20, salt);
    ids[19] = 'a' + (int32_t)(salt % 26);
    const df_job j = rig_job(ids, 20, 60);
    rig_alone(m, CTX, &j, all);
    uint32_t n = 0;
    while (n < all->text_len && all->text[n] > 0) n++;
    if (n >= 12 && all->ids[0] != all->ids[11]) return j;
  }
}

/* ---- stops ---------------------------------------------------------------------------------------------- */

/* A stop id at every place of the text, in the middle of blocks too: kept, no text of its own, nothing behind it. */
static void test_stop_ids__cut_anywhere(void **state) {
  rig_models *f = *state;
  int32_t ids[40];
  sched_rig r;
  const df_sched_params p = params(4, 64);
  prompt_of(ids, 40, 3);
  df_job j = rig_job(ids, 40, 60);
  rig_answer all;
  rig_alone(f->m, CTX, &j, &all);
  rig_init(&r, f->m, f->d, &p);
  for (uint32_t width = 1; width <= 16; width += 5) {
    for (uint32_t at = 0; at < all.n; at++) {
      uint32_t first = 0;
      while (all.ids[first] != all.ids[at]) first++;
      const int32_t stop[] = {-5, all.ids[at], 100000};
      j.stop_ids = stop;
      j.n_stop_ids = 3;
      j.spec_width = (int32_t)width;
      const uint32_t i = rig_submit(&r, &j);
      rig_wait(&r, i);
      const rig_answer *a = rig_get(&r, i);
      assert_int_equal(a->n, first + 1);
      assert_memory_equal(a->ids, all.ids, a->n * sizeof *a->ids);
      assert_int_equal(a->end.finish, DF_FINISH_ID);
      assert_int_equal(a->end.matched_id, all.ids[at]);
      assert_true(a->text_len <= all.text_len);
    }
  }
  rig_assert_at_rest(&r);
  rig_release(&r);
}

static void test_stop_strings__say_which(void **state) {
  rig_models *f = *state;
  int32_t ids[20];
  sched_rig r;
  const df_sched_params p = params(2, 8);
  rig_answer all, want;
  df_job j = letters_job(f->m, ids, &all);
  char stop[4] = {0};
  memcpy(stop, all.text + 9, 3);
  const char *const stops[] = {"\x01\x02never", stop};
  j.gen.stop = stops;
  j.gen.n_stop = 2;
  rig_alone(f->m, CTX, &j, &want);
  assert_int_equal(want.end.finish, DF_FINISH_STRING);
  rig_init(&r, f->m, f->d, &p);
  j.spec_width = 16;
  const uint32_t i = rig_submit(&r, &j);
  memset(stop, 'x', 3); /* what was submitted was copied */
  rig_wait(&r, i);
  rig_assert_same(rig_get(&r, i), &want, "stop string");
  assert_int_equal(rig_get(&r, i)->end.matched_string, 1);
  assert_int_equal(rig_get(&r, i)->end.matched_id, -1);
  rig_release(&r);
}

/* ---- logprobs ------------------------------------------------------------------------------------------- */

/* ln p of every token behind the first, worked out one pass after another. */
static void score(df_model *m, const int32_t *ids, uint32_t n, double *out) {
  df_error err = {0};
  df_session *s = NULL;
  df_session_params sp = df_session_params_default();
  sp.n_ctx = CTX;
  assert_int_equal(df_session_create(m, NULL, &sp, &s, &err), DF_OK);
  assert_int_equal(df_session_score(s, ids, n, out, NULL, NULL, &err), DF_OK);
  df_session_free(s);
}

static void check_logprobs(df_model *m, const df_job *j, const rig_answer *a, bool greedy) {
  int32_t ids[2 * CTX];
  double want[2 * CTX];
  const uint32_t n = (uint32_t)j->n_ids;
  memcpy(ids, j->ids, n * sizeof *ids);
  memcpy(ids + n, a->ids, a->n * sizeof *ids);
  score(m, ids, n + a->n, want);
  for (uint32_t i = 0; i < a->n; i++) {
    assert_true(fabs(a->logprobs[i] - want[n + i - 1]) < 1e-4);
    assert_true(a->logprobs[i] < 0);
    assert_true(a->top[i].logprob >= a->logprobs[i]);
    if (greedy) assert_true(a->top[i].id == a->ids[i] && a->top[i].logprob == a->logprobs[i]);
  }
  if (!j->prompt_logprobs) return;
  assert_non_null(a->prompt_logprobs);
  assert_true(isnan(a->prompt_logprobs[0]));
  for (uint32_t i = 1; i < n; i++) assert_true(fabs(a->prompt_logprobs[i] - want[i - 1]) < 1e-4);
}

/* Prompts around every chunk size, with company, at every width: the same bits as plain, and near an oracle. */
static void check_all_logprobs(rig_models *f, uint32_t kv_tokens) {
  int32_t ids[N_LENGTHS][CTX];
  sched_rig r;
  /* The last one reaches the end of the context inside its last blocks. */
  static const uint32_t lengths[N_LENGTHS] = {1, 2, 15, 16, 17, 24, 25, 33, 49, 150, 239};
  static const int32_t widths[] = {1, 16, 0, 5};
  df_sched_params p = params(6, 64);
  p.prefill_rows = 24;
  p.engine.kv_tokens = kv_tokens;
  rig_init(&r, f->m, f->d, &p);
  uint32_t index[4][N_LENGTHS];
  for (uint32_t w = 0; w < 4; w++)
    for (uint32_t i = 0; i < N_LENGTHS; i++) {
      prompt_of(ids[i], lengths[i], 1);
      df_job j = rig_job(ids[i], lengths[i], 24);
      j.logprobs = true;
      j.n_top = 1 + i;
      j.prompt_logprobs = i % 2 == 0;
      j.spec_width = widths[w];
      if (i % 3 == 2) j.gen.sampling.temperature = 0.9f;
      index[w][i] = rig_submit(&r, &j);
    }
  rig_wait_all(&r);
  for (uint32_t w = 0; w < 4; w++)
    for (uint32_t i = 0; i < N_LENGTHS; i++) {
      const rig_answer *a = rig_get(&r, index[w][i]), *plain = rig_get(&r, index[0][i]);
      df_job j = rig_job(ids[i], lengths[i], 24);
      j.prompt_logprobs = i % 2 == 0;
      assert_int_equal(a->n, i + 1 < N_LENGTHS ? 24 : CTX - 239);
      rig_assert_same(a, plain, "width");
      assert_memory_equal(a->logprobs, plain->logprobs, a->n * sizeof *a->logprobs);
      assert_memory_equal(a->top, plain->top, a->n * sizeof *a->top);
      if (w == 0) check_logprobs(f->m, &j, a, i % 3 != 2);
      if (j.prompt_logprobs) assert_memory_equal(a->prompt_logprobs, plain->prompt_logprobs, lengths[i] * 4);
      if (j.prompt_logprobs)
        assert_int_equal(a->start.cached_tokens, 0);
      else
        assert_null(a->prompt_logprobs);
    }
  rig_assert_at_rest(&r);
  rig_release(&r);
}

static void test_logprobs__of_prompt_and_output(void **state) {
  check_all_logprobs(*state, 0);
  check_all_logprobs(*state, CTX - 5 * 16); /* and parked in between */
}

/* ---- order ---------------------------------------------------------------------------------------------- */

/* A job that keeps the only place busy; returns with the engine held. */
static uint32_t block(sched_rig *r, int32_t *ids) {
  prompt_of(ids, 5, 77);
  df_job j = rig_job(ids, 5, 40);
  return rig_submit_held(r, &j);
}

static void assert_order(sched_rig *r, const uint32_t *index, uint32_t n) {
  for (uint32_t i = 1; i < n; i++)
    if (rig_get(r, index[i])->end.t_admit <= rig_get(r, index[i - 1])->end.t_admit)
      fail_msg("request %u ran before request %u", index[i], index[i - 1]);
}

static void test_submit__priority_then_turns_then_arrival(void **state) {
  rig_models *f = *state;
  int32_t ids[16];
  sched_rig r;
  const df_sched_params p = params(1, 64);
  rig_init(&r, f->m, NULL, &p);
  (void)block(&r, ids);
  prompt_of(ids, 5, 1);
  /* client, priority; three of client 1 come first, then one each of 2 and 3 */
  static const int job[][2] = {{1, 0}, {1, 0}, {1, 0}, {2, 0}, {3, 0}, {2, 0}, {1, 5}, {9, -1}, {2, 5}};
  uint32_t at[9];
  for (uint32_t i = 0; i < 9; i++) {
    df_job j = rig_job(ids, 5, 3);
    j.client = (uint64_t)job[i][0];
    j.priority = job[i][1];
    at[i] = rig_submit(&r, &j);
  }
  rig_go(&r);
  rig_wait_all(&r);
  /* Priority 5: client 1, then 2. Then 3, which had no turn yet; 1 and 2 in turn, oldest turn first; -1 last. */
  const uint32_t want[] = {at[6], at[8], at[4], at[0], at[3], at[1], at[5], at[2], at[7]};
  assert_order(&r, want, 9);
  rig_assert_at_rest(&r);
  rig_release(&r);
}

/* Sixteen requests with one long beginning compute it once. */
static void test_submit__common_prefix_is_computed_once(void **state) {
  rig_models *f = *state;
  int32_t ids[CTX], first[16];
  sched_rig r;
  df_sched_params p = params(16, 64);
  p.prefill_rows = 48; /* the beginning takes several steps */
  rig_init(&r, f->m, f->d, &p);
  (void)block(&r, first);
  prompt_of(ids, 130, 5);
  df_job j = rig_job(ids, 130, 6);
  for (int32_t i = 0; i < 16; i++) {
    for (uint32_t k = 120; k < 130; k++) ids[k] = (int32_t)(i * 10 + (int32_t)k - 110) % 250;
    (void)rig_submit(&r, &j);
  }
  rig_go(&r);
  rig_assert_at_rest(&r);
  df_sched_stats st;
  df_sched_get_stats(r.s, &st);
  assert_int_equal(st.prompt_tokens, 5 + 16 * 130);
  assert_int_equal(st.cached_tokens, 15 * 112); /* whole pages of the common 120 */
  for (uint32_t i = 2; i < 17; i++) assert_int_equal(rig_get(&r, i)->end.stats.cached_tokens, 112);
  /* The same again costs a page at most each. */
  const uint32_t again = rig_submit(&r, &j);
  rig_wait(&r, again);
  assert_int_equal(rig_get(&r, again)->end.stats.cached_tokens, 128);
  /* Not for one that does not want it; and it leaves nothing. */
  df_sched_flush_cache(r.s);
  j.no_cache = true;
  rig_wait(&r, rig_submit(&r, &j));
  df_sched_get_stats(r.s, &st);
  assert_int_equal(st.pages_cached + st.pages_used, 0);
  rig_release(&r);
}

/* While others decode, a long prompt comes in by small shares. */
static void test_prefill__leaves_others_their_steps(void **state) {
  rig_models *f = *state;
  int32_t ids[CTX], long_ids[CTX];
  sched_rig r;
  df_sched_params p = params(2, 8);
  p.prefill_rows = 16;
  rig_init(&r, f->m, NULL, &p);
  const uint32_t first = block(&r, ids);
  prompt_of(long_ids, 200, 2);
  const df_job j = rig_job(long_ids, 200, 2);
  const uint32_t second = rig_submit(&r, &j);
  rig_take(&r);
  const uint32_t before = rig_get(&r, first)->n;
  for (int turns = 0; !rig_get(&r, second)->n_started; turns++) {
    assert_true(turns < 20);
    rig_turn(&r);
    rig_take(&r);
  }
  assert_int_equal(rig_get(&r, first)->n - before, 13); /* 200 rows by 16: a token of the other one with each */
  rig_go(&r);
  rig_assert_at_rest(&r);
  rig_release(&r);
}

/* A short prompt does not wait for a long one that came before it, and the long one comes in all the same. */
static void test_prefill__short_prompts_overtake(void **state) {
  rig_models *f = *state;
  int32_t ids[8], long_ids[CTX], short_ids[8];
  sched_rig r;
  df_sched_params p = params(3, 64);
  p.prefill_rows = 16;
  rig_init(&r, f->m, NULL, &p);
  (void)block(&r, ids);
  prompt_of(long_ids, 200, 2);
  df_job j = rig_job(long_ids, 200, 2);
  const uint32_t slow = rig_submit(&r, &j);
  int turns = 0;
  for (rig_take(&r); !rig_get(&r, slow)->done; turns++) {
    prompt_of(short_ids, 8, (uint32_t)turns);
    j = rig_job(short_ids, 8, 1);
    const uint32_t quick = rig_submit(&r, &j);
    for (int k = 0; k < 2; k++) {
      rig_turn(&r);
      rig_take(&r);
    }
    assert_true(rig_get(&r, quick)->done);
    assert_true(turns < 20);
  }
  assert_true(turns > 5); /* it did share */
  rig_go(&r);
  rig_assert_at_rest(&r);
  rig_release(&r);
}

/* ---- ends from outside ---------------------------------------------------------------------------------- */

static void assert_cancelled(const rig_answer *a, bool timed_out) {
  assert_true(a->done);
  assert_int_equal(a->end.finish, DF_FINISH_CANCELLED);
  assert_int_equal(a->end.timed_out, timed_out);
  assert_int_equal(a->end.failed, DF_OK);
}

/* Cancelled while it waits, while its prompt comes in, while it decodes; all within two turns. */
static void test_cancel__in_every_state(void **state) {
  rig_models *f = *state;
  int32_t ids[CTX], other[CTX];
  df_sched_stats st;
  for (int how = 0; how < 6; how++) { /* 0-2 cancelled, 3-5 by deadline */
    sched_rig r;
    df_sched_params p = params(how % 3 == 0 ? 1 : 2, 8);
    p.prefill_rows = 16;
    rig_init(&r, f->m, f->d, &p);
    const uint32_t first = block(&r, ids);
    prompt_of(other, 200, 9);
    df_job j = rig_job(other, how % 3 == 2 ? 10 : 200, 50);
    const uint64_t soon = df_now_ns() + 50000000u;
    if (how >= 3) j.deadline = soon;
    const uint32_t i = rig_submit(&r, &j);
    for (int turns = 0; turns < 3 && how < 3; turns++) rig_turn(&r);
    rig_take(&r);
    if (how == 2) assert_true(rig_get(&r, i)->n > 0);
    if (how < 2) assert_int_equal(rig_get(&r, i)->n, 0);
    df_sched_slot slot[4];
    assert_int_equal(df_sched_slots(r.s, slot, 4), 2);
    assert_int_equal(slot[0].id, i + 1);
    if (how < 3) assert_int_equal(slot[0].running, how != 0);
    if (how == 1) assert_int_equal(slot[0].n_done_prompt, 48);
    if (how < 3) rig_cancel(&r, i);
    while (how >= 3 && df_now_ns() < soon) continue;
    df_sched_get_stats(r.s, &st);
    const uint64_t steps = st.steps;
    rig_turn(&r);
    rig_turn(&r);
    rig_take(&r);
    assert_cancelled(rig_get(&r, i), how >= 3);
    df_sched_get_stats(r.s, &st);
    assert_true(st.steps <= steps + 2);
    assert_int_equal(how < 3 ? st.cancelled : st.timed_out, 1);
    assert_int_equal(st.running, 1);
    rig_cancel(&r, i); /* too late, unknown: nothing happens */
    rig_cancel(&r, 1000);
    rig_go(&r);
    rig_assert_at_rest(&r);
    assert_int_equal(rig_get(&r, first)->end.finish, DF_FINISH_LENGTH);
    rig_release(&r);
  }
}

/* What was held back for a stop string leaves when the request is cancelled. */
static void test_cancel__held_text_leaves(void **state) {
  rig_models *f = *state;
  int32_t ids[20];
  sched_rig r;
  const df_sched_params p = params(1, 8);
  rig_answer all;
  df_job j = letters_job(f->m, ids, &all);
  char stop[64] = {0};
  memcpy(stop, all.text, 12); /* begins with the text, ends otherwise: all is held back */
  stop[12] = '\x01';
  const char *const stops[] = {stop};
  j.gen.stop = stops;
  j.gen.n_stop = 1;
  j.spec_width = 1;
  rig_init(&r, f->m, f->d, &p);
  const uint32_t i = rig_submit_held(&r, &j);
  for (int k = 0; k < 4; k++) rig_turn(&r);
  rig_take(&r);
  assert_int_equal(rig_get(&r, i)->text_len, 0);
  rig_cancel(&r, i);
  rig_go(&r);
  rig_wait(&r, i);
  const rig_answer *a = rig_get(&r, i);
  assert_cancelled(a, false);
  assert_true(a->text_len >= 5 && a->n >= 5);
  assert_memory_equal(a->text, all.text, a->text_len);
  rig_release(&r);
}

static void test_free__drains_then_cancels(void **state) {
  rig_models *f = *state;
  int32_t ids[16];
  sched_rig r;
  const df_sched_params p = params(1, 8);
  rig_init(&r, f->m, f->d, &p);
  (void)block(&r, ids);
  const df_job j = rig_job(ids, 5, 40);
  for (int i = 0; i < 5; i++) (void)rig_submit(&r, &j);
  df_sched_close(r.s);
  df_error err = {0};
  uint32_t index;
  assert_int_equal(rig_try(&r, &j, &index, &err), DF_ERR_BUSY);
  rig_go(&r);
  rig_wait_all(&r); /* what is there goes on */
  for (uint32_t i = 0; i < 6; i++) assert_int_equal(rig_get(&r, i)->end.finish, DF_FINISH_LENGTH);
  rig_release(&r);
  rig_init(&r, f->m, f->d, &p);
  (void)block(&r, ids);
  for (int i = 0; i < 5; i++) (void)rig_submit(&r, &j);
  rig_go(&r);
  df_sched_free(r.s, 0); /* returns although nobody takes events */
  df_free(r.answers);
  pthread_cond_destroy(&r.cond);
  pthread_mutex_destroy(&r.lock);
}

/* Of ten that wait, nine are gone before their turn: nothing is computed for them. */
static void test_cancel__waiting_requests_cost_nothing(void **state) {
  rig_models *f = *state;
  int32_t ids[20], first[8];
  sched_rig r;
  const df_sched_params p = params(1, 16);
  rig_init(&r, f->m, f->d, &p);
  (void)block(&r, first);
  prompt_of(ids, 20, 4);
  const df_job j = rig_job(ids, 20, 3);
  for (uint32_t i = 0; i < 10; i++) (void)rig_submit(&r, &j);
  for (uint32_t i = 1; i < 10; i++) rig_cancel(&r, i);
  rig_go(&r);
  rig_assert_at_rest(&r);
  df_sched_stats st;
  df_sched_get_stats(r.s, &st);
  assert_int_equal(st.prompt_tokens, 5 + 20);
  assert_int_equal(st.cancelled, 9);
  assert_int_equal(rig_get(&r, 10)->n, 3);
  rig_release(&r);
}

/* A conversation that grows: each turn finds all of the turns before it, to the last whole page, and the text is as if
 * it had found nothing. */
static void test_submit__growing_conversation(void **state) {
  rig_models *f = *state;
  enum { TURNS = 16, BIG = 800 };
  int32_t ids[BIG];
  sched_rig r;
  df_sched_params p = params(2, 8);
  p.engine.session.n_ctx = BIG;
  p.engine.kv_tokens = 2 * BIG;
  rig_init(&r, f->m, f->d, &p);
  uint32_t n = 30, known = 0, accepted = 0;
  for (uint32_t i = 0; i < n; i++) ids[i] = 19; /* repetition: the draft sees what comes */
  for (uint32_t turn = 0; turn < TURNS; turn++) {
    df_job j = rig_job(ids, n, 30 + turn % 7);
    j.spec_width = turn % 3 ? 16 : 1;
    rig_answer want;
    rig_alone(f->m, BIG, &j, &want);
    const uint32_t i = rig_submit(&r, &j);
    rig_wait(&r, i);
    const rig_answer *a = rig_get(&r, i);
    rig_assert_same(a, &want, "turn");
    assert_int_equal(a->end.stats.cached_tokens, known / 16 * 16);
    /* Drafts are as good as with nothing cached: the draft's K and V came along. */
    j.no_cache = true;
    const uint32_t k = rig_submit(&r, &j);
    rig_wait(&r, k);
    assert_int_equal(rig_get(&r, k)->end.stats.cached_tokens, 0);
    rig_assert_same_drafts(&rig_get(&r, i)->end.stats, &rig_get(&r, k)->end.stats);
    accepted += rig_get(&r, i)->end.stats.accepted;
    a = rig_get(&r, i);
    memcpy(ids + n, a->ids, a->n * sizeof *ids);
    known = n + a->n - 1; /* the last token was never fed */
    n += a->n;
    for (uint32_t q = 0; q < 6; q++) ids[n++] = q < 3 ? (int32_t)(19 + turn) : 19;
  }
  if (accepted < 10) fail_msg("only %u drafts stood", accepted);
  rig_assert_at_rest(&r);
  rig_release(&r);
}

/* ---- limits --------------------------------------------------------------------------------------------- */

static void refused(sched_rig *r, const df_job *j, df_status want, const char *word) {
  df_error err = {0};
  uint32_t index;
  assert_int_equal(rig_try(r, j, &index, &err), want);
  if (!strstr(err.msg, word)) fail_msg("\"%s\" does not say \"%s\"", err.msg, word);
}

static void test_submit__refusals(void **state) {
  rig_models *f = *state;
  int32_t ids[CTX + 8], first[16];
  sched_rig r;
  df_sched_params p = params(1, 2);
  p.engine.kv_tokens = 160;
  rig_init(&r, f->m, f->d, &p);
  prompt_of(ids, CTX + 8, 1);
  df_job j = rig_job(ids, 160, 4);
  refused(&r, &j, DF_ERR_LIMIT, "160"); /* could never fit the pool */
  j = rig_job(ids, 0, 4);
  refused(&r, &j, DF_ERR_ARGUMENT, "empty");
  j = rig_job(ids, 4, 0);
  refused(&r, &j, DF_ERR_ARGUMENT, "max_tokens");
  j = rig_job(ids, 4, 4);
  j.spec_width = 17;
  refused(&r, &j, DF_ERR_ARGUMENT, "17");
  j.spec_width = -1;
  refused(&r, &j, DF_ERR_ARGUMENT, "-1");
  j = rig_job(ids, 4, 4);
  j.n_top = DF_SCHED_MAX_TOP + 1;
  refused(&r, &j, DF_ERR_ARGUMENT, "21");
  j = rig_job(ids, 4, 4);
  j.n_stop_ids = DF_SCHED_MAX_STOP_IDS + 1;
  refused(&r, &j, DF_ERR_ARGUMENT, "65");
  j = rig_job(ids, 4, 4);
  j.gen.sampling.top_p = 2;
  refused(&r, &j, DF_ERR_ARGUMENT, "top_p");
  (void)block(&r, first);
  j = rig_job(ids, 4, 4);
  (void)rig_submit(&r, &j);
  (void)rig_submit(&r, &j);
  refused(&r, &j, DF_ERR_BUSY, "full");
  df_sched_stats st;
  df_sched_get_stats(r.s, &st);
  assert_int_equal(st.refused, 1);
  assert_int_equal(st.running, 1);
  assert_int_equal(st.waiting, 2);
  rig_go(&r);
  rig_wait_all(&r);
  /* Up to the last position of the pool. */
  j = rig_job(ids, 159, 100);
  rig_wait(&r, rig_submit(&r, &j));
  assert_int_equal(rig_get(&r, 3)->end.finish, DF_FINISH_CONTEXT);
  assert_int_equal(rig_get(&r, 3)->n, 1);
  rig_assert_at_rest(&r);
  rig_release(&r);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_stop_ids__cut_anywhere),
      cmocka_unit_test(test_stop_strings__say_which),
      cmocka_unit_test(test_logprobs__of_prompt_and_output),
      cmocka_unit_test(test_submit__priority_then_turns_then_arrival),
      cmocka_unit_test(test_submit__common_prefix_is_computed_once),
      cmocka_unit_test(test_prefill__leaves_others_their_steps),
      cmocka_unit_test(test_prefill__short_prompts_overtake),
      cmocka_unit_test(test_cancel__in_every_state),
      cmocka_unit_test(test_cancel__held_text_leaves),
      cmocka_unit_test(test_free__drains_then_cancels),
      cmocka_unit_test(test_cancel__waiting_requests_cost_nothing),
      cmocka_unit_test(test_submit__growing_conversation),
      cmocka_unit_test(test_submit__refusals),
  };
  return cmocka_run_group_tests_name("sched_requests", tests, rig_models_open, rig_models_close);
}
