/*
 * xqa_kernel.cu - XQA's kernel for one set of constants, compiled once for each: HEAD_ELEMS (64, 128), SPEC_DEC (0: one
 * row a sequence, of HEAD_GRP_SIZE query heads per KV head; 1: several rows, any group). f16, pages of 16.
 *
 * The package's file has its own launcher, which asks the card for the kernel's shared memory when the program is
 * loaded. A program must start without a card, so the two calls are taken out while the file is read; what they would
 * have done is in xqa_prepare.
 */
#include <cuda_runtime.h>

#include "device/cuda/third/xqa_kernel.cuh"

#define BEAM_WIDTH 1
#define USE_INPUT_KV 0
#define USE_CUSTOM_BARRIER 1
#define TOKENS_PER_PAGE 16
#define INPUT_FP16 1
#define CACHE_ELEM_ENUM 0
#define SLIDING_WINDOW 0
#define LOW_PREC_OUTPUT 0
#if SPEC_DEC
#define XQA_FORM spec
#else
#define XQA_FORM HEAD_GRP_SIZE
#endif
#define XQA_NAME3(what, head, form) xqa_##what##_##head##_##form
#define XQA_NAME2(what, head, form) XQA_NAME3(what, head, form)
#define XQA_NAME(what) XQA_NAME2(what, HEAD_ELEMS, XQA_FORM)

/* Its launchers have the same names in all objects. */
#define launchMHA XQA_NAME(unused_a)
#define launchMHAFlashInfer XQA_NAME(unused_b)
#define cudaMemcpyFromSymbol(to, symbol, n) (*(to) = 0, cudaSuccess)
#define cudaFuncSetAttribute(kernel, attribute, value) cudaSuccess
#include <mha.cu>
#undef cudaMemcpyFromSymbol
#undef cudaFuncSetAttribute

static_assert(ctaTile.x == XQA_BLOCK_POSITIONS, "positions of a step");
#if SPEC_DEC
static_assert(rowsPerBlock == XQA_BLOCK_ROWS, "rows of a block");
#endif

static uint32_t g_shared; /* bytes of a block, as the device code has it */

cudaError_t XQA_NAME(prepare)(void) {
  const cudaError_t e = cudaMemcpyFromSymbol(&g_shared, smemSize, sizeof g_shared);
  if (e != cudaSuccess) return e;
  return cudaFuncSetAttribute(kernel_mha, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)g_shared);
}

cudaError_t XQA_NAME(launch)(const xqa_call *c) {
  GMemCacheHead *const k = (GMemCacheHead *)c->k, *const v = (GMemCacheHead *)c->v;
  const KVCacheList<true> cache = {k, v, (const KVCachePageIndex *)c->table, c->len, c->max_blocks};
  const uint32_t page = TOKENS_PER_PAGE * c->n_kv; /* strides in heads */
  cudaLaunchConfig_t at = {};
  at.blockDim = dim3(warp_size * ctaShapeInWarps.x, ctaShapeInWarps.y, ctaShapeInWarps.z);
  at.dynamicSmemBytes = g_shared;
  at.stream = c->stream;
#if SPEC_DEC
  at.gridDim = dim3(c->n_sub, c->n_kv * divUp(c->rows * c->group, rowsPerBlock), c->seqs);
  return cudaLaunchKernelEx(&at, kernel_mha, c->rows, c->n_kv, c->group, c->first, c->scale, (const float *)nullptr,
                            (OutputHead *)c->out, (const InputHead *)c->q, (const MaskType *)c->mask,
                            (const float *)nullptr, cache, c->seqs, 1.0f, (const float *)nullptr, page, c->n_kv, 1u,
                            c->counters, c->parts);
#else
  at.gridDim = dim3(c->n_sub, c->n_kv, c->seqs);
  return cudaLaunchKernelEx(&at, kernel_mha, c->n_kv, c->scale, (const float *)nullptr, (OutputHead *)c->out,
                            (const InputHead *)c->q, (const float *)nullptr, cache, c->seqs, 1.0f,
                            (const float *)nullptr, page, c->n_kv, 1u, c->counters, c->parts);
#endif
}
