#include "attention/recurrent.h"

#include <string.h>

#include "attention/leaf.h"
#include "base/map.h"
#include "base/mem.h"
#include "base/size.h"

enum { MAX_LAYERS = 512 };

typedef struct recurrent {
  df_leaf leaf;
  df_recurrent_state *state; /* shared */
  uint32_t index[MAX_LAYERS];
  uint32_t n_model_layers;
} recurrent;

/* Uniform in [lo, hi), the same on every machine. */
static float drawn(uint64_t seed, uint32_t i, float lo, float hi) {
  const uint64_t h = df_hash_bytes(&i, sizeof i, seed);
  return lo + (hi - lo) * (float)(h >> 40) * 0x1p-24f;
}

df_status df_recurrent_state_init(df_recurrent_state *s, uint32_t n_layers, uint32_t n_kv, uint32_t head_dim,
                                  uint32_t n_slots, uint32_t max_seqs, uint32_t max_rows, uint64_t seed,
                                  df_error *err) {
  df_recurrent_state t = {.n_layers = n_layers,
                          .n_kv = n_kv,
                          .head_dim = head_dim,
                          .n_slots = n_slots,
                          .max_seqs = max_seqs,
                          .max_rows = max_rows};
  size_t one;
  if (!df_mul_size((size_t)n_layers * n_kv, (size_t)head_dim * head_dim * sizeof(float), &one) ||
      !df_mul_size(one, (size_t)n_slots + 1, &t.committed_bytes) ||
      !df_mul_size(one, (size_t)max_seqs * max_rows, &t.behind_bytes))
    return DF_FAIL(err, DF_ERR_LIMIT, "recurrent state for %u sequences overflows memory", n_slots);
  t.committed = df_pages_alloc(t.committed_bytes);
  t.behind = df_pages_alloc(t.behind_bytes);
  t.decay = df_alloc((size_t)n_layers * n_kv * sizeof(float));
  t.beta = df_alloc((size_t)n_layers * n_kv * sizeof(float));
  if (!t.committed || !t.behind || !t.decay || !t.beta) {
    const size_t bytes = t.committed_bytes + t.behind_bytes; /* releasing clears them */
    df_recurrent_state_release(&t);
    return DF_OOM(err, "recurrent state", bytes);
  }
  for (uint32_t i = 0; i < n_layers * n_kv; i++) {
    t.decay[i] = drawn(seed, 2 * i, 0.90f, 0.995f);
    t.beta[i] = drawn(seed, 2 * i + 1, 0.2f, 0.9f);
  }
  *s = t;
  return DF_OK;
}

void df_recurrent_state_release(df_recurrent_state *s) {
  df_pages_free(s->committed, s->committed_bytes);
  df_pages_free(s->behind, s->behind_bytes);
  df_free(s->decay);
  df_free(s->beta);
  *s = (df_recurrent_state){0};
}

static df_attn_caps recurrent_caps(const df_attn *a) {
  (void)a;
  return (df_attn_caps){.reads_mask = false,
                        .mask_layouts = 1u << DF_MASK_NONE,
                        .causal = true,
                        .sliding_window = false,
                        .graph_safe = true,
                        .recurrent = true,
                        .max_rows = UINT32_MAX,
                        .kv_types = 1u << DF_KV_F16 | 1u << DF_KV_F32,
                        .page_sizes = DF_PAGE_SIZES};
}

/* The program's bounds must fit the room for states behind rows; a prefill needs none. */
static df_status check_room(const recurrent *r, const df_attn_pass *pass, uint32_t layer, df_error *err) {
  const df_recurrent_state *s = r->state;
  const uint32_t seqs = df_program_max_seqs(pass->program),
                 rows = (df_program_max_rows(pass->program) + seqs - 1) / seqs;
  if (layer >= r->n_model_layers || r->index[layer] >= s->n_layers)
    return DF_FAIL(err, DF_ERR_ARGUMENT, "layer %u is not among the %u recurrent layers", layer, s->n_layers);
  if (pass->mode != DF_MODE_EXTEND && (seqs > s->max_seqs || rows > s->max_rows))
    return DF_FAIL(err, DF_ERR_LIMIT, "recurrent state has room for %u x %u rows, the pass has %u x %u", s->max_seqs,
                   s->max_rows, seqs, rows);
  return DF_OK;
}

static df_status recurrent_emit(df_attn *a, const df_attn_pass *pass, const df_attn_layer *layer, df_error *err) {
  const recurrent *r = (const recurrent *)a;
  const df_recurrent_state *s = r->state;
  if (pass->mask_layout != DF_MASK_NONE || layer->window || !layer->causal)
    return DF_FAIL(err, DF_ERR_UNSUPPORTED, "attention backend \"%s\" runs plain causal rows only", a->label);
  DF_TRY(check_room(r, pass, layer->layer, err));
  const size_t matrix = (size_t)s->head_dim * s->head_dim, one = (size_t)s->n_layers * s->n_kv * matrix;
  const uint32_t index = r->index[layer->layer];
  df_op_attn base;
  df_leaf_op(&r->leaf, pass, layer, &base);
  const df_op_recurrent op = {
      .batch = pass->batch,
      .q = layer->q,
      .k = layer->k,
      .v = layer->v,
      .q_ld = layer->q_ld,
      .kv_ld = layer->kv_ld,
      .out = layer->out,
      .n_heads = base.n_heads,
      .n_kv = base.n_kv,
      .head_dim = base.head_dim,
      .scale = base.scale,
      .seq0 = pass->seq0,
      .decay = s->decay + (size_t)index * s->n_kv,
      .beta = s->beta + (size_t)index * s->n_kv,
      .committed = s->committed + (size_t)index * s->n_kv * matrix,
      .slot_stride = one,
      .behind = pass->mode == DF_MODE_EXTEND ? NULL : s->behind + (size_t)index * s->n_kv * matrix,
      .seq_stride = one * s->max_rows,
      .row_stride = one};
  return df_emit_recurrent(pass->program, &op, err);
}

static df_status recurrent_commit(df_attn *a, const df_batch *batch, const uint32_t *lens, uint32_t n_seqs,
                                  df_error *err) {
  const df_recurrent_state *s = ((const recurrent *)a)->state;
  const size_t one = (size_t)s->n_layers * s->n_kv * s->head_dim * s->head_dim;
  for (uint32_t b = 0; b < n_seqs; b++) {
    if (lens[b] == 0 || lens[b] > s->max_rows)
      return DF_FAIL(err, DF_ERR_ARGUMENT, "a commit of %u rows is outside 1..%u", lens[b], s->max_rows);
    memcpy(s->committed + batch->state_slot[b] * one, s->behind + ((size_t)b * s->max_rows + lens[b] - 1) * one,
           one * sizeof(float));
  }
  return DF_OK;
}

static const df_attn_ops k_recurrent_ops = {.caps = recurrent_caps,
                                            .graph_init = df_leaf_graph_init,
                                            .plan = df_leaf_plan,
                                            .emit = recurrent_emit,
                                            .executor = df_leaf_executor,
                                            .mask = df_leaf_mask,
                                            .half = df_leaf_half,
                                            .commit = recurrent_commit,
                                            .free = df_leaf_free};

df_status df_attn_recurrent_create(const df_attn_shape *shape, df_recurrent_state *state, const uint32_t *layer_index,
                                   uint32_t n_model_layers, df_attn **out, df_error *err) {
  if (n_model_layers > MAX_LAYERS) return DF_FAIL(err, DF_ERR_LIMIT, "%u layers exceed %d", n_model_layers, MAX_LAYERS);
  recurrent *r = df_calloc(1, sizeof *r);
  if (!r) return DF_OOM(err, "an attention backend", sizeof *r);
  r->leaf.base.ops = &k_recurrent_ops;
  r->leaf.base.label = "gated-delta";
  r->leaf.shape = *shape;
  r->state = state;
  r->n_model_layers = n_model_layers;
  memcpy(r->index, layer_index, n_model_layers * sizeof *layer_index);
  *out = &r->leaf.base;
  return DF_OK;
}

/* ---- the wrapper ---------------------------------------------------------------------------------------- */

typedef struct hybrid_linear {
  df_attn base;
  df_attn *attention, *linear;
  bool is_linear[MAX_LAYERS];
} hybrid_linear;

/* Masks, pages and KV concern the attention layers: they decide who "runs" a mode. */
static df_attn *hl_executor(df_attn *a, df_mode mode) {
  (void)mode;
  df_attn *c = ((hybrid_linear *)a)->attention;
  return c == a ? NULL : c;
}

static df_attn_caps hl_caps(const df_attn *a) {
  const hybrid_linear *h = (const hybrid_linear *)a;
  df_attn_caps c = h->attention->ops->caps(h->attention);
  const df_attn_caps l = h->linear->ops->caps(h->linear);
  c.graph_safe &= l.graph_safe;
  c.recurrent |= l.recurrent;
  return c;
}

static df_status hl_graph_init(df_attn *a, uint32_t max_seqs, uint32_t max_rows, df_error *err) {
  hybrid_linear *h = (hybrid_linear *)a;
  DF_TRY(h->attention->ops->graph_init(h->attention, max_seqs, max_rows, err));
  return h->linear->ops->graph_init(h->linear, max_seqs, max_rows, err);
}

static df_status hl_plan(df_attn *a, const df_program *p, const df_batch *batch, df_mode mode, df_attn_phase phase,
                         df_error *err) {
  hybrid_linear *h = (hybrid_linear *)a;
  DF_TRY(h->attention->ops->plan(h->attention, p, batch, mode, phase, err));
  return h->linear->ops->plan(h->linear, p, batch, mode, phase, err);
}

static df_status hl_emit(df_attn *a, const df_attn_pass *pass, const df_attn_layer *layer, df_error *err) {
  hybrid_linear *h = (hybrid_linear *)a;
  df_attn *c = h->is_linear[layer->layer] ? h->linear : h->attention;
  return c->ops->emit(c, pass, layer, err);
}

static const df_verify_mask *hl_mask(const df_attn *a) {
  const df_attn *c = ((const hybrid_linear *)a)->attention;
  return c->ops->mask(c);
}

/* The halves of a split batch would need both children split: the overlap wrapper goes above this one. */
static df_attn *hl_half(df_attn *a, uint32_t i) {
  (void)a, (void)i;
  return NULL;
}

static df_status hl_commit(df_attn *a, const df_batch *batch, const uint32_t *lens, uint32_t n_seqs, df_error *err) {
  hybrid_linear *h = (hybrid_linear *)a;
  DF_TRY(h->attention->ops->commit(h->attention, batch, lens, n_seqs, err));
  return h->linear->ops->commit(h->linear, batch, lens, n_seqs, err);
}

static void hl_free(df_attn *a) {
  hybrid_linear *h = (hybrid_linear *)a;
  df_attn_free(h->attention);
  df_attn_free(h->linear);
  df_free(h);
}

static const df_attn_ops k_hl_ops = {.caps = hl_caps,
                                     .graph_init = hl_graph_init,
                                     .plan = hl_plan,
                                     .emit = hl_emit,
                                     .executor = hl_executor,
                                     .mask = hl_mask,
                                     .half = hl_half,
                                     .commit = hl_commit,
                                     .free = hl_free};

df_status df_attn_hybrid_linear_create(df_attn *attention, df_attn *linear, const bool *is_linear, uint32_t n_layers,
                                       df_attn **out, df_error *err) {
  hybrid_linear *h = n_layers <= MAX_LAYERS ? df_calloc(1, sizeof *h) : NULL;
  if (!h) {
    df_attn_free(attention);
    df_attn_free(linear);
    if (n_layers > MAX_LAYERS) return DF_FAIL(err, DF_ERR_LIMIT, "%u layers exceed %d", n_layers, MAX_LAYERS);
    return DF_OOM(err, "an attention backend", sizeof *h);
  }
  h->base = (df_attn){&k_hl_ops, "hybrid-linear"};
  h->attention = attention;
  h->linear = linear;
  memcpy(h->is_linear, is_linear, n_layers * sizeof *is_linear);
  *out = &h->base;
  return DF_OK;
}
