/* base/map.h - hash map from byte strings to 32-bit values (open addressing, power-of-two table).
 * Keys are borrowed: the caller keeps the bytes alive as long as the map. Not thread safe for writing;
 * any number of readers once filled. */
#ifndef DF_BASE_MAP_H
#define DF_BASE_MAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

typedef struct df_map_slot {
  const char *key; /* NULL = free */
  uint32_t len;
  uint32_t value;
  uint64_t hash;
} df_map_slot;

typedef struct df_map {
  df_map_slot *slots;
  size_t cap; /* power of two or 0 */
  size_t count;
} df_map;

/* Room for `expect` keys without growing. */
df_status df_map_init(df_map *m, size_t expect, df_error *err) DF_CHECK;
void df_map_release(df_map *m);
/* Inserts or replaces. *existed (may be NULL) tells whether the key was there. */
df_status df_map_put(df_map *m, const char *key, size_t len, uint32_t value, bool *existed, df_error *err) DF_CHECK;
bool df_map_get(const df_map *m, const char *key, size_t len, uint32_t *value);
uint64_t df_hash_bytes(const void *p, size_t n, uint64_t seed); /* xxHash64-quality mix, stable across runs */

#endif
