/*
 * engine/bench.h - measuring a model and its draft: single passes by rows and depth, prefill, whole generations.
 *
 * All figures are wall time of one process. The caller interleaves and repeats; these functions measure one sample
 * each. Ownership: df_bench owns an engine and its sequence; borrows model and draft. Threads: one caller.
 */
#ifndef DF_ENGINE_BENCH_H
#define DF_ENGINE_BENCH_H

#include "engine/engine.h"

typedef struct df_bench {
  df_engine e;
  df_kv_seq seq[DF_ENGINE_MAX_SEQS];
  uint32_t n_seqs;
  uint32_t depth; /* positions with KV of each */
} df_bench;

/* n_seqs: sequences of a pass, 1..DF_ENGINE_MAX_SEQS. depth: their KV length (made by a real prefill of made-up
 * tokens).
 */
df_status df_bench_init(df_bench *b, df_model *m, df_draft *d, const df_session_params *p, uint32_t n_seqs,
                        uint32_t depth, df_error *err) DF_CHECK;
void df_bench_release(df_bench *b);

/* One target pass of `rows` rows a sequence with logits for all of them: rows 1 = a decode step, more = a verify.
 * Milliseconds. */
df_status df_bench_verify(df_bench *b, uint32_t rows, double *ms, df_error *err) DF_CHECK;
/* One draft block of `rows` rows a sequence and the injection of `inject` rows behind it. */
df_status df_bench_draft(df_bench *b, uint32_t rows, uint32_t inject, double *ms, df_error *err) DF_CHECK;
/* Prefill of n tokens of one sequence into an empty cache (draft injection included when there is a draft). */
df_status df_bench_prefill(df_bench *b, uint32_t n, double *ms, df_error *err) DF_CHECK;

/* Steps of the engine on a device that is not the host: all of it, and what the host worked (launches included) rather
 * than waited. Microseconds a step, means. */
typedef struct df_bench_steps {
  double step_us, host_us, passes, waits; /* passes: programs run in a step; waits: of the host for the device */
} df_bench_steps;
/* n steps of one greedy request of `width` rows (1 = plain), after a few that warm up. UNSUPPORTED on the host, which
 * does not wait. */
df_status df_bench_steps_of(df_bench *b, uint32_t width, uint32_t n, df_bench_steps *out, df_error *err) DF_CHECK;

/* Load of the machine by others between two calls: 0 = only this process ran; 1 = as much again. */
typedef struct df_bench_load {
  double busy_s, own_s, wall_s;
  uint32_t cpus;
} df_bench_load;
void df_bench_load_begin(df_bench_load *l);
/* Share of the machine's processor time that other processes took since begin, 0..1; negative when unknown. */
double df_bench_load_others(const df_bench_load *l);

/* Median, minimum and maximum of n samples (sorted in place). */
typedef struct df_spread {
  double median, min, max;
} df_spread;
df_spread df_bench_spread(double *samples, uint32_t n);

#endif
