/*
 * kernels/x86/attn_impl.h - chunk attention of kernels.h written once for both x86 tiers: attn_avx2.c and
 * attn_avx512.c include a simd16_*.h, simd16_exp.h and then this file. All functions are static.
 *
 * Register tiles: up to 4 queries share every K and V vector that is loaded and converted. A tile is scores (lanes =
 * positions of a page), softmax per query, then V (lanes = columns). Every query's own chain is the one of kernels.h
 * whatever shares its tile:
 *   scores  a page that the tile needs is computed for all its queries; masked lanes are dropped before the maximum
 *   V       positions that all queries of the tile see run as a tile; in between, each query runs alone over the
 *           positions it sees. The sums wait in part[] from one run to the next.
 */
#ifndef DF_KERNELS_ATTN_IMPL_H
#define DF_KERNELS_ATTN_IMPL_H

#include <math.h>
#include <string.h>

#include "kernels/tables.h"

enum { ATTN_TILE = 4, ATTN_PAGES = DF_KV_CHUNK / DF_KV_PAGE };

/* Scores (then weights) of one tile, [query][position]. */
typedef struct attn_rows {
  float at[ATTN_TILE][DF_KV_CHUNK] __attribute__((aligned(64)));
} attn_rows;

DF_INLINE v16 load_kv(df_kv_type type, const void *base, size_t at) {
  return type == DF_KV_F32 ? v16_load((const float *)base + at) : v16_load_f16((const uint16_t *)base + at);
}

/* nq queries by np pages: np * nq chains over e. */
DF_INLINE void score_tile(df_kv_type type, const df_attn_chunk *c, uint32_t iq, const int nq, const int np,
                          const uint32_t *page, attn_rows *s) {
  v16 acc[ATTN_TILE][ATTN_PAGES];
  const float *q[ATTN_TILE];
  const void *k[ATTN_PAGES];
  for (int i = 0; i < nq; i++) {
    q[i] = c->q[iq + i];
    for (int p = 0; p < np; p++) acc[i][p] = v16_zero();
  }
  for (int p = 0; p < np; p++) k[p] = c->k_pages[page[p]];
  for (size_t d = 0; d < c->e; d++) {
    v16 x[ATTN_PAGES];
    for (int p = 0; p < np; p++) x[p] = load_kv(type, k[p], d * DF_KV_PAGE);
    for (int i = 0; i < nq; i++) {
      v16 b = v16_set1(q[i][d]);
      for (int p = 0; p < np; p++) acc[i][p] = v16_fma(x[p], b, acc[i][p]);
    }
  }
  for (int i = 0; i < nq; i++) {
    for (int p = 0; p < np; p++) v16_store(&s->at[i][page[p] * DF_KV_PAGE], acc[i][p]);
  }
}

/* All pages that some query of the tile sees; a short last group repeats a page instead of touching another. */
DF_INLINE void score_pages(df_kv_type type, const df_attn_chunk *c, uint32_t iq, const int nq, uint64_t any,
                           attn_rows *s) {
  uint32_t page[ATTN_PAGES], n = 0;
  for (uint32_t p = 0; p < ATTN_PAGES; p++) {
    if (any >> (p * DF_KV_PAGE) & 0xffff) page[n++] = p;
  }
  for (uint32_t p = n; p < ATTN_PAGES; p++) page[p] = page[n - 1];
  for (uint32_t p = 0; p < n; p += V16_ATTN_PAGES(nq)) score_tile(type, c, iq, nq, V16_ATTN_PAGES(nq), page + p, s);
}

/* Scores to weights in place; maximum and sum to part. */
DF_INLINE void softmax_row(uint64_t vis, float scale, float *s, float *part) {
  v16 none = v16_set1(-INFINITY), m = none, x[ATTN_PAGES], f = v16_set1(scale);
  for (int p = 0; p < ATTN_PAGES; p++) {
    uint32_t mask = (uint32_t)(vis >> (p * DF_KV_PAGE)) & 0xffff;
    x[p] = mask ? v16_select(mask, v16_mul(v16_load(s + p * DF_KV_PAGE), f), none) : none;
    m = v16_max(x[p], m);
  }
  part[0] = v16_tree_max(m);
  m = v16_set1(part[0]);
  for (int p = 0; p < ATTN_PAGES; p++) {
    uint32_t mask = (uint32_t)(vis >> (p * DF_KV_PAGE)) & 0xffff;
    x[p] = mask ? v16_select(mask, v16_exp(v16_sub(x[p], m)), v16_zero()) : v16_zero();
    v16_store(s + p * DF_KV_PAGE, x[p]);
  }
  part[1] = v16_tree_add(v16_add(v16_add(x[0], x[1]), v16_add(x[2], x[3])));
}

/* nq queries by nv column vectors from column j on, over the positions in bits, continuing the sums in part. */
DF_INLINE void value_tile(df_kv_type type, const df_attn_chunk *c, uint32_t iq, const int nq, const int nv, size_t j,
                          uint64_t bits, const float (*w)[DF_KV_CHUNK]) {
  v16 acc[ATTN_TILE][8];
  for (int i = 0; i < nq; i++) {
    for (int v = 0; v < nv; v++) acc[i][v] = v16_load(c->part[iq + i] + 16 + j + v * 16);
  }
  for (; bits; bits &= bits - 1) {
    size_t pos = (size_t)__builtin_ctzll(bits);
    v16 x[8];
    for (int v = 0; v < nv; v++) {
      x[v] = load_kv(type, c->v_pages[pos / DF_KV_PAGE], pos % DF_KV_PAGE * c->e + j + (size_t)v * 16);
    }
    for (int i = 0; i < nq; i++) {
      v16 b = v16_set1(w[i][pos]);
      for (int v = 0; v < nv; v++) acc[i][v] = v16_fma(x[v], b, acc[i][v]);
    }
  }
  for (int i = 0; i < nq; i++) {
    for (int v = 0; v < nv; v++) v16_store(c->part[iq + i] + 16 + j + v * 16, acc[i][v]);
  }
}

DF_INLINE void value_run(df_kv_type type, const df_attn_chunk *c, uint32_t iq, const int nq, uint64_t bits,
                         const float (*w)[DF_KV_CHUNK]) {
  const uint32_t wide = V16_ATTN_COLS(nq) * 16;
  uint32_t j = 0;
  for (; j + wide <= c->e; j += wide) value_tile(type, c, iq, nq, V16_ATTN_COLS(nq), j, bits, w);
  for (; j < c->e; j += 16) value_tile(type, c, iq, nq, 1, j, bits, w);
}

DF_INLINE uint64_t low_bit(uint64_t x) { return x & (~x + 1); }

/* Positions ascending: stretches that all queries see as a tile, others query by query. */
DF_INLINE void value_rows(df_kv_type type, const df_attn_chunk *c, uint32_t iq, const int nq, uint64_t any,
                          uint64_t all, const attn_rows *s) {
  for (int i = 0; i < nq; i++) memset(c->part[iq + i] + 16, 0, c->e * sizeof(float));
  while (any) {
    uint64_t run = any;
    if (low_bit(any) & all) {
      if (any & ~all) run &= low_bit(any & ~all) - 1;
      value_run(type, c, iq, nq, run, s->at);
    } else {
      if (any & all) run &= low_bit(any & all) - 1;
      for (int i = 0; i < nq; i++) {
        if (run & c->visible[iq + i]) value_run(type, c, iq + i, 1, run & c->visible[iq + i], s->at + i);
      }
    }
    any &= ~run;
  }
}

DF_INLINE void attend_tile(df_kv_type type, const df_attn_chunk *c, uint32_t iq, const int nq) {
  attn_rows s;
  uint64_t any = 0, all = ~(uint64_t)0;
  for (int i = 0; i < nq; i++) {
    any |= c->visible[iq + i];
    all &= c->visible[iq + i];
  }
  if (any) score_pages(type, c, iq, nq, any, &s);
  for (int i = 0; i < nq; i++) softmax_row(c->visible[iq + i], c->scale, s.at[i], c->part[iq + i]);
  value_rows(type, c, iq, nq, any, all, &s);
}

DF_INLINE void attend(df_kv_type type, const df_attn_chunk *c) {
  uint32_t i = 0;
  for (; i + ATTN_TILE <= c->n_q; i += ATTN_TILE) attend_tile(type, c, i, 4);
  switch (c->n_q - i) {
    case 3: attend_tile(type, c, i, 3); break;
    case 2: attend_tile(type, c, i, 2); break;
    case 1: attend_tile(type, c, i, 1); break;
    default: break;
  }
}

static void attn_chunk_f16(const df_attn_chunk *c) { attend(DF_KV_F16, c); }
static void attn_chunk_f32(const df_attn_chunk *c) { attend(DF_KV_F32, c); }

static void attn_merge(float *into, const float *part, uint32_t e) {
  float ma = into[0], mb = part[0], m = ma > mb ? ma : mb;
  float in[16] = {ma - m, mb - m};
  v16 f = v16_exp(v16_load(in));
  v16_store(in, f);
  float fa = ma == -INFINITY ? 0.0f : in[0], fb = mb == -INFINITY ? 0.0f : in[1];
  v16 va = v16_set1(fa), vb = v16_set1(fb);
  float sum[16] = {into[1]}, other[16] = {part[1]};
  v16_store(sum, v16_fma(v16_load(sum), va, v16_mul(v16_load(other), vb)));
  into[0] = m;
  into[1] = sum[0];
  for (uint32_t j = 16; j < 16 + e; j += 16) {
    v16_store(into + j, v16_fma(v16_load(into + j), va, v16_mul(v16_load(part + j), vb)));
  }
}

static void attn_finish(const float *part, uint32_t e, float *out) {
  float sum = part[1];
  v16 d = v16_set1(sum);
  for (uint32_t j = 0; j < e; j += 16) v16_store(out + j, sum == 0.0f ? v16_zero() : v16_div(v16_load(part + 16 + j), d));
}

DF_INLINE void attn_table(df_kernels *t) {
  t->attn_chunk[DF_KV_F16] = attn_chunk_f16;
  t->attn_chunk[DF_KV_F32] = attn_chunk_f32;
  t->attn_merge = attn_merge;
  t->attn_finish = attn_finish;
}

#endif
