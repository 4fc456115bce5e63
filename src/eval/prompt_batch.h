/*
 * eval/prompt_batch.h - many prompts through one engine: up to `parallel` at a time, each replaced at once by the next
 * when it ends. What all prompts begin with is computed once and its pages are shared. Texts depend on neither.
 *
 * Threads: one owner.
 */
#ifndef DF_EVAL_PROMPT_BATCH_H
#define DF_EVAL_PROMPT_BATCH_H

#include "engine/engine.h"

typedef struct df_batch_prompt {
  const int32_t *ids; /* borrowed */
  size_t n;
} df_batch_prompt;

/* One finished answer, valid during the call. */
typedef struct df_batch_answer {
  uint32_t index; /* of the prompt */
  const char *text;
  size_t n_text;
  const int32_t *ids;
  uint32_t n_ids;
  df_finish finish;
  const df_stats *stats;
} df_batch_answer;

typedef struct df_batch_params {
  df_generate_params gen; /* on_event and user are ignored */
  uint32_t parallel;      /* 1 .. max_seqs of the engine */
  bool no_prefix_cache;
  df_status (*on_answer)(void *user, const df_batch_answer *a, df_error *err); /* in the order of ending */
  void (*on_tokens)(void *user, uint32_t n);                                   /* new tokens of a step; may be NULL */
  void *user;
} df_batch_params;

/* Tokens that every one of n prompts begins with, at most one less than the shortest. */
size_t df_batch_common(const df_batch_prompt *p, uint32_t n);

/* Runs all prompts. CANCELLED when gen.cancel was raised: answers that were not finished are dropped. */
df_status df_batch_run(df_engine *e, const df_batch_prompt *p, uint32_t n, const df_batch_params *bp,
                       df_error *err) DF_CHECK;

#endif
