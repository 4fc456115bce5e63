#include "model/target.h"

#include <assert.h>
#include <string.h>

#include "attention/verify_mask.h"
#include "base/mem.h"
#include "base/size.h"

static const uint32_t k_default_buckets[] = {1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64};

/* Ascending counts up to max_seqs, which always ends the list. */
static df_status init_buckets(df_target *t, df_error *err) {
  const uint32_t *from = t->p.seq_buckets ? t->p.seq_buckets : k_default_buckets;
  const uint32_t n = t->p.seq_buckets ? t->p.n_seq_buckets : DF_COUNT_OF(k_default_buckets);
  uint32_t m = 0;
  for (uint32_t i = 0; i < n && m < DF_MAX_BUCKETS - 1; i++) {
    if (from[i] == 0 || (i && from[i] <= from[i - 1]))
      return DF_FAIL(err, DF_ERR_ARGUMENT, "graph batch sizes must ascend from 1 (entry %u is %u)", i + 1, from[i]);
    if (from[i] < t->p.max_seqs) t->buckets[m++] = from[i];
  }
  t->buckets[m++] = t->p.max_seqs;
  t->p.seq_buckets = t->buckets;
  t->p.n_seq_buckets = m;
  return DF_OK;
}

/* Arrays of a half alias the batch, except where its sequences begin. */
static df_status init_half(const df_target *t, df_batch *half, df_error *err) {
  const size_t n = (size_t)t->p.max_seqs + 1;
  half->q_start = df_calloc(n, sizeof *half->q_start);
  if (!half->q_start) return DF_OOM(err, "batch inputs", n);
  DF_TRY(df_device_map(t->m->device, half, sizeof *half, DF_MEM_BATCH, "half a batch", err));
  return df_device_map(t->m->device, half->q_start, n * sizeof *half->q_start, DF_MEM_INPUT, "half a batch", err);
}

static df_status init_batches(df_target *t, df_error *err) {
  const df_target_params *p = &t->p;
  const uint32_t pages =
      p->pages->size == 1 ? p->max_positions : (uint32_t)(df_round_up(p->max_positions, 64) / DF_KV_PAGE);
  DF_TRY(df_batch_init(&t->batch, p->max_rows, p->max_seqs, pages, err));
  DF_TRY(df_device_map_batch(t->m->device, &t->batch, err));
  for (int h = 0; h < 2; h++) DF_TRY(init_half(t, &t->halves[h], err));
  if (p->verify_mask == DF_MASK_NONE) return DF_OK;
  /* The largest mask: every sequence at full length, 16 rows each. */
  DF_TRY(df_mask_buffer_init(&t->mask, p->max_seqs, (size_t)p->max_seqs * DF_TILE_ROWS * p->max_positions, err));
  DF_TRY(df_device_map(t->m->device, t->mask.bytes, t->mask.cap, DF_MEM_CONST, "verify masks", err));
  return df_device_map(t->m->device, t->mask.start, p->max_seqs * sizeof *t->mask.start, DF_MEM_CONST, "verify masks",
                       err);
}

/* A pool or a model that some phase's backend cannot take is refused now, not in the middle of an answer. */
static df_status check_caps(const df_target *t, df_error *err) {
  const df_attn_caps c = t->attn->ops->caps(t->attn);
  if (!(c.page_sizes & t->p.pages->size))
    return DF_FAIL(err, DF_ERR_UNSUPPORTED, "attention backend \"%s\" cannot read KV pages of %u tokens (--page-size)",
                   t->attn->label, t->p.pages->size);
  if (!(c.kv_types & 1u << t->p.kv))
    return DF_FAIL(err, DF_ERR_UNSUPPORTED, "attention backend \"%s\" cannot read an %s KV cache (-ctk, -ctv)",
                   t->attn->label, t->p.kv == DF_KV_F32 ? "f32" : "f16");
  for (uint32_t i = 0; i < t->m->cfg.n_layers && !c.sliding_window; i++)
    if (t->m->cfg.sliding[i])
      return DF_FAIL(err, DF_ERR_UNSUPPORTED,
                     "attention backend \"%s\" has no sliding window, layer %u of the model has one of %u",
                     t->attn->label, i, t->m->cfg.sliding_window);
  if (c.recurrent && !df_device_is_host(t->m->device))
    return DF_FAIL(err, DF_ERR_UNSUPPORTED,
                   "attention backend \"%s\" has recurrent layers, which run on the processor only (--device cpu)",
                   t->attn->label);
  return DF_OK;
}

static df_status init_memory(df_target *t, df_error *err) {
  const df_config *c = &t->m->cfg;
  const df_target_params *p = &t->p;
  const df_workspace_shape ws = {.max_rows = p->max_rows,
                                 .max_out = p->max_out,
                                 .hidden = c->hidden,
                                 .n_heads = c->n_heads,
                                 .n_kv = c->n_kv_heads,
                                 .head_dim = c->head_dim,
                                 .ffn = c->ffn,
                                 .vocab = c->vocab,
                                 .segments = t->m->device->argmax_segments};
  DF_TRY(check_caps(t, err));
  DF_TRY(init_buckets(t, err));
  for (int mode = 0; mode < DF_MODE_COUNT; mode++) {
    df_attn *leaf;
    DF_TRY(df_attn_resolve(t->attn, (df_mode)mode, &leaf, NULL, err));
  }
  DF_TRY(df_workspace_init(&t->ws, &ws, t->m->device, err));
  DF_TRY(init_batches(t, err));
  DF_TRY(df_rope_init(&t->rope, c, t->m->rope_factors, p->max_positions, t->m->device, err));
  DF_TRY(df_kv_store_init(&t->kv, p->kv, c->n_layers, c->n_kv_heads, c->head_dim, p->pages, t->m->device, err));
  if (p->keeps > 64) return DF_FAIL(err, DF_ERR_ARGUMENT, "rows of %u sequences to keep, at most 64", p->keeps);
  if (p->n_taps) {
    const size_t rows = (size_t)p->max_rows + (size_t)p->keeps * DF_TILE_ROWS;
    t->taps_bytes = rows * p->n_taps * c->hidden * sizeof(float);
    t->taps = df_pages_alloc(t->taps_bytes);
    if (!t->taps) return DF_OOM(err, "tapped rows", t->taps_bytes);
    DF_TRY(df_device_map(t->m->device, t->taps, t->taps_bytes, DF_MEM_SCRATCH, "tapped rows", err));
  }
  DF_TRY(t->attn->ops->graph_init(t->attn, p->max_seqs, p->max_rows, err));
  return df_runner_init(&t->runner, t->m->device, t->attn, p->graphs, err);
}

df_status df_target_init(df_target *t, df_model *m, const df_target_params *p, df_error *err) {
  *t = (df_target){.m = m, .p = *p, .attn = p->attn};
  if (p->n_taps) memcpy(t->tap_ids, p->taps, p->n_taps * sizeof *p->taps);
  t->p.taps = t->tap_ids;
  const df_status s = init_memory(t, err);
  if (s != DF_OK) df_target_release(t);
  return s;
}

void df_target_release(df_target *t) {
  df_runner_release(&t->runner);
  df_attn_free(t->attn);
  df_device *d = t->m->device;
  df_device_unmap(d, t->taps);
  df_pages_free(t->taps, t->taps_bytes);
  df_kv_store_release(&t->kv);
  df_rope_release(&t->rope);
  df_device_unmap(d, t->mask.bytes);
  df_device_unmap(d, t->mask.start);
  df_mask_buffer_release(&t->mask);
  for (int h = 0; h < 2; h++) {
    df_device_unmap(d, t->halves[h].q_start);
    df_device_unmap(d, &t->halves[h]);
    df_free(t->halves[h].q_start);
  }
  df_device_unmap_batch(d, &t->batch);
  df_batch_release(&t->batch);
  df_workspace_release(&t->ws);
  *t = (df_target){0};
}

uint32_t df_target_keep(df_target *t) {
  const uint32_t n = t->p.n_taps ? t->p.keeps : 0;
  uint32_t i = 0;
  while (i < n && t->kept >> i & 1) i++;
  if (i == n) return 0;
  t->kept |= UINT64_C(1) << i;
  return t->p.max_rows + i * DF_TILE_ROWS;
}

void df_target_give_back(df_target *t, uint32_t row0) {
  assert(row0 >= t->p.max_rows);
  t->kept &= ~(UINT64_C(1) << (row0 - t->p.max_rows) / DF_TILE_ROWS);
}

uint32_t df_target_bucket(const df_target *t, uint32_t n) {
  for (uint32_t i = 0; i < t->p.n_seq_buckets; i++)
    if (n <= t->buckets[i]) return t->buckets[i];
  return t->p.max_seqs;
}

/* A uniform pass of two or more sequences is split when the backend runs halves. */
static bool split_pass(const df_target *t, const df_graph_key *key) {
  return key->mode != DF_MODE_EXTEND && key->seqs >= 2 && t->attn->ops->half(t->attn, 0) != NULL;
}

static df_drafts drafts_of(const df_target *t, const df_graph_key *key) {
  return (df_drafts){.best = t->drafts, .n_live = &t->batch.n_live, .width = key->rows};
}

static df_status emit_target(void *ctx, df_program *p, const df_graph_key *key, df_error *err) {
  df_target *t = ctx;
  const bool split = split_pass(t, key);
  const df_decoder_pass pass = {.program = p,
                                .batch = &t->batch,
                                .ws = &t->ws,
                                .rope = &t->rope,
                                .kv = &t->kv,
                                .attn = t->attn,
                                .mode = key->mode,
                                .mask = key->mask,
                                .mask_buffer = key->mask == DF_MASK_NONE ? NULL : &t->mask,
                                .halves = split ? t->halves : NULL,
                                .half_ws = t->half_ws,
                                .split_rows = key->seqs / 2 * key->rows,
                                .taps = t->p.taps,
                                .n_taps = key->taps,
                                .tap_out = t->taps,
                                .logits = key->tail != DF_TAIL_NONE,
                                .argmax = key->tail == DF_TAIL_ARGMAX || key->tail == DF_TAIL_DRAFTED,
                                .drafts = key->tail == DF_TAIL_DRAFTED ? drafts_of(t, key) : (df_drafts){.width = 1}};
  return df_model_emit(t->m, &pass, err);
}

static void fill_halves(df_target *t, const df_graph_key *key) {
  if (!split_pass(t, key)) return;
  const uint32_t left = key->seqs / 2;
  df_batch_view(&t->halves[0], &t->batch, 0, left, key->rows);
  df_batch_view(&t->halves[1], &t->batch, left, key->seqs, key->rows);
}

/* A ragged pass is recorded for a few row counts only; ops run on the live rows. */
static uint32_t row_bucket(const df_target *t, uint32_t rows) {
  static const uint32_t k_buckets[] = {16, 64, 256};
  for (size_t i = 0; i < DF_COUNT_OF(k_buckets); i++)
    if (rows <= k_buckets[i] && k_buckets[i] < t->p.max_rows) return k_buckets[i];
  return t->p.max_rows;
}

/* The leaf that runs a mode, through any nesting; depth and cycles were checked at start. */
static const df_attn *leaf_of(df_attn *a, df_mode mode) {
  df_attn *next;
  while ((next = a->ops->executor(a, mode)) != a) a = next;
  return a;
}

static df_graph_key key_of(const df_target *t, df_mode mode, uint32_t seqs, uint32_t width, df_tail tail) {
  return (df_graph_key){.mode = mode,
                        .seqs = seqs,
                        .rows = width,
                        .kv = t->p.kv,
                        .taps = t->p.n_taps,
                        .tail = tail,
                        .executor = leaf_of(t->attn, mode),
                        .mask = mode == DF_MODE_TARGET_VERIFY ? t->p.verify_mask : DF_MASK_NONE};
}

static df_mask_buffer *mask_of(df_target *t, const df_graph_key *key) {
  return key->mask == DF_MASK_NONE ? NULL : &t->mask;
}

df_status df_target_prepare(df_target *t, uint32_t seqs, uint32_t width, df_tail tail, df_error *err) {
  const uint32_t bucket = df_target_bucket(t, seqs);
  const df_graph_key key = key_of(t, width == 1 ? DF_MODE_DECODE : DF_MODE_TARGET_VERIFY, bucket, width, tail);
  df_fill_begin(&t->batch); /* emission reads the shape of the halves */
  df_fill_pad(&t->batch, bucket, width);
  fill_halves(t, &key);
  return df_runner_prepare(&t->runner, &key, bucket * width, bucket, emit_target, t, err);
}

df_status df_target_run(df_target *t, df_mode mode, df_tail tail, df_error *err) {
  df_batch *b = &t->batch;
  if (tail != DF_TAIL_NONE) df_workspace_forget_logits(&t->ws);
  if (mode == DF_MODE_EXTEND) {
    const uint32_t rows = row_bucket(t, b->n_rows), seqs = b->n_seqs == 1 ? 1 : t->p.max_seqs;
    const df_graph_key key = key_of(t, mode, seqs, rows, tail);
    return df_runner_run(&t->runner, &key, b, NULL, rows, seqs, emit_target, t, err);
  }
  const uint32_t width = b->n_rows / b->n_seqs, seqs = df_target_bucket(t, b->n_seqs);
  df_fill_pad(b, seqs, width);
  const df_graph_key key = key_of(t, mode, seqs, width, tail);
  fill_halves(t, &key);
  return df_runner_run(&t->runner, &key, b, mask_of(t, &key), width * seqs, seqs, emit_target, t, err);
}
