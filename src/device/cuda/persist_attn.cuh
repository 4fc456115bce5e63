/*
 * device/cuda/persist_attn.cuh - attention as a stage of a pass: few queries of a block, so what counts is how soon
 * each step ends. Sums in the order of kernels.h, as in attn_chunk.cuh; K and V are f16, heads 64 or 128 wide.
 */
#ifndef DF_DEVICE_CUDA_PERSIST_ATTN_CUH
#define DF_DEVICE_CUDA_PERSIST_ATTN_CUH

#include "device/cuda/attn_chunk.cuh"
#include "device/cuda/mma_block.cuh"

enum { PATTN_REGS = 4 /* elements of a head that a lane holds: lane, lane + 32, ... */ };

/* rmsnorm by w (NULL: none), then rotation, of a head that lies in the lanes' registers. */
DF_DEV void pattn_rotate(float x[PATTN_REGS], const float *w, float eps, const float *cos, const float *sin, uint32_t e,
                         uint32_t lane) {
  if (w) {
    float a = 0;
#pragma unroll
    for (uint32_t j = 0; j < PATTN_REGS; j++) {
      const float other = port_xor(x[j], 16), lo = lane < 16 ? x[j] : other, hi = lane < 16 ? other : x[j];
      if (32 * j < e) a = fmaf(hi, hi, fmaf(lo, lo, a));
    }
    const float f = 1.0f / sqrtf(math_tree16(a) / (float)e + eps);
#pragma unroll
    for (uint32_t j = 0; j < PATTN_REGS; j++)
      if (32 * j < e) x[j] = (x[j] * f) * w[lane + 32 * j];
  }
  const bool wide = e == 128;
#pragma unroll
  for (uint32_t j = 0; j < PATTN_REGS / 2; j++) {
    if (64 * j >= e) continue;
    const float a = x[j], b = wide ? x[j + 2] : x[1], c = cos[lane + 32 * j], s = sin[lane + 32 * j];
    x[j] = fmaf(a, c, -(b * s));
    const float r = fmaf(b, c, a * s);
    if (wide)
      x[j + 2] = r;
    else
      x[1] = r;
  }
}

DF_DEV void pattn_load(const float *from, uint32_t e, uint32_t lane, float x[PATTN_REGS]) {
#pragma unroll
  for (uint32_t j = 0; j < PATTN_REGS; j++) x[j] = 32 * j < e ? port_load(from + lane + 32 * j) : 0.0f;
}

/* The same from words (NULL: from plain values) when they are there; from: the head's first value, base: of all. */
struct pattn_words {
  uint2 *words;
  const float *base;
  uint32_t stamp;
};

DF_DEV void pattn_look(const pattn_words &w, const float *from, uint32_t e, uint32_t lane, float x[PATTN_REGS]) {
  const uint2 *const at = w.words + (from - w.base) + lane;
  uint2 v[PATTN_REGS];
  bool all;
  do {
    all = true;
#pragma unroll
    for (uint32_t j = 0; j < PATTN_REGS; j++)
      if (32 * j < e) v[j] = port_word(at + 32 * j);
#pragma unroll
    for (uint32_t j = 0; j < PATTN_REGS; j++)
      if (32 * j < e) all &= v[j].y == w.stamp;
    if (!all) port_look_again();
  } while (!all);
#pragma unroll
  for (uint32_t j = 0; j < PATTN_REGS; j++) x[j] = 32 * j < e ? port_float(v[j].x) : 0.0f;
}

/* K (rotated, x) and V of a row of this pass to position p of the chunk; block 0 of the head stores them too. */
DF_DEV void pattn_fresh(const attn_args &a, const attn_block &t, const attn_layout &l, uint8_t *shared,
                        const float x[PATTN_REGS], const float v[PATTN_REGS], uint32_t p, uint32_t lane) {
  const uint32_t e = a.op.head_dim, sub = t.sub;
  const size_t to = ((size_t)((const uint32_t *)(shared + l.slots))[p] * a.op.n_kv + t.g) * e + lane;
  uint16_t *const k_row = (uint16_t *)(shared + l.k) + p * l.k_ld + lane, *const v_row =
                                                                              (uint16_t *)(shared + l.v) + p * e + lane;
  uint16_t *const k_to = (uint16_t *)a.op.kv.k + to, *const v_to = (uint16_t *)a.op.kv.v + to;
#pragma unroll
  for (uint32_t j = 0; j < PATTN_REGS; j++) {
    if (32 * j >= e) continue;
    const uint16_t kh = math_to_f16(x[j]), vh = math_to_f16(v[j]);
    k_row[32 * j] = kh;
    v_row[32 * j] = vh;
    if (sub != 0) continue;
    k_to[32 * j] = kh;
    v_to[32 * j] = vh;
  }
}

/* Rotated queries (with_q) to shared memory, and this pass's rows that lie in the chunk; a warp takes one vector. */
DF_DEV void pattn_vectors(const attn_args &a, const attn_block &t, const attn_layout &l, uint8_t *shared, bool with_q,
                          const pattn_words &w) {
  const uint32_t e = a.op.head_dim, lane = threadIdx.x % 32, warp = threadIdx.x / 32, n_q = with_q ? t.n : 0;
  const uint32_t n = n_q + t.q1 - t.q0, *pos_of = (const uint32_t *)(shared + l.fresh);
  const float *const norms = (const float *)(shared + l.norms);
#pragma unroll 1
  for (uint32_t u = warp; u < n; u += ATTN_WARPS) {
    const bool is_q = u < n_q;
    const uint32_t row = is_q ? attn_row(t, u) : t.q0 + u - n_q, p = is_q ? 0 : pos_of[row - t.q0];
    if (p == ATTN_NONE) continue;
    float x[PATTN_REGS], v[PATTN_REGS] = {};
    const float *const from =
        is_q ? a.op.q + row * a.op.q_ld + (size_t)attn_head(t, u) * e : a.rope.k + row * a.rope.k_ld + (size_t)t.g * e;
    const float *const from_v = a.rope.v + row * a.rope.v_ld + (size_t)t.g * e;
    if (w.words) {
      pattn_look(w, from, e, lane, x);
      if (!is_q) pattn_look(w, from_v, e, lane, v);
    } else {
      pattn_load(from, e, lane, x);
      if (!is_q) pattn_load(from_v, e, lane, v);
    }
    const float *const norm = is_q ? (a.rope.q_norm ? norms : 0) : (a.rope.k_norm ? norms + e : 0);
    const float *const cos = (const float *)(shared + l.tables) + (row - t.q0) * e;
    pattn_rotate(x, norm, a.rope.eps, cos, cos + e / 2, e, lane);
    if (!is_q) {
      pattn_fresh(a, t, l, shared, x, v, p, lane);
      continue;
    }
    float *const to = (float *)(shared + l.q) + u * e + lane;
#pragma unroll
    for (uint32_t j = 0; j < PATTN_REGS; j++)
      if (32 * j < e) to[32 * j] = x[j];
  }
}

/* Two values of a part, as words or plainly. */
DF_DEV void pattn_leave(const pattn_words &w, float *at, float2 v) {
  if (w.words)
    port_words_put(w.words + (at - w.base), v.x, v.y, w.stamp);
  else
    *(float2 *)at = v;
}

/* Scores of query q become weights, by one warp; maximum and sum to its part. */
DF_DEV void pattn_softmax(const attn_layout &l, uint8_t *shared, uint32_t q, uint32_t lane, float *part,
                          const pattn_words &to) {
  float p0, p1, *const weights = (float *)(shared + l.scores) + q * DF_KV_CHUNK;
  const float2 r = chunk_weights(l, shared, q, lane, p0, p1);
  weights[lane] = p0;
  weights[lane + 32] = p1;
  if (lane == 0) pattn_leave(to, part, r);
}

/* All threads answer alike. */
DF_DEV attn_view pattn_view_of(const attn_layout &l, const uint8_t *shared) {
  const uint32_t *const seen = (const uint32_t *)(shared + l.seen), lane = threadIdx.x % 32;
  attn_view v = {DF_KV_CHUNK, UINT32_MAX};
#pragma unroll 1
  while (v.end > 0 && seen[v.end - 1] == 0) v.end--;
  if (lane < v.end) v.all &= seen[lane];
  if (lane + 32 < v.end) v.all &= seen[lane + 32];
#pragma unroll 1
  for (uint32_t i = 1; i < 32; i *= 2) v.all &= port_xor(v.all, i);
  return v;
}

/* Four positions more on two elements' chains; v: values, a row of them `row` bytes long. */
DF_DEV void pattn_four_of(float2 &acc, const uint8_t *v, uint32_t row, const float4 &w) {
  const float2 x0 = chunk_pair<true>(v, 0), x1 = chunk_pair<true>(v + row, 0), x2 = chunk_pair<true>(v + 2 * row, 0);
  const float2 x3 = chunk_pair<true>(v + 3 * row, 0);
  acc.x = fmaf(x3.x, w.w, fmaf(x2.x, w.z, fmaf(x1.x, w.y, fmaf(x0.x, w.x, acc.x))));
  acc.y = fmaf(x3.y, w.w, fmaf(x2.y, w.z, fmaf(x1.y, w.y, fmaf(x0.y, w.x, acc.y))));
}

DF_DEV void pattn_one_of(float2 &acc, const uint8_t *v, float w) {
  const float2 x = chunk_pair<true>(v, 0);
  acc = {fmaf(x.x, w, acc.x), fmaf(x.y, w, acc.y)};
}

/* Weighted values of the chunk to its part: two neighbouring elements of one query a thread, a chain over the visible
 * positions each. Most often that is all of them. */
DF_DEV void pattn_values(const attn_args &a, uint32_t n, const attn_layout &l, const uint8_t *shared, float *parts,
                         const attn_view &view, const pattn_words &to) {
  const uint32_t e = a.op.head_dim, pairs = e / 2, row = 2 * e;
  const uint32_t *const seen = (const uint32_t *)(shared + l.seen);
#pragma unroll 1
  for (uint32_t u = threadIdx.x; u < pairs * n; u += ATTN_THREADS) {
    const uint32_t pair = e == 128 ? u % 64 : u % 32, q = e == 128 ? u / 64 : u / 32;
    const float *const weights = (const float *)(shared + l.scores) + q * DF_KV_CHUNK;
    const uint8_t *v = shared + l.v + 4 * pair;
    float2 acc = {0, 0};
    if (view.all >> q & 1) {
      uint32_t p = 0;
#pragma unroll 2
      for (; p + 4 <= view.end; p += 4, v += 4 * row) pattn_four_of(acc, v, row, *(const float4 *)(weights + p));
#pragma unroll 1
      for (; p < view.end; p++, v += row) pattn_one_of(acc, v, weights[p]);
    } else {
#pragma unroll 2
      for (uint32_t p = 0; p < view.end; p++, v += row) {
        float2 now = acc;
        pattn_one_of(now, v, weights[p]);
        acc = seen[p] >> q & 1 ? now : acc; /* what it does not see may be anything */
      }
    }
    pattn_leave(to, parts + (size_t)q * (ATTN_HEADER + e) + ATTN_HEADER + 2 * pair, acc);
  }
}

/* A chunk whose old K and V are on their way, to parts; first: of the block's chunks. */
DF_DEV void pattn_chunk(const attn_args &a, const attn_block &t, const attn_layout &l, uint8_t *shared, uint32_t chunk,
                        bool first, const attn_view &view, const pattn_words &w, const pattn_words &to) {
  const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32, n = t.n;
  float *const parts = attn_part(a, t, chunk, 0);
  port_copy_wait<0>(); /* what a thread fetched and what a warp writes now are other rows of K and V */
  port_block_sync();   /* tables, norms */
  pattn_vectors(a, t, l, shared, first, w);
  port_block_sync();
  chunk_scores<true, 1>(a, t, l, shared);
  port_block_sync();
  for (uint32_t q = warp; q < n; q += ATTN_WARPS)
    pattn_softmax(l, shared, q, lane, parts + (size_t)q * (ATTN_HEADER + a.op.head_dim), to);
  port_block_sync();
  pattn_values(a, n, l, shared, parts, view, to);
  port_block_sync(); /* K, V, weights are free for the next chunk */
}

/* Four values of a part, asked for; they are looked at again where they are used. */
struct pattn_four {
  uint4 lo, hi;
};

template <bool WORDS>
DF_DEV pattn_four pattn_ask(const pattn_words &w, const float *at) {
  pattn_four v = {};
  if (WORDS && w.words) {
    v.lo = port_words(w.words + (at - w.base));
    v.hi = port_words(w.words + (at - w.base) + 2);
    return v;
  }
  const float4 x = port_load4(at);
  v.lo = make_uint4(port_bits(x.x), 0, port_bits(x.y), 0);
  v.hi = make_uint4(port_bits(x.z), 0, port_bits(x.w), 0);
  return v;
}

template <bool WORDS>
DF_DEV float4 pattn_get(const pattn_words &w, const float *at, pattn_four v) {
  while (WORDS && w.words && (v.lo.y != w.stamp || v.lo.w != w.stamp || v.hi.y != w.stamp || v.hi.w != w.stamp)) {
    port_look_again();
    v = pattn_ask<WORDS>(w, at);
  }
  return make_float4(port_float(v.lo.x), port_float(v.lo.z), port_float(v.hi.x), port_float(v.hi.z));
}

/* Maximum and sum of a part. */
template <bool WORDS>
DF_DEV float2 pattn_head(const pattn_words &w, const float *at) {
  if (!WORDS || !w.words) return {port_load(at), port_load(at + 1)};
  uint4 v = port_words(w.words + (at - w.base));
  while (v.y != w.stamp || v.w != w.stamp) {
    port_look_again();
    v = port_words(w.words + (at - w.base));
  }
  return {port_float(v.x), port_float(v.z)};
}

/* Four outputs of a row from k on, to where pattn_merge says. */
template <bool WORDS, bool F16>
DF_DEV void pattn_out(const attn_args &a, uint32_t row, uint32_t k, float4 out, const pattn_words &to, uint8_t *packed,
                      uint32_t cap) {
  const size_t at = (size_t)row * a.op.out.k + k;
  if (WORDS && to.words) {
    port_words_put(to.words + at, out.x, out.y, to.stamp);
    port_words_put(to.words + at + 2, out.z, out.w, to.stamp);
  }
  *(float4 *)(a.op.out.f + at) = out;
  if (packed) mma_put<F16>(packed, cap, row, k, out); /* see PERSIST_PACKS_IN */
}

/* The parts of one query, by one warp; lanes hold quads of its elements. Every running maximum is a prefix, so a scan
 * finds those of 32 chunks at once. What is there before the first part is -0 times 0: it changes nothing, not even a
 * zero's sign. in, to: where they come, and go, as words; packed: where they go as operands too, NULL: nowhere. */
template <bool WORDS, bool F16>
DF_DEV void pattn_merge(const attn_args &a, const attn_block &t, uint32_t q, uint32_t lane, const pattn_words &in,
                        const pattn_words &to, uint8_t *packed, uint32_t cap) {
  enum { DEEP = 4 };
  const uint32_t e = a.op.head_dim, j = 4 * math_min(lane, e / 4 - 1);
  const size_t step = (size_t)a.op.tile_rows * t.group * (ATTN_HEADER + e);
  const float *part = attn_part(a, t, t.c0, q);
  float4 v = make_float4(-0.0f, -0.0f, -0.0f, -0.0f);
  float m = -INFINITY, sum = 0;
#pragma unroll 1
  for (uint32_t left = t.c1 - t.c0; left > 0; left -= math_min(left, 32), part += 32 * step) {
    const uint32_t n = math_min(left, 32);
    const float *const head = part + math_min(lane, n - 1) * step, *next = part + ATTN_HEADER + j;
    pattn_four x[DEEP];
#pragma unroll
    for (uint32_t d = 0; d < DEEP; d++, next += step)
      if (d < n) x[d] = pattn_ask<WORDS>(in, next);
    const float2 both = pattn_head<WORDS>(in, head);
    float mine = both.x;
    const float xs = both.y;
    if (lane >= n) mine = -INFINITY;
    float most = mine;
#pragma unroll 1
    for (uint32_t d = 1; d < 32; d *= 2) {
      const float before = port_up(most, d);
      if (lane >= d) most = math_max2(before, most);
    }
    most = math_max2(m, most);
    float before = port_up(most, 1);
    if (lane == 0) before = m;
    const float fa = before == -INFINITY ? 0.0f : math_exp(before - most);
    const float fb = mine == -INFINITY ? 0.0f : math_exp(mine - most);
    m = port_from(most, 31);
#pragma unroll 1
    for (uint32_t i = 0; i < n; i += DEEP) {
#pragma unroll
      for (uint32_t d = 0; d < DEEP; d++, next += step) {
        if (i + d >= n) break;
        const float f = port_from(fa, i + d), h = port_from(fb, i + d);
        sum = fmaf(sum, f, port_from(xs, i + d) * h);
        const float4 y = pattn_get<WORDS>(in, next - DEEP * step, x[d]);
        v.x = fmaf(v.x, f, y.x * h);
        v.y = fmaf(v.y, f, y.y * h);
        v.z = fmaf(v.z, f, y.z * h);
        v.w = fmaf(v.w, f, y.w * h);
        if (i + d + DEEP < n) x[d] = pattn_ask<WORDS>(in, next);
      }
    }
  }
  if (4 * lane >= e) return;
  float4 out = make_float4(0, 0, 0, 0);
  if (sum != 0.0f) out = make_float4(v.x / sum, v.y / sum, v.z / sum, v.w / sum);
  pattn_out<WORDS, F16>(a, attn_row(t, q), attn_head(t, q) * e + j, out, to, packed, cap);
}

#endif
