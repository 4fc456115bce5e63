/*
 * engine/check.h - proves losslessness on a pair of model and draft: runs prompts under every combination of backends,
 * modes, graphs, overlap, widths, batch mixes, page sizes, prefix hits and threads, and compares with plain decoding:
 * on the processor, unless the device's bits are its own for this model (F16 or BF16 weights), then on the device.
 *
 * Ownership: opens and closes its own models. Threads: one caller.
 */
#ifndef DF_ENGINE_CHECK_H
#define DF_ENGINE_CHECK_H

#include "dflash/session.h"

/* BATCH: few combinations otherwise, up to DF_CHECK_MAX_BATCH requests at once. */
typedef enum df_check_matrix { DF_CHECK_QUICK, DF_CHECK_FULL, DF_CHECK_BATCH } df_check_matrix;

enum { DF_CHECK_MAX_BATCH = 32 };

/* Logits that a leaf of another rounding (df_attn_caps.inexact) may turn round: see docs/devices.md. With such a leaf
 * answers are compared up to the first difference; logits are not compared. */
#define DF_CHECK_NEAR_TIE 1.0f

/* One combination. */
typedef struct df_check_case {
  const char *prefill, *decode;
  const char *verify; /* own slot, or NULL */
  const char *mode;   /* speculative attention mode */
  bool graph, tbo, prefix_hit;
  uint32_t width, batch, page_size, threads;
} df_check_case;

/* What came of it. */
typedef struct df_check_outcome {
  df_check_case c;
  bool identical;
  bool near_tie; /* not identical, but with a leaf that rounds otherwise, and only where two tokens are close; below */
  bool refused;  /* not run: an engine of these settings is refused, or a pass of it; see reason */
  char reason[512];
  /* when it ran and differs */
  bool logits_only;                     /* ids agree, a logits hash does not */
  uint32_t request;                     /* of the batch */
  uint32_t position;                    /* first generated token that differs */
  int32_t expected, got;                /* -1: the answer ended there */
  char expected_text[48], got_text[48]; /* of those tokens, as far as it fits */
  float margin;                         /* logit of expected minus logit of got, in plain decoding */
} df_check_outcome;

/* Whether a difference counts as a near tie; inexact: a leaf of another rounding took part. Both answers must have a
 * token there, and plain decoding must hold them DF_CHECK_NEAR_TIE or less apart. */
bool df_check_is_near_tie(const df_check_outcome *o, bool inexact);

typedef struct df_check_summary {
  uint64_t combinations, identical, near_ties, refused, planned;
  double seconds;
  char device[24], reference[24]; /* where the combinations ran, and what they are compared with */
} df_check_summary;

typedef struct df_check_params {
  df_check_matrix matrix;
  const char *device; /* as in df_model_params */
  bool logits;        /* compare hashes of all logits too */
  uint32_t n_tokens;  /* generated per request; 0 = a default by matrix */
  /* Called after every combination; return false to stop (DF_ERR_CANCELLED). */
  bool (*on_case)(void *user, const df_check_outcome *o, const df_check_summary *so_far);
  void *user;
} df_check_params;

/* draft may be NULL: then only width 1 is run. DF_OK also when combinations differ or are refused: see the summary. */
df_status df_check_run(const char *model, const char *draft, const df_check_params *p, df_check_summary *out,
                       df_error *err) DF_CHECK;

#endif
