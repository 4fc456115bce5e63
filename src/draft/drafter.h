/*
 * draft/drafter.h - a draft at work beside its target: draft KV on the same slots, injection, block passes.
 *
 * Invariant between steps: draft KV is valid for exactly the positions whose target KV is valid, except those whose
 * injection waits (spec/step.h). The K and V of block rows are written to the reserved slots behind them and
 * overwritten by the next injection.
 *
 * Ownership: owns its memory and attention backend, borrows draft and target. Threads: one owner.
 */
#ifndef DF_DRAFT_DRAFTER_H
#define DF_DRAFT_DRAFTER_H

#include "draft/draft.h"
#include "model/target.h"

typedef struct df_drafter {
  df_draft *d;
  df_target *target;
  df_batch inject_batch; /* rows whose features go into draft KV */
  df_batch batch;        /* block rows */
  df_workspace ws;
  df_rope rope;
  df_kv_store kv;
  df_attn *attn;
  df_runner runner;
  df_act taps;    /* [max_rows] n_taps * hidden: gathered rows, as fc reads them */
  float *fused;   /* [max_rows][hidden] */
  df_act feature; /* [max_rows] hidden: normalised */
  float *kv_rows; /* [max_rows][n_layers * 2 * kv_ld] */
  size_t kv_ld;   /* n_kv * head_dim */
  void *block;
  size_t block_bytes;
  uint64_t injections; /* passes so far */
} df_drafter;

/* max_width: rows of a block, anchor included, at least 2. */
df_status df_drafter_init(df_drafter *r, df_draft *d, df_target *target, uint32_t max_width, bool graphs,
                          df_error *err) DF_CHECK;
void df_drafter_release(df_drafter *r);

/* What injection and drafting need to know of one sequence. */
typedef struct df_inject_item {
  const df_kv_seq *seq;
  uint32_t row0;  /* first row: of the target's last pass, or kept (df_target_keep) */
  uint32_t n;     /* rows */
  uint32_t first; /* position of row0 */
} df_inject_item;

typedef struct df_draft_item {
  const df_kv_seq *seq; /* slots n .. n+width-1 are reserved */
  int32_t anchor;
  uint32_t n;       /* the anchor's position */
  int32_t *drafted; /* [width - 1] result on the host; elsewhere drafts stay there (df_target.drafts) */
  float *sure;      /* [width - 1] result: the draft's probability of each among the tokens it chooses from; NULL =
                     * not asked. Only where logits lie on the host (device.is_host) */
} df_draft_item;

/* Fuses tapped rows of the target into draft K and V: the bits of a row do not depend on the others. */
df_status df_drafter_inject(df_drafter *r, const df_inject_item *items, uint32_t n_items, df_error *err) DF_CHECK;

/* Runs one block of `width` rows for every sequence: row 0 is the anchor, the others are mask tokens. */
df_status df_drafter_draft(df_drafter *r, const df_draft_item *items, uint32_t n_items, uint32_t width,
                           df_error *err) DF_CHECK;

/* Records the block pass of up to `seqs` sequences and the injection behind it, so that no later step allocates. */
df_status df_drafter_prepare(df_drafter *r, uint32_t seqs, uint32_t width, df_error *err) DF_CHECK;

#endif
