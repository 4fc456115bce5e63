/*
 * cuda_rows.cu - row-wise ops: embedding, norm, quantisation, rotation with the K/V write, taps, argmax,
 * acceptance, SwiGLU.
 * One block works on one row or a share of it; n_rows is read on the device.
 */
#include "device/cuda/cuda_head.cuh"
#include "device/cuda/cuda_math.cuh"
#include "device/cuda/cuda_ops.cuh"
#include "device/cuda/cuda_start.cuh"
#include "device/cuda/rows_block.cuh"

enum { THREADS = ROWS_THREADS, ACCEPT_THREADS = 32 * DF_TILE_ROWS };

/* ---- embedding ---- */

__global__ void __launch_bounds__(THREADS) embed_kernel(const df_weights w, const df_op_embed a) {
  port_launch_next();
  const uint32_t r = blockIdx.x, end = math_min((blockIdx.y + 1) * EMBED_SPAN, w.k);
  port_wait_previous();
  if (r < *a.n_rows) rows_embed(w, a, r, blockIdx.y * EMBED_SPAN, end);
}

extern "C" int df_cuda_embed(const df_cuda_env *env, const df_op_embed *a) {
  const dim3 grid(env->max_rows, (a->table->k + EMBED_SPAN - 1) / EMBED_SPAN);
  return start_kernel(env, embed_kernel, start_shape{grid, THREADS, 0, 0}, *a->table, *a);
}

/* ---- norm ---- */

/* n floats to shared memory, asynchronously where their address allows it. */
DF_DEV void fetch_row(float *to, const float *from, uint32_t n) {
  if (n % 4 == 0 && (uintptr_t)from % 16 == 0) {
    for (uint32_t i = 4 * threadIdx.x; i < n; i += 4 * THREADS) port_copy16(to + i, from + i);
  } else {
    for (uint32_t i = threadIdx.x; i < n; i += THREADS) to[i] = port_load(from + i);
  }
}

/* The row's values x in the forms of out; factor NULL-free: w NULL leaves x as it is (plain quantisation). */
DF_DEV void emit_row(const df_act &out, uint32_t row, uint32_t n_rows, const float *x, const float *w, float factor) {
  const uint32_t k = out.k;
  if (!out.q) {
    for (uint32_t i = threadIdx.x; i < k; i += THREADS) out.f[(size_t)row * k + i] = (x[i] * factor) * w[i];
    return;
  }
  uint32_t stride;
  df_actq *q = math_act_row(out.q, k, row, n_rows, &stride);
  const uint32_t quads = k / 4, all = (quads + 31) & ~31u;
  for (uint32_t i = threadIdx.x; i < all; i += THREADS) {
    const uint32_t at = 4 * math_min(i, quads - 1);
    float4 v = make_float4(x[at], x[at + 1], x[at + 2], x[at + 3]);
    if (w)
      v = make_float4((v.x * factor) * w[at], (v.y * factor) * w[at + 1], (v.z * factor) * w[at + 2],
                      (v.w * factor) * w[at + 3]);
    if (out.f && w && i < quads) *(float4 *)(out.f + (size_t)row * k + at) = v;
    math_quantize(v, i % 8, q + (size_t)(i / 8) * stride, i < quads);
  }
}

__global__ void __launch_bounds__(THREADS) norm_kernel(const df_op_norm a) {
  DF_SHARED(shared);
  const uint32_t k = a.out.k, r = blockIdx.x, ld = (k + 3) & ~3u;
  float *x = (float *)shared, *w = x + ld, *factor = w + ld;
  port_launch_next();
  fetch_row(w, a.w, k); /* constant: may come early */
  port_wait_previous();
  const uint32_t n = *a.n_rows;
  if (r < n) fetch_row(x, a.x + (size_t)(a.row_map ? a.row_map[r] : r) * k, k);
  port_copy_commit();
  port_copy_wait<0>();
  port_block_sync();
  if (r >= n) return;
  if (threadIdx.x < 32) {
    const float f = math_rms_factor(x, k, a.eps, threadIdx.x % 16);
    if (threadIdx.x == 0) *factor = f;
  }
  port_block_sync();
  emit_row(a.out, r, n, x, w, *factor);
}

static size_t norm_shared(uint32_t k) { return (2 * (((size_t)k + 3) & ~(size_t)3) + 4) * sizeof(float); }

extern "C" int df_cuda_norm(const df_cuda_env *env, const df_op_norm *a) {
  return start_kernel(env, norm_kernel, start_shape{dim3(env->max_rows), THREADS, norm_shared(a->out.k), 0}, *a);
}

/* ---- quantisation, SwiGLU ---- */

__global__ void __launch_bounds__(THREADS) quantize_kernel(const df_op_quantize a) {
  DF_SHARED(shared);
  float *x = (float *)shared;
  const uint32_t r = blockIdx.x;
  port_launch_next();
  port_wait_previous();
  const uint32_t n = *a.n_rows;
  if (r >= n) return;
  fetch_row(x, a.x + (size_t)(a.row_map ? a.row_map[r] : r) * a.out.k, a.out.k);
  port_copy_commit();
  port_copy_wait<0>();
  port_block_sync();
  df_act out = a.out;
  out.f = 0;
  emit_row(out, r, n, x, 0, 0);
}

extern "C" int df_cuda_quantize(const df_cuda_env *env, const df_op_quantize *a) {
  const size_t shared = (((size_t)a->out.k + 3) & ~(size_t)3) * sizeof(float);
  return start_kernel(env, quantize_kernel, start_shape{dim3(env->max_rows), THREADS, shared, 0}, *a);
}

/* out = silu(g) * u over rows of n values that lie ld apart; blockIdx.y: a span of 4 * THREADS values. */
__global__ void __launch_bounds__(THREADS)
    silu_kernel(const float *g, const float *u, size_t ld, df_act out, const uint32_t *n_rows) {
  port_launch_next();
  port_wait_previous();
  const uint32_t r = blockIdx.x, live = *n_rows, quads = out.k / 4;
  if (r >= live) return;
  const uint32_t i = blockIdx.y * THREADS + threadIdx.x, at = 4 * math_min(i, quads - 1);
  const float4 a = port_load4(g + r * ld + at), b = port_load4(u + r * ld + at);
  const float4 v =
      make_float4(math_silu_mul(a.x, b.x), math_silu_mul(a.y, b.y), math_silu_mul(a.z, b.z), math_silu_mul(a.w, b.w));
  if (out.f && i < quads) *(float4 *)(out.f + (size_t)r * out.k + at) = v;
  if (!out.q) return;
  uint32_t stride;
  df_actq *q = math_act_row(out.q, out.k, r, live, &stride);
  math_quantize(v, i % 8, q + (size_t)(i / 8) * stride, i < quads);
}

int df_cuda_silu(const df_cuda_env *env, const float *g, const float *u, size_t ld, df_act out,
                 const uint32_t *n_rows) {
  const dim3 grid(env->max_rows, (out.k / 4 + THREADS - 1) / THREADS);
  return start_kernel(env, silu_kernel, start_shape{grid, THREADS, 0, 0}, g, u, ld, out, n_rows);
}

/* ---- taps ---- */

__global__ void __launch_bounds__(THREADS) tap_kernel(const df_op_tap a) {
  port_launch_next();
  port_wait_previous();
  const uint32_t r = blockIdx.x;
  if (r >= *a.n_rows) return;
  rows_tap(a, r, blockIdx.y * THREADS + threadIdx.x, gridDim.y * THREADS);
}

extern "C" int df_cuda_tap(const df_cuda_env *env, const df_op_tap *a) {
  const dim3 grid(env->max_rows, (a->k + 4 * THREADS - 1) / (4 * THREADS));
  return start_kernel(env, tap_kernel, start_shape{grid, THREADS, 0, 0}, *a);
}

/* ---- argmax ---- */

__global__ void __launch_bounds__(THREADS) argmax_kernel(const df_op_argmax a) {
  DF_SHARED(shared);
  port_launch_next();
  port_wait_previous();
  if (blockIdx.y < *a.n_rows) rows_argmax(a, blockIdx.x, blockIdx.y, shared);
}

extern "C" int df_cuda_argmax(const df_cuda_env *env, const df_op_argmax *a) {
  const dim3 grid(a->segments, env->max_rows);
  return start_kernel(env, argmax_kernel, start_shape{grid, THREADS, ROWS_SHARED, 0}, *a);
}

/* ---- acceptance ---- */

/* A block a chunk of the op, a warp a row. What the host reads is written by one warp: it crosses the bus in few
 * pieces.
 */
__global__ void __launch_bounds__(ACCEPT_THREADS) accept_kernel(const df_op_accept a, uint32_t rows) {
  DF_SHARED(shared);
  int32_t *const token = (int32_t *)shared, *const drafted = token + ACCEPT_THREADS / 32;
  const uint32_t n = rows - 1, lane = threadIdx.x % 32, i = threadIdx.x / 32;
  const uint32_t chunk = blockIdx.x, r0 = chunk * rows;
  port_launch_next();
  port_wait_previous();
  const uint32_t live = r0 < *a.n_rows ? math_min(rows, *a.n_rows - r0) : 0;
  const bool drafts = a.drafts.best.value && chunk < *a.drafts.n_live;
  if (i < live) {
    const int32_t best = rows_best(a.best, r0 + i);
    if (lane == 0) token[i] = best;
  }
  if (drafts && i < n) {
    const int32_t draft = rows_best(a.drafts.best, chunk * n + i);
    if (lane == 0) drafted[i] = draft;
  }
  port_block_sync();
  if (i != 0) return;
  if (lane < live) a.token[r0 + lane] = token[lane];
  if (!drafts) return;
  if (lane < n) a.drafted[(size_t)chunk * n + lane] = drafted[lane];
  uint32_t stand = 0;
  while (stand < n && drafted[stand] == token[stand]) stand++;
  if (lane == 0) a.accepted[chunk] = stand;
}

extern "C" int df_cuda_accept(const df_cuda_env *env, const df_op_accept *a) {
  const uint32_t rows = df_accept_rows(a);
  const dim3 grid((env->max_rows + rows - 1) / rows);
  return start_kernel(env, accept_kernel, start_shape{grid, ACCEPT_THREADS, 2 * ACCEPT_THREADS / 32 * 4, 0}, *a, rows);
}

/* ---- rotation and K/V write ---- */

/* One warp, one row and head: queries first, then K and V heads. */
__global__ void __launch_bounds__(THREADS) rope_kv_kernel(const df_op_rope_kv a) {
  DF_SHARED(shared);
  const uint32_t e = a.head_dim, lane = threadIdx.x % 32, warp = threadIdx.x / 32, r = blockIdx.x;
  float *x = (float *)shared + (size_t)warp * e;
  port_launch_next();
  port_wait_previous();
  const uint32_t n_q = a.q ? a.n_heads : 0, unit = blockIdx.y * (THREADS / 32) + warp;
  if (r >= *a.n_rows || unit >= n_q + a.n_kv) return;
  const size_t at = (size_t)a.pos[r] * (e / 2);
  if (unit < n_q) {
    float *q = a.q + r * a.q_ld + (size_t)unit * e;
    head_load(q, e, lane, x);
    head_rotate(x, a.q_norm, a.eps, a.cos + at, a.sin + at, e, lane);
    for (uint32_t i = lane; i < e; i += 32) q[i] = x[i];
    return;
  }
  const uint32_t g = unit - n_q, slot = a.slot[r];
  float *k = a.k + r * a.k_ld + (size_t)g * e;
  head_load(k, e, lane, x);
  head_rotate(x, a.k_norm, a.eps, a.cos + at, a.sin + at, e, lane);
  for (uint32_t i = lane; i < e; i += 32) k[i] = x[i];
  if (slot < math_max(a.kv.block_slots, 1)) return; /* the sink: rows that pad a batch */
  const float *v = a.v + r * a.v_ld + (size_t)g * e;
  const size_t to = ((size_t)slot * a.n_kv + g) * e;
  for (uint32_t i = lane; i < e; i += 32) {
    head_store(a.kv.k, a.kv.type, to + i, x[i]);
    head_store(a.kv.v, a.kv.type, to + i, port_load(v + i));
  }
}

extern "C" int df_cuda_rope_kv(const df_cuda_env *env, const df_op_rope_kv *a) {
  const uint32_t warps = THREADS / 32, units = (a->q ? a->n_heads : 0) + a->n_kv;
  const dim3 grid(env->max_rows, (units + warps - 1) / warps);
  return start_kernel(env, rope_kv_kernel, start_shape{grid, THREADS, warps * a->head_dim * sizeof(float), 0}, *a);
}

int df_cuda_rows_init(size_t shared_bytes) {
  const int s = df_cuda_prepare((const void *)norm_kernel, shared_bytes);
  return s ? s : df_cuda_prepare((const void *)quantize_kernel, shared_bytes);
}
