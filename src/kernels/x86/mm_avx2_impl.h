/*
 * x86/mm_avx2_impl.h - quantised matmuls on 256-bit vectors, written once for avx2 and avxvnni. A tier's file includes
 * mm_avx2.h, defines
 *   dot_codes     start + the dot product of codes of at most max_code with 4 activations each, vectors [from, to)
 *   half_bytes    half a block of byte codes for all rows
 * and then includes this file. All functions are static.
 *
 * A block is worked through in two halves of 8 lanes: 8 vectors of codes stay in registers while all rows pass by,
 * the rows' accumulators live on the stack.
 */
#ifndef DF_KERNELS_MM_AVX2_IMPL_H
#define DF_KERNELS_MM_AVX2_IMPL_H

#include "kernels/x86/mm_avx2.h"

DF_INLINE void load_nibs(const uint8_t *p, __m256i w[8]) {
  const __m256i mask = _mm256_set1_epi8(15);
#pragma GCC unroll 4
  for (int j = 0; j < 4; j++) {
    const __m256i v = df_load_half_row(p + 64 * j);
    w[j] = _mm256_and_si256(v, mask);
    w[4 + j] = _mm256_and_si256(_mm256_srli_epi16(v, 4), mask);
  }
}

DF_INLINE void load_pairs(const uint8_t *p, __m256i w[8]) {
  const __m256i mask = _mm256_set1_epi8(0x30);
#pragma GCC unroll 2
  for (int h = 0; h < 2; h++) {
    const __m256i v = df_load_half_row(p + 64 * h);
    const __m256i at[4] = {_mm256_slli_epi16(v, 4), _mm256_slli_epi16(v, 2), v, _mm256_srli_epi16(v, 2)};
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) w[4 * h + i] = _mm256_or_si256(w[4 * h + i], _mm256_and_si256(at[i], mask));
  }
}

/* Half a block of nibbles (max_code 15) or 5-bit byte codes (31) for all rows. */
DF_INLINE void half_small(const __m256i w[8], const int max_code, __m256 ws, __m256 wm, bool has_min, bool off4,
                          const df_actq *x, uint32_t m, row_acc *acc, int lane) {
  for (uint32_t c = 0; c < m; c++) {
    const __m256i start = off4 ? _mm256_set1_epi32(x[c].off4) : _mm256_setzero_si256();
    const __m256i dot = dot_codes(start, w, x[c].q, 0, 8, max_code);
    __m256 v = scaled_add(ws, &x[c], dot, _mm256_load_ps(acc[c] + lane));
    if (has_min) v = _mm256_fmadd_ps(wm, _mm256_set1_ps(x[c].scale_sum), v);
    _mm256_store_ps(acc[c] + lane, v);
  }
}

/* Half the lanes of a block of 6-bit codes with one scale for each 16 k. */
DF_INLINE void half_six(const __m256i w[8], __m256 ws0, __m256 ws1, const df_actq *x, uint32_t m, row_acc *acc,
                        int lane) {
  for (uint32_t c = 0; c < m; c++) {
    const __m256i lo = dot_codes(_mm256_set1_epi32(x[c].off6_lo), w, x[c].q, 0, 4, 63);
    const __m256i hi = dot_codes(_mm256_set1_epi32(x[c].off6_hi), w, x[c].q, 4, 8, 63);
    const __m256 v = scaled_add(ws0, &x[c], lo, _mm256_load_ps(acc[c] + lane));
    _mm256_store_ps(acc[c] + lane, scaled_add(ws1, &x[c], hi, v));
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
    half_bytes(codes + 4 * lane, df_load_8_halves(scales + 2 * lane), x, m, acc, lane);
}

DF_INLINE void block_q4(const uint8_t *nibs, const uint8_t *scales, const df_actq *x, uint32_t m, row_acc *acc) {
  ahead_rows(nibs, 4);
  df_ahead(scales);
  for (int lane = 0; lane < DF_LANES; lane += 8) {
    __m256i w[8];
    load_nibs(nibs + 4 * lane, w);
    half_small(w, 15, df_load_8_halves(scales + 2 * lane), _mm256_setzero_ps(), false, true, x, m, acc, lane);
  }
}

DF_INLINE void block_q4m(const uint8_t *p, const df_actq *x, uint32_t m, row_acc *acc) {
  ahead_rows(p, 5);
  for (int lane = 0; lane < DF_LANES; lane += 8) {
    __m256i w[8];
    load_nibs(p + 4 * lane, w);
    const __m256 ws = df_load_8_halves(p + DF_Q4M_SCALES + 2 * lane);
    const __m256 wm = df_load_8_halves(p + DF_Q4M_SCALES + DF_HALVES + 2 * lane);
    half_small(w, 15, ws, wm, true, false, x, m, acc, lane);
  }
}

DF_INLINE void block_q8m(const uint8_t *p, const df_actq *x, uint32_t m, row_acc *acc) {
  ahead_rows(p, 10);
  for (int lane = 0; lane < DF_LANES; lane += 8) {
    __m256i w[8];
#pragma GCC unroll 8
    for (int j = 0; j < 8; j++) w[j] = df_load_half_row(p + 64 * j + 4 * lane);
    const float *scales = (const float *)(const void *)(p + DF_Q8M_SCALES);
    half_small(w, 31, _mm256_load_ps(scales + lane), _mm256_load_ps(scales + 16 + lane), true, false, x, m, acc, lane);
  }
}

/* 8 unsigned or signed bytes to floats. */
DF_INLINE __m256 u8_floats(const uint8_t *p) {
  return _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)(const void *)p)));
}
DF_INLINE __m256 i8_floats(const uint8_t *p) {
  return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)(const void *)p)));
}

DF_INLINE void block_q4k(const uint8_t *super, uint32_t b, const df_actq *x, uint32_t m, row_acc *acc) {
  const uint8_t *scales = super + DF_Q4K_SCALES + 32 * b, *nibs = super + DF_Q4K_NIBS + DF_NIBS_BLOCK * b;
  ahead_rows(nibs, 4);
  df_ahead(scales);
  for (int lane = 0; lane < DF_LANES; lane += 8) {
    __m256i w[8];
    load_nibs(nibs + 4 * lane, w);
    const __m256 dmin = _mm256_xor_ps(_mm256_set1_ps(-0.0f), df_load_8_halves(super + DF_HALVES + 2 * lane));
    const __m256 ws = _mm256_mul_ps(df_load_8_halves(super + 2 * lane), u8_floats(scales + lane));
    const __m256 wm = _mm256_mul_ps(dmin, u8_floats(scales + 16 + lane));
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
    __m256i w[8];
    load_nibs(nibs + 4 * lane, w);
    load_pairs(nibs + DF_NIBS_BLOCK + 4 * lane, w);
    const __m256 d = df_load_8_halves(d_at + 2 * lane);
    half_six(w, _mm256_mul_ps(d, i8_floats(scales + lane)), _mm256_mul_ps(d, i8_floats(scales + 16 + lane)), x, m, acc,
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

DF_INLINE void strips(const df_pack form, const df_weights *w, uint32_t s0, uint32_t s1, const void *x, uint32_t m,
                      float *out, size_t ld) {
  for (uint32_t s = s0; s < s1; s++) {
    _Alignas(64) row_acc acc[DF_TILE_ROWS] = {{0}};
    strip(form, w->data + s * w->strip_bytes, w->k, x, m, acc);
    for (uint32_t c = 0; c < m; c++) memcpy(out + c * ld + (size_t)(s - s0) * DF_LANES, acc[c], sizeof acc[c]);
  }
}

#define DEFINE(name, form)                                                                                            \
  static void name(const df_weights *w, uint32_t s0, uint32_t s1, const void *x, uint32_t m, float *out, size_t ld) { \
    if (m == 1)                                                                                                       \
      strips(form, w, s0, s1, x, 1, out, ld);                                                                         \
    else                                                                                                              \
      strips(form, w, s0, s1, x, m, out, ld);                                                                         \
  }

DEFINE(q8, DF_PACK_Q8)
DEFINE(q4, DF_PACK_Q4)
DEFINE(q4m, DF_PACK_Q4M)
DEFINE(q8m, DF_PACK_Q8M)
DEFINE(q4k, DF_PACK_Q4K)
DEFINE(q6k, DF_PACK_Q6K)

DF_INLINE void mm_quant_table(df_kernels *k) {
  k->mm[DF_PACK_Q8] = q8;
  k->mm[DF_PACK_Q4] = q4;
  k->mm[DF_PACK_Q4M] = q4m;
  k->mm[DF_PACK_Q8M] = q8m;
  k->mm[DF_PACK_Q4K] = q4k;
  k->mm[DF_PACK_Q6K] = q6k;
}

#endif
