#include "support/engine_probe.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#include <math.h>
#include <string.h>

#include "engine/backends.h"

static void must(df_status s, const df_error *err) {
  if (s != DF_OK) fail_msg("%s: %s", df_status_name(s), err->msg);
}

void probe_init(engine_probe *p, df_model *m, df_draft *d, bool all_layers, df_kv_type kv, uint32_t max_positions) {
  df_error err = {0};
  uint32_t every[DF_LIMIT_TAPS];
  const df_config *c = &m->cfg;
  const df_session_params sp = df_session_params_default();
  const df_attn_shape shape = {c->n_heads,           c->n_kv_heads, c->head_dim, max_positions,
                               m->device->n_workers, m->device,     DF_KV_PAGE};
  *p = (engine_probe){.kv = kv};
  assert_true(c->n_layers <= DF_LIMIT_TAPS && !(all_layers && d));
  for (uint32_t i = 0; i < c->n_layers; i++) every[i] = i;
  must(df_pages_init(&p->pages, DF_KV_PAGE, max_positions, &err), &err);
  must(df_kv_seq_init(&p->seq, DF_KV_PAGE, max_positions, &err), &err);
  df_attn *attn = NULL;
  must(df_backends_create(&sp, &shape, &attn, &err), &err);
  const df_target_params tp = {.max_seqs = 1,
                               .max_rows = PROBE_ROWS,
                               .max_out = PROBE_ROWS,
                               .max_positions = max_positions,
                               .pages = &p->pages,
                               .kv = kv,
                               .graphs = true,
                               .attn = attn,
                               .taps = all_layers ? every
                                       : d        ? d->cfg.taps
                                                  : NULL,
                               .n_taps = all_layers ? c->n_layers
                                         : d        ? d->cfg.n_taps
                                                    : 0};
  must(df_target_init(&p->target, m, &tp, &err), &err);
  if (!d) return;
  must(df_drafter_init(&p->drafter, d, &p->target, DF_MAX_WIDTH, true, &err), &err);
  p->has_drafter = true;
}

void probe_release(engine_probe *p) {
  if (p->has_drafter) df_drafter_release(&p->drafter);
  df_target_release(&p->target);
  df_kv_seq_release(&p->seq, &p->pages);
  df_pages_release(&p->pages);
}

void probe_run(engine_probe *p, const int32_t *ids, uint32_t n, uint32_t first) {
  df_error err = {0};
  assert_true(n > 0 && n <= PROBE_ROWS);
  must(df_kv_seq_reserve(&p->seq, &p->pages, first + n, &err), &err);
  df_fill_begin(&p->target.batch);
  assert_int_equal(df_fill_add(&p->target.batch, &p->seq, ids, n, first, DF_OUT_ALL), 0);
  must(df_target_run(&p->target, DF_MODE_EXTEND, DF_TAIL_ARGMAX, &err), &err);
  if (!p->has_drafter) return;
  const df_inject_item in = {&p->seq, 0, n, first};
  must(df_drafter_inject(&p->drafter, &in, 1, &err), &err);
}

const float *probe_logits(const engine_probe *p, uint32_t row) {
  return p->target.ws.logits + row * p->target.ws.logits_ld;
}

const float *probe_tap(const engine_probe *p, uint32_t row, uint32_t tap) {
  assert_true(tap < p->target.p.n_taps);
  return p->target.taps + ((size_t)row * p->target.p.n_taps + tap) * p->target.m->cfg.hidden;
}

static void norm_row(const float *x, const float *w, uint32_t n, double eps, float *out) {
  double sum = 0;
  for (uint32_t i = 0; i < n; i++) sum += (double)x[i] * x[i];
  const double r = 1 / sqrt(sum / n + eps);
  for (uint32_t i = 0; i < n; i++) out[i] = (float)(x[i] * r * w[i]);
}

void probe_final_norm(const engine_probe *p, const float *x, float *out) {
  const df_model *m = p->target.m;
  norm_row(x, m->final_norm, m->cfg.hidden, m->cfg.rms_eps, out);
}

void probe_feature(const engine_probe *p, uint32_t row, float *out) {
  const df_draft *d = p->drafter.d;
  norm_row(p->drafter.fused + (size_t)row * d->cfg.hidden, d->hidden_norm, d->cfg.hidden, d->cfg.rms_eps, out);
}

static float element(df_kv_type type, const uint8_t *base, size_t i) {
  float f;
  uint16_t h;
  if (type == DF_KV_F32) {
    memcpy(&f, base + i * sizeof f, sizeof f);
    return f;
  }
  memcpy(&h, base + i * sizeof h, sizeof h);
  return df_f16_to_f32(h);
}

/* K pages hold [channel][position], V pages [position][channel]. */
void probe_drafter_kv(const df_drafter *r, const df_kv_seq *seq, uint32_t layer, uint32_t head, uint32_t pos, float *k,
                      float *v) {
  const df_config *c = &r->d->cfg;
  const df_kv_view kv = df_kv_store_layer(&r->kv, layer);
  const uint32_t slot = df_kv_slot(seq, pos), at = slot % DF_KV_PAGE;
  const size_t page = head * kv.head_stride + slot / DF_KV_PAGE * kv.head_bytes;
  for (uint32_t i = 0; i < c->head_dim; i++) {
    k[i] = element(kv.type, kv.k + page, (size_t)i * DF_KV_PAGE + at);
    v[i] = element(kv.type, kv.v + page, (size_t)at * c->head_dim + i);
  }
}

void probe_draft_kv(const engine_probe *p, uint32_t layer, uint32_t head, uint32_t pos, float *k, float *v) {
  probe_drafter_kv(&p->drafter, &p->seq, layer, head, pos, k, v);
}

void probe_draft(engine_probe *p, int32_t anchor, uint32_t n, uint32_t width, int32_t *drafted) {
  df_error err = {0};
  must(df_kv_seq_reserve(&p->seq, &p->pages, n + width, &err), &err);
  const df_draft_item item = {.seq = &p->seq, .anchor = anchor, .n = n, .drafted = drafted};
  must(df_drafter_draft(&p->drafter, &item, 1, width, &err), &err);
}

const float *probe_draft_logits(const engine_probe *p, uint32_t slot) {
  assert_true(slot >= 1);
  return p->drafter.ws.logits + (slot - 1) * p->drafter.ws.logits_ld;
}

double probe_norm(const float *x, uint32_t n) {
  double s = 0;
  for (uint32_t i = 0; i < n; i++) s += (double)x[i] * x[i];
  return sqrt(s);
}
