/*
 * support/sched_rig.h - a scheduler on a tiny model, and what came of every submission.
 *
 * The rig takes the events and checks their order as they come: STARTED once and first, nothing behind DONE, numbers of
 * one event in agreement. Everything fails the current test when it cannot be done.
 *
 * Threads: one caller.
 */
#ifndef DF_TEST_SUPPORT_SCHED_RIG_H
#define DF_TEST_SUPPORT_SCHED_RIG_H

#include <pthread.h>

#include "engine/scheduler.h"
#include "support/tiny_model.h"

enum { RIG_IDS = 512, RIG_TEXT = 4096 };

typedef struct rig_answer {
  int32_t ids[RIG_IDS];
  uint32_t n;
  char text[RIG_TEXT];
  size_t text_len;
  float logprobs[RIG_IDS];
  df_token_logprob top[RIG_IDS]; /* the best one of each token */
  float *prompt_logprobs;        /* [prompt tokens] or NULL */
  uint32_t n_started, n_tokens, drafted;
  bool done;
  bool ended_drafted; /* the last token was a draft */
  uint32_t last_n;    /* tokens of the last event: its place in the block, counted from 1 */
  df_sched_event end; /* of DONE; its pointers are not valid */
  df_stats start;     /* of STARTED */
} rig_answer;

typedef struct sched_rig {
  df_sched *s;
  pthread_mutex_t lock;
  pthread_cond_t cond;
  bool woken, hold, held; /* hold: the engine thread stops when it next has news; held: it stands there */
  rig_answer *answers;    /* [n], by id - 1 */
  uint32_t n, cap, n_done;
  uint64_t ids_seen; /* in TOKENS events */
} sched_rig;

/* The tiny model and its draft, as a fixture of a group of tests; one thread. */
typedef struct rig_models {
  tiny_spec spec;
  df_model *m;
  df_draft *d;
} rig_models;

int rig_models_open(void **state);
int rig_models_close(void **state);

/* A pair for one test: the target repeats its last token for ever and the draft knows it, so that whole blocks stand.
 */
void rig_echo_open(rig_models *x);
void rig_echo_close(rig_models *x);

void rig_init(sched_rig *r, df_model *m, df_draft *d, const df_sched_params *p);
/* Frees the scheduler after everything was waited for. */
void rig_release(sched_rig *r);

/* Greedy job with ignore_eos; ids are borrowed until it is submitted. */
df_job rig_job(const int32_t *ids, size_t n, uint32_t max_tokens);
/* Returns the index of its answer. */
uint32_t rig_submit(sched_rig *r, const df_job *job);
/* DF_OK (then *index is set) or why not. */
df_status rig_try(sched_rig *r, const df_job *job, uint32_t *index, df_error *err);
/* Takes what is there without waiting. */
void rig_take(sched_rig *r);
/* Sleeps until events come, at most ms; takes them. */
void rig_sleep(sched_rig *r, uint32_t ms);
void rig_wait(sched_rig *r, uint32_t index);
void rig_wait_all(sched_rig *r);
void rig_cancel(sched_rig *r, uint32_t index);
/* The engine stops behind the turn that next makes an event; returns when it stands there (all events of that turn can
 * be taken). rig_go lets it go on; rig_turn does one more such turn. */
void rig_hold(sched_rig *r);
/* Submits, with the engine idle, and returns with it held behind the first event. */
uint32_t rig_submit_held(sched_rig *r, const df_job *job);
void rig_turn(sched_rig *r);
void rig_go(sched_rig *r);
/* Room for n answers, so that later calls of the rig allocate nothing. */
void rig_reserve(sched_rig *r, uint32_t n);
rig_answer *rig_get(sched_rig *r, uint32_t index);

/* Nothing runs, no page is held by a request; the counters agree with the events. */
void rig_assert_at_rest(sched_rig *r);

/* The same request on a session of its own, without a draft. */
void rig_alone(df_model *m, uint32_t n_ctx, const df_job *job, rig_answer *out);
/* Blocks were as long and as good: the draft saw the same. */
void rig_assert_same_drafts(const df_stats *a, const df_stats *b);
void rig_assert_same(const rig_answer *got, const rig_answer *want, const char *what);

#endif
