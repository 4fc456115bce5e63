#include "base/map.h"

#include <string.h>

#include "base/mem.h"
#include "base/size.h"

uint64_t df_hash_bytes(const void *p, size_t n, uint64_t seed) {
  const unsigned char *s = p;
  uint64_t h = seed ^ (n * 0x9E3779B97F4A7C15u);
  while (n >= 8) {
    uint64_t v;
    memcpy(&v, s, 8);
    h = (h ^ v) * 0xD6E8FEB86659FD93u;
    h ^= h >> 32;
    s += 8;
    n -= 8;
  }
  uint64_t v = 0;
  if (n) memcpy(&v, s, n);
  h = (h ^ v) * 0xD6E8FEB86659FD93u;
  h ^= h >> 29;
  h *= 0xBF58476D1CE4E5B9u;
  return h ^ (h >> 32);
}

df_status df_map_init(df_map *m, size_t expect, df_error *err) {
  size_t cap = 16;
  while (cap / 2 < expect) {
    if (cap > SIZE_MAX / 4) return DF_OOM(err, "a hash map", SIZE_MAX);
    cap *= 2;
  }
  df_map_slot *s = df_calloc(cap, sizeof *s);
  if (!s) return DF_OOM(err, "a hash map", cap * sizeof *s);
  *m = (df_map){.slots = s, .cap = cap};
  return DF_OK;
}

void df_map_release(df_map *m) {
  df_free(m->slots);
  *m = (df_map){0};
}

static df_map_slot *find(const df_map *m, const char *key, size_t len, uint64_t hash) {
  size_t i = (size_t)hash & (m->cap - 1);
  for (;; i = (i + 1) & (m->cap - 1)) {
    df_map_slot *s = &m->slots[i];
    if (!s->key) return s;
    if (s->hash == hash && s->len == len && memcmp(s->key, key, len) == 0) return s;
  }
}

static df_status grow(df_map *m, df_error *err) {
  df_map bigger;
  DF_TRY(df_map_init(&bigger, m->cap, err));
  for (size_t i = 0; i < m->cap; i++) {
    df_map_slot *s = &m->slots[i];
    if (s->key) *find(&bigger, s->key, s->len, s->hash) = *s;
  }
  bigger.count = m->count;
  df_map_release(m);
  *m = bigger;
  return DF_OK;
}

df_status df_map_put(df_map *m, const char *key, size_t len, uint32_t value, bool *existed, df_error *err) {
  if (len > UINT32_MAX) return DF_FAIL(err, DF_ERR_LIMIT, "a key of %zu bytes is too long", len);
  if (m->cap == 0 || m->count + 1 > m->cap / 2) {
    if (m->cap == 0)
      DF_TRY(df_map_init(m, 8, err));
    else
      DF_TRY(grow(m, err));
  }
  uint64_t h = df_hash_bytes(key, len, 0);
  df_map_slot *s = find(m, key, len, h);
  if (existed) *existed = s->key != NULL;
  if (!s->key) m->count++;
  *s = (df_map_slot){.key = key, .len = (uint32_t)len, .value = value, .hash = h};
  return DF_OK;
}

bool df_map_get(const df_map *m, const char *key, size_t len, uint32_t *value) {
  if (m->cap == 0) return false;
  df_map_slot *s = find(m, key, len, df_hash_bytes(key, len, 0));
  if (!s->key) return false;
  *value = s->value;
  return true;
}
