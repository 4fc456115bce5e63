/* Long prompts, long conversations, long lives: what shows only after thousands of positions or steps. Worth running
 * under a memory checker. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/size.h"
#include "dflash/dflash.h"
#include "support/sched_rig.h"
#include "support/test_models.h"
#include "support/tiny_target.h"

/* One layer and one head: long contexts cost little. */
static void thin_open(rig_models *x, uint32_t context) {
  x->spec = tiny_spec_default();
  x->spec.n_layers = 2;
  x->spec.hidden = 32;
  x->spec.n_heads = x->spec.n_kv_heads = 1;
  x->spec.ffn = 32;
  x->spec.context = context;
  x->m = tiny_open(&x->spec, 1);
  x->d = tiny_open_draft(&x->spec, x->m);
}

static void thin_close(rig_models *x) {
  df_draft_close(x->d);
  df_model_close(x->m);
}

static df_sched_params params(uint32_t max_seqs, uint32_t n_ctx, uint32_t kv_tokens) {
  df_sched_params p = {.engine = {.session = df_session_params_default(), .max_seqs = max_seqs}, .max_waiting = 64};
  p.engine.session.n_ctx = n_ctx;
  p.engine.kv_tokens = kv_tokens;
  return p;
}

static void prompt_of(int32_t *ids, uint32_t n, uint32_t salt) {
  for (uint32_t i = 0; i < n; i++) ids[i] = (int32_t)((i * 31 + salt * 17 + i * i * 7) % 251);
}

/* ---- a prompt again ------------------------------------------------------------------------------------- */

/* Eighteen thousand tokens with drafting on: the second time all but the last page come from the cache, the first token
 * comes soon, and the drafts are as good as they were. */
static void test_prefix__a_long_prompt_again(void **state) {
  (void)state;
  enum { N = 18000, N_CTX = N + 256 };
  rig_models x;
  sched_rig r;
  df_sched_params p = params(1, N_CTX, N_CTX);
  int32_t *ids = df_calloc(N, sizeof *ids);
  assert_non_null(ids);
  prompt_of(ids, N - 40, 3);
  for (uint32_t i = N - 40; i < N; i++) ids[i] = 'e'; /* something to draft */
  thin_open(&x, N_CTX);
  rig_init(&r, x.m, x.d, &p);
  uint32_t at[3];
  for (uint32_t i = 0; i < 3; i++) {
    df_job j = rig_job(ids, N, 48);
    j.spec_width = 16;
    j.no_cache = i == 2;
    at[i] = rig_submit(&r, &j);
    rig_wait(&r, at[i]);
  }
  const rig_answer *cold = rig_get(&r, at[0]), *warm = rig_get(&r, at[1]), *again = rig_get(&r, at[2]);
  assert_int_equal(cold->end.stats.cached_tokens, 0);
  assert_true(warm->end.stats.cached_tokens >= N - 16 && warm->end.stats.cached_tokens < N);
  assert_true((warm->end.t_first - warm->end.t_admit) * 10 < cold->end.t_first - cold->end.t_admit);
  rig_assert_same(warm, cold, "the second time");
  rig_assert_same(again, cold, "without the cache");
  rig_assert_same_drafts(&warm->end.stats, &cold->end.stats);
  rig_assert_same_drafts(&again->end.stats, &cold->end.stats);
  assert_true(cold->end.stats.drafted > 40);
  rig_assert_at_rest(&r);
  rig_release(&r);
  thin_close(&x);
  df_free(ids);
}

/* ---- a long conversation -------------------------------------------------------------------------------- */

/* Thirty turns that grow to many thousands of tokens, resumed from the cache, in a pool that holds little more: the
 * text of each is the one without cache, and so are its drafts. */
static void test_conversation__thirty_turns(void **state) {
  (void)state;
  enum { TURNS = 30, N_CTX = 14000 };
  const uint32_t step = df_test_long() ? 410 : 110;
  rig_models x;
  sched_rig r;
  df_sched_params p = params(2, N_CTX, N_CTX + 64);
  int32_t *ids = df_calloc(N_CTX, sizeof *ids);
  assert_non_null(ids);
  thin_open(&x, N_CTX);
  rig_init(&r, x.m, x.d, &p);
  uint32_t n = 0, known = 0, drafted = 0;
  for (uint32_t turn = 0; turn < TURNS; turn++) {
    prompt_of(ids + n, step - 20, turn);
    n += step - 20;
    for (uint32_t i = 0; i < 20; i++) ids[n++] = 'e';
    df_job j = rig_job(ids, n, 17 + turn);
    j.spec_width = turn % 5 == 4 ? 1 : 16; /* plain turns in between */
    const uint32_t warm = rig_submit(&r, &j);
    rig_wait(&r, warm);
    j.no_cache = true;
    const uint32_t cold = rig_submit(&r, &j);
    rig_wait(&r, cold);
    const rig_answer *a = rig_get(&r, warm), *b = rig_get(&r, cold);
    rig_assert_same(a, b, "turn");
    rig_assert_same_drafts(&a->end.stats, &b->end.stats);
    assert_int_equal(b->end.stats.cached_tokens, 0);
    assert_int_equal(a->end.stats.cached_tokens, known / 16 * 16);
    drafted += a->end.stats.drafted;
    memcpy(ids + n, a->ids, a->n * sizeof *ids);
    known = n + a->n - 1;
    n += a->n;
  }
  assert_true(n > (df_test_long() ? 13000u : 4000u) && drafted > 500);
  rig_assert_at_rest(&r);
  rig_release(&r);
  thin_close(&x);
  df_free(ids);
}

/* ---- near the limit, again and again -------------------------------------------------------------------- */

/* Fifty requests of nine tenths of the context in a pool of one context: each finds room, and all pages come back. */
static void test_pool__fifty_requests_near_the_limit(void **state) {
  rig_models *f = *state;
  enum { N_CTX = 240, WHOLE = N_CTX * 9 / 10 };
  int32_t ids[N_CTX];
  for (int cache = 0; cache < 2; cache++) {
    sched_rig r;
    df_sched_stats st;
    df_sched_params p = params(4, N_CTX, N_CTX);
    p.no_prefix_cache = !cache;
    rig_init(&r, f->m, f->d, &p);
    df_sched_get_stats(r.s, &st);
    const uint32_t total = st.pages_total;
    assert_int_equal(st.pages_used + st.pages_cached, 0);
    for (uint32_t i = 0; i < 50; i++) {
      const uint32_t n_new = 1 + i * 4; /* long prompts, long answers */
      prompt_of(ids, WHOLE - n_new, i % 3);
      df_job j = rig_job(ids, WHOLE - n_new, n_new);
      j.spec_width = 1 + (int32_t)i % DF_MAX_WIDTH;
      const uint32_t at = rig_submit(&r, &j);
      rig_wait(&r, at);
      const rig_answer *a = rig_get(&r, at);
      assert_int_equal(a->end.failed, DF_OK);
      assert_int_equal(a->end.finish, DF_FINISH_LENGTH);
      assert_int_equal(a->n, n_new);
      df_sched_get_stats(r.s, &st);
      assert_int_equal(st.pages_used, 0);
      assert_int_equal(st.pages_total, total);
      if (!cache) assert_int_equal(st.pages_cached, 0);
    }
    assert_int_equal(st.preempted, 0);
    df_sched_flush_cache(r.s);
    rig_assert_at_rest(&r);
    df_sched_get_stats(r.s, &st);
    assert_int_equal(st.pages_cached, 0);
    rig_release(&r);
  }
}

/* ---- a last share of one row ---------------------------------------------------------------------------- */

/* A prompt whose last share is a single row comes in while another request verifies blocks: it is no decode step. */
static void test_prefill__last_share_of_one_row(void **state) {
  rig_models *f = *state;
  enum { N_CTX = 256, SHARE = 16 };
  int32_t ids[N_CTX], other[8];
  for (uint32_t k = 1; k <= 6; k++)
    for (uint32_t width = 1; width <= DF_MAX_WIDTH; width += 5) {
      sched_rig r;
      df_sched_params p = params(2, N_CTX, 0);
      df_sched_slot slot[2];
      uint32_t shares = 0, last = 0;
      rig_answer want, want_first;
      p.prefill_rows = SHARE;
      prompt_of(other, 5, 7);
      prompt_of(ids, k * SHARE + 1, k);
      df_job first = rig_job(other, 5, 120), j = rig_job(ids, k * SHARE + 1, 12);
      rig_alone(f->m, N_CTX, &first, &want_first);
      rig_alone(f->m, N_CTX, &j, &want);
      first.spec_width = 16;
      j.spec_width = (int32_t)width;
      rig_init(&r, f->m, f->d, &p);
      const uint32_t a = rig_submit_held(&r, &first), b = rig_submit(&r, &j);
      while (!rig_get(&r, b)->n_started) {
        rig_turn(&r);
        const uint32_t n = df_sched_slots(r.s, slot, 2);
        for (uint32_t i = 0; i < n; i++) {
          if (slot[i].id != b + 1 || slot[i].n_done_prompt == last) continue;
          assert_int_equal(slot[i].n_done_prompt - last, last < k * SHARE ? SHARE : 1);
          last = slot[i].n_done_prompt;
          shares++;
        }
        rig_take(&r);
        assert_false(rig_get(&r, a)->done); /* it verified beside every share */
      }
      assert_int_equal(shares, k + 1);
      rig_go(&r);
      rig_assert_at_rest(&r);
      rig_assert_same(rig_get(&r, b), &want, "the prompt of one row more");
      rig_assert_same(rig_get(&r, a), &want_first, "the one that verified");
      assert_true(rig_get(&r, a)->end.stats.verify_steps > k);
      rig_release(&r);
    }
}

/* ---- many steps ----------------------------------------------------------------------------------------- */

/* Twenty thousand drawn tokens' worth of steps in a small context, one engine: every text is the one without drafts. */
static void test_steps__twenty_thousand_drawn(void **state) {
  rig_models *f = *state;
  enum { N_CTX = 96, N_KINDS = 40, STEPS = 20000 };
  int32_t ids[N_KINDS][24];
  rig_answer *want = df_calloc(N_KINDS, sizeof *want);
  df_job job[N_KINDS];
  sched_rig r;
  df_sched_stats st = {0};
  const df_sched_params p = params(3, N_CTX, 2 * N_CTX);
  assert_non_null(want);
  for (uint32_t k = 0; k < N_KINDS; k++) {
    prompt_of(ids[k], 8 + k % 16, k);
    job[k] = rig_job(ids[k], 8 + k % 16, N_CTX);
    job[k].gen.sampling.temperature = 1;
    job[k].gen.sampling.seed = k;
    rig_alone(f->m, N_CTX, &job[k], &want[k]);
    job[k].spec_width = 1 + (int32_t)(k * 7) % DF_MAX_WIDTH;
  }
  rig_init(&r, f->m, f->d, &p);
  while (st.steps < STEPS) {
    const uint32_t first = r.n;
    for (uint32_t k = 0; k < N_KINDS; k++) (void)rig_submit(&r, &job[k]);
    rig_wait_all(&r);
    for (uint32_t k = 0; k < N_KINDS; k++) rig_assert_same(rig_get(&r, first + k), &want[k], "drawn");
    df_sched_get_stats(r.s, &st);
    assert_int_equal(st.failed, 0);
  }
  assert_true(st.verify_steps > STEPS / 2);
  rig_assert_at_rest(&r);
  rig_release(&r);
  df_free(want);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_prefix__a_long_prompt_again),         cmocka_unit_test(test_conversation__thirty_turns),
      cmocka_unit_test(test_pool__fifty_requests_near_the_limit), cmocka_unit_test(test_prefill__last_share_of_one_row),
      cmocka_unit_test(test_steps__twenty_thousand_drawn),
  };
  return cmocka_run_group_tests_name("sched_long", tests, rig_models_open, rig_models_close);
}
