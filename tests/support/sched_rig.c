#include "support/sched_rig.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#include <math.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/mem.h"
#include "dflash/dflash.h"
#include "support/tiny_target.h"

int rig_models_open(void **state) {
  rig_models *f = df_calloc(1, sizeof *f);
  if (!f) return -1;
  f->spec = tiny_spec_default();
  f->m = tiny_open(&f->spec, 1);
  f->d = tiny_open_draft(&f->spec, f->m);
  *state = f;
  return 0;
}

int rig_models_close(void **state) {
  rig_models *f = *state;
  df_draft_close(f->d);
  df_model_close(f->m);
  df_free(f);
  return 0;
}

void rig_echo_open(rig_models *x) {
  x->spec = tiny_spec_default();
  x->spec.gain = 0; /* the layers add nothing to the token's own embedding */
  x->m = tiny_open(&x->spec, 1);
  x->d = tiny_open_draft(&x->spec, x->m);
}

void rig_echo_close(rig_models *x) {
  df_draft_close(x->d);
  df_model_close(x->m);
}

static void on_wake(void *user) {
  sched_rig *r = user;
  pthread_mutex_lock(&r->lock);
  r->woken = true;
  r->held = r->hold;
  pthread_cond_broadcast(&r->cond);
  while (r->held) pthread_cond_wait(&r->cond, &r->lock);
  pthread_mutex_unlock(&r->lock);
}

/* With hold set before anything is submitted, or while the engine is held. */
static void wait_held(sched_rig *r) {
  pthread_mutex_lock(&r->lock);
  while (!r->held) pthread_cond_wait(&r->cond, &r->lock);
  pthread_mutex_unlock(&r->lock);
}

void rig_hold(sched_rig *r) {
  pthread_mutex_lock(&r->lock);
  r->hold = true;
  pthread_mutex_unlock(&r->lock);
  wait_held(r);
}

uint32_t rig_submit_held(sched_rig *r, const df_job *job) {
  pthread_mutex_lock(&r->lock);
  r->hold = true;
  pthread_mutex_unlock(&r->lock);
  const uint32_t i = rig_submit(r, job);
  wait_held(r);
  return i;
}

void rig_turn(sched_rig *r) {
  pthread_mutex_lock(&r->lock);
  r->held = false;
  pthread_cond_broadcast(&r->cond);
  pthread_mutex_unlock(&r->lock);
  wait_held(r);
}

void rig_go(sched_rig *r) {
  pthread_mutex_lock(&r->lock);
  r->hold = r->held = false;
  pthread_cond_broadcast(&r->cond);
  pthread_mutex_unlock(&r->lock);
}

void rig_init(sched_rig *r, df_model *m, df_draft *d, const df_sched_params *p) {
  df_error err = {0};
  df_sched_params own = *p;
  *r = (sched_rig){0};
  pthread_mutex_init(&r->lock, NULL);
  pthread_cond_init(&r->cond, NULL);
  own.wake = on_wake;
  own.user = r;
  if (df_sched_create(m, d, &own, &r->s, &err) != DF_OK) fail_msg("%s", err.msg);
}

void rig_release(sched_rig *r) {
  df_sched_free(r->s, 60000);
  for (uint32_t i = 0; i < r->n; i++) df_free(r->answers[i].prompt_logprobs);
  df_free(r->answers);
  pthread_cond_destroy(&r->cond);
  pthread_mutex_destroy(&r->lock);
}

df_job rig_job(const int32_t *ids, size_t n, uint32_t max_tokens) {
  df_job j = {.ids = ids, .n_ids = n, .gen = df_generate_params_default()};
  j.gen.max_tokens = max_tokens;
  j.gen.ignore_eos = true;
  return j;
}

void rig_reserve(sched_rig *r, uint32_t n) {
  if (n <= r->cap) return;
  const uint32_t cap = r->cap * 2 > n ? r->cap * 2 : n + 64;
  rig_answer *a = df_realloc(r->answers, cap * sizeof *a);
  if (!a) fail_msg("no memory for answers");
  r->answers = a;
  r->cap = cap;
}

static rig_answer *grow(sched_rig *r, uint64_t id) {
  rig_reserve(r, (uint32_t)id);
  while (r->n < id) r->answers[r->n++] = (rig_answer){0};
  return &r->answers[id - 1];
}

df_status rig_try(sched_rig *r, const df_job *job, uint32_t *index, df_error *err) {
  uint64_t id = 0;
  const df_status s = df_sched_submit(r->s, job, &id, err);
  if (s != DF_OK) return s;
  (void)grow(r, id);
  *index = (uint32_t)id - 1;
  return DF_OK;
}

uint32_t rig_submit(sched_rig *r, const df_job *job) {
  df_error err = {0};
  uint32_t i = 0;
  if (rig_try(r, job, &i, &err) != DF_OK) fail_msg("%s", err.msg);
  return i;
}

rig_answer *rig_get(sched_rig *r, uint32_t index) { return &r->answers[index]; }

static void take_started(rig_answer *a, const df_sched_event *ev) {
  assert_int_equal(a->n_started++, 0);
  assert_int_equal(a->n_tokens, 0);
  a->start = ev->stats;
  assert_true(ev->stats.cached_tokens < ev->stats.prompt_tokens);
  if (!ev->logprobs) return;
  const size_t bytes = ev->stats.prompt_tokens * sizeof(float);
  a->prompt_logprobs = df_alloc(bytes);
  assert_non_null(a->prompt_logprobs);
  memcpy(a->prompt_logprobs, ev->logprobs, bytes);
}

static void take_tokens(sched_rig *r, rig_answer *a, const df_sched_event *ev) {
  assert_true(ev->n_ids == 0 || a->n_started == 1);
  assert_true(ev->n_ids > 0 || ev->text_len > 0);
  assert_true(a->n + ev->n_ids <= RIG_IDS && a->text_len + ev->text_len < RIG_TEXT);
  assert_true(ev->n_accepted <= ev->n_drafted && ev->n_accepted <= ev->n_ids);
  for (uint32_t i = 0; i < ev->n_ids; i++) {
    if (ev->logprobs) a->logprobs[a->n + i] = ev->logprobs[i];
    if (ev->top) a->top[a->n + i] = ev->top[(size_t)i * ev->n_top];
  }
  if (ev->n_ids) memcpy(a->ids + a->n, ev->ids, ev->n_ids * sizeof *ev->ids);
  memcpy(a->text + a->text_len, ev->text, ev->text_len);
  a->n += ev->n_ids;
  a->text_len += ev->text_len;
  a->n_tokens++;
  a->ended_drafted = ev->n_ids && ev->n_accepted == ev->n_ids;
  a->last_n = ev->n_ids ? ev->n_ids : a->last_n;
  a->drafted += ev->n_drafted;
  r->ids_seen += ev->n_ids;
}

static void take(sched_rig *r, const df_sched_event *ev) {
  rig_answer *a = grow(r, ev->id);
  if (a->done) fail_msg("request %d: an event behind DONE", (int)ev->id);
  if (ev->kind == DF_SCHED_STARTED) take_started(a, ev);
  if (ev->kind == DF_SCHED_TOKENS) take_tokens(r, a, ev);
  if (ev->kind != DF_SCHED_DONE) return;
  a->done = true;
  a->end = *ev;
  r->n_done++;
  assert_int_equal(ev->stats.new_tokens, a->n);
  assert_true(ev->stats.drafted >= ev->stats.accepted);
  assert_true(ev->t_submit && ev->t_done >= ev->t_submit);
  assert_true(ev->failed == DF_OK || ev->message[0]);
}

void rig_take(sched_rig *r) {
  for (df_sched_event *ev; (ev = df_sched_take_event(r->s)) != NULL; df_sched_free_event(ev)) take(r, ev);
}

void rig_sleep(sched_rig *r, uint32_t ms) {
  struct timespec until;
  clock_gettime(CLOCK_REALTIME, &until);
  until.tv_nsec += (long)ms * 1000000;
  until.tv_sec += until.tv_nsec / 1000000000;
  until.tv_nsec %= 1000000000;
  pthread_mutex_lock(&r->lock);
  while (!r->woken && pthread_cond_timedwait(&r->cond, &r->lock, &until) == 0) continue;
  r->woken = false;
  pthread_mutex_unlock(&r->lock);
  rig_take(r);
}

static void check_time(uint64_t since) {
  if (df_now_ns() - since > 300 * UINT64_C(1000000000)) fail_msg("the scheduler does not come to an end");
}

void rig_wait(sched_rig *r, uint32_t index) {
  const uint64_t t0 = df_now_ns();
  for (rig_take(r); !r->answers[index].done; rig_sleep(r, 1000)) check_time(t0);
}

void rig_wait_all(sched_rig *r) {
  const uint64_t t0 = df_now_ns();
  for (rig_take(r); r->n_done < r->n; rig_sleep(r, 1000)) check_time(t0);
}

void rig_cancel(sched_rig *r, uint32_t index) { df_sched_cancel(r->s, (uint64_t)index + 1); }

void rig_assert_at_rest(sched_rig *r) {
  df_sched_stats st;
  rig_wait_all(r);
  df_sched_get_stats(r->s, &st);
  assert_int_equal(st.running, 0);
  assert_int_equal(st.waiting, 0);
  assert_int_equal(st.pages_used, 0);
  assert_true(st.pages_cached <= st.pages_total);
  assert_int_equal(st.submitted, r->n);
  assert_int_equal(st.finished + st.cancelled + st.failed + st.timed_out, r->n);
  assert_int_equal(st.generated_tokens, r->ids_seen);
  assert_true(st.drafted >= st.accepted && st.emitted_verify <= st.accepted + st.verify_steps);
  assert_true(st.prefix_queries >= st.prefix_hits && st.prompt_tokens >= st.cached_tokens);
  uint64_t drafted = 0, accepted = 0;
  for (uint32_t i = 0; i < DF_MAX_WIDTH; i++) {
    assert_true(st.accepted_at[i] <= st.drafted_at[i]);
    drafted += st.drafted_at[i];
    accepted += st.accepted_at[i];
  }
  assert_int_equal(drafted, st.drafted);
  assert_int_equal(accepted, st.accepted);
  assert_true(st.model_s >= 0 && st.busy_s >= st.model_s);
  assert_int_equal(df_sched_slots(r->s, NULL, 0), 0);
}

static bool collect(void *user, const df_event *ev) {
  rig_answer *a = user;
  assert_true(a->text_len + ev->text_len < RIG_TEXT && a->n + ev->n_ids <= RIG_IDS);
  memcpy(a->text + a->text_len, ev->text, ev->text_len);
  if (ev->n_ids) memcpy(a->ids + a->n, ev->ids, ev->n_ids * sizeof *ev->ids);
  a->text_len += ev->text_len;
  a->n += ev->n_ids;
  return true;
}

void rig_alone(df_model *m, uint32_t n_ctx, const df_job *job, rig_answer *out) {
  df_error err = {0};
  df_session *s = NULL;
  df_result res;
  df_session_params sp = df_session_params_default();
  sp.n_ctx = n_ctx;
  *out = (rig_answer){0};
  if (df_session_create(m, NULL, &sp, &s, &err) != DF_OK) fail_msg("%s", err.msg);
  df_generate_params g = job->gen;
  g.on_event = collect;
  g.user = out;
  if (df_session_generate(s, job->ids, job->n_ids, &g, &res, &err) != DF_OK) fail_msg("%s", err.msg);
  out->end.finish = res.finish;
  out->done = true;
  df_session_free(s);
}

void rig_assert_same(const rig_answer *got, const rig_answer *want, const char *what) {
  if (got->end.failed != DF_OK) fail_msg("%s: failed: %s", what, got->end.message);
  if (got->n != want->n || memcmp(got->ids, want->ids, got->n * sizeof *got->ids) != 0)
    fail_msg("%s: other tokens (%d of %d)", what, (int)got->n, (int)want->n);
  if (got->text_len != want->text_len || memcmp(got->text, want->text, got->text_len) != 0)
    fail_msg("%s: other text", what);
  if (got->end.finish != want->end.finish)
    fail_msg("%s: finish %d, expected %d", what, (int)got->end.finish, (int)want->end.finish);
}

void rig_assert_same_drafts(const df_stats *a, const df_stats *b) {
  assert_int_equal(a->steps, b->steps);
  assert_int_equal(a->drafted, b->drafted);
  assert_int_equal(a->accepted, b->accepted);
  assert_memory_equal(a->accepted_at, b->accepted_at, sizeof a->accepted_at);
}
