/* The prefix cache against a model of it: a set of prefixes with the page of each, checked after every random step. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "base/mem.h"
#include "base/size.h"
#include "kv/radix.h"
#include "support/sample_files.h"

enum { N_SEQ = 6, MAX_LEN = 200, POOL = 40 };

static uint32_t g_seed;
static uint32_t rnd(uint32_t n) {
  g_seed = g_seed * 1664525u + 1013904223u;
  return (g_seed >> 8) % n;
}

/* A sequence as a request would hold it: its tokens, its table, and a mark that each of its pages carries. */
typedef struct seq {
  df_kv_seq kv;
  int32_t ids[MAX_LEN];
  uint32_t n;
} seq;

typedef struct rig {
  df_pages pages;
  df_radix cache;
  seq s[N_SEQ];
  uint64_t content[4 * POOL + 1]; /* what was written to a page: a hash of all tokens up to its end */
} rig;

static uint64_t hash_of(const int32_t *ids, uint32_t n) {
  uint64_t h = 1469598103934665603u;
  for (uint32_t i = 0; i < n; i++) h = (h ^ (uint32_t)ids[i]) * 1099511628211u;
  return h;
}

static void rig_init(rig *r, uint32_t size) {
  *r = (rig){0};
  assert_int_equal(df_pages_init(&r->pages, size, POOL * size, NULL), DF_OK);
  assert_int_equal(df_radix_init(&r->cache, &r->pages, NULL), DF_OK);
}

static void rig_release(rig *r) {
  for (uint32_t i = 0; i < N_SEQ; i++) df_kv_seq_release(&r->s[i].kv, &r->pages);
  df_radix_release(&r->cache);
  assert_int_equal(r->pages.n_free, POOL); /* nothing was lost */
  assert_int_equal(r->pages.n_kept, 0);
  assert_int_equal(r->pages.n_idle, 0);
  df_pages_release(&r->pages);
}

/* Counts and links say the same everywhere. */
static void check(const rig *r) {
  uint32_t idle = 0, kept = 0, linked = 0, used[POOL + 1] = {0};
  for (uint32_t k = 0; k < N_SEQ; k++)
    for (uint32_t i = 0; i < r->s[k].kv.n_pages; i++) used[r->s[k].kv.pages[i]]++;
  for (uint32_t i = 1; i < r->pages.n_pages; i++) {
    assert_int_equal(r->pages.refs[i], used[i] + r->pages.kept[i]);
    kept += r->pages.kept[i];
    idle += r->pages.kept[i] && !used[i];
  }
  assert_int_equal(kept, r->pages.n_kept);
  assert_int_equal(idle, r->pages.n_idle);
  for (uint32_t i = r->cache.oldest, prev = 0; i; prev = i, i = r->cache.nodes[i].newer, linked++) {
    assert_true(r->pages.kept[i]);
    assert_int_equal(r->cache.nodes[i].older, prev);
    const uint32_t parent = r->cache.nodes[i].parent;
    if (parent) assert_true(r->pages.kept[parent]); /* no page without the pages before it */
    if (parent && used[i]) assert_true(r->pages.refs[parent] > 1);
  }
  assert_int_equal(linked, kept);
}

/* Every page of a sequence holds what its tokens would have written. */
static void check_content(const rig *r, const seq *s) {
  const uint32_t size = r->pages.size;
  for (uint32_t i = 0; (i + 1) * size <= s->n; i++)
    assert_true(r->content[s->kv.pages[i]] == hash_of(s->ids, (i + 1) * size));
}

/* Few tokens and common beginnings, so that paths meet and part often. */
static void make_text(seq *s) {
  s->n = 1 + rnd(MAX_LEN - 1);
  const uint32_t kind = rnd(3), part = rnd(s->n);
  for (uint32_t i = 0; i < s->n; i++) s->ids[i] = (int32_t)(i < part ? kind : 3 + i / 16 % 2 + kind * (i % 3 == 0));
}

static void begin(rig *r, seq *s) {
  const uint32_t size = r->pages.size;
  make_text(s);
  assert_int_equal(df_kv_seq_init(&s->kv, size, MAX_LEN, NULL), DF_OK);
  const uint32_t want = rnd(2) ? s->n : s->n - 1, found = df_radix_lookup(&r->cache, s->ids, want);
  const uint32_t idle = df_radix_lookup_idle(&r->cache, s->ids, want), before = r->pages.n_idle;
  assert_true(idle <= found && found <= want && found % size == 0);
  assert_int_equal(df_radix_take(&r->cache, s->ids, want, &s->kv), found);
  assert_int_equal(s->kv.n_pages * size, found);
  assert_int_equal(before - r->pages.n_idle, idle / size);
  const uint32_t need = (s->n + size - 1) / size - s->kv.n_pages;
  if (need > r->pages.n_free) (void)df_radix_evict(&r->cache, need - r->pages.n_free);
  if (df_kv_seq_reserve(&s->kv, &r->pages, s->n, NULL) != DF_OK) { /* the others hold too much */
    s->n = found;
    return;
  }
  for (uint32_t i = found / size; (i + 1) * size <= s->n; i++)
    r->content[s->kv.pages[i]] = hash_of(s->ids, (i + 1) * size);
}

static void random_run(uint32_t size, uint32_t steps) {
  rig r;
  uint32_t hits = 0;
  rig_init(&r, size);
  for (uint32_t k = 0; k < steps; k++) {
    seq *s = &r.s[rnd(N_SEQ)];
    if (!s->kv.pages) {
      begin(&r, s);
      hits += s->kv.n_pages > 0;
    } else if (rnd(3) == 0) {
      df_radix_put(&r.cache, s->ids, rnd(s->n + 1), &s->kv);
    } else {
      if (rnd(2)) df_radix_put(&r.cache, s->ids, s->n, &s->kv);
      check_content(&r, s);
      df_kv_seq_release(&s->kv, &r.pages);
    }
    if (rnd(50) == 0) (void)df_radix_evict(&r.cache, rnd(POOL));
    check(&r);
    for (uint32_t i = 0; i < N_SEQ; i++)
      if (r.s[i].kv.pages) check_content(&r, &r.s[i]);
  }
  assert_true(hits > steps / 20);
  rig_release(&r);
}

static void test_radix__random_use_equals_a_model(void **state) {
  (void)state;
  g_seed = 1;
  random_run(16, 20000);
  random_run(1, 4000);
  random_run(64, 4000);
}

static void fill(rig *r, seq *s, uint32_t first_token, uint32_t n) {
  assert_int_equal(df_kv_seq_init(&s->kv, r->pages.size, MAX_LEN, NULL), DF_OK);
  for (uint32_t i = 0; i < n; i++) s->ids[i] = (int32_t)(first_token + i);
  s->n = n;
  assert_int_equal(df_kv_seq_reserve(&s->kv, &r->pages, n, NULL), DF_OK);
}

/* What was not used longest goes first, ends of paths before their beginnings, pages in use never. */
static void test_radix_evict__order(void **state) {
  (void)state;
  rig r;
  rig_init(&r, 16);
  for (uint32_t i = 0; i < 3; i++) {
    fill(&r, &r.s[i], 100 * i, 48);
    df_radix_put(&r.cache, r.s[i].ids, 48, &r.s[i].kv);
  }
  df_kv_seq_release(&r.s[0].kv, &r.pages);
  df_kv_seq_release(&r.s[1].kv, &r.pages);
  assert_int_equal(r.pages.n_idle, 6);
  assert_int_equal(df_radix_take(&r.cache, r.s[0].ids, 32, &(df_kv_seq){.pages = (uint32_t[4]){0}, .cap = 4}), 32);
  (void)df_pages_unref(&r.pages, r.cache.newest); /* used, and let go again: now the first text is the younger one */
  (void)df_pages_unref(&r.pages, r.cache.nodes[r.cache.newest].older);
  assert_int_equal(r.pages.n_idle, 6);
  assert_int_equal(df_radix_evict(&r.cache, 1), 1); /* the oldest end: page 3 of text 0 was not touched */
  assert_int_equal(df_radix_lookup(&r.cache, r.s[0].ids, 48), 32);
  assert_int_equal(df_radix_evict(&r.cache, 2), 2);
  assert_int_equal(df_radix_lookup(&r.cache, r.s[1].ids, 48), 16);
  assert_int_equal(df_radix_evict(&r.cache, 1), 1);
  assert_int_equal(df_radix_lookup(&r.cache, r.s[1].ids, 48), 0);
  assert_int_equal(df_radix_lookup(&r.cache, r.s[0].ids, 48), 32);
  assert_int_equal(df_radix_evict(&r.cache, 100), 2); /* text 2 is in use */
  assert_int_equal(df_radix_lookup(&r.cache, r.s[2].ids, 48), 48);
  check(&r);
  rig_release(&r);
}

/* Two sequences that computed the same tokens end up with one copy. */
static void test_radix_put__same_tokens_share_one_page(void **state) {
  (void)state;
  rig r;
  rig_init(&r, 16);
  fill(&r, &r.s[0], 7, 40);
  fill(&r, &r.s[1], 7, 40);
  assert_int_equal(r.pages.n_free, POOL - 6);
  df_radix_put(&r.cache, r.s[0].ids, 40, &r.s[0].kv);
  df_radix_put(&r.cache, r.s[1].ids, 40, &r.s[1].kv);
  assert_int_equal(r.pages.n_free, POOL - 4); /* two whole pages shared, each keeps its open one */
  assert_memory_equal(r.s[0].kv.pages, r.s[1].kv.pages, 2 * sizeof(uint32_t));
  assert_int_not_equal(r.s[0].kv.pages[2], r.s[1].kv.pages[2]);
  assert_int_equal(df_radix_lookup(&r.cache, r.s[0].ids, 31), 16);
  assert_int_equal(df_radix_lookup(&r.cache, r.s[0].ids, 15), 0);
  check(&r);
  rig_release(&r);
}

static df_status make_one(void *arg, df_error *err) {
  df_radix c;
  const df_status s = df_radix_init(&c, arg, err);
  if (s == DF_OK) df_radix_release(&c);
  return s;
}

static void test_radix_init__allocation_failures(void **state) {
  (void)state;
  df_pages p;
  assert_int_equal(df_pages_init(&p, 16, 320, NULL), DF_OK);
  assert_int_equal(test_each_allocation_fails(make_one, &p), 3);
  df_pages_release(&p);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_radix__random_use_equals_a_model),
      cmocka_unit_test(test_radix_evict__order),
      cmocka_unit_test(test_radix_put__same_tokens_share_one_page),
      cmocka_unit_test(test_radix_init__allocation_failures),
  };
  return cmocka_run_group_tests_name("radix", tests, NULL, NULL);
}
