/*
 * model/graph.h - recorded programs by graph key. The key holds everything the emitted ops depend on, so a lookup can
 * never return a program captured for another mask layout, width or backend.
 */
#ifndef DF_MODEL_GRAPH_H
#define DF_MODEL_GRAPH_H

#include "attention/backend.h"

typedef enum df_tail {
  DF_TAIL_NONE,   /* K and V only */
  DF_TAIL_LOGITS, /* logits of the batch's output rows */
  DF_TAIL_ARGMAX, /* logits and the best token of each */
  DF_TAIL_DRAFTED /* the same for a verify pass whose drafts stayed on the device: it takes them there, and tells the
                   * host of them and of how many stand */
} df_tail;

typedef struct df_graph_key {
  df_mode mode;
  uint32_t seqs; /* sequence bucket */
  uint32_t rows; /* rows per sequence (verify, draft), or the row bucket of a ragged pass */
  df_kv_type kv;
  uint32_t taps; /* bit set or count that identifies the tap set */
  df_tail tail;
  const df_attn *executor; /* the leaf that runs the mode */
  df_mask_layout mask;
} df_graph_key;

enum { DF_MAX_GRAPHS = 1024 }; /* more than sequence buckets x widths x tails */

typedef struct df_graph {
  df_graph_key key;
  df_program *program;
} df_graph;

/* What recorded programs may take together: the tables of target and draft share one. */
typedef struct df_graph_budget {
  uint64_t limit, used; /* bytes */
} df_graph_budget;

typedef struct df_graphs {
  df_graph *items; /* [DF_MAX_GRAPHS] */
  uint32_t n;
  df_program *eager;       /* reused by every eager pass */
  df_graph_budget *budget; /* borrowed; NULL = no limit */
  bool enabled;
  bool full; /* nothing more is recorded: passes without a program run eagerly */
} df_graphs;

df_status df_graphs_init(df_graphs *g, bool enabled, df_error *err) DF_CHECK;
void df_graphs_release(df_graphs *g);
bool df_graph_key_equal(const df_graph_key *a, const df_graph_key *b);
/* The program of this key, or NULL. */
df_program *df_graphs_find(const df_graphs *g, const df_graph_key *key);
/* Takes a freshly emitted program and keeps it under its key; where the table or the budget is full it becomes the
 * eager program instead, and no more are kept. No pass may be running. */
void df_graphs_add(df_graphs *g, const df_graph_key *key, df_program *p);
/* Memory of all recorded programs. */
size_t df_graphs_bytes(const df_graphs *g);

/* The mask contract, for every leaf: a program captured with a mask layout other than NONE must be planned with a mask
 * of that layout that covers the batch; one captured with NONE refuses a mask. DF_ERR_MASK_CONTRACT names mode, bucket,
 * executor, captured and given layout. */
df_status df_mask_guard(const df_graph_key *captured, const df_batch *live, df_error *err) DF_CHECK;

#endif
