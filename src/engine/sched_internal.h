/*
 * engine/sched_internal.h - what the parts of the scheduler share.
 *
 * Two sides. Callers (sched_queue.c) touch only what the lock guards. The engine thread owns everything else: it takes
 * submissions from the inbox, works on them alone, and publishes events, counters and slots once per turn under the
 * lock. So whoever has taken an event sees counters that include it.
 */
#ifndef DF_ENGINE_SCHED_INTERNAL_H
#define DF_ENGINE_SCHED_INTERNAL_H

#include <pthread.h>
#include <stdatomic.h>

#include "engine/scheduler.h"
#include "kv/radix.h"

/* An event in a queue; ev comes first, so that the consumer's pointer is the box's. */
typedef struct df_sched_box {
  df_sched_event ev;
  struct df_sched_box *next;
} df_sched_box;

typedef struct df_sched_boxes {
  df_sched_box *first, *last;
} df_sched_boxes;

/* One submission until its DONE event is out. */
typedef struct df_sched_job {
  /* set by the submitting thread, constant afterwards */
  df_sched *s;
  uint64_t id; /* also the order of arrival */
  int32_t priority;
  uint64_t client, deadline, t_submit;
  bool no_cache;
  df_grammar *grammar;
  df_matcher *matcher;
  df_logit_bias *bias;
  df_sched_box *done; /* made with the submission: the end can always be told */
  _Atomic bool cancel;
  /* under the lock */
  struct df_sched_job *prev, *next; /* of all jobs */
  struct df_sched_job *link;        /* of the inbox; later of the ended ones */
  df_sched_slot pub;
  /* engine thread */
  df_request q;
  uint64_t t_admit;
  uint32_t cached, sent, preemptions;    /* prompt tokens found cached; ids in TOKENS events; times parked */
  uint32_t prefix;                       /* positions that the prefill brings in: shared as they come */
  bool parked, started, timed_out, lost; /* lost: an event could not be made */
  bool skip;                             /* not this time: waits for another's prefix */
  uint64_t turn;                         /* of its client, while jobs are admitted */
} df_sched_job;

enum { DF_SCHED_CLIENTS = 64 };

/* When a client had its last turn. */
typedef struct df_sched_client {
  uint64_t client, turn;
} df_sched_client;

struct df_sched {
  df_engine e;
  df_radix cache;
  bool has_engine, has_cache, use_cache;
  uint32_t max_live; /* jobs that may be there at all */
  void (*wake)(void *user);
  void *user;

  pthread_t thread;
  pthread_mutex_t lock;
  pthread_cond_t work, flushed;
  /* under the lock */
  df_sched_job *jobs; /* all, newest first */
  df_sched_job *inbox, **inbox_end;
  df_sched_boxes out;
  df_sched_stats pub;
  uint32_t live, n_inbox;
  uint64_t next_id, submitted, refused;
  uint64_t flush_asked, flush_done;
  uint64_t drain_until;
  bool closed, quit, over;

  /* engine thread */
  df_sched_job **waiting;                    /* [max_live] in order of arrival, parked ones among them */
  df_sched_job *running[DF_ENGINE_MAX_SEQS]; /* by priority, then in order of admission */
  uint32_t n_waiting, n_running;
  df_sched_job *ended; /* since the last publication */
  df_sched_boxes made; /* events since the last publication */
  df_sched_stats st;
  df_sched_client clients[DF_SCHED_CLIENTS];
  uint64_t turn;
};

/* ---- sched_job.c ---- */
/* Checks and copies a submission; any thread. */
df_status df_sched_job_create(df_sched *s, const df_job *job, df_sched_job **out, df_error *err) DF_CHECK;
void df_sched_job_free(df_sched_job *j); /* its pages were given back; NULL is fine */

/* ---- sched_events.c, engine thread ---- */
/* df_event_fn of every request: user is the job. Makes STARTED and TOKENS; false (and lost) without memory. */
bool df_sched_on_tokens(void *user, const df_event *ev);
/* Fills and sends the DONE event. */
void df_sched_send_done(df_sched *s, df_sched_job *j);
void df_sched_boxes_append(df_sched_boxes *to, df_sched_boxes *from);

/* ---- sched_admit.c, engine thread ---- */
/* Moves waiting jobs to the running ones, as many as there is room for. */
void df_sched_admit(df_sched *s);
/* Gives up cached pages, then parks jobs, until the next step cannot run out of pages. */
void df_sched_make_room(df_sched *s);
/* Shares what the prefill of a job has brought in so far. */
void df_sched_share_prefix(df_sched *s, df_sched_job *j);
/* Ends a job wherever it is: pages back (into the cache when they are sound), DONE made, moved to s->ended. */
void df_sched_end(df_sched *s, df_sched_job *j);

#endif
