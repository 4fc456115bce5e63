/* kernels/x86/attn_avx512.c - chunk attention of the avx512 tier: attn_impl.h on AVX-512. */
#include "kernels/x86/simd16_avx512.h"

#include "kernels/simd/simd16_exp.h"

#include "kernels/simd/attn_impl.h"

void df_kernels_attn_init__avx512(df_kernels *k) { attn_table(k, df_cpu_halves_cost_fma()); }
