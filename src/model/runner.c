#include "model/runner.h"

df_status df_runner_init(df_runner *r, df_device *device, df_attn *attn, bool graphs, df_error *err) {
  *r = (df_runner){.device = device, .attn = attn};
  return df_graphs_init(&r->graphs, graphs, err);
}

void df_runner_release(df_runner *r) {
  if (r->device) r->device->ops->quiesce(r->device);
  df_graphs_release(&r->graphs);
}

static df_status capture(df_runner *r, const df_graph_key *key, uint32_t max_rows, uint32_t max_seqs, df_emit_fn emit,
                         void *ctx, df_program **out, df_error *err) {
  df_program *p;
  DF_TRY(df_program_create(max_rows, max_seqs, r->device->n_workers, &p, err));
  df_status s = emit(ctx, p, key, err);
  if (s == DF_OK) s = r->device->ops->prepare(r->device, p, true, err);
  if (s != DF_OK) {
    df_program_free(p);
    return s;
  }
  r->device->ops->quiesce(r->device); /* the eager program of earlier passes may have to make room */
  df_graphs_add(&r->graphs, key, p);
  *out = p;
  return DF_OK;
}

static df_status emit_eager(df_runner *r, const df_graph_key *key, uint32_t max_rows, uint32_t max_seqs,
                            df_emit_fn emit, void *ctx, df_program **out, df_error *err) {
  df_graphs *g = &r->graphs;
  if (!g->eager) DF_TRY(df_program_create(max_rows, max_seqs, r->device->n_workers, &g->eager, err));
  r->device->ops->quiesce(r->device);
  df_program_clear(g->eager, max_rows, max_seqs);
  *out = g->eager;
  DF_TRY(emit(ctx, g->eager, key, err));
  return r->device->ops->prepare(r->device, g->eager, false, err);
}

static df_status load_mask(df_device *d, df_mask_buffer *mask, const df_batch *batch, df_error *err) {
  DF_TRY(df_mask_buffer_load(mask, batch, err));
  DF_TRY(d->ops->put(d, mask->bytes, mask->used, err));
  return d->ops->put(d, mask->start, mask->max_seqs * sizeof *mask->start, err);
}

df_status df_runner_run(df_runner *r, const df_graph_key *key, const df_batch *batch, df_mask_buffer *mask,
                        uint32_t max_rows, uint32_t max_seqs, df_emit_fn emit, void *ctx, df_error *err) {
  df_program *p = r->graphs.enabled ? df_graphs_find(&r->graphs, key) : NULL;
  const bool replay = p != NULL, record = r->graphs.enabled && !r->graphs.full;
  const df_attn_phase phase = replay ? DF_PHASE_REPLAY : record ? DF_PHASE_CAPTURE : DF_PHASE_EAGER;
  if (!replay) {
    if (record)
      DF_TRY(capture(r, key, max_rows, max_seqs, emit, ctx, &p, err));
    else
      DF_TRY(emit_eager(r, key, max_rows, max_seqs, emit, ctx, &p, err));
  }
  DF_TRY(df_mask_guard(key, batch, err));
  DF_TRY(r->attn->ops->plan(r->attn, p, batch, key->mode, phase, err));
  if (mask && batch->mask) DF_TRY(load_mask(r->device, mask, batch, err));
  return r->device->ops->run(r->device, p, err);
}

df_status df_runner_prepare(df_runner *r, const df_graph_key *key, uint32_t max_rows, uint32_t max_seqs,
                            df_emit_fn emit, void *ctx, df_error *err) {
  df_program *p;
  if (!r->graphs.enabled || r->graphs.full || df_graphs_find(&r->graphs, key)) return DF_OK;
  return capture(r, key, max_rows, max_seqs, emit, ctx, &p, err);
}
