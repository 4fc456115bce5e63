/* Recurrent layers. One chunk owns one sequence and KV head, and takes its rows in order: the state behind row j is the
 * same whether the rows came one by one or as a block (numerics contract, rule 9). */
#include <math.h>
#include <string.h>

#include "device/cpu/cpu_ops.h"

/* S <- decay S + beta (v - decay S k) k^T, rows of S are value channels. */
static void delta_step(float *s, const float *k, const float *v, uint32_t e, float decay, float beta) {
  float norm = 0;
  for (uint32_t j = 0; j < e; j++) norm = fmaf(k[j], k[j], norm);
  const float inv = 1.0f / sqrtf(norm + 1e-6f);
  for (uint32_t i = 0; i < e; i++) {
    float *row = s + (size_t)i * e;
    float seen = 0;
    for (uint32_t j = 0; j < e; j++) {
      row[j] *= decay;
      seen = fmaf(row[j], k[j] * inv, seen);
    }
    const float d = beta * (v[i] - seen);
    for (uint32_t j = 0; j < e; j++) row[j] = fmaf(d, k[j] * inv, row[j]);
  }
}

static void read_out(const float *s, const float *q, uint32_t e, float scale, float *y) {
  for (uint32_t i = 0; i < e; i++) {
    float sum = 0;
    for (uint32_t j = 0; j < e; j++) sum = fmaf(s[(size_t)i * e + j], q[j], sum);
    y[i] = scale * sum;
  }
}

static void write_head(const df_cpu_ctx *ctx, const df_op_recurrent *a, uint32_t r, uint32_t h, const float *y) {
  const size_t at = (size_t)h * a->head_dim;
  if (a->out.f) memcpy(a->out.f + (size_t)r * a->out.k + at, y, a->head_dim * sizeof *y);
  if (a->out.q) {
    size_t stride;
    df_actq *q = df_act_row(&a->out, r, a->batch->n_rows, &stride);
    ctx->k->quantize(y, a->head_dim, q + at / DF_QBLOCK * stride, stride);
  }
}

void df_run_recurrent(const df_cpu_ctx *ctx, const void *args, uint32_t chunk, uint32_t worker) {
  (void)worker;
  const df_op_recurrent *a = args;
  const uint32_t b = chunk / a->n_kv, g = chunk % a->n_kv, e = a->head_dim, group = a->n_heads / a->n_kv;
  if (b >= a->batch->n_seqs) return;
  const size_t matrix = (size_t)e * e;
  float *state = a->committed + a->batch->state_slot[b] * a->slot_stride + g * matrix;
  float y[DF_ATTN_MAX_HEAD];
  const uint32_t r0 = a->batch->q_start[b], r1 = a->batch->q_start[b + 1];
  for (uint32_t r = r0; r < r1; r++) {
    float *s = state;
    if (a->behind) { /* the committed state stays until the pass is accepted */
      s = a->behind + (a->seq0 + b) * a->seq_stride + (r - r0) * a->row_stride + g * matrix;
      memcpy(s, r == r0 ? state : s - a->row_stride, matrix * sizeof *s);
    }
    if (a->batch->pos[r] == 0) memset(s, 0, matrix * sizeof *s);
    delta_step(s, a->k + r * a->kv_ld + (size_t)g * e, a->v + r * a->kv_ld + (size_t)g * e, e, a->decay[g], a->beta[g]);
    for (uint32_t h = g * group; h < (g + 1) * group; h++) {
      read_out(s, a->q + r * a->q_ld + (size_t)h * e, e, a->scale, y);
      write_head(ctx, a, r, h, y);
    }
  }
}
