/*
 * spec/step.h - one step of a generation: draft a block, verify it, accept, inject.
 *
 * Invariant on entry and exit: target KV and draft KV are valid for exactly positions 0 .. n-1; the anchor, the last
 * emitted token, sits at position n and has no KV yet.
 *
 * Threads: one owner.
 */
#ifndef DF_SPEC_STEP_H
#define DF_SPEC_STEP_H

#include <signal.h>

#include "draft/drafter.h"
#include "spec/accept.h"

typedef struct df_stepper {
  df_target *target;   /* borrowed */
  df_drafter *drafter; /* borrowed; NULL = plain decoding */
  df_pages *pages;     /* borrowed */
} df_stepper;

typedef struct df_step_in {
  df_kv_seq *seq;
  uint32_t n;        /* valid positions */
  int32_t anchor;
  uint32_t width;    /* rows of the verify pass; 1 = decode without drafting */
  bool need_logits;  /* the picker reads logit rows; else only the best token of each */
  df_accept_pick pick; /* the target's token after row r; rows are asked in order, see spec/accept.h */
  void *pick_ctx;
} df_step_in;

typedef struct df_step_out {
  int32_t drafted[DF_TILE_ROWS];
  uint32_t n_drafted;
  uint32_t accepted;
  int32_t next;  /* the bonus: the new anchor */
  uint64_t draft_ns, verify_ns, pick_ns, inject_ns;
} df_step_out;

/* Emits drafted[0..accepted) and next. On success positions 0 .. n+accepted are valid. LIMIT when the KV pool is full;
 * the sequence is then as before. */
df_status df_spec_step(const df_stepper *s, const df_step_in *in, df_step_out *out, df_error *err) DF_CHECK;

/* Records the passes of a step of this width (and of plain decoding), so that no step allocates. */
df_status df_spec_prepare(const df_stepper *s, uint32_t width, bool need_logits, df_error *err) DF_CHECK;

/* Prefill of ids at positions first .. first+n-1, chunk by chunk, with injection. Afterwards output row 0 of the
 * workspace is the row behind the last token. cancel may be NULL; when
 * it becomes true between chunks the call fails with DF_ERR_CANCELLED. */
df_status df_spec_prefill(const df_stepper *s, df_kv_seq *seq, const int32_t *ids, uint32_t n, uint32_t first,
                          const volatile sig_atomic_t *cancel, df_error *err) DF_CHECK;

#endif
