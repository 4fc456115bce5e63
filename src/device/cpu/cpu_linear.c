/* Matrix products. The kernel decides the bits; here only strips and row tiles are walked. */
#include "base/size.h"
#include "device/cpu/cpu_ops.h"

/* Rows 16t.. of the activations as the kernel of this weight form wants them. */
static const void *tile_input(const df_act *x, const df_weights *w, uint32_t row0) {
  if (df_pack_wants_q8(w->pack)) return x->q + (size_t)row0 * (x->k / DF_QBLOCK);
  return x->f + (size_t)row0 * x->k;
}

/* Outputs that need more than a plain store: a bias, the residual stream, or a last strip with missing rows. */
static void store_tile(const df_linear_part *p, const float *t, size_t t_ld, uint32_t row0, uint32_t m, uint32_t o0,
                       uint32_t n_out, bool add) {
  const float *bias = p->bias ? p->bias + o0 : NULL;
  for (uint32_t c = 0; c < m; c++) {
    float *y = p->y + (size_t)(row0 + c) * p->ld + o0;
    const float *v = t + c * t_ld;
    if (add && bias)
      for (uint32_t i = 0; i < n_out; i++) y[i] += v[i] + bias[i];
    else if (add)
      for (uint32_t i = 0; i < n_out; i++) y[i] += v[i];
    else if (bias)
      for (uint32_t i = 0; i < n_out; i++) y[i] = v[i] + bias[i];
    else
      for (uint32_t i = 0; i < n_out; i++) y[i] = v[i];
  }
}

static void run_part(const df_cpu_ctx *ctx, const df_op_linear *a, const df_linear_part *p, uint32_t s0, uint32_t s1,
                     float *tile) {
  const df_weights *w = p->w;
  const uint32_t n_rows = *a->n_rows;
  const uint32_t whole = w->n / DF_LANES;            /* strips without missing outputs */
  const uint32_t max_strips = DF_FFN_MAX_BLOCKS * 4; /* what the scratch tile holds for 16 rows */
  for (uint32_t row0 = 0; row0 < n_rows; row0 += DF_TILE_ROWS) {
    const uint32_t m = DF_MIN(n_rows - row0, (uint32_t)DF_TILE_ROWS);
    const void *x = tile_input(&a->x, w, row0);
    if (!a->add && !p->bias && s1 <= whole) {
      ctx->k->mm[w->pack](w, s0, s1, x, m, p->y + (size_t)row0 * p->ld + (size_t)s0 * DF_LANES, p->ld);
      continue;
    }
    for (uint32_t s = s0; s < s1; s += max_strips) {
      const uint32_t e = DF_MIN(s + max_strips, s1);
      const size_t t_ld = (size_t)(e - s) * DF_LANES;
      ctx->k->mm[w->pack](w, s, e, x, m, tile, t_ld);
      const uint32_t o0 = s * DF_LANES, o1 = DF_MIN(e * DF_LANES, w->n);
      store_tile(p, tile, t_ld, row0, m, o0, o1 - o0, a->add);
    }
  }
}

void df_run_linear(const df_cpu_ctx *ctx, const void *args, uint32_t chunk, uint32_t worker) {
  const df_op_linear *a = args;
  const uint32_t c0 = chunk * a->strips_per_chunk, c1 = DF_MIN(c0 + a->strips_per_chunk, a->strips);
  uint32_t first = 0; /* strip at which the part begins in the concatenated list */
  for (uint32_t i = 0; i < a->n_parts && first < c1; i++) {
    const uint32_t n = df_strips(a->part[i].w->n);
    const uint32_t s0 = c0 > first ? c0 - first : 0, s1 = DF_MIN(c1 - first, n);
    if (s0 < s1) run_part(ctx, a, &a->part[i], s0, s1, ctx->scratch[worker].tile);
    first += n;
  }
}

void df_run_ffn_up(const df_cpu_ctx *ctx, const void *args, uint32_t chunk, uint32_t worker) {
  const df_op_ffn_up *a = args;
  const uint32_t blocks = a->gate->n / DF_QBLOCK, n_rows = *a->n_rows;
  const uint32_t b0 = chunk * a->blocks_per_chunk, b1 = DF_MIN(b0 + a->blocks_per_chunk, blocks);
  const uint32_t ld = (b1 - b0) * DF_QBLOCK;
  float *g = ctx->scratch[worker].tile, *u = g + (size_t)DF_TILE_ROWS * DF_FFN_MAX_BLOCKS * DF_QBLOCK;
  for (uint32_t row0 = 0; row0 < n_rows; row0 += DF_TILE_ROWS) {
    const uint32_t m = DF_MIN(n_rows - row0, (uint32_t)DF_TILE_ROWS);
    ctx->k->mm[a->gate->pack](a->gate, 2 * b0, 2 * b1, tile_input(&a->x, a->gate, row0), m, g, ld);
    ctx->k->mm[a->up->pack](a->up, 2 * b0, 2 * b1, tile_input(&a->x, a->up, row0), m, u, ld);
    for (uint32_t c = 0; c < m; c++) {
      if (a->out.f)
        ctx->k->silu_mul(g + (size_t)c * ld, u + (size_t)c * ld, ld,
                         a->out.f + (size_t)(row0 + c) * a->out.k + (size_t)b0 * DF_QBLOCK);
      if (a->out.q)
        ctx->k->silu_mul_quantize(g + (size_t)c * ld, u + (size_t)c * ld, ld,
                                  a->out.q + (size_t)row0 * blocks + (size_t)b0 * m + c, m);
    }
  }
}
