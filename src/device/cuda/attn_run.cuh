/*
 * device/cuda/attn_run.cuh - a block's way through its chunks: running state, parts, joining of parts, output.
 */
#ifndef DF_DEVICE_CUDA_ATTN_RUN_CUH
#define DF_DEVICE_CUDA_ATTN_RUN_CUH

#include "device/cuda/attn_chunk.cuh"

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

/* A chunk whose old K and V are on their way; first: of the block's chunks. */
template <bool F16, int QB>
DF_DEV void attn_compute(const attn_args &a, const attn_block &t, const attn_layout &l, uint8_t *shared,
                         const attn_run &s, uint32_t chunk, bool first, bool parts) {
  const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  chunk_fetch_new(a, t, l, shared, first);
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
  enum { DEEP = 8 };
  const uint32_t e = a.op.head_dim, per = e / 4 + 1, n = math_min(t.c1 - c, ATTN_BATCH);
  const size_t step = (size_t)a.op.tile_rows * t.group * (ATTN_HEADER + e);
#pragma unroll 1
  for (uint32_t u = threadIdx.x; u < t.n * per; u += ATTN_THREADS) {
    const uint32_t q = u / per, j = u % per * 4;
    const bool is_sum = j == e;
    const float *part = attn_part(a, t, c, q) + (is_sum ? 0 : ATTN_HEADER + j);
    float *const to = is_sum ? 0 : s.acc + (size_t)q * e + j;
    float4 v = is_sum ? make_float4(0, s.sum[q], 0, 0) : *(const float4 *)to;
    const float *const ua = fa + q * ATTN_BATCH, *const ub = fb + q * ATTN_BATCH;
#pragma unroll 1
    for (uint32_t i0 = 0; i0 < n; i0 += DEEP) {
      float4 x[DEEP];
#pragma unroll
      for (uint32_t d = 0; d < DEEP; d++) x[d] = port_load4(part + math_min(i0 + d, n - 1) * step);
#pragma unroll
      for (uint32_t d = 0; d < DEEP; d++) {
        if (i0 + d >= n) break;
        const float f = ua[i0 + d], h = ub[i0 + d];
        const bool first = c + i0 + d == t.c0;
        v.x = first ? x[d].x : fmaf(v.x, f, x[d].x * h);
        v.y = first ? x[d].y : fmaf(v.y, f, x[d].y * h);
        v.z = first ? x[d].z : fmaf(v.z, f, x[d].z * h);
        v.w = first ? x[d].w : fmaf(v.w, f, x[d].w * h);
      }
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
      port_warp_sync(); /* all lanes have read it */
      if (lane == 0) s.m[q] = m;
    }
    port_block_sync();
    merge_batch(a, t, s, c, fa, fb);
    port_block_sync();
  }
}

/* True in the block that is the last of its tile to arrive; all parts are visible to it then. */
DF_DEV bool attn_last(const attn_args &a, const attn_layout &l, uint8_t *shared, uint32_t place, uint32_t n) {
  uint32_t *const last = (uint32_t *)(shared + l.last), *const count = a.counters + place;
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

/* Share `share` of block t's chunks, prepared already as far as its first. */
template <bool F16, int QB>
DF_DEV void attn_share(const attn_args &a, const attn_block &t, const attn_layout &l, uint8_t *shared, uint32_t share) {
  const attn_run s = run_of(l, shared, a.queries);
  const bool parts = !(a.merge && (a.shares == 1 || t.c1 - t.c0 == 1));
  for (uint32_t c = t.c0 + share; c < t.c1; c += a.shares) {
    const bool first = c == t.c0 + share;
    if (!first) attn_prepare(a, t, l, shared, c);
    port_block_sync();
    chunk_fetch_old<F16>(a, t, l, shared);
    attn_compute<F16, QB>(a, t, l, shared, s, c, first, parts);
  }
  if (parts) {
    if (!a.merge || !attn_last(a, l, shared, t.place, math_min(a.shares, t.c1 - t.c0))) return;
    attn_merge(a, t, l, shared, s);
  }
  attn_finish(a, t, s);
}

/* What can be known of a share before the kernel in front has ended. False when there is nothing to do. */
DF_DEV bool attn_begin(const attn_args &a, const attn_layout &l, uint8_t *shared, uint32_t place, uint32_t share,
                       attn_block *t) {
  if (!attn_find(a, place, t) || t->c0 + share >= t->c1) return false;
  if (a.fused) {
    chunk_tables(a, *t, l, shared);
    chunk_norms(a, l, shared);
  }
  attn_prepare(a, *t, l, shared, t->c0 + share);
  return true;
}

#endif
