/*
 * device/cuda/cuda_ops.cuh - what the .cu files of this folder call in each other. Private to device/cuda.
 */
#ifndef DF_DEVICE_CUDA_OPS_CUH
#define DF_DEVICE_CUDA_OPS_CUH

#include "device/cuda/cuda_kernels.h"

/* Lets a kernel use the whole shared memory of a block, and leaves the split between L1 and shared memory the same for
 * all kernels, so that neighbours in a stream fit on one multiprocessor together. */
int df_cuda_prepare(const void *kernel, size_t shared_bytes);

/* Once per device: each raises its kernels' limits. */
int df_cuda_rows_init(size_t shared_bytes);
int df_cuda_mma_init(size_t shared_bytes);
int df_cuda_gemm_init(size_t shared_bytes);
int df_cuda_quant_init(size_t shared_bytes);
int df_cuda_f8_init(size_t shared_bytes);
int df_cuda_attn_init(size_t shared_bytes);
int df_cuda_persist_init(size_t shared_bytes);
int df_cuda_persist_quant_init(size_t shared_bytes);
/* Fills card->clusters. */
int df_cuda_mma_clusters(df_cuda_card *card);

/* out = silu(g) * u, rows of g and u ld apart, out.k values each (a multiple of 4). */
int df_cuda_silu(const df_cuda_env *env, const float *g, const float *u, size_t ld, df_act out, const uint32_t *n_rows);

/* Up to two stretches of weights that the next product will read first: hints for L2. */
typedef struct df_cuda_ahead {
  const uint8_t *p[2];
  uint32_t bytes[2];
} df_cuda_ahead;

/* Products of BF16 or F16 parts (all of one pack) for up to 16 rows. norm: rows are normed on the way in (NULL: x.f is
 * read); its own output is written too. */
int df_cuda_mma_linear(const df_cuda_env *env, const df_op_linear *a, const df_op_norm *norm,
                       const df_cuda_ahead *ahead);
int df_cuda_mma_ffn_up(const df_cuda_env *env, const df_op_ffn_up *a, const df_op_norm *norm,
                       const df_cuda_ahead *ahead);
/* Whether a norm may run inside the product that reads x and writes y: same rows, nothing written over its input
 * meanwhile. */
bool df_cuda_norm_goes_in(const df_cuda_env *env, const df_op_norm *a, const df_act *x, const uint32_t *n_rows,
                          const float *y);
/* True when the kernel above can take the norm of max_rows rows of k values along. */
bool df_cuda_mma_takes_norm(const df_cuda_env *env, uint32_t k);
/* What a product over w (and u, its partner in an ffn_up) wants in L2 first. */
void df_cuda_mma_ahead(const df_cuda_env *env, const df_weights *w, const df_weights *u, df_cuda_ahead *out);

/* The same products for any number of rows; scratch holds the activations in fragment order. */
int df_cuda_gemm_linear(const df_cuda_env *env, const df_op_linear *a);
int df_cuda_gemm_ffn_up(const df_cuda_env *env, const df_op_ffn_up *a);
size_t df_cuda_gemm_scratch(uint32_t k, uint32_t max_rows);

/* Quantised and F32 parts, in any mixture, any number of rows. */
int df_cuda_quant_linear(const df_cuda_env *env, const df_op_linear *a);
int df_cuda_f32_linear(const df_cuda_env *env, const df_op_linear *a);

/* F8 parts, any number of rows: sums in an order of their own (cuda_f8.cu). */
int df_cuda_f8_linear(const df_cuda_env *env, const df_op_linear *a);

/* The program of env->list, and how many of a program's ops it is made of. */
int df_cuda_list_launch(const df_cuda_env *env);
uint32_t df_cuda_list_ops(const df_op *ops, uint32_t n);

/* Attention with the rotation in front of it (rope NULL: none); `merge`: the parts are joined at once. */
int df_cuda_attn_run(const df_cuda_env *env, df_op_kind kind, const df_op_attn *a, const df_op_rope_kv *rope,
                     bool merge);
/* Whether the rotation may go into the attention op that follows it. */
bool df_cuda_attn_takes_rope(const df_op_attn *a, const df_op_rope_kv *rope);

#endif
