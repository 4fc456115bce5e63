/* The engine thread: one turn after another, and what a turn publishes. */
#include "engine/scheduler.h"

#include "base/clock.h"
#include "base/mem.h"
#include "base/size.h"
#include "engine/sched_internal.h"

enum {
  PREFILL_ROWS = 64, /* prompt rows beside decoding requests: about the work of a few verify blocks */
  MAX_WAITING = 1 << 16
};

/* ---- a turn --------------------------------------------------------------------------------------------- */

/* Waits for something to do and takes what was submitted; *flush: the last flush asked for. False when all is over. */
static bool collect(df_sched *s, uint64_t *flush) {
  pthread_mutex_lock(&s->lock);
  while (!s->inbox && !s->n_waiting && !s->n_running && s->flush_asked == s->flush_done && !s->quit)
    pthread_cond_wait(&s->work, &s->lock);
  for (; s->inbox; s->inbox = s->inbox->link) s->waiting[s->n_waiting++] = s->inbox;
  s->inbox_end = &s->inbox;
  s->n_inbox = 0;
  *flush = s->flush_asked;
  const bool on = s->n_waiting || s->n_running || s->flush_asked != s->flush_done || !s->quit;
  if (s->quit && df_now_ns() >= s->drain_until)
    for (df_sched_job *j = s->jobs; j; j = j->next) atomic_store(&j->cancel, true);
  pthread_mutex_unlock(&s->lock);
  return on;
}

/* Ends a job from outside: what is held back leaves. */
static void cancel(df_sched *s, df_sched_job *j) {
  df_error why = {0};
  df_status st = df_request_cancel(&j->q, &why);
  if (st == DF_OK && j->lost) st = DF_OOM(&why, "an event", sizeof(df_sched_box));
  if (st != DF_OK) df_request_fail(&j->q, st, &why);
  df_sched_end(s, j);
}

/* True when the job was ended. */
static bool sweep_one(df_sched *s, df_sched_job *j, uint64_t now) {
  const bool late = j->deadline && now >= j->deadline;
  if (!late && !atomic_load(&j->cancel)) return false;
  j->timed_out = late;
  cancel(s, j);
  return true;
}

/* Cancelled and late jobs, wherever they are. */
static void sweep(df_sched *s) {
  const uint64_t now = df_now_ns();
  for (uint32_t i = 0; i < s->n_running;)
    if (!sweep_one(s, s->running[i], now)) i++;
  for (uint32_t i = 0; i < s->n_waiting;)
    if (!sweep_one(s, s->waiting[i], now)) i++;
}

static void step(df_sched *s) {
  df_request *q[DF_ENGINE_MAX_SEQS];
  df_error why = {0};
  for (uint32_t i = 0; i < s->n_running; i++) q[i] = &s->running[i]->q;
  const df_status st = df_engine_step(&s->e, q, s->n_running, &why);
  for (uint32_t i = 0; i < s->n_running && st != DF_OK; i++) df_request_fail(q[i], st, &why);
}

/* Prefixes that came in are shared, and who is through leaves. */
static void settle(df_sched *s) {
  for (uint32_t i = 0; i < s->n_running;) {
    df_sched_job *j = s->running[i];
    if (j->lost) {
      df_error why = {0};
      df_request_fail(&j->q, DF_OOM(&why, "an event", sizeof(df_sched_box)), &why);
    }
    if (j->q.state == DF_REQ_DONE) {
      df_sched_end(s, j);
      continue;
    }
    df_sched_share_prefix(s, j);
    i++;
  }
}

static void fill_totals(df_sched *s) {
  const df_engine_totals *t = &s->e.totals;
  df_sched_stats *st = &s->st;
  st->steps = t->steps;
  st->verify_steps = t->verify_steps;
  st->drafted = t->drafted;
  st->accepted = t->accepted;
  st->emitted_verify = t->emitted_verify;
  for (uint32_t i = 0; i < DF_MAX_WIDTH; i++) {
    st->drafted_at[i] = t->drafted_at[i];
    st->accepted_at[i] = t->accepted_at[i];
  }
  for (uint32_t i = 0; i <= DF_MAX_WIDTH; i++) st->width_steps[i] = t->width_steps[i];
  st->model_s = (double)t->model_ns / 1e9;
  st->pages_total = s->e.pages.n_pages - 1;
  st->pages_cached = s->e.pages.n_idle;
  st->pages_used = st->pages_total - s->e.pages.n_free - s->e.pages.n_idle;
  st->page_size = s->e.pages.size;
  st->running = s->n_running;
}

static void show(df_sched_job *j, bool running) {
  const df_request *q = &j->q;
  const uint32_t valid = DF_MIN(q->n_valid, q->n_prompt);
  j->pub = (df_sched_slot){.id = j->id,
                           .running = running,
                           .state = q->state,
                           .n_prompt = q->n_prompt,
                           .n_cached = j->cached,
                           .n_done_prompt = valid,
                           .n_generated = j->sent,
                           .width = q->width,
                           .preemptions = j->preemptions};
}

static void unlink_job(df_sched *s, df_sched_job *j) {
  if (j->next) j->next->prev = j->prev;
  *(j->prev ? &j->prev->next : &s->jobs) = j->next;
  s->live--;
}

/* Everything that the turn did becomes visible at once: counters, slots, events. Ended jobs are gone. */
static void publish(df_sched *s, uint64_t flushed) {
  df_sched_job *gone = s->ended;
  const bool any = s->made.first != NULL;
  s->ended = NULL;
  fill_totals(s);
  pthread_mutex_lock(&s->lock);
  s->pub = s->st;
  for (uint32_t i = 0; i < s->n_running; i++) show(s->running[i], true);
  for (uint32_t i = 0; i < s->n_waiting; i++) show(s->waiting[i], false);
  for (df_sched_job *j = gone; j; j = j->link) unlink_job(s, j);
  df_sched_boxes_append(&s->out, &s->made);
  if (flushed != s->flush_done) {
    s->flush_done = flushed;
    pthread_cond_broadcast(&s->flushed);
  }
  pthread_mutex_unlock(&s->lock);
  for (df_sched_job *next; gone; gone = next) {
    next = gone->link;
    df_sched_job_free(gone);
  }
  if (any && s->wake) s->wake(s->user);
}

static void *engine_main(void *arg) {
  df_sched *s = arg;
  uint64_t flush, last_flush = 0;
  while (collect(s, &flush)) {
    const uint64_t t0 = df_now_ns();
    const bool busy = s->n_waiting || s->n_running;
    sweep(s);
    if (flush != last_flush && s->use_cache) (void)df_radix_evict(&s->cache, UINT32_MAX);
    last_flush = flush;
    df_sched_admit(s);
    if (s->n_running) {
      df_sched_make_room(s);
      step(s);
      settle(s);
    }
    if (busy) s->st.busy_s += (double)(df_now_ns() - t0) / 1e9;
    publish(s, flush);
  }
  pthread_mutex_lock(&s->lock);
  s->over = true;
  pthread_cond_broadcast(&s->flushed);
  pthread_mutex_unlock(&s->lock);
  return NULL;
}

/* ---- life ----------------------------------------------------------------------------------------------- */

static void release(df_sched *s) {
  df_free(s->waiting);
  if (s->has_cache) df_radix_release(&s->cache);
  if (s->has_engine) df_engine_release(&s->e);
  pthread_cond_destroy(&s->flushed);
  pthread_cond_destroy(&s->work);
  pthread_mutex_destroy(&s->lock);
  df_free(s);
}

static df_status init(df_sched *s, df_model *m, df_draft *d, const df_sched_params *p, df_error *err) {
  df_engine_params ep = p->engine;
  ep.prefill_rows = p->prefill_rows ? p->prefill_rows : PREFILL_ROWS;
  if (p->max_waiting > MAX_WAITING)
    return DF_FAIL(err, DF_ERR_ARGUMENT, "%u waiting requests are more than %d", p->max_waiting, MAX_WAITING);
  DF_TRY(df_engine_init(&s->e, m, d, &ep, err));
  s->has_engine = true;
  s->use_cache = !p->no_prefix_cache;
  s->max_live = p->max_waiting + s->e.max_seqs;
  s->waiting = df_calloc(s->max_live, sizeof *s->waiting);
  if (!s->waiting) return DF_OOM(err, "the queue", s->max_live * sizeof *s->waiting);
  if (!s->use_cache) return DF_OK;
  DF_TRY(df_radix_init(&s->cache, &s->e.pages, err));
  s->has_cache = true;
  return DF_OK;
}

df_status df_sched_create(df_model *m, df_draft *d, const df_sched_params *p, df_sched **out, df_error *err) {
  df_sched *s = df_calloc(1, sizeof *s);
  if (!s) return DF_OOM(err, "a scheduler", sizeof *s);
  s->wake = p->wake;
  s->user = p->user;
  s->inbox_end = &s->inbox;
  pthread_mutex_init(&s->lock, NULL);
  pthread_cond_init(&s->work, NULL);
  pthread_cond_init(&s->flushed, NULL);
  df_status st = init(s, m, d, p, err);
  if (st == DF_OK) {
    fill_totals(s);
    s->pub = s->st;
    if (pthread_create(&s->thread, NULL, engine_main, s) != 0)
      st = DF_FAIL(err, DF_ERR_MEMORY, "could not start the engine thread");
  }
  if (st != DF_OK) {
    release(s);
    return st;
  }
  *out = s;
  return DF_OK;
}

void df_sched_free(df_sched *s, uint32_t drain_ms) {
  if (!s) return;
  pthread_mutex_lock(&s->lock);
  s->closed = s->quit = true;
  s->drain_until = df_now_ns() + (uint64_t)drain_ms * 1000000u;
  pthread_cond_signal(&s->work);
  pthread_mutex_unlock(&s->lock);
  (void)pthread_join(s->thread, NULL);
  for (df_sched_event *ev; (ev = df_sched_take_event(s)) != NULL;) df_sched_free_event(ev);
  release(s);
}
