#include "attention/tbo.h"

#include "base/mem.h"

typedef struct tbo {
  df_attn base;
  df_attn *primary, *child[2];
} tbo;

static df_attn *tbo_executor(df_attn *a, df_mode mode) {
  (void)mode;
  df_attn *p = ((tbo *)a)->primary;
  return p == a ? NULL : p;
}

/* The children are copies of the primary, so its answers hold for all three. */
static df_attn_caps tbo_caps(const df_attn *a) {
  const df_attn *p = ((const tbo *)a)->primary;
  return p->ops->caps(p);
}

static df_status tbo_graph_init(df_attn *a, uint32_t max_seqs, uint32_t max_rows, df_error *err) {
  tbo *t = (tbo *)a;
  DF_TRY(t->primary->ops->graph_init(t->primary, max_seqs, max_rows, err));
  for (int i = 0; i < 2; i++) DF_TRY(t->child[i]->ops->graph_init(t->child[i], (max_seqs + 1) / 2, max_rows, err));
  return DF_OK;
}

static df_status tbo_plan(df_attn *a, const df_program *p, const df_batch *batch, df_mode mode, df_attn_phase phase,
                          df_error *err) {
  tbo *t = (tbo *)a;
  DF_TRY(t->primary->ops->plan(t->primary, p, batch, mode, phase, err));
  for (int i = 0; i < 2; i++) DF_TRY(t->child[i]->ops->plan(t->child[i], p, batch, mode, phase, err));
  return DF_OK;
}

/* Layers of a split batch are emitted through the halves; what arrives here is a whole batch. */
static df_status tbo_emit(df_attn *a, const df_attn_pass *pass, const df_attn_layer *layer, df_error *err) {
  df_attn *p = ((tbo *)a)->primary;
  return p->ops->emit(p, pass, layer, err);
}

static const df_verify_mask *tbo_mask(const df_attn *a) {
  const df_attn *p = ((const tbo *)a)->primary;
  return p->ops->mask(p);
}

static df_attn *tbo_half(df_attn *a, uint32_t i) { return ((tbo *)a)->child[i & 1]; }

/* State lives in the batch's slots, not in a backend: whoever commits, commits for all. */
static df_status tbo_commit(df_attn *a, const df_batch *batch, const uint32_t *lens, uint32_t n_seqs, df_error *err) {
  df_attn *p = ((tbo *)a)->primary;
  return p->ops->commit(p, batch, lens, n_seqs, err);
}

static void tbo_free(df_attn *a) {
  tbo *t = (tbo *)a;
  df_attn_free(t->child[0]);
  df_attn_free(t->child[1]);
  df_attn_free(t->primary);
  df_free(t);
}

static const df_attn_ops k_tbo_ops = {.caps = tbo_caps,
                                      .graph_init = tbo_graph_init,
                                      .plan = tbo_plan,
                                      .emit = tbo_emit,
                                      .executor = tbo_executor,
                                      .mask = tbo_mask,
                                      .half = tbo_half,
                                      .commit = tbo_commit,
                                      .free = tbo_free};

df_status df_attn_tbo_create(df_attn *primary, df_attn *child0, df_attn *child1, df_attn **out, df_error *err) {
  tbo *t = df_calloc(1, sizeof *t);
  if (!t) {
    df_attn_free(child0);
    df_attn_free(child1);
    df_attn_free(primary);
    return DF_OOM(err, "an attention backend", sizeof *t);
  }
  *t = (tbo){{&k_tbo_ops, "tbo"}, primary, {child0, child1}};
  *out = &t->base;
  return DF_OK;
}
