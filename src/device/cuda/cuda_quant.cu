/*
 * cuda_quant.cu - products of quantised weights, the bits of kernels/ref: exact integer dots by matrix instructions,
 * then one chain of scale-and-add per output over k.
 *
 * A strip belongs to W warps. They take chunks of a few 32-blocks in turn: each loads its chunk, makes the dots and the
 * products of scales at its own pace, then waits for the chain's state from the warp in front, adds its chunk, and
 * hands the state on. So the long part runs side by side and the chain stays in order. W moves time, not bits.
 */
#include "device/cuda/cuda_math.cuh"
#include "device/cuda/cuda_ops.cuh"
#include "device/cuda/cuda_parts.cuh"
#include "device/cuda/cuda_start.cuh"
#include "device/cuda/cuda_tune.h"
#include "device/cuda/quant_codes.cuh"

enum { WARPS = 8, THREADS = 32 * WARPS };

typedef struct quant_args {
  const df_actq *x;
  const uint32_t *n_rows;
  uint32_t k, strips, warps, n_parts; /* warps of a strip */
  bool add;
  cuda_part part[DF_LINEAR_PARTS];
} quant_args;

/* One 32-block ready for the chain: acc = fma(first, dot, acc), then acc = fma(second, dot2, acc). */
template <int PACK, int NT>
struct quant_step {
  float first[NT * 4], dot[NT * 4], second[NT * 4], dot2[NT * 4];
};

/* x: the block's activations of the tile, m rows. Rows beyond m repeat the last one. */
template <int PACK, int NT>
DF_DEV void quant_prepare(const quant_raw &raw, const df_actq *x, uint32_t m, uint32_t g, uint32_t j,
                          quant_step<PACK, NT> &out) {
  uint32_t a[4];
  quant_codes<PACK>(raw, j, a);
  const float2 s0 = quant_scales<PACK>(raw, 0), s1 = quant_scales<PACK>(raw, 1);
#pragma unroll
  for (int t = 0; t < NT; t++) {
    const uint8_t *q = (const uint8_t *)(x + math_min(8 * t + g, m - 1)) + 4 * j;
    const uint32_t b0 = port_load_u32(q), b1 = port_load_u32(q + 16);
    const df_actq *const c0 = x + math_min(8 * t + 2 * j, m - 1), *const c1 = x + math_min(8 * t + 2 * j + 1, m - 1);
    const uint4 h0 = port_load_u4(&c0->scale), h1 = port_load_u4(&c1->scale); /* scale, scale_sum, off4, off8 */
    const float xs[2] = {port_float(h0.x), port_float(h1.x)}, xss[2] = {port_float(h0.y), port_float(h1.y)};
    int32_t d[4], e[4];
    if (PACK == DF_PACK_Q6K) {
      const uint32_t lo0 = port_load_u32(&c0->off6_lo), lo1 = port_load_u32(&c1->off6_lo);
      const uint32_t hi0 = port_load_u32(&c0->off6_hi), hi1 = port_load_u32(&c1->off6_hi);
      for (int i = 0; i < 4; i++) {
        d[i] = (int32_t)((i & 1 ? lo1 : lo0) + QUANT_MAGIC);
        e[i] = (int32_t)((i & 1 ? hi1 : hi0) + QUANT_MAGIC);
      }
      port_mma_u8s8_k16(d, a[0], a[1], b0);
      port_mma_u8s8_k16(e, a[2], a[3], b1);
    } else {
      const uint32_t off0 = PACK == DF_PACK_Q8 ? h0.w : PACK == DF_PACK_Q4 ? h0.z : 0;
      const uint32_t off1 = PACK == DF_PACK_Q8 ? h1.w : PACK == DF_PACK_Q4 ? h1.z : 0;
      for (int i = 0; i < 4; i++) d[i] = (int32_t)((i & 1 ? off1 : off0) + QUANT_MAGIC);
      port_mma_u8s8_k32(d, a, b0, b1);
    }
#pragma unroll
    for (int i = 0; i < 4; i++) {
      const float2 s = i < 2 ? s0 : s1;
      out.first[4 * t + i] = s.x * xs[i & 1];
      out.dot[4 * t + i] = quant_float(d[i]);
      if (PACK == DF_PACK_Q6K) {
        out.second[4 * t + i] = s.y * xs[i & 1];
        out.dot2[4 * t + i] = quant_float(e[i]);
      } else if (quant_two<PACK>()) {
        out.second[4 * t + i] = s.y;
        out.dot2[4 * t + i] = xss[i & 1];
      }
    }
  }
}

template <int PACK, int NT>
DF_DEV void quant_add(const quant_step<PACK, NT> &s, float acc[NT * 4]) {
#pragma unroll
  for (int i = 0; i < NT * 4; i++) acc[i] = fmaf(s.first[i], s.dot[i], acc[i]);
  if (quant_two<PACK>()) {
#pragma unroll
    for (int i = 0; i < NT * 4; i++) acc[i] = fmaf(s.second[i], s.dot2[i], acc[i]);
  }
}

/* Who a warp is among those of its strip. */
struct quant_warp {
  uint32_t warps, turn, barrier0, g, j;
  float *state; /* of the strip: [warps][NT * 4][32] */
};

/* The chain's state goes round: warp t writes slot t + 1 and arrives at barrier t + 1, where warp t + 1 waits. That
 * also frees a slot: t writes slot t + 1 again only when the chain has come back to it, and so past the warp that read
 * the slot; a barrier is used again only then, too. So neither needs a second barrier for the way back. Tools that look
 * for races on a card do not follow arrivals at named barriers; the state is exchanged in atomic words, which they
 * leave alone, and the emulation checks the order. */
DF_DEV void quant_hand(const quant_warp &w, float *acc, uint32_t n, bool give) {
  const uint32_t to = give ? (w.turn + 1) % w.warps : w.turn, lane = 4 * w.g + w.j;
  float *state = w.state + (size_t)to * n * 32 + 2 * lane; /* pairs of a lane are 64 apart */
  if (give) {
    for (uint32_t i = 0; i < n; i += 2) port_handed_put(state + 32 * i, acc[i], acc[i + 1]);
    port_named_arrive(w.barrier0 + to, 64);
  } else {
    port_named_sync(w.barrier0 + to, 64);
    for (uint32_t i = 0; i < n; i += 2) {
      const float2 v = port_handed_take(state + 32 * i);
      acc[i] = v.x;
      acc[i + 1] = v.y;
    }
  }
}

/* The whole strip for one tile of rows; true in the warp that ends up with the sums in acc. */
template <int PACK, int NT>
DF_DEV bool quant_strip(const quant_args &a, const cuda_part &p, uint32_t strip, uint32_t tile, const quant_warp &w,
                        float acc[NT * 4]) {
  enum { CHUNK = NT == 1 ? 4 : 2 };
  const uint8_t *data = p.w + (size_t)(strip - p.strip0) * p.strip_bytes;
  const uint32_t nkb = a.k / DF_QBLOCK, chunks = (nkb + CHUNK - 1) / CHUNK;
  quant_raw raw[CHUNK];
#pragma unroll
  for (int i = 0; i < CHUNK; i++)
    raw[i] = quant_load<PACK, false>(data, a.k, math_min(w.turn * CHUNK + i, nkb - 1), w.g, w.j);
  port_wait_previous();
  const uint32_t live = *a.n_rows, row0 = tile * DF_TILE_ROWS;
  if (row0 >= live) return false;
  const uint32_t m = math_min(live - row0, (uint32_t)DF_TILE_ROWS);
  const df_actq *x = a.x + (size_t)row0 * nkb;
#pragma unroll
  for (int i = 0; i < NT * 4; i++) acc[i] = 0;
  for (uint32_t c = w.turn; c < chunks; c += w.warps) {
    quant_step<PACK, NT> step[CHUNK];
#pragma unroll
    for (int i = 0; i < CHUNK; i++) {
      const uint32_t kb = math_min(c * CHUNK + i, nkb - 1);
      quant_prepare<PACK, NT>(raw[i], x + (size_t)kb * m, m, w.g, w.j, step[i]);
      raw[i] = quant_load<PACK, false>(data, a.k, math_min((c + w.warps) * CHUNK + i, nkb - 1), w.g, w.j);
    }
    if (w.warps > 1 && c > 0) quant_hand(w, acc, NT * 4, false);
#pragma unroll
    for (int i = 0; i < CHUNK; i++)
      if (c * CHUNK + i < nkb) quant_add<PACK, NT>(step[i], acc);
    if (w.warps > 1 && c + 1 < chunks) quant_hand(w, acc, NT * 4, true);
  }
  return (chunks - 1) % w.warps == w.turn;
}

template <int NT>
DF_DEV void quant_store(const quant_args &a, const cuda_part &p, uint32_t strip, uint32_t tile, const quant_warp &w,
                        const float acc[NT * 4]) {
  const uint32_t live = *a.n_rows;
#pragma unroll
  for (int i = 0; i < NT * 4; i++) {
    const uint32_t o = (strip - p.strip0) * DF_LANES + 2 * w.g + (i >> 1 & 1);
    const uint32_t r = tile * DF_TILE_ROWS + 8 * (i / 4) + 2 * w.j + (i & 1);
    if (o >= p.n || r >= live) continue;
    float *y = p.y + r * p.ld + o, v = acc[i];
    if (p.bias) v = v + p.bias[o];
    *y = a.add ? port_load(y) + v : v;
  }
}

template <int NT>
__global__ void __launch_bounds__(THREADS) quant_kernel(const __grid_constant__ quant_args a) {
  DF_SHARED(shared);
  port_launch_next();
  const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32, set = warp / a.warps;
  const uint32_t strip = blockIdx.x * (WARPS / a.warps) + set, tile = blockIdx.y;
  if (strip >= a.strips) {
    port_wait_previous();
    return;
  }
  const cuda_part &p = cuda_part_of(a.part, a.n_parts, strip);
  float acc[NT * 4];
  const quant_warp w = {a.warps,  warp % a.warps, 1 + set * a.warps,
                        lane / 4, lane % 4,       (float *)shared + (size_t)set * a.warps * NT * 4 * 32};
  bool mine = false;
  switch (p.pack) {
    case DF_PACK_Q8: mine = quant_strip<DF_PACK_Q8, NT>(a, p, strip, tile, w, acc); break;
    case DF_PACK_Q4: mine = quant_strip<DF_PACK_Q4, NT>(a, p, strip, tile, w, acc); break;
    case DF_PACK_Q4M: mine = quant_strip<DF_PACK_Q4M, NT>(a, p, strip, tile, w, acc); break;
    case DF_PACK_Q8M: mine = quant_strip<DF_PACK_Q8M, NT>(a, p, strip, tile, w, acc); break;
    case DF_PACK_Q4K: mine = quant_strip<DF_PACK_Q4K, NT>(a, p, strip, tile, w, acc); break;
    default: mine = quant_strip<DF_PACK_Q6K, NT>(a, p, strip, tile, w, acc); break;
  }
  if (mine) quant_store<NT>(a, p, strip, tile, w, acc);
}

/* ---- F32: plain chains, one thread an output and row ---- */

typedef struct f32_args {
  const float *x;
  const uint32_t *n_rows;
  uint32_t k, strips, n_parts;
  bool add;
  cuda_part part[DF_LINEAR_PARTS];
} f32_args;

__global__ void __launch_bounds__(THREADS) f32_kernel(const __grid_constant__ f32_args a) {
  port_launch_next();
  const uint32_t strip = blockIdx.x, lane = threadIdx.x % DF_LANES, r = blockIdx.y * DF_TILE_ROWS + threadIdx.x / 16;
  const cuda_part &p = cuda_part_of(a.part, a.n_parts, strip);
  const float *w = (const float *)(p.w + (size_t)(strip - p.strip0) * p.strip_bytes) + lane;
  port_wait_previous();
  const uint32_t o = (strip - p.strip0) * DF_LANES + lane;
  if (r >= *a.n_rows || o >= p.n) return;
  const float *x = a.x + (size_t)r * a.k;
  float acc = 0;
#pragma unroll 8
  for (uint32_t k = 0; k < a.k; k++) acc = fmaf(w[(size_t)k * DF_LANES], port_load(x + k), acc);
  float *y = p.y + r * p.ld + o;
  if (p.bias) acc = acc + p.bias[o];
  *y = a.add ? port_load(y) + acc : acc;
}

/* ---- launching ---- */

/* Warps of a strip: enough to fill the card, no more than there are chunks. */
static uint32_t warps_of(const df_cuda_env *env, uint32_t strips, uint32_t tiles, uint32_t k) {
  const uint32_t most = math_max(k / DF_QBLOCK / 4, 1);
  uint32_t w = 1;
  while (w < WARPS && 2 * w <= most && (uint64_t)strips * tiles * w < (uint64_t)env->card->n_sm * 16) w *= 2;
  return df_cuda_tune.quant_warps ? math_min(df_cuda_tune.quant_warps, WARPS) : w;
}

int df_cuda_quant_linear(const df_cuda_env *env, const df_op_linear *op) {
  quant_args a = {};
  a.x = op->x.q;
  a.n_rows = op->n_rows;
  a.k = op->x.k;
  a.add = op->add;
  a.n_parts = op->n_parts;
  a.strips = cuda_parts(op, a.part);
  const uint32_t tiles = (env->max_rows + DF_TILE_ROWS - 1) / DF_TILE_ROWS, nt = env->max_rows > 8 ? 2 : 1;
  a.warps = warps_of(env, a.strips, tiles, a.k);
  const uint32_t sets = WARPS / a.warps;
  const start_shape s = {dim3((a.strips + sets - 1) / sets, tiles), THREADS, WARPS * nt * 4 * 32 * sizeof(float), 0};
  return nt == 2 ? start_kernel(env, quant_kernel<2>, s, a) : start_kernel(env, quant_kernel<1>, s, a);
}

int df_cuda_f32_linear(const df_cuda_env *env, const df_op_linear *op) {
  f32_args a = {};
  a.x = op->x.f;
  a.n_rows = op->n_rows;
  a.k = op->x.k;
  a.add = op->add;
  a.n_parts = op->n_parts;
  a.strips = cuda_parts(op, a.part);
  const dim3 grid(a.strips, (env->max_rows + DF_TILE_ROWS - 1) / DF_TILE_ROWS);
  return start_kernel(env, f32_kernel, start_shape{grid, THREADS, 0, 0}, a);
}

int df_cuda_quant_init(size_t shared_bytes) {
  const int e = df_cuda_prepare((const void *)quant_kernel<1>, shared_bytes);
  return e ? e : df_cuda_prepare((const void *)quant_kernel<2>, shared_bytes);
}
