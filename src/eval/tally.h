/*
 * eval/tally.h - one question's outcome, sums over many, and the statistics that tables need.
 *
 * Standard error of a share: sample standard deviation (n - 1) over sqrt(n), as lm-eval prints it.
 * Ownership: a row owns its texts. Threads: any, one at a time per object.
 */
#ifndef DF_EVAL_TALLY_H
#define DF_EVAL_TALLY_H

#include "base/buf.h"
#include "dflash/session.h"
#include "format/json.h"

typedef struct df_eval_row {
  uint32_t index; /* of the question in its file */
  char *text;     /* the answer, zero-terminated, owned */
  size_t n_text;
  char *strict, *flexible, *target; /* extracted numbers and the right one; owned; NULL where nothing is scored */
  bool strict_ok, flexible_ok, strict_valid, flexible_valid;
  uint64_t ids_hash; /* of the kept token ids */
  char finish[12];   /* "stop", "length", ... */
  double seconds;    /* of the run's wall clock since the row before it */
  df_stats stats;    /* counts; of the times prefill_ms and decode_ms */
} df_eval_row;

void df_eval_row_release(df_eval_row *r);
/* One JSON object without a line end. */
df_status df_eval_row_write(const df_eval_row *r, df_buf *out, df_error *err) DF_CHECK;
/* FORMAT naming the member. On failure *r is empty. */
df_status df_eval_row_read(const df_json *object, df_eval_row *r, df_error *err) DF_CHECK;

typedef struct df_eval_tally {
  uint32_t n, strict, flexible, invalid_strict, invalid_flexible;
  uint32_t ended_by_length; /* answers cut by the token limit or the context */
  uint64_t new_tokens, prompt_tokens, cached_tokens, steps, verify_steps, drafted, accepted, emitted_verify;
  uint64_t drafted_at[DF_MAX_WIDTH], accepted_at[DF_MAX_WIDTH];
  double seconds;
} df_eval_tally;

void df_eval_tally_add(df_eval_tally *t, const df_eval_row *r);
/* Tokens emitted per verify step; 1 without drafting. */
double df_eval_tally_accept_length(const df_eval_tally *t);
double df_eval_tally_speed(const df_eval_tally *t); /* new tokens per second of wall clock; 0 when unknown */
/* The members of an open object. */
void df_eval_tally_json(df_json_out *w, const df_eval_tally *t);

double df_share_stderr(uint32_t hits, uint32_t n); /* 0 for n < 2 */
/* Exact two-sided McNemar test: b questions only the first got right, c only the second. */
double df_mcnemar_p(uint32_t b, uint32_t c);

#endif
