/* mm_avx512_float.c - matmuls of the float forms for AVX-512. */
#include "kernels/x86/mm_avx512.h"

/*
 * One output is one chain of fma over k, whose latency is 4 cycles. Up to 8 rows several strips run side by side and
 * the rows are read where they lie. More rows would be more streams than L1 has ways (k is often a multiple of 1024,
 * and then they all fall into one set), so k is cut into chunks; a chunk of the rows is transposed into a small tile
 * that a group of strips uses, and the accumulators are kept in memory between chunks. The chains stay the same.
 */
enum { CHUNK = 128, STRIP_GROUP = 16 };

typedef enum elem { ELEM_F32, ELEM_F16, ELEM_BF16 } elem;

DF_INLINE __m512 load16(const uint8_t *strip, size_t i, elem e) {
  if (e == ELEM_F32) return _mm512_load_ps((const float *)(const void *)(strip + 64 * i));
  const __m256i h = _mm256_load_si256((const __m256i *)(const void *)(strip + 32 * i));
  if (e == ELEM_F16) return _mm512_cvtph_ps(h);
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(h), 16));
}

/* `n` neighbouring strips times M rows; n * M <= 16. */
DF_INLINE void strips_rows(const df_mm_args *a, uint32_t s, const uint32_t n, const uint32_t m, const elem e) {
  const uint8_t *p = a->data + s * a->strip_bytes;
  const float *x = a->x;
  __m512 acc[DF_TILE_ROWS];
#pragma GCC unroll 16
  for (uint32_t i = 0; i < n * m; i++) acc[i] = _mm512_setzero_ps();
  for (size_t i = 0; i < a->k; i++) {
#pragma GCC unroll 4
    for (uint32_t t = 0; t < n; t++) {
      const __m512 w = load16(p + t * a->strip_bytes, i, e);
      if (e == ELEM_F32 || i % 2 == 0) df_ahead_float(p + t * a->strip_bytes + (e == ELEM_F32 ? 64 : 32) * i);
#pragma GCC unroll 16
      for (uint32_t c = 0; c < m; c++)
        acc[t * m + c] = _mm512_fmadd_ps(w, _mm512_set1_ps(x[c * (size_t)a->k + i]), acc[t * m + c]);
    }
  }
#pragma GCC unroll 4
  for (uint32_t t = 0; t < n; t++)
#pragma GCC unroll 16
    for (uint32_t c = 0; c < m; c++) _mm512_storeu_ps(a->out + c * a->ld + (size_t)(s + t) * DF_LANES, acc[t * m + c]);
}

/* Chunk [0, len) of one strip times the tile. `next` is the memory that will be used after it. */
DF_INLINE void chunk_rows(const uint8_t *p, const uint8_t *next, uint32_t len, const float *tile, const uint32_t m,
                          const elem e, __m512 sums[DF_TILE_ROWS]) {
  __m512 acc[DF_TILE_ROWS];
#pragma GCC unroll 16
  for (uint32_t c = 0; c < m; c++) acc[c] = sums[c];
  for (uint32_t i = 0; i < len; i++, tile += m) {
    const __m512 w = load16(p, i, e);
    _mm_prefetch((const char *)next + (e == ELEM_F32 ? 64 : 32) * i, _MM_HINT_T0);
#pragma GCC unroll 16
    for (uint32_t c = 0; c < m; c++) acc[c] = _mm512_fmadd_ps(w, _mm512_set1_ps(tile[c]), acc[c]);
  }
#pragma GCC unroll 16
  for (uint32_t c = 0; c < m; c++) sums[c] = acc[c];
}

/* `n` strips from s on, all k. */
DF_INLINE void group_rows(const df_mm_args *a, uint32_t s, uint32_t n, const uint32_t m, const elem e) {
  const size_t k = a->k, step = e == ELEM_F32 ? 64 : 32;
  const uint8_t *group = a->data + s * a->strip_bytes;
  const float *x = a->x;
  __m512 sums[STRIP_GROUP][DF_TILE_ROWS];
  float tile[CHUNK * DF_TILE_ROWS];
  for (uint32_t t = 0; t < n; t++)
    for (uint32_t c = 0; c < m; c++) sums[t][c] = _mm512_setzero_ps();
  for (size_t k0 = 0; k0 < k; k0 += CHUNK) {
    const uint32_t len = k - k0 < CHUNK ? (uint32_t)(k - k0) : CHUNK;
    for (uint32_t i = 0; i < len; i++)
#pragma GCC unroll 16
      for (uint32_t c = 0; c < m; c++) tile[i * m + c] = x[c * k + k0 + i];
    for (uint32_t t = 0; t < n; t++) {
      const uint8_t *p = group + t * a->strip_bytes + step * k0;
      const uint8_t *wrap = k0 + CHUNK < k ? group + step * (k0 + CHUNK) : group + n * a->strip_bytes;
      chunk_rows(p, t + 1 < n ? p + a->strip_bytes : wrap, len, tile, m, e, sums[t]);
    }
  }
  for (uint32_t t = 0; t < n; t++)
    for (uint32_t c = 0; c < m; c++) _mm512_storeu_ps(a->out + c * a->ld + (size_t)(s + t) * DF_LANES, sums[t][c]);
}

DF_INLINE void all_strips(const df_mm_args *a, const uint32_t m, const elem e) {
  uint32_t s = 0;
  if (m > 8) {
    for (; s < a->strips; s += STRIP_GROUP)
      group_rows(a, s, a->strips - s < STRIP_GROUP ? a->strips - s : STRIP_GROUP, m, e);
    return;
  }
  if (m <= 4)
    for (; s + 4 <= a->strips; s += 4) strips_rows(a, s, 4, m, e);
  for (; s + 2 <= a->strips; s += 2) strips_rows(a, s, 2, m, e);
  for (; s < a->strips; s++) strips_rows(a, s, 1, m, e);
}

DF_INLINE void f32(const df_mm_args *a, const uint32_t m) { all_strips(a, m, ELEM_F32); }
DF_INLINE void f16(const df_mm_args *a, const uint32_t m) { all_strips(a, m, ELEM_F16); }
DF_INLINE void bf16(const df_mm_args *a, const uint32_t m) { all_strips(a, m, ELEM_BF16); }

DF_MM_DEFINE(f32)
DF_MM_DEFINE(f16)
DF_MM_DEFINE(bf16)

void df_kernels_mm_float_init__avx512(df_kernels *k) {
  k->mm[DF_PACK_F32] = f32_mm;
  k->mm[DF_PACK_F16] = f16_mm;
  k->mm[DF_PACK_BF16] = bf16_mm;
}
