#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "text/tokenizer_parts.h"

typedef struct added_item {
  df_slice text;
  int32_t id;
  uint32_t order; /* makes the order of equal texts defined */
} added_item;

static int compare_items(const void *pa, const void *pb) {
  const added_item *a = pa, *b = pb;
  size_t n = a->text.n < b->text.n ? a->text.n : b->text.n;
  int c = memcmp(a->text.p, b->text.p, n);
  if (c) return c;
  if (a->text.n != b->text.n) return a->text.n < b->text.n ? -1 : 1;
  return a->order < b->order ? -1 : a->order > b->order;
}

df_status df_added_init(df_added *a, const df_slice *texts, const int32_t *ids, uint32_t n, df_error *err) {
  *a = (df_added){0};
  if (n == 0) return DF_OK;
  added_item *items = df_calloc(n, sizeof *items);
  a->texts = df_calloc(n, sizeof *a->texts);
  a->ids = df_calloc(n, sizeof *a->ids);
  if (!items || !a->texts || !a->ids) {
    df_free(items);
    df_added_release(a);
    return DF_OOM(err, "added tokens", (size_t)n * sizeof *items);
  }
  for (uint32_t i = 0; i < n; i++) items[i] = (added_item){.text = texts[i], .id = ids[i], .order = i};
  qsort(items, n, sizeof *items, compare_items);
  for (uint32_t i = 0; i < n; i++) {
    const df_slice *t = &items[i].text;
    if (a->n && a->texts[a->n - 1].n == t->n && memcmp(a->texts[a->n - 1].p, t->p, t->n) == 0) continue;
    a->texts[a->n] = *t;
    a->ids[a->n++] = items[i].id;
    a->first[(uint8_t)t->p[0] + 1] = a->n;
  }
  for (int c = 1; c <= 256; c++)
    if (a->first[c] < a->first[c - 1]) a->first[c] = a->first[c - 1];
  df_free(items);
  return DF_OK;
}

void df_added_release(df_added *a) {
  df_free(a->texts);
  df_free(a->ids);
  *a = (df_added){0};
}

/* First index in [lo, hi) whose byte at `depth` is not below c; all texts there are longer than depth. */
static uint32_t lower_bound(const df_added *a, uint32_t lo, uint32_t hi, size_t depth, unsigned c) {
  while (lo < hi) {
    uint32_t mid = lo + (hi - lo) / 2;
    if ((uint8_t)a->texts[mid].p[depth] < c)
      lo = mid + 1;
    else
      hi = mid;
  }
  return lo;
}

/* Longest added token at the start of text[0..n): its index + 1, or 0. [lo, hi) always holds the texts that begin with
 * the bytes read so far; the shortest of them sorts first. */
static uint32_t longest_at(const df_added *a, const char *text, size_t n) {
  uint32_t best = 0, lo = a->first[(uint8_t)text[0]], hi = a->first[(uint8_t)text[0] + 1];
  for (size_t depth = 1; lo < hi; depth++) {
    if (a->texts[lo].n == depth) best = ++lo;
    if (depth == n || lo == hi) break;
    unsigned c = (uint8_t)text[depth];
    lo = lower_bound(a, lo, hi, depth, c);
    hi = lower_bound(a, lo, hi, depth, c + 1);
  }
  return best;
}

bool df_added_find(const df_added *a, const char *text, size_t n, size_t from, size_t *begin, size_t *end,
                   int32_t *id) {
  if (a->n == 0) return false;
  for (size_t i = from; i < n; i++) {
    if (a->first[(uint8_t)text[i]] == a->first[(uint8_t)text[i] + 1]) continue;
    uint32_t hit = longest_at(a, text + i, n - i);
    if (!hit) continue;
    *begin = i;
    *end = i + a->texts[hit - 1].n;
    *id = a->ids[hit - 1];
    return true;
  }
  return false;
}
