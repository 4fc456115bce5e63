/* First prices for the width controller: steps of a few widths, timed on a made-up sequence. What the cache holds does
 * not matter for time. */
#include "base/clock.h"
#include "base/size.h"
#include "engine/engine.h"

enum {
  DEPTH = 768, /* KV length of the second measurement */
  RUN = 2,     /* steps of one kind in a row, as they come in a generation: the first pays for what lay before it */
  N_WIDTHS = 4
};

static const double k_budget_ms = 80; /* a start must not be felt; a slow model gets single steps of two widths */

typedef struct timing {
  uint32_t width;
  bool known[2];
  double verify[2], draft[2]; /* without and with a long cache */
} timing;

static df_status never_pick(void *ctx, uint32_t row, uint32_t out_row, int32_t *id, df_error *err) {
  (void)ctx, (void)row, (void)out_row, (void)err;
  *id = -1; /* accepts nothing */
  return DF_OK;
}

/* The best of a few steps in a row. */
static df_status time_steps(df_engine *e, df_kv_seq *seq, timing *at, uint32_t depth, uint64_t end, df_error *err) {
  const uint32_t deep = depth > 0;
  double *verify = &at->verify[deep], *draft = &at->draft[deep];
  for (uint32_t i = 0; i < RUN; i++) {
    df_step_item it = {.seq = seq, .n = depth, .pick = never_pick};
    df_step_times t;
    const df_step_plan plan = {.width = at->width, .apart = !e->m->device->is_host};
    DF_TRY(df_spec_step(&e->step, &it, 1, &plan, &t, err));
    const double v = df_step_verify_ms(&t), d = df_step_draft_ms(&t);
    *verify = i == 0 || v < *verify ? v : *verify;
    *draft = i == 0 || d < *draft ? d : *draft;
    at->known[deep] = true;
    if (df_now_ns() > end) break;
  }
  return DF_OK;
}

/* Most telling first, as far as the time goes; the price of one row and of one block is always measured. */
static df_status time_all(df_engine *e, df_kv_seq *seq, timing *w, uint32_t depth, df_error *err) {
  static const uint8_t k_order[][2] = {{0, 0}, {2, 0}, {0, 1}, {2, 1}, {1, 0}, {3, 0}};
  const uint64_t end = df_now_ns() + (uint64_t)(k_budget_ms * 1e6);
  for (size_t i = 0; i < DF_COUNT_OF(k_order); i++) {
    timing *at = &w[k_order[i][0]];
    if (at->width == 0 || (i >= 2 && df_now_ns() > end)) continue;
    DF_TRY(time_steps(e, seq, at, k_order[i][1] ? depth : 0, end, err));
  }
  return DF_OK;
}

/* What a long cache adds to the widths that were timed without one: in proportion to rows between those two. */
static void fill_deep(timing *w) {
  const timing *one = &w[0], *block = &w[2];
  if (!one->known[1] || !block->known[1] || block->width <= 1) return;
  for (uint32_t i = 1; i < N_WIDTHS; i += 2) {
    if (!w[i].known[0]) continue;
    const double share = (double)(w[i].width - 1) / (block->width - 1);
    const double v1 = one->verify[1] - one->verify[0], v8 = block->verify[1] - block->verify[0];
    w[i].verify[1] = w[i].verify[0] + v1 + (v8 - v1) * share;
    w[i].draft[1] = w[i].draft[0] + (block->draft[1] - block->draft[0]) * share;
    w[i].known[1] = true;
  }
}

df_status df_engine_calibrate(df_engine *e, df_error *err) {
  static const uint32_t k_widths[N_WIDTHS] = {1, 3, 8, 16};
  timing w[N_WIDTHS] = {{0}};
  const uint32_t room = e->n_ctx - DF_MIN(e->n_ctx, (uint32_t)DF_MAX_WIDTH), depth = DF_MIN((uint32_t)DEPTH, room);
  df_kv_seq seq;
  for (uint32_t i = 0; i < N_WIDTHS; i++) {
    const uint32_t width = DF_MIN(k_widths[i], e->width);
    if (width <= e->n_ctx && (i == 0 || width > w[i - 1].width)) w[i].width = width;
    if (w[i].width == 0) break;
  }
  DF_TRY(df_kv_seq_init(&seq, e->pages.size, e->n_ctx, err));
  df_status s = df_kv_seq_reserve(&seq, &e->pages, DF_MIN(depth + DF_MAX_WIDTH, e->n_ctx), err);
  /* On a card recording takes longer than many steps. */
  for (uint32_t i = 0; i < N_WIDTHS && s == DF_OK && !e->m->device->is_host; i++)
    if (w[i].width) s = df_spec_prepare(&e->step, 1, w[i].width, false, err);
  if (s == DF_OK) s = time_all(e, &seq, w, depth, err);
  df_kv_seq_release(&seq, &e->pages);
  fill_deep(w);
  for (uint32_t i = 0; i < N_WIDTHS && s == DF_OK; i++) {
    if (!w[i].known[0]) continue;
    const uint32_t deep = w[i].known[1] ? depth : 0;
    df_width_cost_calibrate(&e->costs.verify, w[i].width, w[i].verify[0], deep, w[i].verify[1]);
    df_width_cost_calibrate(&e->costs.draft, w[i].width, w[i].draft[0], deep, w[i].draft[1]);
  }
  if (s == DF_OK) e->costs.catch_up = w[0].draft[0]; /* plain steps of this kind inject at once */
  return s;
}
