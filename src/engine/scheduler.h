/*
 * engine/scheduler.h - many requests at once: a thread that owns the engine, a bounded queue into it, events out of it.
 *
 * Other threads submit and cancel; the engine thread admits by priority, fairness and KV room, shares cached prefixes,
 * steps, preempts when pages run out (recomputed later, the text does not change), and pushes events. One consumer
 * takes the events. Results carry the id of their request, never a row.
 *
 * Ownership: borrows model and draft; copies everything that a submission points at (grammars are shared by count).
 * Threads:   submit, cancel, flush and stats from any thread; take_event and free_event from one consumer.
 */
#ifndef DF_ENGINE_SCHEDULER_H
#define DF_ENGINE_SCHEDULER_H

#include "engine/engine.h"
#include "text/grammar.h"

typedef struct df_sched df_sched;

enum { DF_SCHED_MAX_TOP = 20, DF_SCHED_MAX_STOP_IDS = 64 };

typedef struct df_sched_params {
  df_engine_params engine; /* max_seqs = requests that run together, kv_tokens = size of the pool */
  uint32_t max_waiting;    /* submissions that may wait beside max_seqs; one more is refused with DF_ERR_BUSY */
  uint32_t prefill_rows;   /* most prompt rows of one step while others decode (chunked prefill); 0 = default */
  bool no_prefix_cache;
  void (*wake)(void *user); /* engine thread: events wait to be taken; may be NULL */
  void *user;
} df_sched_params;

/* One request. Everything is copied. */
typedef struct df_job {
  const int32_t *ids;
  size_t n_ids;
  df_generate_params gen; /* on_event, user and cancel are ignored */
  const int32_t *stop_ids;
  uint32_t n_stop_ids;
  df_grammar *grammar;  /* NULL = none; one reference is taken */
  int32_t spec_width;   /* rows of a verify block; 0 = as the server was started, 1 = no drafting */
  uint32_t n_top;       /* alternatives with logprobs per token, 0..DF_SCHED_MAX_TOP; implies logprobs */
  bool logprobs;        /* logprob of every kept token */
  bool prompt_logprobs; /* of every prompt token as well (echo): computes logits for the whole prompt, no cache hit */
  int32_t priority;     /* higher runs first */
  uint64_t client;      /* fairness: clients of one priority take turns; 0 = nobody in particular */
  uint64_t deadline;    /* df_now_ns clock; 0 = none. Past it the request ends with DF_FINISH_CANCELLED, timed_out */
  bool no_cache;        /* neither reads nor leaves a cached prefix */
} df_job;

typedef enum df_sched_kind { DF_SCHED_STARTED, DF_SCHED_TOKENS, DF_SCHED_DONE } df_sched_kind;

/* What happened to request `id`. STARTED comes once, when the prompt is in, right before the first TOKENS; a request
 * that ends earlier has none. DONE comes exactly once for every accepted submission and is its last event. */
typedef struct df_sched_event {
  uint64_t id;
  df_sched_kind kind;
  /* TOKENS: complete UTF-8 and kept ids of one step (either may be empty). */
  char *text;
  size_t text_len;
  int32_t *ids;
  uint32_t n_ids;
  uint32_t n_drafted, n_accepted; /* of the step; ids[0 .. n_accepted) were drafted */
  float *logprobs;                /* [n_ids] or NULL */
  df_token_logprob *top;          /* [n_ids][n_top] or NULL, best first; id -1 = fewer exist */
  uint32_t n_top;
  /* STARTED: prompt logprobs when asked for: [n_prompt], the first is NaN; top likewise */
  /* DONE */
  df_finish finish;
  int32_t matched_id;     /* end token or stop id that ended it, else -1 */
  int32_t matched_string; /* index of the stop string, else -1 */
  bool timed_out;
  df_status failed; /* DF_OK, or why it could not go on; message says more */
  char message[256];
  df_stats stats;                              /* also with STARTED: prompt and cached tokens */
  uint64_t t_submit, t_admit, t_first, t_done; /* df_now_ns; 0 = never */
} df_sched_event;

/* Counters since start and gauges now; a consistent copy: it includes everything that the events taken so far tell of.
 * submitted = finished + cancelled + failed + timed_out + running + waiting. */
typedef struct df_sched_stats {
  uint64_t submitted, finished, cancelled, failed, timed_out, refused, preempted;
  uint64_t prompt_tokens, cached_tokens, generated_tokens;
  uint64_t prefix_queries, prefix_hits; /* tokens looked up, tokens found */
  uint64_t steps;                       /* of the engine; the others count steps of requests */
  uint64_t verify_steps, drafted, accepted, emitted_verify;
  uint64_t drafted_at[DF_MAX_WIDTH], accepted_at[DF_MAX_WIDTH];
  uint64_t width_steps[DF_MAX_WIDTH + 1]; /* request steps taken at each width */
  double busy_s, model_s;                 /* time in steps, and of it inside the model's programs */
  uint32_t running, waiting;
  uint32_t pages_total, pages_used, pages_cached; /* used = held by requests; cached = held by the prefix cache only */
  uint32_t page_size;
  char device_lost[256]; /* why nothing can be computed any more (DF_ERR_DEVICE); "" while all is well */
} df_sched_stats;

/* Starts the engine thread; returns when the engine is ready. */
df_status df_sched_create(df_model *m, df_draft *d, const df_sched_params *p, df_sched **out, df_error *err) DF_CHECK;
/* drain_ms: how long running and waiting requests may still take; then they are cancelled. Events must be taken (or
 * are dropped) until it returns. NULL is fine. */
void df_sched_free(df_sched *s, uint32_t drain_ms);
/* No submissions from now on (refused with DF_ERR_BUSY); what is there goes on. */
void df_sched_close(df_sched *s);

/* DF_ERR_ARGUMENT, DF_ERR_LIMIT (prompt longer than the context), DF_ERR_BUSY (queue full, or closed), MEMORY,
 * DF_ERR_DEVICE (the device is lost: every later submission fails like this). */
df_status df_sched_submit(df_sched *s, const df_job *job, uint64_t *id, df_error *err) DF_CHECK;
/* Ends a request in whatever state it is; unknown ids are ignored. Its DONE event still comes. */
void df_sched_cancel(df_sched *s, uint64_t id);
/* Forgets all cached prefixes that no running request uses; returns when that is done (at most a step). Not from
 * `wake`.
 */
void df_sched_flush_cache(df_sched *s);
void df_sched_get_stats(df_sched *s, df_sched_stats *out);

/* The next event, or NULL when none waits. Free it with df_sched_free_event. */
df_sched_event *df_sched_take_event(df_sched *s);
void df_sched_free_event(df_sched_event *ev);

/* What one running or waiting request looks like now, for /slots. Returns how many were written (at most cap). */
typedef struct df_sched_slot {
  uint64_t id;
  bool running;
  df_req_state state;
  uint32_t n_prompt, n_cached, n_done_prompt, n_generated, width, preemptions;
} df_sched_slot;
uint32_t df_sched_slots(df_sched *s, df_sched_slot *out, uint32_t cap);

#endif
