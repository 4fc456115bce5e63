/*
 * format/config.h - what a model or draft is, in one struct for every family and file kind.
 *
 * Sources:   GGUF metadata (llama, qwen2, qwen3, dflash) or a Hugging Face config.json.
 * Ownership: df_config is plain data; copy it freely.
 * Threads:   no state.
 * Trust:     the readers check every number against limits.h and each other (heads divide, taps exist, ...), so
 *            products of two fields fit 64 bits. What tensors really look like is the loader's to compare.
 */
#ifndef DF_FORMAT_CONFIG_H
#define DF_FORMAT_CONFIG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "format/gguf.h"
#include "format/json.h"
#include "format/limits.h"

typedef enum df_rope_scaling { DF_ROPE_NONE, DF_ROPE_LINEAR, DF_ROPE_LLAMA3, DF_ROPE_YARN } df_rope_scaling;

/* Rotary embedding. Parameters of other scalings than the chosen one hold their defaults. */
typedef struct df_rope_config {
  float base;       /* theta, 10000 when the file is silent */
  uint32_t dim;     /* leading channels of a head that rotate, even, <= head_dim */
  bool interleaved; /* pairs are (2i, 2i+1), as in GGUF llama files whose q and k rows are permuted for it;
                       false: (i, i + dim/2), every Hugging Face file and the other GGUF families */
  df_rope_scaling scaling;
  float factor;              /* s >= 1 context stretch; 1 for NONE */
  uint32_t original_context; /* L0 before stretching; context_length when the file is silent */
  float low_freq_factor;     /* LLAMA3, default 1 */
  float high_freq_factor;    /* LLAMA3, default 4 */
  float beta_fast;           /* YARN, default 32 */
  float beta_slow;           /* YARN, default 1 */
  bool has_attention_factor;
  float attention_factor; /* YARN: the scale of cos and sin, in the meaning of config.json (it replaces
                             0.1 ln(s) + 1; GGUF's attn_factor, a multiplier of that, is converted) */
  bool has_mscale;
  float mscale; /* YARN; used when both mscales are given and not zero */
  bool has_mscale_all_dim;
  float mscale_all_dim;
} df_rope_config;

typedef struct df_config {
  char arch[32]; /* "llama", "qwen2", "qwen3" or "dflash" */
  bool is_draft; /* arch is "dflash" */

  uint32_t n_layers; /* decoder layers (L of a draft) */
  uint32_t hidden;   /* width of the residual stream; of a draft equal to its target's */
  uint32_t n_heads;  /* query heads, a multiple of n_kv_heads */
  uint32_t n_kv_heads;
  uint32_t head_dim;       /* n_heads * head_dim may differ from hidden */
  uint32_t ffn;            /* inner width of the feed-forward part */
  uint32_t vocab;          /* rows of the embedding table, possibly padded; 0 when a draft file does not say */
  uint32_t context_length; /* positions the model was made for; 0 when the file is silent */
  float rms_eps;           /* of every norm */
  bool tie_embeddings;     /* the output head is the embedding table (GGUF: no output.weight) */
  bool attention_bias;     /* q, k and v projections have bias vectors */
  bool attention_out_bias; /* the output projection has one */
  bool qk_norm;            /* per-head RMS norm on queries and keys before rotation */
  df_rope_config rope;

  /* Sliding-window attention: layer i sees keys with q_pos - k_pos < window where sliding[i]. */
  uint32_t sliding_window;       /* W, positions including self; 0 when no layer slides */
  bool sliding[DF_LIMIT_LAYERS]; /* first n_layers entries */

  /* Drafts only; zero for others. */
  uint32_t block_size;          /* B, rows of one draft pass with the anchor */
  int64_t mask_token_id;        /* -1: the file does not say (the caller must) */
  uint32_t n_taps;              /* K */
  uint32_t taps[DF_LIMIT_TAPS]; /* target layers whose OUTPUT (0-based) is tapped, in feature order */
  bool taps_by_rule;            /* no list in the file: df_config_default_taps was used */
  uint32_t n_target_layers;     /* N; 0 when the file does not say */
  bool causal[DF_LIMIT_LAYERS]; /* layer i is causal inside the block; first n_layers entries */
  bool has_causal_key;          /* false: causal[] is the default rule, a guess for sliding layers */
  float logit_scale;            /* multiplies draft logits, 1 = off */
  float embedding_scale;        /* multiplies block embeddings, 1 = off */

  char unsupported[200]; /* first feature found that this engine cannot run, empty when none */
} df_config;

/* Reads the metadata of a GGUF file (and the presence of the tensors that tell variants). DF_ERR_UNSUPPORTED for an
 * unknown architecture, DF_ERR_FORMAT, DF_ERR_LIMIT. Variants that are known but cannot run are only noted: see
 * df_config_check_supported. */
df_status df_config_from_gguf(const df_gguf *g, df_config *out, df_error *err) DF_CHECK;

/* Reads a parsed config.json; label (the path) is for messages. */
df_status df_config_from_hf(const df_json *root, const char *label, df_config *out, df_error *err) DF_CHECK;
df_status df_config_load_hf(const char *path, df_config *out, df_error *err) DF_CHECK;

/* DF_ERR_UNSUPPORTED naming the feature when the reader noted one. */
df_status df_config_check_supported(const df_config *c, const char *label, df_error *err) DF_CHECK;

/* Notes a feature; the first one stays. */
void df_config_note_unsupported(df_config *c, const char *fmt, ...) DF_PRINTF(2, 3);

/* The tap rule for files without a list: k layers spread from 1 to n - 3, ties rounded to even; k = 1: n / 2.
 * taps holds k entries. DF_ERR_ARGUMENT unless 1 <= k <= DF_LIMIT_TAPS and n >= 4 and n >= k. */
df_status df_config_default_taps(uint32_t n_target_layers, uint32_t k, uint32_t *taps, df_error *err) DF_CHECK;

/* "llama, qwen2, qwen3, dflash" for messages. */
const char *df_config_supported_archs(void);

#endif
