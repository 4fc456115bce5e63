/*
 * support/engine_probe.h - a target (and draft) laid open: rows are run one pass at a time, and logits, layer outputs,
 * draft features, draft K and V and draft logits can be read. Everything fails the current test when it cannot be done.
 *
 * Ownership: borrows model and draft. Threads: one.
 */
#ifndef DF_TEST_SUPPORT_ENGINE_PROBE_H
#define DF_TEST_SUPPORT_ENGINE_PROBE_H

#include "draft/drafter.h"
#include "spec/step.h"

enum { PROBE_ROWS = 64 }; /* rows of one pass; all of them leave through the head */

typedef struct engine_probe {
  df_pages pages;
  df_kv_seq seq;
  df_target target;
  df_drafter drafter;
  bool has_drafter;
  df_kv_type kv;
} engine_probe;

/* all_layers: the target taps every layer (no draft then); otherwise the draft's taps, or none without a draft. */
void probe_init(engine_probe *p, df_model *m, df_draft *d, bool all_layers, df_kv_type kv, uint32_t max_positions);
void probe_release(engine_probe *p);

/* One pass over n <= PROBE_ROWS tokens at positions first.., with injection into the draft's K and V if there is one.
 */
void probe_run(engine_probe *p, const int32_t *ids, uint32_t n, uint32_t first);
const float *probe_logits(const engine_probe *p, uint32_t row);            /* of the last pass */
const float *probe_tap(const engine_probe *p, uint32_t row, uint32_t tap); /* stream after the tapped layer */
/* Final norm of a stream row, worked out here in double. */
void probe_final_norm(const engine_probe *p, const float *x, float *out);

/* Fused, normalised feature of a row of the last pass; hidden values. */
void probe_feature(const engine_probe *p, uint32_t row, float *out);
/* Draft K and V of one position and KV head: head_dim values each. */
void probe_draft_kv(const engine_probe *p, uint32_t layer, uint32_t head, uint32_t pos, float *k, float *v);
/* The same of any drafter and sequence. */
void probe_drafter_kv(const df_drafter *r, const df_kv_seq *seq, uint32_t layer, uint32_t head, uint32_t pos, float *k,
                      float *v);
/* A block of `width` rows behind n valid positions. */
void probe_draft(engine_probe *p, int32_t anchor, uint32_t n, uint32_t width, int32_t *drafted);
const float *probe_draft_logits(const engine_probe *p, uint32_t slot); /* slots count from 1 */

double probe_norm(const float *x, uint32_t n);

#endif
