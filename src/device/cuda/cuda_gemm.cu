/*
 * cuda_gemm.cu - BF16 and F16 products of many rows: tiles of 128 outputs x 128 rows, the sums of fragment.h.
 *
 * First the activations are rounded and laid out as B operands in scratch, [8 rows][16 k] a tile of 256 bytes, so that
 * both operands stream through shared memory in 16-byte copies. Each of 8 warps owns 32 outputs x 64 rows and keeps
 * three sets of sums: of the part of k at hand, of its pair, of all pairs before. Blocks of the same weights are
 * neighbours in the grid: what one reads the others find in L2.
 */
#include "device/cuda/cuda_math.cuh"
#include "device/cuda/cuda_ops.cuh"
#include "device/cuda/cuda_start.cuh"
#include "device/fragment.h"

enum {
  THREADS = 256,
  TILE_ROWS = 128,
  TILE_STRIPS = 8,
  WARP_GROUPS = 8, /* of 8 rows */
  SUMS = 2 * WARP_GROUPS * 4,
  STAGES = 5,
  STAGE_K = 4, /* tiles of k */
  B_BYTES = 256,
  STAGE_A = STAGE_K * TILE_STRIPS * DF_FRAG_BYTES,
  STAGE_B = STAGE_K * TILE_ROWS / 8 * B_BYTES,
  STAGE_BYTES = STAGE_A + STAGE_B
};

typedef struct gemm_part {
  const uint8_t *w;
  const float *bias;
  float *y;
  size_t ld;
  uint32_t n, strip0;
} gemm_part;

typedef struct gemm_args {
  const uint8_t *b; /* [rows / 8][tiles][256] */
  const uint32_t *n_rows;
  uint32_t k, strips, n_parts;
  bool add;
  gemm_part part[DF_LINEAR_PARTS];
} gemm_args;

/* ---- activations into operands ---- */

template <bool F16>
__global__ void __launch_bounds__(256)
    operand_kernel(const float *x, const uint32_t *n_rows, uint32_t k, uint8_t *out) {
  port_launch_next();
  port_wait_previous();
  /* one thread: four k of one row; a warp: one tile of 8 rows */
  const uint32_t tiles = df_frag_tiles(k), live = *n_rows;
  const uint32_t group = blockIdx.y, t = blockIdx.x * 8 + threadIdx.x / 32, lane = threadIdx.x % 32;
  if (8 * group >= live || t >= tiles) return;
  const uint32_t r = 8 * group + lane / 4, at = t * DF_FRAG_K + 4 * (lane % 4);
  float v[4];
  for (uint32_t i = 0; i < 4; i++) v[i] = r < live && at + i < k ? port_load(x + (size_t)r * k + at + i) : 0.0f;
  const uint2 b = F16 ? make_uint2(port_pack_f16(v[0], v[1]), port_pack_f16(v[2], v[3]))
                      : make_uint2(port_pack_bf16(v[0], v[1]), port_pack_bf16(v[2], v[3]));
  *(uint2 *)(out + ((size_t)group * tiles + t) * B_BYTES + 8 * lane) = b;
}

/* ---- the product ---- */

/* Weights of strip i (0..7) of this block, NULL behind the end. ffn_up: gate and up strips take turns. */
template <bool PAIR>
DF_DEV const uint8_t *gemm_strip(const gemm_args &a, uint32_t i) {
  const size_t strip_bytes = (size_t)df_frag_tiles(a.k) * DF_FRAG_BYTES;
  if (PAIR) {
    const uint32_t s = blockIdx.y * (TILE_STRIPS / 2) + i / 2;
    return s < a.strips ? a.part[i % 2].w + s * strip_bytes : 0;
  }
  const uint32_t s = blockIdx.y * TILE_STRIPS + i;
  if (s >= a.strips) return 0;
  uint32_t p = 0;
  while (p + 1 < a.n_parts && s >= a.part[p + 1].strip0) p++;
  return a.part[p].w + (s - a.part[p].strip0) * strip_bytes;
}

/* Stage s: tiles [4 s, 4 s + 4) of k of both operands, as far as they exist. Thread t copies 4 + 4 pieces of 16 bytes;
 * its A pieces are of one strip. */
DF_DEV void gemm_fetch(const gemm_args &a, const uint8_t *w, uint32_t live, uint32_t stage, uint8_t *shared) {
  const uint32_t tiles = df_frag_tiles(a.k), t0 = stage * STAGE_K;
  uint8_t *to = shared + stage % STAGES * STAGE_BYTES;
  if (t0 < tiles) {
    const uint32_t strip = threadIdx.x / 32, lane = threadIdx.x % 32;
    for (uint32_t t = 0; t < STAGE_K; t++)
      if (w && t0 + t < tiles)
        port_copy16(to + (t * TILE_STRIPS + strip) * DF_FRAG_BYTES + 16 * lane,
                    w + (size_t)(t0 + t) * DF_FRAG_BYTES + 16 * lane);
    const uint32_t row0 = blockIdx.x * TILE_ROWS;
    for (uint32_t i = 0; i < STAGE_B / 16 / THREADS; i++) {
      const uint32_t piece = i * THREADS + threadIdx.x, tile = piece / 16, t = tile / (TILE_ROWS / 8),
                     group = tile % (TILE_ROWS / 8);
      if (row0 + 8 * group < live && t0 + t < tiles)
        port_copy16(to + STAGE_A + tile * B_BYTES + piece % 16 * 16,
                    a.b + (((size_t)row0 / 8 + group) * tiles + t0 + t) * B_BYTES + piece % 16 * 16);
    }
  }
  port_copy_commit();
}

/* The part that just ended joins its pair, and the pair the sum. */
DF_DEV void gemm_join(uint32_t part, float acc[SUMS], float pair[SUMS], float all[SUMS]) {
#pragma unroll
  for (int i = 0; i < SUMS; i++) {
    if (part % 2 == 0) {
      pair[i] = acc[i];
    } else {
      const float both = pair[i] + acc[i];
      all[i] = part == 1 ? both : all[i] + both;
    }
    acc[i] = 0;
  }
}

/* One tile of k: 2 strips x 8 row groups. acc[(strip * 8 + group) * 4 + register] */
template <bool F16>
DF_DEV void gemm_tile(const uint8_t *stage, uint32_t t, uint32_t strip0, uint32_t group0, uint32_t lane,
                      float acc[SUMS]) {
  const uint8_t *wa = stage + (t * TILE_STRIPS + strip0) * DF_FRAG_BYTES + 16 * lane;
  const uint8_t *xb = stage + STAGE_A + (t * (TILE_ROWS / 8) + group0) * B_BYTES + 8 * lane;
  const uint4 w[2] = {*(const uint4 *)wa, *(const uint4 *)(wa + DF_FRAG_BYTES)};
#pragma unroll
  for (int g = 0; g < WARP_GROUPS; g++) {
    const uint2 x = *(const uint2 *)(xb + g * B_BYTES);
#pragma unroll
    for (int s = 0; s < 2; s++) {
      if (F16)
        port_mma_f16(acc + (s * WARP_GROUPS + g) * 4, w[s], x.x, x.y);
      else
        port_mma_bf16(acc + (s * WARP_GROUPS + g) * 4, w[s], x.x, x.y);
    }
  }
}

/* All tiles of k, parts joined as they end. A warp whose rows are all beyond the live ones copies, but does not
 * compute. */
template <bool F16>
DF_DEV void gemm_sum(const gemm_args &a, const uint8_t *w, uint32_t live, uint8_t *shared, uint32_t strip0,
                     uint32_t group0, bool idle, float all[SUMS]) {
  const uint32_t tiles = df_frag_tiles(a.k), stages = (tiles + STAGE_K - 1) / STAGE_K, lane = threadIdx.x % 32;
  float acc[SUMS], pair[SUMS];
#pragma unroll
  for (int i = 0; i < SUMS; i++) acc[i] = pair[i] = all[i] = 0;
  uint32_t part = 0, end = df_frag_part(tiles, 1);
  while (end == 0) { /* parts without a tile */
    gemm_join(part++, acc, pair, all);
    end = df_frag_part(tiles, part + 1);
  }
  for (uint32_t s = 0; s < stages; s++) {
    port_copy_wait<STAGES - 2>();
    port_block_sync(); /* everyone's copies are there, and the stage to be filled next has been read */
    gemm_fetch(a, w, live, s + STAGES - 1, shared);
    const uint8_t *stage = shared + s % STAGES * STAGE_BYTES;
    for (uint32_t t = 0; t < STAGE_K && s * STAGE_K + t < tiles && !idle; t++) {
      gemm_tile<F16>(stage, t, strip0, group0, lane, acc);
      while (part < DF_FRAG_PARTS && s * STAGE_K + t + 1 == end) {
        gemm_join(part++, acc, pair, all);
        end = part < DF_FRAG_PARTS ? df_frag_part(tiles, part + 1) : 0;
      }
    }
  }
}

/* Output m (of a strip's 16) and row of accumulator register c of a lane. */
DF_DEV uint32_t gemm_output(uint32_t lane, uint32_t c) { return lane / 4 + 8 * (c >> 1); }
DF_DEV uint32_t gemm_row(uint32_t lane, uint32_t c) { return 2 * (lane % 4) + (c & 1); }

DF_DEV void gemm_store(const gemm_args &a, uint32_t strip, uint32_t row0, uint32_t live, const float acc[SUMS / 2],
                       uint32_t lane) {
  if (strip >= a.strips) return;
  uint32_t i = 0;
  while (i + 1 < a.n_parts && strip >= a.part[i + 1].strip0) i++;
  const gemm_part &p = a.part[i];
#pragma unroll
  for (int g = 0; g < WARP_GROUPS; g++)
#pragma unroll
    for (int c = 0; c < 4; c++) {
      const uint32_t o = (strip - p.strip0) * DF_LANES + gemm_output(lane, c), r = row0 + 8 * g + gemm_row(lane, c);
      if (o >= p.n || r >= live) continue;
      float *y = p.y + r * p.ld + o, v = acc[4 * g + c];
      if (p.bias) v = v + p.bias[o];
      *y = a.add ? port_load(y) + v : v;
    }
}

template <bool F16, bool PAIR>
__global__ void __launch_bounds__(THREADS, 1) gemm_kernel(const __grid_constant__ gemm_args a) {
  DF_SHARED(shared);
  port_launch_next();
  const uint32_t live = *a.n_rows, warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const uint32_t strip0 = warp % 4 * 2, group0 = warp / 4 * WARP_GROUPS, row0 = blockIdx.x * TILE_ROWS + 8 * group0;
  port_wait_previous();
  if (blockIdx.x * TILE_ROWS >= live) return;
  const uint8_t *w = gemm_strip<PAIR>(a, warp);
  for (uint32_t s = 0; s + 1 < STAGES; s++) gemm_fetch(a, w, live, s, shared);
  float sum[SUMS];
  gemm_sum<F16>(a, w, live, shared, strip0, group0, row0 >= live, sum);
  port_copy_wait<0>();
  if (PAIR) {
    const uint32_t strip = blockIdx.y * (TILE_STRIPS / 2) + strip0 / 2;
    const gemm_part &p = a.part[0];
#pragma unroll
    for (int i = 0; i < SUMS / 2; i++) {
      const uint32_t o = strip * DF_LANES + gemm_output(lane, i % 4), r = row0 + 8 * (i / 4) + gemm_row(lane, i % 4);
      if (o < p.n && r < live) p.y[r * p.ld + o] = math_silu_mul(sum[i], sum[SUMS / 2 + i]);
    }
    return;
  }
  gemm_store(a, blockIdx.y * TILE_STRIPS + strip0, row0, live, sum, lane);
  gemm_store(a, blockIdx.y * TILE_STRIPS + strip0 + 1, row0, live, sum + SUMS / 2, lane);
}

/* ---- launching ---- */

size_t df_cuda_gemm_scratch(uint32_t k, uint32_t max_rows) {
  return ((size_t)max_rows + 7) / 8 * df_frag_tiles(k) * B_BYTES;
}

static int gemm_run(const df_cuda_env *env, gemm_args *a, const float *x, bool f16, bool pair) {
  uint8_t *const b = (uint8_t *)env->scratch + DF_CUDA_COUNTER_BYTES;
  if (env->scratch_bytes < DF_CUDA_COUNTER_BYTES + df_cuda_gemm_scratch(a->k, env->max_rows)) return 1;
  const start_shape prepare = {dim3((df_frag_tiles(a->k) + 7) / 8, (env->max_rows + 7) / 8), 256, 0, 0};
  const int e = f16 ? start_kernel(env, operand_kernel<true>, prepare, x, a->n_rows, a->k, b)
                    : start_kernel(env, operand_kernel<false>, prepare, x, a->n_rows, a->k, b);
  if (e) return e;
  a->b = b;
  const uint32_t each = pair ? TILE_STRIPS / 2 : TILE_STRIPS, blocks = (a->strips + each - 1) / each;
  const start_shape s = {dim3((env->max_rows + TILE_ROWS - 1) / TILE_ROWS, blocks), THREADS, STAGES * STAGE_BYTES, 0};
  if (pair)
    return f16 ? start_kernel(env, gemm_kernel<true, true>, s, *a) : start_kernel(env, gemm_kernel<false, true>, s, *a);
  return f16 ? start_kernel(env, gemm_kernel<true, false>, s, *a) : start_kernel(env, gemm_kernel<false, false>, s, *a);
}

int df_cuda_gemm_linear(const df_cuda_env *env, const df_op_linear *op) {
  gemm_args a = {};
  a.n_rows = op->n_rows;
  a.k = op->x.k;
  a.add = op->add;
  a.n_parts = op->n_parts;
  for (uint32_t i = 0; i < op->n_parts; i++) {
    const df_linear_part *p = &op->part[i];
    a.part[i] = {p->w->data, p->bias, p->y, p->ld, p->w->n, a.strips};
    a.strips += df_strips(p->w->n);
  }
  return gemm_run(env, &a, op->x.f, op->part[0].w->pack == DF_PACK_F16, false);
}

int df_cuda_gemm_ffn_up(const df_cuda_env *env, const df_op_ffn_up *op) {
  gemm_args a = {};
  a.n_rows = op->n_rows;
  a.k = op->x.k;
  a.n_parts = 2;
  a.strips = df_strips(op->gate->n);
  a.part[0] = {op->gate->data, 0, op->out.f, op->out.k, op->gate->n, 0};
  a.part[1] = {op->up->data, 0, 0, 0, op->up->n, 0};
  return gemm_run(env, &a, op->x.f, op->gate->pack == DF_PACK_F16, true);
}

int df_cuda_gemm_init(size_t shared_bytes) {
  const void *const kernels[] = {(const void *)gemm_kernel<false, false>, (const void *)gemm_kernel<false, true>,
                                 (const void *)gemm_kernel<true, false>, (const void *)gemm_kernel<true, true>};
  for (const void *k : kernels) {
    const int e = df_cuda_prepare(k, shared_bytes);
    if (e) return e;
  }
  return 0;
}
