/*
 * kernels/blocks.h - the blocks of GGUF tensor data (file side), shared by dequantisation and packing. Private to
 * src/kernels. Little-endian hosts only. Format: the GGML block layouts as GGUF files store them.
 */
#ifndef DF_KERNELS_BLOCKS_H
#define DF_KERNELS_BLOCKS_H

#include "kernels/kernels.h"

enum {
  DF_Q4_0_BYTES = 18,  /* f16 d, 16 bytes: low nibbles = elements 0..15, high = 16..31 */
  DF_Q4_1_BYTES = 20,  /* f16 d, f16 m, nibbles */
  DF_Q5_0_BYTES = 22,  /* f16 d, 32 fifth bits (bit i = element i), nibbles */
  DF_Q5_1_BYTES = 24,  /* f16 d, f16 m, 32 fifth bits, nibbles */
  DF_Q8_0_BYTES = 34,  /* f16 d, int8[32] */
  DF_Q4_K_BYTES = 144, /* f16 d, f16 dmin, 12 bytes of scales and mins, 128 bytes of nibbles */
  DF_Q5_K_BYTES = 176, /* f16 d, f16 dmin, 12 bytes, 32 bytes of fifth bits, 128 bytes of nibbles */
  DF_Q6_K_BYTES = 210, /* 128 bytes of low nibbles, 64 of upper pairs, int8 scale[16], f16 d */
  DF_F8_BYTES = 68,    /* f32 scale, 64 E4M3 codes */
  DF_SUPER = 256       /* values of a K block */
};

/* Scale and min (6 bits each) of sub-block s of the 12 packed bytes of a Q4_K or Q5_K block. */
static inline void df_k_scale_min(const uint8_t p[12], uint32_t s, uint8_t *scale, uint8_t *min) {
  if (s < 4) {
    *scale = p[s] & 63;
    *min = p[s + 4] & 63;
  } else {
    *scale = (uint8_t)((p[s + 4] & 15) | ((p[s - 4] >> 6) << 4));
    *min = (uint8_t)((p[s + 4] >> 4) | ((p[s] >> 6) << 4));
  }
}

/* Four bits to the low bits of four bytes, bit 0 to the lowest byte. */
static inline uint32_t df_spread4(uint32_t bits) { return ((bits & 15u) * 0x00204081u) & 0x01010101u; }

#endif
