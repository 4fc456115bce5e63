#include "support/test_models.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include <openssl/evp.h>

#include "base/mem.h"
#include "base/size.h"
#include "format/gguf.h"

static const struct known_model {
  const char *name;
  const char *files[4];
} MODELS[] = {
    {"SmolLM2-135M-Instruct", {"SmolLM2-135M-Instruct.Q4_1.gguf"}},
    {"smollm2-135m-instruct-dflash", {"smollm2-135m-instruct-dflash.Q8_0.gguf", "smollm2-135m-instruct-dflash.gguf"}},
    {"smollm2-135m-instruct-dflash/", {"smollm2-135m-instruct-dflash"}},
    {"qwen2.5-coder-1.5b-instruct-dflash",
     {"qwen2.5-coder-1.5b-instruct-dflash.gguf", "qwen2.5-coder-1.5b-instruct-dflash.Q8_0.gguf",
      "qwen2.5-coder-1.5b-instruct-dflash.Q4_1.gguf", "qwen2.5-coder-1.5b-instruct-dflash.Q4_0.gguf"}},
    {"qwen2.5-coder-1.5b-instruct",
     {"qwen2.5-coder-1.5b-instruct-q4_k_m.gguf", "qwen2.5-coder-1.5b-instruct.Q4_K_M.gguf",
      "Qwen2.5-Coder-1.5B-Instruct.Q4_K_M.gguf"}},
};

/* One static place for each answer, so that callers need not free it. */
static char g_paths[DF_COUNT_OF(MODELS)][1024];

static bool try_folder(const struct known_model *m, const char *folder, size_t n, const char *below) {
  char *path = g_paths[m - MODELS];
  for (size_t i = 0; i < DF_COUNT_OF(m->files) && m->files[i]; i++) {
    int k = snprintf(path, sizeof g_paths[0], "%.*s%s/%s", (int)n, folder, below, m->files[i]);
    if (k > 0 && (size_t)k < sizeof g_paths[0] && access(path, R_OK) == 0) return true;
  }
  return false;
}

static bool try_list(const struct known_model *m, const char *list) {
  for (; list && *list; list += *list == ':') {
    size_t n = strcspn(list, ":");
    if (n && try_folder(m, list, n, "")) return true;
    list += n;
  }
  return false;
}

static bool try_one(const struct known_model *m, const char *folder, const char *below) {
  return folder && *folder && try_folder(m, folder, strlen(folder), below);
}

const char *df_test_model(const char *name) {
  for (size_t i = 0; i < DF_COUNT_OF(MODELS); i++) {
    const struct known_model *m = &MODELS[i];
    if (strcmp(m->name, name) != 0) continue;
    bool found = try_list(m, getenv("DF_TEST_MODELS")) || try_one(m, getenv("DF_CACHE_DIR"), "") ||
                 try_one(m, getenv("HOME"), "/.cache/dflash") || try_one(m, "/root/models", "") ||
                 try_one(m, "models", ""); /* tests run in the source folder */
    return found ? g_paths[i] : NULL;
  }
  fail_msg("df_test_model: unknown name \"%s\"", name);
  return NULL;
}

const char *df_test_model_or_skip(const char *name) {
  const char *path = df_test_model(name);
  if (!path) {
    print_message("[  SKIPPED ] model file \"%s\" is not on this machine (see tests/support/test_models.h)\n", name);
    skip();
  }
  return path;
}

static df_slice *read_strings(const df_gguf *g, const char *key, uint32_t *n) {
  const df_gguf_kv *kv = NULL;
  df_error err = {0};
  if (df_gguf_opt_str_array(g, key, &kv, &err) != DF_OK || !kv) fail_msg("%s: %s %s", df_gguf_label(g), key, err.msg);
  df_slice *out = df_calloc(kv->count, sizeof *out);
  assert_non_null(out);
  df_gguf_str_iter it = df_gguf_str_begin(kv);
  df_gguf_str s;
  for (*n = 0; df_gguf_str_next(&it, &s); ++*n) out[*n] = (df_slice){s.data, s.len};
  assert_int_equal(*n, kv->count);
  return out;
}

static int32_t read_id(const df_gguf *g, const char *key) {
  int64_t v = -1;
  df_error err = {0};
  if (df_gguf_opt_i64(g, key, -1, &v, &err) != DF_OK) fail_msg("%s", err.msg);
  return (int32_t)v;
}

df_tokenizer *df_test_tokenizer(const char *path) {
  df_gguf *g = NULL;
  df_error err = {0};
  if (df_gguf_open(path, &g, &err) != DF_OK) fail_msg("%s", err.msg);
  df_vocab_spec spec = df_vocab_spec_default();
  const df_gguf_kv *kinds = NULL;
  df_gguf_str pre = {0};
  if (df_gguf_get_str(g, "tokenizer.ggml.pre", &pre, &err) != DF_OK ||
      df_gguf_opt_int_array(g, "tokenizer.ggml.token_type", &kinds, &err) != DF_OK || !kinds)
    fail_msg("%s: no tokenizer in it %s", path, err.msg);
  df_slice *tokens = read_strings(g, "tokenizer.ggml.tokens", &spec.n_tokens);
  df_slice *merges = read_strings(g, "tokenizer.ggml.merges", &spec.n_merges);
  int32_t *types = df_calloc(spec.n_tokens, sizeof *types);
  char *name = df_strndup(pre.data, pre.len);
  assert_true(types && name && kinds->count == spec.n_tokens);
  for (uint32_t i = 0; i < spec.n_tokens; i++) types[i] = (int32_t)df_gguf_int_at(kinds, i);
  spec.tokens = tokens;
  spec.types = types;
  spec.merges = merges;
  spec.pre = name;
  spec.bos = read_id(g, "tokenizer.ggml.bos_token_id");
  spec.eos = read_id(g, "tokenizer.ggml.eos_token_id");
  spec.pad = read_id(g, "tokenizer.ggml.padding_token_id");
  spec.mask = read_id(g, "tokenizer.ggml.mask_token_id");
  df_tokenizer *t = NULL;
  if (df_tokenizer_create(&spec, &t, &err) != DF_OK) fail_msg("%s: %s", path, err.msg);
  df_free(name);
  df_free(types);
  df_free(merges);
  df_free(tokens);
  df_gguf_free(g);
  return t;
}

char *df_test_read_file(const char *path, size_t *n) {
  FILE *f = fopen(path, "rb");
  if (!f) fail_msg("could not open \"%s\"", path);
  df_buf b = {0};
  char part[65536];
  for (size_t k; (k = fread(part, 1, sizeof part, f)) > 0;) assert_int_equal(df_buf_put(&b, part, k, NULL), DF_OK);
  fclose(f);
  if (n) *n = b.len;
  return df_buf_take(&b);
}

void df_test_sha256(const char *path, char hex[65]) {
  FILE *f = fopen(path, "rb");
  if (!f) fail_msg("could not open \"%s\"", path);
  EVP_MD_CTX *ctx = EVP_MD_CTX_new();
  unsigned char *part = df_alloc(1 << 20), digest[32];
  assert_true(ctx && part && EVP_DigestInit_ex(ctx, EVP_sha256(), NULL) == 1);
  for (size_t k; (k = fread(part, 1, 1 << 20, f)) > 0;) assert_int_equal(EVP_DigestUpdate(ctx, part, k), 1);
  fclose(f);
  assert_int_equal(EVP_DigestFinal_ex(ctx, digest, NULL), 1);
  EVP_MD_CTX_free(ctx);
  df_free(part);
  for (size_t i = 0; i < sizeof digest; i++) (void)snprintf(hex + 2 * i, 3, "%02x", digest[i]);
}

bool df_test_long(void) {
  const char *v = getenv("DF_TEST_LONG");
  return v && *v && strcmp(v, "0") != 0;
}
