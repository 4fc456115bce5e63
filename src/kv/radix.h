/*
 * kv/radix.h - prefix cache: which whole pages hold K and V of which token prefixes.
 *
 * A tree of pages: a node is one page, its key the tokens of that page, its path from the root the tokens before it.
 * The cache holds one reference of every page in it (df_pages_keep); sequences that use a page hold their own. A node
 * is named by its page number, so all memory is allocated at the start and no later call can fail.
 *
 * Recently used pages are kept longest. A page is never more recent than the page before it in its text, so the oldest
 * page is always the end of a path, and a page that a sequence uses is never given up.
 *
 * Only pages whose target and draft K and V are both written may be put in: that is the caller's duty.
 *
 * Ownership: borrows the pages. Threads: one owner (the engine thread).
 */
#ifndef DF_KV_RADIX_H
#define DF_KV_RADIX_H

#include "kv/pages.h"

typedef struct df_radix_node {
  uint32_t parent;       /* page, or 0 = the root */
  uint32_t n_children;   /* pages that follow it */
  uint32_t next;         /* of the same hash bucket, 0 = none */
  uint32_t older, newer; /* by last use, 0 = none */
} df_radix_node;

typedef struct df_radix {
  df_pages *pages;
  df_radix_node *nodes; /* [n_pages]; 0 is the root */
  int32_t *keys;        /* [n_pages][page size] */
  uint32_t *buckets;    /* [mask + 1] first node, 0 = none */
  uint32_t mask;
  uint32_t oldest, newest;
} df_radix;

df_status df_radix_init(df_radix *r, df_pages *pages, df_error *err) DF_CHECK;
/* Gives all pages up; pages in use stay with their sequences. */
void df_radix_release(df_radix *r);

/* Positions of ids[0 .. n) that the cache holds: a multiple of the page size, at most n. Changes nothing. */
uint32_t df_radix_lookup(const df_radix *r, const int32_t *ids, uint32_t n);
/* Of these positions, those in pages that only the cache refers to now. */
uint32_t df_radix_lookup_idle(const df_radix *r, const int32_t *ids, uint32_t n);
/* The same pages, put into an empty sequence that gets references of its own. Counts as a use. */
uint32_t df_radix_take(df_radix *r, const int32_t *ids, uint32_t n, df_kv_seq *seq);
/* Keeps the whole pages of a sequence whose first n positions hold K and V of ids. Where the cache has the same tokens
 * in another page, the sequence gets that one instead and its own page goes back. */
void df_radix_put(df_radix *r, const int32_t *ids, uint32_t n, df_kv_seq *seq);
/* Gives up pages that nobody uses, the longest unused first, until `want` pages became free or there are none left.
 * Returns how many became free. */
uint32_t df_radix_evict(df_radix *r, uint32_t want);

#endif
