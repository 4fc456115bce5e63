/* device/cpu/cpu_ops.h - one function per op kind, and the worker scratch they share. Private to device/cpu. */
#ifndef DF_DEVICE_CPU_OPS_H
#define DF_DEVICE_CPU_OPS_H

#include "device/program.h"

enum {
  DF_ATTN_MAX_HEAD = 256,
  DF_ATTN_MAX_QUERIES = 128, /* query vectors of one attention chunk: tile rows x heads per KV head */
  DF_ATTN_PART = 16          /* floats in front of the accumulator in an attention part */
};

/* Private memory of one worker, cache-line aligned. */
typedef struct df_scratch {
  float *tile;     /* [16][DF_FFN_MAX_BLOCKS * 32] x 2, or one matmul chunk before it is added */
  float *parts;    /* 2 x [DF_ATTN_MAX_QUERIES][16 + DF_ATTN_MAX_HEAD] */
  uint8_t *blocks; /* K and V of one gathered chunk: 2 x 64 x DF_ATTN_MAX_HEAD floats */
} df_scratch;

typedef struct df_cpu_ctx {
  const df_kernels *k;
  df_scratch *scratch; /* [workers] */
} df_cpu_ctx;

typedef void (*df_op_run)(const df_cpu_ctx *ctx, const void *args, uint32_t chunk, uint32_t worker);

void df_run_embed(const df_cpu_ctx *ctx, const void *args, uint32_t chunk, uint32_t worker);
void df_run_norm(const df_cpu_ctx *ctx, const void *args, uint32_t chunk, uint32_t worker);
void df_run_quantize(const df_cpu_ctx *ctx, const void *args, uint32_t chunk, uint32_t worker);
void df_run_linear(const df_cpu_ctx *ctx, const void *args, uint32_t chunk, uint32_t worker);
void df_run_ffn_up(const df_cpu_ctx *ctx, const void *args, uint32_t chunk, uint32_t worker);
void df_run_rope_kv(const df_cpu_ctx *ctx, const void *args, uint32_t chunk, uint32_t worker);
void df_run_tap(const df_cpu_ctx *ctx, const void *args, uint32_t chunk, uint32_t worker);
void df_run_attn_naive(const df_cpu_ctx *ctx, const void *args, uint32_t chunk, uint32_t worker);
void df_run_attn_tile(const df_cpu_ctx *ctx, const void *args, uint32_t chunk, uint32_t worker);
void df_run_attn_split(const df_cpu_ctx *ctx, const void *args, uint32_t chunk, uint32_t worker);
void df_run_attn_merge(const df_cpu_ctx *ctx, const void *args, uint32_t chunk, uint32_t worker);
void df_run_recurrent(const df_cpu_ctx *ctx, const void *args, uint32_t chunk, uint32_t worker);
void df_run_argmax(const df_cpu_ctx *ctx, const void *args, uint32_t chunk, uint32_t worker);
void df_run_accept(const df_cpu_ctx *ctx, const void *args, uint32_t chunk, uint32_t worker);

/* Rows of the tile that holds row r, when n rows are live. */
static inline uint32_t df_tile_rows(uint32_t r, uint32_t n) {
  const uint32_t first = r & ~(uint32_t)(DF_TILE_ROWS - 1);
  return n - first < DF_TILE_ROWS ? n - first : DF_TILE_ROWS;
}

/* First block of row r and the distance between its blocks. */
static inline df_actq *df_act_row(const df_act *a, uint32_t r, uint32_t n, size_t *stride) {
  const uint32_t first = r & ~(uint32_t)(DF_TILE_ROWS - 1);
  *stride = df_tile_rows(r, n);
  return a->q + (size_t)first * (a->k / DF_QBLOCK) + (r - first);
}

#endif
