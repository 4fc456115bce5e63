/*
 * kernels/simd/mm_float_impl.h - matmuls of the float forms, written once for avx2 and neon: a tier's file includes its
 * simd16_*.h and then this file. All functions are static.
 */
#ifndef DF_KERNELS_MM_FLOAT_IMPL_H
#define DF_KERNELS_MM_FLOAT_IMPL_H

#include "kernels/tables.h"

enum {
  FLOAT_CHUNK = 256,  /* of k; 16 KB of F32 weights */
  FLOAT_AHEAD = 4096, /* bytes ahead that are asked for */
};

typedef enum elem { ELEM_F32, ELEM_F16, ELEM_BF16 } elem;

/* The 16 weights of step i. */
DF_INLINE v16 load_step(const uint8_t *strip, size_t i, const elem e) {
  if (e == ELEM_F32) return v16_load((const float *)(const void *)(strip + 64 * i));
  const uint16_t *p = (const uint16_t *)(const void *)(strip + 32 * i);
  return e == ELEM_F16 ? v16_load_f16(p) : v16_load_bf16(p);
}

/* Steps [k0, k1) of `m` rows times `n` neighbouring strips; n * m <= 4, enough chains of fma to hide its latency.
 * Results stay in `out` between calls; the first call (k0 == 0) starts from zero. */
DF_INLINE void strips_rows(const df_weights *w, const uint8_t *p, const uint32_t n, const float *x, const uint32_t m,
                           size_t k0, size_t k1, const elem e, float *out, size_t ld) {
  v16 acc[4];
#pragma GCC unroll 4
  for (uint32_t i = 0; i < n * m; i++) acc[i] = k0 ? v16_load(out + i % m * ld + i / m * DF_LANES) : v16_zero();
  for (size_t i = k0; i < k1; i++) {
#pragma GCC unroll 4
    for (uint32_t t = 0; t < n; t++) {
      const uint8_t *strip = p + t * w->strip_bytes;
      const v16 v = load_step(strip, i, e);
      if (e == ELEM_F32 || i % 2 == 0) __builtin_prefetch(strip + (e == ELEM_F32 ? 64 : 32) * i + FLOAT_AHEAD, 0, 2);
#pragma GCC unroll 4
      for (uint32_t c = 0; c < m; c++) {
        acc[t * m + c] = v16_fma(v, v16_set1(x[c * (size_t)w->k + i]), acc[t * m + c]);
      }
    }
  }
#pragma GCC unroll 4
  for (uint32_t i = 0; i < n * m; i++) v16_store(out + i % m * ld + i / m * DF_LANES, acc[i]);
}

/* One strip and more than two rows: groups of 4 rows take turns on a chunk of k that fits L1. */
DF_INLINE void strip_groups(const elem e, const df_weights *w, const uint8_t *p, const float *x, uint32_t m, float *out,
                            size_t ld) {
  const size_t k = w->k;
  for (size_t k0 = 0; k0 < k; k0 += FLOAT_CHUNK) {
    const size_t k1 = k - k0 < FLOAT_CHUNK ? k : k0 + FLOAT_CHUNK;
    uint32_t c = 0;
    for (; c + 4 <= m; c += 4) strips_rows(w, p, 1, x + c * k, 4, k0, k1, e, out + c * ld, ld);
    for (; c + 2 <= m; c += 2) strips_rows(w, p, 1, x + c * k, 2, k0, k1, e, out + c * ld, ld);
    if (c < m) strips_rows(w, p, 1, x + c * k, 1, k0, k1, e, out + c * ld, ld);
  }
}

DF_INLINE void all_rows(const elem e, const df_weights *w, uint32_t s0, uint32_t s1, const float *x, uint32_t m,
                        float *out, size_t ld) {
  for (uint32_t s = s0; s < s1;) {
    const uint8_t *p = w->data + s * w->strip_bytes;
    float *o = out + (size_t)(s - s0) * DF_LANES;
    const uint32_t left = s1 - s, n = m == 1 && left >= 4 ? 4 : m == 2 && left >= 2 ? 2 : 1;
    if (n == 4)
      strips_rows(w, p, 4, x, 1, 0, w->k, e, o, ld);
    else if (n == 2)
      strips_rows(w, p, 2, x, 2, 0, w->k, e, o, ld);
    else
      strip_groups(e, w, p, x, m, o, ld);
    s += n;
  }
}

#define DEFINE(name, e)                                                                                               \
  static void name(const df_weights *w, uint32_t s0, uint32_t s1, const void *x, uint32_t m, float *out, size_t ld) { \
    all_rows(e, w, s0, s1, x, m, out, ld);                                                                            \
  }

DEFINE(f32, ELEM_F32)
DEFINE(f16, ELEM_F16)
DEFINE(bf16, ELEM_BF16)

DF_INLINE void mm_float_table(df_kernels *k) {
  k->mm[DF_PACK_F32] = f32;
  k->mm[DF_PACK_F16] = f16;
  k->mm[DF_PACK_BF16] = bf16;
}

#endif
