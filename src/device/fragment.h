/*
 * device/fragment.h - order of BF16 and F16 weights on a GPU, and how a product's k is cut into parts.
 *
 * A tile is 16 outputs x 16 k, 512 contiguous bytes, 16 bytes for each lane of a warp: the A operand of
 * mma.m16n8k16 as it lies in registers, so that one 16-byte load a lane is one operand. Tiles of a strip (16 outputs)
 * follow each other in k order, strips follow each other; k is padded to 16 and n to 16 with zeros.
 *
 *   lane 4 g + j, register 0..3 = (output g, pair 0) (output g + 8, pair 0) (output g, pair 1) (output g + 8, pair 1)
 *   pair p of lane j = k 4 j + 2 p and the one behind it
 *
 * The instruction itself numbers k 2 j, 2 j + 1, 2 j + 8, 2 j + 9 there; since a sum over k does not care which k is
 * which as long as both operands agree, the four are made neighbours, and a lane's activations are one 16-byte load.
 *
 * Sums: the tiles of a strip are cut into DF_FRAG_PARTS runs as even as they come, some of them empty when k is small.
 * A part is one chain of accumulating products from zero. Neighbouring parts are added in pairs, (0 + 1), (2 + 3), ...,
 * and the sums of the pairs one after the other, in order. So k can be split among warps and blocks down to single
 * parts, and a kernel that walks k alone needs three sets of sums: of the part, of the pair, of all.
 *
 * Threads: pure functions.
 */
#ifndef DF_DEVICE_FRAGMENT_H
#define DF_DEVICE_FRAGMENT_H

#include <stdint.h>

#include "kernels/kernels.h"

#ifdef __CUDACC__
#define DF_FRAG_FN static __host__ __device__ __forceinline__
#else
#define DF_FRAG_FN static inline
#endif

enum { DF_FRAG_K = 16, DF_FRAG_BYTES = 512, DF_FRAG_PARTS = 32 };

/* Tiles of a strip. */
DF_FRAG_FN uint32_t df_frag_tiles(uint32_t k) { return k / DF_FRAG_K + (k % DF_FRAG_K != 0); }

/* First tile of part p; p == DF_FRAG_PARTS gives the end. */
DF_FRAG_FN uint32_t df_frag_part(uint32_t tiles, uint32_t p) { return (uint32_t)((uint64_t)tiles * p / DF_FRAG_PARTS); }

/* Byte offset in its tile of output m (0..15), k kk (0..15). */
DF_FRAG_FN uint32_t df_frag_at(uint32_t m, uint32_t kk) {
  const uint32_t lane = 4 * (m & 7) + (kk >> 2), reg = (m >> 3) + (kk & 2);
  return 16 * lane + 4 * reg + 2 * (kk & 1);
}

#endif
