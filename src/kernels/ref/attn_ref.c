/*
 * kernels/ref/attn_ref.c - chunk attention in plain scalar C: the definition that the vector tiers must match.
 * One query at a time, one position at a time, exactly the order of kernels.h.
 */
#include <math.h>

#include "kernels/tables.h"

/* a > b ? a : b, with b when either is NaN: what the vector instruction does. */
static float max2(float a, float b) { return a > b ? a : b; }

static float k_at(const df_attn_chunk *c, df_kv_type type, uint32_t p, uint32_t i) {
  const void *page = c->k_pages[p / DF_KV_PAGE];
  size_t at = (size_t)i * DF_KV_PAGE + p % DF_KV_PAGE;
  return type == DF_KV_F32 ? ((const float *)page)[at] : df_f16_to_f32(((const uint16_t *)page)[at]);
}

static float v_at(const df_attn_chunk *c, df_kv_type type, uint32_t p, uint32_t j) {
  const void *page = c->v_pages[p / DF_KV_PAGE];
  size_t at = (size_t)(p % DF_KV_PAGE) * c->e + j;
  return type == DF_KV_F32 ? ((const float *)page)[at] : df_f16_to_f32(((const uint16_t *)page)[at]);
}

/* Maximum of the 64 scores: lane maxima over the pages in order, then a tree as tree16. NaN never enters. */
static float chunk_max(const float s[DF_KV_CHUNK]) {
  float m[DF_LANES];
  for (int i = 0; i < DF_LANES; i++) m[i] = -INFINITY;
  for (int p = 0; p < DF_KV_CHUNK; p++) m[p % DF_LANES] = max2(s[p], m[p % DF_LANES]);
  for (int w = DF_LANES / 2; w > 0; w /= 2) {
    for (int i = 0; i < w; i++) m[i] = max2(m[i], m[i + w]);
  }
  return m[0];
}

static float chunk_sum(const float p[DF_KV_CHUNK]) {
  float v[DF_LANES];
  for (int i = 0; i < DF_LANES; i++) v[i] = (p[i] + p[i + 16]) + (p[i + 32] + p[i + 48]);
  for (int w = DF_LANES / 2; w > 0; w /= 2) {
    for (int i = 0; i < w; i++) v[i] += v[i + w];
  }
  return v[0];
}

static void attend(const df_attn_chunk *c, df_kv_type type, uint32_t iq) {
  const float *q = c->q[iq];
  uint64_t vis = c->visible[iq];
  float *part = c->part[iq];
  float s[DF_KV_CHUNK], p[DF_KV_CHUNK];
  for (uint32_t pos = 0; pos < DF_KV_CHUNK; pos++) {
    float acc = 0.0f;
    s[pos] = -INFINITY;
    if (!(vis >> pos & 1)) continue;
    for (uint32_t i = 0; i < c->e; i++) acc = fmaf(k_at(c, type, pos, i), q[i], acc);
    s[pos] = acc * c->scale;
  }
  float m = chunk_max(s);
  for (uint32_t pos = 0; pos < DF_KV_CHUNK; pos++) p[pos] = vis >> pos & 1 ? df_exp(s[pos] - m) : 0.0f;
  part[0] = m;
  part[1] = chunk_sum(p);
  for (uint32_t j = 0; j < c->e; j++) {
    float acc = 0.0f;
    for (uint32_t pos = 0; pos < DF_KV_CHUNK; pos++) {
      if (vis >> pos & 1) acc = fmaf(v_at(c, type, pos, j), p[pos], acc);
    }
    part[16 + j] = acc;
  }
}

static void attn_chunk_f16(const df_attn_chunk *c) {
  for (uint32_t i = 0; i < c->n_q; i++) attend(c, DF_KV_F16, i);
}

static void attn_chunk_f32(const df_attn_chunk *c) {
  for (uint32_t i = 0; i < c->n_q; i++) attend(c, DF_KV_F32, i);
}

static void merge_one(float *into, const float *part, uint32_t e) {
  float ma = into[0], mb = part[0], m = max2(ma, mb);
  float fa = ma == -INFINITY ? 0.0f : df_exp(ma - m);
  float fb = mb == -INFINITY ? 0.0f : df_exp(mb - m);
  into[0] = m;
  into[1] = fmaf(into[1], fa, part[1] * fb);
  for (uint32_t j = 0; j < e; j++) into[16 + j] = fmaf(into[16 + j], fa, part[16 + j] * fb);
}

static void attn_merge(float *into, const float *part, size_t stride, uint32_t n, uint32_t e) {
  for (uint32_t i = 0; i < n; i++) merge_one(into + i * stride, part + i * stride, e);
}

static void attn_fold(float *parts, size_t stride, uint32_t n, uint32_t e) {
  for (uint32_t i = 1; i < n; i++) merge_one(parts, parts + i * stride, e);
}

static void attn_finish(const float *part, uint32_t e, float *out) {
  float sum = part[1];
  for (uint32_t j = 0; j < e; j++) out[j] = sum == 0.0f ? 0.0f : part[16 + j] / sum;
}

void df_kernels_attn_init__ref(df_kernels *k) {
  k->attn_chunk[DF_KV_F16] = attn_chunk_f16;
  k->attn_chunk[DF_KV_F32] = attn_chunk_f32;
  k->attn_merge = attn_merge;
  k->attn_fold = attn_fold;
  k->attn_finish = attn_finish;
}
