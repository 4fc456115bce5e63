/*
 * kernels/simd/attn_impl.h - chunk attention of kernels.h written once for all vector tiers: every
 * attn_<tier>.c includes its simd16_*.h, simd16_exp.h and then this file. All functions are static.
 *
 * Register tiles: up to 6 queries share every K and V vector that is loaded. Every query's own chain is the one of
 * kernels.h whatever shares its tile:
 *   scores  a page that the tile needs is computed for all its queries; masked lanes are dropped before the maximum
 *   V       positions that all queries of the tile see run as a tile; in between, each query runs alone over the
 *           positions it sees. The sums wait in part[] from one run to the next.
 *
 * Few queries (decode) read the half pages as they are, and all do where converting them runs beside multiply-adds.
 * Elsewhere many queries (verify, prefill) have K and V converted once, 64 components (columns) at a time, to a scratch
 * of 16 KB that stays in the first-level cache while all tiles of up to 36 queries pass over it; sums wait in memory
 * between slices. Conversion is exact, so both ways have equal bits.
 */
#ifndef DF_KERNELS_ATTN_IMPL_H
#define DF_KERNELS_ATTN_IMPL_H

#include <math.h>
#include <string.h>

#include "kernels/tables.h"

enum {
  ATTN_TILE = 6,
  ATTN_PAGES = DF_KV_CHUNK / DF_KV_PAGE,
  ATTN_BAND = 36,  /* queries that share one conversion */
  ATTN_SLICE = 64, /* components or columns converted at once */
  ATTN_MANY = 8    /* queries from which converting first pays */
};

/* Scores, then weights, of one query. */
typedef struct attn_row {
  float at[DF_KV_CHUNK] __attribute__((aligned(64)));
} attn_row;

/* Where the tiles read, from the first component (column) of the slice at hand, and what they ask for meanwhile: the
 * same place in the half pages of the chunk that comes next. Requests spread over the arithmetic wait for nothing; in a
 * burst they fill the processor's queue of outstanding lines and stop it. */
typedef struct attn_src {
  const void *page[ATTN_PAGES];  /* K: [d][16]; V: 16 rows */
  size_t row;                    /* elements from one V row to the next */
  const char *ahead[ATTN_PAGES]; /* NULL = nothing to ask for */
  size_t row_ahead;              /* bytes from one V row of those to the next */
} attn_src;

/* A few queries of the chunk. */
typedef struct attn_few {
  const float *const *q;
  const uint64_t *visible;
  float *const *part;
  attn_row *s;
} attn_few;

DF_INLINE uint64_t seen_by(const uint64_t *visible, uint32_t n) {
  uint64_t any = 0;
  for (uint32_t i = 0; i < n; i++) any |= visible[i];
  return any;
}

DF_INLINE v16 load_kv(df_kv_type type, const void *base, size_t at) {
  return type == DF_KV_F32 ? v16_load((const float *)base + at) : v16_load_f16((const uint16_t *)base + at);
}

DF_INLINE void ask_ahead(const attn_src *src, size_t at) {
  for (int p = 0; p < ATTN_PAGES; p++) {
    if (src->ahead[p]) __builtin_prefetch(src->ahead[p] + at, 0, 2);
  }
}

/* nq queries by np pages over components [d0, d0 + nd): np * nq chains, going on from s when d0 > 0. */
DF_INLINE void score_tile(df_kv_type type, const attn_src *k, const attn_few *f, const int nq, const int np,
                          const uint32_t *page, size_t d0, size_t nd) {
  v16 acc[ATTN_TILE][ATTN_PAGES];
  const float *q[ATTN_TILE];
  const void *kp[ATTN_PAGES];
  for (int p = 0; p < np; p++) kp[p] = k->page[page[p]];
  for (int i = 0; i < nq; i++) {
    q[i] = f->q[i] + d0;
    for (int p = 0; p < np; p++) acc[i][p] = d0 ? v16_load(&f->s[i].at[page[p] * DF_KV_PAGE]) : v16_zero();
  }
  for (size_t d = 0; d < nd; d++) {
    v16 x[ATTN_PAGES];
    if (d % 2 == 0) ask_ahead(k, d * DF_KV_PAGE * 2); /* a line holds two components of 16 positions */
    for (int p = 0; p < np; p++) x[p] = load_kv(type, kp[p], d * DF_KV_PAGE);
    for (int i = 0; i < nq; i++) {
      v16 b = v16_set1(q[i][d]);
      for (int p = 0; p < np; p++) acc[i][p] = v16_fma(x[p], b, acc[i][p]);
    }
  }
  for (int i = 0; i < nq; i++) {
    for (int p = 0; p < np; p++) v16_store(&f->s[i].at[page[p] * DF_KV_PAGE], acc[i][p]);
  }
}

/* All pages that some query of the tile sees, as many at a time as the registers hold, then what is left of them. */
DF_INLINE void score_pages(df_kv_type type, const int nq, const attn_src *k, const attn_few *f, size_t d0, size_t nd) {
  const uint32_t most = V16_ATTN_PAGES(nq);
  uint32_t page[ATTN_PAGES], n = 0, p = 0;
  uint64_t any = seen_by(f->visible, (uint32_t)nq);
  for (uint32_t i = 0; i < ATTN_PAGES; i++) {
    if (any >> (i * DF_KV_PAGE) & 0xffff) page[n++] = i;
  }
  for (; p + most <= n; p += most) score_tile(type, k, f, nq, V16_ATTN_PAGES(nq), page + p, d0, nd);
  if (most > 3 && n - p == 3) {
    score_tile(type, k, f, nq, 3, page + p, d0, nd);
  } else if (most > 2 && n - p == 2) {
    score_tile(type, k, f, nq, 2, page + p, d0, nd);
  } else if (most > 1 && n - p == 1) {
    score_tile(type, k, f, nq, 1, page + p, d0, nd);
  }
}

/* Scores to weights in place; maximum and sum to part, whose accumulator starts at +0. */
DF_INLINE void softmax_row(uint64_t vis, float scale, uint32_t e, float *s, float *part) {
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
  for (uint32_t j = 0; j < e; j += 16) v16_store(part + 16 + j, v16_zero());
}

/* nq queries by nv column vectors over the positions in bits, going on from part. j: column in part, jv: in v. */
DF_INLINE void value_tile(df_kv_type type, const int nq, const int nv, const attn_src *v, const attn_few *f, size_t j,
                          size_t jv, uint64_t bits) {
  v16 acc[ATTN_TILE][8];
  for (int i = 0; i < nq; i++) {
    for (int c = 0; c < nv; c++) acc[i][c] = v16_load(f->part[i] + 16 + j + c * 16);
  }
  for (; bits; bits &= bits - 1) {
    size_t pos = (size_t)__builtin_ctzll(bits);
    v16 x[8];
    const char *ahead = v->ahead[pos / DF_KV_PAGE];
    for (int c = 0; c < nv && ahead; c += 2) { /* a line holds 32 columns */
      __builtin_prefetch(ahead + pos % DF_KV_PAGE * v->row_ahead + (jv + (size_t)c * 16) * 2, 0, 2);
    }
    for (int c = 0; c < nv; c++) {
      x[c] = load_kv(type, v->page[pos / DF_KV_PAGE], pos % DF_KV_PAGE * v->row + jv + (size_t)c * 16);
    }
    for (int i = 0; i < nq; i++) {
      v16 b = v16_set1(f->s[i].at[pos]);
      for (int c = 0; c < nv; c++) acc[i][c] = v16_fma(x[c], b, acc[i][c]);
    }
  }
  for (int i = 0; i < nq; i++) {
    for (int c = 0; c < nv; c++) v16_store(f->part[i] + 16 + j + c * 16, acc[i][c]);
  }
}

/* nj columns from j0 on. */
DF_INLINE void value_run(df_kv_type type, const int nq, const attn_src *v, const attn_few *f, size_t j0, size_t nj,
                         uint64_t bits) {
  const size_t wide = V16_ATTN_COLS(nq) * 16, half = wide / 2;
  size_t j = 0;
  for (; j + wide <= nj; j += wide) value_tile(type, nq, V16_ATTN_COLS(nq), v, f, j0 + j, j, bits);
  if (nq == 1 && half > 16 && j + half <= nj) {
    value_tile(type, nq, V16_ATTN_COLS(nq) / 2, v, f, j0 + j, j, bits);
    j += half;
  }
  for (; j < nj; j += 16) value_tile(type, nq, 1, v, f, j0 + j, j, bits);
}

DF_INLINE uint64_t low_bit(uint64_t x) { return x & (~x + 1); }

/* Each tile once per element type and query count, so that its sums are registers. */
#define ATTN_TILES(name, type, nq)                                                                      \
  static void score_##name(const attn_src *k, const attn_few *f, size_t d0, size_t nd) {                \
    score_pages(type, nq, k, f, d0, nd);                                                                \
  }                                                                                                     \
  static void value_##name(const attn_src *v, const attn_few *f, size_t j0, size_t nj, uint64_t bits) { \
    value_run(type, nq, v, f, j0, nj, bits);                                                            \
  }

ATTN_TILES(f16_1, DF_KV_F16, 1)
ATTN_TILES(f16_2, DF_KV_F16, 2)
ATTN_TILES(f16_3, DF_KV_F16, 3)
ATTN_TILES(f16_4, DF_KV_F16, 4)
ATTN_TILES(f16_5, DF_KV_F16, 5)
ATTN_TILES(f16_6, DF_KV_F16, 6)
ATTN_TILES(f32_1, DF_KV_F32, 1)
ATTN_TILES(f32_2, DF_KV_F32, 2)
ATTN_TILES(f32_3, DF_KV_F32, 3)
ATTN_TILES(f32_4, DF_KV_F32, 4)
ATTN_TILES(f32_5, DF_KV_F32, 5)
ATTN_TILES(f32_6, DF_KV_F32, 6)

typedef void score_fn(const attn_src *k, const attn_few *f, size_t d0, size_t nd);
typedef void value_fn(const attn_src *v, const attn_few *f, size_t j0, size_t nj, uint64_t bits);
static score_fn *const score_fns[2][ATTN_TILE] = {
    [DF_KV_F16] = {score_f16_1, score_f16_2, score_f16_3, score_f16_4, score_f16_5, score_f16_6},
    [DF_KV_F32] = {score_f32_1, score_f32_2, score_f32_3, score_f32_4, score_f32_5, score_f32_6}};
static value_fn *const value_fns[2][ATTN_TILE] = {
    [DF_KV_F16] = {value_f16_1, value_f16_2, value_f16_3, value_f16_4, value_f16_5, value_f16_6},
    [DF_KV_F32] = {value_f32_1, value_f32_2, value_f32_3, value_f32_4, value_f32_5, value_f32_6}};

/* Positions ascending: stretches that all queries see as a tile, others query by query. */
static void value_rows(df_kv_type type, uint32_t nq, const attn_src *v, const attn_few *f, size_t j0, size_t nj) {
  uint64_t any = seen_by(f->visible, nq), all = ~(uint64_t)0;
  for (uint32_t i = 0; i < nq; i++) all &= f->visible[i];
  while (any) {
    uint64_t run = any;
    if (low_bit(any) & all) {
      if (any & ~all) run &= low_bit(any & ~all) - 1;
      value_fns[type][nq - 1](v, f, j0, nj, run);
    } else {
      if (any & all) run &= low_bit(any & all) - 1;
      for (uint32_t i = 0; i < nq; i++) {
        attn_few one = {f->q + i, f->visible + i, f->part + i, f->s + i};
        if (run & f->visible[i]) value_fns[type][0](v, &one, j0, nj, run & f->visible[i]);
      }
    }
    any &= ~run;
  }
}

/* One tile straight from the pages. */
static void attend_tile(const df_attn_chunk *c, df_kv_type type, uint32_t iq, uint32_t nq) {
  attn_row s[ATTN_TILE];
  attn_few f = {c->q + iq, c->visible + iq, c->part + iq, s};
  attn_src k = {.row = 0}, v = {.row = c->e, .row_ahead = (size_t)c->e * 2};
  memcpy(k.page, c->k_pages, sizeof k.page);
  memcpy(v.page, c->v_pages, sizeof v.page);
  if (iq == 0 && c->k_ahead) memcpy(k.ahead, c->k_ahead, sizeof k.ahead);
  if (iq == 0 && c->v_ahead) memcpy(v.ahead, c->v_ahead, sizeof v.ahead);
  score_fns[type][nq - 1](&k, &f, 0, c->e);
  for (uint32_t i = 0; i < nq; i++) softmax_row(f.visible[i], c->scale, c->e, s[i].at, f.part[i]);
  value_rows(type, nq, &v, &f, 0, c->e);
}

/* Size of the next tile when n queries are left: as few tiles as can be, of nearly equal size. */
static uint32_t tile_size(uint32_t n) {
  uint32_t tiles = (n + ATTN_TILE - 1) / ATTN_TILE;
  return (n + tiles - 1) / tiles;
}

static void attend(const df_attn_chunk *c, df_kv_type type) {
  for (uint32_t i = 0, t; i < c->n_q; i += t) {
    t = tile_size(c->n_q - i);
    attend_tile(c, type, i, t);
  }
}

/* Components [d0, d0 + n) of the pages in `any`, to [page][d][16]. */
static void convert_k(const df_attn_chunk *c, uint64_t any, size_t d0, size_t n, float *out) {
  for (size_t p = 0; p < ATTN_PAGES; p++) {
    if (!(any >> (p * DF_KV_PAGE) & 0xffff)) continue;
    const uint16_t *k = (const uint16_t *)c->k_pages[p] + d0 * DF_KV_PAGE;
    float *o = out + p * DF_KV_PAGE * ATTN_SLICE;
    for (size_t i = 0; i < n; i++) v16_store(o + i * 16, v16_load_f16(k + i * 16));
  }
}

/* Columns [j0, j0 + n) of the positions in `any`, to [position][column]. */
static void convert_v(const df_attn_chunk *c, uint64_t any, size_t j0, size_t n, float *out) {
  for (; any; any &= any - 1) {
    size_t pos = (size_t)__builtin_ctzll(any);
    const uint16_t *v = (const uint16_t *)c->v_pages[pos / DF_KV_PAGE] + pos % DF_KV_PAGE * c->e + j0;
    for (size_t j = 0; j < n; j += 16) v16_store(out + pos * ATTN_SLICE + j, v16_load_f16(v + j));
  }
}

/* The tiles of a band share the pages of the next chunk among them, so that the requests are spread over the band. */
DF_INLINE void ask_pages(attn_src *src, const void *const *ahead, uint32_t t, uint32_t tiles, size_t at) {
  for (uint32_t p = 0; p < ATTN_PAGES; p++) {
    src->ahead[p] = ahead && p % tiles == t ? (const char *)ahead[p] + at : NULL;
  }
}

/* Up to 36 queries over half pages, converted slice by slice. */
static void attend_band(const df_attn_chunk *c, uint32_t iq, uint32_t n) {
  float x[DF_KV_CHUNK * ATTN_SLICE] __attribute__((aligned(64)));
  attn_row s[ATTN_BAND];
  attn_src src = {.row = ATTN_SLICE, .row_ahead = (size_t)c->e * 2};
  const void *const *k_ahead = iq == 0 ? c->k_ahead : NULL, *const *v_ahead = iq == 0 ? c->v_ahead : NULL;
  uint64_t any = seen_by(c->visible + iq, n);
  const uint32_t tiles = (n + ATTN_TILE - 1) / ATTN_TILE;
  for (size_t p = 0; p < ATTN_PAGES; p++) src.page[p] = x + p * DF_KV_PAGE * ATTN_SLICE;
  for (size_t d = 0; d < c->e; d += ATTN_SLICE) {
    size_t nd = c->e - d < ATTN_SLICE ? c->e - d : ATTN_SLICE;
    convert_k(c, any, d, nd, x);
    for (uint32_t i = 0, t, nth = 0; i < n; i += t, nth++) {
      t = tile_size(n - i);
      ask_pages(&src, k_ahead, nth, tiles, d * DF_KV_PAGE * 2);
      attn_few f = {c->q + iq + i, c->visible + iq + i, c->part + iq + i, s + i};
      score_fns[DF_KV_F32][t - 1](&src, &f, d, nd);
    }
  }
  for (uint32_t i = 0; i < n; i++) softmax_row(c->visible[iq + i], c->scale, c->e, s[i].at, c->part[iq + i]);
  for (size_t j = 0; j < c->e; j += ATTN_SLICE) {
    size_t nj = c->e - j < ATTN_SLICE ? c->e - j : ATTN_SLICE;
    convert_v(c, any, j, nj, x);
    for (uint32_t i = 0, t, nth = 0; i < n; i += t, nth++) {
      t = tile_size(n - i);
      ask_pages(&src, v_ahead, nth, tiles, j * 2);
      attn_few f = {c->q + iq + i, c->visible + iq + i, c->part + iq + i, s + i};
      value_rows(DF_KV_F32, t, &src, &f, j, nj);
    }
  }
}

static void attn_chunk_f16(const df_attn_chunk *c) { attend(c, DF_KV_F16); }

static void attn_chunk_f16_converted(const df_attn_chunk *c) {
  if (c->n_q < ATTN_MANY) {
    attend(c, DF_KV_F16);
    return;
  }
  for (uint32_t i = 0; i < c->n_q; i += ATTN_BAND) attend_band(c, i, c->n_q - i < ATTN_BAND ? c->n_q - i : ATTN_BAND);
}

static void attn_chunk_f32(const df_attn_chunk *c) { attend(c, DF_KV_F32); }

/* Up to 16 merges: one lane each for maxima, factors and sums. */
static void merge_lanes(float *into, const float *part, size_t stride, uint32_t n, uint32_t e) {
  float ma[16], mb[16], sa[16], sb[16], fa[16], fb[16];
  for (uint32_t i = 0; i < 16; i++) { /* spare lanes repeat the last merge */
    const size_t at = (i < n ? i : n - 1) * stride;
    ma[i] = into[at], sa[i] = into[at + 1];
    mb[i] = part[at], sb[i] = part[at + 1];
  }
  const v16 a = v16_load(ma), b = v16_load(mb), m = v16_max(a, b), none = v16_set1(-INFINITY);
  const v16 va = v16_select(v16_eq_mask(a, none), v16_zero(), v16_exp(v16_sub(a, m)));
  const v16 vb = v16_select(v16_eq_mask(b, none), v16_zero(), v16_exp(v16_sub(b, m)));
  v16_store(ma, m);
  v16_store(sa, v16_fma(v16_load(sa), va, v16_mul(v16_load(sb), vb)));
  v16_store(fa, va);
  v16_store(fb, vb);
  for (uint32_t i = 0; i < n; i++) {
    float *to = into + i * stride;
    const float *from = part + i * stride;
    const v16 x = v16_set1(fa[i]), y = v16_set1(fb[i]);
    to[0] = ma[i], to[1] = sa[i];
    for (uint32_t j = 16; j < 16 + e; j += 16) {
      v16_store(to + j, v16_fma(v16_load(to + j), x, v16_mul(v16_load(from + j), y)));
    }
  }
}

static void attn_merge(float *into, const float *part, size_t stride, uint32_t n, uint32_t e) {
  for (uint32_t i = 0; i < n; i += 16) {
    merge_lanes(into + i * stride, part + i * stride, stride, n - i < 16 ? n - i : 16, e);
  }
}

/* Maximum, sum and factors of up to 16 merges into `into` in a row: fa of what came before, fb of the part. The maximum
 * before each merge is known beforehand, so all exponentials are taken at once. */
static void fold_factors(float *into, const float *part, size_t stride, uint32_t n, float *fa, float *fb) {
  float before[16] = {0}, own[16] = {0}, after[16] = {0}, m = into[0], sum = into[1];
  for (uint32_t i = 0; i < n; i++) {
    const float mb = part[i * stride];
    before[i] = m, own[i] = mb;
    m = m > mb ? m : mb;
    after[i] = m;
  }
  const v16 a = v16_load(before), b = v16_load(own), top = v16_load(after), none = v16_set1(-INFINITY);
  v16_store(fa, v16_select(v16_eq_mask(a, none), v16_zero(), v16_exp(v16_sub(a, top))));
  v16_store(fb, v16_select(v16_eq_mask(b, none), v16_zero(), v16_exp(v16_sub(b, top))));
  for (uint32_t i = 0; i < n; i++) sum = v16_fma1(sum, fa[i], part[i * stride + 1] * fb[i]);
  into[0] = m;
  into[1] = sum;
}

/* The merges in 16 * nv columns, whose sums stay in registers. */
DF_INLINE void fold_columns(float *into, const float *part, size_t stride, uint32_t n, const float *fa, const float *fb,
                            const int nv) {
  v16 acc[4];
  for (int c = 0; c < nv; c++) acc[c] = v16_load(into + c * 16);
  for (uint32_t i = 0; i < n; i++) {
    const float *p = part + i * stride;
    const v16 x = v16_set1(fa[i]), y = v16_set1(fb[i]);
    for (int c = 0; c < nv; c++) acc[c] = v16_fma(acc[c], x, v16_mul(v16_load(p + c * 16), y));
  }
  for (int c = 0; c < nv; c++) v16_store(into + c * 16, acc[c]);
}

static void attn_fold(float *parts, size_t stride, uint32_t n, uint32_t e) {
  float fa[16], fb[16];
  for (uint32_t i = 1; i < n; i += 16) {
    const float *part = parts + i * stride;
    const uint32_t m = n - i < 16 ? n - i : 16;
    uint32_t j = 16;
    fold_factors(parts, part, stride, m, fa, fb);
    for (; j + 64 <= 16 + e; j += 64) fold_columns(parts + j, part + j, stride, m, fa, fb, 4);
    for (; j < 16 + e; j += 16) fold_columns(parts + j, part + j, stride, m, fa, fb, 1);
  }
}

static void attn_finish(const float *part, uint32_t e, float *out) {
  float sum = part[1];
  v16 d = v16_set1(sum);
  for (uint32_t j = 0; j < e; j += 16) {
    v16_store(out + j, sum == 0.0f ? v16_zero() : v16_div(v16_load(part + 16 + j), d));
  }
}

/* halves_cost: converting half precision takes turns with multiply-adds, so it pays to do it once for many queries. */
DF_INLINE void attn_table(df_kernels *t, bool halves_cost) {
  t->attn_chunk[DF_KV_F16] = halves_cost ? attn_chunk_f16_converted : attn_chunk_f16;
  t->attn_chunk[DF_KV_F32] = attn_chunk_f32;
  t->attn_merge = attn_merge;
  t->attn_fold = attn_fold;
  t->attn_finish = attn_finish;
}

#endif
