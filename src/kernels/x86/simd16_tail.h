/*
 * kernels/x86/simd16_tail.h - 128- and 256-bit pieces that both x86 tiers share: the narrow end of the reductions.
 * Included by simd16_avx2.h and simd16_avx512.h only; everything is inlined into one ISA file.
 */
#ifndef DF_KERNELS_SIMD16_TAIL_H
#define DF_KERNELS_SIMD16_TAIL_H

#include <immintrin.h>
#include <stddef.h>
#include <stdint.h>

#define DF_INLINE static inline __attribute__((always_inline))

/* Last three steps of tree16. */
DF_INLINE float tail8_add(__m256 v) {
  __m128 a = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
  a = _mm_add_ps(a, _mm_movehl_ps(a, a));
  return _mm_cvtss_f32(_mm_add_ss(a, _mm_movehdup_ps(a)));
}

DF_INLINE float tail8_max(__m256 v) {
  __m128 a = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
  a = _mm_max_ps(a, _mm_movehl_ps(a, a));
  return _mm_cvtss_f32(_mm_max_ss(a, _mm_movehdup_ps(a)));
}

DF_INLINE uint32_t tail8_max_epi32(__m256i v) {
  __m128i a = _mm_max_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
  a = _mm_max_epi32(a, _mm_shuffle_epi32(a, 0x4e));
  a = _mm_max_epi32(a, _mm_shuffle_epi32(a, 0xb1));
  return (uint32_t)_mm_cvtsi128_si32(a);
}

/* Sum of 16 signed bytes: shifted to unsigned for the sum-of-differences instruction. */
DF_INLINE int32_t sum16_epi8(__m128i q) {
  __m128i s = _mm_sad_epu8(_mm_xor_si128(q, _mm_set1_epi8(-128)), _mm_setzero_si128());
  return _mm_cvtsi128_si32(s) + _mm_extract_epi16(s, 4) - 16 * 128;
}

/* 1 / sqrt(x), both correctly rounded. */
DF_INLINE float inv_sqrt(float x) { return 1.0f / _mm_cvtss_f32(_mm_sqrt_ss(_mm_set_ss(x))); }

#endif
