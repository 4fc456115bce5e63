/*
 * device/cuda/quant_codes.cuh - a 32-block of quantised weights as a lane of a matrix instruction takes it: codes,
 * scales, and exact sums as floats. kernels/layout.h has the layouts. Private to device/cuda.
 *
 * Output 2g of a strip is row g of the matrix instruction and 2g + 1 row g + 8, so that a lane's codes are 8
 * neighbouring bytes; k quads j and j + 4 of a block are what lane j holds of both operands.
 */
#ifndef DF_DEVICE_CUDA_QUANT_CODES_CUH
#define DF_DEVICE_CUDA_QUANT_CODES_CUH

#include "device/cuda/cuda_math.cuh"
#include "kernels/layout.h"

enum { QUANT_NIBBLES = 0x0f0f0f0f, QUANT_MAGIC = 0x4B400000 };

/* What a lane reads of one 32-block: codes of its two outputs, scales as they are stored. */
struct quant_raw {
  uint2 lo, hi;                     /* codes: nibbles in lo, bytes in lo and hi */
  uint2 pair_lo, pair_hi;           /* Q6K: upper bits of both halves */
  uint32_t scale, min, sub, submin; /* f16 pairs, and pairs of small integers */
  float2 fscale, fmin;              /* Q8M */
};

DF_DEV uint32_t load_pair16(const uint8_t *p) { return *(const uint32_t *)p; }
DF_DEV uint32_t load_pair8(const uint8_t *p) { return *(const uint16_t *)p; }
DF_DEV float2 load_pair32(const uint8_t *p) { return *(const float2 *)p; }

/* 8 bytes of codes: from memory, which they leave once, or from where a stream has put them. */
template <bool SHARED>
DF_DEV uint2 quant_load8(const uint8_t *p) {
  return SHARED ? *(const uint2 *)p : port_stream8(p);
}

/* Block kb of a strip of k inputs, in device memory or (SHARED) in shared memory. */
template <int PACK, bool SHARED>
DF_DEV quant_raw quant_load(const uint8_t *strip, uint32_t k, uint32_t kb, uint32_t g, uint32_t j) {
  quant_raw r = {};
  const size_t nkb = k / DF_QBLOCK;
  const uint32_t at = 64 * j + 8 * g;
  if (PACK == DF_PACK_Q8) {
    const uint8_t *p = strip + kb * (size_t)DF_BYTES_BLOCK;
    r.lo = quant_load8<SHARED>(p + at);
    r.hi = quant_load8<SHARED>(p + 256 + at);
    r.scale = load_pair16(strip + nkb * DF_BYTES_BLOCK + kb * (size_t)DF_HALVES + 4 * g);
  } else if (PACK == DF_PACK_Q4) {
    r.lo = quant_load8<SHARED>(strip + kb * (size_t)DF_NIBS_BLOCK + at);
    r.scale = load_pair16(strip + nkb * DF_NIBS_BLOCK + kb * (size_t)DF_HALVES + 4 * g);
  } else if (PACK == DF_PACK_Q4M) {
    const uint8_t *p = strip + kb * (size_t)DF_Q4M_BLOCK;
    r.lo = quant_load8<SHARED>(p + at);
    r.scale = load_pair16(p + DF_Q4M_SCALES + 4 * g);
    r.min = load_pair16(p + DF_Q4M_SCALES + DF_HALVES + 4 * g);
  } else if (PACK == DF_PACK_Q8M) {
    const uint8_t *p = strip + kb * (size_t)DF_Q8M_BLOCK;
    r.lo = quant_load8<SHARED>(p + at);
    r.hi = quant_load8<SHARED>(p + 256 + at);
    r.fscale = load_pair32(p + DF_Q8M_SCALES + 8 * g);
    r.fmin = load_pair32(p + DF_Q8M_SCALES + 64 + 8 * g);
  } else if (PACK == DF_PACK_Q4K) {
    const uint8_t *p = strip + (size_t)(kb / 8) * DF_Q4K_BLOCK, *sub = p + DF_Q4K_SCALES + 32 * (kb % 8);
    r.lo = quant_load8<SHARED>(p + DF_Q4K_NIBS + DF_NIBS_BLOCK * (kb % 8) + at);
    r.scale = load_pair16(p + 4 * g);
    r.min = load_pair16(p + DF_HALVES + 4 * g);
    r.sub = load_pair8(sub + 2 * g);
    r.submin = load_pair8(sub + 16 + 2 * g);
  } else {
    const uint8_t *p = strip + (size_t)(kb / 8) * DF_Q6K_BLOCK, *codes = p + DF_Q6K_CODES + DF_Q6K_SUB * (kb % 8);
    r.lo = quant_load8<SHARED>(codes + at);
    r.pair_lo = quant_load8<SHARED>(codes + DF_NIBS_BLOCK + 8 * g);
    r.pair_hi = quant_load8<SHARED>(codes + DF_NIBS_BLOCK + 64 + 8 * g);
    r.scale = load_pair16(strip + (size_t)(k / 256) * DF_Q6K_BLOCK + (size_t)(kb / 8) * DF_HALVES + 4 * g);
    r.sub = load_pair8(p + 32 * (kb % 8) + 2 * g);
    r.submin = load_pair8(p + 32 * (kb % 8) + 16 + 2 * g);
  }
  return r;
}

/* The codes as matrix operand: outputs 2g and 2g + 1 for k quad j, then both for quad j + 4. */
template <int PACK>
DF_DEV void quant_codes(const quant_raw &r, uint32_t j, uint32_t a[4]) {
  if (PACK == DF_PACK_Q8 || PACK == DF_PACK_Q8M) {
    a[0] = r.lo.x;
    a[1] = r.lo.y;
    a[2] = r.hi.x;
    a[3] = r.hi.y;
    return;
  }
  a[0] = r.lo.x & QUANT_NIBBLES;
  a[1] = r.lo.y & QUANT_NIBBLES;
  a[2] = r.lo.x >> 4 & QUANT_NIBBLES;
  a[3] = r.lo.y >> 4 & QUANT_NIBBLES;
  if (PACK != DF_PACK_Q6K) return;
  const uint32_t s = 2 * j, pairs = 0x03030303;
  a[0] |= (r.pair_lo.x >> s & pairs) << 4;
  a[1] |= (r.pair_lo.y >> s & pairs) << 4;
  a[2] |= (r.pair_hi.x >> s & pairs) << 4;
  a[3] |= (r.pair_hi.y >> s & pairs) << 4;
}

DF_DEV float half_of(uint32_t pair, uint32_t i) { return port_f16_value((uint16_t)(pair >> 16 * i)); }

/* Scale and min (Q6K: scales of the two halves) of output 2g + i. */
template <int PACK>
DF_DEV float2 quant_scales(const quant_raw &r, uint32_t i) {
  float2 s = {0, 0};
  if (PACK == DF_PACK_Q8M) {
    s.x = i ? r.fscale.y : r.fscale.x;
    s.y = i ? r.fmin.y : r.fmin.x;
  } else if (PACK == DF_PACK_Q4K) {
    s.x = half_of(r.scale, i) * (float)(r.sub >> 8 * i & 255);
    s.y = -(half_of(r.min, i) * (float)(r.submin >> 8 * i & 255));
  } else if (PACK == DF_PACK_Q6K) {
    s.x = half_of(r.scale, i) * (float)(int8_t)(r.sub >> 8 * i);
    s.y = half_of(r.scale, i) * (float)(int8_t)(r.submin >> 8 * i);
  } else {
    s.x = half_of(r.scale, i);
    if (PACK == DF_PACK_Q4M) s.y = half_of(r.min, i);
  }
  return s;
}

/* Whether a block adds twice to its output's chain. */
template <int PACK>
DF_DEV constexpr bool quant_two() {
  return PACK == DF_PACK_Q6K || PACK == DF_PACK_Q4M || PACK == DF_PACK_Q8M || PACK == DF_PACK_Q4K;
}

/* (float)i of a sum that started at QUANT_MAGIC; exact for |i| < 2^22. */
DF_DEV float quant_float(int32_t i) { return port_float((uint32_t)i) - DF_EXP_MAGIC; }

#endif
