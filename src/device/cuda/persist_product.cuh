/*
 * device/cuda/persist_product.cuh - a block's part in a product, as a stage of a pass: the norm, the operands, the
 * strips. The sums are those of mma_block.cuh; here every block works alone, on rows that are whole quads.
 */
#ifndef DF_DEVICE_CUDA_PERSIST_PRODUCT_CUH
#define DF_DEVICE_CUDA_PERSIST_PRODUCT_CUH

#include "device/cuda/persist_stream.cuh"

/* Shared memory of the stage's work: sums of two strips, B operands; the rows to be normed and the norm's weights lie
 * where the sums will be. */
typedef struct persist_product_layout {
  uint32_t norm_w, b, factors, bytes, half; /* half: floats of the sums of one matrix */
} persist_product_layout;

DF_FRAG_FN persist_product_layout persist_place_product(uint32_t k, uint32_t cap, bool pair, bool norm) {
  persist_product_layout l;
  l.half = 2 * MMA_WARPS * 4 * 32;
  l.norm_w = norm ? cap * k * 4 : 0;
  const uint32_t sums = 2 * (pair ? 2 : 1) * l.half * 4, rows = norm ? l.norm_w + k * 4 : 0;
  l.b = math_max(sums, rows);
  l.factors = l.b + df_frag_tiles(k) * cap * 32;
  l.bytes = l.factors + MMA_ROWS * 4;
  return l;
}

/* ---- words ---- */

/* Words of a product, where they are, and stamps: that of stage s of this pass is pass + s. */
struct product_words {
  persist_words at;
  uint8_t *base;
  uint32_t pass, stage;
};

DF_DEV uint2 *product_word(const product_words &w, uint32_t at, size_t i) { return (uint2 *)(w.base + at) + i; }

/* The value that word i at `old` has once it is there; v: what was there before. */
DF_DEV float product_settled(const product_words &w, uint2 v, size_t i) {
  while (v.y != w.pass + w.at.old_stage) {
    port_look_again();
    v = port_word(product_word(w, w.at.old, i));
  }
  return port_float(v.x);
}

/* n values (a multiple of 4) with this stamp to shared memory, as soon as they are there. */
DF_DEV void product_look(float *to, const uint2 *from, uint32_t n, uint32_t stamp) {
  enum { DEEP = 4 };
#pragma unroll 1
  for (uint32_t i0 = 2 * threadIdx.x; i0 < n; i0 += 2 * MMA_THREADS * DEEP) {
    uint4 v[DEEP];
    bool all;
    do {
      all = true;
#pragma unroll
      for (uint32_t d = 0; d < DEEP; d++)
        if (i0 + 2 * MMA_THREADS * d < n) v[d] = port_words(from + i0 + 2 * MMA_THREADS * d);
#pragma unroll
      for (uint32_t d = 0; d < DEEP; d++)
        if (i0 + 2 * MMA_THREADS * d < n) all &= v[d].y == stamp && v[d].w == stamp;
      if (!all) port_look_again();
    } while (!all);
#pragma unroll
    for (uint32_t d = 0; d < DEEP; d++)
      if (i0 + 2 * MMA_THREADS * d < n)
        *(float2 *)(to + i0 + 2 * MMA_THREADS * d) = {port_float(v[d].x), port_float(v[d].z)};
  }
}

/* ---- rows ---- */

/* n floats (whole quads) on their way to shared memory. */
DF_DEV void product_fetch(float *to, const float *from, uint32_t n) {
#pragma unroll 1
  for (uint32_t i = 4 * threadIdx.x; i < n; i += 4 * MMA_THREADS) port_copy16(to + i, from + i);
}

/* Rows to shared memory, where their weights are already on the way, and their norm factors. */
DF_DEV void product_norm(const mma_args &a, const persist_product_layout &l, uint8_t *work, uint32_t live,
                         const product_words &words) {
  float *const rows = (float *)work, *const factors = (float *)(work + l.factors);
#pragma unroll 1
  for (uint32_t r = 0; r < live; r++) {
    const float *const from = mma_row(a, r);
    if (words.at.in)
      product_look(rows + r * a.k, product_word(words, words.at.in, from - a.x), a.k, words.pass + words.stage - 1);
    else
      product_fetch(rows + r * a.k, from, a.k);
  }
  port_copy_commit();
  port_copy_wait<0>();
  port_block_sync();
  const uint32_t warp = threadIdx.x / 32;
  if (warp < live) {
    const float f = math_rms_factor_short(rows + warp * a.k, a.k, a.eps);
    if (threadIdx.x % 32 == 0) factors[warp] = f;
  }
  port_block_sync();
}

template <bool F16>
DF_DEV void product_normed(const mma_args &a, const persist_product_layout &l, uint8_t *work, uint32_t r, bool write) {
  const float *const x = (const float *)work + r * a.k, *const norm = (const float *)(work + l.norm_w);
  const float f = ((const float *)(work + l.factors))[r];
  float *const out = a.norm_out + (size_t)r * a.k;
#pragma unroll 1
  for (uint32_t k = 4 * threadIdx.x; k < a.k; k += 4 * MMA_THREADS) {
    const float4 w = *(const float4 *)(norm + k), u = *(const float4 *)(x + k);
    const float4 v = make_float4((u.x * f) * w.x, (u.y * f) * w.y, (u.z * f) * w.z, (u.w * f) * w.w);
    if (write) *(float4 *)(out + k) = v;
    mma_put<F16>(work + l.b, a.cap, r, k, v);
  }
}

template <bool F16>
DF_DEV void product_plain(const mma_args &a, const persist_product_layout &l, uint8_t *work, uint32_t r) {
  enum { DEEP = 4 };
  const float *const x = a.x + (size_t)r * a.k;
#pragma unroll 1
  for (uint32_t k0 = 4 * threadIdx.x; k0 < a.k; k0 += 4 * MMA_THREADS * DEEP) {
    float4 v[DEEP];
#pragma unroll
    for (uint32_t d = 0; d < DEEP; d++) v[d] = port_load4(x + math_min(k0 + 4 * MMA_THREADS * d, a.k - 4));
#pragma unroll
    for (uint32_t d = 0; d < DEEP; d++)
      if (k0 + 4 * MMA_THREADS * d < a.k) mma_put<F16>(work + l.b, a.cap, r, k0 + 4 * MMA_THREADS * d, v[d]);
  }
}

/* The same from words. */
template <bool F16>
DF_DEV void product_plain_words(const mma_args &a, const persist_product_layout &l, uint8_t *work, uint32_t r,
                                const uint2 *x, uint32_t stamp) {
  enum { DEEP = 4 };
#pragma unroll 1
  for (uint32_t k0 = 4 * threadIdx.x; k0 < a.k; k0 += 4 * MMA_THREADS * DEEP) {
    uint4 lo[DEEP], hi[DEEP];
    bool all;
    do {
      all = true;
#pragma unroll
      for (uint32_t d = 0; d < DEEP; d++) {
        const uint2 *const at = x + math_min(k0 + 4 * MMA_THREADS * d, a.k - 4);
        lo[d] = port_words(at);
        hi[d] = port_words(at + 2);
      }
#pragma unroll
      for (uint32_t d = 0; d < DEEP; d++)
        all &= lo[d].y == stamp && lo[d].w == stamp && hi[d].y == stamp && hi[d].w == stamp;
      if (!all) port_look_again();
    } while (!all);
#pragma unroll
    for (uint32_t d = 0; d < DEEP; d++)
      if (k0 + 4 * MMA_THREADS * d < a.k)
        mma_put<F16>(work + l.b, a.cap, r, k0 + 4 * MMA_THREADS * d,
                     make_float4(port_float(lo[d].x), port_float(lo[d].z), port_float(hi[d].x), port_float(hi[d].z)));
  }
}

/* Activations as B operands of all tiles, normed when that is asked for. */
template <bool F16>
DF_DEV void product_operand(const mma_args &a, const persist_product_layout &l, uint8_t *work, uint32_t live,
                            bool write_norm, const product_words &words) {
  if (a.norm_w) product_norm(a, l, work, live, words);
#pragma unroll 1
  for (uint32_t r = 0; r < live; r++) {
    if (a.norm_w)
      product_normed<F16>(a, l, work, r, write_norm);
    else if (words.at.in)
      product_plain_words<F16>(a, l, work, r, product_word(words, words.at.in, (size_t)r * a.k),
                               words.pass + words.stage - 1);
    else
      product_plain<F16>(a, l, work, r);
    if (a.k + 4 * threadIdx.x < df_frag_tiles(a.k) * DF_FRAG_K) /* the last tile's end */
      mma_put<F16>(work + l.b, a.cap, r, a.k + 4 * threadIdx.x, make_float4(0, 0, 0, 0));
  }
  port_block_sync();
}

/* The warp's share of one matrix of a strip: its four parts, as the sums of two pairs. Short parts are chained side by
 * side, long ones one after the other as their tiles arrive. */
template <bool F16>
DF_DEV void product_share(const mma_args &a, const uint8_t *b, bool on, float *sums, persist_stream &s) {
  const uint32_t tiles = df_frag_tiles(a.k), step = a.cap * 32, part0 = s.warp * 4, t0 = df_frag_part(tiles, part0);
  float *const to = sums + 8 * 32 * s.warp + s.lane;
  b += (size_t)t0 * step;
  if (tiles <= PERSIST_SHORT * MMA_WARPS) {
    float acc[4][4] = {};
    uint32_t at[5];
#pragma unroll
    for (uint32_t i = 0; i < 5; i++) at[i] = df_frag_part(tiles, part0 + i) - t0;
    pstream_chains<F16>(s, at, b, step, on, acc);
#pragma unroll
    for (uint32_t i = 0; i < 8; i++) to[32 * i] = acc[i / 4 * 2][i % 4] + acc[i / 4 * 2 + 1][i % 4];
    return;
  }
  s.left = df_frag_part(tiles, part0 + 4) - t0;
  float first[4];
  uint32_t t = t0;
#pragma unroll 1
  for (uint32_t p = 0; p < 4; p++) {
    const uint32_t end = df_frag_part(tiles, part0 + p + 1);
    float acc[4] = {};
    pstream_chain<F16, 1>(s, end - t, b + (size_t)(t - t0) * step, step, &on, acc);
    t = end;
#pragma unroll
    for (uint32_t i = 0; i < 4; i++) {
      if (p % 2 == 1) to[32 * (4 * (p / 2) + i)] = first[i] + acc[i];
      first[i] = acc[i];
    }
  }
}

/* What the output is added to, when it comes as a word: asked for. */
DF_DEV uint2 product_old(const mma_args &a, const mma_goal &g, const product_words &words) {
  return words.at.old && g.y ? port_word(product_word(words, words.at.old, g.y - a.part[0].y)) : make_uint2(0, 0);
}

/* The output, plainly and (words.at.to) as a word. */
DF_DEV void product_finish(const mma_args &a, mma_goal g, uint2 old, const float *sums, uint32_t half,
                           const product_words &words) {
  if (!g.y) return;
  const size_t at = g.y - a.part[0].y;
  if (words.at.old) g.old = product_settled(words, old, at);
  const float v = mma_value(a, a.pair, false, g, sums, half, threadIdx.x, 4);
  if (words.at.to) port_word_put(product_word(words, words.at.to, at), v, words.pass + words.stage);
  *g.y = v;
}

template <bool F16>
DF_DEV void product_strips(const mma_args &a, const persist_product_layout &l, uint8_t *work, uint32_t live,
                           uint32_t first, const product_words &words, persist_stream &s) {
  const uint8_t *const b = work + l.b + s.lane / 4 * 32 + s.lane % 4 * 8;
  const mma_element e = element_of<1>(threadIdx.x, 0, 4, live);
  const bool on = s.lane / 4 < live, pair = a.pair;
  uint32_t turn = 0;
#pragma unroll 1
  for (uint32_t strip = first; strip < a.strips; strip += gridDim.x, turn ^= 1) {
    float *const slot = (float *)work + turn * (pair ? 2 : 1) * l.half;
    const mma_goal g = goal_of(a, pair, strip, e, !words.at.old);
    const uint2 old = product_old(a, g, words);
#pragma unroll 1
    for (uint32_t h = 0; h < (pair ? 2u : 1u); h++) product_share<F16>(a, b, on, slot + h * l.half, s);
    if (2 * s.freed >= s.slots) stream_rest(s);
    port_block_sync();
    product_finish(a, g, old, slot, l.half, words);
  }
}

#endif
