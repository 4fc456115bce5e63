/*
 * draft/fit.h - does a DFlash draft belong to a target?
 *
 * A draft reads the target's residual stream (width, tapped layers), its embedding of the mask token and its output
 * head (vocabulary), and proposes ids of its tokenizer. Each of these is compared, so that a wrong pair is refused with
 * a reason instead of running with an acceptance near zero.
 *
 * Ownership: plain data. Threads: pure function.
 */
#ifndef DF_DRAFT_FIT_H
#define DF_DRAFT_FIT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "format/config.h"

typedef enum df_fit_verdict {
  DF_FIT_OK,
  DF_FIT_BAD,
  DF_FIT_NOT_STATED /* one of the two files does not say; taken as fitting */
} df_fit_verdict;

/* In the order in which they are reported. */
typedef enum df_fit_what {
  DF_FIT_KIND,      /* the draft is a DFlash draft, the target is not */
  DF_FIT_WIDTH,     /* hidden */
  DF_FIT_VOCAB,     /* rows of the embedding table */
  DF_FIT_TAPS,      /* every tapped layer exists, and the layer counts agree when the draft states one */
  DF_FIT_MASK,      /* the mask token is a row of the target's embedding */
  DF_FIT_TOKENIZER, /* hash of token texts and merges */
  DF_FIT_COUNT
} df_fit_what;

typedef struct df_fit_item {
  const char *name; /* "width", static storage */
  df_fit_verdict verdict;
  char target[96], draft[96]; /* both values as text, "not stated" when absent */
} df_fit_item;

typedef struct df_fit_report {
  df_fit_item item[DF_FIT_COUNT];
  bool fits; /* no item is bad */
} df_fit_report;

/* Compares. A tokenizer hash of 0 means unknown. *report (may be NULL) is filled in every case. DF_OK when the draft
 * fits, else DF_ERR_MISMATCH naming the first item that differs with both values. */
df_status df_draft_check_fit(const df_config *target, const df_config *draft, uint64_t target_tok_hash,
                             uint64_t draft_tok_hash, df_fit_report *report, df_error *err) DF_CHECK;

#endif
