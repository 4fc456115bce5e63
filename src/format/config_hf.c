/* df_config from a Hugging Face config.json: architecture, geometry, rope, windows. Drafts: config_hf_draft.c. */
#include <stdio.h>
#include <string.h>

#include "base/size.h"
#include "format/config.h"
#include "format/config_internal.h"

typedef struct arch_name {
  const char *hf;
  const char *ours;
} arch_name;

static const arch_name k_archs[] = {
    {"LlamaForCausalLM", "llama"},      {"Qwen2ForCausalLM", "qwen2"},   {"Qwen3ForCausalLM", "qwen3"},
    {"DFlashDraftModel", "dflash"},     {"DFlash2DraftModel", "dflash"}, {"LiLiCorrDraftModel", "dflash"},
    {"DSparkDraftModel", "dflash"},     {"Qwen3DSparkModel", "dflash"},  {"DSparkSpeculator", "dflash"},
    {"Lfm2DSparkDraftModel", "dflash"}, {"LingDSparkModel", "dflash"},
};

static df_status unknown_arch(const char *name, df_error *err) {
  df_status s = DF_FAIL(err, DF_ERR_UNSUPPORTED, "architecture \"%.64s\" is not supported", name);
  df_error_hint(err,
                "supported: %s (Hugging Face: LlamaForCausalLM, Qwen2ForCausalLM, Qwen3ForCausalLM, DFlashDraftModel)",
                df_config_supported_archs());
  return s;
}

/* architectures[0]; without that list model_type, or the presence of dflash_config. */
static df_status read_arch(const df_json *root, df_config *c, df_error *err) {
  const df_json *list;
  const char *type, *found = NULL;
  DF_TRY(df_json_opt_tree(root, "architectures", DF_JSON_ARRAY, &list, err));
  DF_TRY(df_json_opt_str(root, "model_type", NULL, &type, err));
  const char *name = df_json_str(df_json_at(list, 0), NULL);
  if (name) {
    for (size_t i = 0; i < DF_COUNT_OF(k_archs); i++)
      if (strcmp(k_archs[i].hf, name) == 0) found = k_archs[i].ours;
    if (!found) return unknown_arch(name, err);
    if (strcmp(found, "dflash") == 0 && strcmp(name, "DFlashDraftModel") != 0)
      df_config_note_unsupported(c, "the draft variant \"%.64s\"", name);
  } else if (df_json_member(root, "dflash_config")) {
    found = "dflash";
  } else if (type && (strcmp(type, "llama") == 0 || strcmp(type, "qwen2") == 0 || strcmp(type, "qwen3") == 0)) {
    found = type;
  } else {
    return unknown_arch(type ? type : "(none)", err);
  }
  (void)snprintf(c->arch, sizeof c->arch, "%s", found);
  c->is_draft = strcmp(found, "dflash") == 0;
  if (c->is_draft && type && strcmp(type, "qwen3") != 0)
    df_config_note_unsupported(c, "a draft built of \"%.64s\" blocks", type);
  return DF_OK;
}

static df_status need_u32(const df_json *root, const char *key, uint32_t max, uint32_t *out, df_error *err) {
  DF_TRY(df_json_need(root, key, err));
  return df_json_opt_u32(root, key, 0, 1, max, out, err);
}

static df_status opt_f32(const df_json *o, const char *key, float def, double min, double max, float *out,
                         df_error *err) {
  double d;
  DF_TRY(df_json_opt_f64(o, key, (double)def, min, max, &d, err));
  *out = (float)d;
  return DF_OK;
}

static df_status read_geometry(const df_json *root, df_config *c, df_error *err) {
  DF_TRY(need_u32(root, "num_hidden_layers", DF_LIMIT_LAYERS, &c->n_layers, err));
  DF_TRY(need_u32(root, "hidden_size", DF_LIMIT_HIDDEN, &c->hidden, err));
  DF_TRY(need_u32(root, "num_attention_heads", DF_LIMIT_HEADS, &c->n_heads, err));
  DF_TRY(need_u32(root, "intermediate_size", DF_LIMIT_FFN, &c->ffn, err));
  DF_TRY(need_u32(root, "vocab_size", DF_LIMIT_VOCAB, &c->vocab, err));
  DF_TRY(df_json_opt_u32(root, "num_key_value_heads", c->n_heads, 1, DF_LIMIT_HEADS, &c->n_kv_heads, err));
  DF_TRY(df_json_opt_u32(root, "head_dim", 0, 1, DF_LIMIT_HEAD_DIM, &c->head_dim, err));
  DF_TRY(df_json_opt_u32(root, "max_position_embeddings", 0, 1, DF_LIMIT_CONTEXT, &c->context_length, err));
  DF_TRY(opt_f32(root, "rms_norm_eps", 1e-6f, 0, 1, &c->rms_eps, err));
  DF_TRY(df_json_opt_bool(root, "tie_word_embeddings", false, &c->tie_embeddings, err));
  if (c->is_draft) c->tie_embeddings = false; /* head and table are the target's */
  if (c->head_dim) return DF_OK;
  if (strcmp(c->arch, "qwen3") == 0) {
    c->head_dim = 128; /* the family's default is not hidden / heads */
    return DF_OK;
  }
  if (c->hidden % c->n_heads != 0)
    return DF_FAIL(err, DF_ERR_FORMAT, "%u heads do not divide a hidden size of %u and there is no \"head_dim\"",
                   c->n_heads, c->hidden);
  c->head_dim = c->hidden / c->n_heads;
  return DF_OK;
}

/* The ways of writing F8_E4M3 matrices with scales beside them; which matrices they are, their types say. */
static df_status read_quantization(const df_json *quant, df_config *c, df_error *err) {
  const char *method, *format, *fmt;
  DF_TRY(df_json_opt_str(quant, "quant_method", "", &method, err));
  DF_TRY(df_json_opt_str(quant, "format", "", &format, err));
  DF_TRY(df_json_opt_str(quant, "fmt", "e4m3", &fmt, err));
  const bool fp8 = strcmp(method, "fp8") == 0 || strcmp(method, "fbgemm_fp8") == 0;
  if (!fp8 && !(strcmp(method, "compressed-tensors") == 0 && strcmp(format, "float-quantized") == 0))
    df_config_note_unsupported(c, "a quantised checkpoint (quantization_config \"%.32s\" %.32s)", method, format);
  if (strcmp(fmt, "e4m3") != 0) df_config_note_unsupported(c, "8-bit floats \"%.32s\" (quantization_config)", fmt);
  return DF_OK;
}

static df_status read_features(const df_json *root, df_config *c, df_error *err) {
  bool qwen2 = strcmp(c->arch, "qwen2") == 0, llama = strcmp(c->arch, "llama") == 0;
  bool bias, mlp_bias;
  const char *act;
  const df_json *quant;
  DF_TRY(df_json_opt_bool(root, "attention_bias", false, &bias, err));
  /* Qwen2 has q, k, v biases whatever the key says, and never one on the output. */
  c->attention_bias = qwen2 || bias;
  c->attention_out_bias = !qwen2 && bias;
  c->qk_norm = !qwen2 && !llama;
  DF_TRY(df_json_opt_bool(root, "mlp_bias", false, &mlp_bias, err));
  if (mlp_bias) df_config_note_unsupported(c, "a bias in the feed-forward part (mlp_bias)");
  DF_TRY(df_json_opt_str(root, "hidden_act", "silu", &act, err));
  if (strcmp(act, "silu") != 0 && strcmp(act, "swish") != 0)
    df_config_note_unsupported(c, "the activation \"%.64s\" (hidden_act)", act);
  DF_TRY(df_json_opt_tree(root, "quantization_config", DF_JSON_OBJECT, &quant, err));
  return quant ? read_quantization(quant, c, err) : DF_OK;
}

/* ---- rope ---------------------------------------------------------------------------------------------- */

static df_status read_yarn(const df_json *s, df_rope_config *p, df_error *err) {
  bool truncate;
  DF_TRY(opt_f32(s, "beta_fast", p->beta_fast, 0, 1e6, &p->beta_fast, err));
  DF_TRY(opt_f32(s, "beta_slow", p->beta_slow, 0, 1e6, &p->beta_slow, err));
  DF_TRY(opt_f32(s, "attention_factor", 0, 0, 1e6, &p->attention_factor, err));
  DF_TRY(opt_f32(s, "mscale", 0, 0, 1e6, &p->mscale, err));
  DF_TRY(opt_f32(s, "mscale_all_dim", 0, 0, 1e6, &p->mscale_all_dim, err));
  p->has_attention_factor = p->attention_factor != 0;
  p->has_mscale = p->mscale != 0;
  p->has_mscale_all_dim = p->mscale_all_dim != 0;
  if (!p->has_attention_factor) p->attention_factor = 1;
  if (!p->has_mscale) p->mscale = 1;
  if (!p->has_mscale_all_dim) p->mscale_all_dim = 1;
  DF_TRY(df_json_opt_bool(s, "truncate", true, &truncate, err));
  return truncate ? DF_OK
                  : DF_FAIL(err, DF_ERR_UNSUPPORTED, "YaRN without rounding (\"truncate\": false) is not supported");
}

/* The members of rope_scaling or rope_parameters. */
static df_status read_scaling(const df_json *s, df_config *c, df_error *err) {
  df_rope_config *p = &c->rope;
  const char *type, *older;
  DF_TRY(df_json_opt_str(s, "type", "default", &older, err));
  DF_TRY(df_json_opt_str(s, "rope_type", older, &type, err));
  DF_TRY(opt_f32(s, "factor", 1, 1e-6, 1e6, &p->factor, err));
  DF_TRY(df_json_opt_u32(s, "original_max_position_embeddings", 0, 1, DF_LIMIT_CONTEXT, &p->original_context, err));
  if (strcmp(type, "default") == 0 || strcmp(type, "none") == 0) {
    p->factor = 1;
  } else if (strcmp(type, "linear") == 0) {
    p->scaling = DF_ROPE_LINEAR;
  } else if (strcmp(type, "llama3") == 0) {
    p->scaling = DF_ROPE_LLAMA3;
    DF_TRY(opt_f32(s, "low_freq_factor", p->low_freq_factor, 1e-6, 1e6, &p->low_freq_factor, err));
    DF_TRY(opt_f32(s, "high_freq_factor", p->high_freq_factor, 1e-6, 1e6, &p->high_freq_factor, err));
  } else if (strcmp(type, "yarn") == 0) {
    p->scaling = DF_ROPE_YARN;
    DF_TRY(read_yarn(s, p, err));
  } else {
    p->factor = 1;
    df_config_note_unsupported(c, "rope scaling \"%.32s\"", type);
  }
  return DF_OK;
}

/* rope_theta and rope_scaling at the top level, or both merged in rope_parameters; files with both keep them equal. */
static df_status read_rope(const df_json *root, df_config *c, df_error *err) {
  const df_json *scaling, *params;
  float partial;
  bool neox;
  DF_TRY(df_json_opt_tree(root, "rope_scaling", DF_JSON_OBJECT, &scaling, err));
  DF_TRY(df_json_opt_tree(root, "rope_parameters", DF_JSON_OBJECT, &params, err));
  DF_TRY(opt_f32(root, "rope_theta", c->rope.base, 1, 1e30, &c->rope.base, err));
  DF_TRY(opt_f32(root, "partial_rotary_factor", 1, 0, 1, &partial, err));
  if (params) {
    if (df_json_member(params, "full_attention") || df_json_member(params, "sliding_attention"))
      df_config_note_unsupported(c, "a different rope for each kind of layer (rope_parameters)");
    DF_TRY(opt_f32(params, "rope_theta", c->rope.base, 1, 1e30, &c->rope.base, err));
    DF_TRY(opt_f32(params, "partial_rotary_factor", partial, 0, 1, &partial, err));
    DF_TRY(read_scaling(params, c, err));
  } else if (scaling) {
    DF_TRY(read_scaling(scaling, c, err));
  }
  c->rope.dim = (uint32_t)((float)c->head_dim * partial);
  if (c->rope.dim == 0) return DF_FAIL(err, DF_ERR_FORMAT, "key \"partial_rotary_factor\" leaves nothing to rotate");
  DF_TRY(df_json_opt_bool(root, "rope_is_neox_style", true, &neox, err));
  DF_TRY(df_json_opt_bool(root, "is_neox_style", neox, &neox, err));
  c->rope.interleaved = !neox;
  return DF_OK;
}

/* ---- windows ------------------------------------------------------------------------------------------- */

static df_status read_layer_types(const df_json *types, df_config *c, df_error *err) {
  if (df_json_size(types) != c->n_layers)
    return DF_FAIL(err, DF_ERR_FORMAT, "key \"layer_types\" has %zu entries for %u layers", df_json_size(types),
                   c->n_layers);
  for (uint32_t i = 0; i < c->n_layers; i++) {
    const char *t = df_json_str(df_json_at(types, i), NULL);
    if (!t) return DF_FAIL(err, DF_ERR_FORMAT, "key \"layer_types\" holds something that is no string");
    c->sliding[i] = strcmp(t, "sliding_attention") == 0;
    if (!c->sliding[i] && strcmp(t, "full_attention") != 0)
      df_config_note_unsupported(c, "the layer type \"%.64s\"", t);
  }
  return DF_OK;
}

/* layer_types decides when given. Else use_sliding_window turns the window on from layer max_window_layers. */
static df_status read_windows(const df_json *root, df_config *c, df_error *err) {
  const df_json *types;
  bool use;
  uint32_t first;
  DF_TRY(df_json_opt_tree(root, "layer_types", DF_JSON_ARRAY, &types, err));
  DF_TRY(df_json_opt_u32(root, "sliding_window", 0, 0, DF_LIMIT_CONTEXT, &c->sliding_window, err));
  DF_TRY(df_json_opt_bool(root, "use_sliding_window", false, &use, err));
  DF_TRY(df_json_opt_u32(root, "max_window_layers", 28, 0, UINT32_MAX, &first, err));
  if (types) return read_layer_types(types, c, err);
  if (use && c->sliding_window)
    for (uint32_t i = first; i < c->n_layers; i++) c->sliding[i] = true;
  return DF_OK;
}

static df_status read_all(const df_json *root, df_config *c, df_error *err) {
  if (df_json_kind_of(root) != DF_JSON_OBJECT) return DF_FAIL(err, DF_ERR_FORMAT, "the file is not a JSON object");
  DF_TRY(read_arch(root, c, err));
  DF_TRY(read_geometry(root, c, err));
  DF_TRY(read_features(root, c, err));
  DF_TRY(read_rope(root, c, err));
  DF_TRY(read_windows(root, c, err));
  return c->is_draft ? df_config_hf_draft(root, c, err) : DF_OK;
}

df_status df_config_from_hf(const df_json *root, const char *label, df_config *out, df_error *err) {
  df_config c;
  df_config_init(&c);
  df_status s = read_all(root, &c, err);
  if (s != DF_OK) {
    df_error_prefix(err, "could not read \"%s\"", label);
    return s;
  }
  DF_TRY(df_config_finish(&c, label, err));
  *out = c;
  return DF_OK;
}

df_status df_config_load_hf(const char *path, df_config *out, df_error *err) {
  df_json *root;
  DF_TRY(df_json_load(path, DF_LIMIT_CONFIG_BYTES, &root, err));
  df_status s = df_config_from_hf(root, path, out, err);
  df_json_free(root);
  return s;
}
