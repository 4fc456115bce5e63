/* mm_avx2_float.c - matmuls of the float forms for AVX2: mm_float_impl.h, mm_f8_impl.h. */
#include "kernels/x86/simd16_avx2.h"

#include "kernels/simd/mm_f8_impl.h"
#include "kernels/simd/mm_float_impl.h"
#include "kernels/x86/mm_avx2.h"

void df_kernels_mm_float_init__avx2(df_kernels *k) {
  mm_float_table(k);
  k->mm[DF_PACK_F8] = f8_mm;
}
