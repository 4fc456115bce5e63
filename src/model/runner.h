/*
 * model/runner.h - runs passes: records a program once per graph key and replays it, or emits anew every time.
 */
#ifndef DF_MODEL_RUNNER_H
#define DF_MODEL_RUNNER_H

#include "device/device.h"
#include "model/graph.h"

typedef struct df_runner {
  df_device *device; /* borrowed */
  df_attn *attn;     /* borrowed; planned before every pass */
  df_graphs graphs;
} df_runner;

/* Emits the pass of `key` into p. */
typedef df_status (*df_emit_fn)(void *ctx, df_program *p, const df_graph_key *key, df_error *err);

df_status df_runner_init(df_runner *r, df_device *device, df_attn *attn, bool graphs, df_error *err) DF_CHECK;
void df_runner_release(df_runner *r);

/* max_rows, max_seqs: bounds of the live counts in `batch` for this key. Checks the mask contract, plans the backend,
 * copies the pass's mask to `mask` (NULL for programs without one), runs. */
df_status df_runner_run(df_runner *r, const df_graph_key *key, const df_batch *batch, df_mask_buffer *mask,
                        uint32_t max_rows, uint32_t max_seqs, df_emit_fn emit, void *ctx, df_error *err) DF_CHECK;

/* Records the pass now when it is not there yet and there is room, so that no later step allocates. Nothing to do in
 * eager mode. */
df_status df_runner_prepare(df_runner *r, const df_graph_key *key, uint32_t max_rows, uint32_t max_seqs,
                            df_emit_fn emit, void *ctx, df_error *err) DF_CHECK;

#endif
