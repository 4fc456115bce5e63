#include "device/mirror.h"

#include <string.h>

#include "base/mem.h"

/* Number of mirrors that begin at or below an address. */
static uint32_t count_below(const df_mirrors *m, const uint8_t *p) {
  uint32_t lo = 0, hi = m->n;
  while (lo < hi) {
    const uint32_t mid = (lo + hi) / 2;
    if ((uintptr_t)m->items[mid]->host <= (uintptr_t)p)
      lo = mid + 1;
    else
      hi = mid;
  }
  return lo;
}

df_mirror *df_mirrors_find(const df_mirrors *m, const void *host) {
  const uint32_t n = count_below(m, host);
  df_mirror *at = n ? m->items[n - 1] : NULL;
  return at && (uintptr_t)host - (uintptr_t)at->host < at->bytes ? at : NULL;
}

static df_status grow(df_mirrors *m, df_error *err) {
  if (m->n < m->cap) return DF_OK;
  const uint32_t cap = m->cap ? 2 * m->cap : 64;
  void *p = df_realloc(m->items, cap * sizeof *m->items);
  if (!p) return DF_OOM(err, "the table of mapped memory", cap * sizeof *m->items);
  m->items = p;
  m->cap = cap;
  return DF_OK;
}

df_status df_mirrors_add(df_mirrors *m, const void *host, size_t bytes, df_mem_kind kind, const char *what,
                         df_mirror **out, df_error *err) {
  const uint8_t *base = host;
  if (!base || bytes == 0) return DF_FAIL(err, DF_ERR_INTERNAL, "%s: there is nothing to map", what);
  const uint32_t at = count_below(m, base);
  const df_mirror *before = at ? m->items[at - 1] : NULL, *after = at < m->n ? m->items[at] : NULL;
  if ((before && (uintptr_t)base - (uintptr_t)before->host < before->bytes) ||
      (after && (uintptr_t)after->host - (uintptr_t)base < bytes))
    return DF_FAIL(err, DF_ERR_INTERNAL, "%s overlap memory that is mapped already", what);
  DF_TRY(grow(m, err));
  df_mirror *x = df_calloc(1, sizeof *x);
  if (!x) return DF_OOM(err, "the table of mapped memory", sizeof *x);
  *x = (df_mirror){.host = base, .bytes = bytes, .kind = kind, .what = what};
  memmove(m->items + at + 1, m->items + at, (m->n - at) * sizeof *m->items);
  m->items[at] = x;
  m->n++;
  *out = x;
  return DF_OK;
}

df_mirror *df_mirrors_take(df_mirrors *m, const void *host) {
  const uint32_t n = count_below(m, host);
  df_mirror *x = n ? m->items[n - 1] : NULL;
  if (!x || (const void *)x->host != host) return NULL;
  memmove(m->items + n - 1, m->items + n, (m->n - n) * sizeof *m->items);
  m->n--;
  return x;
}

void df_mirrors_release(df_mirrors *m) {
  df_free(m->items);
  *m = (df_mirrors){0};
}
