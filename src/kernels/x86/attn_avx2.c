/* kernels/x86/attn_avx2.c - chunk attention of the avx2 tier: attn_impl.h on AVX2. */
#include "kernels/x86/simd16_avx2.h"

#include "kernels/simd/simd16_exp.h"

#include "kernels/simd/attn_impl.h"

void df_kernels_attn_init__avx2(df_kernels *k) { attn_table(k, true); }
