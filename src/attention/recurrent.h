/*
 * attention/recurrent.h - recurrent ("linear attention") layers: a gated delta rule with one state matrix per KV head.
 *
 *   S <- decay * S;  S <- S + beta * (v - S k) k^T;  y = scale * S q        (k normalised to length 1)
 *
 * Source: Gated DeltaNet, arXiv 2412.06464; here decay and beta are constants per head drawn from a seed, until a model
 * with such layers is supported. Rows of a verify are W single steps in order, so their bits are those of decoding.
 *
 * State rolls back by selection: a decode or verify pass keeps the state behind every row, commit() picks the one
 * behind the last accepted row. A prefill pass moves the state at once. Position 0 starts from zero.
 *
 * Ownership: df_recurrent_state is shared by all backends of one engine (the stacks of an overlap wrapper included) and
 * freed by the caller after them. Threads: one owner; emitted ops run on the workers.
 */
#ifndef DF_ATTENTION_RECURRENT_H
#define DF_ATTENTION_RECURRENT_H

#include "attention/backend.h"

typedef struct df_recurrent_state {
  uint32_t n_layers, n_kv, head_dim, n_slots, max_seqs, max_rows;
  float *committed;    /* [slot][layer][kv head][e][e]; slot 0 is the sink */
  float *behind;       /* [seq][row][layer][kv head][e][e]: of the last decode or verify pass */
  float *decay, *beta; /* [layer][kv head] */
  size_t committed_bytes, behind_bytes;
} df_recurrent_state;

/* n_layers counts recurrent layers only; max_rows is the widest verify block. */
df_status df_recurrent_state_init(df_recurrent_state *s, uint32_t n_layers, uint32_t n_kv, uint32_t head_dim,
                                  uint32_t n_slots, uint32_t max_seqs, uint32_t max_rows, uint64_t seed,
                                  df_error *err) DF_CHECK;
void df_recurrent_state_release(df_recurrent_state *s);

/* A leaf for the recurrent layers. layer_index maps a model layer to its recurrent index (copied, [n_model_layers]). */
df_status df_attn_recurrent_create(const df_attn_shape *shape, df_recurrent_state *state, const uint32_t *layer_index,
                                   uint32_t n_model_layers, df_attn **out, df_error *err) DF_CHECK;

/* Attention layers go to `attention`, layers with is_linear[layer] to `linear`. Takes ownership of both, also on
 * failure; is_linear is copied. */
df_status df_attn_hybrid_linear_create(df_attn *attention, df_attn *linear, const bool *is_linear, uint32_t n_layers,
                                       df_attn **out, df_error *err) DF_CHECK;

#endif
