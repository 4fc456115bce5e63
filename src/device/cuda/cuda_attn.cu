/*
 * cuda_attn.cu - attention over token-major K/V, the bits of device/cpu/cpu_attn.c.
 *
 * Grid: (shares of the chunks, KV heads x tiles x blocks of a tile, sequences). With one share a block walks all chunks
 * of its queries and merges as it goes; with more, every chunk leaves a part, and the last block of a tile to finish
 * joins them in order. The rotation in front may come along: then each block rotates its own queries, and the block
 * whose chunk holds a row's position makes that row's K and V.
 */
#include "device/cuda/attn_chunk.cuh"
#include "device/cuda/cuda_ops.cuh"
#include "device/cuda/cuda_start.cuh"
#include "device/cuda/cuda_tune.h"

/* Running state of the block's queries in shared memory. */
struct attn_run {
  float *m, *sum, *fa, *fb, *acc; /* [queries] each; acc [queries][e] */
};

DF_DEV attn_run run_of(const attn_layout &l, uint8_t *shared, uint32_t queries) {
  float *p = (float *)(shared + l.run);
  return {p, p + queries, p + 2 * queries, p + 3 * queries, (float *)(shared + l.acc)};
}

/* One query's chunk result joins the running state (its accumulators follow in chunk_accumulate). */
DF_DEV void run_join(const attn_run &s, uint32_t q, float2 now, bool first) {
  const float ma = s.m[q], m = first ? now.x : math_max2(ma, now.x);
  const float fa = ma == -INFINITY ? 0.0f : math_exp(ma - m), fb = now.x == -INFINITY ? 0.0f : math_exp(now.x - m);
  s.sum[q] = first ? now.y : fmaf(s.sum[q], fa, now.y * fb);
  s.m[q] = m;
  s.fa[q] = fa;
  s.fb[q] = fb;
}

/* Weighted values of the chunk: into the running accumulators, or (parts) into the chunk's part. */
template <bool F16, int QB>
DF_DEV void chunk_accumulate(const attn_args &a, const attn_block &t, const attn_layout &l, uint8_t *shared,
                             const attn_run &s, uint32_t chunk, bool first, bool parts) {
  const uint32_t e = a.op.head_dim, pairs = e / 2, units = pairs * ((t.n + QB - 1) / QB);
  for (uint32_t u = threadIdx.x; u < units; u += ATTN_THREADS) {
    const uint32_t pair = u % pairs, q0 = u / pairs * QB, n = math_min(t.n - q0, QB);
    float acc[QB][2];
    chunk_values<F16, QB>(l, shared, e, pair, q0, (1u << n) - 1, acc);
#pragma unroll
    for (int i = 0; i < QB; i++) {
      if ((uint32_t)i >= n) continue;
      float *to = parts ? attn_part(a, t, chunk, q0 + i) + ATTN_HEADER : s.acc + (size_t)(q0 + i) * e;
      float2 *at = (float2 *)to + pair;
      float2 v = {acc[i][0], acc[i][1]};
      if (!parts && !first) {
        const float fa = s.fa[q0 + i], fb = s.fb[q0 + i];
        v.x = fmaf(at->x, fa, v.x * fb);
        v.y = fmaf(at->y, fa, v.y * fb);
      }
      *at = v;
    }
  }
}

/* What a chunk needs to know of the batch alone. */
DF_DEV void attn_prepare(const attn_args &a, const attn_block &t, const attn_layout &l, uint8_t *shared,
                         uint32_t chunk) {
  chunk_slots(a, t, l, shared, chunk);
  chunk_seen(a, t, l, shared, chunk);
}

/* first: the block's first chunk, prepared already. */
template <bool F16, int QB>
DF_DEV void attn_chunk(const attn_args &a, const attn_block &t, const attn_layout &l, uint8_t *shared,
                       const attn_run &s, uint32_t chunk, bool first, bool parts) {
  const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  if (!first) attn_prepare(a, t, l, shared, chunk);
  port_block_sync();
  chunk_fetch<F16>(a, t, l, shared, first);
  port_copy_wait<0>();
  port_block_sync();
  if (a.fused) {
    chunk_rotate<F16>(a, t, l, shared, first);
    port_block_sync();
  }
  chunk_scores<F16, QB>(a, t, l, shared);
  port_block_sync();
  for (uint32_t q = warp; q < t.n; q += ATTN_WARPS) {
    const float2 now = chunk_softmax(l, shared, q, lane);
    if (lane != 0) continue;
    if (parts) {
      float *part = attn_part(a, t, chunk, q);
      part[0] = now.x;
      part[1] = now.y;
    } else {
      run_join(s, q, now, first);
    }
  }
  port_block_sync();
  chunk_accumulate<F16, QB>(a, t, l, shared, s, chunk, first, parts);
  port_block_sync(); /* K, V, weights are free for the next chunk */
}

/* out = acc / sum in the forms the next product wants. All threads; the state is complete. */
DF_DEV void attn_finish(const attn_args &a, const attn_block &t, const attn_run &s) {
  const uint32_t e = a.op.head_dim, quads = t.n * e / 4, all = (quads + 31) & ~31u;
  for (uint32_t i = threadIdx.x; i < all; i += ATTN_THREADS) {
    const uint32_t at = math_min(i, quads - 1), q = at / (e / 4), j = at % (e / 4) * 4;
    const float4 x = *(const float4 *)(s.acc + (size_t)q * e + j);
    const float sum = s.sum[q];
    float4 v = make_float4(0, 0, 0, 0);
    if (sum != 0.0f) v = make_float4(x.x / sum, x.y / sum, x.z / sum, x.w / sum);
    const uint32_t r = attn_row(t, q), k = attn_head(t, q) * e + j;
    if (a.op.out.f && i < quads) *(float4 *)(a.op.out.f + (size_t)r * a.op.out.k + k) = v;
    if (!a.op.out.q) continue;
    uint32_t stride;
    df_actq *row = math_act_row(a.op.out.q, a.op.out.k, r, a.op.batch->n_rows, &stride);
    math_quantize(v, i % 8, row + (size_t)(k / DF_QBLOCK) * stride, i < quads);
  }
}

/* Factors of chunks [c, c + ATTN_BATCH) for query q by one warp: every running maximum is a prefix, so a scan finds
 * them all. *m: the maximum in front of the batch, then behind it. */
DF_DEV void merge_factors(const attn_args &a, const attn_block &t, uint32_t c, uint32_t q, float *fa, float *fb,
                          float *m, uint32_t lane) {
  for (uint32_t i = lane; i < ATTN_BATCH; i += 32) {
    const bool on = c + i < t.c1;
    const float mine = on ? port_load(attn_part(a, t, c + i, q)) : -INFINITY;
    float v = mine;
    for (uint32_t d = 1; d < 32; d *= 2) {
      const float left = port_up(v, d);
      if (lane >= d) v = math_max2(left, v);
    }
    v = math_max2(*m, v);
    float before = port_up(v, 1);
    if (lane == 0) before = *m;
    fa[i] = before == -INFINITY ? 0.0f : math_exp(before - v);
    fb[i] = mine == -INFINITY ? 0.0f : math_exp(mine - v);
    *m = port_from(v, 31);
  }
}

/* Adds the parts of a batch of chunks to element quads (and, as one more unit a query, the sums). */
DF_DEV void merge_batch(const attn_args &a, const attn_block &t, const attn_run &s, uint32_t c, const float *fa,
                        const float *fb) {
  const uint32_t e = a.op.head_dim, per = e / 4 + 1, n = math_min(t.c1 - c, ATTN_BATCH);
  const size_t step = (size_t)a.op.tile_rows * t.group * (ATTN_HEADER + e);
  for (uint32_t u = threadIdx.x; u < t.n * per; u += ATTN_THREADS) {
    const uint32_t q = u / per, j = u % per * 4;
    const bool is_sum = j == e;
    const float *part = attn_part(a, t, c, q) + (is_sum ? 0 : ATTN_HEADER + j);
    float *const to = is_sum ? 0 : s.acc + (size_t)q * e + j;
    float4 v = is_sum ? make_float4(0, s.sum[q], 0, 0) : *(const float4 *)to;
    const float *const ua = fa + q * ATTN_BATCH, *const ub = fb + q * ATTN_BATCH;
#pragma unroll 4
    for (uint32_t i = 0; i < n; i++) {
      const float4 x = port_load4(part + i * step);
      const float f = ua[i], h = ub[i];
      if (c + i == t.c0) {
        v = x;
        continue;
      }
      v.x = fmaf(v.x, f, x.x * h);
      v.y = fmaf(v.y, f, x.y * h);
      v.z = fmaf(v.z, f, x.z * h);
      v.w = fmaf(v.w, f, x.w * h);
    }
    if (is_sum)
      s.sum[q] = v.y;
    else
      *(float4 *)to = v;
  }
}

/* Joins the parts of all chunks into the running state. */
DF_DEV void attn_merge(const attn_args &a, const attn_block &t, const attn_layout &l, uint8_t *shared,
                       const attn_run &s) {
  const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  float *fa = (float *)(shared + l.k), *fb = fa + a.queries * ATTN_BATCH;
  for (uint32_t q = threadIdx.x; q < t.n; q += ATTN_THREADS) s.m[q] = -INFINITY;
  port_block_sync();
  for (uint32_t c = t.c0; c < t.c1; c += ATTN_BATCH) {
    for (uint32_t q = warp; q < t.n; q += ATTN_WARPS) {
      float m = s.m[q];
      merge_factors(a, t, c, q, fa + q * ATTN_BATCH, fb + q * ATTN_BATCH, &m, lane);
      if (lane == 0) s.m[q] = m;
    }
    port_block_sync();
    merge_batch(a, t, s, c, fa, fb);
    port_block_sync();
  }
}

/* True in the block that is the last of its tile to arrive; all parts are visible to it then. */
DF_DEV bool attn_last(const attn_args &a, const attn_layout &l, uint8_t *shared, uint32_t n) {
  uint32_t *const last = (uint32_t *)(shared + l.last), *const count = a.counters + blockIdx.z * gridDim.y + blockIdx.y;
  port_fence();
  port_block_sync();
  if (threadIdx.x == 0) {
    *last = port_count(count) + 1 == n;
    if (*last) *count = 0;
    port_fence();
  }
  port_block_sync();
  return *last != 0;
}

template <bool F16, int QB>
__global__ void __launch_bounds__(ATTN_THREADS, 2) attn_kernel(const __grid_constant__ attn_args a) {
  DF_SHARED(shared);
  port_launch_next();
  attn_block t;
  const uint32_t share = blockIdx.x, shares = gridDim.x;
  const bool live = attn_find(a, &t) && t.c0 + share < t.c1;
  const attn_layout l = attn_place(a.queries, a.op.head_dim, F16, a.fresh_rows);
  if (live) {
    if (a.fused) chunk_tables(a, t, l, shared);
    attn_prepare(a, t, l, shared, t.c0 + share);
  }
  port_wait_previous();
  if (!live) return;
  const attn_run s = run_of(l, shared, a.queries);
  const bool parts = !(a.merge && (shares == 1 || t.c1 - t.c0 == 1));
  for (uint32_t c = t.c0 + share; c < t.c1; c += shares)
    attn_chunk<F16, QB>(a, t, l, shared, s, c, c == t.c0 + share, parts);
  if (parts) {
    if (!a.merge || !attn_last(a, l, shared, math_min(shares, t.c1 - t.c0))) return;
    attn_merge(a, t, l, shared, s);
  }
  attn_finish(a, t, s);
}

__global__ void __launch_bounds__(ATTN_THREADS) merge_kernel(const __grid_constant__ attn_args a) {
  DF_SHARED(shared);
  port_launch_next();
  attn_block t;
  const bool live = attn_find(a, &t);
  port_wait_previous();
  if (!live) return;
  const attn_layout l = attn_place(a.queries, a.op.head_dim, true, 0);
  const attn_run s = run_of(l, shared, a.queries);
  attn_merge(a, t, l, shared, s);
  attn_finish(a, t, s);
}

/* ---- launching ---- */

/* Shares of the chunks: as many blocks as keep the card busy. */
static uint32_t attn_shares(const df_cuda_env *env, const df_op_attn *a, uint32_t units) {
  const uint64_t blocks = (uint64_t)units * env->max_seqs, aim = (uint64_t)env->card->n_sm * df_cuda_tune.attn_blocks;
  if (!a->parts || blocks * sizeof(uint32_t) > DF_CUDA_COUNTER_BYTES || blocks >= aim) return 1;
  return math_min((uint32_t)(aim / blocks), math_max(a->max_chunks, 1));
}

bool df_cuda_attn_takes_rope(const df_op_attn *a, const df_op_rope_kv *rope) {
  return df_cuda_tune.rope_in_attn && a->n_tiles == 1 && a->tile_rows <= ATTN_FRESH && rope->q == a->q &&
         rope->q_ld == a->q_ld && rope->kv.k == a->kv.k && rope->kv.v == a->kv.v && rope->n_heads == a->n_heads &&
         rope->n_kv == a->n_kv && rope->head_dim == a->head_dim;
}

template <bool F16>
static int attn_start(const df_cuda_env *env, const start_shape &s, const attn_args &a) {
  return a.queries > 4 ? start_kernel(env, attn_kernel<F16, 8>, s, a) : start_kernel(env, attn_kernel<F16, 4>, s, a);
}

int df_cuda_attn_run(const df_cuda_env *env, df_op_kind kind, const df_op_attn *op, const df_op_rope_kv *rope,
                     bool merge) {
  attn_args a = {};
  a.op = *op;
  if (op->mask) {
    a.mask = op->mask->bytes;
    a.mask_start = op->mask->start;
  }
  if (rope) a.rope = *rope;
  a.fused = rope != 0;
  a.fresh_rows = rope ? math_min(op->tile_rows, env->max_rows) : 0;
  a.merge = merge;
  if (kind == DF_OP_ATTN_NAIVE) { /* its op has no tiles */
    a.op.tile_rows = 16;
    a.op.n_tiles = (env->max_rows + 15) / 16;
  }
  const uint32_t n = a.op.tile_rows * (op->n_heads / op->n_kv), most = n < 4 ? 4 : (n + 7) & ~7u;
  a.queries = math_min(n <= 4 ? 4 : most, ATTN_QUERIES);
  a.n_sub = (n + a.queries - 1) / a.queries;
  a.counters = (uint32_t *)env->scratch;
  const uint32_t units = op->n_kv * a.op.n_tiles * a.n_sub;
  if (kind == DF_OP_ATTN_MERGE) {
    const start_shape s = {dim3(1, units, env->max_seqs), ATTN_THREADS,
                           attn_place(a.queries, op->head_dim, true, 0).bytes, 0};
    return start_kernel(env, merge_kernel, s, a);
  }
  const bool f16 = op->kv.type == DF_KV_F16;
  const uint32_t shares = kind == DF_OP_ATTN_NAIVE ? 1 : attn_shares(env, &a.op, units);
  const start_shape s = {dim3(shares, units, env->max_seqs), ATTN_THREADS,
                         attn_place(a.queries, op->head_dim, f16, a.fresh_rows).bytes, 0};
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
  const void *const kernels[] = {(const void *)attn_kernel<true, 4>, (const void *)attn_kernel<true, 8>,
                                 (const void *)attn_kernel<false, 4>, (const void *)attn_kernel<false, 8>,
                                 (const void *)merge_kernel};
  for (const void *k : kernels) {
    const int e = df_cuda_prepare(k, shared_bytes);
    if (e) return e;
  }
  return 0;
}
