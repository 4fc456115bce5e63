/*
 * device/cuda/attn_chunk.cuh - one chunk of 64 positions for the queries of a block: fetching, scores, weights, values.
 * Every sum in the order of kernels.h (attn_chunk).
 */
#ifndef DF_DEVICE_CUDA_ATTN_CHUNK_CUH
#define DF_DEVICE_CUDA_ATTN_CHUNK_CUH

#include "device/cuda/attn_tile.cuh"

/* Slots of the chunk's positions, and which of them rows of this pass fill (fused only). */
DF_DEV void chunk_slots(const attn_args &a, const attn_block &t, const attn_layout &l, uint8_t *shared,
                        uint32_t chunk) {
  uint32_t *slots = (uint32_t *)(shared + l.slots), *pos_of = (uint32_t *)(shared + l.fresh);
  uint32_t *is_fresh = pos_of + ATTN_FRESH;
  const uint32_t i = threadIdx.x, sink = math_max(a.op.kv.block_slots, 1);
  if (i < DF_KV_CHUNK) slots[i] = attn_slot(a, t, chunk * DF_KV_CHUNK + i);
  if (!a.fused) return;
  if (i < ATTN_FRESH) pos_of[i] = ATTN_NONE;
  port_block_sync();
  if (i >= DF_KV_CHUNK) return;
  is_fresh[i] = 0;
  const uint32_t rows = t.q1 - t.q0; /* a lane loads that of a row */
  const uint32_t its = i % 32 < rows ? a.rope.slot[t.q0 + i % 32] : 0;
#pragma unroll 1
  for (uint32_t r = 0; r < rows; r++) {
    const uint32_t slot = port_from(its, r);
    if (slot != slots[i] || slot < sink) continue;
    is_fresh[i] = 1;
    pos_of[r] = i;
  }
}

/* n floats (a multiple of 4) to shared memory by one warp. */
DF_DEV void chunk_copy(float *to, const float *from, uint32_t n, uint32_t lane) {
  if ((uintptr_t)from % 16 == 0) {
#pragma unroll 1
    for (uint32_t i = 4 * lane; i < n; i += 128) port_copy16(to + i, from + i);
  } else {
#pragma unroll 1
    for (uint32_t i = lane; i < n; i += 32) to[i] = port_load(from + i);
  }
}

/* What the rotation of this pass's rows needs and no kernel writes: tables at their positions, norm weights. */
DF_DEV void chunk_tables(const attn_args &a, const attn_block &t, const attn_layout &l, uint8_t *shared) {
  const uint32_t e = a.op.head_dim, lane = threadIdx.x % 32, warp = threadIdx.x / 32, rows = t.q1 - t.q0;
#pragma unroll 1
  for (uint32_t u = warp; u < 2 * rows; u += ATTN_WARPS) {
    const size_t at = (size_t)a.rope.pos[t.q0 + u / 2] * (e / 2);
    chunk_copy((float *)(shared + l.tables) + (size_t)u * (e / 2), (u % 2 ? a.rope.sin : a.rope.cos) + at, e / 2, lane);
  }
}

DF_DEV void chunk_norms(const attn_args &a, const attn_layout &l, uint8_t *shared) {
  const uint32_t e = a.op.head_dim, lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const float *const w = warp == 0 ? a.rope.q_norm : a.rope.k_norm;
  if (warp < 2 && w) chunk_copy((float *)(shared + l.norms) + warp * e, w, e, lane);
}

/* What earlier passes stored of the chunk's K and V on its way to shared memory. */
template <bool F16>
DF_DEV void chunk_fetch_old(const attn_args &a, const attn_block &t, const attn_layout &l, uint8_t *shared) {
  const uint32_t *slots = (const uint32_t *)(shared + l.slots);
  const uint32_t *is_fresh = (const uint32_t *)(shared + l.fresh) + ATTN_FRESH;
  const uint32_t e = a.op.head_dim, size = F16 ? 2 : 4, row = e * size, pieces = row / 16;
  for (uint32_t i = threadIdx.x; i < DF_KV_CHUNK * pieces; i += ATTN_THREADS) {
    const uint32_t p = i / pieces, at = i % pieces * 16;
    if (slots[p] == UINT32_MAX || (a.fused && is_fresh[p])) continue;
    const size_t from = ((size_t)slots[p] * a.op.n_kv + t.g) * row + at;
    port_copy16(shared + l.k + p * l.k_ld * size + at, a.op.kv.k + from);
    port_copy16(shared + l.v + p * row + at, a.op.kv.v + from);
  }
  port_copy_commit();
}

/* This pass's rows of K and V in the chunk, as vectors; with_q: the queries too. */
DF_DEV void chunk_fetch_new(const attn_args &a, const attn_block &t, const attn_layout &l, uint8_t *shared,
                            bool with_q) {
  const uint32_t *pos_of = (const uint32_t *)(shared + l.fresh);
  const uint32_t e = a.op.head_dim, lane = threadIdx.x % 32, warp = threadIdx.x / 32, n_q = with_q ? t.n : 0;
#pragma unroll 1
  for (uint32_t u = warp; u < n_q; u += ATTN_WARPS)
    chunk_copy((float *)(shared + l.q) + (size_t)u * e,
               a.op.q + attn_row(t, u) * a.op.q_ld + (size_t)attn_head(t, u) * e, e, lane);
#pragma unroll 1
  for (uint32_t r = warp; a.fused && r < t.q1 - t.q0; r += ATTN_WARPS) {
    if (pos_of[r] == ATTN_NONE) continue;
    float *const to = (float *)(shared + l.vectors) + (size_t)r * 2 * e;
    chunk_copy(to, a.rope.k + (t.q0 + r) * a.rope.k_ld + (size_t)t.g * e, e, lane);
    chunk_copy(to + e, a.rope.v + (t.q0 + r) * a.rope.v_ld + (size_t)t.g * e, e, lane);
  }
  port_copy_commit();
}

/* Which queries see each position. */
DF_DEV void chunk_seen(const attn_args &a, const attn_block &t, const attn_layout &l, uint8_t *shared, uint32_t chunk) {
  if (threadIdx.x >= DF_KV_CHUNK) return;
  const uint32_t p = chunk * DF_KV_CHUNK + threadIdx.x, row0 = t.first / t.group, rows = ATTN_QUERIES;
  const uint32_t mine = t.r0 + row0 + threadIdx.x % rows; /* a lane loads the position of a row */
  const uint32_t its = mine < t.q1 ? a.op.batch->pos[mine] : 0;
  uint32_t word = 0;
#pragma unroll 1
  for (uint32_t q = 0, row = row0; q < t.n; row++) {
    const uint32_t end = math_min((row + 1) * t.group - t.first, t.n), n = end - q;
    if (attn_sees(a, t, t.r0 + row, port_from(its, row - row0), p)) word |= UINT32_MAX >> (32 - n) << q;
    q = end;
  }
  ((uint32_t *)(shared + l.seen))[threadIdx.x] = word;
}

DF_DEV void chunk_put(uint8_t *to, bool f16, uint32_t i, float v) {
  if (f16)
    ((uint16_t *)to)[i] = math_to_f16(v);
  else
    ((float *)to)[i] = v;
}

/* K (rotated) and V of row r (of the sequence) of this pass to position p of the chunk; block 0 of the head stores them
 * too. */
template <bool F16>
DF_DEV void chunk_fresh(const attn_args &a, const attn_block &t, const attn_layout &l, uint8_t *shared, uint32_t r,
                        uint32_t p, uint32_t lane) {
  const uint32_t e = a.op.head_dim;
  const float *const k = (const float *)(shared + l.vectors) + (size_t)r * 2 * e, *const v = k + e;
  const size_t to = ((size_t)((const uint32_t *)(shared + l.slots))[p] * a.op.n_kv + t.g) * e;
  uint8_t *const k_row = shared + l.k + p * l.k_ld * (F16 ? 2 : 4), *const v_row = shared + l.v + p * e * (F16 ? 2 : 4);
#pragma unroll 1
  for (uint32_t i = lane; i < e; i += 32) {
    chunk_put(k_row, F16, i, k[i]);
    chunk_put(v_row, F16, i, v[i]);
    if (t.sub != 0) continue;
    head_store(a.op.kv.k, a.op.kv.type, to + i, k[i]);
    head_store(a.op.kv.v, a.op.kv.type, to + i, v[i]);
  }
}

/* Rotations by warps: the block's queries (with_q), then this pass's rows that lie in the chunk. */
template <bool F16>
DF_DEV void chunk_rotate(const attn_args &a, const attn_block &t, const attn_layout &l, uint8_t *shared, bool with_q) {
  const uint32_t e = a.op.head_dim, lane = threadIdx.x % 32, warp = threadIdx.x / 32, n_q = with_q ? t.n : 0;
  const uint32_t n_fresh = t.q1 - t.q0, *pos_of = (const uint32_t *)(shared + l.fresh);
  const float *const norms = (const float *)(shared + l.norms);
#pragma unroll 1
  for (uint32_t u = warp; u < n_q + n_fresh; u += ATTN_WARPS) {
    const bool is_q = u < n_q;
    const uint32_t r = is_q ? attn_row(t, u) - t.q0 : u - n_q, p = is_q ? 0 : pos_of[r];
    if (p == ATTN_NONE) continue;
    float *const x = is_q ? (float *)(shared + l.q) + (size_t)u * e : (float *)(shared + l.vectors) + (size_t)r * 2 * e;
    const float *const norm = is_q ? (a.rope.q_norm ? norms : 0) : (a.rope.k_norm ? norms + e : 0);
    const float *const cos = (const float *)(shared + l.tables) + (size_t)r * e;
    head_rotate(x, norm, a.rope.eps, cos, cos + e / 2, e, lane);
    if (!is_q) chunk_fresh<F16>(a, t, l, shared, r, p, lane);
  }
}

/* What a chunk needs to know of the batch alone. */
DF_DEV void attn_prepare(const attn_args &a, const attn_block &t, const attn_layout &l, uint8_t *shared,
                         uint32_t chunk) {
  chunk_slots(a, t, l, shared, chunk);
  chunk_seen(a, t, l, shared, chunk);
}

/* Eight neighbouring elements as floats. */
template <bool F16>
DF_DEV void chunk_eight(const uint8_t *p, float out[8]) {
  if (F16) {
    const uint4 w = *(const uint4 *)p;
    const uint32_t u[4] = {w.x, w.y, w.z, w.w};
#pragma unroll
    for (int i = 0; i < 4; i++) {
      out[2 * i] = port_f16_value((uint16_t)u[i]);
      out[2 * i + 1] = port_f16_value((uint16_t)(u[i] >> 16));
    }
  } else {
    const float4 a = *(const float4 *)p, b = *(const float4 *)(p + 16);
    out[0] = a.x, out[1] = a.y, out[2] = a.z, out[3] = a.w;
    out[4] = b.x, out[5] = b.y, out[6] = b.z, out[7] = b.w;
  }
}

/* scores[q][p] = scale * (chain over e). One thread: a position and QB queries. */
template <bool F16, int QB>
DF_DEV void chunk_scores(const attn_args &a, const attn_block &t, const attn_layout &l, uint8_t *shared) {
  const uint32_t e = a.op.head_dim, units = DF_KV_CHUNK * ((t.n + QB - 1) / QB);
  float *scores = (float *)(shared + l.scores);
#pragma unroll 1
  for (uint32_t u = threadIdx.x; u < units; u += ATTN_THREADS) {
    const uint32_t p = u % DF_KV_CHUNK, q0 = u / DF_KV_CHUNK * QB;
    const uint8_t *k = shared + l.k + p * l.k_ld * (F16 ? 2 : 4);
    const float *q = (const float *)(shared + l.q) + (size_t)q0 * e;
    float acc[QB];
#pragma unroll
    for (int i = 0; i < QB; i++) acc[i] = 0;
#pragma unroll 4
    for (uint32_t j = 0; j < e; j += 8) {
      float kv[8];
      chunk_eight<F16>(k + j * (F16 ? 2 : 4), kv);
#pragma unroll
      for (int i = 0; i < QB; i++) {
        const float4 x = *(const float4 *)(q + i * e + j), y = *(const float4 *)(q + i * e + j + 4);
        acc[i] = fmaf(kv[0], x.x, acc[i]);
        acc[i] = fmaf(kv[1], x.y, acc[i]);
        acc[i] = fmaf(kv[2], x.z, acc[i]);
        acc[i] = fmaf(kv[3], x.w, acc[i]);
        acc[i] = fmaf(kv[4], y.x, acc[i]);
        acc[i] = fmaf(kv[5], y.y, acc[i]);
        acc[i] = fmaf(kv[6], y.z, acc[i]);
        acc[i] = fmaf(kv[7], y.w, acc[i]);
      }
    }
#pragma unroll
    for (int i = 0; i < QB; i++)
      if (q0 + i < t.n) scores[(q0 + i) * DF_KV_CHUNK + p] = acc[i] * a.op.scale;
  }
}

/* Weights p0, p1 of the positions lane and lane + 32 from query q's scores, by one warp; pages are halves of those.
 * Returns maximum and sum in all lanes. */
DF_DEV float2 chunk_weights(const attn_layout &l, const uint8_t *shared, uint32_t q, uint32_t lane, float &p0,
                            float &p1) {
  const float *scores = (const float *)(shared + l.scores) + q * DF_KV_CHUNK;
  const uint32_t *seen = (const uint32_t *)(shared + l.seen);
  const bool on0 = seen[lane] >> q & 1, on1 = seen[lane + 32] >> q & 1;
  const float s0 = on0 ? scores[lane] : -INFINITY, s1 = on1 ? scores[lane + 32] : -INFINITY;
  const float other0 = port_xor(s0, 16), other1 = port_xor(s1, 16);
  float m = math_max2(s0, -INFINITY); /* right in lanes 0..15: pages 0, 1, 2, 3 */
  m = math_max2(other0, m);
  m = math_max2(s1, m);
  m = math_max2(other1, m);
  for (uint32_t w = 8; w > 0; w /= 2) m = math_max2(m, port_xor(m, w));
  m = port_from(m, 0);
  p0 = on0 ? math_exp(s0 - m) : 0.0f;
  p1 = on1 ? math_exp(s1 - m) : 0.0f;
  const float next0 = port_xor(p0, 16), next1 = port_xor(p1, 16);
  const float2 r = {m, math_tree16((p0 + next0) + (p1 + next1))};
  return r;
}

/* The same, weights to where chunk_values reads them. */
DF_DEV float2 chunk_softmax(const attn_layout &l, uint8_t *shared, uint32_t q, uint32_t lane) {
  float p0, p1, *const p = (float *)(shared + l.p);
  const float2 r = chunk_weights(l, shared, q, lane, p0, p1);
  p[lane * l.p_ld + q] = p0;
  p[(lane + 32) * l.p_ld + q] = p1;
  return r;
}

template <bool F16>
DF_DEV float2 chunk_pair(const uint8_t *v, uint32_t i) {
  float2 r;
  if (F16) {
    const uint32_t w = ((const uint32_t *)v)[i];
    r.x = port_f16_value((uint16_t)w);
    r.y = port_f16_value((uint16_t)(w >> 16));
  } else {
    r = ((const float2 *)v)[i];
  }
  return r;
}

/* Four neighbouring positions: which of them the queries see, values, weights. */
template <int QB>
struct chunk_four {
  uint4 seen;
  float2 x[4];
  float w[4][QB];
};

template <bool F16, int QB>
DF_DEV void chunk_read_four(const attn_layout &l, const uint8_t *shared, uint32_t row, uint32_t pair, uint32_t q0,
                            uint32_t p0, chunk_four<QB> &f) {
  f.seen = *(const uint4 *)((const uint32_t *)(shared + l.seen) + p0);
  const float *const weights = (const float *)(shared + l.p) + p0 * l.p_ld + q0;
#pragma unroll
  for (int p = 0; p < 4; p++) {
    f.x[p] = chunk_pair<F16>(shared + l.v + (p0 + p) * row, pair);
#pragma unroll
    for (int i = 0; i < QB; i++) {
      if (QB % 4 == 0 && i % 4 == 0) *(float4 *)(f.w[p] + i) = *(const float4 *)(weights + p * l.p_ld + i);
      if (QB % 4 != 0) f.w[p][i] = weights[p * l.p_ld + i];
    }
  }
}

/* acc[q][0..1] = chain over the visible positions of weights and two neighbouring elements of V, for QB queries. The
 * next positions are read while these are added. */
template <bool F16, int QB>
DF_DEV void chunk_values(const attn_layout &l, const uint8_t *shared, uint32_t e, uint32_t pair, uint32_t q0,
                         uint32_t all, float acc[QB][2]) {
  const uint32_t row = e * (F16 ? 2 : 4);
#pragma unroll
  for (int i = 0; i < QB; i++) acc[i][0] = acc[i][1] = 0;
  chunk_four<QB> next;
  chunk_read_four<F16, QB>(l, shared, row, pair, q0, 0, next);
#pragma unroll 1
  for (uint32_t p0 = 0; p0 < DF_KV_CHUNK; p0 += 4) {
    const chunk_four<QB> f = next;
    if (p0 + 4 < DF_KV_CHUNK) chunk_read_four<F16, QB>(l, shared, row, pair, q0, p0 + 4, next);
    const uint32_t words[4] = {f.seen.x >> q0, f.seen.y >> q0, f.seen.z >> q0, f.seen.w >> q0};
    if (((words[0] | words[1] | words[2] | words[3]) & all) == 0) continue;
    if ((words[0] & words[1] & words[2] & words[3] & all) == all) {
#pragma unroll
      for (int p = 0; p < 4; p++) {
#pragma unroll
        for (int i = 0; i < QB; i++) {
          acc[i][0] = fmaf(f.x[p].x, f.w[p][i], acc[i][0]);
          acc[i][1] = fmaf(f.x[p].y, f.w[p][i], acc[i][1]);
        }
      }
      continue;
    }
#pragma unroll
    for (int p = 0; p < 4; p++) {
#pragma unroll
      for (int i = 0; i < QB; i++) {
        const float x = fmaf(f.x[p].x, f.w[p][i], acc[i][0]), y = fmaf(f.x[p].y, f.w[p][i], acc[i][1]);
        const bool sees = words[p] >> i & 1; /* what it does not see may be anything */
        acc[i][0] = sees ? x : acc[i][0];
        acc[i][1] = sees ? y : acc[i][1];
      }
    }
  }
}

#endif
