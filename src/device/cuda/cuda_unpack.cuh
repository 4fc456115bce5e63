/*
 * device/cuda/cuda_unpack.cuh - single values of packed weights, for embedding rows. kernels/layout.h has the layouts.
 */
#ifndef DF_DEVICE_CUDA_UNPACK_CUH
#define DF_DEVICE_CUDA_UNPACK_CUH

#include "device/cuda/cuda_math.cuh"
#include "device/fragment.h"
#include "kernels/layout.h"

enum { UNPACK_SUPER = 256 };

DF_DEV float unpack_half(const uint8_t *p, uint32_t lane) { return port_f16_value(((const uint16_t *)p)[lane]); }

/* Byte code i of a lane. */
DF_DEV uint32_t unpack_byte(const uint8_t *p, uint32_t lane, uint32_t i) { return p[64 * (i / 4) + 4 * lane + i % 4]; }

DF_DEV uint32_t unpack_nib(const uint8_t *p, uint32_t lane, uint32_t i) {
  const uint32_t b = p[64 * (i % 16 / 4) + 4 * lane + i % 4];
  return i < 16 ? b & 15 : b >> 4;
}

DF_DEV uint32_t unpack_pair(const uint8_t *p, uint32_t lane, uint32_t i) {
  return (p[64 * (i / 16) + 4 * lane + i % 4] >> (2 * (i / 4 % 4))) & 3;
}

DF_DEV float unpack_q4k(const uint8_t *strip, uint32_t kb, uint32_t lane, uint32_t i) {
  const uint8_t *super = strip + (size_t)(kb / 8) * DF_Q4K_BLOCK, *scales = super + DF_Q4K_SCALES + 32 * (kb % 8);
  const float scale = unpack_half(super, lane) * (float)scales[lane];
  const float min = -(unpack_half(super + DF_HALVES, lane) * (float)scales[16 + lane]);
  const float v = (float)unpack_nib(super + DF_Q4K_NIBS + DF_NIBS_BLOCK * (kb % 8), lane, i) * scale;
  return v + min;
}

DF_DEV float unpack_q6k(const uint8_t *strip, uint32_t k, uint32_t kb, uint32_t lane, uint32_t i) {
  const uint8_t *super = strip + (size_t)(kb / 8) * DF_Q6K_BLOCK, *sub = super + DF_Q6K_CODES + DF_Q6K_SUB * (kb % 8);
  const uint8_t *d_all = strip + (size_t)(k / UNPACK_SUPER) * DF_Q6K_BLOCK;
  const float d = unpack_half(d_all + (size_t)(kb / 8) * DF_HALVES, lane);
  const uint32_t code = unpack_nib(sub, lane, i) | unpack_pair(sub + DF_NIBS_BLOCK, lane, i) << 4;
  const float scale = d * (float)(int8_t)super[32 * (kb % 8) + 16 * (i / 16) + lane];
  return (float)((int32_t)code - 32) * scale;
}

/* E4M3 code as the float it stands for: its bits behind the exponent are the value times 2^-120. */
DF_DEV float unpack_e4m3(uint32_t code) { return port_float((code & 0x80) << 24 | (code & 0x7F) << 20) * 0x1p120f; }

/* Row r, column c of w on the device: exact value of the file. */
DF_DEV float unpack_value(const df_weights *w, uint32_t r, uint32_t c) {
  const uint32_t lane = r % DF_LANES, kb = c / DF_QBLOCK, i = c % DF_QBLOCK;
  const size_t nkb = w->k / DF_QBLOCK;
  if (w->pack == DF_PACK_BF16 || w->pack == DF_PACK_F16) {
    const size_t tile = (size_t)(r / DF_LANES) * df_frag_tiles(w->k) + c / DF_FRAG_K;
    const uint16_t h = *(const uint16_t *)(w->data + tile * DF_FRAG_BYTES + df_frag_at(lane, c % DF_FRAG_K));
    return w->pack == DF_PACK_BF16 ? port_bf16_value(h) : port_f16_value(h);
  }
  const uint8_t *p = w->data + (size_t)(r / DF_LANES) * w->strip_bytes;
  switch (w->pack) {
    case DF_PACK_F8:
      p += (size_t)(c / DF_F8_BLOCK) * DF_F8_STEP;
      return unpack_e4m3(unpack_byte(p, lane, c % DF_F8_BLOCK)) * ((const float *)(p + DF_F8_SCALES))[lane];
    case DF_PACK_Q8:
      return (float)((int32_t)unpack_byte(p + kb * (size_t)DF_BYTES_BLOCK, lane, i) - 128) *
             unpack_half(p + nkb * DF_BYTES_BLOCK + kb * (size_t)DF_HALVES, lane);
    case DF_PACK_Q4:
      return (float)((int32_t)unpack_nib(p + kb * (size_t)DF_NIBS_BLOCK, lane, i) - 8) *
             unpack_half(p + nkb * DF_NIBS_BLOCK + kb * (size_t)DF_HALVES, lane);
    case DF_PACK_Q4M: {
      p += kb * (size_t)DF_Q4M_BLOCK;
      const float v = (float)unpack_nib(p, lane, i) * unpack_half(p + DF_Q4M_SCALES, lane);
      return v + unpack_half(p + DF_Q4M_SCALES + DF_HALVES, lane);
    }
    case DF_PACK_Q8M: {
      p += kb * (size_t)DF_Q8M_BLOCK;
      const float v = (float)unpack_byte(p, lane, i) * ((const float *)(p + DF_Q8M_SCALES))[lane];
      return v + ((const float *)(p + DF_Q8M_SCALES + 64))[lane];
    }
    case DF_PACK_Q4K: return unpack_q4k(p, kb, lane, i);
    case DF_PACK_Q6K: return unpack_q6k(p, w->k, kb, lane, i);
    default: return ((const float *)p)[(size_t)c * DF_LANES + lane];
  }
}

#endif
