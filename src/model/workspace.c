#include "model/workspace.h"

#include <string.h>

#include "base/mem.h"
#include "base/size.h"

enum { PAGE = 4096 };

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
  if (df_device_is_host(w->device)) return;
  w->draft_best = carve(c, (size_t)s->max_out * s->segments, sizeof(float));
  w->draft_best_id = carve(c, (size_t)s->max_out * s->segments, sizeof(uint32_t));
  c->at = df_round_up(c->at, PAGE); /* what the host reads of every pass lies on pages of its own */
  w->token = carve(c, s->max_out, sizeof(int32_t));
  w->drafted = carve(c, s->max_out, sizeof(int32_t));
  w->accepted = carve(c, s->max_out, sizeof(uint32_t));
}

static df_status map(df_workspace *w, df_error *err) {
  if (df_device_is_host(w->device)) return DF_OK;
  const size_t scratch = (size_t)((uint8_t *)w->token - (uint8_t *)w->block);
  w->here = df_calloc(w->max_out, 1);
  if (!w->here) return DF_OOM(err, "the state of logit rows", w->max_out);
  DF_TRY(df_device_map(w->device, w->block, scratch, DF_MEM_SCRATCH, "activations", err));
  return df_device_map(w->device, w->token, w->bytes - scratch, DF_MEM_OUTPUT, "tokens", err);
}

df_status df_workspace_init(df_workspace *w, const df_workspace_shape *s, df_device *device, df_error *err) {
  df_workspace t = {.max_rows = s->max_rows, .max_out = s->max_out, .segments = s->segments, .device = device};
  carver measure = {NULL, 0};
  layout(&t, s, &measure);
  t.bytes = measure.at;
  t.block = df_pages_alloc(t.bytes);
  if (!t.block) return DF_OOM(err, "activations", t.bytes);
  carver c = {t.block, 0};
  layout(&t, s, &c);
  const df_status st = map(&t, err);
  if (st != DF_OK) {
    df_workspace_release(&t);
    return st;
  }
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
  df_device_unmap(w->device, w->token);
  df_device_unmap(w->device, w->block);
  df_free(w->here);
  df_pages_free(w->block, w->bytes);
  *w = (df_workspace){0};
}

df_status df_workspace_logits(df_workspace *w, uint32_t r, const float **out, df_error *err) {
  const float *row = w->logits + r * w->logits_ld;
  if (w->here && !w->here[r]) {
    DF_TRY(w->device->ops->fetch(w->device, row, w->logits_ld * sizeof *row, err));
    w->here[r] = 1;
  }
  *out = row;
  return DF_OK;
}

void df_workspace_forget_logits(df_workspace *w) {
  if (w->here) memset(w->here, 0, w->max_out);
}

int32_t df_workspace_best(const df_workspace *w, uint32_t r) {
  if (w->token) return w->token[r];
  const df_best b = df_workspace_best_logits(w);
  return df_best_of(&b, r);
}
