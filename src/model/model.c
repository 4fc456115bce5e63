#include "model/model.h"

#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/size.h"
#include "model/plan.h"
#include "model/vocab.h"

df_model_params df_model_params_default(void) { return (df_model_params){0}; }

static df_status start_threads(df_model *m, const df_model_params *p, df_error *err) {
  df_cpu_tier tier = df_cpu_best_tier();
  if (p->cpu_tier) {
    const int t = df_cpu_tier_parse(p->cpu_tier);
    if (t < 0) return DF_FAIL(err, DF_ERR_ARGUMENT, "unknown CPU tier \"%s\" (" DF_CPU_TIER_CHOICES ")", p->cpu_tier);
    if (!df_cpu_tier_fits((df_cpu_tier)t))
      return DF_FAIL(err, DF_ERR_UNSUPPORTED, "this processor cannot run the %s kernels (best: %s)", p->cpu_tier,
                     df_cpu_tier_name(tier));
    tier = (df_cpu_tier)t;
  }
  m->kernels = df_kernels_get(tier);
  if (!m->kernels) return DF_FAIL(err, DF_ERR_UNSUPPORTED, "no %s kernels in this build", df_cpu_tier_name(tier));
  DF_TRY(df_pool_create(p->n_threads ? p->n_threads : df_cpu_count(), &m->pool, err));
  DF_TRY(df_device_open(p->device, m->pool, m->kernels, &m->device, err));
  m->device->ops->info(m->device, &m->device_info);
  return DF_OK;
}

static void set_name(df_model *m, const char *path) {
  const char *base = strrchr(path, '/');
  base = base && base[1] ? base + 1 : path;
  const df_gguf *g = df_source_gguf(m->source);
  df_gguf_str s = {base, strlen(base)};
  if (g && df_gguf_opt_str(g, "general.name", s, &s, NULL) != DF_OK) s = (df_gguf_str){base, strlen(base)};
  const size_t n = DF_MIN(s.len, sizeof m->name - 1);
  memcpy(m->name, s.data, n);
  m->name[n] = '\0';
}

/* A template that does not parse must not keep the model from loading: raw prompts still work. */
static df_status load_template(df_model *m, const char *text, size_t n, df_error *err) {
  df_error why = {0};
  if (df_chat_template_parse(text, n, &m->chat, &why) == DF_OK) return DF_OK;
  m->chat_error = df_strdup(why.msg);
  return m->chat_error ? DF_OK : DF_OOM(err, "a message", sizeof why.msg);
}

static df_status load_text(df_model *m, df_error *err) {
  const df_gguf *g = df_source_gguf(m->source);
  char *owned = NULL;
  df_gguf_str t = {NULL, 0};
  if (g) {
    DF_TRY(df_vocab_from_gguf(g, &m->tok, err));
    DF_TRY(df_gguf_opt_str(g, "tokenizer.chat_template", t, &t, err));
  } else {
    DF_TRY(df_vocab_from_folder(m->path, m->cfg.vocab, &m->tok, &owned, err));
    if (owned) t = (df_gguf_str){owned, strlen(owned)};
  }
  df_status s = t.data ? load_template(m, t.data, t.len, err) : DF_OK;
  df_free(owned);
  if (s == DF_OK && df_tokenizer_size(m->tok) > m->cfg.vocab)
    s = DF_FAIL(err, DF_ERR_FORMAT, "\"%s\" has %u tokens but only %u rows of embeddings", m->path,
                df_tokenizer_size(m->tok), m->cfg.vocab);
  return s;
}

static df_status request_all(df_model *m, df_loader *l, df_error *err) {
  const df_config *c = &m->cfg;
  DF_TRY(df_loader_matrix(l, "token_embd.weight", c->vocab, c->hidden, NULL, &m->embed, err));
  df_tensor_view probe;
  m->tied = !df_source_find(m->source, "output.weight", &probe);
  if (!m->tied) DF_TRY(df_loader_matrix(l, "output.weight", c->vocab, c->hidden, NULL, &m->head, err));
  DF_TRY(df_loader_vector(l, "output_norm.weight", c->hidden, true, &m->final_norm, err));
  for (uint32_t i = 0; i < c->n_layers; i++) DF_TRY(df_layer_load(l, c, i, c->rope.interleaved, &m->layers[i], err));
  return DF_OK;
}

static uint64_t source_bytes(const df_source *s) {
  uint64_t n = 0;
  for (size_t i = 0; i < df_source_count(s); i++) {
    df_tensor_view v;
    df_source_at(s, i, &v);
    n += v.n_bytes;
  }
  return n;
}

/* In a block of their own: the tables of rotations are made on the host, which may not read the weights any more. */
static df_status load_rope_factors(df_model *m, df_error *err) {
  df_loader *l;
  DF_TRY(df_loader_create(m->source, m->pool, false, &l, err));
  df_status s = df_loader_vector(l, "rope_freqs.weight", m->cfg.head_dim / 2, false, &m->rope_factors, err);
  df_tensor_view probe;
  if (s == DF_OK && df_source_find(m->source, "rope_freqs.weight", &probe))
    s = df_loader_run(l, NULL, NULL, &m->rope_block, &m->rope_bytes, err);
  df_loader_free(l);
  return s;
}

static df_status load_weights(df_model *m, const df_model_params *p, df_error *err) {
  m->layers = df_calloc(m->cfg.n_layers, sizeof *m->layers);
  if (!m->layers) return DF_OOM(err, "layers", m->cfg.n_layers * sizeof *m->layers);
  df_loader *l;
  DF_TRY(df_loader_create(m->source, m->pool, p->exact, &l, err));
  df_plan plan;
  df_loader_place(l, m->device, "the weights");
  df_loader_cache(l, p->weights_cache);
  if (!df_device_is_host(m->device)) { /* reads the draft's list of tensors */
    plan = df_plan_make(&m->cfg, p);
    df_loader_also(l, plan.bytes, plan.text);
  }
  df_status s = request_all(m, l, err);
  if (s == DF_OK) s = df_loader_run(l, p->progress, p->progress_user, &m->block, &m->block_bytes, err);
  m->weights_cached = s == DF_OK && df_loader_was_cached(l);
  if (s == DF_OK && m->tied) m->head = m->embed;
  if (s == DF_OK) s = load_rope_factors(m, err);
  df_loader_free(l);
  return s;
}

static df_status open_into(df_model *m, const char *path, const df_model_params *p, df_error *err) {
  m->path = df_strdup(path);
  if (!m->path) return DF_OOM(err, "a path", strlen(path));
  m->exact = p->exact;
  DF_TRY(df_source_open(path, &m->source, err));
  m->cfg = *df_source_config(m->source);
  if (m->cfg.is_draft) {
    df_error_set(err, DF_ERR_MISMATCH, __FILE__, __LINE__, "\"%s\" is a draft, not a target model", path);
    df_error_hint(err, "pass it with -md, and its target with -m");
    return DF_ERR_MISMATCH;
  }
  DF_TRY(df_config_check_supported(&m->cfg, path, err));
  set_name(m, path);
  m->file_bytes = source_bytes(m->source);
  DF_TRY(start_threads(m, p, err));
  DF_TRY(load_text(m, err));
  const df_status s = load_weights(m, p, err);
  if (s != DF_OK && s != DF_ERR_CANCELLED) df_error_prefix(err, "could not load \"%s\"", path);
  return s;
}

df_status df_model_open(const char *path, const df_model_params *params, df_model **out, df_error *err) {
  const uint64_t t0 = df_now_ns();
  const df_model_params p = params ? *params : df_model_params_default();
  df_model *m = df_calloc(1, sizeof *m);
  if (!m) return DF_OOM(err, "a model", sizeof *m);
  const df_status s = open_into(m, path, &p, err);
  if (s != DF_OK) {
    df_model_close(m);
    return s;
  }
  m->load_ms = (double)(df_now_ns() - t0) / 1e6;
  *out = m;
  return DF_OK;
}

void df_model_close(df_model *m) {
  if (!m) return;
  df_device_free(m->device);
  df_pool_free(m->pool);
  df_pages_free(m->block, m->block_bytes);
  df_pages_free(m->rope_block, m->rope_bytes);
  df_free(m->layers);
  df_chat_template_free(m->chat);
  df_free(m->chat_error);
  df_tokenizer_free(m->tok);
  df_source_close(m->source);
  df_free(m->path);
  df_free(m);
}

static bool is_half(const df_weights *w) {
  return w->pack == DF_PACK_F16 || w->pack == DF_PACK_BF16 || w->pack == DF_PACK_F8;
}

bool df_model_has_half_weights(const df_model *m) {
  bool any = is_half(&m->embed) || is_half(&m->head);
  for (uint32_t i = 0; i < m->cfg.n_layers; i++) {
    const df_layer *l = &m->layers[i];
    const df_weights *const w[] = {&l->q, &l->k, &l->v, &l->o, &l->gate, &l->up, &l->down};
    for (size_t j = 0; j < DF_COUNT_OF(w); j++) any |= is_half(w[j]);
  }
  return any;
}

static uint64_t params_of(const df_config *c, bool tied) {
  const uint64_t d = c->hidden, q = (uint64_t)c->n_heads * c->head_dim, kv = (uint64_t)c->n_kv_heads * c->head_dim;
  const uint64_t layer = 2 * d * q + 2 * d * kv + 3 * d * c->ffn + 2 * d;
  return layer * c->n_layers + d * c->vocab * (tied ? 1 : 2) + d;
}

df_model_info df_model_get_info(const df_model *m) {
  const df_config *c = &m->cfg;
  return (df_model_info){.arch = c->arch,
                         .name = m->name,
                         .n_layers = c->n_layers,
                         .hidden = c->hidden,
                         .n_heads = c->n_heads,
                         .n_kv_heads = c->n_kv_heads,
                         .head_dim = c->head_dim,
                         .ffn = c->ffn,
                         .vocab = c->vocab,
                         .n_ctx_train = c->context_length,
                         .n_params = params_of(c, m->tied),
                         .file_bytes = m->file_bytes,
                         .weight_bytes = m->block_bytes,
                         .n_threads = df_pool_threads(m->pool),
                         .cpu_tier = df_cpu_tier_name(m->kernels->tier),
                         .load_ms = m->load_ms,
                         .device = m->device_info.name,
                         .card = m->device_info.card,
                         .weights_cached = m->weights_cached};
}
