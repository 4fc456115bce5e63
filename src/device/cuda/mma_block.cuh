/*
 * device/cuda/mma_block.cuh - a block's part in BF16 and F16 products of up to 16 rows: the weight stream, the sums.
 *
 * A block (or a cluster of 2 or 4 that share the k of every strip) takes strips in turn. Its 8 warps cut the block's k
 * among them; each lane copies the 16 bytes that it will multiply itself into its own ring in shared memory, many tiles
 * ahead and without any barrier, so the stream never stops: not between strips, not between products, and not for the
 * kernel in front, since weights are constant and the ring fills before the wait for it. Activations lie in shared
 * memory as B operands. What the warps have summed is added as fragment.h says, by all threads while the next strip's
 * tiles arrive.
 *
 * Shared memory: [8 warps][R][512] ring | 2 mailboxes | 2 slots of sums | B operands [tile][row][4][8 bytes] | norm:
 * rows, weights.
 */
#ifndef DF_DEVICE_CUDA_MMA_BLOCK_CUH
#define DF_DEVICE_CUDA_MMA_BLOCK_CUH

#include "device/cuda/cuda_math.cuh"
#include "device/cuda/cuda_ops.cuh"
#include "device/fragment.h"

enum { MMA_WARPS = 8, MMA_THREADS = 32 * MMA_WARPS, MMA_ROWS = 16, MMA_CLUSTER = 4 };
enum { MMA_PAIRS = DF_FRAG_PARTS / 2 };

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
  bool add, vector, pair; /* vector: rows of x are 16-aligned; pair: gate and up */
  uint32_t early_bytes;
  /* norm; norm_w NULL: none */
  const float *norm_w;
  const uint32_t *row_map;
  float *norm_out;
  float eps;
  df_cuda_ahead ahead;
  mma_part part[DF_LINEAR_PARTS]; /* ffn_up: gate and up, y of the first is the output */
} mma_args;

/* Fills the arguments but for cluster and rows (cuda_mma.cu). norm may be NULL. */
void df_cuda_mma_args_linear(const df_op_linear *op, const df_op_norm *norm, mma_args *a);
void df_cuda_mma_args_ffn_up(const df_op_ffn_up *op, const df_op_norm *norm, mma_args *a);

/* Where things lie in shared memory, in bytes. */
typedef struct mma_layout {
  uint32_t boxes, sums, b, norm_x, norm_w, factors, bytes, row_floats;
} mma_layout;

DF_FRAG_FN mma_layout mma_place(uint32_t ring, uint32_t k, uint32_t cap, uint32_t cluster, uint32_t nt, bool pair,
                                bool norm) {
  mma_layout l;
  const uint32_t tiles = (df_frag_tiles(k) + cluster - 1) / cluster;
  l.row_floats = (k + 3) & ~3u;
  l.boxes = MMA_WARPS * ring * DF_FRAG_BYTES;
  l.sums = l.boxes + 128;
  l.b = l.sums + 2 * (pair ? 2 : 1) * (cluster == 1 ? 2 : 1) * MMA_WARPS * nt * 4 * 32 * 4;
  l.norm_x = l.b + tiles * cap * 32;
  l.norm_w = l.norm_x + (norm ? cap * l.row_floats * 4 : 0);
  l.factors = l.norm_w + (norm ? l.row_floats * 4 : 0);
  l.bytes = l.factors + (norm ? MMA_ROWS * 4 : 0);
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

DF_DEV mma_self self_of(const mma_args &a, uint8_t *shared, uint32_t ring) {
  mma_self w;
  const uint32_t tiles = df_frag_tiles(a.k), block_parts = DF_FRAG_PARTS / a.cluster;
  w.lane = threadIdx.x % 32;
  w.warp = threadIdx.x / 32;
  w.rank = a.cluster > 1 ? port_cluster_rank() : 0;
  w.first = blockIdx.x / a.cluster;
  w.stride = gridDim.x / a.cluster;
  w.parts = block_parts / MMA_WARPS;
  w.part0 = w.rank * block_parts + w.warp * w.parts;
  w.t0 = df_frag_part(tiles, w.part0);
  w.t1 = df_frag_part(tiles, w.part0 + w.parts);
  w.block_t0 = df_frag_part(tiles, w.rank * block_parts);
  w.block_t1 = df_frag_part(tiles, (w.rank + 1) * block_parts);
  w.ring = shared + w.warp * ring * DF_FRAG_BYTES;
  return w;
}

/* One warp's way through the weights of a list of products: the runs of its tiles, strip after strip, product after
 * product. It is ahead of the sums by what the ring holds. */
struct mma_stream {
  const mma_args *list;
  uint32_t op, n_ops;
  const uint8_t *next;  /* this lane's 16 bytes of the next tile */
  uint32_t left;        /* tiles of the run that are not asked for yet; 0: no more */
  uint32_t strip, half; /* of the run; ffn_up: 0 gate, 1 up */
  uint32_t t0, t1;      /* of the warp in this product */
  uint32_t slot;        /* ring slot of the next copy, and of the next tile to use: the ring is full all the time */
};

DF_DEV uint32_t mma_part_of(const mma_args &a, uint32_t strip) {
  uint32_t i = 0;
  while (i + 1 < a.n_parts && strip >= a.part[i + 1].strip0) i++;
  return i;
}

/* A block's share of what the next product reads first. */
DF_DEV void mma_ask_ahead(const mma_args &a) {
  const uint32_t lines = gridDim.x * MMA_THREADS, line = blockIdx.x * MMA_THREADS + threadIdx.x;
  for (uint32_t i = 0; i < 2; i++)
    for (uint32_t at = line; at < a.ahead.bytes[i] / 128; at += lines) port_prefetch(a.ahead.p[i] + (size_t)at * 128);
}

/* The first strip of product s.op, or the end. */
DF_DEV void stream_open(mma_stream &s, uint8_t *shared) {
  if (s.op == s.n_ops) return;
  const mma_self w = self_of(s.list[s.op], shared, 0);
  s.strip = w.first;
  s.half = 0;
  s.t0 = w.t0;
  s.t1 = w.t1;
}

/* Finds the run that s names, or the first one behind it. */
DF_DEV void stream_run(mma_stream &s, uint8_t *shared, uint32_t lane) {
  s.left = 0;
  while (s.op < s.n_ops) {
    const mma_args &a = s.list[s.op];
    if (s.strip < a.strips && s.t0 < s.t1) {
      const uint32_t p = a.pair ? s.half : mma_part_of(a, s.strip), first = a.pair ? 0 : a.part[p].strip0;
      const size_t tile = (size_t)(s.strip - first) * df_frag_tiles(a.k) + s.t0;
      s.next = a.part[p].w + tile * DF_FRAG_BYTES + 16 * lane;
      s.left = s.t1 - s.t0;
      return;
    }
    if (++s.op == s.n_ops) mma_ask_ahead(a);
    stream_open(s, shared);
  }
}

/* Asks for the next tile; always one group, so that groups count tiles. */
template <int R>
DF_DEV void stream_push(const mma_self &w, mma_stream &s, uint8_t *shared) {
  if (s.left > 0) {
    port_copy16(w.ring + s.slot * DF_FRAG_BYTES + 16 * w.lane, s.next);
    s.next += DF_FRAG_BYTES;
    if (--s.left == 0) {
      const mma_args &a = s.list[s.op];
      if (a.pair && s.half == 0) {
        s.half = 1;
      } else {
        s.half = 0;
        s.strip += gridDim.x / a.cluster;
      }
      stream_run(s, shared, w.lane);
    }
  }
  port_copy_commit();
  s.slot = s.slot + 1 == R ? 0 : s.slot + 1;
}

/* More of the run than the ring holds, on its way to L2. */
DF_DEV void stream_early(const mma_stream &s, uint32_t bytes, uint32_t lane) {
  const uint32_t early = math_min(bytes, s.left * DF_FRAG_BYTES);
  for (uint32_t i = 128 * lane; i < early; i += 128 * 32) port_prefetch(s.next - 16 * lane + i);
}

/* All that can happen before the kernel in front has ended: the ring filled, more of the run asked for. */
template <int R>
DF_DEV mma_stream stream_begin(const mma_args *list, uint32_t n_ops, const mma_self &w, uint8_t *shared) {
  mma_stream s = {list, 0, n_ops, 0, 0, 0, 0, 0, 0, 0};
  stream_open(s, shared);
  stream_run(s, shared, w.lane);
  for (uint32_t i = 0; i < R; i++) stream_push<R>(w, s, shared);
  stream_early(s, list[0].early_bytes, w.lane);
  return s;
}

/* One more tile: this lane's part of it, its activations at b. */
template <bool F16, int NT>
DF_DEV void mma_tile(float acc[NT * 4], const uint4 &tile, const uint8_t *b, const bool on[NT]) {
#pragma unroll
  for (int i = 0; i < NT; i++) {
    uint2 x = make_uint2(0, 0);
    if (on[i]) x = *(const uint2 *)(b + 256 * i);
    if (F16)
      port_mma_f16(acc + 4 * i, tile, x.x, x.y);
    else
      port_mma_bf16(acc + 4 * i, tile, x.x, x.y);
  }
}

/* acc += tiles [t0, t1) of the run, a chain; b: this lane's operands of the block's first tile. */
template <int R, bool F16, int NT>
DF_DEV void mma_chain(const mma_args &a, const mma_self &w, mma_stream &s, uint8_t *shared, uint32_t t0, uint32_t t1,
                      const uint8_t *b, const bool on[NT], float acc[NT * 4]) {
  const uint32_t tile_bytes = a.cap * 32;
  b += (size_t)(t0 - w.block_t0) * tile_bytes;
  for (uint32_t t = t0; t < t1; t++, b += tile_bytes) {
    port_copy_wait<R - 1>();
    mma_tile<F16, NT>(acc, *(const uint4 *)(w.ring + s.slot * DF_FRAG_BYTES + 16 * w.lane), b, on);
    stream_push<R>(w, s, shared);
  }
}

/* The warp's share of a strip: its parts (4 / cluster of them), each a chain; two make a pair, so that four leave the
 * sums of two pairs. */
template <int R, bool F16, int NT>
DF_DEV void mma_share(const mma_args &a, const mma_self &w, mma_stream &s, uint8_t *shared, const uint8_t *b,
                      const bool on[NT], float sum[2][NT * 4]) {
  const uint32_t tiles = df_frag_tiles(a.k);
  for (uint32_t p = 0; p < w.parts; p++) {
    float acc[NT * 4];
#pragma unroll
    for (int i = 0; i < NT * 4; i++) acc[i] = 0;
    const uint32_t t0 = df_frag_part(tiles, w.part0 + p), t1 = df_frag_part(tiles, w.part0 + p + 1);
    mma_chain<R, F16, NT>(a, w, s, shared, t0, t1, b, on, acc);
#pragma unroll
    for (int i = 0; i < NT * 4; i++) {
      if (p == 0) sum[0][i] = acc[i];
      if (p == 1) sum[0][i] += acc[i];
      if (p == 2) sum[1][i] = acc[i];
      if (p == 3) sum[1][i] += acc[i];
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

/* The sum of all parts from what the warps left, `step` floats apart: 16 pairs, or (cluster of 4) 32 parts. */
DF_DEV float mma_total(const float *v, uint32_t step, bool parts) {
  float x[2 * MMA_PAIRS];
#pragma unroll
  for (uint32_t i = 0; i < 2 * MMA_PAIRS; i++) x[i] = i < MMA_PAIRS || parts ? v[(size_t)i * step] : 0.0f;
  float t = 0;
#pragma unroll
  for (uint32_t i = 0; i < MMA_PAIRS; i++) {
    const float pair = parts ? x[2 * i] + x[2 * i + 1] : x[i];
    t = i == 0 ? pair : t + pair;
  }
  return t;
}

/* What an output needs beside its sum, read while the sums are still on their way. */
struct mma_goal {
  float *y;
  float old, bias;
  bool has_bias;
};

/* old: what the output is added to lies at its place. */
DF_DEV mma_goal goal_of(const mma_args &a, bool pair, uint32_t strip, const mma_element &e, bool old = true) {
  mma_goal g = {0, 0, 0, false};
  if (!e.on) return g;
  const mma_part &p = a.part[pair ? 0 : mma_part_of(a, strip)];
  const uint32_t o = (strip - p.strip0) * DF_LANES + e.m;
  if (o >= p.n) return g;
  g.y = p.y + (size_t)(a.row0 + e.row) * p.ld + o;
  if (pair) return g;
  g.has_bias = p.bias != 0;
  if (g.has_bias) g.bias = p.bias[o];
  if (a.add && old) g.old = port_load(g.y);
  return g;
}

/* The output. parts: see mma_total. */
DF_DEV float mma_value(const mma_args &a, bool pair, bool parts, const mma_goal &g, const float *sums, uint32_t half,
                       uint32_t id, uint32_t regs) {
  const uint32_t step = 32 * regs;
  float v = mma_total(sums + id, step, parts);
  if (pair) {
    v = math_silu_mul(v, mma_total(sums + half + id, step, parts));
  } else {
    if (g.has_bias) v = v + g.bias;
    if (a.add) v = g.old + v;
  }
  return v;
}

DF_DEV void mma_finish(const mma_args &a, bool pair, bool parts, const mma_goal &g, const float *sums, uint32_t half,
                       uint32_t id, uint32_t regs) {
  if (g.y) *g.y = mma_value(a, pair, parts, g, sums, half, id, regs);
}

/* The warp's sums to where they are added up. Block c of the cluster adds registers c * regs .. of all shares. */
template <int NT>
DF_DEV void mma_hand_over(const mma_args &a, float *sums, port_mailbox *box, uint32_t warp, const float sum[2][NT * 4],
                          uint32_t regs, uint32_t lane) {
#pragma unroll
  for (int i = 0; i < NT * 4; i++) {
    if (a.cluster == 1) {
      sums[((size_t)(2 * warp) * regs + i) * 32 + lane] = sum[0][i];
      sums[((size_t)(2 * warp + 1) * regs + i) * 32 + lane] = sum[1][i];
    } else {
      port_mailbox_send(sums + ((size_t)warp * regs + i % regs) * 32 + lane, box, i / regs, sum[0][i]);
    }
  }
}

DF_DEV const float *mma_row(const mma_args &a, uint32_t r) {
  return a.x + (size_t)(a.row_map ? port_load_u32(a.row_map + a.row0 + r) : a.row0 + r) * a.k;
}

/* n floats to shared memory, several loads in flight. */
DF_DEV void mma_fetch(float *to, const float *from, uint32_t n, bool vector) {
  enum { DEEP = 4 };
  if (vector) {
    for (uint32_t i = 4 * threadIdx.x; i < n; i += 4 * MMA_THREADS * DEEP) {
      float4 v[DEEP];
#pragma unroll
      for (uint32_t d = 0; d < DEEP; d++) v[d] = port_load4(from + math_min(i + 4 * MMA_THREADS * d, n - 4));
#pragma unroll
      for (uint32_t d = 0; d < DEEP; d++)
        if (i + 4 * MMA_THREADS * d < n) *(float4 *)(to + i + 4 * MMA_THREADS * d) = v[d];
    }
    return;
  }
  for (uint32_t i = threadIdx.x; i < n; i += MMA_THREADS) to[i] = port_load(from + i);
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

/* Activations k to k + 3 of row r at b, which has `cap` rows a tile. */
template <bool F16>
DF_DEV void mma_put(uint8_t *b, uint32_t cap, uint32_t r, uint32_t k, float4 v) {
  *(uint2 *)(b + ((size_t)(k / DF_FRAG_K * cap + r) * 4 + k / 4 % 4) * 8) = mma_operand<F16>(v);
}

/* Activations of the block's tiles as B operands. A thread keeps its row and its quad of a tile; a warp takes 8 rows of
 * one tile where there are so many: whole sectors, no bank twice. Loads of a batch come before its stores. */
template <bool F16>
DF_DEV void mma_load_b(const mma_args &a, const mma_layout &l, const mma_self &w, uint8_t *shared, uint32_t live) {
  enum { DEEP = 8 };
  uint32_t shift = 0;
  while ((1u << shift) < live) shift++;
  const uint32_t j = threadIdx.x % 4, r = threadIdx.x / 4 & ((1u << shift) - 1), step = MMA_THREADS / 4 >> shift;
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
template <int R, bool F16, int NT, bool PAIR>
DF_DEV void mma_strips(const mma_args &a, const mma_self &w, mma_stream &s, const mma_layout &l, uint8_t *shared,
                       uint32_t live) {
  enum { HALVES = PAIR ? 2 : 1 };
  const uint8_t *const b = shared + l.b + w.lane / 4 * 32 + w.lane % 4 * 8;
  float *const slots = (float *)(shared + l.sums);
  port_mailbox *const box = (port_mailbox *)(shared + l.boxes);
  const uint32_t half = (a.cluster == 1 ? 2 : 1) * MMA_WARPS * NT * 4 * 32, slot_floats = HALVES * half;
  const uint32_t regs = NT * 4 / a.cluster, share = w.rank * MMA_WARPS + w.warp, id = threadIdx.x;
  const mma_element e = element_of<NT>(id, w.rank, regs, live);
  mma_goal goal = {0, 0, 0, false};
  bool on[NT];
#pragma unroll
  for (int i = 0; i < NT; i++) on[i] = 8 * i + w.lane / 4 < live;
  if (a.cluster > 1) port_cluster_wait();
  uint32_t turn = 0;
  for (uint32_t strip = w.first; strip < a.strips; strip += w.stride, turn++) {
    float sum[HALVES][2][NT * 4], *const slot = slots + turn % 2 * slot_floats;
#pragma unroll
    for (int h = 0; h < HALVES; h++) mma_share<R, F16, NT>(a, w, s, shared, b, on, sum[h]);
    if (a.cluster > 1 && turn > 0) {
      port_mailbox_wait(&box[1 - turn % 2], (turn - 1) / 2 % 2);
      mma_finish(a, PAIR, a.cluster == MMA_CLUSTER, goal, slots + (1 - turn % 2) * slot_floats, half, id, regs);
      if (id == 0) port_mailbox_expect(&box[1 - turn % 2], slot_floats * 4);
    }
    goal = goal_of(a, PAIR, strip, e);
#pragma unroll
    for (int h = 0; h < HALVES; h++) mma_hand_over<NT>(a, slot + h * half, &box[turn % 2], share, sum[h], regs, w.lane);
    if (a.cluster > 1) continue;
    port_block_sync();
    mma_finish(a, PAIR, a.cluster == MMA_CLUSTER, goal, slot, half, id, regs);
  }
  if (a.cluster > 1) {
    port_mailbox_wait(&box[1 - turn % 2], (turn - 1) / 2 % 2);
    mma_finish(a, PAIR, a.cluster == MMA_CLUSTER, goal, slots + (1 - turn % 2) * slot_floats, half, id, regs);
  }
}

/* Rows of the batch that the launch takes. */
DF_DEV uint32_t mma_live(const mma_args &a) {
  const uint32_t rows = *a.n_rows;
  return rows > a.row0 ? math_min(rows - a.row0, a.cap) : 0;
}

/* Norm weights: constant, so they may come early. */
DF_DEV void mma_fetch_norm(const mma_args &a, const mma_layout &l, uint8_t *shared) {
  if (a.norm_w) mma_fetch((float *)(shared + l.norm_w), a.norm_w, a.k, a.vector && (uintptr_t)a.norm_w % 16 == 0);
}

/* The product, from where its input is complete. */
template <int R, bool F16, int NT, bool PAIR>
DF_DEV void mma_product(const mma_args &a, const mma_self &w, mma_stream &s, const mma_layout &l, uint8_t *shared,
                        uint32_t live) {
  if (a.norm_w) mma_norm_rows(a, l, shared, live);
  mma_load_b<F16>(a, l, w, shared, live);
  port_block_sync();
  mma_strips<R, F16, NT, PAIR>(a, w, s, l, shared, live);
}

#endif
