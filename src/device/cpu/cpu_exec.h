/*
 * device/cpu/cpu_exec.h - runs a program on the thread pool.
 *
 * Threads: one df_cpu_run at a time per executor.
 */
#ifndef DF_DEVICE_CPU_EXEC_H
#define DF_DEVICE_CPU_EXEC_H

#include "base/pool.h"
#include "device/program.h"

typedef struct df_cpu df_cpu;

/* Borrows pool and kernels. Scratch for every worker is allocated here, none in a run. */
df_status df_cpu_create(df_pool *pool, const df_kernels *kernels, df_cpu **out, df_error *err) DF_CHECK;
void df_cpu_free(df_cpu *c); /* NULL is fine */
df_pool *df_cpu_pool(const df_cpu *c);
const df_kernels *df_cpu_kernels(const df_cpu *c);

/* Runs all ops in order; returns when the results are visible to the caller. */
void df_cpu_run(df_cpu *c, df_program *p);

/* Time per op kind, summed over workers, since the last reset; off by default. */
void df_cpu_profile(df_cpu *c, bool on);
void df_cpu_profile_get(const df_cpu *c, uint64_t ns[DF_OP_COUNT], bool reset);

/* Waits until no worker can touch the memory of earlier runs; call before freeing a program. */
void df_cpu_quiesce(df_cpu *c);

#endif
