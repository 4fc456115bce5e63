/*
 * kernels/x86/mm_sums_avx2.h - what simd/mm_impl.h asks of a tier, on AVX2: integer sums of products of codes and
 * activations.
 *
 * vpmaddubsw adds two products of an unsigned and a signed byte to 16 bits and saturates at 32767; sums of several of
 * them stay exact as long as codes * |q| * 2 * terms <= 32767, with |q| <= 128:
 *   codes to 15: 8 terms (30720), to 31: 4 (31744), to 63: 2 (32256).
 * Byte codes are taken as two nibbles, the upper one's sum shifted afterwards.
 */
#ifndef DF_KERNELS_MM_SUMS_AVX2_H
#define DF_KERNELS_MM_SUMS_AVX2_H

#include "kernels/x86/mm8_avx2.h"

/* 16-bit sums of the code vectors [from, to) with the 4 activations of each. */
DF_INLINE __m256i dot_16(const __m256i w[8], const int8_t *q, const int from, const int to) {
  __m256i sum = _mm256_setzero_si256();
#pragma GCC unroll 8
  for (int j = from; j < to; j++) {
    const __m256i p = _mm256_maddubs_epi16(w[j], _mm256_set1_epi32((int)df_load32(q + 4 * j)));
    sum = j == from ? p : _mm256_add_epi16(sum, p);
  }
  return sum;
}

/* The same in 32 bits, with at most `terms` vectors per 16-bit sum. */
DF_INLINE __m256i dot_32(const __m256i w[8], const int8_t *q, const int from, const int to, const int terms) {
  const __m256i ones = _mm256_set1_epi16(1);
  __m256i sum = _mm256_setzero_si256();
#pragma GCC unroll 4
  for (int j = from; j < to; j += terms) {
    const __m256i p = _mm256_madd_epi16(dot_16(w, q, j, j + terms), ones);
    sum = j == from ? p : _mm256_add_epi32(sum, p);
  }
  return sum;
}

DF_INLINE n8 dot_codes(n8 start, const c8 w[8], const int8_t *q, const int from, const int to, const int max_code) {
  return _mm256_add_epi32(dot_32(w, q, from, to, max_code == 15 ? 8 : max_code == 31 ? 4 : 2), start);
}

/* Lower nibbles for all rows, then upper nibbles. */
DF_INLINE void half_bytes(const uint8_t *p, f8 ws, const df_actq *x, uint32_t m, row_acc *acc, int lane) {
  c8 w[8];
  n8 low[DF_TILE_ROWS];
#pragma GCC unroll 8
  for (int j = 0; j < 8; j++) w[j] = c8_low(c8_load(p + 64 * j));
  for (uint32_t c = 0; c < m; c++) low[c] = dot_codes(n8_set1(x[c].off8), w, x[c].q, 0, 8, 15);
#pragma GCC unroll 8
  for (int j = 0; j < 8; j++) w[j] = c8_high(c8_load(p + 64 * j));
  for (uint32_t c = 0; c < m; c++) {
    const n8 dot = _mm256_add_epi32(low[c], _mm256_slli_epi32(dot_32(w, x[c].q, 0, 8, 8), 4));
    f8_store(acc[c] + lane, scaled_add(ws, &x[c], dot, f8_load(acc[c] + lane)));
  }
}

#endif
