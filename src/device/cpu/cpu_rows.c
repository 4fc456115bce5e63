/* Row-wise ops: embedding, norm, quantisation, rotation and K/V write, taps, argmax, acceptance. */
#include <string.h>

#include "base/size.h"
#include "device/cpu/cpu_ops.h"

typedef struct row_range {
  uint32_t r0, r1;
} row_range;

static row_range rows_of(uint32_t chunk, uint32_t n) {
  row_range r = {chunk * DF_ROWS_PER_CHUNK, (chunk + 1) * DF_ROWS_PER_CHUNK};
  if (r.r1 > n) r.r1 = n;
  return r;
}

static uint32_t token_of(const df_op_embed *a, uint32_t r) {
  const df_drafts *d = &a->drafts;
  if (!d->best.value || r % d->width == 0 || r >= *d->n_live * d->width) return (uint32_t)a->ids[r];
  return (uint32_t)df_best_of(&d->best, (size_t)(r / d->width) * (d->width - 1) + r % d->width - 1);
}

void df_run_embed(const df_cpu_ctx *ctx, const void *args, uint32_t chunk, uint32_t worker) {
  (void)worker;
  const df_op_embed *a = args;
  const row_range rr = rows_of(chunk, *a->n_rows);
  for (uint32_t r = rr.r0; r < rr.r1; r++) {
    float *out = a->out + (size_t)r * a->table->k;
    ctx->k->unpack_row(a->table, token_of(a, r), out);
    if (a->scale != 1.0f)
      for (uint32_t i = 0; i < a->table->k; i++) out[i] *= a->scale;
  }
}

void df_run_norm(const df_cpu_ctx *ctx, const void *args, uint32_t chunk, uint32_t worker) {
  const df_op_norm *a = args;
  const uint32_t n = *a->n_rows, k = a->out.k;
  const row_range rr = rows_of(chunk, n);
  for (uint32_t r = rr.r0; r < rr.r1; r++) {
    const float *x = a->x + (size_t)(a->row_map ? a->row_map[r] : r) * k;
    float *f = a->out.f ? a->out.f + (size_t)r * k : NULL;
    if (!a->out.q) {
      ctx->k->rmsnorm(x, a->w, k, a->eps, f);
      continue;
    }
    size_t stride;
    df_actq *q = df_act_row(&a->out, r, n, &stride);
    ctx->k->rmsnorm_quantize(x, a->w, k, a->eps, f ? f : ctx->scratch[worker].parts, q, stride);
  }
}

void df_run_quantize(const df_cpu_ctx *ctx, const void *args, uint32_t chunk, uint32_t worker) {
  (void)worker;
  const df_op_quantize *a = args;
  const uint32_t n = *a->n_rows;
  const row_range rr = rows_of(chunk, n);
  for (uint32_t r = rr.r0; r < rr.r1; r++) {
    size_t stride;
    df_actq *q = df_act_row(&a->out, r, n, &stride);
    ctx->k->quantize(a->x + (size_t)(a->row_map ? a->row_map[r] : r) * a->out.k, a->out.k, q, stride);
  }
}

/* A token's K and V together: both vectors plain, the same rounding as in blocks. */
static void store_token(const df_op_rope_kv *a, const float *k, const float *v, uint32_t slot, uint32_t g) {
  const size_t at = ((size_t)slot * a->n_kv + g) * a->head_dim;
  if (a->kv.type == DF_KV_F32) {
    memcpy(a->kv.k + at * 4, k, a->head_dim * 4);
    memcpy(a->kv.v + at * 4, v, a->head_dim * 4);
    return;
  }
  for (uint32_t i = 0; i < a->head_dim; i++) {
    const uint16_t hk = df_f32_to_f16(k[i]), hv = df_f32_to_f16(v[i]);
    memcpy(a->kv.k + (at + i) * 2, &hk, 2);
    memcpy(a->kv.v + (at + i) * 2, &hv, 2);
  }
}

static void rope_queries(const df_kernels *k, const df_op_rope_kv *a, row_range rr) {
  const uint32_t e = a->head_dim, half = e / 2;
  for (uint32_t r = rr.r0; a->q && r < rr.r1; r++) {
    const float *c = a->cos + (size_t)a->pos[r] * half, *s = a->sin + (size_t)a->pos[r] * half;
    for (uint32_t h = 0; h < a->n_heads; h++) {
      float *q = a->q + r * a->q_ld + (size_t)h * e;
      if (a->q_norm) k->rmsnorm(q, a->q_norm, e, a->eps, q);
      k->rope(q, c, s, half);
    }
  }
}

/* Rows from r on whose slots follow each other within a page. */
static uint32_t run_of_slots(const df_op_rope_kv *a, uint32_t r, uint32_t r1) {
  uint32_t n = 1;
  while (r + n < r1 && a->slot[r + n] == a->slot[r] + n && a->slot[r + n] % DF_KV_PAGE != 0) n++;
  return n;
}

/* K and V of one head. The sink page takes the rows that pad a batch. Nobody needs their K and V, and many rows share
 * its few slots, so on the CPU the write is left out instead of racing. */
static void store_head(const df_kernels *k, const df_op_rope_kv *a, row_range rr, uint32_t g) {
  const uint32_t e = a->head_dim, half = e / 2;
  for (uint32_t r = rr.r0; r < rr.r1; r++) {
    float *x = a->k + r * a->k_ld + (size_t)g * e;
    if (a->k_norm) k->rmsnorm(x, a->k_norm, e, a->eps, x);
    k->rope(x, a->cos + (size_t)a->pos[r] * half, a->sin + (size_t)a->pos[r] * half, half);
  }
  for (uint32_t r = rr.r0, n; r < rr.r1; r += n) {
    const float *x = a->k + r * a->k_ld + (size_t)g * e, *v = a->v + r * a->v_ld + (size_t)g * e;
    const uint32_t page = a->slot[r] / DF_KV_PAGE;
    n = a->kv.token_major ? 1 : run_of_slots(a, r, rr.r1);
    if (a->slot[r] < a->kv.block_slots) continue;
    if (a->kv.token_major) {
      store_token(a, x, v, a->slot[r], g);
      continue;
    }
    const size_t off = g * a->kv.head_stride + page * a->kv.head_bytes;
    k->kv_store(a->kv.type, x, a->k_ld, v, a->v_ld, n, e, a->kv.k + off, a->kv.v + off, a->slot[r] % DF_KV_PAGE);
  }
}

/* Chunks of keys are heads, not rows: rows of one page that were written by several workers would send its lines back
 * and forth between them. A page's worth of rows has a chunk for each head, then those of its queries. */
void df_run_rope_kv(const df_cpu_ctx *ctx, const void *args, uint32_t chunk, uint32_t worker) {
  (void)worker;
  const df_op_rope_kv *a = args;
  const uint32_t n = *a->n_rows;
  if (!a->by_head) { /* few rows: one chunk */
    const row_range all = {0, n};
    rope_queries(ctx->k, a, all);
    for (uint32_t g = 0; g < a->n_kv; g++) store_head(ctx->k, a, all, g);
    return;
  }
  const uint32_t each = df_rope_kv_chunks(a), g = chunk % each;
  row_range rr = {chunk / each * DF_KV_PAGE, (chunk / each + 1) * DF_KV_PAGE};
  if (g >= a->n_kv) {
    rr.r0 += (g - a->n_kv) * DF_ROWS_PER_CHUNK;
    rr.r1 = rr.r0 + DF_ROWS_PER_CHUNK;
  }
  rr.r1 = DF_MIN(rr.r1, n);
  if (g >= a->n_kv)
    rope_queries(ctx->k, a, rr);
  else
    store_head(ctx->k, a, rr, g);
}

void df_run_tap(const df_cpu_ctx *ctx, const void *args, uint32_t chunk, uint32_t worker) {
  (void)ctx;
  (void)worker;
  const df_op_tap *a = args;
  const row_range rr = rows_of(chunk, *a->n_rows);
  for (uint32_t r = rr.r0; r < rr.r1; r++) {
    const uint32_t from = a->row_map ? a->row_map[r] : r, to = a->to_row ? a->to_row[r] : r;
    memcpy(a->dst + to * a->ld, a->x + (size_t)from * a->k, a->k * sizeof(float));
  }
}

void df_run_argmax(const df_cpu_ctx *ctx, const void *args, uint32_t chunk, uint32_t worker) {
  (void)worker;
  const df_op_argmax *a = args;
  const uint32_t r = chunk / a->segments, s = chunk % a->segments;
  if (r >= *a->n_rows) return;
  const uint32_t step = (a->n + a->segments - 1) / a->segments;
  const uint32_t i0 = s * step, i1 = DF_MIN(i0 + step, a->n);
  const size_t at = (size_t)r * a->segments + s;
  if (i0 >= i1) { /* an empty tail segment never wins */
    a->best[at] = -__builtin_inff();
    a->best_id[at] = a->n;
    return;
  }
  const float *x = a->x + r * a->ld + i0;
  const uint32_t b = ctx->k->argmax(x, i1 - i0);
  a->best[at] = x[b];
  a->best_id[at] = i0 + b;
}

void df_run_accept(const df_cpu_ctx *ctx, const void *args, uint32_t chunk, uint32_t worker) {
  (void)ctx;
  (void)worker;
  const df_op_accept *a = args;
  const df_drafts *d = &a->drafts;
  const uint32_t rows = df_accept_rows(a), r0 = chunk * rows, r1 = DF_MIN(r0 + rows, *a->n_rows);
  for (uint32_t r = r0; r < r1; r++) a->token[r] = df_best_of(&a->best, r);
  if (!d->best.value || chunk >= *d->n_live) return;
  const uint32_t n = rows - 1;
  int32_t *drafted = a->drafted + (size_t)chunk * n;
  for (uint32_t i = 0; i < n; i++) drafted[i] = df_best_of(&d->best, (size_t)chunk * n + i);
  uint32_t stand = 0;
  while (stand < n && drafted[stand] == a->token[r0 + stand]) stand++;
  a->accepted[chunk] = stand;
}
