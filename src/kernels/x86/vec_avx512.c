/* kernels/x86/vec_avx512.c - vector operations of the avx512 tier: vec_impl.h on AVX-512. */
#include "kernels/x86/simd16_avx512.h"

#include "kernels/simd/simd16_exp.h"

#include "kernels/simd/vec_impl.h"

void df_kernels_vec_init__avx512(df_kernels *k) {
  vec_table(k);
  df_kernels_attn_init__avx512(k);
}
