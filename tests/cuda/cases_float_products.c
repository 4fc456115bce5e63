/*
 * cases_float_products.c - BF16, F16 and E4M3 products: near the exact sum, and a row's bits the same however many rows
 * share the pass, whichever kernel runs it, with and without the norm inside.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "cuda/cuda_rig.h"
#include "device/cuda/cuda_tune.h"
#include "device/fragment.h"

enum { ROWS = 33 };

typedef struct product {
  df_dtype type;
  uint32_t n, k, parts;
  float *x, *y, *bias;
  size_t ld;
  uint32_t *n_rows;
  df_op_linear op;
} product;

static product product_make(rig *r, df_dtype type, uint32_t n, uint32_t k, uint32_t parts, bool add, bool bias) {
  product p = {.type = type, .n = n, .k = k, .parts = parts, .ld = (size_t)parts * df_strips(n) * 16};
  p.x = rig_floats(r, (size_t)ROWS * k, "x");
  p.y = rig_floats(r, ROWS * p.ld, "y");
  p.bias = rig_floats(r, n, "bias");
  p.n_rows = rig_new(r, 64, RIG_RAW, "n_rows");
  rig_fill(r, p.x, (size_t)ROWS * k, 0);
  rig_fill(r, p.y, ROWS * p.ld, 0);
  rig_fill(r, p.bias, n, 0);
  p.op = (df_op_linear){.x = {.f = p.x, .k = k}, .n_rows = p.n_rows, .add = add, .n_parts = parts};
  for (uint32_t i = 0; i < parts; i++)
    p.op.part[i] = (df_linear_part){rig_weights(r, type, n, k), bias && i == 0 ? p.bias : NULL,
                                    p.y + (size_t)i * df_strips(n) * 16, p.ld};
  return p;
}

/* Runs live rows from x + row0 in a program of max_rows; returns the outputs [live][ld]. */
static float *product_run(rig *r, product *p, uint32_t row0, uint32_t live, uint32_t max_rows) {
  float *out = df_alloc(live * p->ld * sizeof *out);
  *p->n_rows = live;
  rig_upload(r);
  df_op_linear d = rig_linear(r, &p->op);
  d.x.f += (size_t)row0 * p->k;
  for (uint32_t i = 0; i < p->parts; i++) d.part[i].y += row0 * p->ld;
  r->env.max_rows = max_rows;
  r->env.max_seqs = 1;
  rig_ok(r, df_cuda_linear(&r->env, &d), "linear");
  rig_sync(r, "linear");
  rig_fetch(r, p->y + row0 * p->ld, live * p->ld * sizeof *out, out);
  return out;
}

static float rounded(df_dtype type, float v) {
  if (type == DF_F16) return df_f16_to_f32(df_f32_to_f16(v));
  uint32_t u;
  memcpy(&u, &v, 4);
  u = (u + 0x7FFF + (u >> 16 & 1)) & 0xFFFF0000u;
  memcpy(&v, &u, 4);
  return v;
}

/* Largest error in units of the bound: f32 roundings of the chain of a part, of the pairs and their sum, of the end. */
static double product_error(const product *p, const float *got) {
  const uint32_t tiles = df_frag_tiles(p->k);
  const double unit = ((double)tiles / DF_FRAG_PARTS + DF_FRAG_PARTS / 2 + 3) * 0x1p-23;
  double worst = 0;
  float *w = df_alloc(p->k * sizeof *w);
  for (uint32_t i = 0; i < p->parts; i++)
    for (uint32_t o = 0; o < p->n; o++) {
      df_kernels_get(DF_TIER_REF)->unpack_row(p->op.part[i].w, o, w);
      for (uint32_t row = 0; row < ROWS; row += 8) {
        double sum = 0, size = 0;
        for (uint32_t c = 0; c < p->k; c++) {
          const double v = (double)w[c] * (double)rounded(p->type, p->x[(size_t)row * p->k + c]);
          sum += v;
          size += fabs(v);
        }
        const size_t at = row * p->ld + i * df_strips(p->n) * 16u + o;
        if (p->op.part[i].bias) sum += (double)p->bias[o];
        if (p->op.add) sum += (double)p->y[at];
        size += fabs(sum);
        const double e = fabs((double)got[at] - sum) / (unit * size + 1e-30);
        if (!(e <= worst)) worst = isnan(e) ? 1e9 : e;
      }
    }
  df_free(w);
  return worst;
}

static bool rows_equal(const product *p, const float *a, const float *b, uint32_t rows) {
  for (uint32_t row = 0; row < rows; row++)
    for (uint32_t i = 0; i < p->parts; i++)
      if (memcmp(a + row * p->ld + i * df_strips(p->n) * 16u, b + row * p->ld + i * df_strips(p->n) * 16u, p->n * 4))
        return false;
  return true;
}

static void product_case(rig *r, df_dtype type, uint32_t n, uint32_t k, uint32_t parts, bool add, bool bias) {
  product p = product_make(r, type, n, k, parts, add, bias);
  float *all = product_run(r, &p, 0, ROWS, ROWS); /* the kernel of many rows */
  const double e = product_error(&p, all);
  rig_case(r, e <= 1, "%s product %ux%u: error %g of the bound", df_dtype_name(type), n, k, e);
  static const uint32_t counts[][2] = {{1, 1}, {1, 16},  {2, 2},   {3, 16},  {5, 5},   {7, 8},  {8, 8},
                                       {9, 9}, {13, 13}, {16, 16}, {16, 33}, {17, 17}, {24, 40}};
  for (uint32_t i = 0; i < sizeof counts / sizeof *counts; i++)
    for (uint32_t row0 = 0; row0 < 2; row0++) {
      if (r->quick && row0) continue;
      const uint32_t at = row0 * (ROWS - counts[i][0]);
      float *some = product_run(r, &p, at, counts[i][0], counts[i][1]);
      rig_case(r, rows_equal(&p, some, all + at * p.ld, counts[i][0]),
               "%s product %ux%u: %u rows of %u from %u differ from those of 33", df_dtype_name(type), n, k,
               counts[i][0], counts[i][1], at);
      df_free(some);
    }
  for (uint32_t c = 1; c <= 4; c *= 2) { /* blocks that share a strip */
    df_cuda_tune.cluster = c;
    float *some = product_run(r, &p, 3, 12, 16);
    rig_case(r, rows_equal(&p, some, all + 3 * p.ld, 12), "%s product %ux%u: clusters of %u differ",
             df_dtype_name(type), n, k, c);
    df_free(some);
  }
  df_cuda_tune.cluster = 0;
  df_free(all);
  rig_clear(r);
}

/* ---- norm and SwiGLU inside ---- */

typedef struct layer {
  df_op_norm norm;
  df_op_linear linear;
  df_op_ffn_up ffn;
  uint32_t *n_rows;
  float *x, *normed, *y, *h;
  uint32_t n, k;
} layer;

static layer layer_make(rig *r, df_dtype type, uint32_t n, uint32_t k, bool map) {
  layer a = {.n = n, .k = k};
  a.n_rows = rig_new(r, 64, RIG_RAW, "n_rows");
  a.x = rig_floats(r, (size_t)ROWS * k, "x");
  a.normed = rig_floats(r, (size_t)ROWS * k, "normed");
  a.y = rig_floats(r, (size_t)ROWS * n, "y");
  a.h = rig_floats(r, (size_t)ROWS * n, "h");
  float *w = rig_floats(r, k, "w");
  rig_fill(r, a.x, (size_t)ROWS * k, 0);
  rig_fill(r, w, k, 0);
  uint32_t *row_map = map ? rig_new(r, ROWS * 4, RIG_RAW, "row_map") : NULL;
  for (uint32_t i = 0; map && i < ROWS; i++) row_map[i] = (i * 5 + 3) % ROWS;
  const df_act act = {.f = a.normed, .k = k};
  a.norm = (df_op_norm){a.x, w, a.n_rows, row_map, act, 1e-6f};
  a.linear = (df_op_linear){.x = act, .n_rows = a.n_rows, .n_parts = 1};
  a.linear.part[0] = (df_linear_part){rig_weights(r, type, n, k), NULL, a.y, n};
  a.ffn = (df_op_ffn_up){.x = act,
                         .n_rows = a.n_rows,
                         .gate = rig_weights(r, type, n, k),
                         .up = rig_weights(r, type, n, k),
                         .out = {.f = a.h, .k = n}};
  return a;
}

/* [norm, linear], [norm, ffn_up] through df_cuda_launch, or op by op; results of live rows to out. */
static void layer_run(rig *r, layer *a, uint32_t live, uint32_t max_rows, bool single, float *out) {
  rig_list l = {.n = 0};
  *a->n_rows = live;
  rig_add(&l, DF_OP_NORM, &a->norm);
  rig_add(&l, DF_OP_LINEAR, &a->linear);
  rig_add(&l, DF_OP_NORM, &a->norm);
  rig_add(&l, DF_OP_FFN_UP, &a->ffn);
  rig_run_device(r, &l, max_rows, 1, single);
  rig_fetch(r, a->normed, (size_t)live * a->k * 4, out);
  rig_fetch(r, a->y, (size_t)live * a->n * 4, out + (size_t)ROWS * a->k);
  rig_fetch(r, a->h, (size_t)live * a->n * 4, out + (size_t)ROWS * (a->k + a->n));
}

static bool layer_equal(const layer *a, const float *u, const float *v, uint32_t rows) {
  const size_t y = (size_t)ROWS * a->k, h = y + (size_t)ROWS * a->n;
  return memcmp(u, v, (size_t)rows * a->k * 4) == 0 && memcmp(u + y, v + y, (size_t)rows * a->n * 4) == 0 &&
         memcmp(u + h, v + h, (size_t)rows * a->n * 4) == 0;
}

static void layer_case(rig *r, df_dtype type, uint32_t n, uint32_t k, bool map) {
  layer a = layer_make(r, type, n, k, map);
  const size_t floats = (size_t)ROWS * (k + 2 * (size_t)n);
  float *all = df_calloc(floats, sizeof *all), *some = df_calloc(floats, sizeof *some);
  layer_run(r, &a, ROWS, ROWS, true, all);
  /* the gate's and the up's own products, then SwiGLU on the host */
  const uint32_t before = df_cuda_tune.norm_floats;
  for (uint32_t pass = 0; pass < 2; pass++) {
    static const uint32_t counts[][2] = {{1, 1}, {2, 4}, {8, 8}, {11, 16}, {16, 16}, {33, 33}};
    df_cuda_tune.norm_floats = pass ? 1u << 30 : 0;
    for (uint32_t i = 0; i < sizeof counts / sizeof *counts; i++) {
      memset(some, 0, floats * sizeof *some);
      layer_run(r, &a, counts[i][0], counts[i][1], false, some);
      rig_case(r, layer_equal(&a, some, all, counts[i][0]), "%s norm and product %ux%u: %u rows of %u, norm inside %u",
               df_dtype_name(type), n, k, counts[i][0], counts[i][1], pass);
    }
  }
  df_cuda_tune.norm_floats = before;
  /* the norm itself has the bits of the reference, and SwiGLU those of the products */
  float *want = df_alloc((size_t)k * 4);
  df_kernels_get(DF_TIER_REF)
      ->rmsnorm(a.x + (a.norm.row_map ? a.norm.row_map[2] : 2) * (size_t)k, a.norm.w, k, 1e-6f, want);
  rig_case(r, memcmp(want, all + 2 * (size_t)k, (size_t)k * 4) == 0, "norm inside a product, k %u", k);
  df_free(want);
  df_op_linear gu = a.linear;
  float *g = df_alloc((size_t)n * 4), *u = df_alloc((size_t)n * 4), *h = df_alloc((size_t)n * 4);
  for (uint32_t i = 0; i < 2; i++) {
    gu.part[0].w = i ? a.ffn.up : a.ffn.gate;
    rig_list l = {.n = 0};
    *a.n_rows = 1;
    rig_add(&l, DF_OP_NORM, &a.norm);
    rig_add(&l, DF_OP_LINEAR, &gu);
    rig_run_device(r, &l, 1, 1, true);
    rig_fetch(r, a.y, (size_t)n * 4, i ? u : g);
  }
  df_kernels_get(DF_TIER_REF)->silu_mul(g, u, n, h);
  rig_case(r, memcmp(h, all + (size_t)ROWS * (k + n), (size_t)n * 4) == 0, "%s SwiGLU of %ux%u", df_dtype_name(type), n,
           k);
  df_free(g);
  df_free(u);
  df_free(h);
  df_free(all);
  df_free(some);
  rig_clear(r);
}

void test_float_products(rig *r) {
  product_case(r, DF_F8, 16, 64, 1, false, false);
  product_case(r, DF_F8, 37, 576, 2, true, true);
  product_case(r, DF_F8, 65, 1984, 3, false, true);
  if (!r->quick) product_case(r, DF_F8, 3000, 4096, 1, true, false);
  for (uint32_t f16 = 0; f16 < 2; f16++) {
    const df_dtype t = f16 ? DF_F16 : DF_BF16;
    product_case(r, t, 16, 16, 1, false, false);
    product_case(r, t, 37, 51, 2, true, true);
    product_case(r, t, 100, 576, 3, false, true);
    product_case(r, t, 65, 1100, 1, true, false);
    layer_case(r, t, 96, 576, false);
    layer_case(r, t, 40, 70, true);
    if (r->quick) continue;
    product_case(r, t, 3000, 2048, 1, true, false);
    product_case(r, t, 200, 12288, 2, false, false);
    product_case(r, t, 64, 28672, 1, true, true);
    layer_case(r, t, 2400, 4096, false);
  }
}
