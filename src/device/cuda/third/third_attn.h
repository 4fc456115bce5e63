/*
 * device/cuda/third/third_attn.h - attention kernels of the package flashinfer-python behind C calls: FA2, the paged
 * prefill kernel of FlashInfer, and XQA, the decode kernel that TensorRT-LLM's MHA uses on Hopper. The package is
 * optional (CMake option DF_FLASHINFER); its sources are compiled from where they are, none of them is part of this
 * project. No CUDA header is needed to include this file.
 *
 * What goes in and out is this project's: q and out rows of f32 (out also as 8-bit blocks, with the rounding of
 * kernels.h), K and V token-major in f16, the page table of the batch. Inside, q and out pass through f16, and sums run
 * in an order that depends on the batch: results differ from the other leaves' by rounding.
 *
 * Memory: a workspace holds all of its device and pinned memory; plan and launch allocate nothing on the device (the
 * package's plan uses small vectors of the host).
 * Errors: 0, a cudaError_t, or DF_THIRD_FAILED; the workspace keeps one line about the last one. Nothing is thrown.
 * Threads: a workspace has one owner at a time and belongs to the card that is current in create; it makes that card
 * current wherever it calls. Passes that share it must be on one stream.
 */
#ifndef DF_DEVICE_CUDA_THIRD_ATTN_H
#define DF_DEVICE_CUDA_THIRD_ATTN_H

#include "device/cuda/cuda_kernels.h"
#include "device/paged.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
  DF_THIRD_FAILED = -1, /* the package refused; see the text */
  DF_XQA_MAX_GROUP = 8, /* query heads per KV head */
  DF_XQA_MAX_ROWS = 64, /* of one sequence in one pass */
  DF_XQA_BLOCK = 16     /* slots an entry of its page table stands for */
};

/* What a workspace is for. */
typedef struct df_third_shape {
  uint32_t n_heads, n_kv, head_dim;
  uint32_t max_rows, max_seqs;
  uint32_t max_blocks;  /* entries of the page table that a sequence can have */
  uint32_t block_slots; /* slots of an entry */
} df_third_shape;

/* ---- FA2 ---- */

typedef struct df_fa2 df_fa2;

/* FlashInfer's plan: how a pass is cut into work. Of a recorded program its kernels hold these values, so every later
 * plan for that program must come out equal. */
typedef struct df_fa2_plan {
  int64_t v[15]; /* the package's own */
  int64_t seqs;
} df_fa2_plan;

typedef struct df_fa2_api {
  /* Bytes of device memory that create takes. */
  size_t (*bytes)(const df_third_shape *s);
  int (*create)(const df_third_shape *s, df_fa2 **out);
  void (*free)(df_fa2 *w);
  /* Memory for masks; asked for when a program with one is emitted. */
  int (*want_mask)(df_fa2 *w);
  /* Arrays to be filled for the next plan. They are pinned; waits while the pass before the last is still being
   * uploaded from them. */
  int (*stage)(df_fa2 *w, df_paged *out);
  /* Plans a pass of `seqs` sequences (those behind the batch's without rows) as staged, and uploads it on `stream`.
   * rows: with `recorded` what the program is made for, else those there are. */
  int (*plan)(df_fa2 *w, const df_paged *staged, uint32_t seqs, uint32_t rows, bool recorded, df_fa2_plan *out,
              void *stream);
  /* Launches one layer's attention (and, with op->first, the packing of its mask). */
  int (*launch)(df_fa2 *w, const df_fa2_plan *plan, const df_op_extern *op, const df_cuda_env *env);
  /* The last error in words. w NULL: of create. */
  const char *(*text)(const df_fa2 *w, int code);
} df_fa2_api;

/* ---- XQA ---- */

typedef struct df_xqa df_xqa;

typedef struct df_xqa_api {
  size_t (*bytes)(const df_third_shape *s);
  int (*create)(const df_third_shape *s, df_xqa **out);
  void (*free)(df_xqa *w);
  /* Launches one layer's attention. rows: most rows that a sequence of this program has; 1 takes the kernel for plain
   * decoding. op->first prepares lengths and the mask of the block for all layers. */
  int (*launch)(df_xqa *w, uint32_t rows, const df_op_extern *op, const df_cuda_env *env);
  const char *(*text)(const df_xqa *w, int code);
} df_xqa_api;

/* NULL in builds without the package. */
const df_fa2_api *df_fa2_get(void);
const df_xqa_api *df_xqa_get(void);
/* Version of the package this build was made with, "" without. */
const char *df_third_version(void);

static inline bool df_third_has_head(uint32_t head_dim) { return head_dim == 64 || head_dim == 128; }

#ifdef __cplusplus
}
#endif

#endif
