/* mm_avx2.c - quantised matmuls for AVX2. */
#include "kernels/x86/mm_sums_avx2.h"

#include "kernels/simd/mm_impl.h"
#include "kernels/x86/mm_tile_avx2.h"

#define MANY_STRIP tile_strip
#include "kernels/simd/mm_table_impl.h"
#include "kernels/x86/mm_avx2.h"

void df_kernels_mm_init__avx2(df_kernels *k) {
  mm_quant_table(k);
  df_kernels_mm_float_init__avx2(k);
}
