/*
 * model/workspace.h - the activations of a pass. All programs of a model share one workspace, since one runs at a
 * time; addresses are fixed, so recorded programs stay valid.
 */
#ifndef DF_MODEL_WORKSPACE_H
#define DF_MODEL_WORKSPACE_H

#include "device/program.h"

typedef struct df_workspace {
  uint32_t max_rows; /* rows of a pass */
  uint32_t max_out;  /* rows of the output tail */
  float *x;          /* [max_rows][hidden] residual stream */
  float *qkv;        /* [max_rows][qkv_ld]: q, k, v beside each other */
  size_t qkv_ld;
  df_act norm;   /* [max_rows] hidden: normalised stream */
  df_act attn;   /* [max_rows] n_heads * head_dim */
  df_act ffn;    /* [max_rows] ffn */
  df_act tail;   /* [max_out] hidden */
  float *logits; /* [max_out][logits_ld] */
  size_t logits_ld;
  float *best; /* [max_out][segments] */
  uint32_t *best_id;
  uint32_t segments; /* argmax segments per row */
  void *block;
  size_t bytes;
} df_workspace;

typedef struct df_workspace_shape {
  uint32_t max_rows, max_out;
  uint32_t hidden, n_heads, n_kv, head_dim, ffn, vocab;
  uint32_t segments;
} df_workspace_shape;

/* A view of the workspace whose row 0 is row `row` of w: for the halves of a split batch. Activation tiles must not
 * share rows, so they start at the next tile behind `row`. */
df_workspace df_workspace_view(const df_workspace *w, uint32_t row);

df_status df_workspace_init(df_workspace *w, const df_workspace_shape *s, df_error *err) DF_CHECK;
void df_workspace_release(df_workspace *w);

#endif
