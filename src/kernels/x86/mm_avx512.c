/* mm_avx512.c - quantised matmuls for AVX-512 with VNNI. */
#include "kernels/x86/mm_avx512.h"

enum {
  GROUP = 8,
  SPLIT_GROUP = 4
}; /* rows whose integer dot products run side by side: hides the latency of vpdpbusd */

typedef enum correction { OFF_NONE, OFF_4, OFF_8 } correction;

DF_INLINE __m512i dot_start(const df_actq *x, correction off) {
  if (off == OFF_4) return df_splat_i32(&x->off4);
  if (off == OFF_8) return df_splat_i32(&x->off8);
  return _mm512_setzero_si512();
}

DF_INLINE __m512 scaled_add(__m512 ws, const df_actq *x, __m512i dot, __m512 acc) {
  return _mm512_fmadd_ps(_mm512_mul_ps(ws, _mm512_set1_ps(x->scale)), _mm512_cvtepi32_ps(dot), acc);
}

/* One 32-block for all M rows: acc[c] = fma(ws * xs, dot, acc[c]), then the min's share. */
DF_INLINE void block_rows(const __m512i w[8], __m512 ws, __m512 wm, bool has_min, correction off, const df_actq *x,
                          const uint32_t m, __m512 acc[DF_TILE_ROWS]) {
#pragma GCC unroll 8
  for (uint32_t c0 = 0; c0 < m; c0 += GROUP) {
    __m512i d[GROUP];
#pragma GCC unroll 8
    for (uint32_t i = 0; i < GROUP; i++) d[i] = c0 + i < m ? dot_start(x + c0 + i, off) : _mm512_setzero_si512();
#pragma GCC unroll 8
    for (uint32_t j = 0; j < 8; j++)
#pragma GCC unroll 8
      for (uint32_t i = 0; i < GROUP; i++)
        if (c0 + i < m) d[i] = _mm512_dpbusd_epi32(d[i], w[j], df_splat_i32(x[c0 + i].q + 4 * j));
#pragma GCC unroll 8
    for (uint32_t i = 0; i < GROUP; i++)
      if (c0 + i < m) {
        const df_actq *b = x + c0 + i;
        acc[c0 + i] = scaled_add(ws, b, d[i], acc[c0 + i]);
        if (has_min) acc[c0 + i] = _mm512_fmadd_ps(wm, _mm512_set1_ps(b->scale_sum), acc[c0 + i]);
      }
  }
}

/* The same with a scale for each half of the block. */
DF_INLINE void block_rows_split(const __m512i w[8], __m512 ws0, __m512 ws1, const df_actq *x, const uint32_t m,
                                __m512 acc[DF_TILE_ROWS]) {
#pragma GCC unroll 8
  for (uint32_t c0 = 0; c0 < m; c0 += SPLIT_GROUP) {
    __m512i d[SPLIT_GROUP][2];
#pragma GCC unroll 4
    for (uint32_t i = 0; i < SPLIT_GROUP; i++) {
      d[i][0] = c0 + i < m ? df_splat_i32(&x[c0 + i].off6_lo) : _mm512_setzero_si512();
      d[i][1] = c0 + i < m ? df_splat_i32(&x[c0 + i].off6_hi) : _mm512_setzero_si512();
    }
#pragma GCC unroll 4
    for (uint32_t j = 0; j < 4; j++)
#pragma GCC unroll 4
      for (uint32_t i = 0; i < SPLIT_GROUP; i++)
        if (c0 + i < m) {
          d[i][0] = _mm512_dpbusd_epi32(d[i][0], w[j], df_splat_i32(x[c0 + i].q + 4 * j));
          d[i][1] = _mm512_dpbusd_epi32(d[i][1], w[4 + j], df_splat_i32(x[c0 + i].q + 16 + 4 * j));
        }
#pragma GCC unroll 4
    for (uint32_t i = 0; i < SPLIT_GROUP; i++)
      if (c0 + i < m) {
        acc[c0 + i] = scaled_add(ws0, x + c0 + i, d[i][0], acc[c0 + i]);
        acc[c0 + i] = scaled_add(ws1, x + c0 + i, d[i][1], acc[c0 + i]);
      }
  }
}

DF_INLINE void load_bytes(const uint8_t *p, __m512i w[8]) {
#pragma GCC unroll 8
  for (int j = 0; j < 8; j++) w[j] = df_load_ahead(p + 64 * j);
}

DF_INLINE void load_nibs(const uint8_t *p, __m512i w[8]) {
#pragma GCC unroll 4
  for (int j = 0; j < 4; j++) {
    const __m512i v = df_load_ahead(p + 64 * j);
    w[j] = df_low_nibs(v);
    w[4 + j] = df_high_nibs(v);
  }
}

/* Puts the upper two bits (pairs) on the nibbles. */
DF_INLINE void load_pairs(const uint8_t *p, __m512i w[8]) {
  const __m512i mask = _mm512_set1_epi8(0x30);
#pragma GCC unroll 2
  for (int h = 0; h < 2; h++) {
    const __m512i v = df_load_ahead(p + 64 * h);
    const __m512i at[4] = {_mm512_slli_epi16(v, 4), _mm512_slli_epi16(v, 2), v, _mm512_srli_epi16(v, 2)};
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) w[4 * h + i] = _mm512_ternarylogic_epi32(w[4 * h + i], at[i], mask, 0xF8); /* a | b&c */
  }
}

DF_INLINE void acc_zero(__m512 acc[DF_TILE_ROWS], const uint32_t m) {
#pragma GCC unroll 16
  for (uint32_t c = 0; c < m; c++) acc[c] = _mm512_setzero_ps();
}

DF_INLINE void acc_store(const __m512 acc[DF_TILE_ROWS], const uint32_t m, float *out, size_t ld) {
#pragma GCC unroll 16
  for (uint32_t c = 0; c < m; c++) _mm512_storeu_ps(out + c * ld, acc[c]);
}

DF_INLINE void q8(const df_mm_args *a, const uint32_t m) {
  const size_t nkb = a->k / DF_QBLOCK;
  for (uint32_t s = 0; s < a->strips; s++) {
    const uint8_t *codes = a->data + s * a->strip_bytes, *scales = codes + nkb * DF_BYTES_BLOCK;
    const df_actq *x = a->x;
    __m512 acc[DF_TILE_ROWS];
    acc_zero(acc, m);
    for (size_t kb = 0; kb < nkb; kb++, codes += DF_BYTES_BLOCK, scales += DF_HALVES, x += m) {
      __m512i w[8];
      load_bytes(codes, w);
      df_ahead(scales);
      block_rows(w, df_load_halves(scales), _mm512_setzero_ps(), false, OFF_8, x, m, acc);
    }
    acc_store(acc, m, a->out + (size_t)s * DF_LANES, a->ld);
  }
}

DF_INLINE void q4(const df_mm_args *a, const uint32_t m) {
  const size_t nkb = a->k / DF_QBLOCK;
  for (uint32_t s = 0; s < a->strips; s++) {
    const uint8_t *codes = a->data + s * a->strip_bytes, *scales = codes + nkb * DF_NIBS_BLOCK;
    const df_actq *x = a->x;
    __m512 acc[DF_TILE_ROWS];
    acc_zero(acc, m);
    for (size_t kb = 0; kb < nkb; kb++, codes += DF_NIBS_BLOCK, scales += DF_HALVES, x += m) {
      __m512i w[8];
      load_nibs(codes, w);
      df_ahead(scales);
      block_rows(w, df_load_halves(scales), _mm512_setzero_ps(), false, OFF_4, x, m, acc);
    }
    acc_store(acc, m, a->out + (size_t)s * DF_LANES, a->ld);
  }
}

DF_INLINE void q4m(const df_mm_args *a, const uint32_t m) {
  for (uint32_t s = 0; s < a->strips; s++) {
    const uint8_t *p = a->data + s * a->strip_bytes;
    const df_actq *x = a->x;
    __m512 acc[DF_TILE_ROWS];
    acc_zero(acc, m);
    for (size_t kb = 0; kb < a->k / DF_QBLOCK; kb++, p += DF_Q4M_BLOCK, x += m) {
      const uint8_t *scales = p + DF_Q4M_SCALES;
      __m512i w[8];
      load_nibs(p, w);
      df_ahead(scales);
      block_rows(w, df_load_halves(scales), df_load_halves(scales + DF_HALVES), true, OFF_NONE, x, m, acc);
    }
    acc_store(acc, m, a->out + (size_t)s * DF_LANES, a->ld);
  }
}

DF_INLINE void q8m(const df_mm_args *a, const uint32_t m) {
  for (uint32_t s = 0; s < a->strips; s++) {
    const uint8_t *p = a->data + s * a->strip_bytes;
    const df_actq *x = a->x;
    __m512 acc[DF_TILE_ROWS];
    acc_zero(acc, m);
    for (size_t kb = 0; kb < a->k / DF_QBLOCK; kb++, p += DF_Q8M_BLOCK, x += m) {
      __m512i w[8];
      load_bytes(p, w);
      const __m512 ws = _mm512_castsi512_ps(df_load_ahead(p + DF_Q8M_SCALES));
      const __m512 wm = _mm512_castsi512_ps(df_load_ahead(p + DF_Q8M_SCALES + 64));
      block_rows(w, ws, wm, true, OFF_NONE, x, m, acc);
    }
    acc_store(acc, m, a->out + (size_t)s * DF_LANES, a->ld);
  }
}

/* 16 unsigned or signed bytes to floats. */
DF_INLINE __m512 u8_floats(const uint8_t *p) {
  return _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(_mm_load_si128((const __m128i *)(const void *)p)));
}
DF_INLINE __m512 i8_floats(const uint8_t *p) {
  return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_load_si128((const __m128i *)(const void *)p)));
}

DF_INLINE void q4k(const df_mm_args *a, const uint32_t m) {
  for (uint32_t s = 0; s < a->strips; s++) {
    const uint8_t *super = a->data + s * a->strip_bytes;
    const df_actq *x = a->x;
    __m512 acc[DF_TILE_ROWS];
    acc_zero(acc, m);
    for (size_t sb = 0; sb < a->k / DF_SUPER; sb++, super += DF_Q4K_BLOCK) {
      const __m512 d = df_load_halves(super), dmin = df_load_halves(super + DF_HALVES);
      const __m512 neg = _mm512_xor_ps(_mm512_set1_ps(-0.0f), dmin);
      const uint8_t *scales = super + DF_Q4K_SCALES, *p = super + DF_Q4K_NIBS;
      df_ahead(super);
      for (int b = 0; b < 8; b++, p += DF_NIBS_BLOCK, scales += 32, x += m) {
        __m512i w[8];
        load_nibs(p, w);
        df_ahead(scales);
        const __m512 ws = _mm512_mul_ps(d, u8_floats(scales));
        const __m512 wm = _mm512_mul_ps(neg, u8_floats(scales + 16));
        block_rows(w, ws, wm, true, OFF_NONE, x, m, acc);
      }
    }
    acc_store(acc, m, a->out + (size_t)s * DF_LANES, a->ld);
  }
}

DF_INLINE void q6k(const df_mm_args *a, const uint32_t m) {
  const size_t nsb = a->k / DF_SUPER;
  for (uint32_t s = 0; s < a->strips; s++) {
    const uint8_t *super = a->data + s * a->strip_bytes, *d_at = super + nsb * DF_Q6K_BLOCK;
    const df_actq *x = a->x;
    __m512 acc[DF_TILE_ROWS];
    acc_zero(acc, m);
    for (size_t sb = 0; sb < nsb; sb++, super += DF_Q6K_BLOCK, d_at += DF_HALVES) {
      const __m512 d = df_load_halves(d_at);
      const uint8_t *scales = super, *p = super + DF_Q6K_CODES;
      df_ahead(d_at);
      for (int b = 0; b < 8; b++, p += DF_Q6K_SUB, scales += 32, x += m) {
        __m512i w[8];
        load_nibs(p, w);
        load_pairs(p + DF_NIBS_BLOCK, w);
        df_ahead(scales);
        const __m512 ws0 = _mm512_mul_ps(d, i8_floats(scales)), ws1 = _mm512_mul_ps(d, i8_floats(scales + 16));
        block_rows_split(w, ws0, ws1, x, m, acc);
      }
    }
    acc_store(acc, m, a->out + (size_t)s * DF_LANES, a->ld);
  }
}

DF_MM_DEFINE(q8)
DF_MM_DEFINE(q4)
DF_MM_DEFINE(q4m)
DF_MM_DEFINE(q8m)
DF_MM_DEFINE(q4k)
DF_MM_DEFINE(q6k)

void df_kernels_mm_init__avx512(df_kernels *k) {
  k->mm[DF_PACK_Q8] = q8_mm;
  k->mm[DF_PACK_Q4] = q4_mm;
  k->mm[DF_PACK_Q4M] = q4m_mm;
  k->mm[DF_PACK_Q8M] = q8m_mm;
  k->mm[DF_PACK_Q4K] = q4k_mm;
  k->mm[DF_PACK_Q6K] = q6k_mm;
  df_kernels_mm_float_init__avx512(k);
  df_kernels_mm_f8_init__avx512(k);
}
