/*
 * mm_avxvnni.c - quantised matmuls for AVX2 processors with 256-bit byte dot products (AVX-VNNI). vpdpbusd adds four
 * products of an unsigned and a signed byte to 32 bits and never rounds or saturates, so any codes can be taken whole.
 */
#include "kernels/x86/mm8_avx2.h"

DF_INLINE n8 dot_codes(n8 sum, const c8 w[8], const int8_t *q, const int from, const int to, const int max_code) {
  (void)max_code;
#pragma GCC unroll 8
  for (int j = from; j < to; j++) {
    sum = _mm256_dpbusd_avx_epi32(sum, w[j], _mm256_set1_epi32((int)df_load32(q + 4 * j)));
  }
  return sum;
}

DF_INLINE void half_bytes(const uint8_t *p, f8 ws, const df_actq *x, uint32_t m, row_acc *acc, int lane) {
  c8 w[8];
#pragma GCC unroll 8
  for (int j = 0; j < 8; j++) w[j] = c8_load(p + 64 * j);
  for (uint32_t c = 0; c < m; c++) {
    const n8 dot = dot_codes(n8_set1(x[c].off8), w, x[c].q, 0, 8, 255);
    f8_store(acc[c] + lane, scaled_add(ws, &x[c], dot, f8_load(acc[c] + lane)));
  }
}

#include "kernels/simd/mm_table_impl.h"

void df_kernels_mm_init__avxvnni(df_kernels *k) { mm_quant_table(k); }
