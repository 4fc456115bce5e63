/* The report of "dflash doctor" as one JSON object. */
#include "base/cpu.h"
#include "cli/doctor_report.h"
#include "cli/inspect.h"

static void put_machine(df_json_out *w, const df_doctor *d) {
  char brand[80], features[96];
  df_cpu_brand(brand, sizeof brand);
  df_cpu_features_text(features, sizeof features);
  df_json_out_key(w, "machine");
  df_json_out_object(w);
  df_json_put_cstr(w, "processor", brand);
  df_json_put_u64(w, "processors", df_cpu_count());
  df_json_put_cstr(w, "features", features);
  df_json_put_cstr(w, "kernels", d->m ? df_model_get_info(d->m).cpu_tier : NULL);
  df_json_put_u64(w, "threads", d->m ? df_model_get_info(d->m).n_threads : 0);
  df_json_out_close(w);
}

static void put_device(df_json_out *w, const df_doctor *d) {
  const df_device_info *i = &d->device;
  char text[24];
  df_json_out_key(w, "device");
  df_json_out_object(w);
  df_json_put_cstr(w, "name", i->name);
  df_json_put_cstr(w, "card", i->card[0] ? i->card : NULL);
  if (i->card[0]) {
    (void)snprintf(text, sizeof text, "%u.%u", i->major, i->minor);
    df_json_put_cstr(w, "compute_capability", text);
    df_json_put_u64(w, "memory", i->memory_total);
    df_json_put_u64(w, "memory_free", i->memory_free);
    df_json_put_u64(w, "driver", i->driver);
    df_json_put_u64(w, "runtime", i->runtime);
    df_json_put_u64(w, "weights", i->mapped[DF_MEM_WEIGHTS]);
    df_json_put_u64(w, "scratch", i->mapped[DF_MEM_SCRATCH]);
  }
  df_json_out_close(w);
}

static void put_routes(df_json_out *w, const df_doctor *d) {
  df_json_out_key(w, "routes");
  df_json_out_object(w);
  for (int m = 0; m < DF_MODE_COUNT; m++) {
    const df_doctor_route *r = &d->route[m];
    df_json_out_key(w, df_mode_name(r->mode));
    df_json_out_array(w);
    for (uint32_t i = 0; i < r->n; i++) df_json_out_cstr(w, r->path[i]);
    df_json_out_close(w);
  }
  df_json_out_close(w);
  df_json_out_key(w, "verify_mask");
  df_json_out_object(w);
  df_json_put_cstr(w, "layout", df_mask_layout_name(d->mask_layout));
  df_json_put_cstr(w, "executor", d->mask_executor);
  df_json_put_cstr(w, "reason", d->mask_reason);
  df_json_out_close(w);
}

static void put_leaves(df_json_out *w, const df_doctor *d) {
  df_json_out_key(w, "backends");
  df_json_out_array(w);
  for (uint32_t i = 0; i < d->n_leaves; i++) {
    const df_doctor_leaf *l = &d->leaf[i];
    df_json_out_object(w);
    df_json_put_cstr(w, "name", l->label);
    df_json_out_key(w, "runs"), df_json_out_array(w);
    for (int m = 0; m < DF_MODE_COUNT; m++)
      if (l->modes & 1u << m) df_json_out_cstr(w, df_mode_name((df_mode)m));
    df_json_out_close(w);
    df_json_put_bool(w, "reads_mask", l->caps.reads_mask);
    df_json_out_key(w, "mask_layouts"), df_json_out_array(w);
    for (int m = 0; m <= DF_MASK_FULL; m++)
      if (l->caps.mask_layouts & 1u << m) df_json_out_cstr(w, df_mask_layout_name((df_mask_layout)m));
    df_json_out_close(w);
    df_json_put_bool(w, "causal", l->caps.causal);
    df_json_put_bool(w, "sliding_window", l->caps.sliding_window);
    df_json_put_bool(w, "inexact", l->caps.inexact);
    df_json_out_key(w, "max_rows");
    if (l->caps.max_rows == UINT32_MAX)
      df_json_out_null(w);
    else
      df_json_out_u64(w, l->caps.max_rows);
    df_json_out_key(w, "page_sizes"), df_json_out_array(w);
    for (uint32_t s = 1; s && s <= 64; s *= 2)
      if (l->caps.page_sizes & s) df_json_out_u64(w, s);
    df_json_out_close(w);
    df_json_out_key(w, "kv_types"), df_json_out_array(w);
    if (l->caps.kv_types & 1u << DF_KV_F16) df_json_out_cstr(w, "f16");
    if (l->caps.kv_types & 1u << DF_KV_F32) df_json_out_cstr(w, "f32");
    df_json_out_close(w);
    df_json_out_close(w);
  }
  df_json_out_close(w);
}

static void put_graphs(df_json_out *w, const df_doctor *d) {
  df_json_out_key(w, "programs");
  df_json_out_object(w);
  df_json_put_bool(w, "recorded", d->graphs);
  df_json_out_key(w, "batch_sizes"), df_json_out_array(w);
  for (uint32_t i = 0; i < d->n_buckets; i++) df_json_out_u64(w, d->buckets[i]);
  df_json_out_close(w);
  df_json_put_u64(w, "width", d->width);
  df_json_put_bool(w, "auto_width", d->auto_width);
  df_json_out_key(w, "items"), df_json_out_array(w);
  for (uint32_t i = 0; i < d->n_graphs; i++) {
    const df_doctor_graph *g = &d->graph[i];
    df_json_out_object(w);
    df_json_put_cstr(w, "of", g->of_draft ? "draft" : "target");
    df_json_put_cstr(w, "mode", df_mode_name(g->key.mode));
    df_json_put_u64(w, "batch", g->key.seqs);
    df_json_put_u64(w, "rows", g->key.rows);
    df_json_put_cstr(w, "tail", df_tail_text(g->key.tail));
    df_json_put_cstr(w, "executor", g->executor);
    df_json_put_cstr(w, "mask", df_mask_layout_name(g->key.mask));
    df_json_put_u64(w, "bytes", g->bytes);
    df_json_out_close(w);
  }
  df_json_out_close(w);
  df_json_put_u64(w, "bytes", d->memory.programs);
  df_json_out_key(w, "full"), df_json_out_bool(w, d->graphs_full);
  df_json_out_key(w, "limit");
  if (d->graph_limit)
    df_json_out_u64(w, d->graph_limit);
  else
    df_json_out_null(w);
  df_json_out_close(w);
}

static void put_memory(df_json_out *w, const df_doctor *d) {
  const df_doctor_memory *m = &d->memory;
  df_json_out_key(w, "memory");
  df_json_out_object(w);
  df_json_put_u64(w, "n_ctx", d->n_ctx);
  df_json_put_u64(w, "max_requests", d->max_seqs);
  df_json_put_u64(w, "page_size", d->page_size);
  df_json_put_u64(w, "pages", d->pages);
  df_json_put_cstr(w, "kv_type", d->kv_f32 ? "f32" : "f16");
  df_json_put_u64(w, "weights", m->weights);
  df_json_put_u64(w, "draft_weights", m->draft_weights);
  df_json_put_u64(w, "kv_token", m->kv_token);
  df_json_put_u64(w, "draft_kv_token", m->draft_kv_token);
  df_json_put_u64(w, "kv_pool", m->kv_pool);
  df_json_put_u64(w, "draft_kv_pool", m->draft_kv_pool);
  df_json_put_u64(w, "workspace", m->workspace);
  df_json_put_u64(w, "draft_workspace", m->draft_workspace);
  df_json_put_u64(w, "verify_masks", m->mask);
  df_json_out_close(w);
}

static void put_problems(df_json_out *w, const df_doctor *d) {
  df_json_out_key(w, "aliases");
  df_json_out_array(w);
  for (uint32_t i = 0; i < d->n_aliases; i++) {
    df_json_out_object(w);
    df_json_put_cstr(w, "option", d->alias[i].setting);
    df_json_put_cstr(w, "given", d->alias[i].given);
    df_json_put_cstr(w, "backend", d->alias[i].leaf);
    df_json_out_close(w);
  }
  df_json_out_close(w);
  df_json_put_bool(w, "accepted", d->n_problems == 0);
  df_json_out_key(w, "problems");
  df_json_out_array(w);
  for (uint32_t i = 0; i < d->n_problems; i++) {
    const df_doctor_problem *p = &d->problem[i];
    df_json_out_object(w);
    df_json_put_cstr(w, "option", p->setting[0] ? p->setting : NULL);
    df_json_put_cstr(w, "status", df_status_name(p->error.code));
    df_json_put_cstr(w, "message", p->error.msg);
    df_json_put_cstr(w, "hint", p->error.hint[0] ? p->error.hint : NULL);
    df_json_out_close(w);
  }
  df_json_out_close(w);
}

df_status df_doctor_json(const df_doctor *d, const df_cli *cli, df_error *err) {
  df_buf b;
  df_json_out w;
  df_buf_init(&b, 0);
  df_json_out_begin(&w, &b, err);
  df_json_out_object(&w);
  df_json_put_cstr(&w, "model", df_opt_text(&cli->opts, OPT_MODEL, NULL));
  df_json_put_cstr(&w, "draft", df_opt_text(&cli->opts, OPT_DRAFT_MODEL, NULL));
  put_machine(&w, d);
  if (d->m) put_device(&w, d);
  if (d->has_plan) {
    put_routes(&w, d);
    put_leaves(&w, d);
    put_graphs(&w, d);
    put_memory(&w, d);
  }
  if (d->has_fit) df_fit_json(&w, &d->fit);
  put_problems(&w, d);
  df_json_out_close(&w);
  df_status st = df_json_out_end(&w);
  if (st == DF_OK) puts(b.data);
  df_buf_release(&b);
  return st;
}
