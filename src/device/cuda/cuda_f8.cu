/*
 * cuda_f8.cu - products of E4M3 weights: codes become bfloat16 in registers, exactly, and meet activations rounded to
 * bfloat16 in the matrix instruction.
 *
 * Sums: the 64-blocks of k are dealt to 8 shares, block b to share b % 8. A share is a chain from zero over its blocks
 * in order: the block's dot (four accumulating instructions from zero) times its scale, added by fma. The shares are
 * added one after the other. So a row's bits depend on k alone.
 *
 * A strip belongs to the 8 warps of a block, a share to a warp, which keeps the next blocks of its share in registers.
 * Output 2g of a strip is row g of the matrix instruction and 2g + 1 row g + 8; lane j of four holds k 4j .. 4j + 3 of
 * both operands (fragment.h says why that is allowed).
 */
#include "device/cuda/cuda_math.cuh"
#include "device/cuda/cuda_ops.cuh"
#include "device/cuda/cuda_parts.cuh"
#include "device/cuda/cuda_start.cuh"
#include "kernels/layout.h"

enum { F8_WARPS = 8, F8_THREADS = 32 * F8_WARPS, F8_TILES = DF_F8_BLOCK / 16, F8_DEEP = 3 };

typedef struct f8_args {
  const float *x;
  const uint32_t *n_rows;
  uint32_t k, n_parts;
  bool add;
  cuda_part part[DF_LINEAR_PARTS];
} f8_args;

/* What a lane reads of a block: 4 codes of two outputs for each tile of 16 k, and their scales. */
struct f8_raw {
  uint2 codes[F8_TILES];
  uint2 scale;
};

DF_DEV f8_raw f8_load(const uint8_t *strip, uint32_t block, uint32_t g, uint32_t j) {
  const uint8_t *p = strip + (size_t)block * DF_F8_STEP;
  f8_raw r;
#pragma unroll
  for (uint32_t t = 0; t < F8_TILES; t++) r.codes[t] = port_stream8(p + 64 * (4 * t + j) + 8 * g);
  r.scale = port_stream8(p + DF_F8_SCALES + 8 * g);
  return r;
}

/* acc = fma(scale, dot of the block, acc). x: of the block, m rows k floats apart; beyond m the last one again. */
template <int NT>
DF_DEV void f8_step(const f8_raw &r, const float *x, uint32_t k, uint32_t m, uint32_t g, uint32_t j,
                    float acc[NT * 4]) {
  float dot[NT * 4];
#pragma unroll
  for (int i = 0; i < NT * 4; i++) dot[i] = 0;
#pragma unroll
  for (uint32_t t = 0; t < F8_TILES; t++) {
    const uint2 even = port_e4m3_bf16(r.codes[t].x), odd = port_e4m3_bf16(r.codes[t].y);
    const uint4 a = make_uint4(even.x, odd.x, even.y, odd.y);
#pragma unroll
    for (int n = 0; n < NT; n++) {
      const float4 v = port_load4(x + (size_t)math_min(8 * n + g, m - 1) * k + 16 * t + 4 * j);
      port_mma_bf16(dot + 4 * n, a, port_pack_bf16(v.x, v.y), port_pack_bf16(v.z, v.w));
    }
  }
#pragma unroll
  for (int i = 0; i < NT * 4; i++) acc[i] = fmaf(port_float(i & 2 ? r.scale.y : r.scale.x), dot[i], acc[i]);
}

/* The warp's share of a strip. Weights are constant: the first are read before the kernel in front has ended. */
template <int NT>
DF_DEV bool f8_share(const f8_args &a, const uint8_t *strip, uint32_t row0, uint32_t *m, float acc[NT * 4]) {
  const uint32_t warp = threadIdx.x / 32, g = threadIdx.x % 32 / 4, j = threadIdx.x % 4, blocks = a.k / DF_F8_BLOCK;
  f8_raw raw[F8_DEEP];
#pragma unroll
  for (uint32_t d = 0; d < F8_DEEP; d++) raw[d] = f8_load(strip, math_min(warp + d * F8_WARPS, blocks - 1), g, j);
  port_wait_previous();
  const uint32_t live = *a.n_rows;
  if (row0 >= live) return false;
  *m = math_min(live - row0, (uint32_t)(8 * NT));
#pragma unroll
  for (int i = 0; i < NT * 4; i++) acc[i] = 0;
  for (uint32_t b0 = warp; b0 < blocks; b0 += F8_DEEP * F8_WARPS) {
#pragma unroll
    for (uint32_t d = 0; d < F8_DEEP; d++) {
      const uint32_t b = b0 + d * F8_WARPS;
      if (b >= blocks) break;
      const float *x = a.x + (size_t)row0 * a.k + (size_t)b * DF_F8_BLOCK;
      f8_step<NT>(raw[d], x, a.k, *m, g, j, acc);
      raw[d] = f8_load(strip, math_min(b + F8_DEEP * F8_WARPS, blocks - 1), g, j);
    }
  }
  return true;
}

template <int NT>
__global__ void __launch_bounds__(F8_THREADS) f8_kernel(const __grid_constant__ f8_args a) {
  DF_SHARED(shared);
  float *const sums = (float *)shared; /* [warp][NT * 4][lane] */
  port_launch_next();
  const uint32_t strip = blockIdx.x, row0 = blockIdx.y * 8 * NT, lane = threadIdx.x % 32, reg = threadIdx.x / 32;
  uint32_t m = 0;
  const cuda_part &p = cuda_part_of(a.part, a.n_parts, strip);
  float acc[NT * 4];
  if (!f8_share<NT>(a, p.w + (size_t)(strip - p.strip0) * p.strip_bytes, row0, &m, acc)) return;
#pragma unroll
  for (int i = 0; i < NT * 4; i++) sums[(reg * NT * 4 + i) * 32 + lane] = acc[i];
  port_block_sync();
  if (reg >= NT * 4) return;
  const uint32_t o = (strip - p.strip0) * DF_LANES + 2 * (lane / 4) + (reg >> 1 & 1);
  const uint32_t r = 8 * (reg / 4) + 2 * (lane % 4) + (reg & 1);
  if (o >= p.n || r >= m) return;
  float v = sums[reg * 32 + lane];
  for (uint32_t w = 1; w < F8_WARPS; w++) v = v + sums[(w * NT * 4 + reg) * 32 + lane];
  float *y = p.y + (size_t)(row0 + r) * p.ld + o;
  if (p.bias) v = v + p.bias[o];
  *y = a.add ? port_load(y) + v : v;
}

int df_cuda_f8_linear(const df_cuda_env *env, const df_op_linear *op) {
  f8_args a = {};
  a.x = op->x.f;
  a.n_rows = op->n_rows;
  a.k = op->x.k;
  a.add = op->add;
  a.n_parts = op->n_parts;
  const uint32_t strips = cuda_parts(op, a.part);
  const uint32_t nt = env->max_rows > 8 ? 2 : 1, tiles = (env->max_rows + 8 * nt - 1) / (8 * nt);
  const start_shape s = {dim3(strips, tiles), F8_THREADS, F8_WARPS * nt * 4 * 32 * sizeof(float), 0};
  return nt == 2 ? start_kernel(env, f8_kernel<2>, s, a) : start_kernel(env, f8_kernel<1>, s, a);
}

int df_cuda_f8_init(size_t shared_bytes) {
  const int e = df_cuda_prepare((const void *)f8_kernel<1>, shared_bytes);
  return e ? e : df_cuda_prepare((const void *)f8_kernel<2>, shared_bytes);
}
