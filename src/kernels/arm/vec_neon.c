/* kernels/arm/vec_neon.c - vector operations of the neon tier: vec_impl.h on Advanced SIMD. */
#include "kernels/arm/simd16_neon.h"

#include "kernels/simd/simd16_exp.h"

#include "kernels/simd/vec_impl.h"

void df_kernels_vec_init__neon(df_kernels *k) {
  vec_table(k);
  df_kernels_attn_init__neon(k);
}
