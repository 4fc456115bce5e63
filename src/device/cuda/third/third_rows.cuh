/*
 * device/cuda/third/third_rows.cuh - what lies between this project's rows and the package's kernels. Private to
 * device/cuda/third. All are launches on env->stream; 0 or a cudaError_t.
 */
#ifndef DF_DEVICE_CUDA_THIRD_ROWS_CUH
#define DF_DEVICE_CUDA_THIRD_ROWS_CUH

#include "device/cuda/third/third_attn.h"

/* Queries of the live rows to f16, [row][heads * head_dim] without gaps. */
int third_q(const df_cuda_env *env, const df_op_extern *op, uint16_t *q);
/* Results of the live rows from f16, in the forms of the op's out. */
int third_out(const df_cuda_env *env, const df_op_extern *op, const uint16_t *o);
/* The captured mask as bits; sequence s from bits + mask_start[s]. */
int third_mask(const df_cuda_env *env, const df_op_extern *op, const int32_t *mask_start, uint8_t *bits);

/* XQA's view of a batch for all env->max_seqs sequences, those that are not live without rows. len: positions, at least
 * the rows and at least 1. first [max_seqs + 1]: first row. mask [row][words]: bit i tells whether the row sees row i
 * of its sequence. */
typedef struct third_lengths {
  uint32_t *len, *first, *mask;
  uint32_t words;
} third_lengths;

int third_lengths_of(const df_cuda_env *env, const df_op_extern *op, third_lengths out);

#endif
