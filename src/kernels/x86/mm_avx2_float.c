/* mm_avx2_float.c - matmuls of the float forms for AVX2. */
#include "kernels/x86/mm_avx2.h"

typedef enum elem { ELEM_F32, ELEM_F16, ELEM_BF16 } elem;

/* Lanes [lane, lane + 8) of step i. */
DF_INLINE __m256 load8(const uint8_t *strip, size_t i, int lane, const elem e) {
  if (e == ELEM_F32) return _mm256_load_ps((const float *)(const void *)(strip + 64 * i + 4 * lane));
  const uint8_t *p = strip + 32 * i + 2 * lane;
  if (e == ELEM_F16) return df_load_8_halves(p);
  const __m128i h = _mm_load_si128((const __m128i *)(const void *)p);
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(h), 16));
}

/* Rows [c0, c0 + m) of `n` neighbouring strips; n * m <= 4, which makes 8 chains of fma: enough to hide its latency. */
DF_INLINE void strips_rows(const df_weights *w, const uint8_t *p, const uint32_t n, const float *x, const uint32_t m,
                           const elem e, float *out, size_t ld) {
  __m256 acc[4][2];
#pragma GCC unroll 4
  for (uint32_t i = 0; i < n * m; i++) acc[i][0] = acc[i][1] = _mm256_setzero_ps();
  for (size_t i = 0; i < w->k; i++) {
#pragma GCC unroll 4
    for (uint32_t t = 0; t < n; t++) {
      const uint8_t *strip = p + t * w->strip_bytes;
      const __m256 w0 = load8(strip, i, 0, e), w1 = load8(strip, i, 8, e);
      if (e == ELEM_F32 || i % 2 == 0) df_ahead(strip + (e == ELEM_F32 ? 64 : 32) * i);
#pragma GCC unroll 4
      for (uint32_t c = 0; c < m; c++) {
        const __m256 v = _mm256_set1_ps(x[c * (size_t)w->k + i]);
        acc[t * m + c][0] = _mm256_fmadd_ps(w0, v, acc[t * m + c][0]);
        acc[t * m + c][1] = _mm256_fmadd_ps(w1, v, acc[t * m + c][1]);
      }
    }
  }
#pragma GCC unroll 4
  for (uint32_t t = 0; t < n; t++)
#pragma GCC unroll 4
    for (uint32_t c = 0; c < m; c++) {
      _mm256_storeu_ps(out + c * ld + t * DF_LANES, acc[t * m + c][0]);
      _mm256_storeu_ps(out + c * ld + t * DF_LANES + 8, acc[t * m + c][1]);
    }
}

DF_INLINE void all_rows(const elem e, const df_weights *w, uint32_t s0, uint32_t s1, const float *x, uint32_t m,
                        float *out, size_t ld) {
  for (uint32_t s = s0; s < s1;) {
    const uint8_t *p = w->data + s * w->strip_bytes;
    float *o = out + (size_t)(s - s0) * DF_LANES;
    const uint32_t left = s1 - s;
    uint32_t done = 1;
    if (m == 1 && left >= 4) {
      strips_rows(w, p, done = 4, x, 1, e, o, ld);
    } else if (m == 2 && left >= 2) {
      strips_rows(w, p, done = 2, x, 2, e, o, ld);
    } else {
      uint32_t c = 0;
      for (; c + 4 <= m; c += 4) strips_rows(w, p, 1, x + c * (size_t)w->k, 4, e, o + c * ld, ld);
      for (; c + 2 <= m; c += 2) strips_rows(w, p, 1, x + c * (size_t)w->k, 2, e, o + c * ld, ld);
      if (c < m) strips_rows(w, p, 1, x + c * (size_t)w->k, 1, e, o + c * ld, ld);
    }
    s += done;
  }
}

#define DEFINE(name, e)                                                                                             \
  static void name(const df_weights *w, uint32_t s0, uint32_t s1, const void *x, uint32_t m, float *out, size_t ld) { \
    all_rows(e, w, s0, s1, x, m, out, ld);                                                                          \
  }

DEFINE(f32, ELEM_F32)
DEFINE(f16, ELEM_F16)
DEFINE(bf16, ELEM_BF16)

void df_kernels_mm_float_init__avx2(df_kernels *k) {
  k->mm[DF_PACK_F32] = f32;
  k->mm[DF_PACK_F16] = f16;
  k->mm[DF_PACK_BF16] = bf16;
}
