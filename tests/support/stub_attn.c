#include "support/stub_attn.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#include <string.h>

/* The ops take const backends where nothing of them changes; a stub counts all the same. */
static stub_attn *self(const df_attn *a) {
  union {
    const df_attn *in;
    stub_attn *out;
  } u = {a};
  return u.out;
}

static df_attn_caps stub_caps(const df_attn *a) {
  self(a)->calls[STUB_CAPS]++;
  return self(a)->caps;
}

static df_status answer(stub_attn *s, df_error *err) {
  if (s->result == DF_OK) return DF_OK;
  return DF_FAIL(err, s->result, "stub \"%s\" was told to fail", s->base.label);
}

static df_status stub_graph_init(df_attn *a, uint32_t max_seqs, uint32_t max_rows, df_error *err) {
  stub_attn *s = self(a);
  s->calls[STUB_GRAPH_INIT]++;
  s->n_seqs = max_seqs;
  s->n_rows = max_rows;
  return answer(s, err);
}

static df_status stub_plan(df_attn *a, const df_program *p, const df_batch *batch, df_mode mode, df_attn_phase phase,
                           df_error *err) {
  stub_attn *s = self(a);
  s->calls[STUB_PLAN]++;
  s->program = p;
  s->batch = batch;
  s->mode = mode;
  s->phase = phase;
  return answer(s, err);
}

static df_status stub_emit(df_attn *a, const df_attn_pass *pass, const df_attn_layer *layer, df_error *err) {
  stub_attn *s = self(a);
  s->calls[STUB_EMIT]++;
  s->pass = pass;
  s->layer = layer;
  s->mode = pass->mode;
  if (s->kind == STUB_WRAPPER && s->child) return s->child->ops->emit(s->child, pass, layer, err);
  return answer(s, err);
}

static df_attn *stub_executor(df_attn *a, df_mode mode) {
  stub_attn *s = self(a);
  s->calls[STUB_EXECUTOR]++;
  s->mode = mode;
  return s->kind == STUB_LEAF ? a : s->child;
}

static const df_verify_mask *stub_mask(const df_attn *a) {
  self(a)->calls[STUB_MASK]++;
  return &self(a)->mask;
}

static df_attn *stub_half(df_attn *a, uint32_t i) {
  self(a)->calls[STUB_HALF]++;
  self(a)->index = i;
  return self(a)->half[i & 1];
}

static df_status stub_commit(df_attn *a, const df_batch *batch, const uint32_t *lens, uint32_t n_seqs, df_error *err) {
  stub_attn *s = self(a);
  s->calls[STUB_COMMIT]++;
  s->batch = batch;
  s->lens = lens;
  s->n_seqs = n_seqs;
  return answer(s, err);
}

static void stub_free(df_attn *a) { self(a)->calls[STUB_FREE]++; }

static const df_attn_ops k_stub_ops = {.caps = stub_caps,
                                       .graph_init = stub_graph_init,
                                       .plan = stub_plan,
                                       .emit = stub_emit,
                                       .executor = stub_executor,
                                       .mask = stub_mask,
                                       .half = stub_half,
                                       .commit = stub_commit,
                                       .free = stub_free};

df_attn_caps stub_caps_all(void) {
  return (df_attn_caps){.reads_mask = true,
                        .mask_layouts = 1u << DF_MASK_NONE | 1u << DF_MASK_QLEN | 1u << DF_MASK_FULL,
                        .causal = true,
                        .sliding_window = true,
                        .graph_safe = true,
                        .max_rows = 1000,
                        .kv_types = 1u << DF_KV_F16 | 1u << DF_KV_F32,
                        .page_sizes = 1 | 16 | 64};
}

stub_attn stub_leaf(const char *label, df_attn_caps caps) {
  return (stub_attn){.base = {&k_stub_ops, label}, .kind = STUB_LEAF, .caps = caps};
}

stub_attn stub_wrapper(const char *label, df_attn *child) {
  return (stub_attn){.base = {&k_stub_ops, label}, .kind = STUB_WRAPPER, .caps = stub_caps_all(), .child = child};
}

void stub_redirect(df_attn *w, const df_attn *from, df_attn *to) {
  uint8_t *words = (uint8_t *)w + sizeof *w;
  for (int i = 0; i < 3; i++) {
    const df_attn *p;
    memcpy(&p, words + i * sizeof p, sizeof p);
    if (p != from) continue;
    memcpy(words + i * sizeof to, &to, sizeof to);
    return;
  }
  fail_msg("\"%s\" has no such child", w->label);
}
