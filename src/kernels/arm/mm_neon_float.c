/* mm_neon_float.c - matmuls of the float forms for Advanced SIMD: mm_float_impl.h, mm_f8_impl.h. */
#include "kernels/arm/simd16_neon.h"

#include "kernels/arm/mm_neon.h"
#include "kernels/simd/mm_f8_impl.h"
#include "kernels/simd/mm_float_impl.h"

void df_kernels_mm_float_init__neon(df_kernels *k) {
  mm_float_table(k);
  k->mm[DF_PACK_F8] = f8_mm;
}
