/*
 * engine/request.h - one generation: its tokens, its KV, how its tokens are picked, where it stops, what leaves.
 *
 * Ownership: a request owns its buffers; its page table must be given back with df_request_release.
 * Threads:   the engine thread only, except params.cancel.
 */
#ifndef DF_ENGINE_REQUEST_H
#define DF_ENGINE_REQUEST_H

#include "dflash/session.h"
#include "engine/sampler.h"
#include "engine/seen.h"
#include "engine/stop.h"
#include "spec/step.h"
#include "spec/width.h"
#include "text/detok.h"

typedef enum df_req_state { DF_REQ_PREFILL, DF_REQ_DECODE, DF_REQ_DONE } df_req_state;

typedef struct df_request {
  df_generate_params p; /* its pointers are borrowed for the life of the request */
  df_req_state state;
  df_status failed;            /* why it ended, when not DF_OK */
  df_model *m;                 /* borrowed */
  df_workspace *ws;            /* borrowed: output rows of the target's last pass */
  df_sampler_scratch *scratch; /* borrowed */

  int32_t *ids; /* [cap] prompt, then kept tokens */
  uint32_t n_ids, cap, n_prompt;
  uint32_t n_valid; /* ids[0 .. n_valid) have K and V */
  uint32_t n_ctx;
  df_kv_seq seq;
  uint32_t width;        /* most rows of its verify blocks; 1 = no drafting */
  df_width_estimate est; /* acceptance by slot, for the width controller */
  df_pending pending;    /* features not injected yet; rows NULL without a draft */

  df_stop stop;
  df_detok detok;
  df_seen seen;
  bool penalties; /* picking needs the token history */
  bool greedy;    /* the best token is the answer: no logits needed */
  bool cancelled;
  df_buf raw, text; /* bytes behind the stop filter; UTF-8 ready to leave */
  df_result r;
  uint64_t t_start, t_first; /* ns */
  /* while a step is accepted */
  uint32_t base; /* position that row 0 predicts */
  const int32_t *drafted;
} df_request;

/* tap_floats: floats of one tapped row, 0 without a draft. Takes a copy of the prompt and of params. seq: an
 * initialised page table, taken over on success; it may already hold the first n_valid positions. Errors: ARGUMENT,
 * LIMIT (prompt does not fit), MEMORY. */
df_status df_request_init(df_request *q, df_model *m, df_workspace *ws, df_sampler_scratch *scratch, const int32_t *ids,
                          size_t n, uint32_t n_valid, uint32_t n_ctx, uint32_t width, uint32_t tap_floats,
                          df_kv_seq *seq, const df_generate_params *p, df_error *err) DF_CHECK;
/* Frees everything but the page table, which the caller takes or gives back. */
void df_request_release(df_request *q);

/* df_step_pick for this request. */
df_status df_request_pick(void *ctx, uint32_t row, uint32_t out_row, int32_t *id, df_error *err);

/* Tokens that a step or the prefill yielded, in order: through the stop filter and the detokeniser to the callback.
 * Sets state DONE when the end is reached. out_row: row of the first token, for the logits hash. */
df_status df_request_emit(df_request *q, const int32_t *ids, uint32_t n, uint32_t out_row, uint32_t drafted,
                          uint32_t accepted, df_error *err) DF_CHECK;

/* Ends a request from outside: what is held back leaves. */
df_status df_request_cancel(df_request *q, df_error *err) DF_CHECK;
/* True when its flag or callback asked to stop. */
bool df_request_wants_cancel(const df_request *q);

#endif
