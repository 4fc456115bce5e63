#include "format/hf_tokenizer.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/size.h"
#include "format/hf_tokenizer_parts.h"
#include "format/limits.h"
#include "format/path.h"

enum { TYPE_NORMAL = 1, TYPE_CONTROL = 3, TYPE_USER = 4, TYPE_UNUSED = 5, PAD_TEXT_MAX = 24 };

df_status df_hf_tokenizer_read_id(const df_json *v, const char *what, uint32_t *id, df_error *err) {
  int64_t n;
  DF_TRY(df_json_to_i64(v, what, 0, INT64_MAX, &n, err));
  if (n >= DF_LIMIT_VOCAB)
    return DF_FAIL(err, DF_ERR_LIMIT, "%s is %lld, the limit is %d", what, (long long)n, DF_LIMIT_VOCAB);
  *id = (uint32_t)n;
  return DF_OK;
}

/* First pass: the size of the vocabulary. */
static df_status count_tokens(const df_json *vocab, const df_json *added, uint32_t *n, df_error *err) {
  df_json_iter it = df_json_begin(vocab);
  const char *key;
  size_t len;
  const df_json *v;
  uint32_t id;
  while (df_json_next(&it, &key, &len, &v)) {
    DF_TRY(df_hf_tokenizer_read_id(v, "an id of \"vocab\"", &id, err));
    *n = DF_MAX(*n, id + 1);
  }
  for (size_t i = 0; i < df_json_size(added); i++) {
    DF_TRY(df_hf_tokenizer_read_id(df_json_member(df_json_at(added, i), "id"), "\"id\" of an added token", &id, err));
    *n = DF_MAX(*n, id + 1);
  }
  if (*n == 0) return DF_FAIL(err, DF_ERR_FORMAT, "the vocabulary is empty");
  return DF_OK;
}

static df_status put_vocab(df_hf_tokenizer *t, const df_json *vocab, df_error *err) {
  df_json_iter it = df_json_begin(vocab);
  df_gguf_str text;
  const df_json *v;
  while (df_json_next(&it, &text.data, &text.len, &v)) {
    uint32_t id;
    DF_TRY(df_hf_tokenizer_read_id(v, "an id of \"vocab\"", &id, err));
    if (t->types[id])
      return DF_FAIL(err, DF_ERR_FORMAT, "tokens \"%.40s\" and \"%.40s\" both have the id %u", t->tokens[id].data,
                     text.data, id);
    t->tokens[id] = text;
    t->types[id] = TYPE_NORMAL;
  }
  return DF_OK;
}

static df_status put_added(df_hf_tokenizer *t, const df_json *v, df_error *err) {
  bool special, refused = false;
  uint32_t id;
  DF_TRY(df_hf_tokenizer_read_id(df_json_member(v, "id"), "\"id\" of an added token", &id, err));
  df_gguf_str text;
  text.data = df_json_str(df_json_member(v, "content"), &text.len);
  if (!text.data || text.len == 0) return DF_FAIL(err, DF_ERR_FORMAT, "added token %u has no \"content\"", id);
  DF_TRY(df_json_opt_bool(v, "special", false, &special, err));
  static const char *const flags[] = {"single_word", "lstrip", "rstrip"};
  for (size_t i = 0; i < DF_COUNT_OF(flags); i++) {
    DF_TRY(df_json_opt_bool(v, flags[i], false, &refused, err));
    if (refused)
      return DF_FAIL(err, DF_ERR_UNSUPPORTED, "added token \"%.40s\" has \"%s\" set, which is not supported", text.data,
                     flags[i]);
  }
  if (t->types[id] && (t->tokens[id].len != text.len || memcmp(t->tokens[id].data, text.data, text.len) != 0))
    return DF_FAIL(err, DF_ERR_FORMAT, "tokens \"%.40s\" and \"%.40s\" both have the id %u", t->tokens[id].data,
                   text.data, id);
  t->tokens[id] = text;
  t->types[id] = special ? TYPE_CONTROL : TYPE_USER;
  return DF_OK;
}

/* Bytes of the merge texts that have to be put together, and whether that form is used. */
static df_status measure_merges(const df_json *merges, size_t *bytes, df_error *err) {
  for (size_t i = 0; i < df_json_size(merges); i++) {
    const df_json *m = df_json_at(merges, i);
    if (df_json_kind_of(m) == DF_JSON_STRING) continue;
    size_t n[2];
    const char *side[2] = {df_json_str(df_json_at(m, 0), &n[0]), df_json_str(df_json_at(m, 1), &n[1])};
    if (df_json_size(m) != 2 || !side[0] || !side[1])
      return DF_FAIL(err, DF_ERR_FORMAT, "merge %zu is neither a string nor two strings", i);
    if (memchr(side[0], ' ', n[0]) || memchr(side[1], ' ', n[1]))
      return DF_FAIL(err, DF_ERR_UNSUPPORTED, "merge %zu has a blank in it: not a byte-level vocabulary", i);
    if (!df_add_size(*bytes, n[0] + n[1] + 1, bytes)) return DF_OOM(err, "merges", SIZE_MAX);
  }
  return DF_OK;
}

static void put_merges(df_hf_tokenizer *t, const df_json *merges, char *made) {
  for (uint32_t i = 0; i < t->n_merges; i++) {
    const df_json *m = df_json_at(merges, i);
    df_gguf_str *out = &t->merges[i];
    out->data = df_json_str(m, &out->len);
    if (out->data) continue;
    size_t left, right;
    const char *l = df_json_str(df_json_at(m, 0), &left), *r = df_json_str(df_json_at(m, 1), &right);
    memcpy(made, l, left);
    made[left] = ' ';
    memcpy(made + left + 1, r, right);
    *out = (df_gguf_str){made, left + right + 1};
    made += out->len;
  }
}

/* Ids that nobody names get the text that converters to GGUF give them, so that both forms of a model hash alike. */
static void put_padding(df_hf_tokenizer *t, char *made) {
  for (uint32_t i = 0; i < t->n_tokens; i++) {
    if (t->types[i]) continue;
    int k = snprintf(made, PAD_TEXT_MAX, "[PAD%u]", i);
    t->tokens[i] = (df_gguf_str){made, (size_t)k};
    t->types[i] = TYPE_UNUSED;
    made += k;
  }
}

static df_status read_vocabulary(df_hf_tokenizer *t, const df_json *model, uint32_t min_tokens, df_error *err) {
  const df_json *vocab, *merges, *added;
  DF_TRY(df_json_need(model, "vocab", err));
  DF_TRY(df_json_opt_tree(model, "vocab", DF_JSON_OBJECT, &vocab, err));
  DF_TRY(df_json_opt_tree(model, "merges", DF_JSON_ARRAY, &merges, err));
  DF_TRY(df_json_opt_tree(t->tokenizer_tree, "added_tokens", DF_JSON_ARRAY, &added, err));
  uint32_t named = 0;
  DF_TRY(count_tokens(vocab, added, &named, err));
  if (min_tokens > DF_LIMIT_VOCAB)
    return DF_FAIL(err, DF_ERR_LIMIT, "a vocabulary of %u tokens is too large", min_tokens);
  t->n_tokens = DF_MAX(named, min_tokens);
  size_t n_merges = df_json_size(merges), bytes = 0;
  if (n_merges > UINT32_MAX) return DF_FAIL(err, DF_ERR_LIMIT, "%zu merges are too many", n_merges);
  t->n_merges = (uint32_t)n_merges;
  DF_TRY(measure_merges(merges, &bytes, err));
  size_t pad_bytes = (size_t)t->n_tokens * 16 + PAD_TEXT_MAX; /* "[PAD4194303]" has 12 */
  if (!df_add_size(bytes, pad_bytes, &bytes)) return DF_OOM(err, "a vocabulary", SIZE_MAX);
  t->tokens = df_calloc(t->n_tokens, sizeof *t->tokens);
  t->types = df_calloc(t->n_tokens, sizeof *t->types);
  t->merges = df_calloc(n_merges, sizeof *t->merges);
  t->made = df_alloc(bytes);
  if (!t->tokens || !t->types || !t->merges || !t->made) return DF_OOM(err, "a vocabulary", bytes);
  DF_TRY(put_vocab(t, vocab, err));
  for (size_t i = 0; i < df_json_size(added); i++) DF_TRY(put_added(t, df_json_at(added, i), err));
  put_merges(t, merges, t->made + pad_bytes);
  put_padding(t, t->made);
  return DF_OK;
}

/* Fields that must have their neutral value. */
static df_status check_model(const df_json *model, df_error *err) {
  const char *type, *text;
  bool fallback;
  double dropout;
  DF_TRY(df_json_opt_str(model, "type", "BPE", &type, err));
  if (strcmp(type, "BPE") != 0) return DF_FAIL(err, DF_ERR_UNSUPPORTED, "the model is \"%.40s\", not BPE", type);
  static const char *const affixes[] = {"continuing_subword_prefix", "end_of_word_suffix"};
  for (size_t i = 0; i < DF_COUNT_OF(affixes); i++) {
    DF_TRY(df_json_opt_str(model, affixes[i], "", &text, err));
    if (*text) return DF_FAIL(err, DF_ERR_UNSUPPORTED, "\"%s\" is set, which is not supported", affixes[i]);
  }
  DF_TRY(df_json_opt_bool(model, "byte_fallback", false, &fallback, err));
  if (fallback) return DF_FAIL(err, DF_ERR_UNSUPPORTED, "\"byte_fallback\" is set: not a byte-level vocabulary");
  DF_TRY(df_json_opt_f64(model, "dropout", 0, 0, 1, &dropout, err));
  if (dropout > 0) return DF_FAIL(err, DF_ERR_UNSUPPORTED, "\"dropout\" is set: results would be random");
  return DF_OK;
}

static df_status read_tree(df_hf_tokenizer *t, uint32_t min_tokens, df_error *err) {
  const df_json *root = t->tokenizer_tree, *model;
  if (df_json_kind_of(root) != DF_JSON_OBJECT) return DF_FAIL(err, DF_ERR_FORMAT, "the text is no JSON object");
  DF_TRY(df_json_need(root, "model", err));
  DF_TRY(df_json_opt_tree(root, "model", DF_JSON_OBJECT, &model, err));
  DF_TRY(check_model(model, err));
  DF_TRY(df_json_opt_bool(model, "ignore_merges", false, &t->ignore_merges, err));
  DF_TRY(df_hf_tokenizer_read_pipeline(root, t, err));
  DF_TRY(read_vocabulary(t, model, min_tokens, err));
  return df_hf_tokenizer_read_config(t, err);
}

df_status df_hf_tokenizer_parse(const char *tokenizer, size_t n_tokenizer, const char *config, size_t n_config,
                                uint32_t min_tokens, df_hf_tokenizer *out, df_error *err) {
  df_hf_tokenizer t = {.bos = -1, .eos = -1, .pad = -1, .unk = -1, .mask = -1};
  df_status s = df_json_parse(tokenizer, n_tokenizer, &t.tokenizer_tree, err);
  if (s == DF_OK && config) s = df_json_parse(config, n_config, &t.config_tree, err);
  if (s == DF_OK) s = read_tree(&t, min_tokens, err);
  if (s == DF_OK)
    *out = t;
  else
    df_hf_tokenizer_release(&t);
  return s;
}

/* Reads both files of the folder; the second one may be absent. */
static df_status load_trees(const char *folder, df_hf_tokenizer *t, df_error *err) {
  char *main_path = NULL, *config_path = NULL;
  df_status s;
  DF_TRY_GOTO(s, df_path_join(folder, "tokenizer.json", &main_path, err), out);
  DF_TRY_GOTO(s, df_path_join(folder, "tokenizer_config.json", &config_path, err), out);
  DF_TRY_GOTO(s, df_json_load(main_path, DF_LIMIT_JSON_BYTES, &t->tokenizer_tree, err), out);
  if (access(config_path, F_OK) == 0)
    DF_TRY_GOTO(s, df_json_load(config_path, DF_LIMIT_CONFIG_BYTES, &t->config_tree, err), out);
out:
  df_free(main_path);
  df_free(config_path);
  return s;
}

df_status df_hf_tokenizer_load(const char *folder, uint32_t min_tokens, df_hf_tokenizer *out, df_error *err) {
  df_hf_tokenizer t = {.bos = -1, .eos = -1, .pad = -1, .unk = -1, .mask = -1};
  df_status s = load_trees(folder, &t, err);
  if (s == DF_OK) {
    s = read_tree(&t, min_tokens, err);
    if (s != DF_OK) df_error_prefix(err, "could not read the tokenizer in \"%s\"", folder);
  }
  if (s == DF_OK)
    *out = t;
  else
    df_hf_tokenizer_release(&t);
  return s;
}

void df_hf_tokenizer_release(df_hf_tokenizer *t) {
  df_free(t->tokens);
  df_free(t->types);
  df_free(t->merges);
  df_free(t->made);
  df_json_free(t->tokenizer_tree);
  df_json_free(t->config_tree);
  *t = (df_hf_tokenizer){0};
}
