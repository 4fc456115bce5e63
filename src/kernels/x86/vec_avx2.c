/* kernels/x86/vec_avx2.c - vector operations of the avx2 tier: vec_impl.h on AVX2. */
#include "kernels/x86/simd16_avx2.h"

#include "kernels/simd/simd16_exp.h"

#include "kernels/simd/vec_impl.h"

void df_kernels_vec_init__avx2(df_kernels *k) {
  vec_table(k);
  df_kernels_attn_init__avx2(k);
}
