/*
 * device/cuda/attn_tile.cuh - who a block of the attention kernel is, what its rows may see, and its shared memory.
 * The same rules as device/cpu/cpu_attn.c.
 */
#ifndef DF_DEVICE_CUDA_ATTN_TILE_CUH
#define DF_DEVICE_CUDA_ATTN_TILE_CUH

#include "device/cuda/cuda_head.cuh"
#include "device/cuda/cuda_kernels.h"
#include "device/fragment.h"

enum {
  ATTN_THREADS = 256,
  ATTN_WARPS = ATTN_THREADS / 32,
  ATTN_QUERIES = 32, /* most query vectors of a block */
  ATTN_HEADER = 16,  /* floats in front of the accumulator in a part */
  ATTN_BATCH = 64,   /* chunks whose factors are held at once while parts are joined */
  ATTN_FRESH = 16,   /* most rows of a sequence whose K and V the kernel makes itself */
  ATTN_NONE = 255
};

typedef struct attn_args {
  df_op_attn op;
  const uint8_t *mask;
  const size_t *mask_start;
  df_op_rope_kv rope; /* fused: q, k, v come unrotated */
  bool fused, merge;
  uint32_t queries, n_sub, shares; /* query vectors of a block; blocks of a tile; shares of its chunks */
  uint32_t fresh_rows;             /* fused: most rows of a sequence; else 0 */
  uint32_t *counters;
} attn_args;

/* Fills the arguments (cuda_attn.cu); number of blocks, without the shares. */
uint32_t df_cuda_attn_plan(const df_cuda_env *env, df_op_kind kind, const df_op_attn *op, const df_op_rope_kv *rope,
                           bool merge, attn_args *a);

/* One block: queries [first, first + n) of a tile of the op, numbered row by row. place: where among all such blocks.
 */
struct attn_block {
  uint32_t place;
  uint32_t b, g, tile, sub, group;
  uint32_t q0, q1;   /* rows of the sequence */
  uint32_t r0, len;  /* first row of the tile; positions of the sequence */
  uint32_t first, n; /* queries of the tile */
  uint32_t c0, c1;   /* chunks in which some row of the tile sees something */
};

DF_DEV void attn_range(const df_op_attn &a, uint32_t len, uint32_t pos, uint32_t *lo, uint32_t *hi) {
  *hi = a.causal ? pos + 1 : len;
  *lo = a.window && pos + 1 > a.window ? pos + 1 - a.window : 0;
  if (*lo > *hi) *lo = *hi;
}

/* Block `place` of [sequence][KV head][tile][block of the tile]. False when it has no live query. Whole warps call. */
DF_DEV bool attn_find(const attn_args &a, uint32_t place, attn_block *t) {
  const df_op_attn &op = a.op;
  const df_batch *const batch = op.batch;
  t->place = place;
  t->sub = place % a.n_sub;
  t->tile = place / a.n_sub % op.n_tiles;
  t->g = place / a.n_sub / op.n_tiles % op.n_kv;
  t->b = place / a.n_sub / op.n_tiles / op.n_kv;
  if (t->b >= batch->n_seqs) return false;
  t->q0 = batch->q_start[t->b];
  t->q1 = batch->q_start[t->b + 1];
  t->len = batch->kv_len[t->b];
  t->r0 = t->q0 + t->tile * op.tile_rows;
  t->group = op.n_heads / op.n_kv;
  t->first = t->sub * a.queries;
  if (t->r0 >= t->q1) return false;
  const uint32_t r1 = math_min(t->r0 + op.tile_rows, t->q1), n = (r1 - t->r0) * t->group;
  if (t->first >= n) return false;
  t->n = math_min(n - t->first, a.queries);
  uint32_t lo = UINT32_MAX, hi = 0;
#pragma unroll 1
  for (uint32_t r = t->r0 + threadIdx.x % 16; r < r1; r += 16) { /* a row a lane: their positions come at once */
    uint32_t l, h;
    attn_range(op, t->len, batch->pos[r], &l, &h);
    lo = math_min(lo, l);
    hi = math_max(hi, h);
  }
#pragma unroll 1
  for (uint32_t w = 8; w > 0; w /= 2) {
    lo = math_min(lo, port_xor(lo, w));
    hi = math_max(hi, port_xor(hi, w));
  }
  t->c0 = lo / DF_KV_CHUNK;
  t->c1 = math_max((hi + DF_KV_CHUNK - 1) / DF_KV_CHUNK, t->c0 + 1);
  return true;
}

DF_DEV uint32_t attn_row(const attn_block &t, uint32_t query) { return t.r0 + (t.first + query) / t.group; }
DF_DEV uint32_t attn_head(const attn_block &t, uint32_t query) { return t.g * t.group + (t.first + query) % t.group; }

/* Whether row r, whose position is pos, may attend to position p. */
DF_DEV bool attn_sees(const attn_args &a, const attn_block &t, uint32_t r, uint32_t pos, uint32_t p) {
  uint32_t lo, hi;
  attn_range(a.op, t.len, pos, &lo, &hi);
  if (p < lo || p >= hi) return false;
  if (a.op.mask_layout == DF_MASK_NONE) return true;
  const uint32_t rows = t.q1 - t.q0, row = r - t.q0;
  const uint8_t *m = a.mask + a.mask_start[a.op.seq0 + t.b];
  if (a.op.mask_layout == DF_MASK_FULL) return m[(size_t)row * t.len + p] != 0;
  return p + rows < t.len || m[(size_t)row * rows + (p + rows - t.len)] != 0;
}

/* Slot of position p, UINT32_MAX where the sequence has none. */
DF_DEV uint32_t attn_slot(const attn_args &a, const attn_block &t, uint32_t p) {
  if (p >= t.len) return UINT32_MAX;
  const df_batch *const batch = a.op.batch;
  const uint32_t each = math_max(a.op.kv.block_slots, 1);
  return batch->page_table[(size_t)t.b * batch->max_pages + p / each] * each + p % each;
}

/* Part of query q (of the block) in chunk c. */
DF_DEV float *attn_part(const attn_args &a, const attn_block &t, uint32_t c, uint32_t q) {
  const size_t tile = ((size_t)t.b * a.op.n_kv + t.g) * a.op.n_tiles + t.tile;
  const size_t queries = (size_t)a.op.tile_rows * t.group;
  return a.op.parts + ((tile * a.op.max_chunks + c) * queries + t.first + q) * (ATTN_HEADER + a.op.head_dim);
}

/* What queries see of a chunk: nothing from `end` on; `all` has the bits of those that see everything in front of it.
 */
typedef struct attn_view {
  uint32_t end, all;
} attn_view;

/* Shared memory, byte offsets. q, acc: [queries][e]. p: [64][p_ld] transposed weights. k, v: the chunk as stored, K
 * rows k_ld elements apart. factors: [2][queries][ATTN_BATCH], on top of k, v. Fused: vectors [rows][2][e] are K and V
 * of the pass's rows as they came, tables [rows][e] their cosines and sines, norms [2][e] the weights of q and k. */
typedef struct attn_layout {
  uint32_t q, acc, scores, p, k, v, slots, seen, run, fresh, vectors, tables, norms, last, bytes;
  uint32_t p_ld, k_ld;
} attn_layout;

/* lean: what whole passes use, without acc and run; vectors lie where scores and weights will be. */
DF_FRAG_FN attn_layout attn_place(uint32_t queries, uint32_t e, bool f16, uint32_t fresh_rows, bool lean = false) {
  attn_layout l;
  const uint32_t size = f16 ? 2 : 4;
  l.p_ld = queries + 4;
  l.k_ld = e + 16 / size; /* rows start 16 bytes apart in the banks */
  l.q = 0;
  l.acc = l.q + queries * e * 4;
  l.scores = l.acc + (lean ? 0 : queries * e * 4);
  l.p = l.scores + queries * DF_KV_CHUNK * 4;
  l.k = l.p + DF_KV_CHUNK * l.p_ld * 4;
  if (lean && l.k < l.scores + fresh_rows * 2 * e * 4) l.k = l.scores + fresh_rows * 2 * e * 4;
  l.v = l.k + DF_KV_CHUNK * l.k_ld * size;
  const uint32_t kv_end = l.v + DF_KV_CHUNK * e * size, factors_end = l.k + 2 * queries * ATTN_BATCH * 4;
  l.slots = lean || kv_end > factors_end ? kv_end : factors_end;
  l.seen = l.slots + DF_KV_CHUNK * 4; /* [64] queries that see the position */
  l.run = l.seen + DF_KV_CHUNK * 4;   /* [4][queries] running maximum and sum, factors of the last merge */
  l.fresh =
      l.run +
      (lean ? 0 : 4 * queries * 4); /* [16] position of a fresh row in the chunk; [64] whether a position is one */
  l.tables = l.fresh + (ATTN_FRESH + DF_KV_CHUNK) * 4;
  l.vectors = l.tables;
  if (lean)
    l.vectors = l.scores;
  else
    l.tables += fresh_rows * 2 * e * 4;
  l.norms = l.tables + fresh_rows * e * 4;
  l.last = l.norms + (fresh_rows ? 2 * e * 4 : 0); /* the block is the last one */
  l.bytes = l.last + 16;
  return l;
}

#endif
