/*
 * kernels/tables.h - how a tier's kernel table is put together.
 *
 * Every ISA file exports one init function that overwrites the entries it has. dispatch.c runs them in order of
 * tier (ref first, so that no entry stays NULL); an entry that a tier does not set keeps the value of the tier
 * below it, which has the same bits by contract. No function here detects features: dispatch.c does, once.
 *
 * Threads: called once per table, by df_kernels_get.
 */
#ifndef DF_KERNELS_TABLES_H
#define DF_KERNELS_TABLES_H

#include "kernels/kernels.h"

/* mm[] and unpack_row. */
void df_kernels_mm_init__ref(df_kernels *k);
/* Everything else in df_kernels; calls the attention part of its tier. */
void df_kernels_vec_init__ref(df_kernels *k);
void df_kernels_attn_init__ref(df_kernels *k);

#if defined(__x86_64__)
void df_kernels_mm_init__avx2(df_kernels *k);
void df_kernels_vec_init__avx2(df_kernels *k);
void df_kernels_attn_init__avx2(df_kernels *k);
/* Only the products of 8-bit activations. */
void df_kernels_mm_init__avxvnni(df_kernels *k);
void df_kernels_mm_init__avx512(df_kernels *k);
/* A part of it, in a file of its own. */
void df_kernels_mm_f8_init__avx512(df_kernels *k);
void df_kernels_vec_init__avx512(df_kernels *k);
void df_kernels_attn_init__avx512(df_kernels *k);
#elif defined(__aarch64__)
void df_kernels_mm_init__neon(df_kernels *k);
void df_kernels_vec_init__neon(df_kernels *k);
void df_kernels_attn_init__neon(df_kernels *k);
/* Only the products of 8-bit activations. */
void df_kernels_mm_init__dotprod(df_kernels *k);
#endif

#endif
