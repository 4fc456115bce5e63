/* mm_ref.c - the scalar matmul: the definition that the vector tiers are compared with, bit for bit. */
#include "kernels/ref/mm_ref.h"

#include <math.h>
#include <string.h>

#include "kernels/tables.h"

static int32_t dot16(const uint8_t *code, const int8_t *q) {
  int32_t sum = 0;
  for (int i = 0; i < 16; i++) sum += (int32_t)code[i] * q[i];
  return sum;
}

/* One 32-block of one output and one row. The offsets come with the activations, as in the vector tiers. */
static float block_step(const df_ref_block *b, const df_actq *x, float acc) {
  const int32_t lo = dot16(b->code, x->q), hi = dot16(b->code + 16, x->q + 16);
  if (b->split) {
    acc = fmaf(b->scale[0] * x->scale, (float)(lo + x->off6_lo), acc);
    return fmaf(b->scale[1] * x->scale, (float)(hi + x->off6_hi), acc);
  }
  const int32_t off = b->offset == 128 ? x->off8 : b->offset == 8 ? x->off4 : 0;
  acc = fmaf(b->scale[0] * x->scale, (float)(lo + hi + off), acc);
  return b->has_min ? fmaf(b->min, x->scale_sum, acc) : acc;
}

static void mm_quant(const df_weights *w, uint32_t s0, uint32_t s1, const void *x, uint32_t m, float *out, size_t ld) {
  const df_actq *tile = x;
  for (uint32_t s = s0; s < s1; s++)
    for (uint32_t lane = 0; lane < DF_LANES; lane++) {
      float acc[DF_TILE_ROWS] = {0};
      for (uint32_t kb = 0; kb < w->k / DF_QBLOCK; kb++) {
        df_ref_block b;
        df_ref_block_read(w, s, kb, lane, &b);
        for (uint32_t c = 0; c < m; c++) acc[c] = block_step(&b, &tile[(size_t)kb * m + c], acc[c]);
      }
      for (uint32_t c = 0; c < m; c++) out[c * ld + (size_t)(s - s0) * DF_LANES + lane] = acc[c];
    }
}

static void mm_float(const df_weights *w, uint32_t s0, uint32_t s1, const void *x, uint32_t m, float *out, size_t ld) {
  const float *rows = x;
  for (uint32_t s = s0; s < s1; s++)
    for (uint32_t lane = 0; lane < DF_LANES; lane++) {
      float acc[DF_TILE_ROWS] = {0};
      for (uint32_t i = 0; i < w->k; i++) {
        const float v = df_ref_float(w, s, i, lane);
        for (uint32_t c = 0; c < m; c++) acc[c] = fmaf(v, rows[(size_t)c * w->k + i], acc[c]);
      }
      for (uint32_t c = 0; c < m; c++) out[c * ld + (size_t)(s - s0) * DF_LANES + lane] = acc[c];
    }
}

static void mm_f8(const df_weights *w, uint32_t s0, uint32_t s1, const void *x, uint32_t m, float *out, size_t ld) {
  const float *rows = x;
  for (uint32_t s = s0; s < s1; s++)
    for (uint32_t lane = 0; lane < DF_LANES; lane++)
      for (uint32_t c = 0; c < m; c++) {
        float acc = 0;
        for (uint32_t b = 0; b < w->k / DF_F8_BLOCK; b++) {
          float dot = 0;
          for (uint32_t i = b * DF_F8_BLOCK; i < (b + 1) * DF_F8_BLOCK; i++)
            dot = fmaf(df_ref_float(w, s, i, lane), rows[(size_t)c * w->k + i], dot);
          acc = fmaf(df_ref_f8_scale(w, s, b, lane), dot, acc);
        }
        out[c * ld + (size_t)(s - s0) * DF_LANES + lane] = acc;
      }
}

void df_kernels_mm_init__ref(df_kernels *k) {
  for (int p = 0; p < DF_PACK_COUNT; p++) k->mm[p] = df_pack_wants_q8((df_pack)p) ? mm_quant : mm_float;
  k->mm[DF_PACK_F8] = mm_f8;
  k->unpack_row = df_unpack_row__ref;
}
