/*
 * engine/engine.h - the step loop: which requests prefill, which verify together, and what comes of it.
 *
 * Ownership: owns KV pool, target and drafter at work; borrows model and draft; requests belong to the caller.
 * Threads:   one engine thread.
 */
#ifndef DF_ENGINE_ENGINE_H
#define DF_ENGINE_ENGINE_H

#include "attention/verify_mask.h"
#include "engine/request.h"

enum { DF_ENGINE_MAX_SEQS = 64 };

typedef struct df_engine_params {
  df_session_params session; /* context, KV type, width, backends, graphs */
  uint32_t max_seqs;         /* requests of one step, 1..DF_ENGINE_MAX_SEQS */
  uint32_t kv_tokens;        /* of the pool; 0 = max_seqs full contexts. A smaller pool bounds the context too */
  uint32_t prefill_rows;     /* most prompt rows of a step in which others decode; 0 = as many as a pass takes */
} df_engine_params;

/* Sums over all requests since the start. */
typedef struct df_engine_totals {
  uint64_t steps;                           /* of the engine */
  uint64_t verify_steps, drafted, accepted; /* of requests: blocks verified, their drafts, those that stood */
  uint64_t emitted_verify;                  /* tokens kept of verified blocks, the target's own included */
  uint64_t drafted_at[DF_MAX_WIDTH], accepted_at[DF_MAX_WIDTH];
  uint64_t width_steps[DF_MAX_WIDTH + 1]; /* request steps by rows */
  uint64_t model_ns;                      /* time in passes of target and draft */
} df_engine_totals;

typedef struct df_engine {
  df_model *m;
  df_draft *d; /* NULL without */
  uint32_t n_ctx, width, max_seqs;
  df_pages pages;
  df_target target;
  df_drafter drafter;
  bool has_target, has_drafter;
  df_stepper step;
  df_sampler_scratch scratch;
  df_mask_decision mask; /* of the verify-mask policy */
  df_graph_budget graph_budget;
  bool auto_width; /* the controller chooses among 1..width */
  df_width_costs costs;
  df_width_estimate acceptance; /* of all requests so far: where a new one starts from */
  df_cut_trust trust;           /* in what drafts say of themselves, over all requests */
  uint32_t prefill_rows;
  df_engine_totals totals;
} df_engine;

df_status df_engine_init(df_engine *e, df_model *m, df_draft *d, const df_engine_params *p, df_error *err) DF_CHECK;
void df_engine_release(df_engine *e);

/* Prices of a few widths, within 80 ms or two steps. Part of df_engine_init. */
df_status df_engine_calibrate(df_engine *e, df_error *err) DF_CHECK;

/* Memory of all programs recorded so far. */
size_t df_engine_graph_bytes(const df_engine *e);

/* Sets width and auto_width of c: `asked` rows, 0 = as the engine was started. ARGUMENT beyond the draft's block;
 * without a draft every width is 1. Reads only what never changes: any thread. */
df_status df_engine_width(const df_engine *e, int32_t asked, df_request_config *c, df_error *err) DF_CHECK;

/* A request made by df_request_init (n_ctx, config of this engine) takes part from now on: seq holds its first n_valid
 * positions and is taken over. Records what its steps need. MEMORY. */
df_status df_engine_admit(df_engine *e, df_request *q, df_kv_seq *seq, uint32_t n_valid, df_error *err) DF_CHECK;
/* Takes a request out; *seq is its table and the caller's in any case. On success draft KV is valid wherever target KV
 * is, so whole pages of it may be shared. */
df_status df_engine_park(df_engine *e, df_request *q, df_kv_seq *seq, df_error *err) DF_CHECK;

/* Both in one: a request with the engine's width. seq: an initialised table, taken over on success; NULL = a fresh
 * one. */
df_status df_engine_request(df_engine *e, df_request *q, const int32_t *ids, size_t n, uint32_t n_valid, df_kv_seq *seq,
                            const df_generate_params *p, df_error *err) DF_CHECK;

/* Prompt rows that the next step takes of each request: rows[n]. Half of them go to the first prompt in the list, so
 * that it comes in however many short ones arrive; the rest to those that are through soonest, so that a short prompt
 * does not wait for a long one. */
void df_engine_share_prefill(const df_engine *e, df_request *const *q, uint32_t n, uint32_t *rows);

/* One step for all requests that are not DONE (at most max_seqs): prompts that are not in yet share one prefill pass,
 * then the others take one decode or verify step each, grouped by width. What fails ends the requests concerned: they
 * become DONE with `failed` and `why`. */
df_status df_engine_step(df_engine *e, df_request **q, uint32_t n, df_error *err) DF_CHECK;

#endif
