#include "engine/doctor.h"

#include <string.h>

#include "attention/registry.h"
#include "base/mem.h"
#include "draft/draft.h"
#include "model/vocab.h"

void df_doctor_add(df_doctor *d, const char *setting, const df_error *error) {
  if (d->n_problems == DF_DOCTOR_PROBLEMS) d->n_problems--;
  d->problem[d->n_problems++] = (df_doctor_problem){setting, *error};
}

void df_doctor_release(df_doctor *d) {
  df_free(d->graph);
  df_draft_close(d->d);
  df_model_close(d->m);
  *d = (df_doctor){0};
}

/* ---- model and draft ------------------------------------------------------------------------------------- */

/* 0 when the draft does not carry a tokenizer, or one that cannot be read. */
static uint64_t tokenizer_of(const df_source *src) {
  const df_gguf *g = df_source_gguf(src);
  df_tokenizer *tok;
  if (!g || !df_gguf_has(g, "tokenizer.ggml.tokens") || df_vocab_from_gguf(g, &tok, NULL) != DF_OK) return 0;
  const uint64_t hash = df_tokenizer_hash(tok);
  df_tokenizer_free(tok);
  return hash;
}

/* Compares without loading weights, so that there is a report for a draft that is refused too. */
static void examine_fit(df_doctor *d, const char *path) {
  df_source *src;
  if (df_source_open(path, &src, NULL) != DF_OK) return;
  if (df_draft_check_fit(&d->m->cfg, df_source_config(src), df_tokenizer_hash(d->m->tok), tokenizer_of(src), &d->fit,
                         NULL) != DF_OK)
    d->fit.fits = false;
  d->has_fit = true;
  df_source_close(src);
}

/* True when the failure is about the machine or the user's patience, not about the configuration. */
static bool is_fatal(df_status s) { return s == DF_ERR_MEMORY || s == DF_ERR_CANCELLED; }

static df_status open_models(df_doctor *d, const df_doctor_params *p, const df_model_params *mp, df_error *err) {
  df_error why = {0};
  if (!p->model) return DF_OK;
  df_status s = df_model_open(p->model, mp, &d->m, &why);
  if (s != DF_OK) {
    df_doctor_add(d, "model", &why);
  } else if (p->draft) {
    examine_fit(d, p->draft);
    s = df_draft_open(p->draft, d->m, &p->draft_params, &d->d, &why);
    if (s != DF_OK) df_doctor_add(d, "spec-draft-model", &why);
  }
  if (!is_fatal(s)) return DF_OK;
  if (err) *err = why;
  return s;
}

/* ---- what is refused ------------------------------------------------------------------------------------- */

/* One that cannot be used is left for the processor. */
static void examine_device(df_doctor *d, df_model_params *p) {
  df_error why = {0};
  d->leaves = DF_LEAVES_HOST;
  if (df_device_check(p->device, &d->leaves, &why) == DF_OK) return;
  df_doctor_add(d, "device", &why);
  p->device = NULL;
}

/* A backend name that nobody knows is left out; aliases are noted. */
static void examine_name(df_doctor *d, const char *setting, const char **name) {
  const df_attn_entry *entry;
  bool alias;
  df_error why = {0};
  if (!*name) return;
  if (df_attn_find(*name, d->leaves, &entry, &alias, &why) != DF_OK) {
    df_doctor_add(d, setting, &why);
    *name = NULL;
  } else if (alias) {
    d->alias[d->n_aliases++] = (df_doctor_alias){setting, *name, entry->name};
  }
}

enum { N_RESETS = 8 };

/* Puts one group of settings back to its default; false when it is there already. */
static bool reset(df_session_params *s, unsigned which, const char **setting) {
  static const char *const names[N_RESETS] = {"spec-draft-n-max",
                                              "ctx-size",
                                              "page-size",
                                              "graph-bs",
                                              "graph-memory",
                                              "speculative-attention-mode",
                                              "verify-attention-backend",
                                              "attention-backend"};
  const df_session_params before = *s, def = df_session_params_default();
  *setting = names[which];
  switch (which) {
    case 0: s->spec_draft_max = def.spec_draft_max; break;
    case 1: s->n_ctx = def.n_ctx; break;
    case 2: s->page_size = def.page_size; break;
    case 3: s->graph_seqs = NULL, s->n_graph_seqs = 0; break;
    case 4: s->graph_memory = def.graph_memory; break;
    case 5: s->speculative_attention_mode = NULL; break;
    case 6: s->verify_attention_backend = NULL; break;
    default: s->attention_backend = s->prefill_attention_backend = s->decode_attention_backend = NULL; break;
  }
  return s->spec_draft_max != before.spec_draft_max || s->n_ctx != before.n_ctx || s->page_size != before.page_size ||
         s->graph_seqs != before.graph_seqs || s->graph_memory != before.graph_memory ||
         s->speculative_attention_mode != before.speculative_attention_mode ||
         s->verify_attention_backend != before.verify_attention_backend ||
         s->attention_backend != before.attention_backend ||
         s->prefill_attention_backend != before.prefill_attention_backend ||
         s->decode_attention_backend != before.decode_attention_backend;
}

/* Whose fault is a refusal? The first setting without which it goes away or becomes another one; it stays out. */
static bool blame(df_doctor *d, df_engine_params *ep, const df_error *refusal) {
  for (unsigned i = 0; i < N_RESETS; i++) {
    df_engine_params without = *ep;
    const char *setting;
    df_error other = {0};
    df_engine e;
    if (!reset(&without.session, i, &setting)) continue;
    const df_status s = df_engine_init(&e, d->m, d->d, &without, &other);
    if (s == DF_OK)
      df_engine_release(&e);
    else if (strcmp(other.msg, refusal->msg) == 0)
      continue;
    df_doctor_add(d, setting, refusal);
    *ep = without;
    return true;
  }
  df_doctor_add(d, "", refusal);
  return false;
}

/* An engine of all settings that are not refused. *made is false when even that is refused. */
static df_status make_engine(df_doctor *d, df_engine_params *ep, df_engine *e, bool *made, df_error *err) {
  for (;;) {
    df_error why = {0};
    const df_status s = df_engine_init(e, d->m, d->d, ep, &why);
    *made = s == DF_OK;
    if (is_fatal(s) && err) *err = why;
    if (s == DF_OK || is_fatal(s)) return s;
    if (!blame(d, ep, &why)) return DF_OK;
  }
}

/* ---- the plan -------------------------------------------------------------------------------------------- */

static void note_leaf(df_doctor *d, df_attn *leaf, df_mode mode) {
  uint32_t i = 0;
  while (i < d->n_leaves && strcmp(d->leaf[i].label, leaf->label) != 0) i++;
  if (i == DF_DOCTOR_LEAVES) return;
  if (i == d->n_leaves) d->leaf[d->n_leaves++] = (df_doctor_leaf){leaf->label, 0, leaf->ops->caps(leaf)};
  d->leaf[i].modes |= 1u << mode;
}

static df_status take_route(df_doctor *d, df_attn *a, df_mode mode, df_error *err) {
  df_doctor_route *r = &d->route[mode];
  df_attn *leaf;
  DF_TRY(df_attn_resolve(a, mode, &leaf, NULL, err)); /* bounds the walk below */
  for (r->path[r->n++] = a->label; a != leaf; r->path[r->n++] = a->label) a = a->ops->executor(a, mode);
  note_leaf(d, leaf, mode);
  return DF_OK;
}

static df_status take_routes(df_doctor *d, df_engine *e, df_error *err) {
  for (int m = 0; m < DF_MODE_COUNT; m++) d->route[m].mode = (df_mode)m;
  DF_TRY(take_route(d, e->target.attn, DF_MODE_EXTEND, err));
  DF_TRY(take_route(d, e->target.attn, DF_MODE_DECODE, err));
  DF_TRY(take_route(d, e->target.attn, DF_MODE_TARGET_VERIFY, err));
  DF_TRY(take_route(d, e->target.attn, DF_MODE_IDLE, err));
  return e->has_drafter ? take_route(d, e->drafter.attn, DF_MODE_DRAFT_BLOCK, err) : DF_OK;
}

/* What a leaf's capabilities forbid. */
static void examine_leaves(df_doctor *d, const df_engine *e) {
  const df_config *c = &e->m->cfg;
  bool window = false;
  for (uint32_t i = 0; i < c->n_layers; i++) window |= c->sliding[i];
  for (uint32_t i = 0; i < d->n_leaves; i++) {
    const df_doctor_leaf *l = &d->leaf[i];
    df_error why = {0};
    if (!(l->caps.page_sizes & e->pages.size)) {
      (void)DF_FAIL(&why, DF_ERR_UNSUPPORTED, "attention backend \"%s\" cannot read pages of %u tokens", l->label,
                    e->pages.size);
      df_doctor_add(d, "page-size", &why);
    }
    if (!(l->caps.kv_types & 1u << e->target.p.kv)) {
      (void)DF_FAIL(&why, DF_ERR_UNSUPPORTED, "attention backend \"%s\" cannot read this type of KV cache", l->label);
      df_doctor_add(d, "cache-type-k", &why);
    }
    if (window && !l->caps.sliding_window) {
      (void)DF_FAIL(&why, DF_ERR_UNSUPPORTED, "attention backend \"%s\" has no sliding window, the model needs one",
                    l->label);
      df_doctor_add(d, "attention-backend", &why);
    }
  }
}

static void copy_graphs(df_doctor *d, const df_graphs *g, bool of_draft) {
  for (uint32_t i = 0; i < g->n; i++)
    d->graph[d->n_graphs++] = (df_doctor_graph){of_draft, g->items[i].key, g->items[i].key.executor->label,
                                                df_program_bytes(g->items[i].program)};
}

/* Records the passes of a step for every bucket, as they would be at their first use. */
static df_status take_graphs(df_doctor *d, df_engine *e, df_error *err) {
  d->n_buckets = e->target.p.n_seq_buckets;
  memcpy(d->buckets, e->target.buckets, d->n_buckets * sizeof *d->buckets);
  d->graphs = e->target.runner.graphs.enabled;
  for (uint32_t i = 0; i < d->n_buckets && d->graphs; i++) {
    DF_TRY(df_spec_prepare(&e->step, d->buckets[i], e->width, false, err));
    DF_TRY(df_spec_prepare(&e->step, d->buckets[i], e->width, true, err));
  }
  d->graphs_full = e->target.runner.graphs.full || (e->has_drafter && e->drafter.runner.graphs.full);
  const uint32_t n = e->target.runner.graphs.n + (e->has_drafter ? e->drafter.runner.graphs.n : 0);
  d->graph = df_calloc(n ? n : 1, sizeof *d->graph);
  if (!d->graph) return DF_OOM(err, "the list of programs", n * sizeof *d->graph);
  copy_graphs(d, &e->target.runner.graphs, false);
  if (e->has_drafter) copy_graphs(d, &e->drafter.runner.graphs, true);
  return DF_OK;
}

static void take_memory(df_doctor *d, const df_engine *e) {
  df_doctor_memory *m = &d->memory;
  m->weights = df_model_get_info(d->m).weight_bytes;
  m->kv_token = df_kv_store_token_bytes(&e->target.kv);
  m->kv_pool = 2 * (uint64_t)e->target.kv.total_bytes;
  m->workspace = e->target.ws.bytes + e->target.taps_bytes;
  m->mask = e->target.mask.cap;
  m->programs = df_engine_graph_bytes(e);
  if (!e->has_drafter) return;
  m->draft_weights = df_draft_get_info(d->d).weight_bytes;
  m->draft_kv_token = df_kv_store_token_bytes(&e->drafter.kv);
  m->draft_kv_pool = 2 * (uint64_t)e->drafter.kv.total_bytes;
  m->draft_workspace = e->drafter.ws.bytes + e->drafter.block_bytes;
}

static df_status take_plan(df_doctor *d, df_engine *e, const df_session_params *p, df_error *err) {
  d->mask_layout = e->mask.layout;
  d->mask_executor = e->mask.executor->label;
  d->mask_reason = e->mask.reason;
  d->n_ctx = e->n_ctx;
  d->width = e->width;
  d->auto_width = e->has_drafter && p->spec_draft_max < 0;
  d->max_seqs = e->max_seqs;
  d->page_size = e->pages.size;
  d->pages = e->pages.n_pages - 1; /* without the sink */
  d->kv_f32 = p->kv_f32;
  d->overlap = p->two_batch_overlap;
  d->graph_limit = p->graph_memory;
  e->m->device->ops->info(e->m->device, &d->device);
  DF_TRY(take_routes(d, e, err));
  examine_leaves(d, e);
  DF_TRY(take_graphs(d, e, err));
  take_memory(d, e);
  d->has_plan = true;
  return DF_OK;
}

df_status df_doctor_run(const df_doctor_params *p, df_doctor *d, df_error *err) {
  df_engine_params ep = p->engine;
  df_session_params *s = &ep.session;
  df_engine e;
  bool made = false;
  df_model_params mp = p->model_params;
  examine_device(d, &mp);
  examine_name(d, "attention-backend", &s->attention_backend);
  examine_name(d, "prefill-attention-backend", &s->prefill_attention_backend);
  examine_name(d, "decode-attention-backend", &s->decode_attention_backend);
  examine_name(d, "verify-attention-backend", &s->verify_attention_backend);
  DF_TRY(open_models(d, p, &mp, err));
  if (!d->m) return DF_OK;
  d->device = d->m->device_info;
  DF_TRY(make_engine(d, &ep, &e, &made, err));
  if (!made) return DF_OK;
  df_error why = {0};
  const df_status st = take_plan(d, &e, s, &why);
  df_engine_release(&e);
  if (st == DF_OK) return DF_OK;
  df_doctor_add(d, "", &why);
  if (is_fatal(st) && err) *err = why;
  return is_fatal(st) ? st : DF_OK;
}
