/*
 * kernels/simd/mm_impl.h - quantised matmuls on halves of 8 outputs, written once for the tiers whose vectors do not
 * hold a strip: avx2, avxvnni, neon, dotprod. A tier's file includes its mm8_*.h, defines
 *   dot_codes     start + the dot products of code vectors [from, to) with the 4 activations of each; no code is
 *                 larger than max_code
 *   half_bytes    half a block of byte codes for all rows
 * and then includes this file and mm_table_impl.h. All functions are static.
 *
 * A block is worked through in two halves: 8 vectors of codes stay in registers while all rows pass by, the rows'
 * accumulators live on the stack. Integer sums are exact, so how a tier forms them does not show in the result.
 */
#ifndef DF_KERNELS_MM_IMPL_H
#define DF_KERNELS_MM_IMPL_H

#include "kernels/blocks.h"
#include "kernels/layout.h"
#include "kernels/tables.h"

DF_INLINE void load_nibs(const uint8_t *p, c8 w[8]) {
#pragma GCC unroll 4
  for (int j = 0; j < 4; j++) {
    const c8 v = c8_load(p + 64 * j);
    w[j] = c8_low(v);
    w[4 + j] = c8_high(v);
  }
}

/* Puts the upper two bits (pairs) on the nibbles. */
DF_INLINE void load_pairs(const uint8_t *p, c8 w[8]) {
#pragma GCC unroll 2
  for (int h = 0; h < 2; h++) {
    const c8 v = c8_load(p + 64 * h);
    w[4 * h] = c8_with_pair(w[4 * h], v, 0);
    w[4 * h + 1] = c8_with_pair(w[4 * h + 1], v, 1);
    w[4 * h + 2] = c8_with_pair(w[4 * h + 2], v, 2);
    w[4 * h + 3] = c8_with_pair(w[4 * h + 3], v, 3);
  }
}

/* Half a block of nibbles (max_code 15) or 5-bit byte codes (31) for all rows. */
DF_INLINE void half_small(const c8 w[8], const int max_code, f8 ws, f8 wm, bool has_min, bool off4, const df_actq *x,
                          uint32_t m, row_acc *acc, int lane) {
  for (uint32_t c = 0; c < m; c++) {
    const n8 start = off4 ? n8_set1(x[c].off4) : n8_set1(0);
    const n8 dot = dot_codes(start, w, x[c].q, 0, 8, max_code);
    f8 v = scaled_add(ws, &x[c], dot, f8_load(acc[c] + lane));
    if (has_min) v = f8_fma1(wm, x[c].scale_sum, v);
    f8_store(acc[c] + lane, v);
  }
}

/* Half the lanes of a block of 6-bit codes with one scale for each 16 k. */
DF_INLINE void half_six(const c8 w[8], f8 ws0, f8 ws1, const df_actq *x, uint32_t m, row_acc *acc, int lane) {
  for (uint32_t c = 0; c < m; c++) {
    const n8 lo = dot_codes(n8_set1(x[c].off6_lo), w, x[c].q, 0, 4, 63);
    const n8 hi = dot_codes(n8_set1(x[c].off6_hi), w, x[c].q, 4, 8, 63);
    const f8 v = scaled_add(ws0, &x[c], lo, f8_load(acc[c] + lane));
    f8_store(acc[c] + lane, scaled_add(ws1, &x[c], hi, v));
  }
}

DF_INLINE void ahead_rows(const uint8_t *p, const int rows) {
#pragma GCC unroll 10
  for (int j = 0; j < rows; j++) df_ahead(p + 64 * j);
}

DF_INLINE void block_q8(const uint8_t *codes, const uint8_t *scales, const df_actq *x, uint32_t m, row_acc *acc) {
  ahead_rows(codes, 8);
  df_ahead(scales);
  for (int lane = 0; lane < DF_LANES; lane += 8)
    half_bytes(codes + 4 * lane, f8_halves(scales + 2 * lane), x, m, acc, lane);
}

DF_INLINE void block_q4(const uint8_t *nibs, const uint8_t *scales, const df_actq *x, uint32_t m, row_acc *acc) {
  ahead_rows(nibs, 4);
  df_ahead(scales);
  for (int lane = 0; lane < DF_LANES; lane += 8) {
    c8 w[8];
    load_nibs(nibs + 4 * lane, w);
    half_small(w, 15, f8_halves(scales + 2 * lane), f8_zero(), false, true, x, m, acc, lane);
  }
}

DF_INLINE void block_q4m(const uint8_t *p, const df_actq *x, uint32_t m, row_acc *acc) {
  ahead_rows(p, 5);
  for (int lane = 0; lane < DF_LANES; lane += 8) {
    c8 w[8];
    load_nibs(p + 4 * lane, w);
    const f8 ws = f8_halves(p + DF_Q4M_SCALES + 2 * lane);
    const f8 wm = f8_halves(p + DF_Q4M_SCALES + DF_HALVES + 2 * lane);
    half_small(w, 15, ws, wm, true, false, x, m, acc, lane);
  }
}

DF_INLINE void block_q8m(const uint8_t *p, const df_actq *x, uint32_t m, row_acc *acc) {
  ahead_rows(p, 10);
  for (int lane = 0; lane < DF_LANES; lane += 8) {
    c8 w[8];
#pragma GCC unroll 8
    for (int j = 0; j < 8; j++) w[j] = c8_load(p + 64 * j + 4 * lane);
    const float *scales = (const float *)(const void *)(p + DF_Q8M_SCALES);
    half_small(w, 31, f8_load(scales + lane), f8_load(scales + 16 + lane), true, false, x, m, acc, lane);
  }
}

DF_INLINE void block_q4k(const uint8_t *super, uint32_t b, const df_actq *x, uint32_t m, row_acc *acc) {
  const uint8_t *scales = super + DF_Q4K_SCALES + 32 * b, *nibs = super + DF_Q4K_NIBS + DF_NIBS_BLOCK * b;
  ahead_rows(nibs, 4);
  df_ahead(scales);
  for (int lane = 0; lane < DF_LANES; lane += 8) {
    c8 w[8];
    load_nibs(nibs + 4 * lane, w);
    const f8 dmin = f8_neg(f8_halves(super + DF_HALVES + 2 * lane));
    const f8 ws = f8_mul(f8_halves(super + 2 * lane), f8_bytes(scales + lane));
    const f8 wm = f8_mul(dmin, f8_bytes(scales + 16 + lane));
    half_small(w, 15, ws, wm, true, false, x, m, acc, lane);
  }
}

DF_INLINE void block_q6k(const uint8_t *super, const uint8_t *d_at, uint32_t b, const df_actq *x, uint32_t m,
                         row_acc *acc) {
  const uint8_t *scales = super + 32 * b, *nibs = super + DF_Q6K_CODES + DF_Q6K_SUB * b;
  ahead_rows(nibs, 6);
  df_ahead(scales);
  df_ahead(d_at);
  for (int lane = 0; lane < DF_LANES; lane += 8) {
    c8 w[8];
    load_nibs(nibs + 4 * lane, w);
    load_pairs(nibs + DF_NIBS_BLOCK + 4 * lane, w);
    const f8 d = f8_halves(d_at + 2 * lane);
    half_six(w, f8_mul(d, f8_signed_bytes(scales + lane)), f8_mul(d, f8_signed_bytes(scales + 16 + lane)), x, m, acc,
             lane);
  }
}

/* One strip; the form and, where it is 1, the number of rows are constants of the caller. */
DF_INLINE void strip(const df_pack form, const uint8_t *p, uint32_t k, const df_actq *x, uint32_t m, row_acc *acc) {
  const size_t nkb = k / DF_QBLOCK, nsb = k / DF_SUPER;
  for (size_t kb = 0; kb < nkb; kb++, x += m) {
    const size_t sb = kb / 8;
    const uint32_t b = kb % 8;
    switch (form) {
      case DF_PACK_Q8: block_q8(p + kb * DF_BYTES_BLOCK, p + nkb * DF_BYTES_BLOCK + kb * DF_HALVES, x, m, acc); break;
      case DF_PACK_Q4: block_q4(p + kb * DF_NIBS_BLOCK, p + nkb * DF_NIBS_BLOCK + kb * DF_HALVES, x, m, acc); break;
      case DF_PACK_Q4M: block_q4m(p + kb * DF_Q4M_BLOCK, x, m, acc); break;
      case DF_PACK_Q8M: block_q8m(p + kb * DF_Q8M_BLOCK, x, m, acc); break;
      case DF_PACK_Q4K: block_q4k(p + sb * DF_Q4K_BLOCK, b, x, m, acc); break;
      default: block_q6k(p + sb * DF_Q6K_BLOCK, p + nsb * DF_Q6K_BLOCK + sb * DF_HALVES, b, x, m, acc); break;
    }
  }
}

#endif
