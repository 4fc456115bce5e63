#include "kv/radix.h"

#include <assert.h>
#include <string.h>

#include "base/map.h"
#include "base/mem.h"

df_status df_radix_init(df_radix *r, df_pages *pages, df_error *err) {
  const size_t n = pages->n_pages;
  uint32_t buckets = 64;
  while (buckets < n) buckets *= 2;
  df_radix t = {.pages = pages, .mask = buckets - 1};
  t.nodes = df_calloc(n, sizeof *t.nodes);
  t.keys = df_calloc(n * pages->size, sizeof *t.keys);
  t.buckets = df_calloc(buckets, sizeof *t.buckets);
  if (!t.nodes || !t.keys || !t.buckets) {
    df_free(t.nodes);
    df_free(t.keys);
    df_free(t.buckets);
    return DF_OOM(err, "the prefix cache", n * (sizeof *t.nodes + pages->size * sizeof *t.keys));
  }
  *r = t;
  return DF_OK;
}

void df_radix_release(df_radix *r) {
  for (uint32_t i = r->newest, older; i; i = older) {
    older = r->nodes[i].older;
    (void)df_pages_drop(r->pages, i);
  }
  df_free(r->nodes);
  df_free(r->keys);
  df_free(r->buckets);
  *r = (df_radix){0};
}

/* ---- order of use --------------------------------------------------------------------------------------- */

static void unlink_age(df_radix *r, uint32_t i) {
  const df_radix_node *n = &r->nodes[i];
  *(n->newer ? &r->nodes[n->newer].older : &r->newest) = n->older;
  *(n->older ? &r->nodes[n->older].newer : &r->oldest) = n->newer;
}

static void link_newest(df_radix *r, uint32_t i) {
  r->nodes[i].older = r->newest;
  r->nodes[i].newer = 0;
  *(r->newest ? &r->nodes[r->newest].newer : &r->oldest) = i;
  r->newest = i;
}

/* The path that ends in node i was used: the end first, so that what comes before it is more recent. */
static void touch(df_radix *r, uint32_t i) {
  for (; i; i = r->nodes[i].parent) {
    unlink_age(r, i);
    link_newest(r, i);
  }
}

/* ---- finding -------------------------------------------------------------------------------------------- */

static int32_t *key_of(const df_radix *r, uint32_t i) { return r->keys + (size_t)i * r->pages->size; }

static uint32_t *bucket_of(const df_radix *r, uint32_t parent, const int32_t *ids) {
  return &r->buckets[df_hash_bytes(ids, r->pages->size * sizeof *ids, parent) & r->mask];
}

/* The node of these tokens behind `parent`, or 0. */
static uint32_t child_of(const df_radix *r, uint32_t parent, const int32_t *ids) {
  uint32_t i = *bucket_of(r, parent, ids);
  while (i && (r->nodes[i].parent != parent || memcmp(key_of(r, i), ids, r->pages->size * sizeof *ids) != 0))
    i = r->nodes[i].next;
  return i;
}

uint32_t df_radix_lookup(const df_radix *r, const int32_t *ids, uint32_t n) {
  const uint32_t size = r->pages->size;
  uint32_t at = 0, node = 0;
  while (n - at >= size && (node = child_of(r, node, ids + at)) != 0) at += size;
  return at;
}

uint32_t df_radix_lookup_idle(const df_radix *r, const int32_t *ids, uint32_t n) {
  const uint32_t size = r->pages->size;
  uint32_t idle = 0, node = 0;
  for (uint32_t at = 0; n - at >= size && (node = child_of(r, node, ids + at)) != 0; at += size)
    if (r->pages->refs[node] == 1) idle += size;
  return idle;
}

uint32_t df_radix_take(df_radix *r, const int32_t *ids, uint32_t n, df_kv_seq *seq) {
  const uint32_t size = r->pages->size;
  uint32_t last = 0, node = 0;
  assert(seq->n_pages == 0);
  for (uint32_t at = 0; n - at >= size && seq->n_pages < seq->cap; at += size) {
    node = child_of(r, node, ids + at);
    if (!node) break;
    df_pages_ref(r->pages, node);
    seq->pages[seq->n_pages++] = node;
    last = node;
  }
  touch(r, last);
  return seq->n_pages * size;
}

/* ---- changing ------------------------------------------------------------------------------------------- */

static void add(df_radix *r, uint32_t parent, const int32_t *ids, uint32_t page) {
  uint32_t *bucket = bucket_of(r, parent, ids);
  r->nodes[page] = (df_radix_node){.parent = parent, .next = *bucket};
  *bucket = page;
  memcpy(key_of(r, page), ids, r->pages->size * sizeof *ids);
  r->nodes[parent].n_children++;
  link_newest(r, page);
  df_pages_keep(r->pages, page);
}

void df_radix_put(df_radix *r, const int32_t *ids, uint32_t n, df_kv_seq *seq) {
  const uint32_t size = r->pages->size;
  uint32_t parent = 0;
  for (uint32_t i = 0; (i + 1) * size <= n; i++) {
    const uint32_t own = seq->pages[i];
    const uint32_t there = child_of(r, parent, ids + i * size);
    if (!there) {
      /* A page has one place. One that is in the tree elsewhere would be there with other tokens, which cannot be. */
      assert(!r->pages->kept[own]);
      add(r, parent, ids + i * size, own);
    } else if (there != own) {
      df_pages_ref(r->pages, there);
      (void)df_pages_unref(r->pages, own);
      seq->pages[i] = there;
    }
    parent = seq->pages[i];
  }
  touch(r, parent);
}

static bool forget(df_radix *r, uint32_t i) {
  df_radix_node *n = &r->nodes[i];
  uint32_t *at = bucket_of(r, n->parent, key_of(r, i));
  assert(n->n_children == 0);
  while (*at != i) at = &r->nodes[*at].next;
  *at = n->next;
  r->nodes[n->parent].n_children--;
  unlink_age(r, i);
  return df_pages_drop(r->pages, i);
}

uint32_t df_radix_evict(df_radix *r, uint32_t want) {
  uint32_t freed = 0;
  for (uint32_t i = r->oldest, newer; i && freed < want; i = newer) {
    newer = r->nodes[i].newer;
    if (r->pages->refs[i] == 1 && r->nodes[i].n_children == 0 && forget(r, i)) freed++;
  }
  return freed;
}
