/* The ways a request can end: where exactly, with nothing behind it, and with K and V of target and draft that the next
 * request can go on from. */
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
#include "support/engine_probe.h"
#include "support/sched_rig.h"
#include "support/tiny_target.h"

enum { CTX = 256, PROMPT = 40, NEW = 40, ROOM = 120 };

/* ---- what an ended request leaves ----------------------------------------------------------------------- */

typedef enum ending {
  BY_LENGTH,
  BY_STOP_ID,
  BY_STOP_STRING,
  BY_END_TOKEN,
  BY_CONTEXT,
  BY_CALLBACK,
  BY_FLAG,
  N_ENDINGS
} ending;

static const df_finish k_finish[N_ENDINGS] = {DF_FINISH_LENGTH,  DF_FINISH_ID,        DF_FINISH_STRING,   DF_FINISH_EOS,
                                              DF_FINISH_CONTEXT, DF_FINISH_CANCELLED, DF_FINISH_CANCELLED};

typedef struct taken {
  uint32_t n, most; /* tokens so far; the callback ends the request at `most`, 0 = never */
  volatile sig_atomic_t flag;
  bool raise;
} taken;

static bool take(void *user, const df_event *ev) {
  taken *t = user;
  t->n += ev->n_ids;
  if (!t->most || t->n < t->most) return true;
  t->flag = t->raise;
  return t->raise;
}

/* Runs a request to its end; its tokens are ids[0 .. return value). seq: as it is left, *n_valid positions of it. */
static uint32_t run(df_engine *e, int32_t *ids, uint32_t n, int32_t width, uint32_t n_ctx, df_generate_params *g,
                    int32_t stop_id, df_kv_seq *seq, uint32_t *n_valid, df_result *r) {
  df_error err = {0};
  df_request q, *one = &q;
  df_request_config c = {.gen = g, .stop_ids = &stop_id, .n_stop_ids = stop_id >= 0};
  assert_int_equal(df_engine_width(e, width, &c, &err), DF_OK);
  assert_int_equal(df_request_init(&q, e->m, ids, n, n_ctx, &c, &err), DF_OK);
  assert_int_equal(df_engine_admit(e, &q, seq, *n_valid, &err), DF_OK);
  while (q.state != DF_REQ_DONE) assert_int_equal(df_engine_step(e, &one, 1, &err), DF_OK);
  assert_int_equal(q.failed, DF_OK);
  *r = q.r;
  *n_valid = DF_MIN(q.n_valid, q.n_ids);
  const uint32_t all = q.n_ids;
  memcpy(ids, q.ids, all * sizeof *ids);
  *seq = df_request_park(&q); /* only takes the pages: what is not written by now never will be */
  df_request_release(&q);
  return all;
}

static void new_seq(df_engine *e, df_kv_seq *seq) {
  df_error err = {0};
  assert_int_equal(df_kv_seq_init(seq, e->pages.size, CTX, &err), DF_OK);
}

/* Nothing of the draft's K and V is left from before. */
static void poison(df_engine *e) {
  memset(e->drafter.kv.k, 0x5A, e->drafter.kv.total_bytes);
  memset(e->drafter.kv.v, 0x5A, e->drafter.kv.total_bytes);
}

enum { KV_FLOATS = 2 * 32 }; /* K and V of a head of the tiny draft */

/* The draft's K and V of the first n positions: [position][head][KV_FLOATS]. */
static float *draft_kv(const df_engine *e, const df_kv_seq *seq, uint32_t n) {
  const df_config *c = &e->d->cfg;
  float *all = df_calloc((size_t)n * c->n_kv_heads * KV_FLOATS, sizeof *all);
  assert_non_null(all);
  assert_true(c->n_layers == 1 && 2 * c->head_dim == KV_FLOATS);
  for (uint32_t pos = 0; pos < n; pos++)
    for (uint32_t head = 0; head < c->n_kv_heads; head++) {
      float *at = all + ((size_t)pos * c->n_kv_heads + head) * KV_FLOATS;
      probe_drafter_kv(&e->drafter, seq, 0, head, pos, at, at + KV_FLOATS / 2);
    }
  return all;
}

/* What a prefill of these positions writes; df_free. */
static float *prefilled_kv(df_engine *e, const int32_t *ids, uint32_t n) {
  int32_t again[CTX];
  df_generate_params g = df_generate_params_default();
  df_kv_seq seq;
  df_result r;
  uint32_t none = 0;
  g.max_tokens = 1;
  memcpy(again, ids, n * sizeof *again);
  new_seq(e, &seq);
  poison(e);
  (void)run(e, again, n, 1, CTX, &g, -1, &seq, &none, &r);
  float *all = draft_kv(e, &seq, n);
  df_kv_seq_release(&seq, &e->pages);
  return all;
}

/* Positions from the first where two of them differ. */
static uint32_t unsound(const df_engine *e, const float *left, const float *fresh, uint32_t n) {
  const size_t row = (size_t)e->d->cfg.n_kv_heads * KV_FLOATS;
  uint32_t at = 0;
  while (at < n && memcmp(left + at * row, fresh + at * row, row * sizeof *fresh) == 0) at++;
  return n - at;
}

/* A request that decodes with `width` and ends this way leaves K and V of the draft wherever those of the target are.
 */
static void check_left(df_engine *e, int32_t token, ending how, int32_t width, uint32_t n_new) {
  int32_t ids[CTX];
  char letter[2] = {(char)token, 0};
  const char *const stop[] = {letter};
  taken t = {.most = how == BY_CALLBACK || how == BY_FLAG ? n_new : 0, .raise = how == BY_FLAG};
  df_generate_params g = df_generate_params_default();
  df_result r;
  df_kv_seq seq;
  uint32_t n_valid = 0;
  g.max_tokens = how == BY_LENGTH ? n_new : ROOM;
  g.min_tokens = n_new; /* ends that a token brings come behind these */
  g.ignore_eos = how != BY_END_TOKEN;
  g.n_stop = how == BY_STOP_STRING;
  g.stop = stop;
  g.on_event = take;
  g.user = &t;
  g.cancel = &t.flag;
  for (uint32_t i = 0; i < PROMPT; i++) ids[i] = token;
  new_seq(e, &seq);
  poison(e);
  const uint32_t n = run(e, ids, PROMPT, width, how == BY_CONTEXT ? PROMPT + n_new : CTX, &g,
                         how == BY_STOP_ID ? token : -1, &seq, &n_valid, &r);
  assert_int_equal(r.finish, k_finish[how]);
  if (n < PROMPT + n_new || n_valid < PROMPT + n_new - 1 || n_valid > n)
    fail_msg("ending %d, width %d: %u tokens, %u valid", (int)how, (int)width, n, n_valid);
  float *left = draft_kv(e, &seq, n_valid);
  df_kv_seq_release(&seq, &e->pages);
  float *fresh = prefilled_kv(e, ids, n_valid);
  const uint32_t bad = unsound(e, left, fresh, n_valid);
  if (bad)
    fail_msg("ending %d, width %d, %u tokens: unsound from the last %u positions on", (int)how, (int)width, n, bad);
  df_free(left);
  df_free(fresh);
  assert_int_equal(e->pages.n_free, e->pages.n_pages - 1);
}

/* A token whose repetition is answered with repetition. */
static int32_t find_token(df_engine *e, int32_t first, int32_t last) {
  for (int32_t token = first; token <= last; token++) {
    int32_t ids[CTX];
    df_generate_params g = df_generate_params_default();
    df_kv_seq seq;
    df_result r;
    uint32_t n_valid = 0, hits = 0;
    g.max_tokens = ROOM;
    g.ignore_eos = true;
    for (uint32_t i = 0; i < PROMPT; i++) ids[i] = token;
    new_seq(e, &seq);
    const uint32_t n = run(e, ids, PROMPT, 1, CTX, &g, -1, &seq, &n_valid, &r);
    for (uint32_t i = PROMPT + 2 * NEW; i < n; i++) hits += ids[i] == token;
    df_kv_seq_release(&seq, &e->pages);
    if (hits > 2) return token;
  }
  fail_msg("no token that repeats from %d to %d", first, last);
  return -1;
}

static void test_end__leaves_sound_draft_pages(void **state) {
  rig_models *f = *state;
  df_engine e;
  df_error err = {0};
  df_engine_params p = {.session = df_session_params_default(), .max_seqs = 1};
  p.session.n_ctx = CTX;
  p.session.spec_draft_max = 15;
  assert_int_equal(df_engine_init(&e, f->m, f->d, &p, &err), DF_OK);
  const int32_t letter = find_token(&e, 'A', 'z'), end = find_token(&e, TINY_END, TINY_TURN);
  for (ending how = 0; how < N_ENDINGS; how++) {
    static const int32_t widths[] = {1, 2, 5, 16};
    for (uint32_t w = 0; w < DF_COUNT_OF(widths); w++)
      for (uint32_t n_new = 1; n_new <= NEW; n_new += 1 + n_new / 4)
        check_left(&e, how == BY_END_TOKEN ? end : letter, how, widths[w], n_new);
  }
  df_engine_release(&e);
}

/* Plain steps and drafted ones in turn, as the controller mixes them: a draft finds all positions before it. */
static void mix_widths(df_engine *e, uint32_t plain, uint32_t width) {
  enum { STEPS = 40 };
  int32_t ids[CTX];
  float *left[STEPS];
  uint32_t valid[STEPS], n = 0;
  df_error err = {0};
  df_generate_params g = df_generate_params_default();
  df_request q, *one = &q;
  df_request_config c = {.gen = &g};
  df_kv_seq seq;
  g.max_tokens = CTX - PROMPT - DF_MAX_WIDTH;
  g.ignore_eos = true;
  for (uint32_t i = 0; i < PROMPT; i++) ids[i] = 'a' + (int32_t)(i % 7);
  assert_int_equal(df_engine_width(e, 16, &c, &err), DF_OK);
  assert_int_equal(df_request_init(&q, e->m, ids, PROMPT, CTX, &c, &err), DF_OK);
  new_seq(e, &seq);
  poison(e);
  assert_int_equal(df_engine_admit(e, &q, &seq, 0, &err), DF_OK);
  for (uint32_t step = 0; q.state != DF_REQ_DONE && n < STEPS; step++) {
    const bool drafts = step % (plain + 1) == plain;
    const uint32_t before = q.r.stats.verify_steps;
    q.width = drafts ? width : 1;
    assert_int_equal(df_engine_step(e, &one, 1, &err), DF_OK);
    if (q.r.stats.verify_steps == before) continue;
    valid[n] = q.n_valid;
    left[n++] = draft_kv(e, &q.seq, q.n_valid);
  }
  assert_true(n > 5);
  const uint32_t most = valid[n - 1];
  memcpy(ids, q.ids, most * sizeof *ids);
  seq = df_request_park(&q);
  df_request_release(&q);
  df_kv_seq_release(&seq, &e->pages);
  float *fresh = prefilled_kv(e, ids, most);
  for (uint32_t i = 0; i < n; i++) {
    const uint32_t bad = unsound(e, left[i], fresh, valid[i]);
    if (bad)
      fail_msg("%u plain steps, draft %u of %u rows: unsound from the last %u positions on", plain, i, width, bad);
    df_free(left[i]);
  }
  df_free(fresh);
}

static void test_step__a_draft_finds_all_positions(void **state) {
  rig_models *f = *state;
  df_engine e;
  df_error err = {0};
  df_engine_params p = {.session = df_session_params_default(), .max_seqs = 1};
  p.session.n_ctx = CTX;
  p.session.spec_draft_max = 15;
  assert_int_equal(df_engine_init(&e, f->m, f->d, &p, &err), DF_OK);
  static const uint32_t plain[] = {0, 1, 3, 15, 16, 17, 20};
  for (uint32_t i = 0; i < DF_COUNT_OF(plain); i++) {
    mix_widths(&e, plain[i], 2);
    mix_widths(&e, plain[i], 9);
  }
  df_engine_release(&e);
}

/* ---- where it ends ------------------------------------------------------------------------------------------ */

static df_sched_params sched_params(uint32_t max_seqs) {
  df_sched_params p = {.engine = {.session = df_session_params_default(), .max_seqs = max_seqs}, .max_waiting = 64};
  p.engine.session.n_ctx = CTX;
  return p;
}

/* Blocks of accepted end tokens: the first one that may end the text ends it, whichever of the model's two it is, as a
 * draft or as the target's own token, at every place of a block; with ignore_eos none does. */
static void test_end_token__at_every_place_of_a_block(void **state) {
  (void)state;
  rig_models x;
  int32_t ids[PROMPT];
  bool at[DF_MAX_WIDTH + 1][2] = {{false}};
  sched_rig r;
  const df_sched_params p = sched_params(2);
  rig_echo_open(&x);
  rig_init(&r, x.m, x.d, &p);
  for (int32_t end = TINY_END; end <= TINY_TURN; end++) {
    for (uint32_t i = 0; i < PROMPT; i++) ids[i] = i % 4 ? end : 'a';
    ids[PROMPT - 1] = end;
    for (uint32_t n = 1; n <= 34; n++)
      for (int32_t width = 1; width <= DF_MAX_WIDTH; width += width < 4 ? 1 : 4) {
        df_job j = rig_job(ids, PROMPT, 60);
        j.gen.ignore_eos = false;
        j.gen.min_tokens = n - 1;
        j.spec_width = width;
        const uint32_t i = rig_submit(&r, &j);
        rig_wait(&r, i);
        const rig_answer *a = rig_get(&r, i);
        assert_int_equal(a->n, n);
        for (uint32_t k = 0; k < n; k++) assert_int_equal(a->ids[k], end);
        assert_int_equal(a->end.finish, DF_FINISH_EOS);
        assert_int_equal(a->end.matched_id, end);
        assert_int_equal(a->text_len, 0);
        at[a->last_n][a->ended_drafted] = true;
      }
    df_job j = rig_job(ids, PROMPT, 60);
    j.spec_width = 16;
    const uint32_t i = rig_submit(&r, &j);
    rig_wait(&r, i);
    assert_int_equal(rig_get(&r, i)->n, 60);
    assert_int_equal(rig_get(&r, i)->end.finish, DF_FINISH_LENGTH);
  }
  for (uint32_t place = 1; place <= 13;
       place++) /* of blocks of up to 16 rows, the target's own token behind drafts too */
    if (!at[place][1]) fail_msg("no end token was the accepted draft %u of a block", place);
  assert_true(at[1][0] && at[2][0] && at[3][0] && at[4][0]);
  rig_assert_at_rest(&r);
  rig_release(&r);
  rig_echo_close(&x);
}

/* Limits smaller than a block, as large, and larger, at every width: exact, and the next request is served. */
static void test_max_tokens__around_the_block(void **state) {
  (void)state;
  rig_models x;
  int32_t ids[PROMPT];
  sched_rig r;
  const df_sched_params p = sched_params(2);
  rig_echo_open(&x);
  rig_init(&r, x.m, x.d, &p);
  uint32_t accepted = 0;
  for (uint32_t i = 0; i < PROMPT; i++) ids[i] = 'h';
  for (int32_t width = 1; width <= DF_MAX_WIDTH; width++) {
    const uint32_t b = (uint32_t)width, limits[] = {1, 2, 3, b - 1, b, b + 1, 2 * b, 2 * b + 1, 2 * b + 2};
    for (uint32_t k = 0; k < DF_COUNT_OF(limits); k++) {
      if (limits[k] == 0) continue;
      df_job j = rig_job(ids, PROMPT, limits[k]);
      j.spec_width = width;
      j.logprobs = true;
      const uint32_t i = rig_submit(&r, &j);
      rig_wait(&r, i);
      const rig_answer *a = rig_get(&r, i);
      assert_int_equal(a->n, limits[k]);
      assert_int_equal(a->text_len, limits[k]);
      assert_int_equal(a->end.finish, DF_FINISH_LENGTH);
      accepted += a->end.stats.accepted;
    }
  }
  if (accepted < 100) fail_msg("only %u drafts stood", accepted);
  rig_assert_at_rest(&r);
  rig_release(&r);
  rig_echo_close(&x);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_end__leaves_sound_draft_pages),
      cmocka_unit_test(test_step__a_draft_finds_all_positions),
      cmocka_unit_test(test_end_token__at_every_place_of_a_block),
      cmocka_unit_test(test_max_tokens__around_the_block),
  };
  return cmocka_run_group_tests_name("request_ends", tests, rig_models_open, rig_models_close);
}
