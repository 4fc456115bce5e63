/* pack.c - packing of file rows into strips: plain floats and the 32-value blocks (K blocks: pack_kquant.c). */
#include "kernels/pack.h"

#include <string.h>

#include "base/size.h"
#include "kernels/blocks.h"
#include "kernels/layout.h"

df_pack df_pack_of(df_dtype type) {
  switch (type) {
    case DF_F32: return DF_PACK_F32;
    case DF_F16: return DF_PACK_F16;
    case DF_BF16: return DF_PACK_BF16;
    case DF_Q8_0: return DF_PACK_Q8;
    case DF_Q5_0: return DF_PACK_Q8; /* has no min; as scale and min, a zero of a negative scale would lose its sign */
    case DF_Q4_0: return DF_PACK_Q4;
    case DF_Q4_1: return DF_PACK_Q4M;
    case DF_Q5_1: return DF_PACK_Q8M;
    case DF_Q5_K: return DF_PACK_Q8M;
    case DF_Q4_K: return DF_PACK_Q4K;
    case DF_Q6_K: return DF_PACK_Q6K;
    case DF_F8: return DF_PACK_F8;
  }
  return DF_PACK_COUNT;
}

bool df_pack_strip_bytes(df_pack pack, uint32_t k, size_t *out) {
  static const struct {
    uint32_t multiple; /* of k */
    uint32_t bytes;    /* per that many k */
  } k_forms[DF_PACK_COUNT] = {
      [DF_PACK_F32] = {1, 64},
      [DF_PACK_F16] = {1, 32},
      [DF_PACK_BF16] = {1, 32},
      [DF_PACK_F8] = {DF_F8_BLOCK, DF_F8_STEP},
      [DF_PACK_Q8] = {DF_QBLOCK, DF_BYTES_BLOCK + DF_HALVES},
      [DF_PACK_Q4] = {DF_QBLOCK, DF_NIBS_BLOCK + DF_HALVES},
      [DF_PACK_Q4M] = {DF_QBLOCK, DF_Q4M_BLOCK},
      [DF_PACK_Q8M] = {DF_QBLOCK, DF_Q8M_BLOCK},
      [DF_PACK_Q4K] = {DF_SUPER, DF_Q4K_BLOCK},
      [DF_PACK_Q6K] = {DF_SUPER, DF_Q6K_BLOCK + DF_HALVES},
  };
  if ((int)pack < 0 || pack >= DF_PACK_COUNT || k == 0 || k % k_forms[pack].multiple != 0) return false;
  size_t bytes;
  if (!df_mul_size(k / k_forms[pack].multiple, k_forms[pack].bytes, &bytes) || bytes > SIZE_MAX - 63) return false;
  *out = df_round_up(bytes, 64);
  return true;
}

/* Zeroes what rounding the strip up to 64 added, so that packed weights are a function of the file. */
static void pad_zero(uint8_t *dst, size_t used) { memset(dst + used, 0, df_round_up(used, 64) - used); }

static void strip_f32(const df_pack_src *src, uint32_t k, uint8_t *dst) {
  for (size_t i = 0; i < k; i++, dst += 64)
    for (uint32_t lane = 0; lane < DF_LANES; lane++) memcpy(dst + 4 * lane, df_pack_block(src, lane, i), 4);
}

static void strip_16bit(const df_pack_src *src, uint32_t k, uint8_t *dst) {
  uint8_t *p = dst;
  for (size_t i = 0; i < k; i++, p += 32)
    for (uint32_t lane = 0; lane < DF_LANES; lane++) memcpy(p + 2 * lane, df_pack_block(src, lane, i), 2);
  pad_zero(dst, (size_t)k * 32);
}

static void strip_f8(const df_pack_src *src, uint32_t k, uint8_t *dst) {
  for (size_t b = 0; b < k / DF_F8_BLOCK; b++, dst += DF_F8_STEP)
    for (uint32_t lane = 0; lane < DF_LANES; lane++) {
      const uint8_t *from = df_pack_block(src, lane, b);
      memcpy(dst + DF_F8_SCALES + 4 * lane, from, 4);
      for (uint32_t j = 0; j < DF_F8_BLOCK / 4; j++) memcpy(dst + 64 * j + 4 * lane, from + 4 + 4 * j, 4);
    }
}

static void strip_q8_0(const df_pack_src *src, uint32_t k, uint8_t *dst) {
  const size_t nkb = k / DF_QBLOCK;
  uint8_t *codes = dst, *scales = dst + nkb * DF_BYTES_BLOCK;
  for (size_t kb = 0; kb < nkb; kb++, codes += DF_BYTES_BLOCK, scales += DF_HALVES)
    for (uint32_t lane = 0; lane < DF_LANES; lane++) {
      const uint8_t *b = df_pack_block(src, lane, kb);
      memcpy(scales + 2 * lane, b, 2);
      for (uint32_t j = 0; j < 8; j++) df_store32(codes + 64 * j + 4 * lane, df_load32(b + 2 + 4 * j) ^ 0x80808080u);
    }
  pad_zero(dst, nkb * (DF_BYTES_BLOCK + DF_HALVES));
}

/* 16 + 16 nibbles and 32 fifth bits of one block to lane `lane` of 8 rows of byte codes; add is put on each byte. */
static void expand5(const uint8_t *nibs, uint32_t fifth, uint32_t add, uint8_t *codes, uint32_t lane) {
  for (uint32_t j = 0; j < 4; j++) {
    const uint32_t v = df_load32(nibs + 4 * j);
    const uint32_t lo = (v & 0x0F0F0F0Fu) | df_spread4(fifth >> (4 * j)) << 4;
    const uint32_t hi = ((v >> 4) & 0x0F0F0F0Fu) | df_spread4(fifth >> (16 + 4 * j)) << 4;
    df_store32(codes + 64 * j + 4 * lane, lo + add);
    df_store32(codes + 64 * (j + 4) + 4 * lane, hi + add);
  }
}

static void strip_q5_0(const df_pack_src *src, uint32_t k, uint8_t *dst) {
  const size_t nkb = k / DF_QBLOCK;
  uint8_t *codes = dst, *scales = dst + nkb * DF_BYTES_BLOCK;
  for (size_t kb = 0; kb < nkb; kb++, codes += DF_BYTES_BLOCK, scales += DF_HALVES)
    for (uint32_t lane = 0; lane < DF_LANES; lane++) {
      const uint8_t *b = df_pack_block(src, lane, kb);
      memcpy(scales + 2 * lane, b, 2);
      expand5(b + 6, df_load32(b + 2), 0x70707070u, codes, lane); /* code - 16 + 128 */
    }
  pad_zero(dst, nkb * (DF_BYTES_BLOCK + DF_HALVES));
}

static void strip_q5_1(const df_pack_src *src, uint32_t k, uint8_t *dst) {
  for (size_t kb = 0; kb < k / DF_QBLOCK; kb++, dst += DF_Q8M_BLOCK)
    for (uint32_t lane = 0; lane < DF_LANES; lane++) {
      const uint8_t *b = df_pack_block(src, lane, kb);
      expand5(b + 8, df_load32(b + 4), 0, dst, lane);
      df_store_f32(dst + DF_Q8M_SCALES + 4 * lane, df_load_half(b, 0));
      df_store_f32(dst + DF_Q8M_SCALES + 64 + 4 * lane, df_load_half(b, 1));
    }
}

static void strip_q4_0(const df_pack_src *src, uint32_t k, uint8_t *dst) {
  const size_t nkb = k / DF_QBLOCK;
  uint8_t *nibs = dst, *scales = dst + nkb * DF_NIBS_BLOCK;
  for (size_t kb = 0; kb < nkb; kb++, nibs += DF_NIBS_BLOCK, scales += DF_HALVES)
    for (uint32_t lane = 0; lane < DF_LANES; lane++) {
      const uint8_t *b = df_pack_block(src, lane, kb);
      memcpy(scales + 2 * lane, b, 2);
      for (uint32_t j = 0; j < 4; j++) memcpy(nibs + 64 * j + 4 * lane, b + 2 + 4 * j, 4);
    }
  pad_zero(dst, nkb * (DF_NIBS_BLOCK + DF_HALVES));
}

static void strip_q4_1(const df_pack_src *src, uint32_t k, uint8_t *dst) {
  for (size_t kb = 0; kb < k / DF_QBLOCK; kb++, dst += DF_Q4M_BLOCK)
    for (uint32_t lane = 0; lane < DF_LANES; lane++) {
      const uint8_t *b = df_pack_block(src, lane, kb);
      memcpy(dst + DF_Q4M_SCALES + 2 * lane, b, 2);
      memcpy(dst + DF_Q4M_SCALES + DF_HALVES + 2 * lane, b + 2, 2);
      for (uint32_t j = 0; j < 4; j++) memcpy(dst + 64 * j + 4 * lane, b + 4 + 4 * j, 4);
    }
}

typedef void (*strip_fn)(const df_pack_src *src, uint32_t k, uint8_t *dst);

static strip_fn strip_of(df_dtype type) {
  switch (type) {
    case DF_F32: return strip_f32;
    case DF_F16:
    case DF_BF16: return strip_16bit;
    case DF_Q8_0: return strip_q8_0;
    case DF_Q5_0: return strip_q5_0;
    case DF_Q5_1: return strip_q5_1;
    case DF_Q4_0: return strip_q4_0;
    case DF_Q4_1: return strip_q4_1;
    case DF_Q4_K: return df_pack_strip_q4_k;
    case DF_Q5_K: return df_pack_strip_q5_k;
    case DF_Q6_K: return df_pack_strip_q6_k;
    case DF_F8: return strip_f8;
  }
  return NULL;
}

void df_pack_strips(const df_weights *w, df_dtype type, const void *src, size_t row_bytes, const uint32_t *row_of,
                    uint32_t s0, uint32_t s1) {
  static const uint8_t k_zeros[256]; /* larger than any block */
  const strip_fn pack = strip_of(type);
  uint32_t values, bytes;
  if (!pack || !df_dtype_block((int)type, &values, &bytes)) return;
  for (uint32_t s = s0; s < s1; s++) {
    df_pack_src from;
    for (uint32_t lane = 0; lane < DF_LANES; lane++) {
      const uint32_t out = s * DF_LANES + lane;
      const bool there = out < w->n;
      const size_t row = there ? (row_of ? row_of[out] : out) : 0;
      from.row[lane] = there ? (const uint8_t *)src + row * row_bytes : k_zeros;
      from.step[lane] = there ? bytes : 0;
    }
    pack(&from, w->k, w->data + (size_t)s * w->strip_bytes);
  }
}
