/*
 * model/model.h - an open target: configuration, packed weights, tokenizer, template, the threads it runs on.
 *
 * Ownership: df_model_open creates, df_model_close frees; everything inside belongs to the model.
 * Threads:   immutable after open, except the device, which one thread at a time may use.
 */
#ifndef DF_MODEL_MODEL_H
#define DF_MODEL_MODEL_H

#include "device/device.h"
#include "dflash/model.h"
#include "model/decoder.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

struct df_model {
  df_config cfg;
  char name[128];
  char *path;
  df_source *source; /* stays mapped: a draft may gather rows of the head from it */
  df_tokenizer *tok;
  df_chat_template *chat; /* NULL when the file has none */
  char *chat_error;       /* why the file's template cannot be used, or NULL */
  df_pool *pool;
  const df_kernels *kernels;
  df_device *device;
  df_device_info device_info; /* as it was opened */
  bool exact, weights_cached;

  df_weights embed;
  df_weights head; /* equals embed when tied */
  bool tied;
  float *final_norm;
  float *rope_factors; /* NULL or [head_dim / 2], in rope_block */
  df_layer *layers;    /* [n_layers] */
  void *block, *rope_block;
  size_t block_bytes, rope_bytes;
  uint64_t file_bytes; /* of all tensors in the file */
  double load_ms;
};

/* What one pass of the target writes besides K and V. */
typedef struct df_decoder_pass {
  df_program *program;
  const df_batch *batch;
  df_workspace *ws;
  const df_rope *rope;
  const df_kv_store *kv;
  df_attn *attn;
  df_mode mode;
  df_mask_layout mask;
  const df_mask_buffer *mask_buffer; /* NULL with DF_MASK_NONE */
  df_batch *halves;                  /* [2] views for a split batch, NULL when this pass is not split */
  df_workspace *half_ws;             /* [2] views, filled here */
  uint32_t split_rows;               /* rows of half 0 */
  const uint32_t *taps;              /* ascending layer ids */
  uint32_t n_taps;
  float *tap_out;      /* [row][n_taps * hidden] */
  bool logits, argmax; /* output tail over batch->out_row */
  df_drafts drafts;    /* that the pass verifies; best.value NULL: none, or they are in batch->ids */
} df_decoder_pass;

/* Whether some matrix has F16, BF16 or E4M3 weights, packed as such. */
bool df_model_has_half_weights(const df_model *m);

/* Emits embedding, all layers, taps and tail. */
df_status df_model_emit(const df_model *m, const df_decoder_pass *pass, df_error *err) DF_CHECK;

/* Head product over an already normalised input, and the argmax op behind it. */
df_status df_model_emit_head(df_program *p, const df_weights *head, df_act in, const uint32_t *n_rows, df_workspace *ws,
                             bool argmax, df_error *err) DF_CHECK;

#endif
