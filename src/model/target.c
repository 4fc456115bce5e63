#include "model/target.h"

#include <string.h>

#include "base/mem.h"
#include "base/size.h"

enum { ARGMAX_SEGMENTS = 4 };

static df_status init_memory(df_target *t, df_error *err) {
  const df_config *c = &t->m->cfg;
  const df_target_params *p = &t->p;
  const df_workspace_shape ws = {.max_rows = p->max_rows, .max_out = p->max_out, .hidden = c->hidden, .n_heads = c->n_heads,
                                 .n_kv = c->n_kv_heads, .head_dim = c->head_dim, .ffn = c->ffn, .vocab = c->vocab,
                                 .segments = ARGMAX_SEGMENTS};
  DF_TRY(df_workspace_init(&t->ws, &ws, err));
  DF_TRY(df_batch_init(&t->batch, p->max_rows, p->max_seqs, (p->max_positions + DF_KV_PAGE - 1) / DF_KV_PAGE, err));
  DF_TRY(df_rope_init(&t->rope, c, t->m->rope_factors, p->max_positions, err));
  DF_TRY(df_kv_store_init(&t->kv, p->kv, c->n_layers, c->n_kv_heads, c->head_dim, p->n_pages, err));
  if (p->n_taps) {
    t->taps_bytes = (size_t)p->max_rows * p->n_taps * c->hidden * sizeof(float);
    t->taps = df_pages_alloc(t->taps_bytes);
    if (!t->taps) return DF_OOM(err, "tapped rows", t->taps_bytes);
  }
  DF_TRY(t->attn->ops->graph_init(t->attn, p->max_seqs, p->max_rows, err));
  return df_runner_init(&t->runner, t->m->cpu, t->attn, p->graphs, err);
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
  df_pages_free(t->taps, t->taps_bytes);
  df_kv_store_release(&t->kv);
  df_rope_release(&t->rope);
  df_batch_release(&t->batch);
  df_workspace_release(&t->ws);
  *t = (df_target){0};
}

static df_status emit_target(void *ctx, df_program *p, const df_graph_key *key, df_error *err) {
  df_target *t = ctx;
  const df_decoder_pass pass = {.program = p, .batch = &t->batch, .ws = &t->ws, .rope = &t->rope, .kv = &t->kv,
                                .attn = t->attn, .mode = key->mode, .mask = key->mask, .taps = t->p.taps,
                                .n_taps = key->taps, .tap_out = t->taps, .logits = key->tail != DF_TAIL_NONE,
                                .argmax = key->tail == DF_TAIL_ARGMAX};
  return df_model_emit(t->m, &pass, err);
}

/* A ragged pass is recorded for a few row counts only; ops run on the live rows. */
static uint32_t row_bucket(const df_target *t, uint32_t rows) {
  static const uint32_t k_buckets[] = {16, 64, 256};
  for (size_t i = 0; i < DF_COUNT_OF(k_buckets); i++)
    if (rows <= k_buckets[i] && k_buckets[i] < t->p.max_rows) return k_buckets[i];
  return t->p.max_rows;
}

/* The leaf that runs a mode, through any nesting; the policy has checked depth and cycles at start. */
static const df_attn *leaf_of(df_attn *a, df_mode mode) {
  df_attn *next;
  while ((next = a->ops->executor(a, mode)) != a) a = next;
  return a;
}

static df_graph_key key_of(const df_target *t, df_mode mode, uint32_t seqs, uint32_t width, df_tail tail) {
  return (df_graph_key){.mode = mode, .seqs = seqs, .rows = width, .kv = t->p.kv, .taps = t->p.n_taps, .tail = tail,
                        .executor = leaf_of(t->attn, mode),
                        .mask = mode == DF_MODE_TARGET_VERIFY ? t->p.verify_mask : DF_MASK_NONE};
}

uint32_t df_seq_bucket(uint32_t n, uint32_t max_seqs) {
  static const uint32_t k_buckets[] = {1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64};
  for (size_t i = 0; i < DF_COUNT_OF(k_buckets); i++)
    if (n <= k_buckets[i]) return DF_MIN(k_buckets[i], max_seqs);
  return max_seqs;
}

df_status df_target_prepare(df_target *t, uint32_t seqs, uint32_t width, df_tail tail, df_error *err) {
  const uint32_t bucket = df_seq_bucket(seqs, t->p.max_seqs);
  const df_graph_key key = key_of(t, width == 1 ? DF_MODE_DECODE : DF_MODE_TARGET_VERIFY, bucket, width, tail);
  return df_runner_prepare(&t->runner, &key, bucket * width, bucket, emit_target, t, err);
}

df_status df_target_run(df_target *t, df_mode mode, df_tail tail, df_error *err) {
  df_batch *b = &t->batch;
  if (mode == DF_MODE_EXTEND) {
    const uint32_t rows = row_bucket(t, b->n_rows), seqs = b->n_seqs == 1 ? 1 : t->p.max_seqs;
    const df_graph_key key = key_of(t, mode, seqs, rows, tail);
    return df_runner_run(&t->runner, &key, b, rows, seqs, emit_target, t, err);
  }
  const uint32_t width = b->n_rows / b->n_seqs, seqs = df_seq_bucket(b->n_seqs, t->p.max_seqs);
  df_fill_pad(b, seqs, width);
  const df_graph_key key = key_of(t, mode, seqs, width, tail);
  return df_runner_run(&t->runner, &key, b, width * seqs, seqs, emit_target, t, err);
}
