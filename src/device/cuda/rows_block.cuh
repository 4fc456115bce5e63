/*
 * device/cuda/rows_block.cuh - a block's part in row-wise ops that more than one kernel does: embedding, tap, argmax.
 * Private to device/cuda. All threads of the block call; blocks have ROWS_THREADS threads.
 */
#ifndef DF_DEVICE_CUDA_ROWS_BLOCK_CUH
#define DF_DEVICE_CUDA_ROWS_BLOCK_CUH

#include "device/cuda/cuda_math.cuh"
#include "device/cuda/cuda_unpack.cuh"

enum { ROWS_THREADS = 256, EMBED_SPAN = 1024, ROWS_SHARED = ROWS_THREADS / 32 * 8 };

/* Whether (v, i) beats (best, at): larger, or as large and in front; NaN never does; at == UINT32_MAX is nothing. */
DF_DEV bool argmax_beats(float v, uint32_t i, float best, uint32_t at) {
  if (i == UINT32_MAX || v != v) return false;
  return at == UINT32_MAX || v > best || (v == best && i < at);
}

DF_DEV void argmax_fold(float &v, uint32_t &i, float w, uint32_t j) {
  if (!argmax_beats(w, j, v, i)) return;
  v = w;
  i = j;
}

/* df_best_of: the token of one row out of its segments, whose ids ascend. All lanes of a warp call and get it. */
DF_DEV int32_t rows_best(const df_best &b, uint32_t row) {
  const float *const value = b.value + (size_t)row * b.segments;
  const uint32_t *const id = b.id + (size_t)row * b.segments;
  float best = 0;
  uint32_t at = UINT32_MAX;
#pragma unroll 1
  for (uint32_t s = threadIdx.x % 32; s < b.segments; s += 32)
    argmax_fold(best, at, port_load(value + s), port_load_u32(id + s));
#pragma unroll 1
  for (uint32_t lanes = 16; lanes > 0; lanes /= 2) {
    const float v = port_xor(best, lanes);
    argmax_fold(best, at, v, port_xor(at, lanes));
  }
  const float first = port_load(value);
  if (first != first || at == UINT32_MAX) at = port_load_u32(id); /* nothing beats NaN in front */
  return b.map ? b.map[at] : (int32_t)at;
}

/* The token that row r is embedded from; all lanes of a warp call. */
DF_DEV uint32_t rows_token(const df_op_embed &a, uint32_t r) {
  const df_drafts &d = a.drafts;
  if (!d.best.value || r % d.width == 0 || r >= *d.n_live * d.width) return (uint32_t)a.ids[r];
  return (uint32_t)rows_best(d.best, r / d.width * (d.width - 1) + r % d.width - 1);
}

/* Columns [i0, end) of row r. */
DF_DEV void rows_embed(const df_weights &w, const df_op_embed &a, uint32_t r, uint32_t i0, uint32_t end) {
  const uint32_t id = rows_token(a, r);
  for (uint32_t i = i0 + threadIdx.x; i < end; i += ROWS_THREADS) {
    const float v = unpack_value(&w, id, i);
    a.out[(size_t)r * w.k + i] = a.scale == 1.0f ? v : v * a.scale;
  }
}

/* Every step-th column of row r from i0 on. */
DF_DEV void rows_tap(const df_op_tap &a, uint32_t r, uint32_t i0, uint32_t step) {
  const float *x = a.x + (size_t)(a.row_map ? port_load_u32(a.row_map + r) : r) * a.k;
  float *dst = a.dst + (size_t)(a.to_row ? port_load_u32(a.to_row + r) : r) * a.ld;
  for (uint32_t i = i0; i < a.k; i += step) dst[i] = port_load(x + i);
}

/* The best of segment s of row r; shared: ROWS_SHARED bytes, free again behind the block's next barrier. */
DF_DEV void rows_argmax(const df_op_argmax &a, uint32_t s, uint32_t r, uint8_t *shared) {
  float *values = (float *)shared;
  uint32_t *ids = (uint32_t *)(values + ROWS_THREADS / 32);
  const uint32_t step = (a.n + a.segments - 1) / a.segments;
  const uint32_t i0 = s * step, i1 = math_min(i0 + step, a.n);
  const float *x = a.x + r * a.ld;
  float best = 0;
  uint32_t at = UINT32_MAX;
  for (uint32_t i = i0 + threadIdx.x; i < i1; i += ROWS_THREADS) argmax_fold(best, at, port_load(x + i), i);
#pragma unroll 1
  for (uint32_t lanes = 16; lanes > 0; lanes /= 2) {
    const float v = port_xor(best, lanes);
    argmax_fold(best, at, v, port_xor(at, lanes));
  }
  if (threadIdx.x % 32 == 0) {
    values[threadIdx.x / 32] = best;
    ids[threadIdx.x / 32] = at;
  }
  port_block_sync();
  if (threadIdx.x != 0) return;
  for (uint32_t i = 1; i < ROWS_THREADS / 32; i++) argmax_fold(best, at, values[i], ids[i]);
  const size_t out = (size_t)r * a.segments + s;
  const bool empty = i0 >= i1;
  if (at == UINT32_MAX) at = empty ? a.n : i0; /* all NaN: the first */
  a.best[out] = empty ? -INFINITY : port_load(x + at);
  a.best_id[out] = at;
}

#endif
