/*
 * device/cuda/persist_many.cuh - attention as a stage of a pass of BF16 or F16 weights, for many queries of a block:
 * all vectors fetched at once, half a warp to a vector. Sums in the order of kernels.h, as in attn_chunk.cuh; K and V
 * are f16, heads 64 or 128 wide.
 */
#ifndef DF_DEVICE_CUDA_PERSIST_MANY_CUH
#define DF_DEVICE_CUDA_PERSIST_MANY_CUH

#include "device/cuda/attn_chunk.cuh"
#include "device/cuda/mma_block.cuh"

enum { MATTN_REGS = 8 /* elements of a head that a lane holds, sixteen lanes a head: lane, lane + 16, ... */ };

/* rmsnorm by w (NULL: none), then rotation, of a head in the registers of sixteen lanes; the warp's other half may have
 * another one. norm: some head of the two is normed. */
DF_DEV void mattn_rotate(float x[MATTN_REGS], bool norm, const float *w, float eps, const float *cos, const float *sin,
                         uint32_t e, uint32_t lane) {
  if (norm) {
    float a = 0;
#pragma unroll
    for (uint32_t j = 0; j < MATTN_REGS; j++)
      if (16 * j < e) a = fmaf(x[j], x[j], a);
    const float f = 1.0f / sqrtf(math_tree16(a) / (float)e + eps);
#pragma unroll
    for (uint32_t j = 0; j < MATTN_REGS; j++)
      if (w && 16 * j < e) x[j] = (x[j] * f) * w[lane + 16 * j];
  }
  const bool wide = e == 128;
#pragma unroll
  for (uint32_t j = 0; j < MATTN_REGS / 2; j++) {
    if (32 * j >= e) continue;
    const float a = x[j], b = wide ? x[j + 4] : x[j + 2], c = cos[lane + 16 * j], s = sin[lane + 16 * j];
    const float r = fmaf(b, c, a * s);
    x[j] = fmaf(a, c, -(b * s));
    if (wide)
      x[j + 4] = r;
    else
      x[j + 2] = r;
  }
}

/* K (rotated) or V of a row of this pass to position p of the chunk; block 0 of the head stores it too. */
DF_DEV void mattn_fresh(const attn_args &a, const attn_block &t, const attn_layout &l, uint8_t *shared,
                        const float x[MATTN_REGS], bool is_v, uint32_t p, uint32_t lane) {
  const uint32_t e = a.op.head_dim;
  const size_t to = ((size_t)((const uint32_t *)(shared + l.slots))[p] * a.op.n_kv + t.g) * e + lane;
  uint16_t *const row = (uint16_t *)(shared + (is_v ? l.v : l.k)) + p * (is_v ? e : l.k_ld) + lane;
  uint16_t *const store = (uint16_t *)(is_v ? a.op.kv.v : a.op.kv.k) + to;
#pragma unroll
  for (uint32_t j = 0; j < MATTN_REGS; j++) {
    if (16 * j >= e) continue;
    const uint16_t h = math_to_f16(x[j]);
    row[16 * j] = h;
    if (t.sub == 0) store[16 * j] = h;
  }
}

/* Rotates the queries (with_q) and makes K and V of this pass's rows that lie in the chunk, from where chunk_fetch_new
 * brought them; half a warp takes one vector. */
DF_DEV void mattn_vectors(const attn_args &a, const attn_block &t, const attn_layout &l, uint8_t *shared, bool with_q) {
  const uint32_t e = a.op.head_dim, lane = threadIdx.x % 16, rows = t.q1 - t.q0, n_q = with_q ? t.n : 0;
  const uint32_t n = n_q + 2 * rows, *const pos_of = (const uint32_t *)(shared + l.fresh);
  const float *const norms = (const float *)(shared + l.norms);
#pragma unroll 1
  for (uint32_t u0 = threadIdx.x / 32 * 2; u0 < n; u0 += 2 * ATTN_WARPS) {
    const uint32_t u = u0 + threadIdx.x % 32 / 16;
    const bool is_q = u < n_q, is_v = !is_q && (u - n_q) % 2;
    const uint32_t r = is_q ? attn_row(t, u) - t.q0 : math_min((u - n_q) / 2, rows - 1);
    const uint32_t p = u >= n ? (uint32_t)ATTN_NONE : is_q ? 0 : pos_of[r];
    const uint32_t other = port_xor(p, 16);
    if (p == ATTN_NONE && other == ATTN_NONE) continue;
    float *const at = (float *)(shared + (is_q ? l.q : l.vectors)) +
                      (is_q             ? u
                       : p == ATTN_NONE ? 0
                                        : u - n_q) *
                          e +
                      lane;
    float x[MATTN_REGS], y[MATTN_REGS];
#pragma unroll
    for (uint32_t j = 0; j < MATTN_REGS; j++) x[j] = y[j] = 16 * j < e ? at[16 * j] : 0.0f;
    const float *const norm = is_q ? (a.rope.q_norm ? norms : 0) : (a.rope.k_norm ? norms + e : 0);
    const float *const cos = (const float *)(shared + l.tables) + r * e;
    mattn_rotate(y, a.rope.q_norm || a.rope.k_norm, norm, a.rope.eps, cos, cos + e / 2, e, lane);
    if (p == ATTN_NONE) continue;
#pragma unroll
    for (uint32_t j = 0; j < MATTN_REGS; j++) x[j] = is_v ? x[j] : y[j]; /* no choice of arrays: they are registers */
    if (!is_q) {
      mattn_fresh(a, t, l, shared, x, is_v, p, lane);
      continue;
    }
#pragma unroll
    for (uint32_t j = 0; j < MATTN_REGS; j++)
      if (16 * j < e) at[16 * j] = x[j];
  }
}

/* Scores of the queries become weights, half a warp to a query; maximum and sum to its part. The order is that of
 * chunk_weights, and weights go where chunk_values reads them. */
DF_DEV void mattn_softmax(const attn_layout &l, uint8_t *shared, uint32_t n, float *parts, uint32_t part) {
  const uint32_t lane = threadIdx.x % 16, *const seen = (const uint32_t *)(shared + l.seen);
#pragma unroll 1
  for (uint32_t q0 = threadIdx.x / 32 * 2; q0 < n; q0 += 2 * ATTN_WARPS) {
    const uint32_t q = q0 + threadIdx.x % 32 / 16;
    float *const scores = (float *)(shared + l.scores) + math_min(q, n - 1) * DF_KV_CHUNK + lane;
    float s[4], m = -INFINITY;
    bool on[4];
#pragma unroll
    for (uint32_t i = 0; i < 4; i++) {
      on[i] = seen[lane + 16 * i] >> q & 1;
      s[i] = on[i] ? scores[16 * i] : -INFINITY;
      m = math_max2(s[i], m);
    }
#pragma unroll
    for (uint32_t w = 8; w > 0; w /= 2) m = math_max2(m, port_xor(m, w));
    m = port_from(m, threadIdx.x & 16);
#pragma unroll
    for (uint32_t i = 0; i < 4; i++) s[i] = on[i] ? math_exp(s[i] - m) : 0.0f;
    const float sum = math_tree16((s[0] + s[1]) + (s[2] + s[3]));
    if (q >= n) continue;
#pragma unroll
    for (uint32_t i = 0; i < 4; i++) ((float *)(shared + l.p))[(lane + 16 * i) * l.p_ld + q] = s[i];
    if (lane == 0) *(float2 *)(parts + (size_t)q * part) = {m, sum};
  }
}

/* chunk_scores for many queries: a thread has four of them and two positions, so that what it reads is used more often.
 */
DF_DEV void mattn_scores(const attn_args &a, const attn_block &t, const attn_layout &l, uint8_t *shared) {
  enum { QB = 4 };
  const uint32_t e = a.op.head_dim, units = 32 * ((t.n + QB - 1) / QB);
  float *const scores = (float *)(shared + l.scores);
#pragma unroll 1
  for (uint32_t u = threadIdx.x; u < units; u += ATTN_THREADS) {
    const uint32_t p = u % 32, q0 = u / 32 * QB;
    const uint8_t *k = shared + l.k + p * l.k_ld * 2, *const k2 = k + 32 * l.k_ld * 2;
    const float *const q = (const float *)(shared + l.q) + (size_t)q0 * e;
    float acc[QB][2] = {};
#pragma unroll 2
    for (uint32_t j = 0; j < e; j += 8) {
      float x[8], y[8];
      chunk_eight<true>(k + j * 2, x);
      chunk_eight<true>(k2 + j * 2, y);
#pragma unroll
      for (int i = 0; i < QB; i++) {
        const float4 v = *(const float4 *)(q + i * e + j), w = *(const float4 *)(q + i * e + j + 4);
        const float z[8] = {v.x, v.y, v.z, v.w, w.x, w.y, w.z, w.w};
#pragma unroll
        for (int c = 0; c < 8; c++) {
          acc[i][0] = fmaf(x[c], z[c], acc[i][0]);
          acc[i][1] = fmaf(y[c], z[c], acc[i][1]);
        }
      }
    }
#pragma unroll
    for (int i = 0; i < QB; i++) {
      if (q0 + i >= t.n) continue;
      scores[(q0 + i) * DF_KV_CHUNK + p] = acc[i][0] * a.op.scale;
      scores[(q0 + i) * DF_KV_CHUNK + p + 32] = acc[i][1] * a.op.scale;
    }
  }
}

/* mattn_values for many queries: a thread has four of them and four neighbouring elements. */
DF_DEV void mattn_values(const attn_args &a, uint32_t n, const attn_layout &l, const uint8_t *shared, float *parts) {
  enum { QB = 4 };
  const uint32_t e = a.op.head_dim, quads = e / 4, row = 2 * e;
#pragma unroll 1
  for (uint32_t u = threadIdx.x; u < quads * ((n + QB - 1) / QB); u += ATTN_THREADS) {
    const uint32_t quad = e == 128 ? u % 32 : u % 16, q0 = (e == 128 ? u / 32 : u / 16) * QB;
    const uint32_t some = math_min(n - q0, QB), all = (1u << some) - 1;
    const float *weights = (const float *)(shared + l.p) + q0;
    const uint32_t *seen = (const uint32_t *)(shared + l.seen);
    const uint8_t *v = shared + l.v + 8 * quad;
    float acc[QB][4] = {};
#pragma unroll 1
    for (uint32_t p0 = 0; p0 < DF_KV_CHUNK; p0 += 4, weights += 4 * l.p_ld, seen += 4, v += 4 * row) {
      const uint4 s = *(const uint4 *)seen;
      const uint32_t words[4] = {s.x >> q0 & all, s.y >> q0 & all, s.z >> q0 & all, s.w >> q0 & all};
      if ((words[0] | words[1] | words[2] | words[3]) == 0) continue;
      const bool whole = (words[0] & words[1] & words[2] & words[3]) == all;
#pragma unroll
      for (uint32_t p = 0; p < 4; p++) {
        const float2 x = chunk_pair<true>(v + p * row, 0), y = chunk_pair<true>(v + p * row, 1);
        const float4 w4 = *(const float4 *)(weights + p * l.p_ld);
        const float w[4] = {w4.x, w4.y, w4.z, w4.w};
#pragma unroll
        for (uint32_t i = 0; i < QB; i++) {
          if (!whole && !(words[p] >> i & 1)) continue; /* what it does not see may be anything */
          acc[i][0] = fmaf(x.x, w[i], acc[i][0]);
          acc[i][1] = fmaf(x.y, w[i], acc[i][1]);
          acc[i][2] = fmaf(y.x, w[i], acc[i][2]);
          acc[i][3] = fmaf(y.y, w[i], acc[i][3]);
        }
      }
    }
#pragma unroll
    for (uint32_t i = 0; i < QB; i++) {
      float *const to = parts + (size_t)(q0 + i) * (ATTN_HEADER + e) + ATTN_HEADER + 4 * quad;
      if (i < some) *(float4 *)to = make_float4(acc[i][0], acc[i][1], acc[i][2], acc[i][3]);
    }
  }
}

/* A chunk whose old K and V are on their way, to parts; first: of the block's chunks. */
DF_DEV void mattn_chunk(const attn_args &a, const attn_block &t, const attn_layout &l, uint8_t *shared, uint32_t chunk,
                        bool first) {
  float *const parts = attn_part(a, t, chunk, 0);
  chunk_fetch_new(a, t, l, shared, first);
  port_copy_wait<0>(); /* what was fetched of K and V and what warps write now are other rows */
  port_block_sync();
  mattn_vectors(a, t, l, shared, first);
  port_block_sync();
  mattn_scores(a, t, l, shared);
  port_block_sync();
  mattn_softmax(l, shared, t.n, parts, ATTN_HEADER + a.op.head_dim);
  port_block_sync();
  mattn_values(a, t.n, l, shared, parts);
  port_block_sync(); /* K, V, weights are free for the next chunk */
}

#endif
