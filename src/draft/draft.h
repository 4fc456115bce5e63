/*
 * draft/draft.h - an open DFlash draft: fusion, layers, norm; the embedding and head are its target's.
 * Source: DFlash, arXiv 2602.06036; GGUF architecture "dflash".
 */
#ifndef DF_DRAFT_DRAFT_H
#define DF_DRAFT_DRAFT_H

#include "model/model.h"

struct df_draft {
  df_config cfg;
  df_model *target; /* borrowed */
  df_source *source;
  df_weights fc;      /* [hidden][n_taps * hidden] */
  float *hidden_norm; /* of the fused feature */
  float *final_norm;
  df_layer *layers; /* [n_layers] */
  void *block;
  size_t block_bytes;
  /* Drafting from the most frequent tokens only: rows of the target's head, gathered. */
  df_weights sub_head; /* n = 0 when the whole head is used */
  int32_t *sub_ids;    /* [sub_head.n] token of each row, ascending */
  void *sub_block;
  size_t sub_bytes;
};

#endif
