#include "attention/hybrid.h"

#include "base/mem.h"

typedef struct hybrid {
  df_attn base;
  df_attn *prefill, *decode, *verify; /* verify is NULL without a slot of its own */
  bool verify_on_decode;
} hybrid;

static df_attn *child_for(const hybrid *h, df_mode mode) {
  switch (mode) {
    case DF_MODE_DECODE:
    case DF_MODE_IDLE: return h->decode;
    case DF_MODE_TARGET_VERIFY:
      if (h->verify) return h->verify;
      return h->verify_on_decode ? h->decode : h->prefill;
    default: return h->prefill;
  }
}

static df_attn *hybrid_executor(df_attn *a, df_mode mode) {
  df_attn *c = child_for((const hybrid *)a, mode);
  return c == a ? NULL : c;
}

/* Who runs verify decides what a verify mask may be; the other capabilities hold for every phase. */
static df_attn_caps hybrid_caps(const df_attn *a) {
  const hybrid *h = (const hybrid *)a;
  df_attn *v = hybrid_executor((df_attn *)a, DF_MODE_TARGET_VERIFY);
  df_attn_caps c = v->ops->caps(v);
  const df_attn *const all[] = {h->prefill, h->decode};
  for (int i = 0; i < 2; i++) {
    const df_attn_caps o = all[i]->ops->caps(all[i]);
    c.sliding_window &= o.sliding_window;
    c.graph_safe &= o.graph_safe;
    c.kv_types &= o.kv_types;
    c.causal &= o.causal;
    c.page_sizes &= o.page_sizes;
    c.inexact |= o.inexact;
    c.recurrent |= o.recurrent;
  }
  const df_attn_caps p = h->prefill->ops->caps(h->prefill);
  c.max_rows = p.max_rows;
  return c;
}

static df_status hybrid_graph_init(df_attn *a, uint32_t max_seqs, uint32_t max_rows, df_error *err) {
  hybrid *h = (hybrid *)a;
  DF_TRY(h->prefill->ops->graph_init(h->prefill, max_seqs, max_rows, err));
  if (h->decode != h->prefill) DF_TRY(h->decode->ops->graph_init(h->decode, max_seqs, max_rows, err));
  if (h->verify && h->verify != h->decode && h->verify != h->prefill)
    DF_TRY(h->verify->ops->graph_init(h->verify, max_seqs, max_rows, err));
  return DF_OK;
}

static df_status hybrid_plan(df_attn *a, const df_program *p, const df_batch *batch, df_mode mode, df_attn_phase phase,
                             df_error *err) {
  df_attn *c = hybrid_executor(a, mode);
  return c->ops->plan(c, p, batch, mode, phase, err);
}

static df_status hybrid_emit(df_attn *a, const df_attn_pass *pass, const df_attn_layer *layer, df_error *err) {
  df_attn *c = hybrid_executor(a, pass->mode);
  return c->ops->emit(c, pass, layer, err);
}

static const df_verify_mask *hybrid_mask(const df_attn *a) {
  const df_attn *c = hybrid_executor((df_attn *)a, DF_MODE_TARGET_VERIFY);
  return c->ops->mask(c);
}

/* Phases run on different children, so a split into halves would have to split each: it goes above, not below. */
static df_attn *hybrid_half(df_attn *a, uint32_t i) {
  (void)a, (void)i;
  return NULL;
}

static df_status hybrid_commit(df_attn *a, const df_batch *batch, const uint32_t *lens, uint32_t n_seqs,
                               df_error *err) {
  df_attn *c = hybrid_executor(a, DF_MODE_TARGET_VERIFY);
  return c->ops->commit(c, batch, lens, n_seqs, err);
}

static void hybrid_free(df_attn *a) {
  hybrid *h = (hybrid *)a;
  if (h->verify != h->decode && h->verify != h->prefill) df_attn_free(h->verify);
  if (h->decode != h->prefill) df_attn_free(h->decode);
  df_attn_free(h->prefill);
  df_free(h);
}

static const df_attn_ops k_hybrid_ops = {.caps = hybrid_caps,
                                         .graph_init = hybrid_graph_init,
                                         .plan = hybrid_plan,
                                         .emit = hybrid_emit,
                                         .executor = hybrid_executor,
                                         .mask = hybrid_mask,
                                         .half = hybrid_half,
                                         .commit = hybrid_commit,
                                         .free = hybrid_free};

df_status df_attn_hybrid_create(df_attn *prefill, df_attn *decode, df_attn *verify, bool verify_on_decode,
                                df_attn **out, df_error *err) {
  hybrid *h = df_calloc(1, sizeof *h);
  if (!h) {
    if (verify != decode && verify != prefill) df_attn_free(verify);
    if (decode != prefill) df_attn_free(decode);
    df_attn_free(prefill);
    return DF_OOM(err, "an attention backend", sizeof *h);
  }
  *h = (hybrid){{&k_hybrid_ops, "hybrid"}, prefill, decode, verify, verify_on_decode};
  *out = &h->base;
  return DF_OK;
}
