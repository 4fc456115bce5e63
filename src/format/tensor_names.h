/*
 * format/tensor_names.h - tensor names of Hugging Face checkpoints and of GGUF files, in both directions.
 *
 * GGUF names are the ones the engine uses: "blk.3.attn_q.weight", "token_embd.weight", "fc.weight". The Hugging
 * Face side has the same tensors as "model.layers.3.self_attn.q_proj.weight"; drafts come with and without "model."
 * and with the aliases midlayer.* = layers.0.*, encoder.fc.* = fc.*, encoder.output_norm_enc.* = hidden_norm.*.
 * Threads: no state.
 */
#ifndef DF_FORMAT_TENSOR_NAMES_H
#define DF_FORMAT_TENSOR_NAMES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { DF_NAME_MAX = 256, DF_NAME_SPELLINGS = 4 };

/* Writes the spelling number i (0 .. DF_NAME_SPELLINGS - 1) a Hugging Face file may use for a GGUF name, most usual
 * first. False when the name is unknown or has no such spelling. */
bool df_name_to_hf(const char *gguf_name, unsigned i, char out[DF_NAME_MAX]);

/* The GGUF name of a Hugging Face tensor; false when it is none of ours. */
bool df_name_from_hf(const char *hf_name, char out[DF_NAME_MAX]);

/* True for GGUF names that models (or, with draft, drafts) of n_layers layers may contain. */
bool df_name_is_known(const char *gguf_name, bool draft, uint32_t n_layers);

/* Tensors that carry nothing we need (cached rope frequencies, the inverse vocabulary map of reduced drafts, scales of
 * 8-bit activations) or that belong to another (scales of 8-bit matrices). */
bool df_name_is_ignorable(const char *name);

#endif
