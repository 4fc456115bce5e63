/*
 * x86/mm_avx512.h - pieces of the AVX-512 matmuls. Private to x86/mm_avx512*.c.
 *
 * The row count M and the form are compile-time constants of every kernel: each (form, M) is one function in which
 * the M accumulators, and the 8 vectors of a block's codes, live in registers. A block's codes are unpacked once and
 * used for all rows.
 */
#ifndef DF_KERNELS_MM_AVX512_H
#define DF_KERNELS_MM_AVX512_H

#include <immintrin.h>

#include "kernels/blocks.h"
#include "kernels/layout.h"
#include "kernels/tables.h"

/* Sanitizer builds check the instances of a few rows; checking every load of the long straight-line ones takes the
 * compiler minutes and finds nothing that those, the other tiers and guard pages do not. The inline pieces carry the
 * mark too: whether an access is checked is decided by the function it is inlined into, but the poisoning of local
 * arrays at the end of their scope is not, and unchecked functions would not undo it. */
#define DF_MM_UNCHECKED __attribute__((no_sanitize("address", "undefined", "thread")))
#define DF_INLINE DF_MM_UNCHECKED static inline __attribute__((always_inline))

/* What a one-strip kernel gets. */
typedef struct df_mm_args {
  const uint8_t *data; /* first strip */
  size_t strip_bytes;
  uint32_t k, strips;
  const void *x;
  float *out;
  size_t ld;
} df_mm_args;

typedef void (*df_mm_fn)(const df_mm_args *a);

/* Bytes ahead of the weights being used that are asked for, into L2: every line that is read asks for one, so that
 * memory keeps working while many rows keep the processor busy. Strips are contiguous: this runs into the next ones.
 * Distances by measurement (4 to 32 KB differ by less than 5 %; 1 KB costs up to 30 %). */
enum { DF_MM_AHEAD = 16384, DF_MM_AHEAD_FLOAT = 4096 };

DF_INLINE void df_ahead(const uint8_t *p) { _mm_prefetch((const char *)p + DF_MM_AHEAD, _MM_HINT_T1); }
DF_INLINE void df_ahead_float(const uint8_t *p) { _mm_prefetch((const char *)p + DF_MM_AHEAD_FLOAT, _MM_HINT_T1); }

DF_INLINE __m512i df_load_ahead(const uint8_t *p) {
  df_ahead(p);
  return _mm512_load_si512(p);
}

/* 16 halves at a 32-byte boundary. */
DF_INLINE __m512 df_load_halves(const uint8_t *p) {
  return _mm512_cvtph_ps(_mm256_load_si256((const __m256i *)(const void *)p));
}

DF_INLINE __m512i df_low_nibs(__m512i v) { return _mm512_and_si512(v, _mm512_set1_epi8(15)); }
DF_INLINE __m512i df_high_nibs(__m512i v) { return df_low_nibs(_mm512_srli_epi16(v, 4)); }

DF_INLINE __m512i df_splat_i32(const void *p) { return _mm512_set1_epi32((int)df_load32(p)); }

#define DF_MM_EACH_FEW(X, f) X(f, 1) X(f, 2) X(f, 3)
#define DF_MM_EACH_MANY(X, f) \
  X(f, 4) X(f, 5) X(f, 6) X(f, 7) X(f, 8) X(f, 9) X(f, 10) X(f, 11) X(f, 12) X(f, 13) X(f, 14) X(f, 15) X(f, 16)

#define DF_MM_ONE_M(f, M) \
  static void f##_##M(const df_mm_args *a) { f(a, M); }
#define DF_MM_ONE_M_UNCHECKED(f, M) DF_MM_UNCHECKED DF_MM_ONE_M(f, M)
#define DF_MM_NAME_M(f, M) f##_##M,

/* From an inline f(args, m): its 16 instances and the table entry f##_mm that picks one. */
#define DF_MM_DEFINE(f)                                                                                             \
  DF_MM_EACH_FEW(DF_MM_ONE_M, f)                                                                                    \
  DF_MM_EACH_MANY(DF_MM_ONE_M_UNCHECKED, f)                                                                         \
  static void f##_mm(const df_weights *w, uint32_t s0, uint32_t s1, const void *x, uint32_t m, float *out,          \
                     size_t ld) {                                                                                   \
    static const df_mm_fn k_fns[DF_TILE_ROWS] = {DF_MM_EACH_FEW(DF_MM_NAME_M, f) DF_MM_EACH_MANY(DF_MM_NAME_M, f)}; \
    const df_mm_args a = {w->data + (size_t)s0 * w->strip_bytes, w->strip_bytes, w->k, s1 - s0, x, out, ld};        \
    k_fns[m - 1](&a);                                                                                               \
  }

/* Sets the entries of mm_avx512_float.c. */
void df_kernels_mm_float_init__avx512(df_kernels *k);

#endif
