/*
 * device/cuda/persist_cluster.cuh - a product as a stage of a pass, by clusters of four blocks that share the k of
 * every strip: each has a quarter of the operands in shared memory, so that 16 rows fit beside the ring, and strips are
 * small pieces of work. The sums are those of mma_block.cuh.
 *
 * In a turn a cluster takes two strips, or gate and up of one. Two warps of a block share a pair of parts: one has the
 * first strip (or gate), one the second (or up). A warp sends the sums of its pair to the blocks that finish them, each
 * an equal share of the outputs, and finishes those of a turn when it is through with the next: by then they are there.
 * It sends turn n + 1 when it has seen turn n, so two slots are enough (mma_block.cuh); the turns of a pass are counted
 * through.
 *
 * Operands come in one of three ways: as the stage in front left them (one copy a pair of parts), normed (each block
 * takes a share of the rows and sends the others their quarters; few rows are normed by every block for itself), or as
 * they are in memory.
 */
#ifndef DF_DEVICE_CUDA_PERSIST_CLUSTER_CUH
#define DF_DEVICE_CUDA_PERSIST_CLUSTER_CUH

#include "device/cuda/persist_stream.cuh"

enum { CLUSTER_ALONE = 2 /* rows that every block norms for itself */, CLUSTER_QUADS = 4 };

/* What a thread keeps from stage to stage. */
struct persist_cluster {
  float *sums;
  port_mailbox *box;
  uint32_t rank, turns, sent, fetched; /* turns and operands so far */
};

/* Shared memory of the stage's work: operands of the block's tiles; rows to be normed, their factors. */
typedef struct persist_cluster_layout {
  uint32_t b, rows, factors, bytes, row_floats;
} persist_cluster_layout;

DF_FRAG_FN persist_cluster_layout persist_place_cluster(uint32_t k, uint32_t cap, bool norm, uint32_t cluster) {
  persist_cluster_layout l;
  const uint32_t tiles = (df_frag_tiles(k) + cluster - 1) / cluster;
  const uint32_t shared_rows = (cap + cluster - 1) / cluster, own_rows = math_min(cap, CLUSTER_ALONE);
  l.row_floats = (k + 3) & ~3u;
  l.b = 0;
  l.rows = tiles * cap * 32;
  l.factors = l.rows + (norm ? math_max(shared_rows, own_rows) * l.row_floats * 4 : 0);
  l.bytes = l.factors + MMA_ROWS * 4;
  return l;
}

/* First tile of block `rank`. */
template <int C>
DF_FRAG_FN uint32_t cluster_tile(uint32_t tiles, uint32_t rank) {
  return df_frag_part(tiles, rank * (DF_FRAG_PARTS / C));
}

/* Which rows and which k a block norms. */
struct cluster_norm {
  uint32_t r0, r1, k0, k1;
  bool alone;
  float4 w[CLUSTER_QUADS]; /* norm weights of the thread's first quads */
};

template <int C>
DF_DEV cluster_norm cluster_norm_of(const mma_args &a, uint32_t rank, uint32_t live) {
  cluster_norm n;
  const uint32_t tiles = df_frag_tiles(a.k), each = (live + C - 1) / C;
  n.alone = live <= CLUSTER_ALONE;
  n.r0 = n.alone ? 0 : math_min(rank * each, live);
  n.r1 = n.alone ? live : math_min(n.r0 + each, live);
  n.k0 = n.alone ? cluster_tile<C>(tiles, rank) * DF_FRAG_K : 0;
  n.k1 = (n.alone ? cluster_tile<C>(tiles, rank + 1) : tiles) * DF_FRAG_K;
#pragma unroll
  for (uint32_t d = 0; d < CLUSTER_QUADS; d++)
    n.w[d] = *(const float4 *)(a.norm_w + math_min(n.k0 + 4 * (threadIdx.x + MMA_THREADS * d), a.k - 4));
  return n;
}

/* Rows to shared memory and their norm factors, a warp each. */
DF_DEV void cluster_rows(const mma_args &a, const persist_cluster_layout &l, uint8_t *work, const cluster_norm &n) {
  float *const rows = (float *)(work + l.rows), *const factors = (float *)(work + l.factors);
  const uint32_t warp = threadIdx.x / 32, count = n.r1 - n.r0;
#pragma unroll 1
  for (uint32_t r = 0; r < count; r++) {
    const float *const from = mma_row(a, n.r0 + r);
#pragma unroll 1
    for (uint32_t i = 4 * threadIdx.x; i < a.k; i += 4 * MMA_THREADS)
      port_copy16(rows + r * l.row_floats + i, from + i);
  }
  port_copy_commit();
  port_copy_wait<0>();
  port_block_sync();
  if (warp < count) {
    const float f = math_rms_factor_short(rows + warp * l.row_floats, a.k, a.eps);
    if (threadIdx.x % 32 == 0) factors[warp] = f;
  }
  port_block_sync();
}

/* Normed operands to the blocks whose tiles they are. */
template <bool F16, int C>
DF_DEV void cluster_normed(const mma_args &a, const persist_cluster_layout &l, uint8_t *work, cluster_norm &n,
                           const persist_cluster &c, bool write) {
  const float *const rows = (const float *)(work + l.rows), *const factors = (const float *)(work + l.factors);
  const uint32_t tiles = df_frag_tiles(a.k), count = n.r1 - n.r0;
#pragma unroll 1
  for (uint32_t base = n.k0; base < n.k1; base += 4 * MMA_THREADS * CLUSTER_QUADS) {
#pragma unroll
    for (uint32_t d = 0; d < CLUSTER_QUADS; d++) {
      const uint32_t k = base + 4 * (threadIdx.x + MMA_THREADS * d), t = k / DF_FRAG_K;
      if (k >= n.k1) continue;
      uint32_t rank = 0;
#pragma unroll
      for (int r = 1; r < C; r++) rank += t >= cluster_tile<C>(tiles, r);
      const uint32_t first = cluster_tile<C>(tiles, rank);
      uint8_t *const to = work + l.b + ((size_t)((t - first) * a.cap + n.r0) * 4 + k / 4 % 4) * 8;
      const port_remote there = port_remote_of(to, c.box + PERSIST_BOX_SENT, rank);
      const float4 w = base == n.k0 ? n.w[d] : *(const float4 *)(a.norm_w + math_min(k, a.k - 4));
#pragma unroll 2
      for (uint32_t r = 0; r < count; r++) {
        const float f = factors[r];
        float4 v = make_float4(0, 0, 0, 0); /* the last tile's end */
        if (k < a.k) {
          const float4 x = *(const float4 *)(rows + r * l.row_floats + k);
          v = make_float4((x.x * f) * w.x, (x.y * f) * w.y, (x.z * f) * w.z, (x.w * f) * w.w);
          if (write) *(float4 *)(a.norm_out + (size_t)(n.r0 + r) * a.k + k) = v;
        }
        const uint2 o = mma_operand<F16>(v);
        if (n.alone)
          *(uint2 *)(to + 32 * r) = o;
        else
          port_remote_send8(there, 32 * r, o);
      }
    }
  }
}

/* Rows of memory as operands. */
template <bool F16, int C>
DF_DEV void cluster_plain(const mma_args &a, const persist_cluster_layout &l, uint8_t *work, uint32_t rank,
                          uint32_t live) {
  enum { DEEP = 4 };
  const uint32_t tiles = df_frag_tiles(a.k), k0 = cluster_tile<C>(tiles, rank) * DF_FRAG_K;
  const uint32_t k1 = cluster_tile<C>(tiles, rank + 1) * DF_FRAG_K;
#pragma unroll 1
  for (uint32_t r = 0; r < live; r++) {
    const float *const x = a.x + (size_t)r * a.k;
#pragma unroll 1
    for (uint32_t base = k0 + 4 * threadIdx.x; base < k1; base += 4 * MMA_THREADS * DEEP) {
      float4 v[DEEP];
#pragma unroll
      for (uint32_t d = 0; d < DEEP; d++) v[d] = port_load4(x + math_min(base + 4 * MMA_THREADS * d, a.k - 4));
#pragma unroll
      for (uint32_t d = 0; d < DEEP; d++) {
        const uint32_t k = base + 4 * MMA_THREADS * d;
        if (k >= k1) continue;
        if (k >= a.k) v[d] = make_float4(0, 0, 0, 0);
        mma_put<F16>(work + l.b, a.cap, r, k - k0, v[d]);
      }
    }
  }
}

/* What the stage in front left, as far as this warp and its neighbour need it. */
template <int C>
DF_DEV void cluster_fetch(const mma_args &a, uint8_t *b, const uint8_t *packed, const persist_stream &s,
                          persist_cluster &c) {
  const uint32_t tiles = df_frag_tiles(a.k), first = cluster_tile<C>(tiles, c.rank), t0 = df_frag_part(tiles, s.part0);
  const uint32_t bytes = (df_frag_part(tiles, s.part0 + s.parts) - t0) * a.cap * 32;
  port_mailbox *const box = c.box + PERSIST_BOX_FETCHED + s.warp / 2;
  if (s.half == 0 && s.lane == 0) {
    port_fence_async();
    port_mailbox_expect(box, bytes);
    if (bytes)
      port_mailbox_fetch(b + (size_t)(t0 - first) * a.cap * 32, packed + (size_t)t0 * a.cap * 32, bytes, box,
                         port_read_again());
  }
  port_mailbox_wait_own(box, c.fetched++ % 2);
}

/* ---- strips ---- */

/* An output that a thread finishes. */
struct cluster_goal {
  mma_goal g;
  uint16_t *packed; /* NULL: nobody wants it as an operand */
};

DF_DEV cluster_goal cluster_goal_of(const mma_args &a, uint32_t strip, const mma_element &e, uint8_t *packed) {
  cluster_goal g = {{0, 0, 0, false}, 0};
  if (strip >= a.strips) return g;
  g.g = goal_of(a, a.pair, strip, e);
  const uint32_t o = strip * DF_LANES + e.m;
  if (packed && g.g.y)
    g.packed = (uint16_t *)packed + (size_t)(o / DF_FRAG_K * a.cap + e.row) * DF_FRAG_K + o % DF_FRAG_K;
  return g;
}

template <bool F16, int REGS>
DF_DEV void cluster_finish(const mma_args &a, const cluster_goal &g, const float *sums, uint32_t id) {
  if (!g.g.y) return;
  const float v = mma_value(a, a.pair, false, g.g, sums, MMA_PAIRS * 32 * REGS, id, REGS);
  *g.g.y = v;
  if (g.packed) *g.packed = (uint16_t)mma_operand<F16>(make_float4(v, 0, 0, 0)).x;
}

/* The sums of a pair of parts of n0 and n1 tiles, for one strip; b: operands of the first tile. */
template <bool F16, int NT>
DF_DEV void cluster_pair(uint32_t n0, uint32_t n1, const uint8_t *b, uint32_t step, const bool on[NT],
                         persist_stream &s, float sum[NT * 4]) {
  float acc[NT * 4];
#pragma unroll
  for (int i = 0; i < NT * 4; i++) sum[i] = acc[i] = 0;
#pragma unroll 1
  for (uint32_t part = 0; part < 2; part++) {
    pstream_chain<F16, NT>(s, part ? n1 : n0, b, step, on, acc);
    b += (size_t)n0 * step;
#pragma unroll
    for (int i = 0; i < NT * 4; i++) {
      sum[i] = part ? sum[i] + acc[i] : acc[i];
      acc[i] = 0;
    }
  }
}

template <bool F16, int NT, int C>
DF_DEV void cluster_strips(const mma_args &a, uint8_t *work, uint32_t live, uint32_t first, uint8_t *packed,
                           persist_stream &s, persist_cluster &c) {
  enum { REGS = NT * 4 / C, STRIP = MMA_PAIRS * 32 * REGS /* floats */ };
  const uint32_t tiles = df_frag_tiles(a.k), step = a.cap * 32, t0 = df_frag_part(tiles, s.part0);
  const uint8_t *const b =
      work + (size_t)(t0 - cluster_tile<C>(tiles, c.rank)) * step + s.lane / 4 * 32 + s.lane % 4 * 8;
  bool on[NT];
#pragma unroll
  for (int i = 0; i < NT; i++) on[i] = 8 * i + s.lane / 4 < live;
  cluster_goal goal = {{0, 0, 0, false}, 0};
  uint32_t at = 0; /* of the thread among those that finish the turn before */
  const uint32_t stride = a.pair ? s.blocks : 2 * s.blocks;
#pragma unroll 1
  for (uint32_t strip = first, n = 0;; strip += stride, n++) {
    const bool more = strip < a.strips, two = a.pair || strip + s.blocks < a.strips,
               mine = more && (s.half == 0 || two);
    float *const slot = c.sums + c.turns % 2 * 2 * STRIP, *const before = c.sums + (c.turns + 1) % 2 * 2 * STRIP;
    if (more && threadIdx.x == 0) port_mailbox_expect(&c.box[c.turns % 2], (two ? 2 : 1) * STRIP * 4);
    /* Other warps finish every time: the rest goes on meanwhile. */
    const uint32_t now = (threadIdx.x + 64 * REGS * c.turns) % MMA_THREADS, half = now / (32 * REGS);
    mma_element e = element_of<NT>(now % (32 * REGS), c.rank, REGS, live);
    e.on = e.on && half < (a.pair ? 1u : 2u);
    const cluster_goal next = cluster_goal_of(a, strip + half * s.blocks, e, packed);
    float *to = slot + (s.half * MMA_PAIRS + s.part0 / 2) * REGS * 32 + s.lane;
    s.left = df_frag_part(tiles, s.part0 + s.parts) - t0;
#pragma unroll 1
    for (uint32_t p = 0; p < (mine ? DF_FRAG_PARTS / C / 4 : 2); p += 2, to += REGS * 32) {
      const uint32_t p0 = df_frag_part(tiles, s.part0 + p), mid = df_frag_part(tiles, s.part0 + p + 1);
      const uint32_t p1 = df_frag_part(tiles, s.part0 + p + 2);
      float sum[NT * 4];
      if (mine) cluster_pair<F16, NT>(mid - p0, p1 - mid, b + (size_t)(p0 - t0) * step, step, on, s, sum);
      if (s.freed > 0) stream_rest(s); /* before anything is waited for */
      if (p == 0 && n > 0) {
        port_mailbox_wait(&c.box[(c.turns + 1) % 2], (c.turns - 1) / 2 % 2);
        cluster_finish<F16, REGS>(a, goal, before + (a.pair ? 0 : at / (32 * REGS) * STRIP), at % (32 * REGS));
      }
#pragma unroll
      for (int r = 0; r < C; r++) {
        if (!mine) continue;
        const port_remote there = port_remote_of(to, &c.box[c.turns % 2], r);
#pragma unroll
        for (int i = 0; i < REGS; i++) port_remote_send(there, 128 * i, sum[r * REGS + i]);
      }
    }
    if (!more) break;
    goal = next;
    at = now;
    c.turns++;
  }
}

#endif
