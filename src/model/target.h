/*
 * model/target.h - a target at work: KV store, workspace, static inputs, recorded passes.
 *
 * Ownership: owns the attention backend it was given, and all memory of the passes; borrows the model.
 * Threads:   one owner.
 */
#ifndef DF_MODEL_TARGET_H
#define DF_MODEL_TARGET_H

#include "kv/fill.h"
#include "model/model.h"
#include "model/runner.h"

typedef struct df_target_params {
  uint32_t max_seqs;
  uint32_t max_rows;      /* rows of one prefill pass, at least 16 */
  uint32_t max_out;       /* output rows of one pass: max_seqs * width at most */
  uint32_t max_positions; /* of a sequence */
  const df_pages *pages;  /* the KV pool, read at init only */
  df_kv_type kv;
  bool graphs;
  df_attn *attn;        /* taken over */
  const uint32_t *taps; /* ascending; NULL without a draft */
  uint32_t n_taps;
  uint32_t keeps;              /* sequences whose tapped rows of plain steps may be kept, at most 64 */
  df_mask_layout verify_mask;  /* decision of the verify-mask policy */
  const uint32_t *seq_buckets; /* ascending sequence counts to record programs for; NULL = default list */
  uint32_t n_seq_buckets;
} df_target_params;

enum { DF_MAX_BUCKETS = 64 }; /* as many as a step has sequences at most, so no list is ever cut */

typedef struct df_target {
  df_model *m;
  df_target_params p; /* taps point into own memory */
  uint32_t tap_ids[DF_LIMIT_TAPS];
  uint32_t buckets[DF_MAX_BUCKETS];
  df_batch batch;
  df_batch halves[2]; /* views of batch for two-batch overlap */
  df_workspace half_ws[2];
  df_mask_buffer mask; /* static input of programs captured with a verify mask */
  df_workspace ws;
  df_rope rope;
  df_kv_store kv;
  df_attn *attn;
  df_runner runner;
  float *taps; /* [p.max_rows of the last pass, then p.keeps * DF_TILE_ROWS kept ones][n_taps * hidden] */
  size_t taps_bytes;
  uint64_t kept;  /* bit i: the i-th DF_TILE_ROWS of the kept rows are somebody's */
  df_best drafts; /* where the one drafter of this target leaves its tokens (ws.draft_best); for DF_TAIL_DRAFTED */
} df_target;

/* On failure the backend is freed too. */
df_status df_target_init(df_target *t, df_model *m, const df_target_params *p, df_error *err) DF_CHECK;
void df_target_release(df_target *t);

/* Runs the pass that t->batch describes (kv/fill.h); a uniform pass is padded to its sequence bucket. Afterwards
 * ws.logits holds the output rows (every tail but NONE), taps the tapped rows (when the target has taps), K and V are
 * written. DRAFTED (uniform, width 2 and more): ids of the rows behind each sequence's first one are not read. */
df_status df_target_run(df_target *t, df_mode mode, df_tail tail, df_error *err) DF_CHECK;

/* DF_TILE_ROWS tapped rows for the caller alone: the first one, 0 when there are none left. Row r of a pass leaves its
 * taps there when batch.tap_row[r] says so, and later passes leave them alone until they are given back. */
uint32_t df_target_keep(df_target *t);
void df_target_give_back(df_target *t, uint32_t row0);

/* Records the uniform pass of up to `seqs` sequences with `width` rows each (1 = decode). */
df_status df_target_prepare(df_target *t, uint32_t seqs, uint32_t width, df_tail tail, df_error *err) DF_CHECK;

/* Sequence counts that programs are recorded for: the smallest one that holds n, or n itself above the list. */
uint32_t df_target_bucket(const df_target *t, uint32_t n);

#endif
