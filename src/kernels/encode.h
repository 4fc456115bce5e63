/*
 * kernels/encode.h - rounding float32 values to blocks of GGUF tensor data: the inverse of df_dequant for the simple
 * block types. Scales are searched for the least squared error of a block; offline work, not tuned for speed.
 *
 * Threads: any.
 */
#ifndef DF_KERNELS_ENCODE_H
#define DF_KERNELS_ENCODE_H

#include "kernels/kernels.h"

/* True for the types that df_encode writes: F32, Q4_0, Q4_1, Q8_0. */
bool df_can_encode(int dtype);
/* The type of that name (n bytes, any case) when it is one of those, else -1. */
int df_encode_type_named(const char *name, size_t n);
/* Encodes n finite values (a multiple of the block) to dst (n / values * bytes of df_dtype_block). */
void df_encode(df_dtype type, const float *x, size_t n, void *dst);
/* The same from one starting scale: a twentieth of the time, a slightly larger error. For rounding while loading. */
void df_encode_quick(df_dtype type, const float *x, size_t n, void *dst);

#endif
