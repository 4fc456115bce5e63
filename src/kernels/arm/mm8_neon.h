/*
 * kernels/arm/mm8_neon.h - what simd/mm_impl.h needs for 8 outputs, on Advanced SIMD: f8 floats, n8 32-bit integers, c8
 * four byte codes for each output; two registers each. x86/mm8_avx2.h has the same.
 */
#ifndef DF_KERNELS_MM8_NEON_H
#define DF_KERNELS_MM8_NEON_H

#include <arm_neon.h>

#include "kernels/layout.h"

#define DF_INLINE static inline __attribute__((always_inline))

typedef struct f8 {
  float32x4_t a, b; /* outputs 0..3, 4..7 */
} f8;
typedef struct n8 {
  int32x4_t a, b;
} n8;
typedef struct c8 {
  uint8x16_t a, b;
} c8;

/* The sums of one row in one strip. */
typedef float row_acc[DF_LANES];

/* Bytes ahead that are asked for, into L2. */
enum { DF_MM_AHEAD = 8192 };

DF_INLINE void df_ahead(const uint8_t *p) { __builtin_prefetch(p + DF_MM_AHEAD, 0, 2); }

DF_INLINE f8 f8_pair(float32x4_t a, float32x4_t b) {
  f8 v = {a, b};
  return v;
}
DF_INLINE c8 c8_pair(uint8x16_t a, uint8x16_t b) {
  c8 v = {a, b};
  return v;
}

DF_INLINE c8 c8_load(const uint8_t *p) { return c8_pair(vld1q_u8(p), vld1q_u8(p + 16)); }
DF_INLINE c8 c8_low(c8 v) { return c8_pair(vandq_u8(v.a, vdupq_n_u8(15)), vandq_u8(v.b, vdupq_n_u8(15))); }
DF_INLINE c8 c8_high(c8 v) { return c8_pair(vshrq_n_u8(v.a, 4), vshrq_n_u8(v.b, 4)); }
DF_INLINE uint8x16_t c8_pair_bits(uint8x16_t v, const int i) {
  const uint8x16_t at = i == 0 ? vshlq_n_u8(v, 4) : i == 1 ? vshlq_n_u8(v, 2) : i == 2 ? v : vshrq_n_u8(v, 2);
  return vandq_u8(at, vdupq_n_u8(0x30));
}
/* w + 16 * (bits 2i and 2i + 1 of v). */
DF_INLINE c8 c8_with_pair(c8 w, c8 v, const int i) {
  return c8_pair(vorrq_u8(w.a, c8_pair_bits(v.a, i)), vorrq_u8(w.b, c8_pair_bits(v.b, i)));
}
/* Byte codes (value + 128) as the signed values they stand for. */
DF_INLINE c8 c8_signed(c8 v) { return c8_pair(veorq_u8(v.a, vdupq_n_u8(128)), veorq_u8(v.b, vdupq_n_u8(128))); }

DF_INLINE n8 n8_set1(int32_t i) {
  n8 v = {vdupq_n_s32(i), vdupq_n_s32(i)};
  return v;
}

DF_INLINE f8 f8_zero(void) { return f8_pair(vdupq_n_f32(0.0f), vdupq_n_f32(0.0f)); }
DF_INLINE f8 f8_load(const float *p) { return f8_pair(vld1q_f32(p), vld1q_f32(p + 4)); }
DF_INLINE void f8_store(float *p, f8 v) {
  vst1q_f32(p, v.a);
  vst1q_f32(p + 4, v.b);
}
DF_INLINE f8 f8_mul(f8 x, f8 y) { return f8_pair(vmulq_f32(x.a, y.a), vmulq_f32(x.b, y.b)); }
DF_INLINE f8 f8_neg(f8 v) { return f8_pair(vnegq_f32(v.a), vnegq_f32(v.b)); }
/* x * y + z, rounded once. */
DF_INLINE f8 f8_fma1(f8 x, float y, f8 z) { return f8_pair(vfmaq_n_f32(z.a, x.a, y), vfmaq_n_f32(z.b, x.b, y)); }
/* 8 halves, unsigned or signed bytes as floats. */
DF_INLINE f8 f8_halves(const uint8_t *p) {
  const float16x8_t h = vreinterpretq_f16_u8(vld1q_u8(p));
  return f8_pair(vcvt_f32_f16(vget_low_f16(h)), vcvt_high_f32_f16(h));
}
DF_INLINE f8 f8_bytes(const uint8_t *p) {
  const uint16x8_t v = vmovl_u8(vld1_u8(p));
  return f8_pair(vcvtq_f32_u32(vmovl_u16(vget_low_u16(v))), vcvtq_f32_u32(vmovl_high_u16(v)));
}
DF_INLINE f8 f8_signed_bytes(const uint8_t *p) {
  const int16x8_t v = vmovl_s8(vreinterpret_s8_u8(vld1_u8(p)));
  return f8_pair(vcvtq_f32_s32(vmovl_s16(vget_low_s16(v))), vcvtq_f32_s32(vmovl_high_s16(v)));
}

/* fma(ws * scale of x, dot, acc). */
DF_INLINE f8 scaled_add(f8 ws, const df_actq *x, n8 dot, f8 acc) {
  return f8_pair(vfmaq_f32(acc.a, vmulq_n_f32(ws.a, x->scale), vcvtq_f32_s32(dot.a)),
                 vfmaq_f32(acc.b, vmulq_n_f32(ws.b, x->scale), vcvtq_f32_s32(dot.b)));
}

#endif
