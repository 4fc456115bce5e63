#include "eval/pyrandom.h"

#include <stdbool.h>

#include "base/mem.h"

enum { SHIFT = 397 };

static void init_genrand(df_pyrandom *r, uint32_t s) {
  r->mt[0] = s;
  for (uint32_t i = 1; i < DF_MT_WORDS; i++) r->mt[i] = 1812433253u * (r->mt[i - 1] ^ (r->mt[i - 1] >> 30)) + i;
  r->at = DF_MT_WORDS;
}

void df_pyrandom_seed(df_pyrandom *r, uint64_t seed) {
  const uint32_t key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)};
  const uint32_t n = key[1] ? 2 : 1;
  uint32_t i = 1, j = 0, *mt = r->mt;
  init_genrand(r, 19650218u);
  for (uint32_t k = DF_MT_WORDS; k; k--) {
    mt[i] = (mt[i] ^ ((mt[i - 1] ^ (mt[i - 1] >> 30)) * 1664525u)) + key[j] + j;
    if (++i == DF_MT_WORDS) mt[0] = mt[DF_MT_WORDS - 1], i = 1;
    if (++j == n) j = 0;
  }
  for (uint32_t k = DF_MT_WORDS - 1; k; k--) {
    mt[i] = (mt[i] ^ ((mt[i - 1] ^ (mt[i - 1] >> 30)) * 1566083941u)) - i;
    if (++i == DF_MT_WORDS) mt[0] = mt[DF_MT_WORDS - 1], i = 1;
  }
  mt[0] = 0x80000000u;
}

static void refill(df_pyrandom *r) {
  for (uint32_t i = 0; i < DF_MT_WORDS; i++) {
    const uint32_t y = (r->mt[i] & 0x80000000u) | (r->mt[(i + 1) % DF_MT_WORDS] & 0x7fffffffu);
    r->mt[i] = r->mt[(i + SHIFT) % DF_MT_WORDS] ^ (y >> 1) ^ (y & 1 ? 0x9908b0dfu : 0);
  }
  r->at = 0;
}

uint32_t df_pyrandom_u32(df_pyrandom *r) {
  if (r->at == DF_MT_WORDS) refill(r);
  uint32_t y = r->mt[r->at++];
  y ^= y >> 11;
  y ^= (y << 7) & 0x9d2c5680u;
  y ^= (y << 15) & 0xefc60000u;
  return y ^ (y >> 18);
}

uint32_t df_pyrandom_below(df_pyrandom *r, uint32_t n) {
  uint32_t bits = 0, v;
  while (n >> bits) bits++;
  do v = df_pyrandom_u32(r) >> (32 - bits);
  while (v >= n);
  return v;
}

/* Small populations are shuffled in part, large ones are drawn from until k differ: Python decides by memory. */
static bool small_population(uint32_t n, uint32_t k) {
  uint64_t set = 21, power = 1;
  if (k > 5) {
    while (power < (uint64_t)k * 3) power *= 4;
    set += power;
  }
  return n <= set;
}

df_status df_pyrandom_sample(df_pyrandom *r, uint32_t n, uint32_t k, uint32_t *out, df_error *err) {
  if (k > n) return DF_FAIL(err, DF_ERR_ARGUMENT, "could not draw %u of %u", k, n);
  if (!small_population(n, k)) {
    for (uint32_t i = 0; i < k; i++) {
      bool again;
      do {
        out[i] = df_pyrandom_below(r, n);
        again = false;
        for (uint32_t j = 0; j < i; j++) again |= out[j] == out[i];
      } while (again);
    }
    return DF_OK;
  }
  uint32_t *pool = df_alloc((n ? n : 1) * sizeof *pool);
  if (!pool) return DF_OOM(err, "a drawing", n * sizeof *pool);
  for (uint32_t i = 0; i < n; i++) pool[i] = i;
  for (uint32_t i = 0; i < k; i++) {
    const uint32_t j = df_pyrandom_below(r, n - i);
    out[i] = pool[j];
    pool[j] = pool[n - i - 1];
  }
  df_free(pool);
  return DF_OK;
}
