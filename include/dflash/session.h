/*
 * dflash/session.h - one conversation: its KV cache, generation with and without a draft, scoring, statistics.
 *
 * Ownership: a session borrows its model and draft; free sessions first.
 * Threads:   calls on sessions of one model must not overlap. `cancel` flags may be set from any thread or a
 *            signal handler.
 * Promise:   the text of a generation depends on the model, the ids and the parameters only: not on the draft, the
 *            width, the thread count, the attention backends, eager or replayed programs, or cached turns.
 */
#ifndef DFLASH_SESSION_H
#define DFLASH_SESSION_H

#include <signal.h>

#include "dflash/model.h"
#include "dflash/sampling.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { DF_MAX_WIDTH = 16 };                    /* rows of a verify block: anchor + up to 15 drafted tokens */
enum { DF_CTX_MIN = 2, DF_CTX_MAX = 1 << 20 }; /* range of df_session_params.n_ctx */

typedef struct df_session df_session;

typedef struct df_session_params {
  uint32_t n_ctx;         /* positions of the KV cache, from DF_CTX_MIN; 0 = the model's own limit, at most 8192 */
  bool kv_f32;            /* store K and V as float32 instead of half */
  int32_t spec_draft_max; /* drafted tokens per step, bonus not counted (width = this + 1); -1 = default of the draft */
  bool no_graph;          /* emit programs anew for every step instead of replaying recorded ones */
  const char *attention_backend;         /* "naive", "flash", "splitkv" or an alias; NULL = default */
  const char *prefill_attention_backend; /* overrides for one phase; NULL = attention_backend */
  const char *decode_attention_backend;
  const char *verify_attention_backend;   /* own slot for verify; NULL = by speculative_attention_mode */
  const char *speculative_attention_mode; /* "prefill" (default) or "decode" */
  bool two_batch_overlap;                 /* run the two halves of a batch interleaved */
  uint32_t page_size;                     /* tokens per KV page: 1, 16 or 64; 0 = 16 */
  const uint32_t *graph_seqs; /* ascending batch sizes that programs are recorded for; NULL = a default list */
  uint32_t n_graph_seqs;
  uint64_t graph_memory; /* most bytes recorded programs may take; 0 = no limit */
} df_session_params;

DF_API df_session_params df_session_params_default(void);

/* draft may be NULL (plain decoding). Errors: ARGUMENT, MEMORY, UNSUPPORTED (a backend that cannot do its phase). */
DF_API df_status df_session_create(df_model *model, df_draft *draft, const df_session_params *params, df_session **out,
                                   df_error *err) DF_CHECK;
DF_API void df_session_free(df_session *s);  /* NULL is fine */
DF_API void df_session_reset(df_session *s); /* forgets all cached tokens */
DF_API uint32_t df_session_n_ctx(const df_session *s);
DF_API uint32_t df_session_n_cached(const df_session *s); /* tokens whose KV is valid */

typedef enum df_finish {
  DF_FINISH_NONE,     /* goes on */
  DF_FINISH_EOS,      /* an end token of the model */
  DF_FINISH_ID,       /* a stop token of the request */
  DF_FINISH_STRING,   /* a stop string */
  DF_FINISH_LENGTH,   /* max_tokens */
  DF_FINISH_CONTEXT,  /* the KV cache is full */
  DF_FINISH_CANCELLED /* the callback or the cancel flag */
} df_finish;

/* "stop", "length", "cancelled" or "": the word clients see. */
DF_API const char *df_finish_name(df_finish f);

/* A piece of output. text is complete UTF-8 (may be empty while bytes are held back); ids are the tokens of this
 * step that are kept, n_ids may be 0 for a final flush. Pointers are valid during the call only. */
typedef struct df_event {
  const char *text;
  size_t text_len;
  const int32_t *ids;
  uint32_t n_ids;
  uint32_t n_drafted;  /* of the step */
  uint32_t n_accepted; /* of the step */
} df_event;
typedef bool (*df_event_fn)(void *user, const df_event *ev); /* false = stop after this token */

typedef struct df_generate_params {
  uint32_t max_tokens; /* at least 1 */
  uint32_t min_tokens; /* end tokens are not allowed to end the text before this many */
  bool ignore_eos;
  bool show_special;       /* control tokens appear in the text */
  const char *const *stop; /* stop strings, borrowed */
  uint32_t n_stop;
  df_sampling_params sampling;
  bool hash_logits;     /* fill df_result.logits_hash: reads all logits of every kept position (slower) */
  df_event_fn on_event; /* may be NULL */
  void *user;
  const volatile sig_atomic_t *cancel; /* polled once a step; may be NULL */
} df_generate_params;

DF_API df_generate_params df_generate_params_default(void);

typedef struct df_stats {
  uint32_t prompt_tokens;                           /* length of the prompt */
  uint32_t cached_tokens;                           /* of these, taken from the session's cache */
  uint32_t new_tokens;                              /* kept tokens */
  uint32_t steps;                                   /* target passes after prefill */
  uint32_t verify_steps;                            /* of these, passes that verified drafts */
  uint32_t drafted, accepted;                       /* tokens, all verify steps */
  uint32_t drafted_at[DF_MAX_WIDTH];                /* [j] = steps that drafted slot j + 1 */
  uint32_t accepted_at[DF_MAX_WIDTH];               /* [j] = steps that accepted slot j + 1 */
  uint32_t width_steps[DF_MAX_WIDTH + 1];           /* [w] = steps that verified w rows; [1]: plain ones, too */
  uint32_t emitted_verify;                          /* tokens emitted by verify steps, bonus included */
  double prefill_ms, decode_ms;                     /* wall time; decode excludes prefill */
  double draft_ms, verify_ms, inject_ms, sample_ms; /* parts of decode_ms; on a card verify_ms holds what drafts take */
  double first_token_ms;                            /* from the call to the first token */
  uint64_t step_allocations;                        /* heap allocations during decode steps (0 expected) */
  uint32_t cut; /* drafted tokens that were not verified, since the draft was not sure of them; not part of drafted */
} df_stats;

/* Mean emitted tokens per verify step, bonus included; 1 when nothing was drafted. */
DF_API double df_stats_accept_length(const df_stats *st);

typedef struct df_result {
  df_finish finish;
  const int32_t *ids; /* kept tokens; borrowed from the session until the next call on it */
  uint32_t n_ids;
  uint64_t logits_hash; /* chained over kept positions when hash_logits, else 0 */
  df_stats stats;
} df_result;

/* Continues after `ids` (the whole conversation so far). The longest prefix that the session still holds is
 * reused. Errors: ARGUMENT (empty prompt, max_tokens 0, ids out of range), LIMIT (prompt does not fit n_ctx), MEMORY.
 * A cancelled generation is a success with finish DF_FINISH_CANCELLED. */
DF_API df_status df_session_generate(df_session *s, const int32_t *ids, size_t n, const df_generate_params *params,
                                     df_result *out, df_error *err) DF_CHECK;

/* Teacher-forced scoring: logprob[i] = ln p(ids[i+1] | ids[0..i]), i < n-1. Resets the session first; n >= 2.
 * When n exceeds n_ctx: LIMIT. progress may be NULL. */
DF_API df_status df_session_score(df_session *s, const int32_t *ids, size_t n, double *logprob, df_progress_fn progress,
                                  void *user, df_error *err) DF_CHECK;

#ifdef __cplusplus
}
#endif
#endif
