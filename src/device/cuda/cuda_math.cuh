/*
 * device/cuda/cuda_math.cuh - the arithmetic of kernels/ref for one thread or a few lanes: the same operations in the
 * same order, so the same bits.
 */
#ifndef DF_DEVICE_CUDA_MATH_CUH
#define DF_DEVICE_CUDA_MATH_CUH

#include "device/cuda/cuda_port.cuh"
#include "device/fragment.h"
#include "device/program.h"
#include "kernels/expf.h"

DF_FRAG_FN uint32_t math_min(uint32_t a, uint32_t b) { return a < b ? a : b; }
DF_FRAG_FN uint32_t math_max(uint32_t a, uint32_t b) { return a > b ? a : b; }

/* df_exp. NaN is answered apart: a GPU's NaN has all bits set, and adding the shifted exponent would make it finite. */
DF_DEV float math_exp(float x) {
  const float c = x > DF_EXP_MAX ? DF_EXP_MAX : x;
  const float t = fmaf(c, DF_EXP_LOG2E, DF_EXP_MAGIC);
  const float n = t - DF_EXP_MAGIC;
  const float r = fmaf(n, -DF_EXP_LN2_LO, fmaf(n, -DF_EXP_LN2_HI, c));
  float q = DF_EXP_C6;
  q = fmaf(q, r, DF_EXP_C5);
  q = fmaf(q, r, DF_EXP_C4);
  q = fmaf(q, r, DF_EXP_C3);
  q = fmaf(q, r, DF_EXP_C2);
  const float p = fmaf(q, r * r, r) + 1.0f;
  if (c != c) return c;
  return c < DF_EXP_MIN ? 0.0f : port_float(port_bits(p) + (port_bits(t) << 23));
}

DF_DEV float math_silu_mul(float g, float u) { return (g / (1.0f + math_exp(-g))) * u; }

/* a > b ? a : b, with b when either is NaN. */
DF_DEV float math_max2(float a, float b) { return a > b ? a : b; }

/* df_f32_to_f16 and back, NaN payloads aside. */
DF_DEV uint16_t math_to_f16(float f) { return port_f16_round(f); }

/* tree16 over the 16 lanes of this half of the warp, result in all of them. */
DF_DEV float math_tree16(float v) {
  v += port_xor(v, 8);
  v += port_xor(v, 4);
  v += port_xor(v, 2);
  return v + port_xor(v, 1);
}

/* 1 / sqrt(mean(x^2) + eps) for n values at x in shared memory, by one half of a warp: lane l owns chain l. All 32
 * lanes of the warp must call it. Loads run one group ahead of the chain. */
DF_DEV float math_rms_factor(const float *x, uint32_t n, float eps, uint32_t l) {
  enum { AHEAD = 16 };
  float a = 0, v[AHEAD];
  uint32_t i = l;
  const uint32_t step = 16 * AHEAD;
  if (i + step <= n + l) { /* as many whole groups for every lane */
#pragma unroll
    for (int j = 0; j < AHEAD; j++) v[j] = x[i + 16 * j];
    for (i += step; i + step <= n + l; i += step) {
      float w[AHEAD];
#pragma unroll
      for (int j = 0; j < AHEAD; j++) w[j] = x[i + 16 * j];
#pragma unroll
      for (int j = 0; j < AHEAD; j++) a = fmaf(v[j], v[j], a);
#pragma unroll
      for (int j = 0; j < AHEAD; j++) v[j] = w[j];
    }
#pragma unroll
    for (int j = 0; j < AHEAD; j++) a = fmaf(v[j], v[j], a);
  }
  for (; i < n; i += 16) a = fmaf(x[i], x[i], a);
  const float mean = math_tree16(a) / (float)n;
  return 1.0f / sqrtf(mean + eps);
}

/* x[16 * j] on their way to v[j]; the squares of those that are there to their chain. */
enum { MATH_AHEAD = 8 };
DF_DEV void math_ask(const float *x, float v[MATH_AHEAD]) {
#pragma unroll
  for (int j = 0; j < MATH_AHEAD; j++) v[j] = x[16 * j];
}
DF_DEV void math_squares(const float v[MATH_AHEAD], float &a) {
#pragma unroll
  for (int j = 0; j < MATH_AHEAD; j++) a = fmaf(v[j], v[j], a);
}

/* The same as a short loop: what a stage of a pass does once is as slow as its code is long. Eight additions take as
 * long as the loads of the next eight, which two arrays take in turn. */
DF_DEV float math_rms_factor_short(const float *x, uint32_t n, float eps) {
  enum { STEP = 16 * MATH_AHEAD, LAST = STEP - 16 };
  const float *at = x + threadIdx.x % 16, *const end = x + n;
  float a = 0, v[MATH_AHEAD], w[MATH_AHEAD];
  if (at + LAST < end) {
    math_ask(at, v);
#pragma unroll 1
    for (; at + 2 * STEP + LAST < end; at += 2 * STEP) {
      math_ask(at + STEP, w);
      math_squares(v, a);
      math_ask(at + 2 * STEP, v);
      math_squares(w, a);
    }
    math_squares(v, a);
    at += STEP;
  }
#pragma unroll 4
  for (; at < end; at += 16) a = fmaf(*at, *at, a);
  return 1.0f / sqrtf(math_tree16(a) / (float)n + eps);
}

/* Four of 32 quantised values, and what goes with all of them. lo, hi: sums of k 0..15 and 16..31, in lanes 0..3. */
struct math_q8 {
  uint32_t word;
  float scale, scale_sum;
  int32_t lo, hi;
};

/* Quantises 32 values held by 8 neighbouring lanes, 4 each. All 32 lanes of the warp must call it. */
DF_DEV math_q8 math_quantized(float4 v) {
  const float x[4] = {v.x, v.y, v.z, v.w};
  uint32_t m = 0;
#pragma unroll
  for (int i = 0; i < 4; i++) m = math_max(m, port_bits(x[i]) & 0x7fffffffu);
  m = math_max(m, port_xor(m, 1));
  m = math_max(m, port_xor(m, 2));
  m = math_max(m, port_xor(m, 4));
  const float amax = port_float(m);
  const bool bad = m >= 0x7f800000u, zero = bad || amax < DF_QUANT_MIN;
  const float inv = 127.0f / (zero ? 1.0f : amax);
  math_q8 out = {};
#pragma unroll
  for (int i = 0; i < 4; i++) {
    const float r = x[i] * inv + DF_EXP_MAGIC;
    const int32_t q = zero ? 0 : (int32_t)(r - DF_EXP_MAGIC);
    out.word |= ((uint32_t)q & 255u) << (8 * i);
    out.lo += q;
  }
  out.lo += port_xor(out.lo, 1);
  out.lo += port_xor(out.lo, 2);
  out.hi = port_xor(out.lo, 4);
  out.scale = bad ? port_float(DF_QUANT_NAN_BITS) : zero ? 0.0f : amax / 127.0f;
  out.scale_sum = bad ? out.scale : zero ? 0.0f : out.scale * (float)(out.lo + out.hi);
  return out;
}

/* What lane l (0..7) of the eight has of the block. */
DF_DEV void math_put_q8(const math_q8 &v, uint32_t l, df_actq *out) {
  ((uint32_t *)out->q)[l] = v.word;
  if (l != 0) return;
  out->scale = v.scale;
  out->scale_sum = v.scale_sum;
  out->off4 = -8 * (v.lo + v.hi);
  out->off8 = -128 * (v.lo + v.hi);
  out->off6_lo = -32 * v.lo;
  out->off6_hi = -32 * v.hi;
  out->pad[0] = out->pad[1] = 0;
}

/* Both, for lane l (0..7) of the eight; a lane group with store false computes only. */
DF_DEV void math_quantize(float4 v, uint32_t l, df_actq *out, bool store) {
  const math_q8 q = math_quantized(v);
  if (store) math_put_q8(q, l, out);
}

/* df_act_row: first block of row r of n live ones; *stride blocks from one to the next. */
DF_DEV df_actq *math_act_row(df_actq *q, uint32_t k, uint32_t r, uint32_t n, uint32_t *stride) {
  const uint32_t first = r & ~(uint32_t)(DF_TILE_ROWS - 1);
  *stride = math_min(n - first, (uint32_t)DF_TILE_ROWS);
  return q + (size_t)first * (k / DF_QBLOCK) + (r - first);
}

#endif
