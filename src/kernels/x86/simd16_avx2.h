/*
 * kernels/x86/simd16_avx2.h - the 16-lane float vector of the kernel contract on AVX2, FMA and F16C: two registers.
 * Same operations as simd16_avx512.h (comments there); vec_impl.h and attn_impl.h are written once against them.
 */
#ifndef DF_KERNELS_SIMD16_AVX2_H
#define DF_KERNELS_SIMD16_AVX2_H

#include "kernels/x86/simd16_tail.h"

typedef struct v16 {
  __m256 a, b; /* lanes 0..7, 8..15 */
} v16;

/* Register tiles of attn_impl.h: 16 registers hold up to 12 sums beside the operands. */
#define V16_ATTN_PAGES(nq) ((nq) == 1 ? 4 : (nq) == 2 ? 2 : 1)
#define V16_ATTN_COLS(nq) ((nq) == 1 ? 4 : (nq) == 2 ? 2 : 1)

DF_INLINE v16 v16_pair(__m256 a, __m256 b) {
  v16 v = {a, b};
  return v;
}
/* All-ones in lane i of a half for bit i of m. */
DF_INLINE __m256i v16_bits8(uint32_t m) {
  __m256i bit = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
  return _mm256_cmpeq_epi32(_mm256_and_si256(_mm256_set1_epi32((int)m), bit), bit);
}
DF_INLINE uint32_t v16_head(uint32_t n) { return (1u << n) - 1; }

DF_INLINE v16 v16_zero(void) { return v16_pair(_mm256_setzero_ps(), _mm256_setzero_ps()); }
DF_INLINE v16 v16_set1(float f) { return v16_pair(_mm256_set1_ps(f), _mm256_set1_ps(f)); }
DF_INLINE v16 v16_load(const float *p) { return v16_pair(_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)); }
DF_INLINE void v16_store(float *p, v16 v) {
  _mm256_storeu_ps(p, v.a);
  _mm256_storeu_ps(p + 8, v.b);
}
DF_INLINE v16 v16_load_n(const float *p, uint32_t n) {
  uint32_t m = v16_head(n);
  if (n <= 8) return v16_pair(_mm256_maskload_ps(p, v16_bits8(m)), _mm256_setzero_ps());
  return v16_pair(_mm256_loadu_ps(p), _mm256_maskload_ps(p + 8, v16_bits8(m >> 8)));
}
DF_INLINE void v16_store_n(float *p, v16 v, uint32_t n) {
  uint32_t m = v16_head(n);
  _mm256_maskstore_ps(p, v16_bits8(m), v.a);
  if (n > 8) _mm256_maskstore_ps(p + 8, v16_bits8(m >> 8), v.b);
}
DF_INLINE v16 v16_load_f16(const uint16_t *p) {
  return v16_pair(_mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)p)),
                  _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)(p + 8))));
}
DF_INLINE __m256 v16_bhalf8(const uint16_t *p) {
  const __m128i h = _mm_loadu_si128((const __m128i *)(const void *)p);
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(h), 16));
}
/* 16 bfloat16 values: only the tiers that mm_float_impl.h serves have it. */
DF_INLINE v16 v16_load_bf16(const uint16_t *p) { return v16_pair(v16_bhalf8(p), v16_bhalf8(p + 8)); }
DF_INLINE void v16_store_f16(uint16_t *p, v16 v) {
  _mm_storeu_si128((__m128i *)(void *)p, _mm256_cvtps_ph(v.a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
  _mm_storeu_si128((__m128i *)(void *)(p + 8), _mm256_cvtps_ph(v.b, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}

/* 4 E4M3 codes of every lane, and the exact value of code t of each: as bits of a float the code without its sign is
 * the value times 2^-120, subnormal codes too. */
typedef struct v16_codes {
  __m256i a, b;
} v16_codes;
DF_INLINE v16_codes v16_load_codes(const uint8_t *p) {
  const v16_codes c = {_mm256_loadu_si256((const __m256i *)(const void *)p),
                       _mm256_loadu_si256((const __m256i *)(const void *)(p + 32))};
  return c;
}
DF_INLINE __m256 v16_e4m3_8(__m256i codes, const int t) {
  const __m256i all = _mm256_set1_epi32(0x07F00000),
                c = _mm256_slli_epi32(codes, 24 - 8 * t); /* code in the top byte */
  const __m256i mag = _mm256_and_si256(_mm256_srli_epi32(c, 4), all);
  const __m256i nan = _mm256_slli_epi32(_mm256_cmpeq_epi32(mag, all), 22); /* 0xFFC00000 where it is one */
  const __m256i sign = _mm256_and_si256(c, _mm256_set1_epi32(INT32_MIN));
  const __m256 v = _mm256_mul_ps(_mm256_castsi256_ps(_mm256_or_si256(mag, sign)), _mm256_set1_ps(0x1p120f));
  return _mm256_or_ps(v, _mm256_castsi256_ps(nan));
}
DF_INLINE v16 v16_e4m3(v16_codes c, const int t) { return v16_pair(v16_e4m3_8(c.a, t), v16_e4m3_8(c.b, t)); }

DF_INLINE v16 v16_add(v16 x, v16 y) { return v16_pair(_mm256_add_ps(x.a, y.a), _mm256_add_ps(x.b, y.b)); }
DF_INLINE v16 v16_sub(v16 x, v16 y) { return v16_pair(_mm256_sub_ps(x.a, y.a), _mm256_sub_ps(x.b, y.b)); }
DF_INLINE v16 v16_mul(v16 x, v16 y) { return v16_pair(_mm256_mul_ps(x.a, y.a), _mm256_mul_ps(x.b, y.b)); }
DF_INLINE v16 v16_div(v16 x, v16 y) { return v16_pair(_mm256_div_ps(x.a, y.a), _mm256_div_ps(x.b, y.b)); }
DF_INLINE v16 v16_fma(v16 x, v16 y, v16 z) {
  return v16_pair(_mm256_fmadd_ps(x.a, y.a, z.a), _mm256_fmadd_ps(x.b, y.b, z.b));
}
/* One lane. */
DF_INLINE float v16_fma1(float x, float y, float z) {
  return _mm_cvtss_f32(_mm_fmadd_ss(_mm_set_ss(x), _mm_set_ss(y), _mm_set_ss(z)));
}
DF_INLINE v16 v16_fms(v16 x, v16 y, v16 z) {
  return v16_pair(_mm256_fmsub_ps(x.a, y.a, z.a), _mm256_fmsub_ps(x.b, y.b, z.b));
}
DF_INLINE v16 v16_neg(v16 x) {
  __m256 s = _mm256_set1_ps(-0.0f);
  return v16_pair(_mm256_xor_ps(x.a, s), _mm256_xor_ps(x.b, s));
}
DF_INLINE v16 v16_max(v16 x, v16 y) { return v16_pair(_mm256_max_ps(x.a, y.a), _mm256_max_ps(x.b, y.b)); }
DF_INLINE v16 v16_min(v16 x, v16 y) { return v16_pair(_mm256_min_ps(x.a, y.a), _mm256_min_ps(x.b, y.b)); }
DF_INLINE v16 v16_select(uint32_t m, v16 x, v16 y) {
  return v16_pair(_mm256_blendv_ps(y.a, x.a, _mm256_castsi256_ps(v16_bits8(m))),
                  _mm256_blendv_ps(y.b, x.b, _mm256_castsi256_ps(v16_bits8(m >> 8))));
}
DF_INLINE uint32_t v16_ge_mask(v16 x, v16 y) {
  uint32_t lo = (uint32_t)_mm256_movemask_ps(_mm256_cmp_ps(x.a, y.a, _CMP_GE_OQ));
  return lo | (uint32_t)_mm256_movemask_ps(_mm256_cmp_ps(x.b, y.b, _CMP_GE_OQ)) << 8;
}
DF_INLINE uint32_t v16_eq_mask(v16 x, v16 y) {
  uint32_t lo = (uint32_t)_mm256_movemask_ps(_mm256_cmp_ps(x.a, y.a, _CMP_EQ_OQ));
  return lo | (uint32_t)_mm256_movemask_ps(_mm256_cmp_ps(x.b, y.b, _CMP_EQ_OQ)) << 8;
}
DF_INLINE v16 v16_zero_below(v16 x, v16 min, v16 v) {
  return v16_pair(_mm256_andnot_ps(_mm256_cmp_ps(x.a, min.a, _CMP_LT_OQ), v.a),
                  _mm256_andnot_ps(_mm256_cmp_ps(x.b, min.b, _CMP_LT_OQ), v.b));
}
DF_INLINE __m256 v16_add_exponent8(__m256 p, __m256 t) {
  return _mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(p), _mm256_slli_epi32(_mm256_castps_si256(t), 23)));
}
DF_INLINE v16 v16_add_exponent(v16 p, v16 t) {
  return v16_pair(v16_add_exponent8(p.a, t.a), v16_add_exponent8(p.b, t.b));
}

DF_INLINE float v16_tree_add(v16 v) { return tail8_add(_mm256_add_ps(v.a, v.b)); }
DF_INLINE float v16_tree_max(v16 v) { return tail8_max(_mm256_max_ps(v.a, v.b)); }
DF_INLINE __m256i v16_max_abs8(v16 v) {
  __m256i k = _mm256_set1_epi32(0x7fffffff);
  return _mm256_max_epi32(_mm256_and_si256(_mm256_castps_si256(v.a), k), _mm256_and_si256(_mm256_castps_si256(v.b), k));
}
DF_INLINE uint32_t v16_max_abs_bits(v16 x, v16 y) {
  return tail8_max_epi32(_mm256_max_epi32(v16_max_abs8(x), v16_max_abs8(y)));
}
DF_INLINE __m128i v16_pack8(__m256 v) {
  __m256i i = _mm256_cvtps_epi32(v);
  return _mm_packs_epi32(_mm256_castsi256_si128(i), _mm256_extracti128_si256(i, 1));
}
DF_INLINE int32_t v16_store_q8(int8_t *p, v16 v) {
  __m128i q = _mm_packs_epi16(v16_pack8(v.a), v16_pack8(v.b));
  _mm_storeu_si128((__m128i *)(void *)p, q);
  return sum16_epi8(q);
}

#endif
