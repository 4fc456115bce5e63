/*
 * kernels/ref/vec_ref.c - the vector operations in plain scalar C: the definition that the vector tiers must match
 * bit for bit. Speed does not matter here; the order of operations does (kernels.h).
 */
#include <math.h>
#include <string.h>

#include "base/bits.h"
#include "kernels/expf.h"
#include "kernels/tables.h"

float df_exp(float x) {
  float c = x > DF_EXP_MAX ? DF_EXP_MAX : x;
  float t = fmaf(c, DF_EXP_LOG2E, DF_EXP_MAGIC);
  float n = t - DF_EXP_MAGIC;
  float r = fmaf(n, -DF_EXP_LN2_LO, fmaf(n, -DF_EXP_LN2_HI, c));
  float q = DF_EXP_C6;
  q = fmaf(q, r, DF_EXP_C5);
  q = fmaf(q, r, DF_EXP_C4);
  q = fmaf(q, r, DF_EXP_C3);
  q = fmaf(q, r, DF_EXP_C2);
  float p = fmaf(q, r * r, r) + 1.0f;
  if (c < DF_EXP_MIN) return 0.0f;
  return df_float_of_bits(df_bits_of_float(p) + (df_bits_of_float(t) << 23));
}

static float tree16(float v[16]) {
  for (int i = 0; i < 8; i++) v[i] += v[i + 8];
  for (int i = 0; i < 4; i++) v[i] += v[i + 4];
  for (int i = 0; i < 2; i++) v[i] += v[i + 2];
  return v[0] + v[1];
}

/* Largest magnitude as an integer: the order of floats, with infinity and NaN on top. */
static uint32_t max_abs_bits(const float *x) {
  uint32_t m = 0;
  for (int i = 0; i < DF_QBLOCK; i++) {
    uint32_t a = df_bits_of_float(x[i]) & 0x7fffffffu;
    if (a > m) m = a;
  }
  return m;
}

static void quantize_block(const float *x, df_actq *b) {
  uint32_t m = max_abs_bits(x);
  memset(b, 0, sizeof *b);
  if (m >= 0x7f800000u) {
    b->scale = b->scale_sum = df_float_of_bits(DF_QUANT_NAN_BITS);
    return;
  }
  float amax = df_float_of_bits(m);
  if (amax < DF_QUANT_MIN) return;
  float inv = 127.0f / amax;
  int32_t sum[2] = {0, 0};
  for (int i = 0; i < DF_QBLOCK; i++) {
    float r = x[i] * inv + DF_EXP_MAGIC; /* |x * inv| <= 127 + 1 ulp: rounds to at most 127 */
    int32_t q = (int32_t)(r - DF_EXP_MAGIC);
    b->q[i] = (int8_t)q;
    sum[i / 16] += q;
  }
  int32_t all = sum[0] + sum[1];
  b->scale = amax / 127.0f;
  b->scale_sum = b->scale * (float)all;
  b->off4 = -8 * all;
  b->off8 = -128 * all;
  b->off6_lo = -32 * sum[0];
  b->off6_hi = -32 * sum[1];
}

static void quantize(const float *x, uint32_t k, df_actq *out, size_t stride) {
  for (uint32_t kb = 0; kb < k / DF_QBLOCK; kb++) quantize_block(x + (size_t)kb * DF_QBLOCK, &out[kb * stride]);
}

static float rms_factor(const float *x, uint32_t n, float eps) {
  float lane[16] = {0};
  for (uint32_t i = 0; i < n; i++) lane[i % 16] = fmaf(x[i], x[i], lane[i % 16]);
  float mean = tree16(lane) / (float)n;
  return 1.0f / sqrtf(mean + eps);
}

static void rmsnorm(const float *x, const float *w, uint32_t n, float eps, float *out) {
  float r = rms_factor(x, n, eps);
  for (uint32_t i = 0; i < n; i++) out[i] = (x[i] * r) * w[i];
}

static void rmsnorm_quantize(const float *x, const float *w, uint32_t n, float eps, float *tmp, df_actq *out,
                             size_t stride) {
  float r = rms_factor(x, n, eps);
  for (uint32_t kb = 0; kb < n / DF_QBLOCK; kb++) {
    float y[DF_QBLOCK];
    size_t at = (size_t)kb * DF_QBLOCK;
    for (int i = 0; i < DF_QBLOCK; i++) y[i] = (x[at + i] * r) * w[at + i];
    if (tmp) memcpy(tmp + at, y, sizeof y);
    quantize_block(y, &out[kb * stride]);
  }
}

static float silu_mul1(float g, float u) { return (g / (1.0f + df_exp(-g))) * u; }

static void silu_mul(const float *g, const float *u, uint32_t n, float *out) {
  for (uint32_t i = 0; i < n; i++) out[i] = silu_mul1(g[i], u[i]);
}

static void silu_mul_quantize(const float *g, const float *u, uint32_t n, df_actq *out, size_t stride) {
  for (uint32_t kb = 0; kb < n / DF_QBLOCK; kb++) {
    float y[DF_QBLOCK];
    silu_mul(g + (size_t)kb * DF_QBLOCK, u + (size_t)kb * DF_QBLOCK, DF_QBLOCK, y);
    quantize_block(y, &out[kb * stride]);
  }
}

static void rope(float *x, const float *cos, const float *sin, uint32_t h) {
  for (uint32_t i = 0; i < h; i++) {
    float a = x[i], b = x[i + h], c = cos[i], s = sin[i];
    x[i] = fmaf(a, c, -(b * s));
    x[i + h] = fmaf(b, c, a * s);
  }
}

static void add(float *y, const float *x, uint32_t n) {
  for (uint32_t i = 0; i < n; i++) y[i] += x[i];
}

static uint32_t argmax(const float *x, uint32_t n) {
  uint32_t best = 0;
  bool any = false;
  for (uint32_t i = 0; i < n; i++) {
    if (isnan(x[i]) || (any && !(x[i] > x[best]))) continue;
    best = i;
    any = true;
  }
  return best;
}

static float exp_sum(const float *x, uint32_t n, float max) {
  float lane[16] = {0};
  for (uint32_t i = 0; i < n; i++) lane[i % 16] += df_exp(x[i] - max);
  return tree16(lane);
}

static void kv_store(df_kv_type type, const float *k, size_t k_ld, const float *v, size_t v_ld, uint32_t n, uint32_t e,
                     void *k_page, void *v_page, uint32_t pos) {
  for (uint32_t r = 0; r < n; r++, k += k_ld, v += v_ld, pos++) {
    for (uint32_t i = 0; i < e; i++) {
      const size_t k_at = (size_t)i * DF_KV_PAGE + pos, v_at = (size_t)pos * e + i;
      if (type == DF_KV_F32) {
        ((float *)k_page)[k_at] = k[i];
        ((float *)v_page)[v_at] = v[i];
      } else {
        ((uint16_t *)k_page)[k_at] = df_f32_to_f16(k[i]);
        ((uint16_t *)v_page)[v_at] = df_f32_to_f16(v[i]);
      }
    }
  }
}

void df_kernels_vec_init__ref(df_kernels *k) {
  k->quantize = quantize;
  k->rmsnorm = rmsnorm;
  k->silu_mul = silu_mul;
  k->rope = rope;
  k->add = add;
  k->argmax = argmax;
  k->exp_sum = exp_sum;
  k->kv_store = kv_store;
  k->rmsnorm_quantize = rmsnorm_quantize;
  k->silu_mul_quantize = silu_mul_quantize;
  df_kernels_attn_init__ref(k);
}
