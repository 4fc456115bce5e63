/*
 * kernels/simd/simd16_exp.h - df_exp on 16 lanes, in the operation order of kernels/expf.h. Include after a simd16_*.h.
 */
#ifndef DF_KERNELS_SIMD16_EXP_H
#define DF_KERNELS_SIMD16_EXP_H

#include "kernels/expf.h"

DF_INLINE v16 v16_exp(v16 x) {
  v16 magic = v16_set1(DF_EXP_MAGIC);
  v16 c = v16_min(v16_set1(DF_EXP_MAX), x);
  v16 t = v16_fma(c, v16_set1(DF_EXP_LOG2E), magic);
  v16 n = v16_sub(t, magic);
  v16 r = v16_fma(n, v16_set1(-DF_EXP_LN2_LO), v16_fma(n, v16_set1(-DF_EXP_LN2_HI), c));
  v16 q = v16_set1(DF_EXP_C6);
  q = v16_fma(q, r, v16_set1(DF_EXP_C5));
  q = v16_fma(q, r, v16_set1(DF_EXP_C4));
  q = v16_fma(q, r, v16_set1(DF_EXP_C3));
  q = v16_fma(q, r, v16_set1(DF_EXP_C2));
  v16 p = v16_add(v16_fma(q, v16_mul(r, r), r), v16_set1(1.0f));
  return v16_zero_below(c, v16_set1(DF_EXP_MIN), v16_add_exponent(p, t));
}

#endif
