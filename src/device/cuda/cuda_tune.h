/*
 * device/cuda/cuda_tune.h - numbers that move time and never bits. The defaults were measured on an H200; benchmarks
 * change them to look for better ones.
 *
 * Threads: read by launchers; change only while nothing is launched.
 */
#ifndef DF_DEVICE_CUDA_TUNE_H
#define DF_DEVICE_CUDA_TUNE_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct df_cuda_tuning {
  uint32_t cluster;         /* blocks that share a strip's k in a weight stream: 1, 2, 4; 0 = by cost */
  uint32_t early_bytes;     /* of its weights that a warp asks L2 for before it waits for the kernel in front */
  uint32_t ahead_bytes;     /* of the next product's weights that a kernel asks L2 for at its end */
  uint32_t norm_floats;     /* a norm of at most so many values goes into the product behind it */
  uint32_t quant_warps;     /* warps of a strip in quantised products: 1, 2, 4, 8; 0 = by size */
  uint32_t attn_blocks;     /* blocks that split attention aims at, per multiprocessor */
  uint32_t rope_in_attn;    /* 1: the rotation may go into attention */
  uint32_t persist;         /* 1: a program may run as one kernel */
  uint32_t persist_words;   /* most rows that stages hand on value by value, where blocks work alone */
  uint32_t persist_steps;   /* (rows - 1) * 32-blocks of quantised weights of a block that an op may cost; 0: any */
  uint32_t persist_cluster; /* blocks that share a strip's k there: 1, 4; 0 = by rows and shape */
  uint32_t persist_tiles;   /* of a slot of a warp's ring there; 0 = by shape */
} df_cuda_tuning;

extern df_cuda_tuning df_cuda_tune;

#ifdef __cplusplus
}
#endif

#endif
