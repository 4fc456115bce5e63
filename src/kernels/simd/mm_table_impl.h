/*
 * kernels/simd/mm_table_impl.h - the matmuls of mm_impl.h by form. A tier with a way of its own for several rows
 * defines MANY_STRIP, a function with strip's parameters, before it includes this file. All functions are static.
 */
#ifndef DF_KERNELS_MM_TABLE_IMPL_H
#define DF_KERNELS_MM_TABLE_IMPL_H

#include "kernels/simd/mm_impl.h"

#ifndef MANY_STRIP
#define MANY_STRIP strip
#endif

DF_INLINE void strips(const df_pack form, const df_weights *w, uint32_t s0, uint32_t s1, const void *x, uint32_t m,
                      const bool one, float *out, size_t ld) {
  for (uint32_t s = s0; s < s1; s++) {
    _Alignas(64) row_acc acc[DF_TILE_ROWS] = {{0}};
    if (one)
      strip(form, w->data + s * w->strip_bytes, w->k, x, 1, acc);
    else
      MANY_STRIP(form, w->data + s * w->strip_bytes, w->k, x, m, acc);
    for (uint32_t c = 0; c < m; c++) memcpy(out + c * ld + (size_t)(s - s0) * DF_LANES, acc[c], sizeof acc[c]);
  }
}

#define DEFINE(name, form)                                                                                            \
  static void name(const df_weights *w, uint32_t s0, uint32_t s1, const void *x, uint32_t m, float *out, size_t ld) { \
    if (m == 1)                                                                                                       \
      strips(form, w, s0, s1, x, 1, true, out, ld);                                                                   \
    else                                                                                                              \
      strips(form, w, s0, s1, x, m, false, out, ld);                                                                  \
  }

DEFINE(q8, DF_PACK_Q8)
DEFINE(q4, DF_PACK_Q4)
DEFINE(q4m, DF_PACK_Q4M)
DEFINE(q8m, DF_PACK_Q8M)
DEFINE(q4k, DF_PACK_Q4K)
DEFINE(q6k, DF_PACK_Q6K)

DF_INLINE void mm_quant_table(df_kernels *k) {
  k->mm[DF_PACK_Q8] = q8;
  k->mm[DF_PACK_Q4] = q4;
  k->mm[DF_PACK_Q4M] = q4m;
  k->mm[DF_PACK_Q8M] = q8m;
  k->mm[DF_PACK_Q4K] = q4k;
  k->mm[DF_PACK_Q6K] = q6k;
}

#endif
