/*
 * eval/gsm8k.h - the task "gsm8k" of lm-eval 0.4.13 (task version 3.0): its prompts byte for byte, its two ways of
 * finding a number in an answer, its comparison.
 *
 * Prompt:   for each worked example "Question: Q\nAnswer: A\n\n", then "Question: Q\nAnswer:". The examples are drawn
 *           anew for every question, in order, from the training set with random.Random(seed).sample; with
 *           DF_FEWSHOT_FIRST they are the first ones of the file. As chat every example is a user turn
 *           ("Question: Q\nAnswer:") and an assistant turn ("A").
 * Answer:   strict "#### (\-?[0-9\.\,]+)", the first; flexible "(-?[$0-9.,]{2,})|(-?[0-9]+)", the last; "[invalid]"
 *           without. Both sides lose "," and "$", everything up to the last "#### ", and one final "."; then they are
 *           equal or not.
 * Ownership: a df_gsm8k owns its texts. Threads: read only once loaded; a picker belongs to one.
 */
#ifndef DF_EVAL_GSM8K_H
#define DF_EVAL_GSM8K_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "eval/pyrandom.h"

enum { DF_GSM8K_MAX_SHOTS = 64, DF_GSM8K_MAX_TOKENS = 256 /* lm-eval's limit of an answer where a task sets none */ };

typedef struct df_gsm8k_item {
  const char *question, *answer; /* zero-terminated */
  size_t n_question, n_answer;
} df_gsm8k_item;

typedef struct df_gsm8k_set {
  df_gsm8k_item *items; /* owned */
  uint32_t n;
  df_buf text; /* what the items point into */
} df_gsm8k_set;

typedef struct df_gsm8k {
  df_gsm8k_set test, train;
} df_gsm8k;

typedef enum df_fewshot { DF_FEWSHOT_SAMPLED, DF_FEWSHOT_FIRST } df_fewshot;

/* Reads DIR/test.jsonl and, when with_train, DIR/train.jsonl. IO; FORMAT naming the line; LIMIT. */
df_status df_gsm8k_load(df_gsm8k *g, const char *dir, bool with_train, df_error *err) DF_CHECK;
void df_gsm8k_release(df_gsm8k *g); /* an empty one is fine */

/* Draws examples for question 0, 1, 2, ... in turn. */
typedef struct df_gsm8k_picker {
  df_pyrandom rnd;
  df_fewshot how;
  uint32_t shots;
} df_gsm8k_picker;

/* ARGUMENT for more shots than DF_GSM8K_MAX_SHOTS or than the training set holds. */
df_status df_gsm8k_picker_init(df_gsm8k_picker *p, const df_gsm8k *g, df_fewshot how, uint32_t shots, uint64_t seed,
                               df_error *err) DF_CHECK;
/* examples [shots]: indices into the training set for the next question. */
df_status df_gsm8k_pick(df_gsm8k_picker *p, const df_gsm8k *g, uint32_t *examples, df_error *err) DF_CHECK;

/* Appends the prompt of a question as plain text, or as a JSON array of chat messages. */
df_status df_gsm8k_prompt(const df_gsm8k *g, uint32_t question, const uint32_t *examples, uint32_t shots, df_buf *out,
                          df_error *err) DF_CHECK;
df_status df_gsm8k_messages(const df_gsm8k *g, uint32_t question, const uint32_t *examples, uint32_t shots, df_buf *out,
                            df_error *err) DF_CHECK;

/* Where the task ends an answer. */
extern const char *const df_gsm8k_stop[3];

typedef struct df_gsm8k_score {
  const char *strict, *flexible; /* into the answer, or "[invalid]"; not zero-terminated */
  size_t n_strict, n_flexible;
  bool strict_valid, flexible_valid; /* something was found */
  bool strict_ok, flexible_ok;
} df_gsm8k_score;

/* Scores an answer against a solution of the data ("... #### 18"). MEMORY. */
df_status df_gsm8k_score_answer(const char *answer, size_t n, const char *solution, size_t n_solution,
                                df_gsm8k_score *out, df_error *err) DF_CHECK;

#endif
