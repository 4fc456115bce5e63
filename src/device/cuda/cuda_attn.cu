/*
 * cuda_attn.cu - attention over token-major K/V, the bits of device/cpu/cpu_attn.c.
 *
 * Grid: (sequences x KV heads x tiles x blocks of a tile, shares of the chunks). With one share a block walks all
 * chunks of its queries and merges as it goes; with more, every chunk leaves a part, and the last block of a tile to
 * finish joins them in order. The rotation in front may come along: then each block rotates its own queries, and the
 * block whose chunk holds a row's position makes that row's K and V.
 */
#include "device/cuda/attn_run.cuh"
#include "device/cuda/cuda_ops.cuh"
#include "device/cuda/cuda_start.cuh"
#include "device/cuda/cuda_tune.h"

template <bool F16, int QB>
__global__ void __launch_bounds__(ATTN_THREADS, 2) attn_kernel(const __grid_constant__ attn_args a) {
  DF_SHARED(shared);
  port_launch_next();
  attn_block t;
  const attn_layout l = attn_place(a.queries, a.op.head_dim, F16, a.fresh_rows);
  const bool live = attn_begin(a, l, shared, blockIdx.x, blockIdx.y, &t);
  port_wait_previous();
  if (live) attn_share<F16, QB>(a, t, l, shared, blockIdx.y);
}

__global__ void __launch_bounds__(ATTN_THREADS) merge_kernel(const __grid_constant__ attn_args a) {
  DF_SHARED(shared);
  port_launch_next();
  attn_block t;
  const bool live = attn_find(a, blockIdx.x, &t);
  port_wait_previous();
  if (!live) return;
  const attn_layout l = attn_place(a.queries, a.op.head_dim, true, 0);
  const attn_run s = run_of(l, shared, a.queries);
  attn_merge(a, t, l, shared, s);
  attn_finish(a, t, s);
}

/* ---- launching ---- */

/* Shares of the chunks: as many blocks as keep the card busy. */
static uint32_t attn_shares(const df_cuda_env *env, const df_op_attn *a, uint32_t blocks) {
  const uint32_t aim = env->card->n_sm * df_cuda_tune.attn_blocks;
  if (!a->parts || blocks * sizeof(uint32_t) > DF_CUDA_COUNTER_BYTES || blocks >= aim) return 1;
  return math_min(aim / blocks, math_max(a->max_chunks, 1));
}

bool df_cuda_attn_takes_rope(const df_op_attn *a, const df_op_rope_kv *rope) {
  return df_cuda_tune.rope_in_attn && a->n_tiles == 1 && a->tile_rows <= ATTN_FRESH && rope->q == a->q &&
         rope->q_ld == a->q_ld && rope->kv.k == a->kv.k && rope->kv.v == a->kv.v && rope->n_heads == a->n_heads &&
         rope->n_kv == a->n_kv && rope->head_dim == a->head_dim;
}

template <bool F16>
static int attn_start(const df_cuda_env *env, const start_shape &s, const attn_args &a) {
  if (a.queries <= 4) return start_kernel(env, attn_kernel<F16, 1>, s, a);
  if (a.queries <= 8) return start_kernel(env, attn_kernel<F16, 2>, s, a);
  return start_kernel(env, attn_kernel<F16, 8>, s, a);
}

/* The kernel's arguments; number of blocks, without the shares. */
uint32_t df_cuda_attn_plan(const df_cuda_env *env, df_op_kind kind, const df_op_attn *op, const df_op_rope_kv *rope,
                           bool merge, attn_args *a) {
  *a = {};
  a->op = *op;
  if (op->mask) {
    a->mask = op->mask->bytes;
    a->mask_start = op->mask->start;
  }
  if (rope) a->rope = *rope;
  a->fused = rope != 0;
  a->fresh_rows = rope ? math_min(op->tile_rows, env->max_rows) : 0;
  a->merge = merge;
  if (kind == DF_OP_ATTN_NAIVE) { /* its op has no tiles */
    a->op.tile_rows = 16;
    a->op.n_tiles = (env->max_rows + 15) / 16;
  }
  const uint32_t rows = math_min(a->op.tile_rows, env->max_rows), n = rows * (op->n_heads / op->n_kv);
  a->queries = n <= 4 ? 4 : math_min((n + 7) & ~7u, ATTN_QUERIES);
  a->n_sub = (n + a->queries - 1) / a->queries;
  a->counters = (uint32_t *)env->scratch;
  const uint32_t blocks = op->n_kv * a->op.n_tiles * a->n_sub * env->max_seqs;
  a->shares = kind == DF_OP_ATTN_NAIVE || kind == DF_OP_ATTN_MERGE ? 1 : attn_shares(env, &a->op, blocks);
  return blocks;
}

int df_cuda_attn_run(const df_cuda_env *env, df_op_kind kind, const df_op_attn *op, const df_op_rope_kv *rope,
                     bool merge) {
  attn_args a;
  const uint32_t blocks = df_cuda_attn_plan(env, kind, op, rope, merge, &a);
  const bool f16 = op->kv.type == DF_KV_F16, only_merge = kind == DF_OP_ATTN_MERGE;
  const attn_layout l = attn_place(a.queries, op->head_dim, f16 || only_merge, a.fresh_rows);
  const start_shape s = {dim3(blocks, a.shares), ATTN_THREADS, l.bytes, 0};
  if (only_merge) return start_kernel(env, merge_kernel, s, a);
  return f16 ? attn_start<true>(env, s, a) : attn_start<false>(env, s, a);
}

extern "C" int df_cuda_attn(const df_cuda_env *env, df_op_kind kind, const df_op_attn *a) {
  return df_cuda_attn_run(env, kind, a, 0, kind == DF_OP_ATTN_TILE || kind == DF_OP_ATTN_NAIVE);
}

extern "C" size_t df_cuda_attn_parts_bytes(const df_op_attn *a, uint32_t max_seqs) {
  return (size_t)max_seqs * a->n_kv * a->n_tiles * a->max_chunks * a->tile_rows * (a->n_heads / a->n_kv) *
         (ATTN_HEADER + a->head_dim) * sizeof(float);
}

int df_cuda_attn_init(size_t shared_bytes) {
  const void *const kernels[] = {(const void *)attn_kernel<true, 1>,  (const void *)attn_kernel<true, 2>,
                                 (const void *)attn_kernel<true, 8>,  (const void *)attn_kernel<false, 1>,
                                 (const void *)attn_kernel<false, 2>, (const void *)attn_kernel<false, 8>,
                                 (const void *)merge_kernel};
  for (const void *k : kernels) {
    const int e = df_cuda_prepare(k, shared_bytes);
    if (e) return e;
  }
  return 0;
}
