#include "model/graph.h"

#include "attention/fault_injection.h"
#include "base/mem.h"

df_status df_graphs_init(df_graphs *g, bool enabled, df_error *err) {
  df_graph *items = df_calloc(DF_MAX_GRAPHS, sizeof *items);
  if (!items) return DF_OOM(err, "the graph table", DF_MAX_GRAPHS * sizeof *items);
  *g = (df_graphs){.items = items, .enabled = enabled};
  return DF_OK;
}

void df_graphs_release(df_graphs *g) {
  for (uint32_t i = 0; i < g->n; i++) df_program_free(g->items[i].program);
  df_program_free(g->eager);
  df_free(g->items);
  *g = (df_graphs){0};
}

bool df_graph_key_equal(const df_graph_key *a, const df_graph_key *b) {
  return a->mode == b->mode && a->seqs == b->seqs && a->rows == b->rows && a->kv == b->kv && a->taps == b->taps &&
         a->tail == b->tail && a->executor == b->executor && a->mask == b->mask;
}

df_program *df_graphs_find(const df_graphs *g, const df_graph_key *key) {
  for (uint32_t i = 0; i < g->n; i++)
    if (df_graph_key_equal(&g->items[i].key, key)) return g->items[i].program;
  return NULL;
}

void df_graphs_add(df_graphs *g, const df_graph_key *key, df_program *p) {
  const size_t bytes = df_program_bytes(p);
  g->full |= g->n == DF_MAX_GRAPHS || (g->budget && bytes > g->budget->limit - g->budget->used);
  if (g->full) {
    df_program_free(g->eager);
    g->eager = p;
    return;
  }
  if (g->budget) g->budget->used += bytes;
  g->items[g->n++] = (df_graph){*key, p};
}

size_t df_graphs_bytes(const df_graphs *g) {
  size_t n = 0;
  for (uint32_t i = 0; i < g->n; i++) n += df_program_bytes(g->items[i].program);
  return n;
}

df_status df_mask_guard(const df_graph_key *key, const df_batch *live, df_error *err) {
  const df_mask_layout given = live->mask ? live->mask_layout : DF_MASK_NONE;
  if (given == key->mask || !df_fault_mask_guard()) return DF_OK;
  df_error_set(err, DF_ERR_MASK_CONTRACT, __FILE__, __LINE__,
               "%s program (bucket %u x %u rows, executor \"%s\") was captured with a %s mask but planned with %s",
               df_mode_name(key->mode), key->seqs, key->rows, key->executor->label, df_mask_layout_name(key->mask),
               given == DF_MASK_NONE ? "none" : df_mask_layout_name(given));
  return DF_ERR_MASK_CONTRACT;
}
