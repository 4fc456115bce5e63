/*
 * kernels/x86/mm8_avx2.h - what simd/mm_impl.h needs for 8 outputs, on AVX2: f8 floats, n8 32-bit integers, c8 four
 * byte codes for each output. arm/mm8_neon.h has the same.
 */
#ifndef DF_KERNELS_MM8_AVX2_H
#define DF_KERNELS_MM8_AVX2_H

#include <immintrin.h>

#include "kernels/layout.h"

#define DF_INLINE static inline __attribute__((always_inline))

typedef __m256 f8;
typedef __m256i n8;
typedef __m256i c8;

/* The sums of one row in one strip. */
typedef float row_acc[DF_LANES];

/* As in x86/mm_avx512.h: bytes ahead that are asked for, into L2. */
enum { DF_MM_AHEAD = 16384 };

DF_INLINE void df_ahead(const uint8_t *p) { _mm_prefetch((const char *)p + DF_MM_AHEAD, _MM_HINT_T1); }

/* Memory at 32-byte (halves 16-byte, bytes 8-byte) boundaries. */
DF_INLINE c8 c8_load(const uint8_t *p) { return _mm256_load_si256((const __m256i *)(const void *)p); }
DF_INLINE c8 c8_low(c8 v) { return _mm256_and_si256(v, _mm256_set1_epi8(15)); }
DF_INLINE c8 c8_high(c8 v) { return c8_low(_mm256_srli_epi16(v, 4)); }
/* w + 16 * (bits 2i and 2i + 1 of v). */
DF_INLINE c8 c8_with_pair(c8 w, c8 v, const int i) {
  const __m256i at = i < 2 ? _mm256_slli_epi16(v, 4 - 2 * i) : _mm256_srli_epi16(v, 2 * i - 4);
  return _mm256_or_si256(w, _mm256_and_si256(at, _mm256_set1_epi8(0x30)));
}

DF_INLINE n8 n8_set1(int32_t i) { return _mm256_set1_epi32(i); }

DF_INLINE f8 f8_zero(void) { return _mm256_setzero_ps(); }
DF_INLINE f8 f8_load(const float *p) { return _mm256_load_ps(p); }
DF_INLINE void f8_store(float *p, f8 v) { _mm256_store_ps(p, v); }
DF_INLINE f8 f8_mul(f8 a, f8 b) { return _mm256_mul_ps(a, b); }
DF_INLINE f8 f8_neg(f8 v) { return _mm256_xor_ps(_mm256_set1_ps(-0.0f), v); }
/* a * b + c, rounded once. */
DF_INLINE f8 f8_fma1(f8 a, float b, f8 c) { return _mm256_fmadd_ps(a, _mm256_set1_ps(b), c); }
/* 8 halves, unsigned or signed bytes as floats. */
DF_INLINE f8 f8_halves(const uint8_t *p) { return _mm256_cvtph_ps(_mm_load_si128((const __m128i *)(const void *)p)); }
DF_INLINE f8 f8_bytes(const uint8_t *p) {
  return _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)(const void *)p)));
}
DF_INLINE f8 f8_signed_bytes(const uint8_t *p) {
  return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)(const void *)p)));
}

/* fma(ws * scale of x, dot, acc). */
DF_INLINE f8 scaled_add(f8 ws, const df_actq *x, n8 dot, f8 acc) {
  return _mm256_fmadd_ps(_mm256_mul_ps(ws, _mm256_set1_ps(x->scale)), _mm256_cvtepi32_ps(dot), acc);
}

#endif
