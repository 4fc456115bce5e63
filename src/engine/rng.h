/*
 * engine/rng.h - counter-based random numbers: Philox4x32-10 (Salmon, Moraes, Dror, Shaw: "Parallel random
 * numbers: as easy as 1, 2, 3", SC 2011). A draw is a pure function of (seed, position, stream), so the text of
 * a request with a seed does not depend on batching, on drafting, or on which step a token falls into.
 *
 * Threads: no state at all.
 */
#ifndef DF_ENGINE_RNG_H
#define DF_ENGINE_RNG_H

#include <stdint.h>

/* Independent uses of one position; the value is part of the counter and must never be renumbered. */
enum { DF_RNG_TOKEN = 0, DF_RNG_ACCEPT = 1, DF_RNG_RESIDUAL = 2, DF_RNG_DRAFT = 3 };

/* Ten rounds; ctr is replaced by the output block. */
static inline void df_philox4x32(uint32_t ctr[4], uint32_t k0, uint32_t k1) {
  for (int round = 0; round < 10; round++) {
    const uint64_t a = (uint64_t)0xD2511F53u * ctr[0];
    const uint64_t b = (uint64_t)0xCD9E8D57u * ctr[2];
    const uint32_t c0 = (uint32_t)(b >> 32) ^ ctr[1] ^ k0;
    const uint32_t c2 = (uint32_t)(a >> 32) ^ ctr[3] ^ k1;
    ctr[1] = (uint32_t)b;
    ctr[3] = (uint32_t)a;
    ctr[0] = c0;
    ctr[2] = c2;
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
}

/* Uniform in [0, 1) with 53 bits. Key = seed, counter = (absolute position, stream). */
static inline double df_rng_uniform(uint64_t seed, uint64_t position, uint32_t stream) {
  uint32_t c[4] = {(uint32_t)position, (uint32_t)(position >> 32), stream, 0};
  df_philox4x32(c, (uint32_t)seed, (uint32_t)(seed >> 32));
  const uint64_t bits = ((uint64_t)c[0] << 32 | c[1]) >> 11;
  return (double)bits * 0x1p-53;
}

#endif
