/* x86/mm_avx2.h - how the AVX2 matmuls are put together. Private to x86/mm_avx2*.c. */
#ifndef DF_KERNELS_MM_AVX2_H
#define DF_KERNELS_MM_AVX2_H

#include "kernels/kernels.h"

/* Sets the entries of mm_avx2_float.c. */
void df_kernels_mm_float_init__avx2(df_kernels *k);

#endif
