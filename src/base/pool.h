/*
 * base/pool.h - a fixed team of threads that help the caller.
 *
 * The caller always takes part and never waits for a thread that has not claimed work: when another process
 * holds a core, the caller does the work itself instead of waiting at a barrier. Work is handed out by
 * df_step counters that carry an epoch, so a late thread cannot touch a newer run, and no run has to reset them.
 *
 * The chunks of a step are dealt out as one contiguous range per thread; a thread that is through with its own range
 * takes from the others'. So neighbouring chunks, which read neighbouring memory, stay on one core.
 *
 * Threads: one caller at a time per pool. Callbacks run on several threads at once.
 */
#ifndef DF_BASE_POOL_H
#define DF_BASE_POOL_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"

typedef struct df_pool df_pool;

enum { DF_POOL_QUEUES = 4 }; /* ranges of a step; more threads share them */

/* A counter of one epoch on a cache line of its own: epoch << 32 | count. An older epoch counts as 0. */
typedef struct df_epoch_count {
  _Alignas(64) _Atomic uint64_t v;
} df_epoch_count;

/* Claim state of one step (one op of a program). Zero-initialised once, used with one pool only, never reset. */
typedef struct df_step {
  df_epoch_count claimed[DF_POOL_QUEUES]; /* chunks taken of each range */
  df_epoch_count done;                    /* finished chunks of the step */
} df_step;

/* n_threads counts the caller; 1 starts no thread. Range 1..256. */
df_status df_pool_create(unsigned n_threads, df_pool **out, df_error *err) DF_CHECK;
void df_pool_free(df_pool *p); /* joins the threads; NULL is fine */
unsigned df_pool_threads(const df_pool *p);

/* One chunk of step `step`. `worker` is 0 for the caller, else 1..n_threads-1: index of private scratch. */
typedef void (*df_chunk_fn)(void *arg, uint32_t step, uint32_t chunk, uint32_t worker);

/* Runs steps 0..n_steps-1 in order; within a step chunks 0..n_chunks[step]-1 run in any order on any
 * thread; a step starts when all chunks of the step before are done. `steps` is the caller's array of
 * n_steps counters, used by no other run at the same time; it must live until the pool is idle
 * (df_pool_quiesce) or freed, and so must n_chunks and arg. No allocation, no lock on the fast path. */
void df_pool_walk(df_pool *p, df_step *steps, uint32_t n_steps, const uint32_t *n_chunks, df_chunk_fn fn, void *arg);

/* Convenience for load time: fn(arg, i, worker) for i in 0..n-1. */
void df_pool_for(df_pool *p, uint32_t n, void (*fn)(void *arg, uint32_t i, uint32_t worker), void *arg);

/* Returns when no helper thread is inside a walk; after it the memory of earlier walks may be freed. */
void df_pool_quiesce(df_pool *p);

#endif
