/* mm_avx2_float.c - matmuls of the float forms for AVX2. */
#include "kernels/x86/mm_avx2.h"

enum { CHUNK = 256 }; /* of k; 16 KB of F32 weights */

typedef enum elem { ELEM_F32, ELEM_F16, ELEM_BF16 } elem;

/* Lanes [lane, lane + 8) of step i. */
DF_INLINE __m256 load8(const uint8_t *strip, size_t i, int lane, const elem e) {
  if (e == ELEM_F32) return _mm256_load_ps((const float *)(const void *)(strip + 64 * i + 4 * lane));
  const uint8_t *p = strip + 32 * i + 2 * lane;
  if (e == ELEM_F16) return df_load_8_halves(p);
  const __m128i h = _mm_load_si128((const __m128i *)(const void *)p);
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(h), 16));
}

/* Steps [k0, k1) of `m` rows times `n` neighbouring strips; n * m <= 4, which makes 8 chains of fma: enough to hide
 * its latency. Results stay in `out` between calls; the first call (k0 == 0) starts from zero. */
DF_INLINE void strips_rows(const df_weights *w, const uint8_t *p, const uint32_t n, const float *x, const uint32_t m,
                           size_t k0, size_t k1, const elem e, float *out, size_t ld) {
  __m256 acc[4][2];
#pragma GCC unroll 4
  for (uint32_t i = 0; i < n * m; i++) {
    const float *o = out + i % m * ld + i / m * DF_LANES;
    acc[i][0] = k0 ? _mm256_loadu_ps(o) : _mm256_setzero_ps();
    acc[i][1] = k0 ? _mm256_loadu_ps(o + 8) : _mm256_setzero_ps();
  }
  for (size_t i = k0; i < k1; i++) {
#pragma GCC unroll 4
    for (uint32_t t = 0; t < n; t++) {
      const uint8_t *strip = p + t * w->strip_bytes;
      const __m256 w0 = load8(strip, i, 0, e), w1 = load8(strip, i, 8, e);
      if (e == ELEM_F32 || i % 2 == 0) df_ahead_float(strip + (e == ELEM_F32 ? 64 : 32) * i);
#pragma GCC unroll 4
      for (uint32_t c = 0; c < m; c++) {
        const __m256 v = _mm256_set1_ps(x[c * (size_t)w->k + i]);
        acc[t * m + c][0] = _mm256_fmadd_ps(w0, v, acc[t * m + c][0]);
        acc[t * m + c][1] = _mm256_fmadd_ps(w1, v, acc[t * m + c][1]);
      }
    }
  }
#pragma GCC unroll 4
  for (uint32_t i = 0; i < n * m; i++) {
    float *o = out + i % m * ld + i / m * DF_LANES;
    _mm256_storeu_ps(o, acc[i][0]);
    _mm256_storeu_ps(o + 8, acc[i][1]);
  }
}

/* One strip and more than two rows: groups of 4 rows take turns on a chunk of k that fits L1. */
DF_INLINE void strip_groups(const elem e, const df_weights *w, const uint8_t *p, const float *x, uint32_t m, float *out,
                            size_t ld) {
  const size_t k = w->k;
  for (size_t k0 = 0; k0 < k; k0 += CHUNK) {
    const size_t k1 = k - k0 < CHUNK ? k : k0 + CHUNK;
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

void df_kernels_mm_float_init__avx2(df_kernels *k) {
  k->mm[DF_PACK_F32] = f32;
  k->mm[DF_PACK_F16] = f16;
  k->mm[DF_PACK_BF16] = bf16;
}
