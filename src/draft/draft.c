#include "draft/draft.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/size.h"
#include "draft/fit.h"
#include "kernels/encode.h"
#include "model/vocab.h"

df_draft_params df_draft_params_default(void) { return (df_draft_params){.draft_vocab = DF_DRAFT_VOCAB_AUTO}; }

/* Head rows to draft from; 0 = all. Measured: fewer rows than these cost accept length, more cost time. */
static uint32_t head_rows(const df_draft *d, uint32_t wanted) {
  const uint32_t vocab = d->target->cfg.vocab;
  if (wanted != DF_DRAFT_VOCAB_AUTO) return wanted < vocab ? wanted : 0;
  const df_gguf *g = df_source_gguf(d->source);
  if (!g || !df_gguf_has(g, "dflash.draft_token_rank")) return 0;
  const uint32_t n = vocab > 65536 ? 16384 : 8192;
  return n < vocab ? n : 0;
}

static df_status check_fit(df_draft *d, df_error *err) {
  const df_gguf *g = df_source_gguf(d->source);
  uint64_t hash = 0;
  if (g && df_gguf_has(g, "tokenizer.ggml.tokens")) {
    df_tokenizer *tok;
    DF_TRY(df_vocab_from_gguf(g, &tok, err));
    hash = df_tokenizer_hash(tok);
    df_tokenizer_free(tok);
  }
  return df_draft_check_fit(&d->target->cfg, &d->cfg, df_tokenizer_hash(d->target->tok), hash, NULL, err);
}

/* The type of params.weight_type, or -1 for none. */
static df_status weight_type(const char *name, int *out, df_error *err) {
  *out = -1;
  if (!name) return DF_OK;
  *out = df_encode_type_named(name, strlen(name));
  if (*out >= 0 && *out != DF_F32) return DF_OK;
  df_error_set(err, DF_ERR_ARGUMENT, __FILE__, __LINE__, "a draft cannot be rounded to \"%s\"", name);
  df_error_hint(err, "q4_0, q4_1 or q8_0");
  return DF_ERR_ARGUMENT;
}

static df_status load_weights(df_draft *d, const char *type_name, df_error *err) {
  const df_config *c = &d->cfg;
  int type;
  DF_TRY(weight_type(type_name, &type, err));
  d->layers = df_calloc(c->n_layers, sizeof *d->layers);
  if (!d->layers) return DF_OOM(err, "draft layers", c->n_layers * sizeof *d->layers);
  df_loader *l;
  DF_TRY(df_loader_create(d->source, d->target->pool, d->target->exact, &l, err));
  if (type >= 0) df_loader_round_to(l, (df_dtype)type);
  df_loader_place(l, d->target->device, "the draft's weights");
  df_status s = df_loader_matrix(l, "fc.weight", c->hidden, c->n_taps * c->hidden, NULL, &d->fc, err);
  if (s == DF_OK) s = df_loader_vector(l, "enc.output_norm.weight", c->hidden, true, &d->hidden_norm, err);
  if (s == DF_OK) s = df_loader_vector(l, "output_norm.weight", c->hidden, true, &d->final_norm, err);
  for (uint32_t i = 0; i < c->n_layers && s == DF_OK; i++) s = df_layer_load(l, c, i, false, &d->layers[i], err);
  if (s == DF_OK) s = df_loader_run(l, NULL, NULL, &d->block, &d->block_bytes, err);
  df_loader_free(l);
  return s;
}

static int by_id(const void *a, const void *b) {
  const uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
  return x < y ? -1 : x > y;
}

/* The first n tokens of the file's rank table, ascending, so that ties still go to the lower id. */
static df_status ranked_ids(const df_draft *d, uint32_t n, uint32_t **out, uint32_t *n_out, df_error *err) {
  const df_gguf *g = df_source_gguf(d->source);
  const df_gguf_kv *kv = NULL;
  if (g) DF_TRY(df_gguf_opt_int_array(g, "dflash.draft_token_rank", &kv, err));
  if (!kv) {
    df_error_set(err, DF_ERR_UNSUPPORTED, __FILE__, __LINE__, "the draft has no rank table to restrict drafting by");
    df_error_hint(err, "draft from the full vocabulary");
    return DF_ERR_UNSUPPORTED;
  }
  const uint32_t count = (uint32_t)DF_MIN((uint64_t)n, kv->count);
  uint32_t *ids = df_alloc((size_t)count * sizeof *ids + 1);
  if (!ids) return DF_OOM(err, "the rank table", (size_t)count * sizeof *ids);
  for (uint32_t i = 0; i < count; i++) {
    const int64_t id = df_gguf_int_at(kv, i);
    if (id < 0 || id >= d->target->cfg.vocab) {
      df_free(ids);
      return DF_FAIL(err, DF_ERR_FORMAT, "the draft's rank table holds token %lld, outside the vocabulary of %u",
                     (long long)id, d->target->cfg.vocab);
    }
    ids[i] = (uint32_t)id;
  }
  qsort(ids, count, sizeof *ids, by_id);
  uint32_t unique = 0;
  for (uint32_t i = 0; i < count; i++)
    if (i == 0 || ids[i] != ids[i - 1]) ids[unique++] = ids[i];
  *out = ids;
  *n_out = unique;
  return DF_OK;
}

/* Gathers the head's rows of the most frequent tokens from the target's file. */
static df_status load_sub_head(df_draft *d, uint32_t n, df_error *err) {
  uint32_t *ids = NULL;
  uint32_t count = 0;
  DF_TRY(ranked_ids(d, n, &ids, &count, err));
  df_loader *l;
  df_status s = df_loader_create(d->target->source, d->target->pool, d->target->exact, &l, err);
  if (s == DF_OK) {
    df_loader_place(l, d->target->device, "the draft's head");
    const char *name = d->target->tied ? "token_embd.weight" : "output.weight";
    s = df_loader_gather(l, name, count, d->cfg.hidden, d->target->cfg.vocab, ids, &d->sub_head, err);
    if (s == DF_OK) s = df_loader_run(l, NULL, NULL, &d->sub_block, &d->sub_bytes, err);
    df_loader_free(l);
  }
  if (s != DF_OK) {
    df_free(ids);
    d->sub_head.n = 0;
    return s;
  }
  d->sub_ids = (int32_t *)ids;
  return df_device_map(d->target->device, ids, count * sizeof *ids, DF_MEM_CONST, "the draft's tokens", err);
}

static df_status open_into(df_draft *d, const char *path, const df_draft_params *p, df_error *err) {
  DF_TRY(df_source_open(path, &d->source, err));
  d->cfg = *df_source_config(d->source);
  if (!d->cfg.is_draft)
    return DF_FAIL(err, DF_ERR_MISMATCH, "\"%s\" is a %s model, not a DFlash draft", path, d->cfg.arch);
  DF_TRY(df_config_check_supported(&d->cfg, path, err));
  df_status s = check_fit(d, err);
  if (s == DF_OK && d->cfg.mask_token_id < 0) /* fitting, as far as known, but a block cannot be filled */
    s = DF_FAIL(err, DF_ERR_FORMAT, "the file does not say which id its mask token has");
  if (s == DF_OK) s = load_weights(d, p->weight_type, err);
  const uint32_t rows = s == DF_OK ? head_rows(d, p->draft_vocab) : 0;
  if (rows) s = load_sub_head(d, rows, err);
  if (s != DF_OK) df_error_prefix(err, "could not use draft \"%s\"", path);
  return s;
}

df_status df_draft_open(const char *path, df_model *target, const df_draft_params *params, df_draft **out,
                        df_error *err) {
  const df_draft_params p = params ? *params : df_draft_params_default();
  df_draft *d = df_calloc(1, sizeof *d);
  if (!d) return DF_OOM(err, "a draft", sizeof *d);
  d->target = target;
  const df_status s = open_into(d, path, &p, err);
  if (s != DF_OK) {
    df_draft_close(d);
    return s;
  }
  *out = d;
  return DF_OK;
}

void df_draft_close(df_draft *d) {
  if (!d) return;
  df_device_unmap(d->target->device, d->block);
  df_device_unmap(d->target->device, d->sub_block);
  df_device_unmap(d->target->device, d->sub_ids);
  df_pages_free(d->block, d->block_bytes);
  df_pages_free(d->sub_block, d->sub_bytes);
  df_free(d->sub_ids);
  df_free(d->layers);
  df_source_close(d->source);
  df_free(d);
}

df_draft_info df_draft_get_info(const df_draft *d) {
  df_draft_info i = {.n_layers = d->cfg.n_layers,
                     .hidden = d->cfg.hidden,
                     .block_size = d->cfg.block_size,
                     .mask_token_id = (int32_t)d->cfg.mask_token_id,
                     .n_taps = d->cfg.n_taps,
                     .draft_vocab = d->sub_head.n ? d->sub_head.n : d->target->cfg.vocab,
                     .weight_bytes = d->block_bytes + d->sub_bytes};
  for (uint32_t t = 0; t < d->cfg.n_taps && t < DF_COUNT_OF(i.taps); t++) i.taps[t] = d->cfg.taps[t];
  return i;
}
