/*
 * cuda_mma.cu - BF16 and F16 products of up to 16 rows: a weight stream.
 *
 * A block (or a cluster of 2 or 4 that share the k of every strip) takes strips in turn. Its 8 warps cut the block's k
 * among them; each lane copies the 16 bytes that it will multiply itself into its own ring in shared memory, many tiles
 * ahead and without any barrier, so the stream never stops: not between strips, and not for the kernel in front, since
 * weights are constant and the ring fills before the wait for it. Activations lie in shared memory as B operands. What
 * the warps have summed is added as fragment.h says, by all threads while the next strip's tiles arrive.
 *
 * Shared memory: [8 warps][RING][512] ring | 2 mailboxes | 2 slots of sums | B operands [tile][row][4][8 bytes] | norm:
 * rows, weights.
 */
#include "device/cuda/cuda_math.cuh"
#include "device/cuda/cuda_ops.cuh"
#include "device/cuda/cuda_start.cuh"
#include "device/cuda/cuda_tune.h"
#include "device/fragment.h"

enum { WARPS = 8, THREADS = 32 * WARPS, RING = 16, MAX_ROWS = 16, MAX_CLUSTER = 4 };

typedef struct mma_part {
  const uint8_t *w;
  const float *bias;
  float *y;
  size_t ld;
  uint32_t n, strip0; /* outputs; first strip in the list of all parts */
} mma_part;

typedef struct mma_args {
  const float *x; /* [rows][k], rows that row_map picks when a norm comes along */
  const uint32_t *n_rows;
  uint32_t row0, cap; /* rows row0 .. row0 + cap - 1 of the batch, as far as they are live */
  uint32_t k, strips, cluster, n_parts;
  bool add, vector; /* vector: rows of x are 16-aligned */
  uint32_t early_bytes, run_bytes;
  /* norm; norm_w NULL: none */
  const float *norm_w;
  const uint32_t *row_map;
  float *norm_out;
  float eps;
  df_cuda_ahead ahead;
  mma_part part[DF_LINEAR_PARTS]; /* ffn_up: gate and up, y of the first is the output */
} mma_args;

/* Where things lie in shared memory, in bytes. */
typedef struct mma_layout {
  uint32_t boxes, sums, b, norm_x, norm_w, factors, bytes, row_floats;
} mma_layout;

DF_FRAG_FN mma_layout mma_place(uint32_t k, uint32_t cap, uint32_t cluster, uint32_t nt, bool pair, bool norm) {
  mma_layout l;
  const uint32_t tiles = (df_frag_tiles(k) + cluster - 1) / cluster;
  l.row_floats = (k + 3) & ~3u;
  l.boxes = WARPS * RING * DF_FRAG_BYTES;
  l.sums = l.boxes + 128;
  l.b = l.sums + 2 * (pair ? 2 : 1) * WARPS * nt * 4 * 32 * 4;
  l.norm_x = l.b + tiles * cap * 32;
  l.norm_w = l.norm_x + (norm ? cap * l.row_floats * 4 : 0);
  l.factors = l.norm_w + (norm ? l.row_floats * 4 : 0);
  l.bytes = l.factors + (norm ? MAX_ROWS * 4 : 0);
  return l;
}

/* Who a thread is: its lane, its warp's share of k, its block's turn among the strips. */
struct mma_self {
  uint32_t lane, warp, rank;
  uint32_t first, stride;      /* strips of the block: first, first + stride, ... */
  uint32_t part0, parts;       /* of the warp */
  uint32_t t0, t1;             /* tiles of the warp */
  uint32_t block_t0, block_t1; /* tiles of the block */
  uint8_t *ring;               /* of the warp */
};

DF_DEV mma_self self_of(const mma_args &a, uint8_t *shared) {
  mma_self w;
  const uint32_t tiles = df_frag_tiles(a.k), block_parts = DF_FRAG_PARTS / a.cluster;
  w.lane = threadIdx.x % 32;
  w.warp = threadIdx.x / 32;
  w.rank = a.cluster > 1 ? port_cluster_rank() : 0;
  w.first = blockIdx.x / a.cluster;
  w.stride = gridDim.x / a.cluster;
  w.parts = block_parts / WARPS;
  w.part0 = w.rank * block_parts + w.warp * w.parts;
  w.t0 = df_frag_part(tiles, w.part0);
  w.t1 = df_frag_part(tiles, w.part0 + w.parts);
  w.block_t0 = df_frag_part(tiles, w.rank * block_parts);
  w.block_t1 = df_frag_part(tiles, (w.rank + 1) * block_parts);
  w.ring = shared + w.warp * RING * DF_FRAG_BYTES;
  return w;
}

/* One warp's way through the weights: the runs of tiles [t0, t1) of its strips, in order. */
struct mma_stream {
  const uint8_t *next; /* this lane's 16 bytes of the next tile */
  uint32_t left;       /* tiles of the run that are not asked for yet */
  uint32_t strip;      /* of the run; >= strips: no more */
  uint32_t half;       /* ffn_up: 0 gate, 1 up */
  uint32_t slot;       /* ring slot of the next copy, and of the next tile to use: the ring is full all the time */
};

DF_DEV uint32_t mma_part_of(const mma_args &a, uint32_t strip) {
  uint32_t i = 0;
  while (i + 1 < a.n_parts && strip >= a.part[i + 1].strip0) i++;
  return i;
}

/* First byte of the warp's tiles of a strip; half: gate or up. */
template <bool PAIR>
DF_DEV const uint8_t *stream_at(const mma_args &a, const mma_self &w, uint32_t strip, uint32_t half) {
  const uint32_t p = PAIR ? half : mma_part_of(a, strip), first = PAIR ? 0 : a.part[p].strip0;
  return a.part[p].w + ((size_t)(strip - first) * df_frag_tiles(a.k) + w.t0) * DF_FRAG_BYTES;
}

/* Begins the run that s names, and asks L2 for the beginning of the run behind it. */
template <bool PAIR>
DF_DEV void stream_run(const mma_args &a, const mma_self &w, mma_stream &s) {
  if (s.strip >= a.strips || w.t0 == w.t1) {
    s.left = 0;
    s.strip = a.strips;
    return;
  }
  s.next = stream_at<PAIR>(a, w, s.strip, s.half) + 16 * w.lane;
  s.left = w.t1 - w.t0;
  const uint32_t half = PAIR && s.half == 0 ? 1 : 0, strip = PAIR && half ? s.strip : s.strip + w.stride;
  if (a.run_bytes == 0 || strip >= a.strips) return;
  const uint8_t *p = stream_at<PAIR>(a, w, strip, half);
  const uint32_t bytes = math_min(a.run_bytes, s.left * DF_FRAG_BYTES);
  for (uint32_t i = 128 * w.lane; i < bytes; i += 128 * 32) port_prefetch(p + i);
}

/* This block's share of what the next product reads first. */
DF_DEV void mma_ask_ahead(const mma_args &a) {
  const uint32_t lines = gridDim.x * THREADS, line = blockIdx.x * THREADS + threadIdx.x;
  for (uint32_t i = 0; i < 2; i++)
    for (uint32_t at = line; at < a.ahead.bytes[i] / 128; at += lines) port_prefetch(a.ahead.p[i] + (size_t)at * 128);
}

/* Asks for the next tile; always one group, so that groups count tiles. Behind the last one: the next product's. */
template <bool PAIR>
DF_DEV void stream_push(const mma_args &a, const mma_self &w, mma_stream &s) {
  if (s.left > 0) {
    port_copy16(w.ring + s.slot * DF_FRAG_BYTES + 16 * w.lane, s.next);
    s.next += DF_FRAG_BYTES;
    if (--s.left == 0) {
      if (PAIR && s.half == 0) {
        s.half = 1;
      } else {
        s.half = 0;
        s.strip += w.stride;
      }
      stream_run<PAIR>(a, w, s);
      if (s.strip >= a.strips) mma_ask_ahead(a);
    }
  }
  port_copy_commit();
  s.slot = (s.slot + 1) % RING;
}

/* All that can happen before the kernel in front has ended: the ring filled, more of the run asked for. */
template <bool PAIR>
DF_DEV mma_stream stream_begin(const mma_args &a, const mma_self &w) {
  mma_stream s = {0, 0, w.first, 0, 0};
  stream_run<PAIR>(a, w, s);
  for (uint32_t i = 0; i < RING; i++) stream_push<PAIR>(a, w, s);
  const uint32_t early = math_min(a.early_bytes, s.left * DF_FRAG_BYTES);
  for (uint32_t i = 128 * w.lane; i < early; i += 128 * 32) port_prefetch(s.next - 16 * w.lane + i);
  return s;
}

/* acc += tiles [t0, t1) of the run, a chain; b: this lane's operands of the block's first tile. */
template <bool F16, int NT, bool PAIR>
DF_DEV void mma_chain(const mma_args &a, const mma_self &w, mma_stream &s, uint32_t t0, uint32_t t1, const uint8_t *b,
                      const bool on[NT], float acc[NT * 4]) {
  const uint32_t tile_bytes = a.cap * 32;
  b += (size_t)(t0 - w.block_t0) * tile_bytes;
  for (uint32_t t = t0; t < t1; t++, b += tile_bytes) {
    port_copy_wait<RING - 1>();
    const uint4 tile = *(const uint4 *)(w.ring + s.slot * DF_FRAG_BYTES + 16 * w.lane);
#pragma unroll
    for (int i = 0; i < NT; i++) {
      uint2 x = make_uint2(0, 0);
      if (on[i]) x = *(const uint2 *)(b + 256 * i);
      if (F16)
        port_mma_f16(acc + 4 * i, tile, x.x, x.y);
      else
        port_mma_bf16(acc + 4 * i, tile, x.x, x.y);
    }
    stream_push<PAIR>(a, w, s);
  }
}

/* The warp's share of a strip: its parts (4 / cluster of them), each a chain, added as a tree. */
template <bool F16, int NT, bool PAIR>
DF_DEV void mma_share(const mma_args &a, const mma_self &w, mma_stream &s, const uint8_t *b, const bool on[NT],
                      float sum[NT * 4]) {
  const uint32_t tiles = df_frag_tiles(a.k);
  float second[NT * 4];
#pragma unroll
  for (int i = 0; i < NT * 4; i++) second[i] = 0;
  for (uint32_t p = 0; p < w.parts; p++) {
    float acc[NT * 4];
#pragma unroll
    for (int i = 0; i < NT * 4; i++) acc[i] = 0;
    const uint32_t t0 = df_frag_part(tiles, w.part0 + p), t1 = df_frag_part(tiles, w.part0 + p + 1);
    mma_chain<F16, NT, PAIR>(a, w, s, t0, t1, b, on, acc);
#pragma unroll
    for (int i = 0; i < NT * 4; i++) {
      if (p == 0) sum[i] = acc[i];
      if (p == 1) sum[i] += acc[i];
      if (p == 2) second[i] = acc[i];
      if (p == 3) sum[i] += second[i] + acc[i];
    }
  }
}

/* The element that thread `id` finishes. */
struct mma_element {
  bool on;
  uint32_t m, row; /* output of the strip, row of the batch */
};

template <int NT>
DF_DEV mma_element element_of(uint32_t id, uint32_t rank, uint32_t regs, uint32_t live) {
  const uint32_t reg = rank * regs + id / 32, lane = id % 32, c = reg % 4;
  mma_element e;
  e.m = lane / 4 + 8 * (c >> 1);
  e.row = 8 * (reg / 4) + 2 * (lane % 4) + (c & 1);
  e.on = id < 32 * regs && e.row < live;
  return e;
}

/* Sum over 8 * cluster shares, `step` floats apart. */
DF_DEV float mma_tree(const float *v, uint32_t step, uint32_t cluster) {
  float t[MAX_CLUSTER];
#pragma unroll
  for (uint32_t c = 0; c < MAX_CLUSTER; c++) {
    t[c] = 0;
    if (c >= cluster) continue;
    const float *w = v + (size_t)c * WARPS * step;
    t[c] =
        ((w[0] + w[step]) + (w[2 * step] + w[3 * step])) + ((w[4 * step] + w[5 * step]) + (w[6 * step] + w[7 * step]));
  }
  return cluster == 1 ? t[0] : cluster == 2 ? t[0] + t[1] : (t[0] + t[1]) + (t[2] + t[3]);
}

/* What an output needs beside its sum, read while the sums are still on their way. */
struct mma_goal {
  float *y;
  float old, bias;
  bool has_bias;
};

template <bool PAIR>
DF_DEV mma_goal goal_of(const mma_args &a, uint32_t strip, const mma_element &e) {
  mma_goal g = {0, 0, 0, false};
  if (!e.on) return g;
  const mma_part &p = a.part[PAIR ? 0 : mma_part_of(a, strip)];
  const uint32_t o = (strip - p.strip0) * DF_LANES + e.m;
  if (o >= p.n) return g;
  g.y = p.y + (size_t)(a.row0 + e.row) * p.ld + o;
  if (PAIR) return g;
  g.has_bias = p.bias != 0;
  if (g.has_bias) g.bias = p.bias[o];
  if (a.add) g.old = port_load(g.y);
  return g;
}

template <int NT, bool PAIR>
DF_DEV void mma_finish(const mma_args &a, const mma_goal &g, const float *sums, uint32_t id, uint32_t regs) {
  if (!g.y) return;
  const uint32_t step = 32 * regs;
  float v = mma_tree(sums + id, step, a.cluster);
  if (PAIR) {
    v = math_silu_mul(v, mma_tree(sums + (size_t)WARPS * a.cluster * step + id, step, a.cluster));
  } else {
    if (g.has_bias) v = v + g.bias;
    if (a.add) v = g.old + v;
  }
  *g.y = v;
}

/* The warp's sums to where they are added up. Block c of the cluster adds registers c * regs .. of all shares. */
template <int NT>
DF_DEV void mma_hand_over(const mma_args &a, float *sums, port_mailbox *box, uint32_t share, const float sum[NT * 4],
                          uint32_t regs, uint32_t lane) {
#pragma unroll
  for (int i = 0; i < NT * 4; i++) {
    float *to = sums + ((size_t)share * regs + i % regs) * 32 + lane;
    if (a.cluster == 1)
      *to = sum[i];
    else
      port_mailbox_send(to, box, i / regs, sum[i]);
  }
}

DF_DEV const float *mma_row(const mma_args &a, uint32_t r) {
  return a.x + (size_t)(a.row_map ? port_load_u32(a.row_map + a.row0 + r) : a.row0 + r) * a.k;
}

/* n floats to shared memory, several loads in flight. */
DF_DEV void mma_fetch(float *to, const float *from, uint32_t n, bool vector) {
  enum { DEEP = 4 };
  if (vector) {
    for (uint32_t i = 4 * threadIdx.x; i < n; i += 4 * THREADS * DEEP) {
      float4 v[DEEP];
#pragma unroll
      for (uint32_t d = 0; d < DEEP; d++) v[d] = port_load4(from + math_min(i + 4 * THREADS * d, n - 4));
#pragma unroll
      for (uint32_t d = 0; d < DEEP; d++)
        if (i + 4 * THREADS * d < n) *(float4 *)(to + i + 4 * THREADS * d) = v[d];
    }
    return;
  }
  for (uint32_t i = threadIdx.x; i < n; i += THREADS) to[i] = port_load(from + i);
}

/* Rows to shared memory and their norm factors. */
DF_DEV void mma_norm_rows(const mma_args &a, const mma_layout &l, uint8_t *shared, uint32_t live) {
  float *rows = (float *)(shared + l.norm_x), *factors = (float *)(shared + l.factors);
  for (uint32_t r = 0; r < live; r++) mma_fetch(rows + (size_t)r * l.row_floats, mma_row(a, r), a.k, a.vector);
  port_block_sync();
  const uint32_t warp = threadIdx.x / 32, r = threadIdx.x / 16; /* half a warp to a row */
  if (2 * warp < live) {
    const uint32_t row = math_min(r, live - 1);
    const float f = math_rms_factor(rows + (size_t)row * l.row_floats, a.k, a.eps, threadIdx.x % 16);
    if (threadIdx.x % 16 == 0 && r < live) factors[r] = f;
  }
  port_block_sync();
}

/* Four neighbouring activations of row r, normed when that is asked for; zeros behind the end. */
DF_DEV float4 mma_quad(const mma_args &a, const mma_layout &l, const uint8_t *shared, uint32_t r, uint32_t k) {
  float v[4];
  if (a.norm_w) {
    const float *x = (const float *)(shared + l.norm_x) + (size_t)r * l.row_floats + k;
    const float *w = (const float *)(shared + l.norm_w) + k;
    const float f = ((const float *)(shared + l.factors))[r];
    for (uint32_t i = 0; i < 4; i++) v[i] = k + i < a.k ? (x[i] * f) * w[i] : 0.0f;
    return make_float4(v[0], v[1], v[2], v[3]);
  }
  const float *x = a.x + (size_t)(a.row0 + r) * a.k + k;
  if (a.vector) return k < a.k ? port_load4(x) : make_float4(0, 0, 0, 0);
  for (uint32_t i = 0; i < 4; i++) v[i] = k + i < a.k ? port_load(x + i) : 0.0f;
  return make_float4(v[0], v[1], v[2], v[3]);
}

template <bool F16>
DF_DEV uint2 mma_operand(float4 v) {
  return F16 ? make_uint2(port_pack_f16(v.x, v.y), port_pack_f16(v.z, v.w))
             : make_uint2(port_pack_bf16(v.x, v.y), port_pack_bf16(v.z, v.w));
}

/* Activations of the block's tiles as B operands. A thread keeps its row and its quad of a tile; a warp takes 8 rows of
 * one tile where there are so many: whole sectors, no bank twice. Loads of a batch come before its stores. */
template <bool F16>
DF_DEV void mma_load_b(const mma_args &a, const mma_layout &l, const mma_self &w, uint8_t *shared, uint32_t live) {
  enum { DEEP = 8 };
  uint32_t shift = 0;
  while ((1u << shift) < live) shift++;
  const uint32_t j = threadIdx.x % 4, r = threadIdx.x / 4 & ((1u << shift) - 1), step = THREADS / 4 >> shift;
  const bool write_norm = a.norm_w && w.first == 0;
  if (r >= live) return;
  for (uint32_t t0 = w.block_t0 + (threadIdx.x / 4 >> shift); t0 < w.block_t1; t0 += DEEP * step) {
    float4 v[DEEP];
#pragma unroll
    for (uint32_t d = 0; d < DEEP; d++) {
      const uint32_t t = math_min(t0 + d * step, w.block_t1 - 1);
      v[d] = mma_quad(a, l, shared, r, t * DF_FRAG_K + 4 * j);
    }
#pragma unroll
    for (uint32_t d = 0; d < DEEP; d++) {
      const uint32_t t = t0 + d * step, k = t * DF_FRAG_K + 4 * j;
      if (t >= w.block_t1) break;
      *(uint2 *)(shared + l.b + ((size_t)((t - w.block_t0) * a.cap + r) * 4 + j) * 8) = mma_operand<F16>(v[d]);
      if (!write_norm) continue;
      const float e[4] = {v[d].x, v[d].y, v[d].z, v[d].w};
      for (uint32_t c = 0; c < 4 && k + c < a.k; c++) a.norm_out[(size_t)(a.row0 + r) * a.k + k + c] = e[c];
    }
  }
}

/* Mailboxes for the sums of a cluster, armed for the first two turns. */
DF_DEV void mma_open_boxes(port_mailbox *box, uint32_t bytes) {
  if (threadIdx.x == 0) {
    for (uint32_t i = 0; i < 2; i++) port_mailbox_init(&box[i]);
    port_mailbox_publish();
    for (uint32_t i = 0; i < 2; i++) port_mailbox_expect(&box[i], bytes);
  }
  port_cluster_arrive(); /* with the wait in front of the first message: all blocks are there, their boxes open */
}

/* The block's strips, one after the other. A block alone finishes a strip's sums at once. In a cluster every block
 * sends each other one its registers of the sums, and finishes a strip when it is through with the next: by then they
 * are there. A warp sends turn n + 1 when it has seen turn n, so two slots are enough. */
template <bool F16, int NT, bool PAIR>
DF_DEV void mma_strips(const mma_args &a, const mma_self &w, mma_stream &s, const uint8_t *b, float *slots,
                       port_mailbox *box, uint32_t live) {
  enum { HALVES = PAIR ? 2 : 1, HALF_FLOATS = WARPS * NT * 4 * 32, SLOT_FLOATS = HALVES * HALF_FLOATS };
  const uint32_t regs = NT * 4 / a.cluster, share = w.rank * WARPS + w.warp, id = threadIdx.x;
  const mma_element e = element_of<NT>(id, w.rank, regs, live);
  mma_goal goal = {0, 0, 0, false};
  bool on[NT];
#pragma unroll
  for (int i = 0; i < NT; i++) on[i] = 8 * i + w.lane / 4 < live;
  if (a.cluster > 1) port_cluster_wait();
  uint32_t turn = 0;
  for (uint32_t strip = w.first; strip < a.strips; strip += w.stride, turn++) {
    float sum[HALVES][NT * 4], *const slot = slots + turn % 2 * SLOT_FLOATS;
#pragma unroll
    for (int h = 0; h < HALVES; h++) mma_share<F16, NT, PAIR>(a, w, s, b, on, sum[h]);
    if (a.cluster > 1 && turn > 0) {
      port_mailbox_wait(&box[1 - turn % 2], (turn - 1) / 2 % 2);
      mma_finish<NT, PAIR>(a, goal, slots + (1 - turn % 2) * SLOT_FLOATS, id, regs);
      if (id == 0) port_mailbox_expect(&box[1 - turn % 2], SLOT_FLOATS * 4);
    }
    goal = goal_of<PAIR>(a, strip, e);
#pragma unroll
    for (int h = 0; h < HALVES; h++)
      mma_hand_over<NT>(a, slot + h * HALF_FLOATS, &box[turn % 2], share, sum[h], regs, w.lane);
    if (a.cluster > 1) continue;
    port_block_sync();
    mma_finish<NT, PAIR>(a, goal, slot, id, regs);
  }
  if (a.cluster > 1) {
    port_mailbox_wait(&box[1 - turn % 2], (turn - 1) / 2 % 2);
    mma_finish<NT, PAIR>(a, goal, slots + (1 - turn % 2) * SLOT_FLOATS, id, regs);
  }
}

template <bool F16, int NT, bool PAIR>
__global__ void __launch_bounds__(THREADS, 2) mma_kernel(const __grid_constant__ mma_args a) {
  DF_SHARED(shared);
  port_launch_next();
  const mma_self w = self_of(a, shared);
  const mma_layout l = mma_place(a.k, a.cap, a.cluster, NT, PAIR, a.norm_w != 0);
  port_mailbox *const box = (port_mailbox *)(shared + l.boxes);
  if (a.cluster > 1) mma_open_boxes(box, (PAIR ? 2 : 1) * WARPS * NT * 4 * 32 * 4);
  mma_stream s = stream_begin<PAIR>(a, w);
  if (a.norm_w) mma_fetch((float *)(shared + l.norm_w), a.norm_w, a.k, a.vector && (uintptr_t)a.norm_w % 16 == 0);
  const uint32_t rows = *a.n_rows, live = rows > a.row0 ? math_min(rows - a.row0, a.cap) : 0;

  port_wait_previous();
  if (live > 0) {
    if (a.norm_w) mma_norm_rows(a, l, shared, live);
    mma_load_b<F16>(a, l, w, shared, live);
    port_block_sync();
    const uint8_t *const b = shared + l.b + w.lane / 4 * 32 + w.lane % 4 * 8;
    mma_strips<F16, NT, PAIR>(a, w, s, b, (float *)(shared + l.sums), box, live);
  } else if (a.cluster > 1) {
    port_cluster_wait();
  }
  port_copy_wait<0>();
}

/* ---- launching ---- */

typedef struct mma_plan {
  uint32_t cluster, cap, blocks;
  size_t shared;
} mma_plan;

/* Nanoseconds, roughly: the longest block's stream at its share of the memory's rate, a little for each strip, and the
 * activations. */
static double plan_cost(uint32_t k, uint32_t strips, uint32_t cap, uint32_t cluster, uint32_t clusters, bool pair) {
  const uint32_t turns = (strips + clusters - 1) / clusters;
  const double strip_bytes = (pair ? 2.0 : 1.0) * k * 32 / cluster;
  return turns * (strip_bytes / 32 + (cluster > 1 ? 60 : 30)) + (double)cap * k * 4 / cluster / 80;
}

/* The split of k among blocks, and the rows of one launch. */
static mma_plan plan_of(const df_cuda_env *env, uint32_t k, uint32_t strips, bool pair, bool norm) {
  const df_cuda_card *card = env->card;
  mma_plan best = {0, 0, 0, 0};
  for (uint32_t cap = math_min(env->max_rows, MAX_ROWS); cap > 0 && !best.cap; cap /= 2) {
    double cost = 0;
    for (uint32_t c = 1, i = 0; c <= MAX_CLUSTER; c *= 2, i++) {
      const size_t shared = mma_place(k, cap, c, cap > 8 ? 2 : 1, pair, norm).bytes;
      if (card->clusters[i] == 0 || shared > card->shared_bytes) continue;
      const double now = plan_cost(k, strips, cap, c, card->clusters[i], pair);
      const bool forced = df_cuda_tune.cluster == c;
      if (best.cap && !forced && (now >= cost || df_cuda_tune.cluster == best.cluster)) continue;
      cost = now;
      best = {c, cap, math_min(card->clusters[i], strips) * c, shared};
    }
  }
  return best;
}

template <bool F16, bool PAIR>
static int mma_start(const df_cuda_env *env, const mma_plan &plan, const mma_args &a) {
  const start_shape s = {dim3(plan.blocks), THREADS, plan.shared, plan.cluster};
  return a.cap > 8 ? start_kernel(env, mma_kernel<F16, 2, PAIR>, s, a)
                   : start_kernel(env, mma_kernel<F16, 1, PAIR>, s, a);
}

static int mma_run(const df_cuda_env *env, mma_args *a, const df_op_norm *norm, const df_cuda_ahead *ahead, bool f16,
                   bool pair) {
  if (norm) {
    a->x = norm->x;
    a->norm_w = norm->w;
    a->row_map = norm->row_map;
    a->norm_out = norm->out.f;
    a->eps = norm->eps;
  }
  a->vector = a->k % 4 == 0 && (uintptr_t)a->x % 16 == 0;
  a->early_bytes = df_cuda_tune.early_bytes;
  a->run_bytes = df_cuda_tune.run_bytes;
  const mma_plan plan = plan_of(env, a->k, a->strips, pair, norm != 0);
  if (plan.cap == 0) return 1; /* cudaErrorInvalidValue: k does not fit into shared memory even for one row */
  a->cap = plan.cap;
  a->cluster = plan.cluster;
  for (a->row0 = 0; a->row0 < env->max_rows; a->row0 += plan.cap) {
    if (ahead && a->row0 + plan.cap >= env->max_rows) a->ahead = *ahead;
    const int e = f16 ? (pair ? mma_start<true, true>(env, plan, *a) : mma_start<true, false>(env, plan, *a))
                      : (pair ? mma_start<false, true>(env, plan, *a) : mma_start<false, false>(env, plan, *a));
    if (e) return e;
  }
  return 0;
}

int df_cuda_mma_linear(const df_cuda_env *env, const df_op_linear *op, const df_op_norm *norm,
                       const df_cuda_ahead *ahead) {
  mma_args a = {};
  a.x = op->x.f;
  a.n_rows = op->n_rows;
  a.k = op->x.k;
  a.add = op->add;
  a.n_parts = op->n_parts;
  for (uint32_t i = 0; i < op->n_parts; i++) {
    const df_linear_part *p = &op->part[i];
    a.part[i] = {p->w->data, p->bias, p->y, p->ld, p->w->n, a.strips};
    a.strips += df_strips(p->w->n);
  }
  return mma_run(env, &a, norm, ahead, op->part[0].w->pack == DF_PACK_F16, false);
}

int df_cuda_mma_ffn_up(const df_cuda_env *env, const df_op_ffn_up *op, const df_op_norm *norm,
                       const df_cuda_ahead *ahead) {
  mma_args a = {};
  a.x = op->x.f;
  a.n_rows = op->n_rows;
  a.k = op->x.k;
  a.n_parts = 2;
  a.strips = df_strips(op->gate->n);
  a.part[0] = {op->gate->data, 0, op->out.f, op->out.k, op->gate->n, 0};
  a.part[1] = {op->up->data, 0, 0, 0, op->up->n, 0};
  return mma_run(env, &a, norm, ahead, op->gate->pack == DF_PACK_F16, true);
}

bool df_cuda_mma_takes_norm(const df_cuda_env *env, uint32_t k) {
  return env->max_rows <= MAX_ROWS && (uint64_t)env->max_rows * k <= df_cuda_tune.norm_floats &&
         plan_of(env, k, 1, true, true).cap >= env->max_rows;
}

void df_cuda_mma_ahead(const df_cuda_env *env, const df_weights *w, const df_weights *u, df_cuda_ahead *out) {
  const size_t strip = df_cuda_fragment_strip_bytes(w->k), all = df_strips(w->n) * strip;
  const size_t most = math_min(df_cuda_tune.ahead_bytes, (uint32_t)(env->card->l2_bytes / 4)) / (u ? 2 : 1);
  const uint32_t first = (uint32_t)(all < most ? all : most);
  *out = {{w->data, u ? u->data : w->data}, {first, u ? first : 0}};
}

int df_cuda_mma_init(size_t shared_bytes) {
  const void *const kernels[] = {(const void *)mma_kernel<false, 1, false>, (const void *)mma_kernel<false, 1, true>,
                                 (const void *)mma_kernel<false, 2, false>, (const void *)mma_kernel<false, 2, true>,
                                 (const void *)mma_kernel<true, 1, false>,  (const void *)mma_kernel<true, 1, true>,
                                 (const void *)mma_kernel<true, 2, false>,  (const void *)mma_kernel<true, 2, true>};
  for (const void *k : kernels) {
    const int e = df_cuda_prepare(k, shared_bytes);
    if (e) return e;
  }
  return 0;
}

#ifndef DF_CUDA_EMULATED

int df_cuda_mma_clusters(df_cuda_card *card) {
  card->clusters[0] = card->n_sm;
  for (uint32_t i = 1; i < 3 && card->major >= 9; i++) {
    cudaLaunchConfig_t c = {};
    cudaLaunchAttribute attr;
    attr.id = cudaLaunchAttributeClusterDimension;
    attr.val.clusterDim.x = 1u << i;
    attr.val.clusterDim.y = attr.val.clusterDim.z = 1;
    c.gridDim = dim3(card->n_sm >> i << i);
    c.blockDim = dim3(THREADS);
    c.dynamicSmemBytes = card->shared_bytes / 2 + 1024; /* one block a multiprocessor */
    c.attrs = &attr;
    c.numAttrs = 1;
    int n = 0;
    const cudaError_t e = cudaOccupancyMaxActiveClusters(&n, mma_kernel<false, 1, false>, &c);
    if (e != cudaSuccess) return (int)e;
    card->clusters[i] = (uint32_t)n;
  }
  return 0;
}

#endif
