#include "model/vocab.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/mem.h"
#include "base/size.h"
#include "format/hf_tokenizer.h"

static df_status strings_of(const df_gguf *g, const char *key, bool required, df_slice **out, uint32_t *n,
                            df_error *err) {
  const df_gguf_kv *kv;
  *out = NULL;
  *n = 0;
  DF_TRY(df_gguf_opt_str_array(g, key, &kv, err));
  if (!kv) {
    if (!required) return DF_OK;
    return DF_FAIL(err, DF_ERR_FORMAT, "\"%s\" has no tokenizer (key \"%s\" is missing)", df_gguf_label(g), key);
  }
  if (kv->count > INT32_MAX)
    return DF_FAIL(err, DF_ERR_LIMIT, "\"%s\" has too many entries in \"%s\"", df_gguf_label(g), key);
  df_slice *s = df_calloc((size_t)kv->count, sizeof *s);
  if (!s) return DF_OOM(err, "the vocabulary", (size_t)kv->count * sizeof *s);
  df_gguf_str_iter it = df_gguf_str_begin(kv);
  df_gguf_str str;
  uint32_t i = 0;
  while (i < kv->count && df_gguf_str_next(&it, &str)) s[i++] = (df_slice){str.data, str.len};
  *out = s;
  *n = i;
  return DF_OK;
}

static df_status types_of(const df_gguf *g, uint32_t n, int32_t **out, df_error *err) {
  const df_gguf_kv *kv;
  *out = NULL;
  DF_TRY(df_gguf_opt_int_array(g, "tokenizer.ggml.token_type", &kv, err));
  if (!kv) return DF_OK;
  if (kv->count != n)
    return DF_FAIL(err, DF_ERR_FORMAT, "\"%s\" has %u tokens but %llu token types", df_gguf_label(g), n,
                   (unsigned long long)kv->count);
  int32_t *t = df_calloc(n, sizeof *t);
  if (!t) return DF_OOM(err, "token types", (size_t)n * sizeof *t);
  for (uint32_t i = 0; i < n; i++) t[i] = (int32_t)df_gguf_int_at(kv, i);
  *out = t;
  return DF_OK;
}

static df_status id_of(const df_gguf *g, const char *key, uint32_t n, int32_t *out, df_error *err) {
  int64_t v;
  DF_TRY(df_gguf_opt_i64(g, key, -1, &v, err));
  if (v < -1 || v >= n)
    return DF_FAIL(err, DF_ERR_FORMAT, "\"%s\": \"%s\" is %lld, outside the vocabulary of %u", df_gguf_label(g), key,
                   (long long)v, n);
  *out = (int32_t)v;
  return DF_OK;
}

static df_status ids_of(const df_gguf *g, df_vocab_spec *s, df_error *err) {
  DF_TRY(id_of(g, "tokenizer.ggml.bos_token_id", s->n_tokens, &s->bos, err));
  DF_TRY(id_of(g, "tokenizer.ggml.eos_token_id", s->n_tokens, &s->eos, err));
  DF_TRY(id_of(g, "tokenizer.ggml.eot_token_id", s->n_tokens, &s->eot, err));
  DF_TRY(id_of(g, "tokenizer.ggml.padding_token_id", s->n_tokens, &s->pad, err));
  DF_TRY(id_of(g, "tokenizer.ggml.mask_token_id", s->n_tokens, &s->mask, err));
  return id_of(g, "tokenizer.ggml.unknown_token_id", s->n_tokens, &s->unk, err);
}

static df_status text_of(const df_gguf *g, const char *key, const char *def, char *out, size_t cap, df_error *err) {
  df_gguf_str s;
  DF_TRY(df_gguf_opt_str(g, key, (df_gguf_str){def, strlen(def)}, &s, err));
  (void)snprintf(out, cap, "%.*s", (int)DF_MIN(s.len, cap - 1), s.data);
  return DF_OK;
}

df_status df_vocab_from_gguf(const df_gguf *g, df_tokenizer **out, df_error *err) {
  char model[32], pre[32];
  DF_TRY(text_of(g, "tokenizer.ggml.model", "", model, sizeof model, err));
  if (strcmp(model, "gpt2") != 0)
    return DF_FAIL(err, model[0] ? DF_ERR_UNSUPPORTED : DF_ERR_FORMAT,
                   "\"%s\" has %s%s, expected byte-level BPE (\"gpt2\")", df_gguf_label(g),
                   model[0] ? "the tokenizer model " : "no tokenizer", model);
  DF_TRY(text_of(g, "tokenizer.ggml.pre", "default", pre, sizeof pre, err));
  df_vocab_spec spec = df_vocab_spec_default();
  df_slice *tokens = NULL, *merges = NULL;
  int32_t *types = NULL;
  df_status s = strings_of(g, "tokenizer.ggml.tokens", true, &tokens, &spec.n_tokens, err);
  if (s == DF_OK) s = strings_of(g, "tokenizer.ggml.merges", true, &merges, &spec.n_merges, err);
  if (s == DF_OK) s = types_of(g, spec.n_tokens, &types, err);
  if (s == DF_OK) s = ids_of(g, &spec, err);
  if (s == DF_OK) s = df_gguf_opt_bool(g, "tokenizer.ggml.add_bos_token", false, &spec.add_bos, err);
  if (s == DF_OK) {
    spec.tokens = tokens;
    spec.merges = merges;
    spec.types = types;
    spec.pre = pre;
    spec.ignore_merges = strcmp(pre, "llama-bpe") == 0;
    s = df_tokenizer_create(&spec, out, err);
    if (s != DF_OK) df_error_prefix(err, "could not build the tokenizer of \"%s\"", df_gguf_label(g));
  }
  df_free(tokens);
  df_free(merges);
  df_free(types);
  return s;
}

static df_status slices_of(const df_gguf_str *s, uint32_t n, df_slice **out, df_error *err) {
  df_slice *v = df_calloc(n ? n : 1, sizeof *v);
  if (!v) return DF_OOM(err, "the vocabulary", n * sizeof *v);
  for (uint32_t i = 0; i < n; i++) v[i] = (df_slice){s[i].data, s[i].len};
  *out = v;
  return DF_OK;
}

static df_status from_hf(const df_hf_tokenizer *h, df_tokenizer **out, df_error *err) {
  df_slice *tokens = NULL, *merges = NULL;
  df_status s = slices_of(h->tokens, h->n_tokens, &tokens, err);
  if (s == DF_OK) s = slices_of(h->merges, h->n_merges, &merges, err);
  if (s == DF_OK) {
    df_vocab_spec spec = df_vocab_spec_default();
    spec.tokens = tokens;
    spec.types = h->types;
    spec.n_tokens = h->n_tokens;
    spec.merges = merges;
    spec.n_merges = h->n_merges;
    spec.pre = h->pre;
    spec.normalize_nfc = h->normalize_nfc;
    spec.ignore_merges = h->ignore_merges;
    spec.add_bos = h->add_bos;
    spec.bos = h->bos;
    spec.eos = h->eos;
    spec.pad = h->pad;
    spec.unk = h->unk;
    spec.mask = h->mask;
    s = df_tokenizer_create(&spec, out, err);
  }
  df_free(tokens);
  df_free(merges);
  return s;
}

static bool is_folder(const char *path) {
  struct stat st;
  return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

df_status df_vocab_from_folder(const char *path, uint32_t min_tokens, df_tokenizer **out, char **chat, df_error *err) {
  const char *slash = strrchr(path, '/');
  char *folder = is_folder(path) ? df_strdup(path) : slash ? df_strndup(path, (size_t)(slash - path)) : df_strdup(".");
  if (!folder) return DF_OOM(err, "a path", strlen(path));
  df_hf_tokenizer h;
  df_status s = df_hf_tokenizer_load(folder, min_tokens, &h, err);
  df_free(folder);
  if (s != DF_OK) return s;
  char *copy = NULL;
  if (chat && h.chat_template && !(copy = df_strdup(h.chat_template)))
    s = DF_OOM(err, "the chat template", strlen(h.chat_template));
  if (s == DF_OK) s = from_hf(&h, out, err);
  df_hf_tokenizer_release(&h);
  if (s != DF_OK) {
    df_free(copy);
    return s;
  }
  if (chat) *chat = copy;
  return DF_OK;
}

df_status df_vocab_open(const char *path, df_tokenizer **out, df_error *err) {
  const size_t n = strlen(path);
  const bool safetensors = n > 12 && strcmp(path + n - 12, ".safetensors") == 0;
  if (is_folder(path) || safetensors) return df_vocab_from_folder(path, 0, out, NULL, err);
  df_gguf *g;
  DF_TRY(df_gguf_open(path, &g, err));
  const df_status s = df_vocab_from_gguf(g, out, err);
  df_gguf_free(g);
  return s;
}
