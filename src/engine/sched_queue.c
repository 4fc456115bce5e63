/* The callers' side of the scheduler: everything here is done under the lock, in no time. */
#include "base/clock.h"
#include "base/mem.h"
#include "base/size.h"
#include "engine/sched_internal.h"

/* Takes a place for one job more. */
static df_status take_place(df_sched *s, df_error *err) {
  df_status st = DF_OK;
  pthread_mutex_lock(&s->lock);
  if (s->closed)
    st = DF_FAIL(err, DF_ERR_BUSY, "the engine is shutting down");
  else if (s->pub.device_lost[0])
    st = DF_FAIL(err, DF_ERR_DEVICE, "%s", s->pub.device_lost);
  else if (s->live >= s->max_live)
    st = DF_FAIL(err, DF_ERR_BUSY, "the queue is full: %u requests are there", s->live);
  if (st == DF_OK)
    s->live++;
  else
    s->refused++;
  pthread_mutex_unlock(&s->lock);
  return st;
}

static void give_place_back(df_sched *s) {
  pthread_mutex_lock(&s->lock);
  s->live--;
  pthread_mutex_unlock(&s->lock);
}

/* Into the inbox, unless the scheduler was closed meanwhile. */
static df_status enter(df_sched *s, df_sched_job *j, uint64_t *id, df_error *err) {
  df_status st = DF_OK;
  pthread_mutex_lock(&s->lock);
  if (s->closed) {
    s->live--;
    s->refused++;
    st = DF_FAIL(err, DF_ERR_BUSY, "the engine is shutting down");
  } else {
    *id = j->id = j->pub.id = ++s->next_id;
    j->next = s->jobs;
    if (s->jobs) s->jobs->prev = j;
    s->jobs = j;
    j->link = NULL;
    *s->inbox_end = j;
    s->inbox_end = &j->link;
    s->n_inbox++;
    s->submitted++;
    pthread_cond_signal(&s->work);
  }
  pthread_mutex_unlock(&s->lock);
  return st;
}

df_status df_sched_submit(df_sched *s, const df_job *job, uint64_t *id, df_error *err) {
  df_sched_job *j = NULL;
  DF_TRY(take_place(s, err));
  df_status st = df_sched_job_create(s, job, &j, err);
  if (st != DF_OK) {
    give_place_back(s);
    return st;
  }
  st = enter(s, j, id, err);
  if (st != DF_OK) df_sched_job_free(j);
  return st;
}

void df_sched_cancel(df_sched *s, uint64_t id) {
  pthread_mutex_lock(&s->lock);
  df_sched_job *j = s->jobs;
  while (j && j->id != id) j = j->next;
  if (j) atomic_store(&j->cancel, true);
  pthread_mutex_unlock(&s->lock);
}

void df_sched_close(df_sched *s) {
  pthread_mutex_lock(&s->lock);
  s->closed = true;
  pthread_mutex_unlock(&s->lock);
}

void df_sched_flush_cache(df_sched *s) {
  pthread_mutex_lock(&s->lock);
  const uint64_t mine = ++s->flush_asked;
  pthread_cond_signal(&s->work);
  while (s->flush_done < mine && !s->over) pthread_cond_wait(&s->flushed, &s->lock);
  pthread_mutex_unlock(&s->lock);
}

void df_sched_get_stats(df_sched *s, df_sched_stats *out) {
  pthread_mutex_lock(&s->lock);
  *out = s->pub;
  out->submitted = s->submitted;
  out->refused = s->refused;
  uint32_t n = 0;
  for (const df_sched_job *j = s->jobs; j; j = j->next) n++;
  out->waiting = n - out->running;
  pthread_mutex_unlock(&s->lock);
}

uint32_t df_sched_slots(df_sched *s, df_sched_slot *out, uint32_t cap) {
  uint32_t n = 0;
  pthread_mutex_lock(&s->lock);
  for (const df_sched_job *j = s->jobs; j && n < cap; j = j->next) out[n++] = j->pub;
  pthread_mutex_unlock(&s->lock);
  return n;
}

df_sched_event *df_sched_take_event(df_sched *s) {
  pthread_mutex_lock(&s->lock);
  df_sched_box *b = s->out.first;
  if (b) s->out.first = b->next;
  if (!s->out.first) s->out.last = NULL;
  pthread_mutex_unlock(&s->lock);
  return b ? &b->ev : NULL;
}

void df_sched_free_event(df_sched_event *ev) { df_free(ev); }
