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

typedef struct df_engine_params {
  df_session_params session; /* context, KV type, width, backends, graphs */
  uint32_t max_seqs;         /* requests of one step, 1..64 */
  uint32_t kv_tokens;        /* of the pool; 0 = max_seqs full contexts */
} df_engine_params;

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
  bool auto_width;       /* the controller chooses among 1..width */
  df_width_costs costs;
  uint32_t plain_run; /* plain steps in a row, just now */
} df_engine;

df_status df_engine_init(df_engine *e, df_model *m, df_draft *d, const df_engine_params *p, df_error *err) DF_CHECK;
void df_engine_release(df_engine *e);

/* Memory of all programs recorded so far. */
size_t df_engine_graph_bytes(const df_engine *e);

/* A request on this engine. seq as in df_request_init; NULL = a fresh one. */
df_status df_engine_request(df_engine *e, df_request *q, const int32_t *ids, size_t n, uint32_t n_valid, df_kv_seq *seq,
                            const df_generate_params *p, df_error *err) DF_CHECK;

/* One step for all requests that are not DONE (at most max_seqs): prompts that are not in yet share one prefill pass,
 * then the others take one decode or verify step each, grouped by width. A request that fails alone (its pages run out,
 * its callback cancels) becomes DONE with its own status; an error returned is the engine's. */
df_status df_engine_step(df_engine *e, df_request **q, uint32_t n, df_error *err) DF_CHECK;

#endif
