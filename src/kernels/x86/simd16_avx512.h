/*
 * kernels/x86/simd16_avx512.h - the 16-lane float vector of the kernel contract on AVX-512: one register.
 * Same operations as simd16_avx2.h; vec_impl.h and attn_impl.h are written once against them.
 */
#ifndef DF_KERNELS_SIMD16_AVX512_H
#define DF_KERNELS_SIMD16_AVX512_H

#include "kernels/x86/simd16_tail.h"

typedef __m512 v16;

/* Register tiles of attn_impl.h: 32 registers hold up to 24 sums beside the operands. */
#define V16_ATTN_PAGES(nq) 4
#define V16_ATTN_COLS(nq) ((nq) == 1 ? 8 : 4)

DF_INLINE __mmask16 v16_head(uint32_t n) { return (__mmask16)((1u << n) - 1); }

DF_INLINE v16 v16_zero(void) { return _mm512_setzero_ps(); }
DF_INLINE v16 v16_set1(float f) { return _mm512_set1_ps(f); }
DF_INLINE v16 v16_load(const float *p) { return _mm512_loadu_ps(p); }
DF_INLINE void v16_store(float *p, v16 v) { _mm512_storeu_ps(p, v); }
/* First n <= 16 lanes, the rest zero / untouched. */
DF_INLINE v16 v16_load_n(const float *p, uint32_t n) { return _mm512_maskz_loadu_ps(v16_head(n), p); }
DF_INLINE void v16_store_n(float *p, v16 v, uint32_t n) { _mm512_mask_storeu_ps(p, v16_head(n), v); }
DF_INLINE v16 v16_load_f16(const uint16_t *p) {
  return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(const void *)p));
}
DF_INLINE void v16_store_f16(uint16_t *p, v16 v) {
  _mm256_storeu_si256((__m256i *)(void *)p, _mm512_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}

/* 4 E4M3 codes of every lane, and the exact value of code t of each: as bits of a float the code without its sign is
 * the value times 2^-120, subnormal codes too. */
typedef __m512i v16_codes;
DF_INLINE v16_codes v16_load_codes(const uint8_t *p) { return _mm512_loadu_si512(p); }
DF_INLINE v16 v16_e4m3(v16_codes codes, const int t) {
  const __m512i all = _mm512_set1_epi32(0x07F00000), c = _mm512_sllv_epi32(codes, _mm512_set1_epi32(24 - 8 * t));
  const __m512i mag = _mm512_and_si512(_mm512_srli_epi32(c, 4), all);
  const __m512i sign = _mm512_and_si512(c, _mm512_set1_epi32(INT32_MIN));
  const __m512 v = _mm512_mul_ps(_mm512_castsi512_ps(_mm512_or_si512(mag, sign)), _mm512_set1_ps(0x1p120f));
  return _mm512_mask_blend_ps(_mm512_cmpeq_epi32_mask(mag, all), v, _mm512_castsi512_ps(_mm512_set1_epi32(0x7FC00000)));
}

DF_INLINE v16 v16_add(v16 a, v16 b) { return _mm512_add_ps(a, b); }
DF_INLINE v16 v16_sub(v16 a, v16 b) { return _mm512_sub_ps(a, b); }
DF_INLINE v16 v16_mul(v16 a, v16 b) { return _mm512_mul_ps(a, b); }
DF_INLINE v16 v16_div(v16 a, v16 b) { return _mm512_div_ps(a, b); }
DF_INLINE v16 v16_fma(v16 a, v16 b, v16 c) { return _mm512_fmadd_ps(a, b, c); }
/* One lane. */
DF_INLINE float v16_fma1(float a, float b, float c) {
  return _mm_cvtss_f32(_mm_fmadd_ss(_mm_set_ss(a), _mm_set_ss(b), _mm_set_ss(c)));
}
/* a * b - c, rounded once. */
DF_INLINE v16 v16_fms(v16 a, v16 b, v16 c) { return _mm512_fmsub_ps(a, b, c); }
DF_INLINE v16 v16_neg(v16 a) { return _mm512_xor_ps(a, _mm512_set1_ps(-0.0f)); }
/* a > b ? a : b and a < b ? a : b; b when either is NaN. */
DF_INLINE v16 v16_max(v16 a, v16 b) { return _mm512_max_ps(a, b); }
DF_INLINE v16 v16_min(v16 a, v16 b) { return _mm512_min_ps(a, b); }
/* Bit i of m chooses a over b in lane i. */
DF_INLINE v16 v16_select(uint32_t m, v16 a, v16 b) { return _mm512_mask_blend_ps((__mmask16)m, b, a); }
DF_INLINE uint32_t v16_ge_mask(v16 a, v16 b) { return _mm512_cmp_ps_mask(a, b, _CMP_GE_OQ); }
DF_INLINE uint32_t v16_eq_mask(v16 a, v16 b) { return _mm512_cmp_ps_mask(a, b, _CMP_EQ_OQ); }
/* v where !(x < min), else +0. */
DF_INLINE v16 v16_zero_below(v16 x, v16 min, v16 v) {
  return _mm512_maskz_mov_ps(_mm512_cmp_ps_mask(x, min, _CMP_NLT_UQ), v);
}
/* bits(p) + (bits(t) << 23). */
DF_INLINE v16 v16_add_exponent(v16 p, v16 t) {
  return _mm512_castsi512_ps(_mm512_add_epi32(_mm512_castps_si512(p), _mm512_slli_epi32(_mm512_castps_si512(t), 23)));
}

DF_INLINE float v16_tree_add(v16 v) {
  return tail8_add(_mm256_add_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1)));
}
DF_INLINE float v16_tree_max(v16 v) {
  return tail8_max(_mm256_max_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1)));
}
/* Largest magnitude of 32 values as an integer. */
DF_INLINE uint32_t v16_max_abs_bits(v16 a, v16 b) {
  __m512i k = _mm512_set1_epi32(0x7fffffff), x = _mm512_castps_si512(a), y = _mm512_castps_si512(b);
  __m512i m = _mm512_max_epi32(_mm512_and_si512(x, k), _mm512_and_si512(y, k));
  return tail8_max_epi32(_mm256_max_epi32(_mm512_castsi512_si256(m), _mm512_extracti64x4_epi64(m, 1)));
}
/* Nearest-even integers of |v| <= 127 as bytes; returns their sum. */
DF_INLINE int32_t v16_store_q8(int8_t *p, v16 v) {
  __m128i q = _mm512_cvtepi32_epi8(_mm512_cvtps_epi32(v));
  _mm_storeu_si128((__m128i *)(void *)p, q);
  return sum16_epi8(q);
}

#endif
