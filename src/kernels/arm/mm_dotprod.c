/*
 * mm_dotprod.c - quantised matmuls for processors with byte dot products (Armv8.2-A and later): sdot adds four products
 * of signed bytes to 32 bits, exactly. Codes below 128 are signed bytes as they are; byte codes lose their offset.
 */
#include "kernels/arm/mm8_neon.h"

/* Four code vectors with the 16 activations in x. b: which half of a code vector. */
DF_INLINE int32x4_t dot_16(int32x4_t s, const c8 w[4], int8x16_t x, const int b) {
  s = vdotq_laneq_s32(s, vreinterpretq_s8_u8(b ? w[0].b : w[0].a), x, 0);
  s = vdotq_laneq_s32(s, vreinterpretq_s8_u8(b ? w[1].b : w[1].a), x, 1);
  s = vdotq_laneq_s32(s, vreinterpretq_s8_u8(b ? w[2].b : w[2].a), x, 2);
  return vdotq_laneq_s32(s, vreinterpretq_s8_u8(b ? w[3].b : w[3].a), x, 3);
}

/* from and to are multiples of 4. */
DF_INLINE n8 dot_codes(n8 s, const c8 w[8], const int8_t *q, const int from, const int to, const int max_code) {
  (void)max_code;
#pragma GCC unroll 2
  for (int j = from; j < to; j += 4) {
    const int8x16_t x = vld1q_s8(q + 4 * j);
    s.a = dot_16(s.a, w + j, x, 0);
    s.b = dot_16(s.b, w + j, x, 1);
  }
  return s;
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

#include "kernels/simd/mm_table_impl.h"

void df_kernels_mm_init__dotprod(df_kernels *k) { mm_quant_table(k); }
