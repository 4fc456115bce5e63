/*
 * base/mem.h - the only place that calls malloc. Counts every allocation, so that tests and benches can
 * prove "no heap allocation in a decode step", and can be told to fail the n-th one.
 *
 * Threads: all functions may be called from any thread; the counters are atomic.
 */
#ifndef DF_BASE_MEM_H
#define DF_BASE_MEM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Return NULL on failure (or size 0 for df_alloc_aligned). Contents: undefined / zero / kept. */
void *df_alloc(size_t bytes);
void *df_calloc(size_t count, size_t bytes); /* overflow of count*bytes is a failure */
void *df_realloc(void *p, size_t bytes);     /* on failure p stays valid */
void df_free(void *p);                       /* NULL is fine; only for the three above */
char *df_strdup(const char *s);
char *df_strndup(const char *s, size_t n); /* copies exactly n bytes and adds a zero */

/* Large, page-aligned, zero-filled memory from the system, backed only where it is touched: what is sized for the worst
 * case costs what is used. Must be released with the same byte count. No step may call it; it is counted too. */
void *df_pages_alloc(size_t bytes);
/* The same for memory that is used from end to end (packed weights): in huge pages where the system allows. */
void *df_pages_alloc_huge(size_t bytes);
void df_pages_free(void *p, size_t bytes);
/* Gives the contents up and the memory back to the system; the range stays valid and reads as zero. */
void df_pages_discard(void *p, size_t bytes);

/* Number of allocations (all of the above) since the process started. */
uint64_t df_mem_alloc_count(void);

/* Test hook: the allocation with this ordinal from now (1 = the next) fails, and all after it when
 * `sticky`. 0 switches off. */
void df_mem_fail_after(uint64_t n, bool sticky);

#endif
