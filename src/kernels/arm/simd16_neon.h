/*
 * kernels/arm/simd16_neon.h - the 16-lane float vector of the kernel contract on Advanced SIMD: four registers.
 * Same operations as x86/simd16_avx512.h (comments there); simd/vec_impl.h and simd/attn_impl.h are written once
 * against them. Needs nothing beyond Armv8-A; rounding is the default mode (nearest even, subnormals kept).
 */
#ifndef DF_KERNELS_SIMD16_NEON_H
#define DF_KERNELS_SIMD16_NEON_H

#include <arm_neon.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define DF_INLINE static inline __attribute__((always_inline))

typedef struct v16 {
  float32x4_t p[4]; /* lanes 0..3, 4..7, 8..11, 12..15 */
} v16;

/* Register tiles of attn_impl.h: 32 registers of 4 lanes hold up to 24 sums beside the operands. */
#define V16_ATTN_PAGES(nq) ((nq) == 1 ? 4 : (nq) <= 3 ? 2 : 1)
#define V16_ATTN_COLS(nq) ((nq) == 1 ? 4 : (nq) <= 3 ? 2 : 1)

DF_INLINE v16 v16_quads(float32x4_t a, float32x4_t b, float32x4_t c, float32x4_t d) {
  v16 v = {{a, b, c, d}};
  return v;
}
/* All-ones in lane i of quarter j for bit 4j + i of m. */
DF_INLINE uint32x4_t v16_bits4(uint32_t m, int j) {
  static const uint32_t bit[4] = {1, 2, 4, 8};
  return vtstq_u32(vdupq_n_u32(m >> (4 * j)), vld1q_u32(bit));
}
/* One bit per lane from four comparisons. */
DF_INLINE uint32_t v16_mask(uint32x4_t a, uint32x4_t b, uint32x4_t c, uint32x4_t d) {
  static const uint32_t bit[4] = {1, 2, 4, 8};
  const uint32x4_t k = vld1q_u32(bit);
  const uint32x4_t ab = vorrq_u32(vandq_u32(a, k), vshlq_n_u32(vandq_u32(b, k), 4));
  const uint32x4_t cd = vorrq_u32(vandq_u32(c, k), vshlq_n_u32(vandq_u32(d, k), 4));
  return vaddvq_u32(vorrq_u32(ab, vshlq_n_u32(cd, 8)));
}

DF_INLINE v16 v16_set1(float f) {
  const float32x4_t x = vdupq_n_f32(f);
  return v16_quads(x, x, x, x);
}
DF_INLINE v16 v16_zero(void) { return v16_set1(0.0f); }
DF_INLINE v16 v16_load(const float *p) {
  return v16_quads(vld1q_f32(p), vld1q_f32(p + 4), vld1q_f32(p + 8), vld1q_f32(p + 12));
}
DF_INLINE void v16_store(float *p, v16 v) {
  for (int j = 0; j < 4; j++) vst1q_f32(p + 4 * j, v.p[j]);
}
/* Tails go through memory: there are no masked accesses. */
DF_INLINE v16 v16_load_n(const float *p, uint32_t n) {
  if (n == 16) return v16_load(p);
  float t[16] = {0};
  memcpy(t, p, n * sizeof *t);
  return v16_load(t);
}
DF_INLINE void v16_store_n(float *p, v16 v, uint32_t n) {
  if (n == 16) {
    v16_store(p, v);
    return;
  }
  float t[16];
  v16_store(t, v);
  memcpy(p, t, n * sizeof *t);
}
DF_INLINE float32x4_t v16_half4(const uint16_t *p) { return vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(p))); }
DF_INLINE v16 v16_load_f16(const uint16_t *p) {
  return v16_quads(v16_half4(p), v16_half4(p + 4), v16_half4(p + 8), v16_half4(p + 12));
}
DF_INLINE float32x4_t v16_bhalf4(const uint16_t *p) { return vreinterpretq_f32_u32(vshll_n_u16(vld1_u16(p), 16)); }
DF_INLINE v16 v16_load_bf16(const uint16_t *p) {
  return v16_quads(v16_bhalf4(p), v16_bhalf4(p + 4), v16_bhalf4(p + 8), v16_bhalf4(p + 12));
}
DF_INLINE void v16_store_f16(uint16_t *p, v16 v) {
  for (int j = 0; j < 4; j++) vst1_u16(p + 4 * j, vreinterpret_u16_f16(vcvt_f16_f32(v.p[j])));
}

/* 4 E4M3 codes of every lane, and the exact value of code t of each: as bits of a float the code without its sign is
 * the value times 2^-120, subnormal codes too. */
typedef struct v16_codes {
  uint32x4_t p[4];
} v16_codes;
DF_INLINE v16_codes v16_load_codes(const uint8_t *p) {
  v16_codes c;
  for (int j = 0; j < 4; j++) c.p[j] = vreinterpretq_u32_u8(vld1q_u8(p + 16 * j));
  return c;
}
DF_INLINE v16 v16_e4m3(v16_codes codes, const int t) {
  const uint32x4_t all = vdupq_n_u32(0x07F00000);
  v16 v;
  for (int j = 0; j < 4; j++) {
    const uint32x4_t c = vshlq_u32(codes.p[j], vdupq_n_s32(24 - 8 * t)); /* code in the top byte */
    const uint32x4_t mag = vandq_u32(vshrq_n_u32(c, 4), all), sign = vandq_u32(c, vdupq_n_u32(0x80000000));
    const float32x4_t f = vmulq_f32(vreinterpretq_f32_u32(vorrq_u32(mag, sign)), vdupq_n_f32(0x1p120f));
    v.p[j] = vbslq_f32(vceqq_u32(mag, all), vreinterpretq_f32_u32(vdupq_n_u32(0x7FC00000)), f);
  }
  return v;
}

DF_INLINE v16 v16_add(v16 x, v16 y) {
  for (int j = 0; j < 4; j++) x.p[j] = vaddq_f32(x.p[j], y.p[j]);
  return x;
}
DF_INLINE v16 v16_sub(v16 x, v16 y) {
  for (int j = 0; j < 4; j++) x.p[j] = vsubq_f32(x.p[j], y.p[j]);
  return x;
}
DF_INLINE v16 v16_mul(v16 x, v16 y) {
  for (int j = 0; j < 4; j++) x.p[j] = vmulq_f32(x.p[j], y.p[j]);
  return x;
}
DF_INLINE v16 v16_div(v16 x, v16 y) {
  for (int j = 0; j < 4; j++) x.p[j] = vdivq_f32(x.p[j], y.p[j]);
  return x;
}
DF_INLINE v16 v16_fma(v16 x, v16 y, v16 z) {
  for (int j = 0; j < 4; j++) z.p[j] = vfmaq_f32(z.p[j], x.p[j], y.p[j]);
  return z;
}
DF_INLINE float v16_fma1(float x, float y, float z) { return __builtin_fmaf(x, y, z); } /* one instruction here */
DF_INLINE v16 v16_neg(v16 x) {
  for (int j = 0; j < 4; j++) x.p[j] = vnegq_f32(x.p[j]);
  return x;
}
DF_INLINE v16 v16_fms(v16 x, v16 y, v16 z) { return v16_fma(x, y, v16_neg(z)); }
/* Not the max instruction: that one returns NaN when either operand is. */
DF_INLINE v16 v16_max(v16 x, v16 y) {
  for (int j = 0; j < 4; j++) x.p[j] = vbslq_f32(vcgtq_f32(x.p[j], y.p[j]), x.p[j], y.p[j]);
  return x;
}
DF_INLINE v16 v16_min(v16 x, v16 y) {
  for (int j = 0; j < 4; j++) x.p[j] = vbslq_f32(vcltq_f32(x.p[j], y.p[j]), x.p[j], y.p[j]);
  return x;
}
DF_INLINE v16 v16_select(uint32_t m, v16 x, v16 y) {
  for (int j = 0; j < 4; j++) x.p[j] = vbslq_f32(v16_bits4(m, j), x.p[j], y.p[j]);
  return x;
}
DF_INLINE uint32_t v16_ge_mask(v16 x, v16 y) {
  return v16_mask(vcgeq_f32(x.p[0], y.p[0]), vcgeq_f32(x.p[1], y.p[1]), vcgeq_f32(x.p[2], y.p[2]),
                  vcgeq_f32(x.p[3], y.p[3]));
}
DF_INLINE uint32_t v16_eq_mask(v16 x, v16 y) {
  return v16_mask(vceqq_f32(x.p[0], y.p[0]), vceqq_f32(x.p[1], y.p[1]), vceqq_f32(x.p[2], y.p[2]),
                  vceqq_f32(x.p[3], y.p[3]));
}
DF_INLINE v16 v16_zero_below(v16 x, v16 min, v16 v) {
  for (int j = 0; j < 4; j++) {
    v.p[j] = vreinterpretq_f32_u32(vbicq_u32(vreinterpretq_u32_f32(v.p[j]), vcltq_f32(x.p[j], min.p[j])));
  }
  return v;
}
DF_INLINE v16 v16_add_exponent(v16 p, v16 t) {
  for (int j = 0; j < 4; j++) {
    const uint32x4_t e = vshlq_n_u32(vreinterpretq_u32_f32(t.p[j]), 23);
    p.p[j] = vreinterpretq_f32_u32(vaddq_u32(vreinterpretq_u32_f32(p.p[j]), e));
  }
  return p;
}

DF_INLINE float v16_tree_add(v16 v) {
  const float32x4_t a = vaddq_f32(vaddq_f32(v.p[0], v.p[2]), vaddq_f32(v.p[1], v.p[3]));
  const float32x2_t b = vadd_f32(vget_low_f32(a), vget_high_f32(a));
  return vget_lane_f32(b, 0) + vget_lane_f32(b, 1);
}
DF_INLINE float v16_larger(float a, float b) { return a > b ? a : b; }
DF_INLINE float v16_tree_max(v16 v) {
  const v16 far = v16_quads(v.p[2], v.p[3], v.p[2], v.p[3]), near = v16_max(v, far);
  const float32x4_t a = vbslq_f32(vcgtq_f32(near.p[0], near.p[1]), near.p[0], near.p[1]);
  const float x = v16_larger(vgetq_lane_f32(a, 0), vgetq_lane_f32(a, 2));
  return v16_larger(x, v16_larger(vgetq_lane_f32(a, 1), vgetq_lane_f32(a, 3)));
}
DF_INLINE uint32x4_t v16_abs4(float32x4_t v) { return vreinterpretq_u32_f32(vabsq_f32(v)); }
DF_INLINE uint32_t v16_max_abs_bits(v16 x, v16 y) {
  uint32x4_t m = vmaxq_u32(v16_abs4(x.p[0]), v16_abs4(y.p[0]));
  for (int j = 1; j < 4; j++) m = vmaxq_u32(m, vmaxq_u32(v16_abs4(x.p[j]), v16_abs4(y.p[j])));
  return vmaxvq_u32(m);
}
DF_INLINE int16x8_t v16_pack8(float32x4_t a, float32x4_t b) {
  return vcombine_s16(vqmovn_s32(vcvtnq_s32_f32(a)), vqmovn_s32(vcvtnq_s32_f32(b)));
}
DF_INLINE int32_t v16_store_q8(int8_t *p, v16 v) {
  const int8x16_t q = vcombine_s8(vqmovn_s16(v16_pack8(v.p[0], v.p[1])), vqmovn_s16(v16_pack8(v.p[2], v.p[3])));
  vst1q_s8(p, q);
  return vaddlvq_s8(q);
}

/* 1 / sqrt(x), both correctly rounded. */
DF_INLINE float inv_sqrt(float x) { return 1.0f / vget_lane_f32(vsqrt_f32(vdup_n_f32(x)), 0); }

#endif
