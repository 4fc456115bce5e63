/*
 * cuda_quant.cu - products of quantised weights, the bits of kernels/ref: exact integer dots by matrix instructions,
 * then one chain of scale-and-add per output over k.
 *
 * A strip belongs to W warps. They take chunks of a few 32-blocks in turn: each loads its chunk, makes the dots and the
 * products of scales at its own pace, then waits for the chain's state from the warp in front, adds its chunk, and
 * hands the state on. So the long part runs side by side and the chain stays in order. W moves time, not bits.
 *
 * Output 2g of a strip is row g of the matrix instruction and 2g + 1 row g + 8, so that a lane's codes are 8
 * neighbouring bytes; k quads j and j + 4 of a block are what lane j holds of both operands.
 */
#include "device/cuda/cuda_math.cuh"
#include "device/cuda/cuda_ops.cuh"
#include "device/cuda/cuda_parts.cuh"
#include "device/cuda/cuda_start.cuh"
#include "device/cuda/cuda_tune.h"
#include "kernels/layout.h"

enum { WARPS = 8, THREADS = 32 * WARPS, NIBBLES = 0x0f0f0f0f, MAGIC_BITS = 0x4B400000 };

typedef struct quant_args {
  const df_actq *x;
  const uint32_t *n_rows;
  uint32_t k, strips, warps, n_parts; /* warps of a strip */
  bool add;
  cuda_part part[DF_LINEAR_PARTS];
} quant_args;

/* What a lane reads of one 32-block: codes of its two outputs, scales as they are stored. */
struct quant_raw {
  uint2 lo, hi;                     /* codes: nibbles in lo, bytes in lo and hi */
  uint2 pair_lo, pair_hi;           /* Q6K: upper bits of both halves */
  uint32_t scale, min, sub, submin; /* f16 pairs, and pairs of small integers */
  float2 fscale, fmin;              /* Q8M */
};

DF_DEV uint32_t load_pair16(const uint8_t *p) { return *(const uint32_t *)p; }
DF_DEV uint32_t load_pair8(const uint8_t *p) { return *(const uint16_t *)p; }
DF_DEV float2 load_pair32(const uint8_t *p) { return *(const float2 *)p; }

template <int PACK>
DF_DEV quant_raw quant_load(const uint8_t *strip, uint32_t k, uint32_t kb, uint32_t g, uint32_t j) {
  quant_raw r = {};
  const size_t nkb = k / DF_QBLOCK;
  const uint32_t at = 64 * j + 8 * g;
  if (PACK == DF_PACK_Q8) {
    const uint8_t *p = strip + kb * (size_t)DF_BYTES_BLOCK;
    r.lo = port_stream8(p + at);
    r.hi = port_stream8(p + 256 + at);
    r.scale = load_pair16(strip + nkb * DF_BYTES_BLOCK + kb * (size_t)DF_HALVES + 4 * g);
  } else if (PACK == DF_PACK_Q4) {
    r.lo = port_stream8(strip + kb * (size_t)DF_NIBS_BLOCK + at);
    r.scale = load_pair16(strip + nkb * DF_NIBS_BLOCK + kb * (size_t)DF_HALVES + 4 * g);
  } else if (PACK == DF_PACK_Q4M) {
    const uint8_t *p = strip + kb * (size_t)DF_Q4M_BLOCK;
    r.lo = port_stream8(p + at);
    r.scale = load_pair16(p + DF_Q4M_SCALES + 4 * g);
    r.min = load_pair16(p + DF_Q4M_SCALES + DF_HALVES + 4 * g);
  } else if (PACK == DF_PACK_Q8M) {
    const uint8_t *p = strip + kb * (size_t)DF_Q8M_BLOCK;
    r.lo = port_stream8(p + at);
    r.hi = port_stream8(p + 256 + at);
    r.fscale = load_pair32(p + DF_Q8M_SCALES + 8 * g);
    r.fmin = load_pair32(p + DF_Q8M_SCALES + 64 + 8 * g);
  } else if (PACK == DF_PACK_Q4K) {
    const uint8_t *p = strip + (size_t)(kb / 8) * DF_Q4K_BLOCK, *sub = p + DF_Q4K_SCALES + 32 * (kb % 8);
    r.lo = port_stream8(p + DF_Q4K_NIBS + DF_NIBS_BLOCK * (kb % 8) + at);
    r.scale = load_pair16(p + 4 * g);
    r.min = load_pair16(p + DF_HALVES + 4 * g);
    r.sub = load_pair8(sub + 2 * g);
    r.submin = load_pair8(sub + 16 + 2 * g);
  } else {
    const uint8_t *p = strip + (size_t)(kb / 8) * DF_Q6K_BLOCK, *codes = p + DF_Q6K_CODES + DF_Q6K_SUB * (kb % 8);
    r.lo = port_stream8(codes + at);
    r.pair_lo = port_stream8(codes + DF_NIBS_BLOCK + 8 * g);
    r.pair_hi = port_stream8(codes + DF_NIBS_BLOCK + 64 + 8 * g);
    r.scale = load_pair16(strip + (size_t)(k / 256) * DF_Q6K_BLOCK + (size_t)(kb / 8) * DF_HALVES + 4 * g);
    r.sub = load_pair8(p + 32 * (kb % 8) + 2 * g);
    r.submin = load_pair8(p + 32 * (kb % 8) + 16 + 2 * g);
  }
  return r;
}

/* The codes as matrix operand: outputs 2g and 2g + 1 for k quad j, then both for quad j + 4. */
template <int PACK>
DF_DEV void quant_codes(const quant_raw &r, uint32_t j, uint32_t a[4]) {
  if (PACK == DF_PACK_Q8 || PACK == DF_PACK_Q8M) {
    a[0] = r.lo.x;
    a[1] = r.lo.y;
    a[2] = r.hi.x;
    a[3] = r.hi.y;
    return;
  }
  a[0] = r.lo.x & NIBBLES;
  a[1] = r.lo.y & NIBBLES;
  a[2] = r.lo.x >> 4 & NIBBLES;
  a[3] = r.lo.y >> 4 & NIBBLES;
  if (PACK != DF_PACK_Q6K) return;
  const uint32_t s = 2 * j, pairs = 0x03030303;
  a[0] |= (r.pair_lo.x >> s & pairs) << 4;
  a[1] |= (r.pair_lo.y >> s & pairs) << 4;
  a[2] |= (r.pair_hi.x >> s & pairs) << 4;
  a[3] |= (r.pair_hi.y >> s & pairs) << 4;
}

DF_DEV float half_of(uint32_t pair, uint32_t i) { return port_f16_value((uint16_t)(pair >> 16 * i)); }

/* Scale and min (Q6K: scales of the two halves) of output 2g + i. */
template <int PACK>
DF_DEV float2 quant_scales(const quant_raw &r, uint32_t i) {
  float2 s = {0, 0};
  if (PACK == DF_PACK_Q8M) {
    s.x = i ? r.fscale.y : r.fscale.x;
    s.y = i ? r.fmin.y : r.fmin.x;
  } else if (PACK == DF_PACK_Q4K) {
    s.x = half_of(r.scale, i) * (float)(r.sub >> 8 * i & 255);
    s.y = -(half_of(r.min, i) * (float)(r.submin >> 8 * i & 255));
  } else if (PACK == DF_PACK_Q6K) {
    s.x = half_of(r.scale, i) * (float)(int8_t)(r.sub >> 8 * i);
    s.y = half_of(r.scale, i) * (float)(int8_t)(r.submin >> 8 * i);
  } else {
    s.x = half_of(r.scale, i);
    if (PACK == DF_PACK_Q4M) s.y = half_of(r.min, i);
  }
  return s;
}

/* One 32-block ready for the chain: acc = fma(first, dot, acc), then acc = fma(second, dot2, acc). */
template <int PACK, int NT>
struct quant_step {
  float first[NT * 4], dot[NT * 4], second[NT * 4], dot2[NT * 4];
};

template <int PACK>
DF_DEV constexpr bool quant_two() {
  return PACK == DF_PACK_Q6K || PACK == DF_PACK_Q4M || PACK == DF_PACK_Q8M || PACK == DF_PACK_Q4K;
}

/* (float)i of a sum that started at MAGIC_BITS; exact for |i| < 2^22. */
DF_DEV float quant_float(int32_t i) { return port_float((uint32_t)i) - DF_EXP_MAGIC; }

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
        d[i] = (int32_t)((i & 1 ? lo1 : lo0) + MAGIC_BITS);
        e[i] = (int32_t)((i & 1 ? hi1 : hi0) + MAGIC_BITS);
      }
      port_mma_u8s8_k16(d, a[0], a[1], b0);
      port_mma_u8s8_k16(e, a[2], a[3], b1);
    } else {
      const uint32_t off0 = PACK == DF_PACK_Q8 ? h0.w : PACK == DF_PACK_Q4 ? h0.z : 0;
      const uint32_t off1 = PACK == DF_PACK_Q8 ? h1.w : PACK == DF_PACK_Q4 ? h1.z : 0;
      for (int i = 0; i < 4; i++) d[i] = (int32_t)((i & 1 ? off1 : off0) + MAGIC_BITS);
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
 * the slot; a barrier is used again only then, too. So neither needs a second barrier for the way back. Tools that do
 * not follow order through several barriers report hazards here; the emulation checks the order itself. */
DF_DEV void quant_hand(const quant_warp &w, float *acc, uint32_t n, bool give) {
  const uint32_t to = give ? (w.turn + 1) % w.warps : w.turn, lane = 4 * w.g + w.j;
  float *state = w.state + (size_t)to * n * 32 + lane;
  if (give) {
    for (uint32_t i = 0; i < n; i++) port_handed_put(state + 32 * i, acc[i]);
    port_named_arrive(w.barrier0 + to, 64);
  } else {
    port_named_sync(w.barrier0 + to, 64);
    for (uint32_t i = 0; i < n; i++) acc[i] = port_handed_get(state + 32 * i);
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
  for (int i = 0; i < CHUNK; i++) raw[i] = quant_load<PACK>(data, a.k, math_min(w.turn * CHUNK + i, nkb - 1), w.g, w.j);
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
      raw[i] = quant_load<PACK>(data, a.k, math_min((c + w.warps) * CHUNK + i, nkb - 1), w.g, w.j);
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
