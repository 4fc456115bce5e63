/* kernels/arm/attn_neon.c - chunk attention of the neon tier: attn_impl.h on Advanced SIMD. */
#include "kernels/arm/simd16_neon.h"

#include "kernels/simd/simd16_exp.h"

#include "kernels/simd/attn_impl.h"

void df_kernels_attn_init__neon(df_kernels *k) { attn_table(k, true); }
