#include "kernels/encode.h"

#include <assert.h>
#include <math.h>
#include <string.h>
#include <strings.h>

#include "kernels/blocks.h"

enum { BLOCK = 32 };

/* One way of writing a block: x ~ scale * q + base with 0 <= q <= top. */
typedef struct code {
  float scale, base;
  uint8_t q[BLOCK];
  double error;
} code;

static float as_f16(float f) { return df_f16_to_f32(df_f32_to_f16(f)); }

static void assign(const float *x, uint32_t top, code *c) {
  const float inverse = c->scale != 0 ? 1 / c->scale : 0;
  c->error = 0;
  for (uint32_t i = 0; i < BLOCK; i++) {
    const float v = roundf((x[i] - c->base) * inverse);
    c->q[i] = (uint8_t)(v < 0 ? 0 : v > (float)top ? (float)top : v);
    const double d = (double)x[i] - (c->scale * (float)c->q[i] + c->base);
    c->error += d * d;
  }
}

/* Scale and base of least squared error for the codes there are. */
static void fit_affine(const float *x, code *c) {
  double sx = 0, sq = 0, sqq = 0, sxq = 0;
  for (uint32_t i = 0; i < BLOCK; i++) {
    sx += x[i];
    sq += c->q[i];
    sqq += (double)c->q[i] * c->q[i];
    sxq += (double)c->q[i] * x[i];
  }
  const double det = BLOCK * sqq - sq * sq;
  if (det <= 0) return;
  const double scale = (BLOCK * sxq - sx * sq) / det;
  c->scale = as_f16((float)scale);
  c->base = as_f16((float)((sx - scale * sq) / BLOCK));
}

/* The same with base = -middle * scale. */
static void fit_symmetric(const float *x, float middle, code *c) {
  double sqq = 0, sxq = 0;
  for (uint32_t i = 0; i < BLOCK; i++) {
    const double q = (double)c->q[i] - middle;
    sqq += q * q;
    sxq += q * x[i];
  }
  if (sqq <= 0) return;
  c->scale = as_f16((float)(sxq / sqq));
  c->base = -middle * c->scale;
}

static void keep_better(const code *c, code *best) {
  if (c->error < best->error) *best = *c;
}

/* From ranges a little narrower and wider than the block's own, each refined twice; quick: from its own alone. */
static code search_affine(const float *x, bool quick) {
  float lo = x[0], hi = x[0];
  for (uint32_t i = 1; i < BLOCK; i++) lo = fminf(lo, x[i]), hi = fmaxf(hi, x[i]);
  code best = {.scale = as_f16((hi - lo) / 15), .base = as_f16(lo)};
  assign(x, 15, &best);
  for (int k = quick ? 0 : -12; k <= (quick ? 0 : 8) && hi > lo; k++) {
    const float wider = (hi - lo) * (float)k * 0.02f;
    code c = {.scale = as_f16((hi - lo + wider) / 15), .base = as_f16(lo - wider / 2)};
    assign(x, 15, &c);
    keep_better(&c, &best);
    for (int pass = 0; pass < 2; pass++) {
      fit_affine(x, &c);
      assign(x, 15, &c);
      keep_better(&c, &best);
    }
  }
  return best;
}

/* Codes 0..15 stand for -8..7, so the value farthest from zero decides the scale's sign. */
static code search_symmetric(const float *x, bool quick) {
  float far = 0;
  for (uint32_t i = 0; i < BLOCK; i++)
    if (fabsf(x[i]) > fabsf(far)) far = x[i];
  code best = {.scale = as_f16(far / -8)};
  best.base = -8 * best.scale;
  assign(x, 15, &best);
  for (int k = quick ? 0 : -12; k <= (quick ? 0 : 12) && far != 0; k++) {
    code c = {.scale = as_f16(far / (-8 + 0.125f * (float)k))};
    c.base = -8 * c.scale;
    assign(x, 15, &c);
    keep_better(&c, &best);
    for (int pass = 0; pass < 2; pass++) {
      fit_symmetric(x, 8, &c);
      assign(x, 15, &c);
      keep_better(&c, &best);
    }
  }
  return best;
}

static void put_half(uint8_t *p, float f) {
  const uint16_t h = df_f32_to_f16(f);
  memcpy(p, &h, sizeof h);
}

static void put_nibbles(uint8_t *p, const uint8_t *q) {
  for (uint32_t i = 0; i < BLOCK / 2; i++) p[i] = (uint8_t)(q[i] | q[i + BLOCK / 2] << 4);
}

static void encode_q8_0(const float *x, uint8_t *p) {
  float far = 0;
  for (uint32_t i = 0; i < BLOCK; i++) far = fmaxf(far, fabsf(x[i]));
  const float scale = as_f16(far / 127), inverse = scale != 0 ? 1 / scale : 0;
  put_half(p, scale);
  for (uint32_t i = 0; i < BLOCK; i++) {
    const float v = fmaxf(-127, fminf(127, roundf(x[i] * inverse)));
    p[2 + i] = (uint8_t)(int8_t)v;
  }
}

bool df_can_encode(int dtype) { return dtype == DF_F32 || dtype == DF_Q4_0 || dtype == DF_Q4_1 || dtype == DF_Q8_0; }

int df_encode_type_named(const char *name, size_t n) {
  static const int k_types[] = {DF_F32, DF_Q4_0, DF_Q4_1, DF_Q8_0};
  for (size_t i = 0; i < sizeof k_types / sizeof k_types[0]; i++) {
    const char *s = df_dtype_name(k_types[i]);
    if (strlen(s) == n && strncasecmp(s, name, n) == 0) return k_types[i];
  }
  return -1;
}

static void encode(df_dtype type, const float *x, size_t n, bool quick, void *dst) {
  uint8_t *p = dst;
  assert(df_can_encode(type) && (type == DF_F32 || n % BLOCK == 0));
  if (type == DF_F32) {
    memcpy(dst, x, n * sizeof *x);
    return;
  }
  for (size_t b = 0; b < n / BLOCK; b++, x += BLOCK) {
    if (type == DF_Q8_0) {
      encode_q8_0(x, p);
      p += DF_Q8_0_BYTES;
    } else if (type == DF_Q4_1) {
      const code c = search_affine(x, quick);
      put_half(p, c.scale), put_half(p + 2, c.base), put_nibbles(p + 4, c.q);
      p += DF_Q4_1_BYTES;
    } else {
      const code c = search_symmetric(x, quick);
      put_half(p, c.scale), put_nibbles(p + 2, c.q);
      p += DF_Q4_0_BYTES;
    }
  }
}

void df_encode(df_dtype type, const float *x, size_t n, void *dst) { encode(type, x, n, false, dst); }

void df_encode_quick(df_dtype type, const float *x, size_t n, void *dst) { encode(type, x, n, true, dst); }
