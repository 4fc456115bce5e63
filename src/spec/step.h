/*
 * spec/step.h - one step of a group of sequences: draft a block each, verify them in one pass, accept, inject.
 *
 * Invariant on entry and exit, per sequence: target KV is valid for exactly positions 0 .. n-1, draft KV for the same
 * positions except pending ones; the anchor, the last emitted token, sits at position n and has no KV yet.
 *
 * Threads: one owner.
 */
#ifndef DF_SPEC_STEP_H
#define DF_SPEC_STEP_H

#include "draft/drafter.h"
#include "spec/accept.h"

typedef struct df_stepper {
  df_target *target;   /* borrowed */
  df_drafter *drafter; /* borrowed; NULL = plain decoding */
  df_pages *pages;     /* borrowed */
} df_stepper;

/* The target's token after row `row` of a sequence; out_row is its row in the target's workspace. Rows are asked in
 * order, and only as far as drafts are accepted: see spec/accept.h. */
typedef df_status (*df_step_pick)(void *ctx, uint32_t row, uint32_t out_row, int32_t *id, df_error *err);

/* Tapped rows of plain steps whose features are not in draft KV yet: nobody reads them before the next draft, and many
 * rows are injected for the price of one. They stay where the passes left them, on a card too. Starts all zero. */
typedef struct df_pending {
  df_target *target; /* borrowed; whose rows they are */
  uint32_t row0;     /* the first of its kept rows (df_target_keep); 0 = none are held */
  uint32_t n;        /* rows that wait */
  uint32_t first;    /* position of row0; the others follow */
} df_pending;

/* One sequence of a step. */
typedef struct df_step_item {
  df_kv_seq *seq;
  df_pending *pending; /* NULL: plain steps inject at once, as they do when no rows can be kept */
  uint32_t n;          /* valid positions */
  int32_t anchor;
  df_step_pick pick; /* NULL: the best token of each row; need_logits must be false then */
  void *pick_ctx;
  /* results: drafted[0 .. accepted) and next are emitted; positions 0 .. n+accepted are valid */
  int32_t drafted[DF_TILE_ROWS];
  float sure[DF_TILE_ROWS]; /* the draft's probability of each, when the block may be cut */
  uint32_t n_drafted;       /* drafts that were verified */
  uint32_t n_cut;           /* drafts behind these that were not */
  uint32_t accepted;
  int32_t next;     /* the bonus: the new anchor */
  uint32_t out_row; /* of row 0 */
} df_step_item;

/* Where drafts stay on the device, the draft is waited for with the verify pass: its time is in verify_ns then, and so
 * is that of catching up. */
typedef struct df_step_times {
  uint64_t draft_ns, verify_ns, pick_ns, inject_ns;
  uint64_t catch_up_ns; /* injecting what plain steps left, in front of the draft; 0 = there was nothing */
} df_step_times;

static inline double df_step_verify_ms(const df_step_times *t) { return (double)(t->verify_ns + t->pick_ns) / 1e6; }
static inline double df_step_draft_ms(const df_step_times *t) { return (double)(t->draft_ns + t->inject_ns) / 1e6; }

/* How many rows (1 .. width) of the drafted blocks to verify; items hold drafted and sure. */
typedef uint32_t (*df_step_cut)(void *ctx, const df_step_item *items, uint32_t n_items, uint32_t width);

typedef struct df_step_plan {
  uint32_t width;   /* rows of a block per sequence; 1 = decode without drafting */
  bool need_logits; /* a picker reads logit rows itself; else the best token of each row is found on the device */
  df_step_cut cut;  /* NULL = all rows are verified. Only where the model's device is the host */
  void *cut_ctx;
  bool apart; /* the device is waited for behind draft and injection too: times show what each costs */
} df_step_plan;

/* Slots for n .. n+width-1 must be reserved. */
df_status df_spec_step(const df_stepper *s, df_step_item *items, uint32_t n_items, const df_step_plan *plan,
                       df_step_times *times, df_error *err) DF_CHECK;

/* Injects what is pending, so that draft KV is valid wherever target KV is. */
df_status df_spec_flush(const df_stepper *s, const df_kv_seq *seq, df_pending *pending, df_error *err) DF_CHECK;
/* Nobody needs what is pending any more. */
void df_spec_forget(df_pending *pending);

/* Records the passes of a step of this width (and of plain decoding), so that no step allocates. */
df_status df_spec_prepare(const df_stepper *s, uint32_t seqs, uint32_t width, bool need_logits, df_error *err) DF_CHECK;

/* A share of a prompt: ids at positions first .. first+n-1 of one sequence. */
typedef struct df_prefill_item {
  const df_kv_seq *seq;
  const int32_t *ids;
  uint32_t n, first;
  bool last;        /* the prompt ends here: its last row leaves through the tail */
  bool all;         /* every row leaves */
  uint32_t out_row; /* result: the first row that leaves */
} df_prefill_item;

/* One ragged pass over shares of several prompts, with injection. The sum of n is at most df_spec_prefill_rows. */
df_status df_spec_prefill(const df_stepper *s, df_prefill_item *items, uint32_t n_items, df_error *err) DF_CHECK;

/* Rows that one prefill pass takes. */
uint32_t df_spec_prefill_rows(const df_stepper *s);

#endif
