#include "kv/store.h"

#include "base/mem.h"
#include "base/size.h"

df_status df_kv_store_init(df_kv_store *s, df_kv_type type, uint32_t n_layers, uint32_t n_kv, uint32_t head_dim,
                           uint32_t n_pages, df_error *err) {
  df_kv_store t = {.n_layers = n_layers, .type = type};
  t.head_bytes = (size_t)DF_KV_PAGE * head_dim * (type == DF_KV_F16 ? 2 : 4);
  size_t per_page;
  if (!df_mul_size(t.head_bytes, n_kv, &per_page) || !df_mul_size(per_page, n_pages, &t.layer_bytes) ||
      !df_mul_size(t.layer_bytes, n_layers, &t.total_bytes))
    return DF_FAIL(err, DF_ERR_LIMIT, "a KV cache of %u pages overflows memory", n_pages);
  t.k = df_pages_alloc(t.total_bytes);
  t.v = df_pages_alloc(t.total_bytes);
  if (!t.k || !t.v) {
    df_kv_store_release(&t);
    return DF_OOM(err, "the KV cache", 2 * t.total_bytes);
  }
  *s = t;
  return DF_OK;
}

void df_kv_store_release(df_kv_store *s) {
  df_pages_free(s->k, s->total_bytes);
  df_pages_free(s->v, s->total_bytes);
  *s = (df_kv_store){0};
}

df_kv_view df_kv_store_layer(const df_kv_store *s, uint32_t layer) {
  return (df_kv_view){s->k + layer * s->layer_bytes, s->v + layer * s->layer_bytes, s->head_bytes, s->type};
}

size_t df_kv_store_token_bytes(const df_kv_store *s, uint32_t n_pages) {
  return 2 * s->total_bytes / n_pages / DF_KV_PAGE;
}
