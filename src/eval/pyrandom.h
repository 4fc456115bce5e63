/*
 * eval/pyrandom.h - the random numbers of CPython's random.Random, so that few-shot examples are drawn exactly as
 * lm-eval draws them: MT19937 (Matsumoto and Nishimura 1998) seeded by init_by_array, getrandbits, sample().
 *
 * Ownership: plain value. Threads: one at a time.
 */
#ifndef DF_EVAL_PYRANDOM_H
#define DF_EVAL_PYRANDOM_H

#include <stdint.h>

#include "base/error.h"

enum { DF_MT_WORDS = 624 };

typedef struct df_pyrandom {
  uint32_t mt[DF_MT_WORDS];
  uint32_t at;
} df_pyrandom;

/* random.Random(seed) for 0 <= seed < 2^64. */
void df_pyrandom_seed(df_pyrandom *r, uint64_t seed);
/* The next 32 bits. */
uint32_t df_pyrandom_u32(df_pyrandom *r);
/* random.Random._randbelow(n), 1 <= n < 2^31. */
uint32_t df_pyrandom_below(df_pyrandom *r, uint32_t n);
/* random.Random.sample(range(n), k): k distinct numbers below n in the order drawn. ARGUMENT when k > n. */
df_status df_pyrandom_sample(df_pyrandom *r, uint32_t n, uint32_t k, uint32_t *out, df_error *err) DF_CHECK;

#endif
