/*
 * kernels/layout.h - byte layout of the packed weight forms, shared by packing, unpacking and the matmuls of all
 * tiers. Private to src/kernels.
 *
 * A strip holds 16 outputs ("lanes") for all k, contiguous, 64-aligned. Inside a 64-byte row of codes lane L owns
 * bytes 4L..4L+3, so that one vector load is 16 outputs times 4 consecutive k, the shape of an int8 dot product
 * with four activations broadcast to all lanes.
 *
 *   byte codes (32 k, 512 bytes): row j = 0..7, byte 4L+t is the code of k = 4j+t.
 *   nibbles    (32 k, 256 bytes): row j = 0..3, byte 4L+t holds k = 4j+t in its low and k = 16+4j+t in its high nibble.
 *   pairs      (32 k, 128 bytes): row h = 0..1, byte 4L+t holds in bits 2p, 2p+1 the upper two bits of the code of
 *                                 k = 16h+4p+t, p = 0..3.
 *
 * kb = 32-block, sb = 256-block; nkb = k / 32, nsb = k / 256. f16 and f32 arrays are indexed by lane.
 *
 *   F32   k x 64: float[16]
 *   F16   k x 32: half[16], padded to 64
 *   BF16  k x 32: bfloat16[16], padded to 64
 *   F8    k / 64 x {16 rows of byte codes (E4M3), f32 scale[16]}
 *   Q8    nkb x 512 byte codes (value + 128) | nkb x 32: f16 scale[16] | padding to 64
 *   Q4    nkb x 256 nibbles (value + 8)      | nkb x 32: f16 scale[16] | padding to 64
 *   Q4M   nkb x {256 nibbles, f16 scale[16], f16 min[16]}
 *   Q8M   nkb x {512 byte codes 0..31, f32 scale[16], f32 min[16]}
 *   Q4K   nsb x {f16 d[16], f16 dmin[16], 8 x {u8 scale[16], u8 min[16]}, 8 x 256 nibbles}
 *   Q6K   nsb x {8 x {i8 scale of k 0..15 [16], of k 16..31 [16]}, 8 x {256 nibbles, 128 pairs}}
 *         | nsb x 32: f16 d[16] | padding to 64            (code = value + 32)
 *
 * Missing outputs of the last strip are zero rows: every scale and min is 0.
 */
#ifndef DF_KERNELS_LAYOUT_H
#define DF_KERNELS_LAYOUT_H

#include <string.h>

#include "kernels/kernels.h"

enum {
  DF_BYTES_BLOCK = 512,            /* byte codes of 32 k */
  DF_NIBS_BLOCK = 256,             /* nibbles of 32 k */
  DF_PAIRS_BLOCK = 128,            /* pairs of 32 k */
  DF_HALVES = 32,                  /* 16 halves */
  DF_F8_SCALES = 16 * DF_F8_BLOCK, /* after the codes */
  DF_F8_STEP = DF_F8_SCALES + 64,  /* 64 k */
  DF_Q4M_BLOCK = DF_NIBS_BLOCK + 2 * DF_HALVES,
  DF_Q4M_SCALES = DF_NIBS_BLOCK,
  DF_Q8M_BLOCK = DF_BYTES_BLOCK + 128,
  DF_Q8M_SCALES = DF_BYTES_BLOCK,
  DF_Q4K_SCALES = 2 * DF_HALVES, /* after d and dmin */
  DF_Q4K_NIBS = DF_Q4K_SCALES + 8 * 32,
  DF_Q4K_BLOCK = DF_Q4K_NIBS + 8 * DF_NIBS_BLOCK,
  DF_Q6K_CODES = 8 * 32, /* after the scales */
  DF_Q6K_SUB = DF_NIBS_BLOCK + DF_PAIRS_BLOCK,
  DF_Q6K_BLOCK = DF_Q6K_CODES + 8 * DF_Q6K_SUB
};

static inline uint32_t df_load32(const void *p) {
  uint32_t v;
  memcpy(&v, p, sizeof v);
  return v;
}

static inline uint16_t df_load16(const void *p) {
  uint16_t v;
  memcpy(&v, p, sizeof v);
  return v;
}

static inline float df_load_f32(const void *p) {
  float v;
  memcpy(&v, p, sizeof v);
  return v;
}

/* Half number `lane` of an array of 16. */
static inline float df_load_half(const uint8_t *p, uint32_t lane) { return df_f16_to_f32(df_load16(p + 2 * lane)); }

static inline void df_store32(void *p, uint32_t v) { memcpy(p, &v, sizeof v); }
static inline void df_store16(void *p, uint16_t v) { memcpy(p, &v, sizeof v); }
static inline void df_store_f32(void *p, float v) { memcpy(p, &v, sizeof v); }

#endif
