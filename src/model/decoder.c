#include "model/decoder.h"

#include <stdio.h>

#include "base/mem.h"

void df_rope_row_order(uint32_t *rows, uint32_t n, uint32_t head_dim) {
  const uint32_t half = head_dim / 2;
  for (uint32_t o = 0; o < n; o++) {
    const uint32_t head = o / head_dim, i = o % head_dim;
    rows[o] = head * head_dim + (i < half ? 2 * i : 2 * (i - half) + 1);
  }
}

/* Name of a tensor of layer i; the buffer belongs to the caller. */
static const char *name_of(char buf[64], uint32_t i, const char *part) {
  (void)snprintf(buf, 64, "blk.%u.%s", i, part);
  return buf;
}

static df_status load_attention(df_loader *l, const df_config *c, uint32_t i, const uint32_t *q_rows,
                                const uint32_t *k_rows, df_layer *out, df_error *err) {
  char b[64];
  const uint32_t q = c->n_heads * c->head_dim, kv = c->n_kv_heads * c->head_dim;
  DF_TRY(df_loader_vector(l, name_of(b, i, "attn_norm.weight"), c->hidden, true, &out->attn_norm, err));
  DF_TRY(df_loader_matrix(l, name_of(b, i, "attn_q.weight"), q, c->hidden, q_rows, &out->q, err));
  DF_TRY(df_loader_matrix(l, name_of(b, i, "attn_k.weight"), kv, c->hidden, k_rows, &out->k, err));
  DF_TRY(df_loader_matrix(l, name_of(b, i, "attn_v.weight"), kv, c->hidden, NULL, &out->v, err));
  DF_TRY(df_loader_matrix(l, name_of(b, i, "attn_output.weight"), c->hidden, q, NULL, &out->o, err));
  DF_TRY(df_loader_vector_rows(l, name_of(b, i, "attn_q.bias"), q, q_rows, c->attention_bias, &out->q_bias, err));
  DF_TRY(df_loader_vector_rows(l, name_of(b, i, "attn_k.bias"), kv, k_rows, c->attention_bias, &out->k_bias, err));
  DF_TRY(df_loader_vector(l, name_of(b, i, "attn_v.bias"), kv, c->attention_bias, &out->v_bias, err));
  DF_TRY(df_loader_vector(l, name_of(b, i, "attn_output.bias"), c->hidden, c->attention_out_bias, &out->o_bias, err));
  DF_TRY(df_loader_vector(l, name_of(b, i, "attn_q_norm.weight"), c->head_dim, c->qk_norm, &out->q_norm, err));
  return df_loader_vector(l, name_of(b, i, "attn_k_norm.weight"), c->head_dim, c->qk_norm, &out->k_norm, err);
}

static df_status load_ffn(df_loader *l, const df_config *c, uint32_t i, df_layer *out, df_error *err) {
  char b[64];
  DF_TRY(df_loader_vector(l, name_of(b, i, "ffn_norm.weight"), c->hidden, true, &out->ffn_norm, err));
  DF_TRY(df_loader_matrix(l, name_of(b, i, "ffn_gate.weight"), c->ffn, c->hidden, NULL, &out->gate, err));
  DF_TRY(df_loader_matrix(l, name_of(b, i, "ffn_up.weight"), c->ffn, c->hidden, NULL, &out->up, err));
  return df_loader_matrix(l, name_of(b, i, "ffn_down.weight"), c->hidden, c->ffn, NULL, &out->down, err);
}

df_status df_layer_load(df_loader *l, const df_config *c, uint32_t i, bool interleaved_rope, df_layer *out,
                        df_error *err) {
  uint32_t *rows = NULL;
  *out = (df_layer){0};
  if (interleaved_rope) {
    const uint32_t n = c->n_heads * c->head_dim;
    rows = df_alloc((size_t)n * sizeof *rows);
    if (!rows) return DF_OOM(err, "a row order", (size_t)n * sizeof *rows);
    df_rope_row_order(rows, n, c->head_dim); /* the first n_kv heads serve k */
  }
  df_status s = load_attention(l, c, i, rows, rows, out, err);
  if (s == DF_OK) s = load_ffn(l, c, i, out, err);
  df_free(rows);
  return s;
}

df_act df_act_for(df_act a, const df_weights *const *readers, uint32_t n) {
  bool q = false, f = false;
  for (uint32_t i = 0; i < n; i++) {
    if (df_pack_wants_q8(readers[i]->pack))
      q = true;
    else
      f = true;
  }
  if (!q) a.q = NULL;
  if (!f) a.f = NULL;
  return a;
}

static df_status emit_norm(const df_layer_pass *p, const float *w, df_act out, df_error *err) {
  const df_op_norm op = {p->ws->x, w, &p->batch->n_rows, NULL, out, p->cfg->rms_eps};
  return df_emit_norm(p->program, &op, err);
}

df_status df_layer_emit_attention(const df_layer *l, const df_layer_pass *p, df_error *err) {
  df_workspace *ws = p->ws;
  const df_config *c = p->cfg;
  const uint32_t *rows = &p->batch->n_rows;
  const size_t q_width = (size_t)df_strips(l->q.n) * DF_LANES, kv_width = (size_t)df_strips(l->k.n) * DF_LANES;
  float *q = ws->qkv, *k = q + q_width, *v = k + kv_width;
  const df_weights *const qkv[] = {&l->q, &l->k, &l->v};
  const df_act in = df_act_for(ws->norm, qkv, 3);
  DF_TRY(emit_norm(p, l->attn_norm, in, err));
  df_op_linear proj = {.x = in, .n_rows = rows, .n_parts = 3};
  proj.part[0] = (df_linear_part){&l->q, l->q_bias, q, ws->qkv_ld};
  proj.part[1] = (df_linear_part){&l->k, l->k_bias, k, ws->qkv_ld};
  proj.part[2] = (df_linear_part){&l->v, l->v_bias, v, ws->qkv_ld};
  DF_TRY(df_emit_linear(p->program, &proj, err));
  const df_op_rope_kv rope = {.q = q,
                              .k = k,
                              .v = v,
                              .q_ld = ws->qkv_ld,
                              .k_ld = ws->qkv_ld,
                              .v_ld = ws->qkv_ld,
                              .q_norm = l->q_norm,
                              .k_norm = l->k_norm,
                              .eps = c->rms_eps,
                              .cos = p->rope->cos,
                              .sin = p->rope->sin,
                              .pos = p->batch->pos,
                              .slot = p->batch->slot,
                              .n_rows = rows,
                              .kv = p->kv,
                              .n_heads = c->n_heads,
                              .n_kv = c->n_kv_heads,
                              .head_dim = c->head_dim};
  DF_TRY(df_emit_rope_kv(p->program, &rope, err));
  const df_weights *const o[] = {&l->o};
  const df_attn_layer al = {.q = q,
                            .k = k,
                            .v = v,
                            .q_ld = ws->qkv_ld,
                            .kv_ld = ws->qkv_ld,
                            .out = df_act_for(ws->attn, o, 1),
                            .kv = p->kv,
                            .layer = p->layer,
                            .causal = p->causal,
                            .window = p->window};
  DF_TRY(p->attn->ops->emit(p->attn, &p->attn_pass, &al, err));
  df_op_linear out = {.x = al.out, .n_rows = rows, .add = true, .n_parts = 1};
  out.part[0] = (df_linear_part){&l->o, l->o_bias, ws->x, c->hidden};
  return df_emit_linear(p->program, &out, err);
}

df_status df_layer_emit_ffn(const df_layer *l, const df_layer_pass *p, df_error *err) {
  df_workspace *ws = p->ws;
  const uint32_t *rows = &p->batch->n_rows;
  const df_weights *const gate_up[] = {&l->gate, &l->up}, *const down[] = {&l->down};
  const df_act in = df_act_for(ws->norm, gate_up, 2);
  DF_TRY(emit_norm(p, l->ffn_norm, in, err));
  const df_op_ffn_up up = {
      .x = in, .n_rows = rows, .gate = &l->gate, .up = &l->up, .out = df_act_for(ws->ffn, down, 1)};
  DF_TRY(df_emit_ffn_up(p->program, &up, err));
  df_op_linear out = {.x = up.out, .n_rows = rows, .add = true, .n_parts = 1};
  out.part[0] = (df_linear_part){&l->down, NULL, ws->x, p->cfg->hidden};
  return df_emit_linear(p->program, &out, err);
}

df_status df_layer_emit(const df_layer *layer, const df_layer_pass *p, df_error *err) {
  DF_TRY(df_layer_emit_attention(layer, p, err));
  return df_layer_emit_ffn(layer, p, err);
}
