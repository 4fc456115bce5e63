/* mm_avx512_f8.c - matmul of E4M3 weights for AVX-512: mm_f8_impl.h. */
#include "kernels/x86/simd16_avx512.h"

#include "kernels/simd/mm_f8_impl.h"

void df_kernels_mm_f8_init__avx512(df_kernels *k) { k->mm[DF_PACK_F8] = f8_mm; }
