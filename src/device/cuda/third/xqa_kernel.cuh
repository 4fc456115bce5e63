/*
 * device/cuda/third/xqa_kernel.cuh - the launchers of XQA's kernel, one for each set of its compile-time constants.
 * Private to device/cuda/third.
 */
#ifndef DF_DEVICE_CUDA_XQA_KERNEL_CUH
#define DF_DEVICE_CUDA_XQA_KERNEL_CUH

#include <cuda_runtime.h>
#include <stdint.h>

typedef struct xqa_call {
  uint32_t n_kv, group;
  uint32_t rows; /* most of a sequence; 1 for plain kernels */
  uint32_t seqs;
  uint32_t n_sub; /* blocks that share a sequence's positions */
  float scale;    /* of the scores, beside the 1 / sqrt(head) that the kernel brings */
  const void *q, *k, *v;
  void *out;
  const uint32_t *table; /* [seqs][max_blocks] */
  uint32_t max_blocks;
  const uint32_t *len, *first, *mask; /* third_lengths */
  uint32_t *counters;                 /* zero before and after; one for each block of the grid with x = 0 */
  void *parts;
  cudaStream_t stream;
} xqa_call;

typedef cudaError_t (*xqa_prepare_fn)(void); /* once per device, not while a stream is captured */
typedef cudaError_t (*xqa_launch_fn)(const xqa_call *c);

/* Query rows of one block of the kernel that takes several rows, and positions of a block's step. */
enum { XQA_BLOCK_ROWS = 32, XQA_BLOCK_POSITIONS = 256 };

#define XQA_DECLARE(head, form)                  \
  cudaError_t xqa_prepare_##head##_##form(void); \
  cudaError_t xqa_launch_##head##_##form(const xqa_call *c);
#define XQA_FORMS(head, X) \
  X(head, spec) X(head, 1) X(head, 2) X(head, 3) X(head, 4) X(head, 5) X(head, 6) X(head, 7) X(head, 8)

XQA_FORMS(64, XQA_DECLARE)
XQA_FORMS(128, XQA_DECLARE)

#endif
