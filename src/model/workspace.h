/*
 * model/workspace.h - the activations of a pass. All programs of a model share one workspace, since one runs at a
 * time; addresses are fixed, so recorded programs stay valid.
 *
 * On a device that is not the host tokens come back by themselves (`token`, `drafted`, `accepted`); logits are brought
 * over row by row when somebody asks for them.
 */
#ifndef DF_MODEL_WORKSPACE_H
#define DF_MODEL_WORKSPACE_H

#include "device/device.h"

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
  /* elsewhere than on the host; else NULL */
  float *draft_best; /* [max_out][segments]: as best, of the draft's rows that the next pass verifies */
  uint32_t *draft_best_id;
  int32_t *token;     /* [max_out]: what a pass with an argmax tail leaves, see df_op_accept */
  int32_t *drafted;   /* [max_out] */
  uint32_t *accepted; /* [max_out] */
  void *block;
  size_t bytes;
  df_device *device; /* borrowed; NULL = the host */
  uint8_t *here;     /* [max_out] logits of the row were brought over; NULL on the host, where they always are */
} df_workspace;

typedef struct df_workspace_shape {
  uint32_t max_rows, max_out;
  uint32_t hidden, n_heads, n_kv, head_dim, ffn, vocab;
  uint32_t segments;
} df_workspace_shape;

/* A view of the workspace whose row 0 is row `row` of w: for the halves of a split batch. Activation tiles must not
 * share rows, so they start at the next tile behind `row`. */
df_workspace df_workspace_view(const df_workspace *w, uint32_t row);

/* Allocates and maps on a device (NULL = the host). */
df_status df_workspace_init(df_workspace *w, const df_workspace_shape *s, df_device *device, df_error *err) DF_CHECK;
void df_workspace_release(df_workspace *w);

/* Logits of output row r of the last pass that had a tail. Errors: those of the device. */
df_status df_workspace_logits(df_workspace *w, uint32_t r, const float **out, df_error *err) DF_CHECK;
/* A pass is about to write other logits. */
void df_workspace_forget_logits(df_workspace *w);
/* Where an argmax op leaves the best of each row of logits. */
static inline df_best df_workspace_best_logits(const df_workspace *w) {
  return (df_best){.value = w->best, .id = w->best_id, .segments = w->segments};
}
/* Best token of output row r after a pass with an argmax tail over n tokens. */
int32_t df_workspace_best(const df_workspace *w, uint32_t r);

#endif
