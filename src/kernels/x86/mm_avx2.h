/* x86/mm_avx2.h - pieces of the AVX2 matmuls. Private to x86/mm_avx2*.c and mm_avxvnni.c. */
#ifndef DF_KERNELS_MM_AVX2_H
#define DF_KERNELS_MM_AVX2_H

#include <immintrin.h>

#include "kernels/blocks.h"
#include "kernels/layout.h"
#include "kernels/tables.h"

#define DF_INLINE static inline __attribute__((always_inline))

/* As in x86/mm_avx512.h: bytes ahead that are asked for, into L2. */
enum { DF_MM_AHEAD = 16384, DF_MM_AHEAD_FLOAT = 4096 };

DF_INLINE void df_ahead(const uint8_t *p) { _mm_prefetch((const char *)p + DF_MM_AHEAD, _MM_HINT_T1); }
DF_INLINE void df_ahead_float(const uint8_t *p) { _mm_prefetch((const char *)p + DF_MM_AHEAD_FLOAT, _MM_HINT_T1); }

DF_INLINE __m256i df_load_half_row(const uint8_t *p) { return _mm256_load_si256((const __m256i *)(const void *)p); }

/* 8 halves at a 16-byte boundary. */
DF_INLINE __m256 df_load_8_halves(const uint8_t *p) {
  return _mm256_cvtph_ps(_mm_load_si128((const __m128i *)(const void *)p));
}

/* The sums of one row in one strip. */
typedef float row_acc[DF_LANES];

DF_INLINE __m256 scaled_add(__m256 ws, const df_actq *x, __m256i dot, __m256 acc) {
  return _mm256_fmadd_ps(_mm256_mul_ps(ws, _mm256_set1_ps(x->scale)), _mm256_cvtepi32_ps(dot), acc);
}

/* Sets the entries of mm_avx2_float.c. */
void df_kernels_mm_float_init__avx2(df_kernels *k);

#endif
