/*
 * kv/pages.h - page allocator. A page is 1, 16 or 64 slots; page 0 is the sink for rows that pad a batch and is never
 * handed out. Reference counts let several sequences share whole pages (prefix cache).
 * The allocator knows no storage: target and draft stores use the same page numbers.
 *
 * Threads: one owner (the engine thread).
 */
#ifndef DF_KV_PAGES_H
#define DF_KV_PAGES_H

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"

typedef struct df_pages {
  uint32_t n_pages; /* including the sink */
  uint32_t size;    /* slots per page */
  uint32_t n_free;
  uint32_t *free_list; /* stack */
  uint32_t *refs;      /* [n_pages] */
  bool *kept;          /* [n_pages] one of the references is the prefix cache's */
  uint32_t n_kept;     /* pages kept */
  uint32_t n_idle;     /* of these, pages that nobody else refers to */
} df_pages;

/* Sizes there are: a set of powers of two. */
enum { DF_PAGE_SIZES = 1 | 16 | 64 };

/* Room for `positions` slots in whole pages, plus the sink. ARGUMENT for a page size there is not. */
df_status df_pages_init(df_pages *p, uint32_t size, uint32_t positions, df_error *err) DF_CHECK;
/* Slots in all pages, the sink included. */
uint32_t df_pages_slots(const df_pages *p);
void df_pages_release(df_pages *p);
/* One page with reference count 1; LIMIT when none is free. */
df_status df_pages_take(df_pages *p, uint32_t *page, df_error *err) DF_CHECK;
void df_pages_ref(df_pages *p, uint32_t page);
/* Drops one reference; true when the page became free. */
bool df_pages_unref(df_pages *p, uint32_t page);

/* The prefix cache's reference: one per page at most. Drop returns true when the page became free. */
void df_pages_keep(df_pages *p, uint32_t page);
bool df_pages_drop(df_pages *p, uint32_t page);

/* One sequence's table: page i holds positions i * size .. (i + 1) * size - 1. */
typedef struct df_kv_seq {
  uint32_t *pages;
  uint32_t n_pages, cap;
  uint32_t page_size;
  uint32_t state; /* slot of recurrent layers, 0 = none */
} df_kv_seq;

/* max_positions bounds later reservations. */
df_status df_kv_seq_init(df_kv_seq *s, uint32_t page_size, uint32_t max_positions, df_error *err) DF_CHECK;
void df_kv_seq_release(df_kv_seq *s, df_pages *p);
/* Makes positions 0..n-1 addressable; on failure the sequence keeps what it had. */
df_status df_kv_seq_reserve(df_kv_seq *s, df_pages *p, uint32_t n, df_error *err) DF_CHECK;
/* Gives back whole pages beyond position n-1. */
void df_kv_seq_trim(df_kv_seq *s, df_pages *p, uint32_t n);
/* Lets an empty sequence share the pages of positions 0..n-1 of another: n must be whole pages that `from` holds, so
 * that neither ever writes what both read. Recurrent state is not shared. ARGUMENT, LIMIT (more than s may hold). */
df_status df_kv_seq_fork(df_kv_seq *s, const df_kv_seq *from, df_pages *p, uint32_t n, df_error *err) DF_CHECK;

static inline uint32_t df_kv_slot(const df_kv_seq *s, uint32_t pos) {
  return s->pages[pos / s->page_size] * s->page_size + pos % s->page_size;
}

#endif
