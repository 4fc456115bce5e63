/* Setting an engine up: sizes, pool, target and draft at work, first costs. */
#include "attention/fault_injection.h"
#include "base/log.h"
#include "base/size.h"
#include "engine/backends.h"
#include "engine/engine.h"
#include "model/plan.h"

enum { PREFILL_ROWS = 256 }; /* rows of one prefill pass: enough to amortise reading the weights */

/* ---- set-up --------------------------------------------------------------------------------------------- */

static df_status choose_sizes(df_engine *e, const df_engine_params *ep, df_error *err) {
  const df_session_params *p = &ep->session;
  e->n_ctx = p->n_ctx ? p->n_ctx : df_context_default(&e->m->cfg);
  e->max_seqs = ep->max_seqs;
  if (e->n_ctx < DF_CTX_MIN || e->n_ctx > DF_CTX_MAX)
    return DF_FAIL(err, DF_ERR_ARGUMENT, "context size %u is outside %d..%d", e->n_ctx, DF_CTX_MIN, DF_CTX_MAX);
  if (e->max_seqs < 1 || e->max_seqs > DF_ENGINE_MAX_SEQS)
    return DF_FAIL(err, DF_ERR_ARGUMENT, "%u parallel requests are outside 1..%d", e->max_seqs, DF_ENGINE_MAX_SEQS);
  e->width = 1;
  if (!e->d) return DF_OK;
  const int32_t most = (int32_t)DF_MIN(e->d->cfg.block_size, (uint32_t)DF_MAX_WIDTH) - 1;
  int32_t drafts = p->spec_draft_max;
  e->auto_width = drafts < 0;
  if (e->auto_width) drafts = most;
  if (drafts > most) {
    df_error_set(err, DF_ERR_ARGUMENT, __FILE__, __LINE__, "%d drafted tokens exceed the %d of this draft's block",
                 drafts, most);
    df_error_hint(err, "drafted tokens do not count the target's own token: a block of 16 rows drafts 15");
    return DF_ERR_ARGUMENT;
  }
  e->width = (uint32_t)drafts + 1;
  return DF_OK;
}

static df_status init_target(df_engine *e, const df_session_params *p, df_error *err) {
  const df_config *c = &e->m->cfg;
  df_device *device = e->m->device;
  const df_attn_shape shape = {c->n_heads,        c->n_kv_heads, c->head_dim,  e->n_ctx,
                               device->n_workers, device,        e->pages.size};
  df_attn *attn;
  DF_TRY(df_backends_create(p, &shape, &attn, err));
  const df_status st = df_verify_mask_policy(attn, DF_DRAFT_CHAIN, &e->mask, err);
  if (st != DF_OK) {
    df_attn_free(attn);
    return st;
  }
  df_mask_layout captured = e->mask.layout;
  const char *fault = df_fault_mask_policy(attn, &captured);
  if (fault) df_log(DF_LOG_WARN, "%s", fault);
  const df_target_params tp = {.max_seqs = e->max_seqs,
                               .max_rows = DF_MAX(PREFILL_ROWS, e->max_seqs * DF_MAX_WIDTH),
                               .max_out = e->max_seqs * DF_MAX_WIDTH,
                               .max_positions = e->n_ctx,
                               .pages = &e->pages,
                               .kv = p->kv_f32 ? DF_KV_F32 : DF_KV_F16,
                               .graphs = !p->no_graph,
                               .attn = attn,
                               .taps = e->d ? e->d->cfg.taps : NULL,
                               .n_taps = e->d ? e->d->cfg.n_taps : 0,
                               .keeps = e->d ? e->max_seqs : 0,
                               .verify_mask = captured,
                               .seq_buckets = p->graph_seqs,
                               .n_seq_buckets = p->n_graph_seqs};
  DF_TRY(df_target_init(&e->target, e->m, &tp, err));
  e->has_target = true;
  return DF_OK;
}

size_t df_engine_graph_bytes(const df_engine *e) {
  return df_graphs_bytes(&e->target.runner.graphs) + (e->has_drafter ? df_graphs_bytes(&e->drafter.runner.graphs) : 0);
}

/* A limit that the programs of one request's step alone exceed is refused now, not in the middle of an answer. What is
 * left of a larger one goes to the programs that are asked for first; passes beyond it are emitted anew every time. */
static df_status set_graph_memory(df_engine *e, const df_session_params *p, df_error *err) {
  if (!p->graph_memory || p->no_graph) return DF_OK;
  DF_TRY(df_spec_prepare(&e->step, 1, e->width, false, err));
  const size_t need = df_engine_graph_bytes(e);
  if (need > p->graph_memory)
    return DF_FAIL(err, DF_ERR_LIMIT,
                   "a graph memory of %llu bytes is too small: the programs of one request's steps need %zu "
                   "(raise --graph-memory, or give --no-graph)",
                   (unsigned long long)p->graph_memory, need);
  e->graph_budget = (df_graph_budget){.limit = p->graph_memory, .used = need};
  e->target.runner.graphs.budget = &e->graph_budget;
  if (e->has_drafter) e->drafter.runner.graphs.budget = &e->graph_budget;
  return DF_OK;
}

static df_status init_all(df_engine *e, const df_engine_params *p, df_error *err) {
  DF_TRY(choose_sizes(e, p, err));
  const uint64_t tokens = p->kv_tokens ? p->kv_tokens : (uint64_t)e->n_ctx * e->max_seqs;
  const uint32_t page = p->session.page_size ? p->session.page_size : DF_KV_PAGE;
  const uint64_t slots = tokens + (uint64_t)(e->max_seqs - 1) * page; /* every sequence may leave a page open */
  if (slots > INT32_MAX)
    return DF_FAIL(err, DF_ERR_LIMIT, "a KV pool of %llu tokens is too large", (unsigned long long)tokens);
  DF_TRY(df_pages_init(&e->pages, page, (uint32_t)slots, err));
  /* What one request may fill: no more than there is. */
  e->n_ctx = (uint32_t)DF_MIN((uint64_t)e->n_ctx, (uint64_t)(e->pages.n_pages - 1) * page);
  e->prefill_rows = p->prefill_rows;
  DF_TRY(init_target(e, &p->session, err));
  if (e->d) {
    DF_TRY(df_drafter_init(&e->drafter, e->d, &e->target, DF_MAX_WIDTH, !p->session.no_graph, err));
    e->has_drafter = true;
  }
  e->step = (df_stepper){&e->target, e->has_drafter ? &e->drafter : NULL, &e->pages};
  DF_TRY(df_sampler_scratch_init(&e->scratch, e->m->cfg.vocab, err));
  DF_TRY(set_graph_memory(e, &p->session, err));
  df_width_estimate_init_all(&e->acceptance);
  e->costs.cuts =
      e->auto_width && e->has_drafter && e->m->device->is_host; /* logits of drafts lie elsewhere on others */
  return e->auto_width ? df_engine_calibrate(e, err) : DF_OK;
}

df_status df_engine_init(df_engine *e, df_model *m, df_draft *d, const df_engine_params *p, df_error *err) {
  *e = (df_engine){.m = m, .d = d};
  if (d && d->target != m) return DF_FAIL(err, DF_ERR_ARGUMENT, "the draft was opened for another model");
  const df_status s = init_all(e, p, err);
  if (s != DF_OK) df_engine_release(e);
  return s;
}

void df_engine_release(df_engine *e) {
  if (e->has_drafter) df_drafter_release(&e->drafter);
  if (e->has_target) df_target_release(&e->target);
  df_pages_release(&e->pages);
  df_sampler_scratch_release(&e->scratch);
  *e = (df_engine){0};
}
