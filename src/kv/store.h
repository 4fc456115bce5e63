/*
 * kv/store.h - the memory behind the pages for one model: K pages transposed ([head_dim][16]: lanes are
 * positions), V pages plain ([16][head_dim]), one pair per (layer, page, KV head). With a page size of 1, and on
 * devices that want it, a token's K and V lie together instead ([slot][KV head][head_dim], both plain). Backed lazily
 * on the host: only pages that were written use memory.
 */
#ifndef DF_KV_STORE_H
#define DF_KV_STORE_H

#include "device/device.h"
#include "kv/pages.h"

typedef struct df_kv_store {
  uint8_t *k, *v;
  size_t layer_bytes;             /* of k, and of v */
  size_t head_bytes, head_stride; /* see df_kv_view */
  size_t total_bytes;             /* of k, and of v */
  uint32_t n_layers;
  uint32_t n_slots;
  df_kv_type type;
  bool token_major;
  uint32_t block_slots;
  df_device *device; /* borrowed; NULL = the host */
} df_kv_store;

/* Room for every slot of `pages`, mapped on a device (NULL = the host). */
df_status df_kv_store_init(df_kv_store *s, df_kv_type type, uint32_t n_layers, uint32_t n_kv, uint32_t head_dim,
                           const df_pages *pages, df_device *device, df_error *err) DF_CHECK;
void df_kv_store_release(df_kv_store *s);
df_kv_view df_kv_store_layer(const df_kv_store *s, uint32_t layer);
/* Bytes one token takes in this store, all layers, K and V. */
size_t df_kv_store_token_bytes(const df_kv_store *s);

#endif
