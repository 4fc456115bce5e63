/*
 * kernels/simd/mm_f8_impl.h - matmul of DF_PACK_F8, written once for all vector tiers: a tier's file includes its
 * simd16_*.h and then this file. All functions are static.
 *
 * Up to 4 rows use the codes as they are decoded; more rows share a block that was decoded to a small tile. Results
 * stay in `out` between blocks.
 */
#ifndef DF_KERNELS_MM_F8_IMPL_H
#define DF_KERNELS_MM_F8_IMPL_H

#include "kernels/layout.h"
#include "kernels/tables.h"

enum { F8_AHEAD = 4096 }; /* bytes ahead that are asked for */

/* out = fma(scale, dot, out) for m rows; the first block starts from zero. */
DF_INLINE void f8_finish(const uint8_t *block, bool first, const v16 *dot, const uint32_t m, float *out, size_t ld) {
  const v16 scale = v16_load((const float *)(const void *)(block + DF_F8_SCALES));
#pragma GCC unroll 4
  for (uint32_t r = 0; r < m; r++)
    v16_store(out + r * ld, v16_fma(scale, dot[r], first ? v16_zero() : v16_load(out + r * ld)));
}

/* One block of one strip times m <= 4 rows, k floats apart. */
DF_INLINE void f8_few(const uint8_t *block, bool first, const float *x, size_t k, const uint32_t m, float *out,
                      size_t ld) {
  v16 dot[4];
#pragma GCC unroll 4
  for (uint32_t r = 0; r < m; r++) dot[r] = v16_zero();
  for (uint32_t j = 0; j < DF_F8_BLOCK / 4; j++) {
    const v16_codes c = v16_load_codes(block + 64 * j);
    __builtin_prefetch(block + 64 * j + F8_AHEAD, 0, 2);
#pragma GCC unroll 4
    for (int t = 0; t < 4; t++) {
      const v16 v = v16_e4m3(c, t);
#pragma GCC unroll 4
      for (uint32_t r = 0; r < m; r++) dot[r] = v16_fma(v, v16_set1(x[r * k + 4 * j + (uint32_t)t]), dot[r]);
    }
  }
  f8_finish(block, first, dot, m, out, ld);
}

/* The same from a decoded block. */
DF_INLINE void f8_tile(const uint8_t *block, const float *tile, bool first, const float *x, size_t k, const uint32_t m,
                       float *out, size_t ld) {
  v16 dot[4];
#pragma GCC unroll 4
  for (uint32_t r = 0; r < m; r++) dot[r] = v16_zero();
  for (uint32_t i = 0; i < DF_F8_BLOCK; i++) {
    const v16 v = v16_load(tile + i * DF_LANES);
#pragma GCC unroll 4
    for (uint32_t r = 0; r < m; r++) dot[r] = v16_fma(v, v16_set1(x[r * k + i]), dot[r]);
  }
  f8_finish(block, first, dot, m, out, ld);
}

/* A block times more than 4 rows. */
DF_INLINE void f8_many(const uint8_t *block, bool first, const float *x, size_t k, uint32_t m, float *out, size_t ld) {
  float tile[DF_F8_BLOCK * DF_LANES];
  for (uint32_t j = 0; j < DF_F8_BLOCK / 4; j++) {
    const v16_codes c = v16_load_codes(block + 64 * j);
    __builtin_prefetch(block + 64 * j + F8_AHEAD, 0, 2);
#pragma GCC unroll 4
    for (int t = 0; t < 4; t++) v16_store(tile + (4 * j + (uint32_t)t) * DF_LANES, v16_e4m3(c, t));
  }
  uint32_t r = 0;
  for (; r + 4 <= m; r += 4) f8_tile(block, tile, first, x + r * k, k, 4, out + r * ld, ld);
  for (; r < m; r++) f8_tile(block, tile, first, x + r * k, k, 1, out + r * ld, ld);
}

static void f8_mm(const df_weights *w, uint32_t s0, uint32_t s1, const void *x, uint32_t m, float *out, size_t ld) {
  const size_t k = w->k;
  for (uint32_t s = s0; s < s1; s++, out += DF_LANES) {
    const uint8_t *block = w->data + s * w->strip_bytes;
    const float *at = x;
    for (size_t i = 0; i < k; i += DF_F8_BLOCK, block += DF_F8_STEP, at += DF_F8_BLOCK) {
      switch (m) {
        case 1: f8_few(block, i == 0, at, k, 1, out, ld); break;
        case 2: f8_few(block, i == 0, at, k, 2, out, ld); break;
        case 3: f8_few(block, i == 0, at, k, 3, out, ld); break;
        case 4: f8_few(block, i == 0, at, k, 4, out, ld); break;
        default: f8_many(block, i == 0, at, k, m, out, ld); break;
      }
    }
  }
}

#endif
