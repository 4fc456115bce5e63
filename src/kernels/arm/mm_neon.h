/* arm/mm_neon.h - how the matmuls of the neon tier are put together. Private to arm/mm_neon*.c. */
#ifndef DF_KERNELS_MM_NEON_H
#define DF_KERNELS_MM_NEON_H

#include "kernels/kernels.h"

/* Sets the entries of mm_neon_float.c. */
void df_kernels_mm_float_init__neon(df_kernels *k);

#endif
