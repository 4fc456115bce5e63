#include "kv/pages.h"

#include <assert.h>

#include "base/mem.h"

df_status df_pages_init(df_pages *p, uint32_t size, uint32_t positions, df_error *err) {
  if (size == 0 || (size & (size - 1)) || !(size & DF_PAGE_SIZES)) {
    df_error_set(err, DF_ERR_ARGUMENT, __FILE__, __LINE__, "no attention backend reads pages of %u tokens", size);
    df_error_hint(err, "page sizes: 1, 16, 64");
    return DF_ERR_ARGUMENT;
  }
  const uint32_t n = positions / size + (positions % size != 0);
  df_pages t = {.n_pages = n + 1, .size = size, .n_free = n};
  t.free_list = df_calloc(n, sizeof *t.free_list);
  t.refs = df_calloc((size_t)n + 1, sizeof *t.refs);
  t.kept = df_calloc((size_t)n + 1, sizeof *t.kept);
  if (!t.free_list || !t.refs || !t.kept) {
    df_pages_release(&t);
    return DF_OOM(err, "the page table", n);
  }
  for (uint32_t i = 0; i < n; i++) t.free_list[i] = n - i; /* page 1 is taken first */
  t.refs[0] = 1;
  *p = t;
  return DF_OK;
}

uint32_t df_pages_slots(const df_pages *p) { return p->n_pages * p->size; }

void df_pages_release(df_pages *p) {
  df_free(p->free_list);
  df_free(p->refs);
  df_free(p->kept);
  *p = (df_pages){0};
}

df_status df_pages_take(df_pages *p, uint32_t *page, df_error *err) {
  if (p->n_free == 0)
    return DF_FAIL(err, DF_ERR_LIMIT, "the KV cache is full (%u pages of %u tokens)", p->n_pages - 1, p->size);
  const uint32_t id = p->free_list[--p->n_free];
  assert(p->refs[id] == 0);
  p->refs[id] = 1;
  *page = id;
  return DF_OK;
}

void df_pages_ref(df_pages *p, uint32_t page) {
  assert(page != 0 && p->refs[page] > 0);
  if (p->kept[page] && p->refs[page] == 1) p->n_idle--;
  p->refs[page]++;
}

bool df_pages_unref(df_pages *p, uint32_t page) {
  assert(page != 0 && p->refs[page] > (p->kept[page] ? 1u : 0u));
  if (--p->refs[page] > 0) {
    if (p->kept[page] && p->refs[page] == 1) p->n_idle++;
    return false;
  }
  p->free_list[p->n_free++] = page;
  return true;
}

void df_pages_keep(df_pages *p, uint32_t page) {
  assert(page != 0 && p->refs[page] > 0 && !p->kept[page]);
  p->refs[page]++;
  p->kept[page] = true;
  p->n_kept++;
}

bool df_pages_drop(df_pages *p, uint32_t page) {
  assert(page != 0 && p->refs[page] > 0 && p->kept[page]);
  if (p->refs[page] == 1) p->n_idle--;
  p->kept[page] = false;
  p->n_kept--;
  return df_pages_unref(p, page);
}

df_status df_kv_seq_init(df_kv_seq *s, uint32_t page_size, uint32_t max_positions, df_error *err) {
  const uint32_t cap = max_positions / page_size + (max_positions % page_size != 0);
  uint32_t *pages = df_calloc(cap ? cap : 1, sizeof *pages);
  if (!pages) return DF_OOM(err, "a sequence's page table", cap * sizeof *pages);
  *s = (df_kv_seq){.pages = pages, .cap = cap, .page_size = page_size};
  return DF_OK;
}

void df_kv_seq_release(df_kv_seq *s, df_pages *p) {
  if (s->pages) df_kv_seq_trim(s, p, 0);
  df_free(s->pages);
  *s = (df_kv_seq){0};
}

df_status df_kv_seq_reserve(df_kv_seq *s, df_pages *p, uint32_t n, df_error *err) {
  const uint32_t need = n / s->page_size + (n % s->page_size != 0);
  if (need > s->cap)
    return DF_FAIL(err, DF_ERR_LIMIT, "%u positions exceed the sequence limit of %u", n, s->cap * s->page_size);
  const uint32_t before = s->n_pages;
  while (s->n_pages < need) {
    uint32_t page = 0;
    const df_status st = df_pages_take(p, &page, err);
    if (st != DF_OK) {
      df_kv_seq_trim(s, p, before * s->page_size);
      return st;
    }
    s->pages[s->n_pages++] = page;
  }
  return DF_OK;
}

void df_kv_seq_trim(df_kv_seq *s, df_pages *p, uint32_t n) {
  const uint32_t keep = n / s->page_size + (n % s->page_size != 0);
  while (s->n_pages > keep) (void)df_pages_unref(p, s->pages[--s->n_pages]);
}

df_status df_kv_seq_fork(df_kv_seq *s, const df_kv_seq *from, df_pages *p, uint32_t n, df_error *err) {
  const uint32_t share = n / from->page_size;
  if (s->n_pages || s->page_size != from->page_size || n % from->page_size || share > from->n_pages || from->state)
    return DF_FAIL(err, DF_ERR_ARGUMENT, "%u positions of a sequence of %u pages of %u cannot be shared", n,
                   from->n_pages, from->page_size);
  if (share > s->cap)
    return DF_FAIL(err, DF_ERR_LIMIT, "%u positions exceed the sequence limit of %u", n, s->cap * s->page_size);
  for (uint32_t i = 0; i < share; i++) {
    df_pages_ref(p, from->pages[i]);
    s->pages[i] = from->pages[i];
  }
  s->n_pages = share;
  return DF_OK;
}
