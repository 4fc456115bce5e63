/* pack_kquant.c - packing of the 256-value K blocks into strips. */
#include <string.h>

#include "kernels/blocks.h"
#include "kernels/layout.h"
#include "kernels/pack.h"

/* The file keeps sub-blocks 2i and 2i+1 in the low and high nibbles of 32 bytes; a strip keeps k and k+16 of one
 * sub-block in one byte. */
static void nibs_regroup(const uint8_t *file32, uint8_t *even, uint8_t *odd, uint32_t lane) {
  for (uint32_t j = 0; j < 4; j++) {
    const uint32_t a = df_load32(file32 + 4 * j), b = df_load32(file32 + 16 + 4 * j);
    df_store32(even + 64 * j + 4 * lane, (a & 0x0F0F0F0Fu) | (b & 0x0F0F0F0Fu) << 4);
    df_store32(odd + 64 * j + 4 * lane, ((a >> 4) & 0x0F0F0F0Fu) | (b & 0xF0F0F0F0u));
  }
}

void df_pack_strip_q4_k(const df_pack_src *src, uint32_t k, uint8_t *dst) {
  for (size_t sb = 0; sb < k / DF_SUPER; sb++, dst += DF_Q4K_BLOCK)
    for (uint32_t lane = 0; lane < DF_LANES; lane++) {
      const uint8_t *b = df_pack_block(src, lane, sb);
      memcpy(dst + 2 * lane, b, 2);
      memcpy(dst + DF_HALVES + 2 * lane, b + 2, 2);
      for (uint32_t s = 0; s < 8; s++) {
        uint8_t *scales = dst + DF_Q4K_SCALES + 32 * s;
        df_k_scale_min(b + 4, s, &scales[lane], &scales[16 + lane]);
      }
      for (uint32_t p = 0; p < 4; p++) {
        uint8_t *even = dst + DF_Q4K_NIBS + 2 * p * DF_NIBS_BLOCK;
        nibs_regroup(b + 16 + 32 * p, even, even + DF_NIBS_BLOCK, lane);
      }
    }
}

void df_pack_strip_q5_k(const df_pack_src *src, uint32_t k, uint8_t *dst) {
  for (size_t sb = 0; sb < k / DF_SUPER; sb++)
    for (uint32_t lane = 0; lane < DF_LANES; lane++) {
      const uint8_t *b = df_pack_block(src, lane, sb);
      const float d = df_load_half(b, 0), dmin = df_load_half(b, 1);
      for (uint32_t s = 0; s < 8; s++) {
        uint8_t *out = dst + (sb * 8 + s) * DF_Q8M_BLOCK, scale, min;
        df_k_scale_min(b + 4, s, &scale, &min);
        df_store_f32(out + DF_Q8M_SCALES + 4 * lane, d * (float)scale); /* exact: 11 + 6 bits */
        df_store_f32(out + DF_Q8M_SCALES + 64 + 4 * lane, -(dmin * (float)min));
        for (uint32_t j = 0; j < 8; j++) {
          const uint32_t nib = (df_load32(b + 48 + 32 * (s / 2) + 4 * j) >> (4 * (s & 1))) & 0x0F0F0F0Fu;
          const uint32_t fifth = (df_load32(b + 16 + 4 * j) >> s) & 0x01010101u;
          df_store32(out + 64 * j + 4 * lane, nib | fifth << 4);
        }
      }
    }
}

/* The 256 six-bit codes of a Q6_K block in order of k. */
static void q6_codes(const uint8_t *b, uint8_t code[DF_SUPER]) {
  for (uint32_t half = 0; half < 2; half++) {
    const uint8_t *lo = b + 64 * half, *hi = b + 128 + 32 * half;
    for (uint32_t l = 0; l < 32; l += 4) {
      const uint32_t a = df_load32(lo + l), c = df_load32(lo + 32 + l), h = df_load32(hi + l);
      uint8_t *out = code + 128 * half + l;
      df_store32(out, (a & 0x0F0F0F0Fu) | (h & 0x03030303u) << 4);
      df_store32(out + 32, (c & 0x0F0F0F0Fu) | (h & 0x0C0C0C0Cu) << 2);
      df_store32(out + 64, ((a >> 4) & 0x0F0F0F0Fu) | (h & 0x30303030u));
      df_store32(out + 96, ((c >> 4) & 0x0F0F0F0Fu) | ((h & 0xC0C0C0C0u) >> 2));
    }
  }
}

/* 32 codes to lane `lane` of one sub-block's nibbles and pairs. */
static void q6_split(const uint8_t code[32], uint8_t *nibs, uint8_t *pairs, uint32_t lane) {
  uint32_t up[2] = {0, 0};
  for (uint32_t j = 0; j < 4; j++) {
    const uint32_t a = df_load32(code + 4 * j), b = df_load32(code + 16 + 4 * j);
    df_store32(nibs + 64 * j + 4 * lane, (a & 0x0F0F0F0Fu) | (b & 0x0F0F0F0Fu) << 4);
    up[0] |= ((a >> 4) & 0x03030303u) << (2 * j);
    up[1] |= ((b >> 4) & 0x03030303u) << (2 * j);
  }
  df_store32(pairs + 4 * lane, up[0]);
  df_store32(pairs + 64 + 4 * lane, up[1]);
}

void df_pack_strip_q6_k(const df_pack_src *src, uint32_t k, uint8_t *dst) {
  const size_t nsb = k / DF_SUPER, used = nsb * (DF_Q6K_BLOCK + DF_HALVES);
  uint8_t *d = dst + nsb * DF_Q6K_BLOCK;
  memset(dst + used, 0, (64 - used % 64) % 64);
  for (size_t sb = 0; sb < nsb; sb++, dst += DF_Q6K_BLOCK, d += DF_HALVES)
    for (uint32_t lane = 0; lane < DF_LANES; lane++) {
      const uint8_t *b = df_pack_block(src, lane, sb);
      uint8_t code[DF_SUPER];
      q6_codes(b, code);
      memcpy(d + 2 * lane, b + 208, 2);
      for (uint32_t s = 0; s < 8; s++) {
        uint8_t *nibs = dst + DF_Q6K_CODES + s * DF_Q6K_SUB;
        dst[32 * s + lane] = b[192 + 2 * s];
        dst[32 * s + 16 + lane] = b[192 + 2 * s + 1];
        q6_split(code + 32 * s, nibs, nibs + DF_NIBS_BLOCK, lane);
      }
    }
}
