/* The part of config.json that only drafts have: top-level draft keys and the object "dflash_config". */
#include <string.h>

#include "format/config.h"
#include "format/config_internal.h"

/* Keys whose presence tells a variant of the family; the value must be null, false or 0 to be harmless. */
typedef struct variant_key {
  const char *key;
  const char *what;
} variant_key;

static const variant_key k_variants[] = {
    {"conv_kernel_size", "the DFlash2 convolution"},
    {"conv_group_size", "the DFlash2 convolution"},
    {"selector_rank", "the DFlash2 candidate selector"},
    {"selector_top_k", "the DFlash2 candidate selector"},
    {"markov_rank", "the DSpark markov head"},
    {"dspark_markov_rank", "the DSpark markov head"},
    {"enable_confidence_head", "the DSpark confidence head"},
    {"confidence_head_alpha", "the DSpark confidence head"},
    {"attention_sink_bias", "attention sinks"},
    {"hyper_connection_count", "hyper connections"},
    {"hc_mult", "hyper connections"},
};

/* True unless the value is absent, null, false or 0. */
static bool is_on(const df_json *v) {
  switch (df_json_kind_of(v)) {
    case DF_JSON_NULL: return false;
    case DF_JSON_BOOL: return df_json_bool(v);
    case DF_JSON_INT:
    case DF_JSON_REAL: return df_json_num(v) != 0;
    case DF_JSON_STRING:
    case DF_JSON_ARRAY:
    case DF_JSON_OBJECT: break;
  }
  return true;
}

static bool starts_with(const char *s, const char *prefix) { return strncmp(s, prefix, strlen(prefix)) == 0; }

/* Variants are told by keys that stand in dflash_config or at the top level. */
static void note_variants(const df_json *o, df_config *c) {
  for (size_t i = 0; i < sizeof k_variants / sizeof k_variants[0]; i++)
    if (is_on(df_json_member(o, k_variants[i].key)))
      df_config_note_unsupported(c, "%s (%s)", k_variants[i].what, k_variants[i].key);
  df_json_iter it = df_json_begin(o);
  const char *key;
  const df_json *v;
  while (df_json_next(&it, &key, NULL, &v))
    if (starts_with(key, "lilicorr_") && is_on(v)) df_config_note_unsupported(c, "the LiLiCorr reranker (%.64s)", key);
}

static df_status note_projector(const df_json *o, df_config *c, df_error *err) {
  const char *type;
  DF_TRY(df_json_opt_str(o, "projector_type", "dflash", &type, err));
  if (strcmp(type, "dflash") != 0) df_config_note_unsupported(c, "the draft head \"%.64s\" (projector_type)", type);
  return DF_OK;
}

static df_status read_tap_list(const df_json *list, df_config *c, df_error *err) {
  size_t n = df_json_size(list);
  if (n == 0 || n > DF_LIMIT_TAPS)
    return DF_FAIL(err, DF_ERR_FORMAT, "key \"target_layer_ids\" has %zu entries, expected 1 to %d", n, DF_LIMIT_TAPS);
  c->n_taps = (uint32_t)n;
  for (size_t i = 0; i < n; i++) {
    int64_t id;
    DF_TRY(df_json_to_i64(df_json_at(list, i), "an entry of \"target_layer_ids\"", 0, DF_LIMIT_LAYERS - 1, &id, err));
    c->taps[i] = (uint32_t)id;
  }
  return DF_OK;
}

/* The list decides; without one, as many taps as draft layers by the rule, which needs the target's layer count. */
static df_status read_taps(const df_json *root, const df_json *dc, df_config *c, df_error *err) {
  const df_json *list, *top;
  DF_TRY(df_json_opt_u32(root, "num_target_layers", 0, 1, DF_LIMIT_LAYERS, &c->n_target_layers, err));
  DF_TRY(df_json_opt_tree(dc, "target_layer_ids", DF_JSON_ARRAY, &list, err));
  DF_TRY(df_json_opt_tree(root, "target_layer_ids", DF_JSON_ARRAY, &top, err));
  if (!list) list = top;
  if (list) return read_tap_list(list, c, err);
  if (c->n_target_layers == 0)
    return DF_FAIL(err, DF_ERR_FORMAT, "neither \"dflash_config.target_layer_ids\" nor \"num_target_layers\" is given");
  c->taps_by_rule = true;
  c->n_taps = c->n_layers;
  df_status s = df_config_default_taps(c->n_target_layers, c->n_layers, c->taps, err);
  return s == DF_ERR_ARGUMENT
             ? DF_FAIL(err, DF_ERR_FORMAT,
                       "no \"target_layer_ids\" and no default for %u draft layers on %u target layers", c->n_layers,
                       c->n_target_layers)
             : s;
}

/* use_swa puts a window on every layer when no layer is marked sliding; without layer_types such layers are not causal.
 */
static df_status read_draft_windows(const df_json *root, const df_json *dc, df_config *c, df_error *err) {
  bool use_swa, any = false, typed = df_json_kind_of(df_json_member(root, "layer_types")) == DF_JSON_ARRAY;
  uint32_t window;
  DF_TRY(df_json_opt_bool(dc, "use_swa", false, &use_swa, err));
  DF_TRY(df_json_opt_u32(dc, "swa_window_size", 0, 1, DF_LIMIT_CONTEXT, &window, err));
  for (uint32_t i = 0; i < c->n_layers; i++) any = any || c->sliding[i];
  for (uint32_t i = 0; i < c->n_layers; i++) c->causal[i] = typed && c->sliding[i];
  if (use_swa) {
    if (window) c->sliding_window = window;
    if (!any || !typed)
      for (uint32_t i = 0; i < c->n_layers; i++) c->sliding[i] = true;
  }
  return DF_OK;
}

/* In-block causality: is_causal, else dflash_config.causal, else what read_draft_windows guessed. */
static df_status read_causality(const df_json *root, const df_json *dc, df_config *c, df_error *err) {
  bool causal, inner;
  bool has_inner = df_json_kind_of(df_json_member(dc, "causal")) != DF_JSON_NULL;
  c->has_causal_key = has_inner || df_json_kind_of(df_json_member(root, "is_causal")) != DF_JSON_NULL;
  DF_TRY(df_json_opt_bool(dc, "causal", false, &inner, err));
  DF_TRY(df_json_opt_bool(root, "is_causal", inner, &causal, err));
  if (c->has_causal_key)
    for (uint32_t i = 0; i < c->n_layers; i++) c->causal[i] = causal;
  return DF_OK;
}

static df_status read_scales(const df_json *root, const df_json *dc, df_config *c, df_error *err) {
  double logit, embedding, value;
  DF_TRY(df_json_opt_f64(root, "logit_scale", 1, -1e6, 1e6, &logit, err));
  DF_TRY(df_json_opt_f64(dc, "output_multiplier", logit, -1e6, 1e6, &logit, err));
  DF_TRY(df_json_opt_f64(dc, "input_embedding_scale", 1, -1e6, 1e6, &embedding, err));
  DF_TRY(df_json_opt_f64(dc, "attention_value_scale", 1, -1e6, 1e6, &value, err));
  c->logit_scale = logit == 0 ? 1 : (float)logit;
  c->embedding_scale = (float)embedding;
  if (value != 1) df_config_note_unsupported(c, "a value scale of %g (attention_value_scale)", value);
  return DF_OK;
}

static df_status read_sizes(const df_json *root, const df_json *dc, df_config *c, df_error *err) {
  uint32_t draft_vocab, target_hidden;
  DF_TRY(df_json_opt_u32(root, "block_size", DF_DEFAULT_BLOCK_SIZE, 1, DF_LIMIT_BLOCK_SIZE, &c->block_size, err));
  DF_TRY(df_json_opt_u32(dc, "block_size", c->block_size, 1, DF_LIMIT_BLOCK_SIZE, &c->block_size, err));
  DF_TRY(df_json_opt_i64(dc, "mask_token_id", -1, 0, DF_LIMIT_VOCAB - 1, &c->mask_token_id, err));
  DF_TRY(df_json_opt_u32(root, "draft_vocab_size", c->vocab, 1, DF_LIMIT_VOCAB, &draft_vocab, err));
  DF_TRY(df_json_opt_u32(root, "target_hidden_size", c->hidden, 1, DF_LIMIT_HIDDEN, &target_hidden, err));
  if (draft_vocab != c->vocab)
    df_config_note_unsupported(c, "a reduced draft vocabulary (draft_vocab_size %u of %u)", draft_vocab, c->vocab);
  if (target_hidden != c->hidden)
    df_config_note_unsupported(c, "a target hidden size of %u with a draft of %u", target_hidden, c->hidden);
  return DF_OK;
}

df_status df_config_hf_draft(const df_json *root, df_config *c, df_error *err) {
  const df_json *dc;
  DF_TRY(df_json_opt_tree(root, "dflash_config", DF_JSON_OBJECT, &dc, err));
  note_variants(dc, c);
  note_variants(root, c);
  DF_TRY(note_projector(dc, c, err));
  DF_TRY(note_projector(root, c, err));
  DF_TRY(read_sizes(root, dc, c, err));
  DF_TRY(read_taps(root, dc, c, err));
  DF_TRY(read_draft_windows(root, dc, c, err));
  DF_TRY(read_causality(root, dc, c, err));
  return read_scales(root, dc, c, err);
}
