/*
 * mm_neon.c - quantised matmuls for Armv8-A without dot products: bytes are multiplied to 16 bits and summed there as
 * long as the sums stay exact, with |q| <= 127 as the quantiser gives:
 *   codes to 31: 8 terms (31496), to 63: 4 (32004), signed bytes: 2 (32512).
 */
#include "kernels/arm/mm8_neon.h"

/* Four outputs: code vectors [from, to) with 4 activations each, `terms` products in 16 bits. b: which half of a code
 * vector. */
DF_INLINE int32x4_t dot_4(int32x4_t start, const c8 w[8], const int8_t *q, const int from, const int to,
                          const int terms, const int b) {
  int32x4_t low = vdupq_n_s32(0), high = vdupq_n_s32(0);
#pragma GCC unroll 4
  for (int j0 = from; j0 < to; j0 += terms) {
    int16x8_t l = vdupq_n_s16(0), h = vdupq_n_s16(0);
#pragma GCC unroll 8
    for (int j = j0; j < j0 + terms; j++) {
      const int8x16_t x = vreinterpretq_s8_u32(vdupq_n_u32(df_load32(q + 4 * j)));
      const int8x16_t c = vreinterpretq_s8_u8(b ? w[j].b : w[j].a);
      l = vmlal_s8(l, vget_low_s8(c), vget_low_s8(x));
      h = vmlal_high_s8(h, c, x);
    }
    low = vpadalq_s16(low, l);
    high = vpadalq_s16(high, h);
  }
  return vaddq_s32(start, vpaddq_s32(low, high));
}

DF_INLINE n8 dot_codes(n8 start, const c8 w[8], const int8_t *q, const int from, const int to, const int max_code) {
  const int terms = max_code <= 31 ? 8 : max_code == 63 ? 4 : 2;
  n8 sum = {dot_4(start.a, w, q, from, to, terms, 0), dot_4(start.b, w, q, from, to, terms, 1)};
  return sum;
}

DF_INLINE void half_bytes(const uint8_t *p, f8 ws, const df_actq *x, uint32_t m, row_acc *acc, int lane) {
  c8 w[8];
#pragma GCC unroll 8
  for (int j = 0; j < 8; j++) w[j] = c8_signed(c8_load(p + 64 * j));
  for (uint32_t c = 0; c < m; c++) {
    const n8 dot = dot_codes(n8_set1(0), w, x[c].q, 0, 8, 128);
    f8_store(acc[c] + lane, scaled_add(ws, &x[c], dot, f8_load(acc[c] + lane)));
  }
}

#include "kernels/arm/mm_neon.h"
#include "kernels/simd/mm_table_impl.h"

void df_kernels_mm_init__neon(df_kernels *k) {
  mm_quant_table(k);
  df_kernels_mm_float_init__neon(k);
}
