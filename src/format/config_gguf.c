/* df_config from GGUF metadata: the standard keys "<arch>.block_count" and so on, and those of the draft family. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/size.h"
#include "format/config.h"
#include "format/config_internal.h"

/* One file being read: keys are built from the architecture's name. */
typedef struct reader {
  const df_gguf *g;
  df_config *c;
  df_error *err;
  char key[96];
} reader;

static const char *key_of(reader *r, const char *suffix) {
  (void)snprintf(r->key, sizeof r->key, "%s.%s", r->c->arch, suffix);
  return r->key;
}

static df_status need_u32(reader *r, const char *suffix, uint32_t *out) {
  return df_gguf_get_u32(r->g, key_of(r, suffix), out, r->err);
}

static df_status opt_u32(reader *r, const char *suffix, uint32_t def, uint32_t *out) {
  return df_gguf_opt_u32(r->g, key_of(r, suffix), def, out, r->err);
}

static df_status opt_f32(reader *r, const char *suffix, float def, float *out) {
  return df_gguf_opt_f32(r->g, key_of(r, suffix), def, out, r->err);
}

static bool has(reader *r, const char *suffix) { return df_gguf_has(r->g, key_of(r, suffix)); }
static bool has_tensor(const reader *r, const char *name) { return df_gguf_tensor_find(r->g, name) != NULL; }

/* Some writers store one number per layer. Equal ones are one number to us. */
static df_status need_u32_uniform(reader *r, const char *suffix, uint32_t *out) {
  const df_gguf_kv *kv = df_gguf_find(r->g, key_of(r, suffix));
  if (!kv || kv->type != DF_GGUF_ARRAY) return need_u32(r, suffix, out);
  DF_TRY(df_gguf_opt_int_array(r->g, r->key, &kv, r->err));
  int64_t v = kv->count ? df_gguf_int_at(kv, 0) : -1;
  if (kv->count == 0 || v < 0 || v > UINT32_MAX)
    return DF_FAIL(r->err, DF_ERR_FORMAT, "could not read \"%s\": key \"%s\" holds no usable number",
                   df_gguf_label(r->g), r->key);
  for (uint64_t i = 1; i < kv->count; i++)
    if (df_gguf_int_at(kv, i) != v) df_config_note_unsupported(r->c, "a different \"%s\" per layer", r->key);
  *out = (uint32_t)v;
  return DF_OK;
}

static df_status read_arch(reader *r) {
  static const char *const known[] = {"llama", "qwen2", "qwen3", "dflash"};
  df_gguf_str a;
  DF_TRY(df_gguf_get_str(r->g, "general.architecture", &a, r->err));
  for (size_t i = 0; i < DF_COUNT_OF(known); i++)
    if (strlen(known[i]) == a.len && memcmp(known[i], a.data, a.len) == 0) {
      (void)snprintf(r->c->arch, sizeof r->c->arch, "%s", known[i]);
      r->c->is_draft = strcmp(known[i], "dflash") == 0;
      return DF_OK;
    }
  df_status s = DF_FAIL(r->err, DF_ERR_UNSUPPORTED, "could not use \"%s\": architecture \"%.*s\" is not supported",
                        df_gguf_label(r->g), (int)DF_MIN(a.len, 64), a.data);
  df_error_hint(r->err, "supported: %s", df_config_supported_archs());
  return s;
}

static df_status read_vocab(reader *r) {
  const df_gguf_kv *tokens;
  if (has(r, "vocab_size")) return need_u32(r, "vocab_size", &r->c->vocab);
  DF_TRY(df_gguf_opt_str_array(r->g, "tokenizer.ggml.tokens", &tokens, r->err));
  if (tokens && tokens->count <= DF_LIMIT_VOCAB) r->c->vocab = (uint32_t)tokens->count;
  return DF_OK;
}

static df_status read_head_dim(reader *r) {
  df_config *c = r->c;
  uint32_t value_dim;
  if (!has(r, "attention.key_length")) {
    if (c->n_heads == 0 || c->hidden % c->n_heads != 0)
      return DF_FAIL(r->err, DF_ERR_FORMAT,
                     "could not read \"%s\": %u heads do not divide a hidden size of %u and there is no \"%s\"",
                     df_gguf_label(r->g), c->n_heads, c->hidden, key_of(r, "attention.key_length"));
    c->head_dim = c->hidden / c->n_heads;
  } else {
    DF_TRY(need_u32(r, "attention.key_length", &c->head_dim));
  }
  DF_TRY(opt_u32(r, "attention.value_length", c->head_dim, &value_dim));
  if (value_dim != c->head_dim)
    return DF_FAIL(r->err, DF_ERR_UNSUPPORTED,
                   "could not use \"%s\": value heads of width %u differ from key heads of width %u",
                   df_gguf_label(r->g), value_dim, c->head_dim);
  return DF_OK;
}

static df_status read_geometry(reader *r) {
  df_config *c = r->c;
  DF_TRY(need_u32(r, "block_count", &c->n_layers));
  DF_TRY(need_u32(r, "embedding_length", &c->hidden));
  DF_TRY(need_u32_uniform(r, "feed_forward_length", &c->ffn));
  DF_TRY(need_u32_uniform(r, "attention.head_count", &c->n_heads));
  c->n_kv_heads = c->n_heads;
  if (has(r, "attention.head_count_kv")) DF_TRY(need_u32_uniform(r, "attention.head_count_kv", &c->n_kv_heads));
  DF_TRY(df_gguf_get_f32(r->g, key_of(r, "attention.layer_norm_rms_epsilon"), &c->rms_eps, r->err));
  DF_TRY(opt_u32(r, "context_length", 0, &c->context_length));
  DF_TRY(read_head_dim(r));
  return read_vocab(r);
}

/* attn_factor multiplies YaRN's own 0.1 ln(s) + 1 here, where config.json's attention_factor replaces it. */
static df_status read_yarn(reader *r) {
  df_rope_config *p = &r->c->rope;
  float ext, attn = 1;
  DF_TRY(opt_f32(r, "rope.scaling.yarn_beta_fast", p->beta_fast, &p->beta_fast));
  DF_TRY(opt_f32(r, "rope.scaling.yarn_beta_slow", p->beta_slow, &p->beta_slow));
  DF_TRY(opt_f32(r, "rope.scaling.yarn_ext_factor", 1, &ext));
  if (ext != 1 && ext >= 0) df_config_note_unsupported(r->c, "a YaRN extrapolation factor of %g", (double)ext);
  DF_TRY(opt_f32(r, "rope.scaling.attn_factor", 1, &attn));
  DF_TRY(opt_f32(r, "rope.scaling.yarn_attn_factor", attn, &attn));
  if (has(r, "rope.scaling.yarn_log_multiplier")) df_config_note_unsupported(r->c, "a YaRN log multiplier");
  if (attn != 1 && p->factor > 0) {
    p->has_attention_factor = true;
    p->attention_factor = p->factor > 1 ? attn * (0.1f * logf(p->factor) + 1) : attn;
  }
  return DF_OK;
}

static df_status read_rope(reader *r) {
  df_rope_config *p = &r->c->rope;
  static const df_gguf_str none = {"none", 4};
  df_gguf_str type;
  DF_TRY(opt_f32(r, "rope.freq_base", p->base, &p->base));
  DF_TRY(opt_u32(r, "rope.dimension_count", r->c->head_dim, &p->dim));
  p->interleaved = strcmp(r->c->arch, "llama") == 0;
  DF_TRY(df_gguf_opt_str(r->g, key_of(r, "rope.scaling.type"), none, &type, r->err));
  DF_TRY(opt_f32(r, "rope.scaling.factor", 0, &p->factor));
  if (p->factor == 0) DF_TRY(opt_f32(r, "rope.scale_linear", 0, &p->factor));
  DF_TRY(opt_u32(r, "rope.scaling.original_context_length", 0, &p->original_context));
  bool typed = has(r, "rope.scaling.type");
  if (p->factor == 0) p->factor = 1;
  if (type.len == 4 && memcmp(type.data, "yarn", 4) == 0) {
    p->scaling = DF_ROPE_YARN;
    return read_yarn(r);
  }
  if ((type.len == 6 && memcmp(type.data, "linear", 6) == 0) || (!typed && p->factor != 1)) {
    /* A factor without a type is the older spelling of linear scaling. */
    p->scaling = DF_ROPE_LINEAR;
  } else if (type.len == 4 && memcmp(type.data, "none", 4) == 0) {
    p->factor = 1;
  } else {
    df_config_note_unsupported(r->c, "rope scaling \"%.*s\"", (int)DF_MIN(type.len, 32), type.data);
    p->factor = 1;
  }
  return DF_OK;
}

static df_status read_window(reader *r) {
  df_config *c = r->c;
  const df_gguf_kv *kv;
  DF_TRY(opt_u32(r, "attention.sliding_window", 0, &c->sliding_window));
  if (c->sliding_window == 0) return DF_OK;
  const char *key = key_of(r, "attention.sliding_window_pattern");
  if (!df_gguf_has(r->g, key) && !c->is_draft) {
    /* Without a pattern the window is the whole model's. */
    for (uint32_t i = 0; i < c->n_layers && i < DF_LIMIT_LAYERS; i++) c->sliding[i] = true;
    return DF_OK;
  }
  DF_TRY(df_gguf_opt_bool_array(r->g, key, &kv, r->err));
  if (!kv || kv->count != c->n_layers || kv->count > DF_LIMIT_LAYERS)
    return DF_FAIL(r->err, DF_ERR_FORMAT, "could not read \"%s\": key \"%s\" needs one bool for each of %u layers",
                   df_gguf_label(r->g), key, c->n_layers);
  for (uint32_t i = 0; i < c->n_layers; i++) c->sliding[i] = df_gguf_int_at(kv, i) != 0;
  return DF_OK;
}

static void read_tensor_facts(reader *r) {
  df_config *c = r->c;
  c->tie_embeddings = !c->is_draft && !has_tensor(r, "output.weight");
  c->attention_bias = has_tensor(r, "blk.0.attn_q.bias");
  c->attention_out_bias = has_tensor(r, "blk.0.attn_output.bias");
  c->qk_norm = has_tensor(r, "blk.0.attn_q_norm.weight");
  if (has_tensor(r, "blk.0.ffn_up.bias")) df_config_note_unsupported(c, "a bias in the feed-forward part");
  if (has_tensor(r, "blk.0.ffn_gate_inp.weight")) df_config_note_unsupported(c, "a mixture of experts");
  if (has_tensor(r, "blk.0.attn_sinks.weight"))
    df_config_note_unsupported(c, "attention sinks (blk.0.attn_sinks.weight)");
}

static void note_draft_variants(reader *r) {
  df_config *c = r->c;
  if (has_tensor(r, "selector_hidden.weight") || has(r, "selector_rank"))
    df_config_note_unsupported(c, "the DFlash2 candidate selector (selector_hidden.weight)");
  if (has_tensor(r, "blk.0.attn_conv_base") || has(r, "conv_kernel_size"))
    df_config_note_unsupported(c, "the DFlash2 convolution (blk.0.attn_conv_base)");
  if (has_tensor(r, "markov_w1.weight")) df_config_note_unsupported(c, "the DSpark markov head (markov_w1.weight)");
  if (has(r, "hyper_connection_count")) df_config_note_unsupported(c, "hyper connections (DSpark on DeepSeek blocks)");
  if (has_tensor(r, "d2t")) df_config_note_unsupported(c, "a reduced draft vocabulary (tensor \"d2t\")");
  if (has_tensor(r, "fc.scale")) df_config_note_unsupported(c, "a scaled feature projection (fc.scale)");
}

/* The file counts layer inputs: id + 1. An early fork wrote ids as they are, and gives itself away by its keys. */
static df_status read_taps(reader *r, bool early_fork) {
  df_config *c = r->c;
  const df_gguf_kv *kv;
  const char *key = key_of(r, "target_layers");
  DF_TRY(df_gguf_opt_int_array(r->g, key, &kv, r->err));
  if (!kv || kv->count == 0 || kv->count > DF_LIMIT_TAPS)
    return DF_FAIL(r->err, DF_ERR_FORMAT, "could not read \"%s\": key \"%s\" needs 1 to %d layer numbers",
                   df_gguf_label(r->g), key, DF_LIMIT_TAPS);
  c->n_taps = (uint32_t)kv->count;
  for (uint32_t i = 0; i < c->n_taps; i++) {
    int64_t id = df_gguf_int_at(kv, i), first = early_fork ? 0 : 1;
    if (id < first || id > DF_LIMIT_LAYERS)
      return DF_FAIL(r->err, DF_ERR_FORMAT, "could not read \"%s\": key \"%s\" names the layer %lld",
                     df_gguf_label(r->g), key, (long long)id);
    c->taps[i] = (uint32_t)(id - first);
  }
  return DF_OK;
}

static df_status read_draft(reader *r) {
  df_config *c = r->c;
  bool causal, early_fork = has(r, "mask_token_id") || has(r, "target_hidden_size");
  float value_scale;
  note_draft_variants(r);
  DF_TRY(read_taps(r, early_fork));
  DF_TRY(opt_u32(r, "block_size", DF_DEFAULT_BLOCK_SIZE, &c->block_size));
  DF_TRY(df_gguf_opt_i64(r->g, key_of(r, "mask_token_id"), -1, &c->mask_token_id, r->err));
  DF_TRY(df_gguf_opt_i64(r->g, "tokenizer.ggml.mask_token_id", c->mask_token_id, &c->mask_token_id, r->err));
  DF_TRY(df_gguf_opt_bool(r->g, key_of(r, "attention.causal"), false, &causal, r->err));
  c->has_causal_key = has(r, "attention.causal");
  for (uint32_t i = 0; i < c->n_layers && i < DF_LIMIT_LAYERS; i++) c->causal[i] = causal;
  DF_TRY(opt_f32(r, "logit_scale", 0, &c->logit_scale));
  DF_TRY(opt_f32(r, "embedding_scale", 1, &c->embedding_scale));
  if (c->logit_scale == 0) c->logit_scale = 1; /* 0 means off */
  DF_TRY(opt_f32(r, "attention.value_scale", 1, &value_scale));
  if (value_scale != 1) df_config_note_unsupported(c, "a value scale of %g", (double)value_scale);
  uint32_t target_hidden;
  DF_TRY(opt_u32(r, "target_hidden_size", c->hidden, &target_hidden));
  if (target_hidden != c->hidden)
    df_config_note_unsupported(c, "a target hidden size of %u with a draft of %u", target_hidden, c->hidden);
  return DF_OK;
}

df_status df_config_from_gguf(const df_gguf *g, df_config *out, df_error *err) {
  df_config c;
  reader r = {.g = g, .c = &c, .err = err};
  df_config_init(&c);
  DF_TRY(read_arch(&r));
  DF_TRY(read_geometry(&r));
  DF_TRY(read_rope(&r));
  DF_TRY(read_window(&r));
  read_tensor_facts(&r);
  if (c.is_draft) DF_TRY(read_draft(&r));
  DF_TRY(df_config_finish(&c, df_gguf_label(g), err));
  *out = c;
  return DF_OK;
}
