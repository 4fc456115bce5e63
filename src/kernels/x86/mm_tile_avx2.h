/*
 * kernels/x86/mm_tile_avx2.h - quantised matmuls for AVX2 on several rows: the whole strip, 4 rows at a time.
 *
 * Sums of byte products on AVX2 are bound by loads when 8 outputs meet one row after the other: every product takes a
 * load of its four activations. Here the codes of a block are unpacked once, to 8 vectors for each half of the strip,
 * and 4 rows times both halves are summed side by side: 8 sums, two vectors of codes and one of activations fill the
 * registers, and a load serves two or four products. What remains is bound by the three ports that multiply and add.
 *
 * Included by mm_avx2.c behind simd/mm_impl.h, whose loaders it uses. Bits are those of mm_impl.h: integer sums are
 * exact, and the floats are the same operations in the same order.
 */
#ifndef DF_KERNELS_MM_TILE_AVX2_H
#define DF_KERNELS_MM_TILE_AVX2_H

enum { TILE = 4, HALF = DF_LANES / 2 };

/* The codes of a block, for outputs 0..7 and 8..15. */
typedef struct tile_codes {
  c8 w[2][8];
} tile_codes;

/* Keeps sums in the order they are written: a balanced tree of the same sums needs more registers than there are. */
#define KEEP_ORDER(v) __asm__("" : "+x"(v))
/* Codes and activations are read again each time: kept in registers from one use to the next they would be spilled. */
#define KEEP_IN_MEMORY(p) __asm__ volatile("" : : "r"(p) : "memory")

/* d[r][h] += factor * dot products of code vectors [from, to) with the activations of row r, at most `terms` vectors in
 * a 16-bit sum (see mm_sums_avx2.h). */
DF_INLINE void tile_dots(const tile_codes *t, const df_actq *x, const int rows, const int from, const int to,
                         const int terms, const int factor, n8 d[TILE][2]) {
  const __m256i by = _mm256_set1_epi16((short)factor);
  KEEP_IN_MEMORY(t);
#pragma GCC unroll 4
  for (int j0 = from; j0 < to; j0 += terms) {
    __m256i s[TILE][2];
#pragma GCC unroll 8
    for (int j = j0; j < j0 + terms; j++) {
#pragma GCC unroll 4
      for (int r = 0; r < rows; r++) {
        const __m256i q = _mm256_set1_epi32((int)df_load32(x[r].q + 4 * j));
#pragma GCC unroll 2
        for (int h = 0; h < 2; h++) {
          const __m256i p = _mm256_maddubs_epi16(t->w[h][j], q);
          s[r][h] = j == j0 ? p : _mm256_add_epi16(s[r][h], p);
          KEEP_ORDER(s[r][h]);
        }
      }
    }
#pragma GCC unroll 4
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 2
      for (int h = 0; h < 2; h++) d[r][h] = _mm256_add_epi32(d[r][h], _mm256_madd_epi16(s[r][h], by));
  }
}

/* The same for two vectors in a sum: a row's sums do not outlive the pair, which leaves registers for d. */
DF_INLINE void tile_dots_by_two(const tile_codes *t, const df_actq *x, const int rows, const int from, const int to,
                                n8 d[TILE][2]) {
  const __m256i ones = _mm256_set1_epi16(1);
  KEEP_IN_MEMORY(t);
#pragma GCC unroll 2
  for (int j = from; j < to; j += 2) {
#pragma GCC unroll 4
    for (int r = 0; r < rows; r++) {
      const __m256i q0 = _mm256_set1_epi32((int)df_load32(x[r].q + 4 * j));
      const __m256i q1 = _mm256_set1_epi32((int)df_load32(x[r].q + 4 * j + 4));
#pragma GCC unroll 2
      for (int h = 0; h < 2; h++) {
        const __m256i s =
            _mm256_add_epi16(_mm256_maddubs_epi16(t->w[h][j], q0), _mm256_maddubs_epi16(t->w[h][j + 1], q1));
        d[r][h] = _mm256_add_epi32(d[r][h], _mm256_madd_epi16(s, ones));
        KEEP_ORDER(d[r][h]);
      }
    }
  }
}

/* acc = fma(ws * scale of x, d, acc), then the min's share. */
DF_INLINE void tile_add(const f8 ws[2], const f8 *wm, const df_actq *x, const int rows, n8 d[TILE][2], row_acc *acc) {
#pragma GCC unroll 4
  for (int r = 0; r < rows; r++)
#pragma GCC unroll 2
    for (int h = 0; h < 2; h++) {
      f8 v = scaled_add(ws[h], &x[r], d[r][h], f8_load(acc[r] + HALF * h));
      if (wm) v = f8_fma1(wm[h], x[r].scale_sum, v);
      f8_store(acc[r] + HALF * h, v);
    }
}

/* How a form's codes become dot products. */
typedef enum tile_kind {
  TILE_NIBS,      /* codes to 15 */
  TILE_NIBS_OFF4, /* the same, 8 too large */
  TILE_FIVE,      /* codes to 31 */
  TILE_SIX,       /* codes to 63, a scale for each 16 k */
  TILE_BYTES      /* two nibbles of a byte: lower ones in t[0], upper ones in t[1] */
} tile_kind;

/* What the codes are too large by. Behind the dot products, where the offsets are read straight to vectors. */
DF_INLINE void tile_offsets(const int32_t *first, const int rows, n8 d[TILE][2]) {
#pragma GCC unroll 4
  for (int r = 0; r < rows; r++) {
    const n8 off = n8_set1((int32_t)df_load32(first + r * (sizeof(df_actq) / sizeof *first)));
    d[r][0] = _mm256_add_epi32(d[r][0], off);
    d[r][1] = _mm256_add_epi32(d[r][1], off);
  }
}

DF_INLINE void tile_zero(const int rows, n8 d[TILE][2]) {
#pragma GCC unroll 4
  for (int r = 0; r < rows; r++) d[r][0] = d[r][1] = n8_set1(0);
}

DF_INLINE void tile_rows(const tile_kind kind, const tile_codes *t, const f8 ws[2], const f8 *wm, const df_actq *x,
                         const int rows, row_acc *acc) {
  n8 d[TILE][2];
  tile_zero(rows, d);
  switch (kind) {
    case TILE_NIBS: tile_dots(t, x, rows, 0, 8, 8, 1, d); break;
    case TILE_NIBS_OFF4:
      tile_dots(t, x, rows, 0, 8, 8, 1, d);
      tile_offsets(&x->off4, rows, d);
      break;
    case TILE_FIVE: tile_dots(t, x, rows, 0, 8, 4, 1, d); break;
    case TILE_SIX:
      tile_dots_by_two(t, x, rows, 0, 4, d);
      tile_offsets(&x->off6_lo, rows, d);
      tile_add(ws, NULL, x, rows, d, acc);
      tile_zero(rows, d);
      tile_dots_by_two(t, x, rows, 4, 8, d);
      tile_offsets(&x->off6_hi, rows, d);
      ws += 2;
      break;
    case TILE_BYTES:
      tile_dots(t, x, rows, 0, 8, 8, 1, d);
      tile_dots(t + 1, x, rows, 0, 8, 8, 16, d);
      tile_offsets(&x->off8, rows, d);
      break;
  }
  tile_add(ws, wm, x, rows, d, acc);
}

/* All rows of a block. */
DF_INLINE void tile_block(const tile_kind kind, const tile_codes *t, const f8 *ws, const f8 *wm, const df_actq *x,
                          uint32_t m, row_acc *acc) {
  for (; m >= TILE; m -= TILE, x += TILE, acc += TILE) tile_rows(kind, t, ws, wm, x, TILE, acc);
  if (m == 3) tile_rows(kind, t, ws, wm, x, 3, acc);
  if (m == 2) tile_rows(kind, t, ws, wm, x, 2, acc);
  if (m == 1) tile_rows(kind, t, ws, wm, x, 1, acc);
}

DF_INLINE void tile_q8(const uint8_t *codes, const uint8_t *scales, const df_actq *x, uint32_t m, row_acc *acc) {
  tile_codes t[2];
  f8 ws[2];
  ahead_rows(codes, 8);
  df_ahead(scales);
  for (int h = 0; h < 2; h++) {
#pragma GCC unroll 8
    for (int j = 0; j < 8; j++) {
      const c8 v = c8_load(codes + 64 * j + 32 * h);
      t[0].w[h][j] = c8_low(v);
      t[1].w[h][j] = c8_high(v);
    }
    ws[h] = f8_halves(scales + 2 * HALF * h);
  }
  tile_block(TILE_BYTES, t, ws, NULL, x, m, acc);
}

DF_INLINE void tile_q4(const uint8_t *nibs, const uint8_t *scales, const df_actq *x, uint32_t m, row_acc *acc) {
  tile_codes t;
  f8 ws[2];
  ahead_rows(nibs, 4);
  df_ahead(scales);
  for (int h = 0; h < 2; h++) {
    load_nibs(nibs + 32 * h, t.w[h]);
    ws[h] = f8_halves(scales + 2 * HALF * h);
  }
  tile_block(TILE_NIBS_OFF4, &t, ws, NULL, x, m, acc);
}

DF_INLINE void tile_q4m(const uint8_t *p, const df_actq *x, uint32_t m, row_acc *acc) {
  tile_codes t;
  f8 ws[2], wm[2];
  ahead_rows(p, 5);
  for (int h = 0; h < 2; h++) {
    load_nibs(p + 32 * h, t.w[h]);
    ws[h] = f8_halves(p + DF_Q4M_SCALES + 2 * HALF * h);
    wm[h] = f8_halves(p + DF_Q4M_SCALES + DF_HALVES + 2 * HALF * h);
  }
  tile_block(TILE_NIBS, &t, ws, wm, x, m, acc);
}

DF_INLINE void tile_q8m(const uint8_t *p, const df_actq *x, uint32_t m, row_acc *acc) {
  tile_codes t;
  f8 ws[2], wm[2];
  const float *scales = (const float *)(const void *)(p + DF_Q8M_SCALES);
  ahead_rows(p, 10);
  for (int h = 0; h < 2; h++) {
#pragma GCC unroll 8
    for (int j = 0; j < 8; j++) t.w[h][j] = c8_load(p + 64 * j + 32 * h);
    ws[h] = f8_load(scales + HALF * h);
    wm[h] = f8_load(scales + 16 + HALF * h);
  }
  tile_block(TILE_FIVE, &t, ws, wm, x, m, acc);
}

DF_INLINE void tile_q4k(const uint8_t *super, uint32_t b, const df_actq *x, uint32_t m, row_acc *acc) {
  const uint8_t *scales = super + DF_Q4K_SCALES + 32 * b, *nibs = super + DF_Q4K_NIBS + DF_NIBS_BLOCK * b;
  tile_codes t;
  f8 ws[2], wm[2];
  ahead_rows(nibs, 4);
  df_ahead(scales);
  for (int h = 0; h < 2; h++) {
    load_nibs(nibs + 32 * h, t.w[h]);
    const f8 dmin = f8_neg(f8_halves(super + DF_HALVES + 2 * HALF * h));
    ws[h] = f8_mul(f8_halves(super + 2 * HALF * h), f8_bytes(scales + HALF * h));
    wm[h] = f8_mul(dmin, f8_bytes(scales + 16 + HALF * h));
  }
  tile_block(TILE_NIBS, &t, ws, wm, x, m, acc);
}

DF_INLINE void tile_q6k(const uint8_t *super, const uint8_t *d_at, uint32_t b, const df_actq *x, uint32_t m,
                        row_acc *acc) {
  const uint8_t *scales = super + 32 * b, *nibs = super + DF_Q6K_CODES + DF_Q6K_SUB * b;
  tile_codes t;
  f8 ws[4];
  ahead_rows(nibs, 6);
  df_ahead(scales);
  df_ahead(d_at);
  for (int h = 0; h < 2; h++) {
    load_nibs(nibs + 32 * h, t.w[h]);
    load_pairs(nibs + DF_NIBS_BLOCK + 32 * h, t.w[h]);
    const f8 d = f8_halves(d_at + 2 * HALF * h);
    ws[h] = f8_mul(d, f8_signed_bytes(scales + HALF * h));
    ws[2 + h] = f8_mul(d, f8_signed_bytes(scales + 16 + HALF * h));
  }
  tile_block(TILE_SIX, &t, ws, NULL, x, m, acc);
}

DF_INLINE void tile_strip(const df_pack form, const uint8_t *p, uint32_t k, const df_actq *x, uint32_t m,
                          row_acc *acc) {
  const size_t nkb = k / DF_QBLOCK, nsb = k / DF_SUPER;
  for (size_t kb = 0; kb < nkb; kb++, x += m) {
    const size_t sb = kb / 8;
    const uint32_t b = kb % 8;
    switch (form) {
      case DF_PACK_Q8: tile_q8(p + kb * DF_BYTES_BLOCK, p + nkb * DF_BYTES_BLOCK + kb * DF_HALVES, x, m, acc); break;
      case DF_PACK_Q4: tile_q4(p + kb * DF_NIBS_BLOCK, p + nkb * DF_NIBS_BLOCK + kb * DF_HALVES, x, m, acc); break;
      case DF_PACK_Q4M: tile_q4m(p + kb * DF_Q4M_BLOCK, x, m, acc); break;
      case DF_PACK_Q8M: tile_q8m(p + kb * DF_Q8M_BLOCK, x, m, acc); break;
      case DF_PACK_Q4K: tile_q4k(p + sb * DF_Q4K_BLOCK, b, x, m, acc); break;
      default: tile_q6k(p + sb * DF_Q6K_BLOCK, p + nsb * DF_Q6K_BLOCK + sb * DF_HALVES, b, x, m, acc); break;
    }
  }
}

#endif
