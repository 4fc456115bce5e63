/*
 * engine/request.h - one generation: its tokens, its KV, how its tokens are picked, where it stops, what leaves.
 *
 * Ownership: a request owns its buffers; its page table must be taken back before df_request_release.
 * Threads:   the engine thread only, except params.cancel.
 */
#ifndef DF_ENGINE_REQUEST_H
#define DF_ENGINE_REQUEST_H

#include "dflash/session.h"
#include "engine/sampler.h"
#include "engine/seen.h"
#include "engine/stop.h"
#include "spec/cut.h"
#include "spec/step.h"
#include "text/detok.h"

typedef struct df_token_logprob {
  int32_t id;
  float logprob;
} df_token_logprob;

/* Which tokens may come next: the calls of a matcher (text/grammar.h), or of anything like it. A token that ends the
 * text ends the constraint. */
typedef struct df_constraint {
  void *ctx;
  df_status (*mask)(void *ctx, const uint64_t **mask, df_error *err); /* a bit for each token of the tokenizer */
  df_status (*accept)(void *ctx, int32_t id, bool *accepted, df_error *err);
  void (*rollback)(void *ctx, uint32_t n);
  uint32_t (*length)(void *ctx);
} df_constraint;

/* What a request asks for. The pointers inside gen are borrowed for the life of the request; stop ids are copied. */
typedef struct df_request_config {
  const df_generate_params *gen;
  const int32_t *stop_ids; /* end the text like end tokens, whatever ignore_eos says */
  uint32_t n_stop_ids;
  const df_constraint *constraint; /* copied; NULL = every token may come */
  uint32_t width;                  /* most rows of its verify blocks, 1 = no drafting */
  bool auto_width;                 /* the controller chooses among 1..width */
  bool logprobs;                   /* of every kept token */
  uint32_t n_top;                  /* best alternatives of every kept token */
  bool prompt_logprobs;            /* of every prompt token; top likewise */
} df_request_config;

typedef enum df_req_state { DF_REQ_PREFILL, DF_REQ_DECODE, DF_REQ_DONE } df_req_state;

typedef struct df_request {
  df_generate_params p; /* its pointers are borrowed for the life of the request */
  df_req_state state;
  df_status failed; /* why it ended, when not DF_OK; `why` has the words */
  df_error why;
  df_model *m;                 /* borrowed */
  df_workspace *ws;            /* borrowed: output rows of the target's last pass */
  df_sampler_scratch *scratch; /* borrowed */

  int32_t *ids; /* [cap] prompt, then kept tokens */
  uint32_t n_ids, cap, n_prompt;
  uint32_t n_valid; /* ids[0 .. n_valid) have K and V */
  uint32_t n_ctx;
  df_kv_seq seq;
  uint32_t width;        /* most rows of its verify blocks; 1 = no drafting */
  bool auto_width;       /* the controller chooses */
  df_width_estimate est; /* acceptance by slot, for the width controller */
  df_pending pending;    /* what the draft's K and V lack of plain steps */

  df_stop stop;
  df_detok detok;
  df_seen seen;
  bool penalties; /* picking needs the token history */
  bool greedy;    /* the best token is the answer: no logits needed */
  bool cancelled;
  df_buf raw, text; /* bytes behind the stop filter; UTF-8 ready to leave */
  df_result r;
  int32_t matched_id, matched_string; /* what ended it, else -1 */

  df_constraint constraint; /* ctx is borrowed */
  uint64_t *allowed;        /* its mask, as wide as the rows of logits; NULL without a constraint */
  /* Logprobs: of the kept tokens while the callback runs, of the prompt once it is in. */
  uint32_t n_top;
  float *logprobs, *prompt_logprobs;  /* [DF_MAX_WIDTH], [n_prompt]; NULL when not asked for */
  df_token_logprob *top, *prompt_top; /* [..][n_top] */
  uint64_t t_call, t_start, t_first;  /* ns: made, admitted, first token */
  /* while a step is accepted */
  uint32_t base; /* position that row 0 predicts */
  const int32_t *drafted;
  bool ended;        /* the constraint lets nothing follow the rows picked so far */
  uint32_t followed; /* tokens that the constraint had taken before */
} df_request;

/* Takes a copy of the prompt and of gen; n_ctx bounds prompt and output. Allocates everything but the page table, which
 * comes with df_request_admit. Needs nothing of an engine at work, so any thread may call it. Errors: ARGUMENT, LIMIT
 * (prompt does not fit), MEMORY. */
df_status df_request_init(df_request *q, df_model *m, const int32_t *ids, size_t n, uint32_t n_ctx,
                          const df_request_config *c, df_error *err) DF_CHECK;
/* The request takes part in steps from now on. seq: an initialised page table, taken over on success, which holds the
 * first n_valid positions. ws, scratch: of the engine. Again after df_request_park. */
void df_request_admit(df_request *q, df_workspace *ws, df_sampler_scratch *scratch, df_kv_seq *seq, uint32_t n_valid);
/* Takes it out of the steps: the caller gets the page table. What was generated stays; positions are computed anew when
 * it is admitted again, and the text goes on as if nothing had happened. */
df_kv_seq df_request_park(df_request *q);
/* Positions whose K and V the next decode step needs: the prompt, or all but the last token of what was generated. */
static inline uint32_t df_request_fill(const df_request *q) {
  return q->n_ids > q->n_prompt ? q->n_ids - 1 : q->n_prompt;
}
/* Ends it with a failure of its own. */
void df_request_fail(df_request *q, df_status s, const df_error *why);
/* How it failed, into *err; DF_OK when it did not. */
df_status df_request_status(const df_request *q, df_error *err) DF_CHECK;
/* Frees everything but the page table, which the caller takes or gives back. */
void df_request_release(df_request *q);

/* Its tokens are the best of each row, whatever came before: nothing has to be picked. */
static inline bool df_request_takes_best(const df_request *q) { return q->greedy && !q->allowed; }

/* df_step_pick for this request. A failure is the request's alone: it becomes DONE, the row accepts nothing (id -1),
 * and the step goes on for the others. The same id says that nothing may follow: a grammar has ended. */
df_status df_request_pick(void *ctx, uint32_t row, uint32_t out_row, int32_t *id, df_error *err);

/* Tokens that a step or the prefill yielded, in order: through the stop filter and the detokeniser to the callback.
 * Sets state DONE when the end is reached. out_row: row of the first token, for logprobs and the logits hash. n may be
 * 0 when a grammar has ended. */
df_status df_request_emit(df_request *q, const int32_t *ids, uint32_t n, uint32_t out_row, uint32_t drafted,
                          uint32_t accepted, df_error *err) DF_CHECK;

/* Logprobs of the prompt tokens that rows of positions first .. first+n-1 predict. */
df_status df_request_score_prompt(df_request *q, uint32_t first, uint32_t n, uint32_t out_row, df_error *err) DF_CHECK;

/* Ends a request from outside: what is held back leaves. */
df_status df_request_cancel(df_request *q, df_error *err) DF_CHECK;
/* True when its flag or callback asked to stop. */
bool df_request_wants_cancel(const df_request *q);

#endif
