#include "draft/drafter.h"

#include <string.h>

#include "attention/registry.h"
#include "base/mem.h"
#include "base/size.h"

enum { MAX_LAYERS_FUSED = DF_LINEAR_PARTS / 2 };

static size_t act_bytes(uint32_t rows, uint32_t k) {
  const size_t padded = df_round_up(rows, DF_TILE_ROWS);
  return df_round_up(padded * k * sizeof(float), 64) + padded * (k / DF_QBLOCK) * sizeof(df_actq);
}

static uint8_t *place_act(df_act *a, uint8_t *at, uint32_t rows, uint32_t k) {
  const size_t padded = df_round_up(rows, DF_TILE_ROWS);
  *a = (df_act){.f = (float *)(void *)at, .k = k};
  at += df_round_up(padded * k * sizeof(float), 64);
  a->q = (df_actq *)(void *)at;
  return at + padded * (k / DF_QBLOCK) * sizeof(df_actq);
}

static df_status init_inject_memory(df_drafter *r, uint32_t rows, df_error *err) {
  const df_config *c = &r->d->cfg;
  const uint32_t tap_k = c->n_taps * c->hidden;
  r->kv_ld = (size_t)c->n_kv_heads * c->head_dim;
  const size_t fused = df_round_up((size_t)rows * c->hidden * sizeof(float), 64);
  const size_t kv = (size_t)rows * c->n_layers * 2 * r->kv_ld * sizeof(float);
  r->block_bytes = act_bytes(rows, tap_k) + act_bytes(rows, c->hidden) + fused + kv;
  r->block = df_pages_alloc(r->block_bytes);
  if (!r->block) return DF_OOM(err, "draft activations", r->block_bytes);
  DF_TRY(df_device_map(r->target->m->device, r->block, r->block_bytes, DF_MEM_SCRATCH, "draft activations", err));
  uint8_t *at = place_act(&r->taps, r->block, rows, tap_k);
  at = place_act(&r->feature, at, rows, c->hidden);
  r->fused = (float *)(void *)at;
  r->kv_rows = (float *)(void *)(at + fused);
  return DF_OK;
}

/* Where the drafts of a block pass are, elsewhere than on the host. */
static df_best drafts_of(const df_drafter *r) {
  const df_workspace *w = &r->target->ws;
  return (df_best){w->draft_best, w->draft_best_id, r->d->sub_head.n ? r->d->sub_ids : NULL, w->segments};
}

static df_status init_all(df_drafter *r, uint32_t max_width, bool graphs, df_error *err) {
  const df_config *c = &r->d->cfg;
  const df_target_params *tp = &r->target->p;
  const df_model *m = r->d->target;
  const uint32_t rows = tp->max_seqs * max_width;
  const df_workspace_shape ws = {.max_rows = rows,
                                 .max_out = rows,
                                 .hidden = c->hidden,
                                 .n_heads = c->n_heads,
                                 .n_kv = c->n_kv_heads,
                                 .head_dim = c->head_dim,
                                 .ffn = c->ffn,
                                 .vocab = m->cfg.vocab,
                                 .segments = m->device->argmax_segments};
  const uint32_t max_pages = r->target->batch.max_pages;
  DF_TRY(df_workspace_init(&r->ws, &ws, m->device, err));
  DF_TRY(df_batch_init(&r->batch, rows, tp->max_seqs, max_pages, err));
  DF_TRY(df_batch_init(&r->inject_batch, tp->max_rows, tp->max_seqs, max_pages, err));
  DF_TRY(df_device_map_batch(m->device, &r->batch, err));
  DF_TRY(df_device_map_batch(m->device, &r->inject_batch, err));
  DF_TRY(df_rope_init(&r->rope, c, NULL, tp->max_positions, m->device, err));
  DF_TRY(df_kv_store_init(&r->kv, tp->kv, c->n_layers, c->n_kv_heads, c->head_dim, tp->pages, m->device, err));
  DF_TRY(init_inject_memory(r, tp->max_rows, err));
  const df_attn_shape shape = {c->n_heads,           c->n_kv_heads, c->head_dim,    tp->max_positions,
                               m->device->n_workers, m->device,     tp->pages->size};
  DF_TRY(df_attn_default(m->device)->create(&shape, &r->attn, err));
  DF_TRY(r->attn->ops->graph_init(r->attn, tp->max_seqs, rows, err));
  if (r->target->drafts.value) /* its programs know where the drafts of another one were */
    return DF_FAIL(err, DF_ERR_INTERNAL, "a second drafter for the same target");
  if (!df_device_is_host(m->device)) r->target->drafts = drafts_of(r);
  return df_runner_init(&r->runner, m->device, r->attn, graphs, err);
}

df_status df_drafter_init(df_drafter *r, df_draft *d, df_target *target, uint32_t max_width, bool graphs,
                          df_error *err) {
  *r = (df_drafter){.d = d, .target = target};
  const df_status s = init_all(r, max_width, graphs, err);
  if (s != DF_OK) df_drafter_release(r);
  return s;
}

void df_drafter_release(df_drafter *r) {
  df_runner_release(&r->runner);
  df_attn_free(r->attn);
  df_device *d = r->target->m->device;
  df_device_unmap(d, r->block);
  df_pages_free(r->block, r->block_bytes);
  df_kv_store_release(&r->kv);
  df_rope_release(&r->rope);
  df_device_unmap_batch(d, &r->inject_batch);
  df_device_unmap_batch(d, &r->batch);
  df_batch_release(&r->inject_batch);
  df_batch_release(&r->batch);
  df_workspace_release(&r->ws);
  *r = (df_drafter){0};
}

/* ---- injection ------------------------------------------------------------------------------------------ */

/* All layers' K and V projections of the feature in as few products as the op takes. */
static df_status emit_inject_kv(df_drafter *r, df_program *p, df_act in, df_error *err) {
  const df_config *c = &r->d->cfg;
  const size_t ld = c->n_layers * 2 * r->kv_ld;
  for (uint32_t l0 = 0; l0 < c->n_layers; l0 += MAX_LAYERS_FUSED) {
    const uint32_t l1 = DF_MIN(l0 + MAX_LAYERS_FUSED, c->n_layers);
    df_op_linear op = {.x = in, .n_rows = &r->inject_batch.n_rows, .n_parts = 2 * (l1 - l0)};
    for (uint32_t l = l0; l < l1; l++) {
      const df_layer *w = &r->d->layers[l];
      float *k = r->kv_rows + (size_t)l * 2 * r->kv_ld;
      op.part[2 * (l - l0)] = (df_linear_part){&w->k, w->k_bias, k, ld};
      op.part[2 * (l - l0) + 1] = (df_linear_part){&w->v, w->v_bias, k + r->kv_ld, ld};
    }
    DF_TRY(df_emit_linear(p, &op, err));
  }
  for (uint32_t l = 0; l < c->n_layers; l++) {
    float *k = r->kv_rows + (size_t)l * 2 * r->kv_ld;
    const df_op_rope_kv rope = {.k = k,
                                .v = k + r->kv_ld,
                                .k_ld = ld,
                                .v_ld = ld,
                                .k_norm = r->d->layers[l].k_norm,
                                .eps = c->rms_eps,
                                .cos = r->rope.cos,
                                .sin = r->rope.sin,
                                .pos = r->inject_batch.pos,
                                .slot = r->inject_batch.slot,
                                .n_rows = &r->inject_batch.n_rows,
                                .kv = df_kv_store_layer(&r->kv, l),
                                .n_heads = c->n_heads,
                                .n_kv = c->n_kv_heads,
                                .head_dim = c->head_dim};
    DF_TRY(df_emit_rope_kv(p, &rope, err));
  }
  return DF_OK;
}

static df_status emit_inject(void *ctx, df_program *p, const df_graph_key *key, df_error *err) {
  (void)key;
  df_drafter *r = ctx;
  const df_draft *d = r->d;
  const df_batch *b = &r->inject_batch;
  const df_weights *const fc[] = {&d->fc};
  const df_act in = df_act_for(r->taps, fc, 1);
  if (in.q) {
    const df_op_quantize q = {r->target->taps, &b->n_rows, b->out_row, in};
    DF_TRY(df_emit_quantize(p, &q, err));
  } else {
    const df_op_tap g = {r->target->taps, in.f, in.k, in.k, &b->n_rows, b->out_row, NULL};
    DF_TRY(df_emit_tap(p, &g, err));
  }
  df_op_linear fuse = {.x = in, .n_rows = &b->n_rows, .n_parts = 1};
  fuse.part[0] = (df_linear_part){&d->fc, NULL, r->fused, d->cfg.hidden};
  DF_TRY(df_emit_linear(p, &fuse, err));
  const df_weights *readers[2 * DF_LIMIT_LAYERS];
  for (uint32_t l = 0; l < d->cfg.n_layers; l++) {
    readers[2 * l] = &d->layers[l].k;
    readers[2 * l + 1] = &d->layers[l].v;
  }
  const df_act feature = df_act_for(r->feature, readers, 2 * d->cfg.n_layers);
  const df_op_norm norm = {r->fused, d->hidden_norm, &b->n_rows, NULL, feature, d->cfg.rms_eps};
  DF_TRY(df_emit_norm(p, &norm, err));
  return emit_inject_kv(r, p, feature, err);
}

/* A step injects up to a block of rows per sequence, a prefill up to a whole pass: a few programs serve all. */
static df_graph_key inject_key(const df_drafter *r, uint32_t n) {
  const uint32_t all = r->inject_batch.max_rows;
  uint32_t rows = DF_TILE_ROWS;
  while (rows < n) rows *= 4;
  return (df_graph_key){.mode = DF_MODE_EXTEND,
                        .seqs = 1,
                        .rows = DF_MIN(rows, all),
                        .kv = r->kv.type,
                        .tail = DF_TAIL_NONE,
                        .executor = r->attn};
}

df_status df_drafter_inject(df_drafter *r, const df_inject_item *items, uint32_t n_items, df_error *err) {
  df_batch *b = &r->inject_batch;
  r->injections++;
  df_fill_begin(b);
  for (uint32_t i = 0; i < n_items; i++) df_fill_add_rows(b, items[i].seq, items[i].row0, items[i].n, items[i].first);
  const df_graph_key key = inject_key(r, b->n_rows);
  return df_runner_run(&r->runner, &key, b, NULL, key.rows, 1, emit_inject, r, err);
}

/* ---- block ----------------------------------------------------------------------------------------------- */

/* Best tokens for the verify pass, which takes them where they are. */
static df_status emit_drafts(df_drafter *r, df_program *p, uint32_t n, df_error *err) {
  const df_workspace *w = &r->target->ws;
  const df_op_argmax op = {.x = r->ws.logits,
                           .ld = r->ws.logits_ld,
                           .n = n,
                           .segments = w->segments,
                           .n_rows = &r->batch.n_out,
                           .best = w->draft_best,
                           .best_id = w->draft_best_id};
  return df_emit_argmax(p, &op, err);
}

static df_status emit_block(void *ctx, df_program *p, const df_graph_key *key, df_error *err) {
  df_drafter *r = ctx;
  df_draft *d = r->d;
  const df_config *c = &d->cfg;
  const df_op_embed embed = {.table = &d->target->embed,
                             .ids = r->batch.ids,
                             .n_rows = &r->batch.n_rows,
                             .out = r->ws.x,
                             .scale = c->embedding_scale};
  DF_TRY(df_emit_embed(p, &embed, err));
  for (uint32_t l = 0; l < c->n_layers; l++) {
    const df_layer_pass lp = {.program = p,
                              .batch = &r->batch,
                              .ws = &r->ws,
                              .rope = &r->rope,
                              .cfg = c,
                              .attn = r->attn,
                              .attn_pass = {p, &r->batch, key->mode, DF_MASK_NONE, NULL, 0},
                              .kv = df_kv_store_layer(&r->kv, l),
                              .layer = l,
                              .causal = c->causal[l],
                              .window = c->sliding[l] ? c->sliding_window : 0};
    DF_TRY(df_layer_emit(&d->layers[l], &lp, err));
  }
  const df_weights *head = d->sub_head.n ? &d->sub_head : &d->target->head;
  const df_act in = df_act_for(r->ws.tail, &head, 1);
  const df_op_norm norm = {r->ws.x, d->final_norm, &r->batch.n_out, r->batch.out_row, in, c->rms_eps};
  DF_TRY(df_emit_norm(p, &norm, err));
  const bool stay = !df_device_is_host(r->ws.device);
  DF_TRY(df_model_emit_head(p, head, in, &r->batch.n_out, &r->ws, !stay, err));
  return stay ? emit_drafts(r, p, head->n, err) : DF_OK;
}

static df_graph_key block_key(const df_drafter *r, uint32_t seqs, uint32_t width) {
  return (df_graph_key){.mode = DF_MODE_DRAFT_BLOCK,
                        .seqs = seqs,
                        .rows = width,
                        .kv = r->kv.type,
                        .tail = DF_TAIL_ARGMAX,
                        .executor = r->attn};
}

df_status df_drafter_prepare(df_drafter *r, uint32_t seqs, uint32_t width, df_error *err) {
  const uint32_t bucket = df_target_bucket(r->target, seqs);
  for (uint32_t rows = 1; rows <= seqs * width; rows *= 4) {
    const df_graph_key inject = inject_key(r, rows);
    DF_TRY(df_runner_prepare(&r->runner, &inject, inject.rows, 1, emit_inject, r, err));
  }
  if (width < 2) return DF_OK;
  const df_graph_key block = block_key(r, bucket, width);
  return df_runner_prepare(&r->runner, &block, bucket * width, bucket, emit_block, r, err);
}

/* Probability of the best token of an output row. */
static float sureness(const df_drafter *r, uint32_t row, uint32_t best) {
  const df_weights *head = r->d->sub_head.n ? &r->d->sub_head : &r->d->target->head;
  const float *logits = r->ws.logits + row * r->ws.logits_ld;
  return 1.0f / r->target->m->kernels->exp_sum(logits, head->n, logits[best]);
}

df_status df_drafter_draft(df_drafter *r, const df_draft_item *items, uint32_t n_items, uint32_t width, df_error *err) {
  df_batch *b = &r->batch;
  int32_t ids[DF_TILE_ROWS];
  if (width < 2 || width > DF_TILE_ROWS)
    return DF_FAIL(err, DF_ERR_ARGUMENT, "a draft block of %u rows is outside 2..%d", width, DF_TILE_ROWS);
  for (uint32_t i = 1; i < width; i++) ids[i] = (int32_t)r->d->cfg.mask_token_id;
  df_fill_begin(b);
  for (uint32_t i = 0; i < n_items; i++) {
    ids[0] = items[i].anchor;
    (void)df_fill_add(b, items[i].seq, ids, width, items[i].n,
                      DF_OUT_ALL_BUT_FIRST); /* the anchor's output is unused */
  }
  const uint32_t seqs = df_target_bucket(r->target, n_items);
  df_fill_pad(b, seqs, width);
  const df_graph_key key = block_key(r, seqs, width);
  DF_TRY(df_runner_run(&r->runner, &key, b, NULL, seqs * width, seqs, emit_block, r, err));
  if (!df_device_is_host(r->ws.device)) return DF_OK;
  for (uint32_t i = 0; i < n_items; i++) {
    for (uint32_t j = 0; j + 1 < width; j++) {
      const uint32_t row = i * (width - 1) + j;
      const int32_t best = df_workspace_best(&r->ws, row);
      items[i].drafted[j] = r->d->sub_head.n ? r->d->sub_ids[best] : best;
      if (items[i].sure) items[i].sure[j] = sureness(r, row, (uint32_t)best);
    }
  }
  return DF_OK;
}
