/*
 * Attention kernels: ref against softmax attention in double precision; every tier against ref bit for bit; and the
 * invariances that speculation rests on: a query's result depends on its own mask and the data it sees, never on
 * the queries beside it, on what masked slots hold, or on pages it cannot see (those are NULL here).
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/size.h"
#include "kernels/checkkern.h"

enum { MAX_Q = 80, MAX_E = 256, PART = 16 + MAX_E };

static const df_kernels *ref, *tier[DF_TIER_COUNT];
static unsigned n_tiers;

/* One chunk with all that it points to. Pages and queries lie between guard pages and are read-only. */
typedef struct scene {
  df_kv_type type;
  uint32_t e, n_q;
  float scale;
  ck_buf k[4], v[4], q[MAX_Q], part[MAX_Q];
  const void *kp[4], *vp[4];
  const float *qp[MAX_Q];
  float *pp[MAX_Q];
  uint64_t vis[MAX_Q];
} scene;

/* ---- masks ---- */

typedef enum mask_kind {
  M_FULL,   /* all 64 for all */
  M_SAME,   /* one prefix for all: a group of heads of one row */
  M_CAUSAL, /* prefix growing by one every third query: rows of a verify */
  M_TREE,   /* common prefix, then random ancestors */
  M_HOLES,  /* whole pages missing, differently per query */
  M_RANDOM, /* anything */
  M_ONE,    /* one position each */
  M_SPARSE, /* some queries see nothing */
  M_KINDS
} mask_kind;

static uint64_t prefix(uint32_t n) { return n >= 64 ? ~(uint64_t)0 : ((uint64_t)1 << n) - 1; }

static uint64_t mask_of(ck_rng *r, mask_kind m, uint32_t base, uint32_t i) {
  uint64_t x = ck_next(r);
  switch (m) {
    case M_FULL: return ~(uint64_t)0;
    case M_SAME: return prefix(base);
    case M_CAUSAL: return prefix(base + i / 3);
    case M_TREE: return prefix(base) | (x & prefix(base + 16));
    case M_HOLES: {
      uint64_t page = (x & 1 ? 0xffffu : 0) | (x & 2 ? (uint64_t)0xffff << 16 : 0) |
                      (x & 4 ? (uint64_t)0xffff << 32 : 0) | (x & 8 ? (uint64_t)0xffff << 48 : 0);
      return page & (ck_next(r) | ck_next(r));
    }
    case M_ONE: return (uint64_t)1 << (x % 64);
    case M_SPARSE: return x & 1 ? 0 : ck_next(r) & prefix(base);
    default: return x;
  }
}

static uint64_t seen_by_any(const scene *s) {
  uint64_t any = 0;
  for (uint32_t i = 0; i < s->n_q; i++) any |= s->vis[i];
  return any;
}

/* ---- building ---- */

static ck_buf kv_page(ck_rng *r, const scene *s, ck_fill f) {
  size_t n = (size_t)16 * s->e;
  ck_buf b = ck_alloc(n * (s->type == DF_KV_F32 ? 4 : 2), 32, ck_next(r) & 1 ? CK_END : CK_START);
  if (s->type == DF_KV_F32)
    ck_fill_f32(r, f, b.data, n);
  else
    ck_fill_f16(r, f, b.data, n);
  return b;
}

/* NaN into K lane and V row of one position. */
static void poison(scene *s, uint32_t pos) {
  for (uint32_t i = 0; i < s->e; i++) {
    size_t kat = (size_t)i * 16 + pos % 16, vat = (size_t)(pos % 16) * s->e + i;
    if (s->type == DF_KV_F32) {
      ((float *)s->k[pos / 16].data)[kat] = NAN;
      ((float *)s->v[pos / 16].data)[vat] = NAN;
    } else {
      ((uint16_t *)s->k[pos / 16].data)[kat] = 0x7e01;
      ((uint16_t *)s->v[pos / 16].data)[vat] = 0x7e01;
    }
  }
}

/* Slots that nobody sees hold NaN, pages that nobody sees are NULL, the rest becomes read-only. */
static void scene_seal(scene *s) {
  uint64_t any = seen_by_any(s);
  for (uint32_t p = 0; p < 64; p++) {
    if (!(any >> p & 1)) poison(s, p);
  }
  for (uint32_t p = 0; p < 4; p++) {
    bool used = (any >> (16 * p) & 0xffff) != 0;
    s->kp[p] = used ? s->k[p].data : NULL;
    s->vp[p] = used ? s->v[p].data : NULL;
    ck_read_only(&s->k[p]);
    ck_read_only(&s->v[p]);
  }
}

static scene scene_open(ck_rng *r, df_kv_type type, uint32_t e, uint32_t n_q, mask_kind m, ck_fill f) {
  scene s = {.type = type, .e = e, .n_q = n_q, .scale = 1.0f / sqrtf((float)e)};
  uint32_t base = 1 + ck_below(r, 48);
  for (int p = 0; p < 4; p++) {
    s.k[p] = kv_page(r, &s, f);
    s.v[p] = kv_page(r, &s, f);
  }
  for (uint32_t i = 0; i < n_q; i++) {
    s.q[i] = ck_alloc(e * 4, 4, ck_next(r) & 1 ? CK_END : CK_START);
    ck_fill_f32(r, f == CK_HUGE ? CK_UNIFORM : f, s.q[i].data, e);
    ck_read_only(&s.q[i]);
    s.part[i] = ck_alloc((16 + e) * 4, 64, ck_next(r) & 1 ? CK_END : CK_START);
    s.qp[i] = s.q[i].data;
    s.pp[i] = s.part[i].data;
    s.vis[i] = mask_of(r, m, base, i);
  }
  return s;
}

static void scene_close(scene *s) {
  for (int p = 0; p < 4; p++) {
    ck_free(&s->k[p]);
    ck_free(&s->v[p]);
  }
  for (uint32_t i = 0; i < s->n_q; i++) {
    ck_free(&s->q[i]);
    ck_free(&s->part[i]);
  }
}

/* Queries [i0, i0 + n) of the scene. */
static void scene_run(scene *s, const df_kernels *k, uint32_t i0, uint32_t n) {
  df_attn_chunk c = {s->kp, s->vp, s->qp + i0, s->vis + i0, s->pp + i0, s->scale, n, s->e, NULL, NULL};
  for (uint32_t i = i0; i < i0 + n; i++) memset(s->pp[i], 0x5c, (16 + s->e) * 4);
  k->attn_chunk[s->type](&c);
}

static void keep(const scene *s, float out[][PART]) {
  for (uint32_t i = 0; i < s->n_q; i++) memcpy(out[i], s->pp[i], (16 + s->e) * 4);
}

static double item(const scene *s, const void *page, size_t at) {
  return s->type == DF_KV_F32 ? (double)((const float *)page)[at] : (double)df_f16_to_f32(((const uint16_t *)page)[at]);
}

/* ---- meaning: ref against double ---- */

/* Score of one position and the scale of its rounding error (sum of magnitudes). */
static double score(const scene *s, uint32_t iq, uint32_t pos, double *mag) {
  double dot = 0;
  *mag = 0;
  for (uint32_t i = 0; i < s->e; i++) {
    double t = item(s, s->kp[pos / 16], (size_t)i * 16 + pos % 16) * (double)s->qp[iq][i];
    dot += t;
    *mag += fabs(t);
  }
  *mag *= (double)s->scale;
  return dot * (double)s->scale;
}

static void check_meaning(const scene *s, uint32_t iq) {
  double sc[64], max = -INFINITY, mag = 0, sum = 0;
  const float *part = s->pp[iq];
  for (uint32_t p = 0; p < 64; p++) {
    double g;
    if (!(s->vis[iq] >> p & 1)) continue;
    sc[p] = score(s, iq, p, &g);
    max = fmax(max, sc[p]);
    mag = fmax(mag, g);
  }
  if (!s->vis[iq]) {
    assert_true(part[0] == -INFINITY && part[1] == 0.0f);
    for (uint32_t j = 0; j < s->e; j++) assert_true(part[16 + j] == 0.0f && !signbit(part[16 + j]));
    return;
  }
  double tol = 2e-6 + mag * (s->e + 4) * 6e-8; /* relative error of a weight */
  assert_true(fabs((double)part[0] - max) <= tol);
  for (uint32_t p = 0; p < 64; p++) sum += s->vis[iq] >> p & 1 ? exp(sc[p] - max) : 0.0;
  assert_true(fabs((double)part[1] - sum) <= sum * 2 * tol);
  for (uint32_t j = 0; j < s->e; j++) {
    double want = 0, all = 0;
    for (uint32_t p = 0; p < 64; p++) {
      if (!(s->vis[iq] >> p & 1)) continue;
      double t = exp(sc[p] - max) * item(s, s->vp[p / 16], (size_t)(p % 16) * s->e + j);
      want += t;
      all += fabs(t);
    }
    if (!(fabs((double)part[16 + j] - want) <= all * 2 * tol + 1e-30)) {
      fail_msg("query %u column %u: %g, should be %g", iq, j, (double)part[16 + j], want);
    }
  }
}

static void test_attn_chunk__is_softmax_attention(void **state) {
  (void)state;
  ck_rng r = {101};
  for (int m = 0; m < M_KINDS; m++) {
    for (uint32_t e = 16; e <= 128; e += 48) {
      for (int type = 0; type < 2; type++) {
        scene s = scene_open(&r, (df_kv_type)type, e, 5, (mask_kind)m, CK_UNIFORM);
        scene_seal(&s);
        scene_run(&s, ref, 0, s.n_q);
        for (uint32_t i = 0; i < s.n_q; i++) check_meaning(&s, i);
        scene_close(&s);
      }
    }
  }
}

/* The chains run upwards: 2^24 first swallows the ones, 2^24 last does not. Max over lanes, sum by pages then tree. */
static void test_attn_chunk__documented_order(void **state) {
  (void)state;
  for (unsigned t = 0; t <= n_tiers; t++) {
    const df_kernels *k = t ? tier[t - 1] : ref;
    float kp[16 * 16] = {0}, vp[16 * 16] = {0}, q[16], part[32] __attribute__((aligned(64)));
    for (int i = 0; i < 16; i++) q[i] = 1.0f;
    for (int i = 0; i < 3; i++) kp[16 * (i + 1) + 0] = 1.0f; /* lane 0: 2^24, 1, 1, 1 */
    kp[0] = 16777216.0f;
    for (int i = 0; i < 3; i++) kp[16 * i + 1] = 1.0f; /* lane 1: 1, 1, 1, 2^24 */
    kp[16 * 3 + 1] = 16777216.0f;
    const void *kk[4] = {kp}, *vv[4] = {vp};
    const float *qq[1] = {q};
    float *pp[1] = {part};
    uint64_t vis = 1;
    df_attn_chunk c = {kk, vv, qq, &vis, pp, 1.0f, 1, 16, NULL, NULL};
    k->attn_chunk[DF_KV_F32](&c);
    assert_true(part[0] == 16777216.0f);
    vis = 2;
    k->attn_chunk[DF_KV_F32](&c);
    assert_true(part[0] == 16777220.0f); /* 2^24 + 3 to even */
    memset(kp, 0, sizeof kp);            /* equal weights 1; V columns 0 and 1 as the lanes above */
    for (int p = 1; p < 4; p++) vp[16 * p] = 1.0f;
    for (int p = 0; p < 3; p++) vp[16 * p + 1] = 1.0f;
    vp[0] = vp[16 * 3 + 1] = 16777216.0f;
    vis = 0xf;
    k->attn_chunk[DF_KV_F32](&c);
    assert_true(part[1] == 4.0f);
    assert_true(part[16] == 16777216.0f);
    assert_true(part[17] == 16777220.0f);
  }
}

/* ---- equality of tiers and of company ---- */

static void compare_tiers(ck_rng *r, df_kv_type type, uint32_t e, uint32_t n_q, mask_kind m, ck_fill f) {
  static float want[MAX_Q][PART];
  scene s = scene_open(r, type, e, n_q, m, f);
  scene_seal(&s);
  scene_run(&s, ref, 0, n_q);
  keep(&s, want);
  for (unsigned t = 0; t < n_tiers; t++) {
    scene_run(&s, tier[t], 0, n_q);
    for (uint32_t i = 0; i < n_q; i++) { /* part[2..15] must still hold what was there */
      ck_same_f32(want[i], s.pp[i], 16 + e, "chunk type %d e %u query %u of %u mask %d %s tier %u", type, e, i, n_q, m,
                  ck_fill_name(f), t);
    }
    uint32_t one = ck_below(r, n_q), two = ck_below(r, n_q - one) + 1; /* some of them in another company */
    scene_run(&s, tier[t], one, two);
    for (uint32_t i = one; i < one + two; i++) {
      ck_same_f32(want[i], s.pp[i], 16 + e, "company e %u query %u mask %d %s tier %u", e, i, m, ck_fill_name(f), t);
    }
  }
  for (uint32_t i = 0; i < n_q; i += 1 + n_q / 9) {
    scene_run(&s, ref, i, 1);
    ck_same_f32(want[i], s.pp[i], 16 + e, "alone in ref, query %u", i);
  }
  scene_close(&s);
}

static void test_attn_chunk__tiers_agree(void **state) {
  (void)state;
  static const uint32_t widths[] = {16, 32, 48, 64, 80, 96, 112, 128, 144, 192, 256};
  ck_rng r = {102};
  for (size_t w = 0; w < DF_COUNT_OF(widths); w++) {
    for (int m = 0; m < M_KINDS; m++) {
      for (int f = 0; f < CK_FILLS; f++) {
        uint32_t n_q = 1 + ck_below(&r, 13);
        compare_tiers(&r, (df_kv_type)((f + m + (int)w) & 1), widths[w], n_q, (mask_kind)m, (ck_fill)f);
      }
    }
  }
}

static void test_attn_chunk__every_query_count(void **state) {
  (void)state;
  ck_rng r = {103};
  for (uint32_t n_q = 1; n_q <= MAX_Q; n_q += n_q < 20 ? 1 : 5 + (n_q & 1)) {
    for (int m = 0; m < M_KINDS; m++) {
      compare_tiers(&r, DF_KV_F16, 64, n_q, (mask_kind)m, n_q & 1 ? CK_UNIFORM : CK_TINY);
      compare_tiers(&r, DF_KV_F32, 80, n_q, (mask_kind)m, n_q & 1 ? CK_WIDE : CK_SUBNORMAL);
    }
  }
}

/* Several slices of columns, several bands of queries. */
static void test_attn_chunk__many_queries_wide_heads(void **state) {
  (void)state;
  static const uint32_t widths[] = {64, 80, 128, 144, 208, 256};
  ck_rng r = {106};
  for (size_t w = 0; w < DF_COUNT_OF(widths); w++) {
    for (int m = 0; m < M_KINDS; m++) {
      compare_tiers(&r, DF_KV_F16, widths[w], 8 + ck_below(&r, 10), (mask_kind)m, CK_UNIFORM);
      if (w == 3) compare_tiers(&r, DF_KV_F16, widths[w], 75, (mask_kind)m, CK_WIDE);
    }
  }
}

static void test_attn_chunk__no_queries(void **state) {
  (void)state;
  for (unsigned t = 0; t <= n_tiers; t++) {
    df_attn_chunk c = {.e = 64};
    (t ? tier[t - 1] : ref)->attn_chunk[DF_KV_F16](&c);
    (t ? tier[t - 1] : ref)->attn_chunk[DF_KV_F32](&c);
  }
}

/* A mask that ends at n gives the bits of a chunk in which only n positions exist, whatever was there before. */
static void test_attn_chunk__mask_equals_shorter_chunk(void **state) {
  (void)state;
  ck_rng r = {104};
  for (uint32_t n = 1; n <= 64; n++) {
    for (unsigned t = 0; t <= n_tiers; t++) {
      const df_kernels *k = t ? tier[t - 1] : ref;
      static float want[MAX_Q][PART];
      scene s = scene_open(&r, n & 1 ? DF_KV_F16 : DF_KV_F32, 48, 4, M_FULL, CK_UNIFORM);
      for (int p = 0; p < 4; p++) {
        s.kp[p] = s.k[p].data;
        s.vp[p] = s.v[p].data;
      }
      for (uint32_t i = 0; i < s.n_q; i++) s.vis[i] = prefix(n);
      scene_run(&s, k, 0, s.n_q); /* everything finite beyond the mask */
      keep(&s, want);
      scene_seal(&s); /* now NaN and NULL beyond the mask */
      scene_run(&s, k, 0, s.n_q);
      for (uint32_t i = 0; i < s.n_q; i++) ck_same_f32(want[i], s.pp[i], 64, "prefix %u query %u tier %u", n, i, t);
      s.vis[3] = prefix(n ? n - 1 : 0); /* a neighbour that sees less changes nothing */
      scene_run(&s, k, 0, s.n_q);
      for (uint32_t i = 0; i < 3; i++) ck_same_f32(want[i], s.pp[i], 64, "beside %u query %u tier %u", n, i, t);
      scene_close(&s);
    }
  }
}

/* A NaN that one query sees stays with that query, and stays visible there. */
static void test_attn_chunk__defect_stays_with_its_query(void **state) {
  (void)state;
  ck_rng r = {105};
  for (unsigned t = 0; t <= n_tiers; t++) {
    const df_kernels *k = t ? tier[t - 1] : ref;
    for (uint32_t bad = 0; bad < 64; bad++) {
      static float want[MAX_Q][PART];
      scene s = scene_open(&r, bad & 1 ? DF_KV_F16 : DF_KV_F32, 64, 6, M_RANDOM, CK_UNIFORM);
      uint64_t bit = (uint64_t)1 << bad;
      for (uint32_t i = 0; i < s.n_q; i++) s.vis[i] &= ~bit;
      scene_seal(&s);
      for (int p = 0; p < 4; p++) {
        s.kp[p] = s.k[p].data;
        s.vp[p] = s.v[p].data;
      }
      scene_run(&s, k, 0, s.n_q);
      keep(&s, want);
      s.vis[2] |= bit; /* position `bad` holds NaN: nobody saw it */
      scene_run(&s, k, 0, s.n_q);
      for (uint32_t i = 0; i < s.n_q; i++) {
        if (i != 2) ck_same_f32(want[i], s.pp[i], 80, "NaN at %u, query %u tier %u", bad, i, t);
      }
      assert_false(isnan(s.pp[2][0]));
      assert_true(isnan(s.pp[2][1]));
      for (uint32_t j = 0; j < 64; j++) assert_true(isnan(s.pp[2][16 + j]));
      scene_close(&s);
    }
  }
}

/* ---- merge and finish ---- */

static void random_part(ck_rng *r, ck_fill f, uint32_t e, float *p) {
  ck_fill_f32(r, f, p, 16 + e);
  p[1] = fabsf(p[1]);
  if (ck_below(r, 6) == 0) { /* a part that saw nothing */
    memset(p, 0, (16 + e) * 4);
    p[0] = -INFINITY;
  }
}

static void check_merge_meaning(const float *a, const float *b, const float *got, uint32_t e) {
  double m = fmax((double)a[0], (double)b[0]);
  double fa = a[0] == -INFINITY ? 0 : exp((double)a[0] - m), fb = b[0] == -INFINITY ? 0 : exp((double)b[0] - m);
  assert_true((double)got[0] == m);
  for (uint32_t j = 15; j < 16 + e; j++) {
    uint32_t i = j == 15 ? 1 : j;
    double want = (double)a[i] * fa + (double)b[i] * fb, size = fabs((double)a[i]) * fa + fabs((double)b[i]) * fb;
    assert_true(fabs((double)got[i] - want) <= size * 1e-6 + 1e-37);
  }
}

static void test_attn_merge__tiers_agree(void **state) {
  (void)state;
  ck_rng r = {111};
  for (int rep = 0; rep < 3000; rep++) {
    uint32_t e = 16 * (1 + ck_below(&r, 16));
    ck_fill f = (ck_fill)(rep % CK_FILLS);
    float a[PART], b[PART], want[PART];
    random_part(&r, f, e, a);
    random_part(&r, rep & 64 ? f : CK_UNIFORM, e, b);
    memcpy(want, a, sizeof want);
    ref->attn_merge(want, b, 0, 1, e);
    if (f == CK_UNIFORM) check_merge_meaning(a, b, want, e);
    ck_buf part = ck_alloc((16 + e) * 4, 64, CK_END);
    memcpy(part.data, b, part.bytes);
    ck_read_only(&part);
    for (unsigned t = 0; t < n_tiers; t++) {
      ck_buf into = ck_alloc((16 + e) * 4, 64, t & 1 ? CK_START : CK_END);
      memcpy(into.data, a, into.bytes);
      tier[t]->attn_merge(into.data, part.data, 0, 1, e);
      ck_same_f32(want, into.data, 16 + e, "merge %s e %u tier %u", ck_fill_name(f), e, t);
      ck_free(&into);
    }
    ck_free(&part);
  }
}

/* However many share a call, every merge has the bits of the reference's one by one, empty and broken parts included.
 */
static void test_attn_merge__every_count(void **state) {
  (void)state;
  enum { N = 37, E = 48, STRIDE = 16 + E + 8 };
  static float a[N * STRIDE], b[N * STRIDE], want[N * STRIDE], got[N * STRIDE];
  ck_rng rng = {77};
  for (uint32_t i = 0; i < N * STRIDE; i++) a[i] = ck_unit(&rng), b[i] = ck_unit(&rng);
  for (uint32_t i = 0; i < N; i++) {
    a[i * STRIDE] = i % 5 == 3 ? -INFINITY : 20 * ck_unit(&rng);
    b[i * STRIDE] = i % 7 >= 5 ? -INFINITY : 20 * ck_unit(&rng);
    if (i == 11) b[i * STRIDE + 1] = NAN;
  }
  for (unsigned t = 0; t < n_tiers; t++)
    for (uint32_t n = 0; n <= N; n++) {
      memcpy(want, a, sizeof a);
      memcpy(got, a, sizeof a);
      for (uint32_t i = 0; i < n; i++) ref->attn_merge(want + i * STRIDE, b + i * STRIDE, 0, 1, E);
      tier[t]->attn_merge(got, b, STRIDE, n, E);
      assert_memory_equal(want, got, sizeof want);
    }
}

/* A fold has the bits of merging one part after the other. */
static void test_attn_fold__is_merges_in_order(void **state) {
  (void)state;
  enum { N = 40, WIDE = 128, STRIDE = 16 + WIDE };
  static float parts[N * STRIDE], want[N * STRIDE], got[N * STRIDE];
  static const uint32_t widths[] = {16, 48, 64, 80, 128};
  ck_rng rng = {78};
  for (uint32_t i = 0; i < N * STRIDE; i++) parts[i] = ck_unit(&rng);
  for (uint32_t i = 0; i < N; i++) parts[i * STRIDE] = i % 6 == 0 ? -INFINITY : 30 * ck_unit(&rng);
  for (unsigned t = 0; t <= n_tiers; t++) {
    const df_kernels *k = t ? tier[t - 1] : ref;
    for (uint32_t n = 1; n <= N; n++) {
      const uint32_t e = widths[n % DF_COUNT_OF(widths)], first = n % 3; /* some begin with an empty part */
      const uint32_t m = n + first <= N ? n : N - first;
      memcpy(want, parts, sizeof parts);
      memcpy(got, parts, sizeof parts);
      for (uint32_t i = 1; i < m; i++) ref->attn_merge(want + first * STRIDE, want + (first + i) * STRIDE, 0, 1, e);
      k->attn_fold(got + first * STRIDE, STRIDE, m, e);
      assert_memory_equal(want, got, sizeof want);
    }
  }
}

static void test_attn_merge__empty_part_changes_nothing(void **state) {
  (void)state;
  ck_rng r = {112};
  for (unsigned t = 0; t <= n_tiers; t++) {
    const df_kernels *k = t ? tier[t - 1] : ref;
    float x[48], a[48], none[48] = {-INFINITY};
    ck_fill_f32(&r, CK_UNIFORM, x, 48);
    memcpy(a, x, sizeof a);
    k->attn_merge(a, none, 0, 1, 32);
    ck_same_f32(x, a, 48, "nothing into something, tier %u", t);
    float b[48];
    memcpy(b, none, sizeof b);
    k->attn_merge(b, x, 0, 1, 32);
    assert_true(b[0] == x[0] && b[1] == x[1]);
    ck_same_f32(x + 16, b + 16, 32, "something into nothing, tier %u", t);
    float c[48] = {-INFINITY};
    k->attn_merge(c, none, 0, 1, 32);
    ck_same_f32(none, c, 48, "nothing into nothing, tier %u", t);
  }
}

static void test_attn_finish__divides(void **state) {
  (void)state;
  ck_rng r = {113};
  for (int rep = 0; rep < 500; rep++) {
    uint32_t e = 16 * (1 + ck_below(&r, 16));
    ck_buf part = ck_alloc((16 + e) * 4, 64, rep & 1 ? CK_END : CK_START);
    float *p = part.data;
    ck_fill_f32(&r, (ck_fill)(rep % CK_FILLS), p, 16 + e);
    if (rep % 7 == 0) p[1] = 0.0f;
    for (unsigned t = 0; t <= n_tiers; t++) {
      ck_buf out = ck_alloc(e * 4, 4, t & 1 ? CK_START : CK_END);
      (t ? tier[t - 1] : ref)->attn_finish(p, e, out.data);
      for (uint32_t j = 0; j < e; j++) {
        float want = p[1] == 0.0f ? 0.0f : p[16 + j] / p[1];
        ck_same_f32(&want, (float *)out.data + j, 1, "finish e %u tier %u", e, t);
      }
      ck_free(&out);
    }
    ck_free(&part);
  }
}

/* Three chunks merged in order, at once (flash) or from stored parts (splitkv): same bits, and the right answer. */
static void test_attn__long_context(void **state) {
  (void)state;
  ck_rng r = {114};
  for (unsigned t = 0; t <= n_tiers; t++) {
    const df_kernels *k = t ? tier[t - 1] : ref;
    scene s[3];
    float flash[64 + 16], out[64];
    for (int i = 0; i < 3; i++) {
      s[i] = scene_open(&r, DF_KV_F16, 64, 1, i == 2 ? M_TREE : M_FULL, CK_UNIFORM);
      if (i) ck_free(&s[i].q[0]);
      s[i].qp[0] = s[0].qp[0]; /* one query for all chunks */
      scene_seal(&s[i]);
      scene_run(&s[i], k, 0, 1);
      if (i == 0)
        memcpy(flash, s[i].pp[0], sizeof flash);
      else
        k->attn_merge(flash, s[i].pp[0], 0, 1, 64);
    }
    for (int i = 1; i < 3; i++) k->attn_merge(s[0].pp[0], s[i].pp[0], 0, 1, 64);
    ck_same_f32(flash, s[0].pp[0], 80, "flash against split, tier %u", t);
    k->attn_finish(flash, 64, out);
    double sum = 0, want[64] = {0}, g;
    for (int i = 0; i < 3; i++) {
      for (uint32_t p = 0; p < 64; p++) {
        if (!(s[i].vis[0] >> p & 1)) continue;
        double w = exp(score(&s[i], 0, p, &g));
        sum += w;
        for (uint32_t j = 0; j < 64; j++) want[j] += w * item(&s[i], s[i].vp[p / 16], (size_t)(p % 16) * 64 + j);
      }
    }
    for (uint32_t j = 0; j < 64; j++) assert_true(fabs((double)out[j] - want[j] / sum) < 2e-6);
    for (int i = 0; i < 3; i++) scene_close(&s[i]);
  }
}

int main(void) {
  ref = df_kernels_get(DF_TIER_REF);
  n_tiers = ck_tiers(tier);
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_attn_chunk__is_softmax_attention),
      cmocka_unit_test(test_attn_chunk__documented_order),
      cmocka_unit_test(test_attn_chunk__tiers_agree),
      cmocka_unit_test(test_attn_chunk__every_query_count),
      cmocka_unit_test(test_attn_chunk__many_queries_wide_heads),
      cmocka_unit_test(test_attn_chunk__no_queries),
      cmocka_unit_test(test_attn_chunk__mask_equals_shorter_chunk),
      cmocka_unit_test(test_attn_chunk__defect_stays_with_its_query),
      cmocka_unit_test(test_attn_merge__tiers_agree),
      cmocka_unit_test(test_attn_merge__every_count),
      cmocka_unit_test(test_attn_merge__empty_part_changes_nothing),
      cmocka_unit_test(test_attn_fold__is_merges_in_order),
      cmocka_unit_test(test_attn_finish__divides),
      cmocka_unit_test(test_attn__long_context),
  };
  return cmocka_run_group_tests_name("attn", tests, NULL, NULL);
}
