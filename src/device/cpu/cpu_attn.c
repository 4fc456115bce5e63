/*
 * Attention ops. KV is walked in chunks of 64 positions counted from position 0 (numerics contract): TILE merges
 * each chunk at once, SPLIT stores the parts and MERGE joins them in the same order with the same operations.
 * NAIVE takes one query at a time and asks for every position whether it is visible.
 */
#include <string.h>

#include "base/size.h"
#include "device/cpu/cpu_ops.h"

/* One tile: rows [r0, r1) of sequence b and the KV head g they look at. */
typedef struct attn_tile {
  uint32_t b, g, tile;
  uint32_t r0, r1; /* rows of the batch */
  uint32_t group;  /* query heads per KV head */
  uint32_t n_q;    /* (r1 - r0) * group */
  uint32_t c0, c1; /* KV chunks with a visible position */
} attn_tile;

/* Positions [lo, hi) that row r of sequence b may see before any mask. */
static void visible_range(const df_op_attn *a, uint32_t b, uint32_t r, uint32_t *lo, uint32_t *hi) {
  const uint32_t pos = a->batch->pos[r];
  *hi = a->causal ? pos + 1 : a->batch->kv_len[b];
  *lo = a->window && pos + 1 > a->window ? pos + 1 - a->window : 0;
  if (*lo > *hi) *lo = *hi;
}

/* Whether the captured mask lets row r attend to position p. */
static bool mask_allows(const df_op_attn *a, uint32_t b, uint32_t r, uint32_t p) {
  const df_batch *bt = a->batch;
  const uint32_t q0 = bt->q_start[b], t = bt->q_start[b + 1] - q0, len = bt->kv_len[b], row = r - q0;
  const uint8_t *m = a->mask->bytes + a->mask->start[a->seq0 + b];
  if (a->mask_layout == DF_MASK_FULL) return m[(size_t)row * len + p] != 0;
  return p + t < len || m[(size_t)row * t + (p + t - len)] != 0;
}

static uint64_t visible_bits(const df_op_attn *a, uint32_t b, uint32_t r, uint32_t chunk) {
  uint32_t lo, hi;
  visible_range(a, b, r, &lo, &hi);
  const uint32_t first = chunk * DF_KV_CHUNK;
  if (hi <= first || lo >= first + DF_KV_CHUNK) return 0;
  uint64_t bits = hi - first >= DF_KV_CHUNK ? ~UINT64_C(0) : (UINT64_C(1) << (hi - first)) - 1;
  if (lo > first) bits &= ~UINT64_C(0) << (lo - first);
  if (a->mask_layout == DF_MASK_NONE) return bits;
  for (uint32_t i = 0; i < DF_KV_CHUNK; i++)
    if ((bits >> i & 1) && !mask_allows(a, b, r, first + i)) bits &= ~(UINT64_C(1) << i);
  return bits;
}

/* False when the tile has no live row. */
static bool tile_init(const df_op_attn *a, uint32_t index, attn_tile *t) {
  t->tile = index % a->n_tiles;
  t->g = index / a->n_tiles % a->n_kv;
  t->b = index / a->n_tiles / a->n_kv;
  if (t->b >= a->batch->n_seqs) return false;
  const uint32_t q0 = a->batch->q_start[t->b], q1 = a->batch->q_start[t->b + 1];
  t->r0 = q0 + t->tile * a->tile_rows;
  t->r1 = DF_MIN(t->r0 + a->tile_rows, q1);
  if (t->r0 >= q1) return false;
  t->group = a->n_heads / a->n_kv;
  t->n_q = (t->r1 - t->r0) * t->group;
  uint32_t lo = UINT32_MAX, hi = 0;
  for (uint32_t r = t->r0; r < t->r1; r++) {
    uint32_t l, h;
    visible_range(a, t->b, r, &l, &h);
    lo = DF_MIN(lo, l);
    hi = DF_MAX(hi, h);
  }
  t->c0 = lo / DF_KV_CHUNK;
  t->c1 = (hi + DF_KV_CHUNK - 1) / DF_KV_CHUNK;
  if (t->c1 <= t->c0) t->c1 = t->c0 + 1; /* a tile that sees nothing still yields its zero part */
  return true;
}

/* The chunk's four blocks in place. */
static void locate_blocks(const df_op_attn *a, const attn_tile *t, uint32_t chunk, const void **k, const void **v) {
  const uint32_t *table = a->batch->page_table + (size_t)t->b * a->batch->max_pages;
  for (uint32_t i = 0; i < 4; i++) {
    const uint32_t at = chunk * 4 + i;
    const uint32_t page = at < a->batch->max_pages ? table[at] : 0;
    const size_t off = t->g * a->kv.head_stride + page * a->kv.head_bytes;
    k[i] = a->kv.k + off;
    v[i] = a->kv.v + off;
  }
}

/* Where a token's K and V lie together, slots are gathered into blocks of the shape the kernel reads. */
static void gather_blocks(const df_op_attn *a, const attn_tile *t, uint32_t chunk, uint8_t *mem, const void **k,
                          const void **v) {
  const uint32_t *table = a->batch->page_table + (size_t)t->b * a->batch->max_pages;
  const uint32_t e = a->head_dim, first = chunk * DF_KV_CHUNK, len = a->batch->kv_len[t->b], per = a->kv.block_slots;
  const size_t size = a->kv.type == DF_KV_F16 ? 2 : 4, row = e * size;
  for (uint32_t i = 0; i < 4; i++) {
    uint8_t *kb = mem + 2 * i * a->kv.head_bytes, *vb = kb + a->kv.head_bytes;
    k[i] = kb;
    v[i] = vb;
    for (uint32_t p = 0; p < DF_KV_PAGE && first + i * DF_KV_PAGE + p < len; p++) {
      const uint32_t pos = first + i * DF_KV_PAGE + p;
      const size_t off = (((size_t)table[pos / per] * per + pos % per) * a->n_kv + t->g) * row;
      memcpy(vb + p * row, a->kv.v + off, row);
      for (uint32_t j = 0; j < e; j++) memcpy(kb + ((size_t)j * DF_KV_PAGE + p) * size, a->kv.k + off + j * size, size);
    }
  }
}

/* The chunk of keys and values behind chunk c of tile `index`: the tile's next, or the first of the next tile, which
 * this worker most likely takes. False when there is none. */
static bool next_chunk(const df_op_attn *a, const attn_tile *t, uint32_t index, uint32_t c, attn_tile *next,
                       uint32_t *chunk) {
  *next = *t;
  *chunk = c + 1;
  if (c + 1 < t->c1) return true;
  if (index + 1 >= a->batch->n_seqs * a->n_kv * a->n_tiles || !tile_init(a, index + 1, next)) return false;
  *chunk = next->c0;
  return true;
}

/* Attends all queries of tile `index` to one chunk; part i goes to parts + i * stride. The blocks of the chunk that
 * comes next are asked for meanwhile: pages lie anywhere, so the hardware cannot foresee them. */
static void run_kv_chunk(const df_cpu_ctx *ctx, const df_op_attn *a, const attn_tile *t, uint32_t index, uint32_t chunk,
                         float *parts, size_t stride, uint32_t worker) {
  const void *k_pages[4], *v_pages[4], *k_next[4], *v_next[4];
  if (a->kv.token_major)
    gather_blocks(a, t, chunk, ctx->scratch[worker].blocks, k_pages, v_pages);
  else
    locate_blocks(a, t, chunk, k_pages, v_pages);
  const float *q[DF_ATTN_MAX_QUERIES];
  float *part[DF_ATTN_MAX_QUERIES];
  uint64_t visible[DF_ATTN_MAX_QUERIES];
  uint32_t n = 0;
  for (uint32_t r = t->r0; r < t->r1; r++) {
    const uint64_t bits = visible_bits(a, t->b, r, chunk);
    for (uint32_t h = 0; h < t->group; h++, n++) {
      q[n] = a->q + (size_t)r * a->q_ld + (size_t)(t->g * t->group + h) * a->head_dim;
      part[n] = parts + n * stride;
      visible[n] = bits;
    }
  }
  df_attn_chunk c = {.k_pages = k_pages,
                     .v_pages = v_pages,
                     .q = q,
                     .visible = visible,
                     .part = part,
                     .scale = a->scale,
                     .n_q = n,
                     .e = a->head_dim};
  attn_tile next;
  uint32_t at;
  if (!a->kv.token_major && next_chunk(a, t, index, chunk, &next, &at)) {
    locate_blocks(a, &next, at, k_next, v_next);
    c.k_ahead = k_next;
    c.v_ahead = v_next;
  }
  ctx->k->attn_chunk[a->kv.type](&c);
}

/* Finished parts to the output rows, in the forms the next product wants. */
static void finish_tile(const df_cpu_ctx *ctx, const df_op_attn *a, const attn_tile *t, const float *parts,
                        size_t stride) {
  const uint32_t e = a->head_dim;
  float head[DF_ATTN_MAX_HEAD];
  uint32_t n = 0;
  for (uint32_t r = t->r0; r < t->r1; r++) {
    for (uint32_t h = 0; h < t->group; h++, n++) {
      const size_t at = (size_t)(t->g * t->group + h) * e;
      ctx->k->attn_finish(parts + n * stride, e, head);
      if (a->out.f) memcpy(a->out.f + (size_t)r * a->out.k + at, head, e * sizeof(float));
      if (a->out.q) {
        size_t bs;
        df_actq *q = df_act_row(&a->out, r, a->batch->n_rows, &bs);
        ctx->k->quantize(head, e, q + at / DF_QBLOCK * bs, bs);
      }
    }
  }
}

void df_run_attn_tile(const df_cpu_ctx *ctx, const void *args, uint32_t chunk, uint32_t worker) {
  const df_op_attn *a = args;
  attn_tile t;
  if (!tile_init(a, chunk, &t)) return;
  const size_t stride = DF_ATTN_PART + a->head_dim;
  float *into = ctx->scratch[worker].parts;
  float *next = into + DF_ATTN_MAX_QUERIES * stride;
  run_kv_chunk(ctx, a, &t, chunk, t.c0, into, stride, worker);
  for (uint32_t c = t.c0 + 1; c < t.c1; c++) {
    run_kv_chunk(ctx, a, &t, chunk, c, next, stride, worker);
    ctx->k->attn_merge(into, next, stride, t.n_q, a->head_dim);
  }
  finish_tile(ctx, a, &t, into, stride);
}

/* Parts of one tile and one KV chunk in the shared buffer. */
static float *split_parts(const df_op_attn *a, const attn_tile *t, uint32_t chunk, size_t stride) {
  const size_t tile = ((size_t)t->b * a->n_kv + t->g) * a->n_tiles + t->tile;
  const size_t queries = (size_t)a->tile_rows * (a->n_heads / a->n_kv);
  return a->parts + (tile * a->max_chunks + chunk) * queries * stride;
}

void df_run_attn_split(const df_cpu_ctx *ctx, const void *args, uint32_t chunk, uint32_t worker) {
  const df_op_attn *a = args;
  attn_tile t;
  if (!tile_init(a, chunk / a->n_split, &t)) return;
  const size_t stride = DF_ATTN_PART + a->head_dim;
  const uint32_t share = chunk % a->n_split, n = t.c1 - t.c0;
  const uint32_t first = t.c0 + n * share / a->n_split, last = t.c0 + n * (share + 1) / a->n_split;
  for (uint32_t c = first; c < last; c++)
    run_kv_chunk(ctx, a, &t, chunk / a->n_split, c, split_parts(a, &t, c, stride), stride, worker);
}

void df_run_attn_merge(const df_cpu_ctx *ctx, const void *args, uint32_t chunk, uint32_t worker) {
  (void)worker;
  const df_op_attn *a = args;
  attn_tile t;
  if (!tile_init(a, chunk / a->n_split, &t)) return;
  const size_t stride = DF_ATTN_PART + a->head_dim;
  /* This chunk's share of the tile's rows; the parts of a tile lie query by query. */
  const uint32_t share = chunk % a->n_split, rows = t.r1 - t.r0, base = t.r0;
  t.r0 = base + rows * share / a->n_split;
  t.r1 = base + rows * (share + 1) / a->n_split;
  const uint32_t q0 = (t.r0 - base) * t.group, q1 = (t.r1 - base) * t.group;
  float *into = split_parts(a, &t, t.c0, stride);
  const size_t chunk_stride = (size_t)a->tile_rows * t.group * stride;
  for (uint32_t i = q0; i < q1; i++) ctx->k->attn_fold(into + i * stride, chunk_stride, t.c1 - t.c0, a->head_dim);
  finish_tile(ctx, a, &t, into + q0 * stride, stride);
}

/* Bits of the positions of one chunk that row r may see, asked position by position. */
static uint64_t naive_bits(const df_op_attn *a, uint32_t b, uint32_t r, uint32_t chunk) {
  uint64_t bits = 0;
  uint32_t lo, hi;
  visible_range(a, b, r, &lo, &hi);
  for (uint32_t i = 0; i < DF_KV_CHUNK; i++) {
    const uint32_t p = chunk * DF_KV_CHUNK + i;
    if (p < lo || p >= hi) continue;
    if (a->mask_layout != DF_MASK_NONE && !mask_allows(a, b, r, p)) continue;
    bits |= UINT64_C(1) << i;
  }
  return bits;
}

/* One query at a time over all chunks from position 0: no tiles, no shared work, no range taken from other rows. */
static void naive_head(const df_cpu_ctx *ctx, const df_op_attn *a, uint32_t b, uint32_t r, uint32_t h,
                       uint32_t worker) {
  const uint32_t group = a->n_heads / a->n_kv, n_chunks = (a->batch->kv_len[b] + DF_KV_CHUNK - 1) / DF_KV_CHUNK;
  attn_tile t = {.b = b, .g = h / group, .r0 = r, .r1 = r + 1, .group = group, .n_q = 1};
  float *into = ctx->scratch[worker].parts, *next = into + DF_ATTN_PART + DF_ATTN_MAX_HEAD;
  const float *q = a->q + (size_t)r * a->q_ld + (size_t)h * a->head_dim;
  for (uint32_t c = 0; c < n_chunks; c++) {
    const void *k[4], *v[4];
    if (a->kv.token_major)
      gather_blocks(a, &t, c, ctx->scratch[worker].blocks, k, v);
    else
      locate_blocks(a, &t, c, k, v);
    const uint64_t bits = naive_bits(a, b, r, c);
    float *part = c ? next : into;
    const df_attn_chunk chunk = {.k_pages = k,
                                 .v_pages = v,
                                 .q = &q,
                                 .visible = &bits,
                                 .part = &part,
                                 .scale = a->scale,
                                 .n_q = 1,
                                 .e = a->head_dim};
    ctx->k->attn_chunk[a->kv.type](&chunk);
    if (c) ctx->k->attn_merge(into, next, 0, 1, a->head_dim);
  }
}

void df_run_attn_naive(const df_cpu_ctx *ctx, const void *args, uint32_t chunk, uint32_t worker) {
  const df_op_attn *a = args;
  const uint32_t r = chunk, e = a->head_dim;
  if (r >= a->batch->n_rows) return;
  uint32_t b = 0;
  while (r >= a->batch->q_start[b + 1]) b++;
  float head[DF_ATTN_MAX_HEAD];
  for (uint32_t h = 0; h < a->n_heads; h++) {
    naive_head(ctx, a, b, r, h, worker);
    ctx->k->attn_finish(ctx->scratch[worker].parts, e, head);
    if (a->out.f) memcpy(a->out.f + (size_t)r * a->out.k + (size_t)h * e, head, e * sizeof(float));
    if (a->out.q) {
      size_t bs;
      df_actq *q = df_act_row(&a->out, r, a->batch->n_rows, &bs);
      ctx->k->quantize(head, e, q + (size_t)h * e / DF_QBLOCK * bs, bs);
    }
  }
}
