/*
 * attention/verify_mask.h - does the verify pass need a mask, and who would read it?
 *
 * The question is put to the executor: the leaf that runs TARGET_VERIFY, found through any legal nesting by asking each
 * wrapper, never by its name or type. A linear chain on a causal leaf needs no mask. A tree always does, so a tree on a
 * leaf that cannot read one is refused.
 */
#ifndef DF_ATTENTION_VERIFY_MASK_H
#define DF_ATTENTION_VERIFY_MASK_H

#include "attention/backend.h"

enum { DF_ATTN_MAX_DEPTH = 8 }; /* wrappers above a leaf; the deepest legal stack is tbo, hybrid_linear, hybrid */

typedef enum df_draft_shape { DF_DRAFT_CHAIN, DF_DRAFT_TREE } df_draft_shape;

typedef struct df_mask_decision {
  const df_attn *executor;
  df_mask_layout layout; /* NONE when no mask is built */
  const char *reason;    /* for people, static storage */
  uint32_t depth;        /* wrappers passed */
} df_mask_decision;

/* The leaf that runs `mode`. DF_ERR_ARGUMENT for a nesting deeper than DF_ATTN_MAX_DEPTH or one that leads back to
 * itself, DF_ERR_INTERNAL for a wrapper without a child. */
df_status df_attn_resolve(df_attn *a, df_mode mode, df_attn **leaf, uint32_t *depth, df_error *err) DF_CHECK;

/* DF_ERR_UNSUPPORTED, naming the outermost backend and the leaf, for a tree on a leaf that cannot read masks. */
df_status df_verify_mask_policy(df_attn *a, df_draft_shape shape, df_mask_decision *out, df_error *err) DF_CHECK;

#endif
