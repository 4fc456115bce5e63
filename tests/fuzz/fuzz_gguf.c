/* Any bytes as a GGUF file: open, touch all that is handed out, read a configuration, write the contents again. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "format/config.h"
#include "format/gguf.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static volatile uint64_t g_sum; /* keeps the reads */

static void touch(const void *p, size_t n) {
  const uint8_t *b = p;
  uint64_t s = 0;
  for (size_t i = 0; i < n; i++) s += b[i];
  g_sum = g_sum + s;
}

static void read_all(const df_gguf *g) {
  for (size_t i = 0; i < df_gguf_kv_count(g); i++) {
    const df_gguf_kv *kv = df_gguf_kv_at(g, i);
    df_gguf_str s;
    df_gguf_str_iter it = df_gguf_str_begin(kv);
    touch(kv->key, strlen(kv->key));
    if (df_gguf_find(g, kv->key) != kv) abort();
    while (df_gguf_str_next(&it, &s)) touch(s.data, s.len);
    for (uint64_t j = 0; kv->elem != DF_GGUF_STRING && j < kv->count; j++)
      g_sum = g_sum + (uint64_t)df_gguf_int_at(kv, j) + (df_gguf_float_at(kv, j) > 0);
  }
  for (size_t i = 0; i < df_gguf_tensor_count(g); i++) {
    const df_gguf_tensor *t = df_gguf_tensor_at(g, i);
    if (df_gguf_tensor_find(g, t->name) != t) abort();
    touch(t->data, t->n_bytes);
  }
}

/* What was read must be writable, and reading that must give the same again. */
static void write_again(const df_gguf *g) {
  df_gguf_writer *w = NULL;
  df_gguf *again = NULL;
  df_buf b;
  df_buf_init(&b, 0);
  df_status s = df_gguf_writer_create(&w, NULL);
  for (size_t i = 0; s == DF_OK && i < df_gguf_kv_count(g); i++) s = df_gguf_put_kv(w, df_gguf_kv_at(g, i), NULL);
  for (size_t i = 0; s == DF_OK && i < df_gguf_tensor_count(g); i++) {
    const df_gguf_tensor *t = df_gguf_tensor_at(g, i);
    if (t->data) s = df_gguf_put_tensor(w, t->name, t->type, t->n_dims, t->dims, t->data, NULL);
  }
  if (s == DF_OK && df_gguf_write_buf(w, NULL, NULL, &b, NULL) == DF_OK) {
    if (df_gguf_open_bytes(b.data, b.len, "again", &again, NULL) != DF_OK) abort();
    if (df_gguf_kv_count(again) != df_gguf_kv_count(g)) abort();
    for (size_t i = 0; i < df_gguf_tensor_count(again); i++) {
      const df_gguf_tensor *t = df_gguf_tensor_at(again, i), *old = df_gguf_tensor_find(g, t->name);
      if (!old || old->n_bytes != t->n_bytes || memcmp(old->data, t->data, t->n_bytes) != 0) abort();
    }
    df_gguf_free(again);
  } else if (s != DF_OK && s != DF_ERR_ARGUMENT) {
    abort();
  }
  df_buf_release(&b);
  df_gguf_writer_free(w);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  void *copy = df_alloc(size); /* aligned, and ends where the file ends */
  df_gguf *g = NULL;
  df_error err;
  df_config c;
  if (!copy) return 0;
  if (size) memcpy(copy, data, size);
  if (df_gguf_open_bytes(copy, size, "fuzz", &g, &err) == DF_OK) {
    read_all(g);
    write_again(g);
    if (df_config_from_gguf(g, &c, &err) == DF_OK && c.n_layers > DF_LIMIT_LAYERS) abort();
    df_gguf_free(g);
  } else if (err.msg[0] == '\0' || strchr(err.msg, '\n')) {
    abort();
  }
  df_free(copy);
  return 0;
}
