#include "model/workspace.h"

#include "base/mem.h"
#include "base/size.h"

/* Hands out 64-aligned pieces; with base NULL it only measures. */
typedef struct carver {
  uint8_t *base;
  size_t at;
} carver;

static void *carve(carver *c, size_t count, size_t item) {
  void *p = c->base ? c->base + c->at : NULL;
  c->at = df_round_up(c->at + count * item, 64);
  return p;
}

static df_act carve_act(carver *c, uint32_t rows, uint32_t k) {
  df_act a = {.k = k};
  const size_t padded = df_round_up(rows, DF_TILE_ROWS) + DF_TILE_ROWS; /* one more tile for a split batch */
  a.f = carve(c, padded * k, sizeof(float));
  a.q = carve(c, padded * (df_round_up(k, DF_QBLOCK) / DF_QBLOCK), sizeof(df_actq));
  return a;
}

static void layout(df_workspace *w, const df_workspace_shape *s, carver *c) {
  const uint32_t q = s->n_heads * s->head_dim, kv = s->n_kv * s->head_dim;
  w->x = carve(c, (size_t)s->max_rows * s->hidden, sizeof(float));
  w->qkv_ld = df_round_up(q, DF_LANES) + 2 * df_round_up(kv, DF_LANES);
  w->qkv = carve(c, s->max_rows * w->qkv_ld, sizeof(float));
  w->norm = carve_act(c, s->max_rows, s->hidden);
  w->attn = carve_act(c, s->max_rows, q);
  w->ffn = carve_act(c, s->max_rows, s->ffn);
  w->tail = carve_act(c, s->max_out, s->hidden);
  w->logits_ld = df_round_up(s->vocab, DF_LANES);
  w->logits = carve(c, s->max_out * w->logits_ld, sizeof(float));
  w->best = carve(c, (size_t)s->max_out * s->segments, sizeof(float));
  w->best_id = carve(c, (size_t)s->max_out * s->segments, sizeof(uint32_t));
}

df_status df_workspace_init(df_workspace *w, const df_workspace_shape *s, df_error *err) {
  df_workspace t = {.max_rows = s->max_rows, .max_out = s->max_out, .segments = s->segments};
  carver measure = {NULL, 0};
  layout(&t, s, &measure);
  t.bytes = measure.at;
  t.block = df_pages_alloc(t.bytes);
  if (!t.block) return DF_OOM(err, "activations", t.bytes);
  carver c = {t.block, 0};
  layout(&t, s, &c);
  *w = t;
  return DF_OK;
}

static df_act view_act(df_act a, uint32_t row) {
  const size_t first = df_round_up(row, DF_TILE_ROWS);
  a.f += first * a.k;
  a.q += first * (df_round_up(a.k, DF_QBLOCK) / DF_QBLOCK);
  return a;
}

df_workspace df_workspace_view(const df_workspace *w, uint32_t row) {
  df_workspace v = *w;
  v.x += (size_t)row * w->norm.k;
  v.qkv += row * w->qkv_ld;
  v.norm = view_act(w->norm, row);
  v.attn = view_act(w->attn, row);
  v.ffn = view_act(w->ffn, row);
  v.block = NULL;
  return v;
}

void df_workspace_release(df_workspace *w) {
  df_pages_free(w->block, w->bytes);
  *w = (df_workspace){0};
}
