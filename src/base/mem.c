#define _GNU_SOURCE
#include "base/mem.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/size.h"

enum { HUGE_PAGE = 2 << 20 };

static _Atomic uint64_t g_count;
static _Atomic uint64_t g_fail_at; /* absolute ordinal that fails, 0 = never */
static _Atomic bool g_fail_sticky;

static bool allowed(void) {
  uint64_t n = atomic_fetch_add_explicit(&g_count, 1, memory_order_relaxed) + 1;
  uint64_t f = atomic_load_explicit(&g_fail_at, memory_order_relaxed);
  if (f == 0) return true;
  return atomic_load_explicit(&g_fail_sticky, memory_order_relaxed) ? n < f : n != f;
}

void *df_alloc(size_t bytes) { return allowed() ? malloc(bytes ? bytes : 1) : NULL; }

void *df_calloc(size_t count, size_t bytes) {
  size_t total;
  if (!allowed() || !df_mul_size(count, bytes, &total)) return NULL;
  return calloc(total ? total : 1, 1);
}

void *df_realloc(void *p, size_t bytes) { return allowed() ? realloc(p, bytes ? bytes : 1) : NULL; }

void df_free(void *p) { free(p); }

char *df_strdup(const char *s) { return df_strndup(s, strlen(s)); }

char *df_strndup(const char *s, size_t n) {
  size_t total;
  if (!df_add_size(n, 1, &total)) return NULL;
  char *d = df_alloc(total);
  if (!d) return NULL;
  memcpy(d, s, n);
  d[n] = '\0';
  return d;
}

void *df_pages_alloc(size_t bytes) {
  if (!allowed() || bytes == 0) return NULL;
  void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (p == MAP_FAILED) return NULL;
#ifdef MADV_NOHUGEPAGE
  (void)madvise(p, bytes,
                MADV_NOHUGEPAGE); /* where huge pages are the rule, one touched byte would cost two megabytes */
#endif
  return p;
}

void *df_pages_alloc_huge(size_t bytes) {
  void *p = df_pages_alloc(bytes);
#ifdef MADV_HUGEPAGE
  if (p && bytes >= HUGE_PAGE) (void)madvise(p, bytes, MADV_HUGEPAGE);
#endif
  return p;
}

void df_pages_free(void *p, size_t bytes) {
  if (p) (void)munmap(p, bytes);
}

void df_pages_discard(void *p, size_t bytes) { (void)madvise(p, bytes, MADV_DONTNEED); }

uint64_t df_mem_alloc_count(void) { return atomic_load_explicit(&g_count, memory_order_relaxed); }

void df_mem_fail_after(uint64_t n, bool sticky) {
  uint64_t now = atomic_load_explicit(&g_count, memory_order_relaxed);
  atomic_store_explicit(&g_fail_sticky, sticky, memory_order_relaxed);
  atomic_store_explicit(&g_fail_at, n ? now + n : 0, memory_order_relaxed);
}
