/*
 * model/decoder.h - one pre-norm decoder layer (attention + SwiGLU), shared by the targets and the draft.
 * Sources: Llama (arXiv 2302.13971), Qwen2/3 technical reports; draft layer: DFlash, arXiv 2602.06036.
 */
#ifndef DF_MODEL_DECODER_H
#define DF_MODEL_DECODER_H

#include "attention/backend.h"
#include "format/config.h"
#include "kv/store.h"
#include "model/load.h"
#include "model/rope.h"
#include "model/workspace.h"

typedef struct df_layer {
  df_weights q, k, v, o, gate, up, down;
  float *q_bias, *k_bias, *v_bias, *o_bias; /* NULL without */
  float *attn_norm, *ffn_norm;
  float *q_norm, *k_norm; /* per head, NULL without */
} df_layer;

/* What a layer needs besides its weights. */
typedef struct df_layer_pass {
  df_program *program;
  const df_batch *batch;
  df_workspace *ws;
  const df_rope *rope;
  const df_config *cfg;
  df_attn *attn;
  df_attn_pass attn_pass;
  df_kv_view kv;
  uint32_t layer;
  bool causal;
  uint32_t window;
} df_layer_pass;

/* Requests all tensors of layer i under the GGUF names "blk.i.*". interleaved_rope: the file has q and k rows in the
 * pair order of the original Llama code; they are brought to split halves. */
df_status df_layer_load(df_loader *l, const df_config *cfg, uint32_t i, bool interleaved_rope, df_layer *out,
                        df_error *err) DF_CHECK;

/* The two halves of a layer, ws->x in and out. */
df_status df_layer_emit_attention(const df_layer *layer, const df_layer_pass *pass, df_error *err) DF_CHECK;
df_status df_layer_emit_ffn(const df_layer *layer, const df_layer_pass *pass, df_error *err) DF_CHECK;
/* Both. */
df_status df_layer_emit(const df_layer *layer, const df_layer_pass *pass, df_error *err) DF_CHECK;

/* norm output restricted to the forms that the given matrices read. */
df_act df_act_for(df_act a, const df_weights *const *readers, uint32_t n);

/* Row order that turns interleaved pairs into split halves: n = heads * head_dim entries. */
void df_rope_row_order(uint32_t *rows, uint32_t n, uint32_t head_dim);

#endif
