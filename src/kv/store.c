#include "kv/store.h"

#include "base/mem.h"
#include "base/size.h"

df_status df_kv_store_init(df_kv_store *s, df_kv_type type, uint32_t n_layers, uint32_t n_kv, uint32_t head_dim,
                           const df_pages *pages, df_device *device, df_error *err) {
  const uint32_t slots = df_pages_slots(pages), blocks = (slots + DF_KV_PAGE - 1) / DF_KV_PAGE;
  df_kv_store t = {.n_layers = n_layers,
                   .n_slots = slots,
                   .type = type,
                   .token_major = pages->size == 1 || (device && device->token_major),
                   .block_slots = pages->size == 1 ? 1 : DF_KV_PAGE,
                   .device = device};
  t.head_bytes = (size_t)DF_KV_PAGE * head_dim * (type == DF_KV_F16 ? 2 : 4);
  size_t per_page;
  t.head_stride = t.head_bytes * blocks;
  if (!df_mul_size(t.head_bytes, n_kv, &per_page) || !df_mul_size(per_page, blocks, &t.layer_bytes) ||
      !df_mul_size(t.layer_bytes, n_layers, &t.total_bytes))
    return DF_FAIL(err, DF_ERR_LIMIT, "a KV cache of %u tokens overflows memory", slots);
  t.k = df_pages_alloc(t.total_bytes);
  t.v = df_pages_alloc(t.total_bytes);
  if (!t.k || !t.v) {
    const size_t bytes = t.total_bytes;
    df_kv_store_release(&t);
    return DF_OOM(err, "the KV cache", 2 * bytes);
  }
  df_status st = df_device_map(device, t.k, t.total_bytes, DF_MEM_SCRATCH, "keys of the KV cache", err);
  if (st == DF_OK) st = df_device_map(device, t.v, t.total_bytes, DF_MEM_SCRATCH, "values of the KV cache", err);
  if (st != DF_OK) {
    df_kv_store_release(&t);
    return st;
  }
  *s = t;
  return DF_OK;
}

void df_kv_store_release(df_kv_store *s) {
  df_device_unmap(s->device, s->k);
  df_device_unmap(s->device, s->v);
  df_pages_free(s->k, s->total_bytes);
  df_pages_free(s->v, s->total_bytes);
  *s = (df_kv_store){0};
}

df_kv_view df_kv_store_layer(const df_kv_store *s, uint32_t layer) {
  return (df_kv_view){.k = s->k + layer * s->layer_bytes,
                      .v = s->v + layer * s->layer_bytes,
                      .head_bytes = s->head_bytes,
                      .head_stride = s->head_stride,
                      .type = s->type,
                      .token_major = s->token_major,
                      .block_slots = s->block_slots};
}

size_t df_kv_store_token_bytes(const df_kv_store *s) { return 2 * s->total_bytes / s->n_slots; }
