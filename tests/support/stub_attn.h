/*
 * support/stub_attn.h - attention backends that do nothing but answer, count and remember: leaves with any
 * capabilities, wrappers around one child, broken ones. And a poke that redirects a real wrapper's child.
 *
 * Ownership: stubs are plain variables of the test; their free op only counts. Threads: one.
 */
#ifndef DF_TEST_SUPPORT_STUB_ATTN_H
#define DF_TEST_SUPPORT_STUB_ATTN_H

#include "attention/backend.h"

/* Members of df_attn_ops, in order. */
typedef enum stub_op {
  STUB_CAPS,
  STUB_GRAPH_INIT,
  STUB_PLAN,
  STUB_EMIT,
  STUB_EXECUTOR,
  STUB_MASK,
  STUB_HALF,
  STUB_COMMIT,
  STUB_FREE,
  STUB_OPS
} stub_op;

typedef enum stub_kind { STUB_LEAF, STUB_WRAPPER } stub_kind;

typedef struct stub_attn {
  df_attn base;
  stub_kind kind;
  df_attn_caps caps;
  df_attn *child; /* of a wrapper; NULL = nobody */
  df_attn *half[2];
  df_verify_mask mask;
  df_status result; /* what the status ops answer */
  uint32_t calls[STUB_OPS];
  /* arguments of the last call */
  const df_program *program;
  const df_batch *batch;
  const df_attn_pass *pass;
  const df_attn_layer *layer;
  const uint32_t *lens;
  df_mode mode;
  df_attn_phase phase;
  uint32_t n_seqs, n_rows, index;
} stub_attn;

/* A causal leaf for everything, able to read both mask layouts. */
df_attn_caps stub_caps_all(void);
stub_attn stub_leaf(const char *label, df_attn_caps caps);
stub_attn stub_wrapper(const char *label, df_attn *child);
/* The label's pointer in `w`'s memory is left alone; the first of the next few words that is `from` becomes `to`. Fails
 * the current test when there is none. For wrappers whose create function could never build what a test wants to see.
 */
void stub_redirect(df_attn *w, const df_attn *from, df_attn *to);

#endif
