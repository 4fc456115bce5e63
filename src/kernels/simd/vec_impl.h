/*
 * kernels/simd/vec_impl.h - vector operations of kernels.h written once for all vector tiers: every
 * vec_<tier>.c includes its simd16_*.h, simd16_exp.h and then this file. All functions are static.
 *
 * Tails are masked loads and stores: no lane past n is ever read or written.
 */
#ifndef DF_KERNELS_VEC_IMPL_H
#define DF_KERNELS_VEC_IMPL_H

#include <float.h>
#include <math.h>
#include <string.h>

#include "kernels/tables.h"

enum { QUANT_GROUP = 16 };

/* A block that is too small, infinite or NaN: see kernels.h. */
static void quantize_odd(float amax, df_actq *o) {
  uint32_t bits = amax < DF_QUANT_MIN ? 0 : DF_QUANT_NAN_BITS;
  memset(o, 0, sizeof *o);
  memcpy(&o->scale, &bits, sizeof o->scale);
  o->scale_sum = o->scale;
}

DF_INLINE void quantize_block(const float *x, float inv, float scale, df_actq *o) {
  v16 f = v16_set1(inv);
  int32_t lo = v16_store_q8(o->q, v16_mul(v16_load(x), f));
  int32_t hi = v16_store_q8(o->q + 16, v16_mul(v16_load(x + 16), f));
  o->scale = scale;
  o->scale_sum = scale * (float)(lo + hi);
  o->off4 = -8 * (lo + hi);
  o->off8 = -128 * (lo + hi);
  o->off6_lo = -32 * lo;
  o->off6_hi = -32 * hi;
  o->pad[0] = o->pad[1] = 0;
}

/* Up to 16 blocks at once: the two divisions become vectors, and no block waits for the maximum of the one before. */
DF_INLINE void quantize_group(const float *x, uint32_t n, df_actq *out, size_t stride) {
  float amax[QUANT_GROUP] = {0}, inv[QUANT_GROUP], scale[QUANT_GROUP];
  for (uint32_t b = 0; b < n; b++) {
    uint32_t bits = v16_max_abs_bits(v16_load(x + b * DF_QBLOCK), v16_load(x + b * DF_QBLOCK + 16));
    memcpy(&amax[b], &bits, sizeof bits);
  }
  v16 m = v16_load(amax), top = v16_set1(127.0f);
  v16_store(inv, v16_div(top, m));
  v16_store(scale, v16_div(m, top));
  uint32_t good = v16_ge_mask(m, v16_set1(DF_QUANT_MIN)) & v16_ge_mask(v16_set1(FLT_MAX), m);
  for (uint32_t b = 0; b < n; b++, out += stride) {
    if (good >> b & 1)
      quantize_block(x + b * DF_QBLOCK, inv[b], scale[b], out);
    else
      quantize_odd(amax[b], out);
  }
}

static void quantize(const float *x, uint32_t k, df_actq *out, size_t stride) {
  for (uint32_t kb = 0; kb < k / DF_QBLOCK; kb += QUANT_GROUP) {
    uint32_t n = k / DF_QBLOCK - kb < QUANT_GROUP ? k / DF_QBLOCK - kb : QUANT_GROUP;
    quantize_group(x + (size_t)kb * DF_QBLOCK, n, out + kb * stride, stride);
  }
}

/* The sum is one chain per lane by contract; only the loads run ahead. */
DF_INLINE float rms_factor(const float *x, uint32_t n, float eps) {
  v16 acc = v16_zero();
  uint32_t i = 0;
  for (; i + 16 <= n; i += 16) {
    v16 a = v16_load(x + i);
    acc = v16_fma(a, a, acc);
  }
  if (i < n) {
    v16 a = v16_load_n(x + i, n - i);
    acc = v16_fma(a, a, acc);
  }
  return inv_sqrt(v16_tree_add(acc) / (float)n + eps);
}

DF_INLINE v16 rms_apply(v16 x, v16 r, v16 w) { return v16_mul(v16_mul(x, r), w); }

static void rmsnorm(const float *x, const float *w, uint32_t n, float eps, float *out) {
  v16 r = v16_set1(rms_factor(x, n, eps));
  uint32_t i = 0;
  for (; i + 16 <= n; i += 16) v16_store(out + i, rms_apply(v16_load(x + i), r, v16_load(w + i)));
  if (i < n) v16_store_n(out + i, rms_apply(v16_load_n(x + i, n - i), r, v16_load_n(w + i, n - i)), n - i);
}

static void rmsnorm_quantize(const float *x, const float *w, uint32_t n, float eps, float *tmp, df_actq *out,
                             size_t stride) {
  enum { GROUP = QUANT_GROUP * DF_QBLOCK };
  v16 r = v16_set1(rms_factor(x, n, eps));
  float own[GROUP] __attribute__((aligned(64)));
  for (uint32_t at = 0; at < n; at += GROUP, out += QUANT_GROUP * stride) {
    uint32_t len = n - at < GROUP ? n - at : GROUP;
    float *y = tmp ? tmp + at : own;
    for (uint32_t i = 0; i < len; i += 16) v16_store(y + i, rms_apply(v16_load(x + at + i), r, v16_load(w + at + i)));
    quantize_group(y, len / DF_QBLOCK, out, stride);
    if (n - at <= GROUP) break;
  }
}

DF_INLINE v16 silu_mul16(v16 g, v16 u) { return v16_mul(v16_div(g, v16_add(v16_set1(1.0f), v16_exp(v16_neg(g)))), u); }

static void silu_mul(const float *g, const float *u, uint32_t n, float *out) {
  uint32_t i = 0;
  for (; i + 16 <= n; i += 16) v16_store(out + i, silu_mul16(v16_load(g + i), v16_load(u + i)));
  if (i < n) v16_store_n(out + i, silu_mul16(v16_load_n(g + i, n - i), v16_load_n(u + i, n - i)), n - i);
}

static void silu_mul_quantize(const float *g, const float *u, uint32_t n, df_actq *out, size_t stride) {
  enum { GROUP = QUANT_GROUP * DF_QBLOCK };
  float y[GROUP] __attribute__((aligned(64)));
  for (uint32_t at = 0; at < n; at += GROUP, out += QUANT_GROUP * stride) {
    uint32_t len = n - at < GROUP ? n - at : GROUP;
    for (uint32_t i = 0; i < len; i += 16) v16_store(y + i, silu_mul16(v16_load(g + at + i), v16_load(u + at + i)));
    quantize_group(y, len / DF_QBLOCK, out, stride);
    if (n - at <= GROUP) break;
  }
}

static void rope(float *x, const float *cos, const float *sin, uint32_t h) {
  for (uint32_t i = 0; i < h; i += 16) {
    uint32_t n = h - i < 16 ? h - i : 16;
    v16 a = v16_load_n(x + i, n), b = v16_load_n(x + h + i, n);
    v16 c = v16_load_n(cos + i, n), s = v16_load_n(sin + i, n);
    v16_store_n(x + i, v16_fms(a, c, v16_mul(b, s)), n);
    v16_store_n(x + h + i, v16_fma(b, c, v16_mul(a, s)), n);
  }
}

static void add(float *y, const float *x, uint32_t n) {
  uint32_t i = 0;
  for (; i + 16 <= n; i += 16) v16_store(y + i, v16_add(v16_load(y + i), v16_load(x + i)));
  if (i < n) v16_store_n(y + i, v16_add(v16_load_n(y + i, n - i), v16_load_n(x + i, n - i)), n - i);
}

/* Largest value of n >= 1 floats, -inf when there is none but NaN (v16_max keeps its second operand then). */
DF_INLINE float block_max(const float *x, uint32_t n) {
  v16 none = v16_set1(-INFINITY), m0 = none, m1 = none;
  uint32_t i = 0;
  for (; i + 32 <= n; i += 32) {
    m0 = v16_max(v16_load(x + i), m0);
    m1 = v16_max(v16_load(x + i + 16), m1);
  }
  for (; i < n; i += 16) {
    uint32_t left = n - i < 16 ? n - i : 16;
    m0 = v16_max(v16_select((1u << left) - 1, v16_load_n(x + i, left), none), m0);
  }
  return v16_tree_max(v16_max(m0, m1));
}

/* One pass for the maximum by blocks, then a search in the first block that has it. */
static uint32_t argmax(const float *x, uint32_t n) {
  enum { BLOCK = 512 };
  float best = -INFINITY;
  uint32_t at = 0;
  for (uint32_t i = 0; i < n; i += BLOCK) {
    float m = block_max(x + i, n - i < BLOCK ? n - i : BLOCK);
    if (m > best) {
      best = m;
      at = i;
    }
    if (n - i <= BLOCK) break; /* i + BLOCK may wrap */
  }
  v16 b = v16_set1(best);
  for (uint32_t i = at; i < n; i += 16) {
    uint32_t left = n - i < 16 ? n - i : 16;
    uint32_t hit = v16_eq_mask(v16_load_n(x + i, left), b) & ((1u << left) - 1);
    if (hit) return i + (uint32_t)__builtin_ctz(hit);
    if (n - i <= 16) break;
  }
  return 0;
}

static float exp_sum(const float *x, uint32_t n, float max) {
  const v16 m = v16_set1(max);
  v16 acc = v16_zero();
  uint32_t i = 0;
  for (; i + 16 <= n; i += 16) acc = v16_add(acc, v16_exp(v16_sub(v16_load(x + i), m)));
  if (i < n) {
    const v16 last = v16_exp(v16_sub(v16_load_n(x + i, n - i), m));
    acc = v16_add(acc, v16_select((1u << (n - i)) - 1, last, v16_zero()));
  }
  return v16_tree_add(acc);
}

/* Halves of 8 positions or components; the shuffles of neighbours below are one instruction everywhere. */
typedef uint16_t h8 __attribute__((vector_size(16)));

DF_INLINE h8 h8_zip_low(h8 a, h8 b) { return __builtin_shufflevector(a, b, 0, 8, 1, 9, 2, 10, 3, 11); }
DF_INLINE h8 h8_zip_high(h8 a, h8 b) { return __builtin_shufflevector(a, b, 4, 12, 5, 13, 6, 14, 7, 15); }

DF_INLINE h8 h8_load(const uint16_t *p) {
  h8 v;
  memcpy(&v, p, sizeof v);
  return v;
}

/* One position: its 16 components to one lane of a K page each. */
DF_INLINE void keys_1(const uint16_t *h, uint16_t *page) {
  for (int half = 0; half < 16; half += 8) {
    const h8 a = h8_load(h + half);
    for (int i = 0; i < 8; i++) page[(half + i) * DF_KV_PAGE] = a[i];
  }
}

/* Two positions: zipped, a pair for each component. */
DF_INLINE void keys_2(const uint16_t (*h)[16], uint16_t *page) {
  for (int half = 0; half < 16; half += 8) {
    const h8 a = h8_load(h[0] + half), b = h8_load(h[1] + half), out[2] = {h8_zip_low(a, b), h8_zip_high(a, b)};
    for (int i = 0; i < 8; i++) memcpy(page + (half + i) * DF_KV_PAGE, (const char *)&out[i / 4] + i % 4 * 4, 4);
  }
}

/* Four positions of 16 components each: two rounds of zipping leave two components of four positions in a vector. */
DF_INLINE void keys_4(const uint16_t (*h)[16], uint16_t *page) {
  for (int half = 0; half < 16; half += 8) {
    const h8 a = h8_load(h[0] + half), b = h8_load(h[1] + half), c = h8_load(h[2] + half), d = h8_load(h[3] + half);
    const h8 ac0 = h8_zip_low(a, c), ac1 = h8_zip_high(a, c), bd0 = h8_zip_low(b, d), bd1 = h8_zip_high(b, d);
    const h8 out[4] = {h8_zip_low(ac0, bd0), h8_zip_high(ac0, bd0), h8_zip_low(ac1, bd1), h8_zip_high(ac1, bd1)};
    for (int i = 0; i < 4; i++) {
      memcpy(page + (half + 2 * i) * DF_KV_PAGE, &out[i], 8);
      memcpy(page + (half + 2 * i + 1) * DF_KV_PAGE, (const char *)&out[i] + 8, 8);
    }
  }
}

/* Eight positions: three rounds leave a component of all eight in each vector. */
DF_INLINE void keys_8(const uint16_t (*h)[16], uint16_t *page) {
  for (int half = 0; half < 16; half += 8) {
    h8 a[8], b[8];
    for (int r = 0; r < 8; r++) a[r] = h8_load(h[r] + half);
    for (int round = 0; round < 3; round++) {
      for (int r = 0; r < 4; r++) {
        b[2 * r] = h8_zip_low(a[r], a[r + 4]);
        b[2 * r + 1] = h8_zip_high(a[r], a[r + 4]);
      }
      memcpy(a, b, sizeof a);
    }
    for (int r = 0; r < 8; r++) memcpy(page + (half + r) * DF_KV_PAGE, &a[r], sizeof a[r]);
  }
}

static void store_halves(const float *k, size_t k_ld, const float *v, size_t v_ld, uint32_t n, uint32_t e, uint16_t *kp,
                         uint16_t *vp) {
  for (uint32_t i = 0; i < e; i += 16) {
    uint16_t h[DF_KV_PAGE][16];
    uint32_t r = 0;
    for (uint32_t row = 0; row < n; row++) {
      v16_store_f16(h[row], v16_load(k + row * k_ld + i));
      v16_store_f16(vp + (size_t)row * e + i, v16_load(v + row * v_ld + i));
    }
    uint16_t *to = kp + (size_t)i * DF_KV_PAGE;
    for (; r + 8 <= n; r += 8) keys_8(h + r, to + r);
    for (; r + 4 <= n; r += 4) keys_4(h + r, to + r);
    for (; r + 2 <= n; r += 2) keys_2(h + r, to + r);
    if (r < n) keys_1(h[r], to + r);
  }
}

static void kv_store(df_kv_type type, const float *k, size_t k_ld, const float *v, size_t v_ld, uint32_t n, uint32_t e,
                     void *k_page, void *v_page, uint32_t pos) {
  if (type == DF_KV_F16) {
    store_halves(k, k_ld, v, v_ld, n, e, (uint16_t *)k_page + pos, (uint16_t *)v_page + (size_t)pos * e);
    return;
  }
  for (uint32_t r = 0; r < n; r++, pos++) {
    float *kp = (float *)k_page + pos, *vp = (float *)v_page + (size_t)pos * e;
    for (uint32_t i = 0; i < e; i++) kp[(size_t)i * DF_KV_PAGE] = k[r * k_ld + i];
    for (uint32_t i = 0; i < e; i += 16) v16_store(vp + i, v16_load(v + r * v_ld + i));
  }
}

DF_INLINE void vec_table(df_kernels *t) {
  t->quantize = quantize;
  t->rmsnorm = rmsnorm;
  t->silu_mul = silu_mul;
  t->rope = rope;
  t->add = add;
  t->argmax = argmax;
  t->exp_sum = exp_sum;
  t->kv_store = kv_store;
  t->rmsnorm_quantize = rmsnorm_quantize;
  t->silu_mul_quantize = silu_mul_quantize;
}

#endif
