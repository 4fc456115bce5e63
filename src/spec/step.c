#include "spec/step.h"

#include <string.h>

#include "base/clock.h"
#include "base/size.h"

enum { MAX_GROUP = 256 }; /* sequences of one step */

/* Elsewhere than on the host the drafted tokens stay where they are: the verify pass takes them there, finds what of
 * them stands, and brings all of it back, so that the host waits once. */
static bool drafts_stay(const df_stepper *s, uint32_t width) {
  return width > 1 && !df_device_is_host(s->target->m->device);
}

static df_tail tail_of(const df_stepper *s, uint32_t width, bool need_logits) {
  if (drafts_stay(s, width)) return DF_TAIL_DRAFTED;
  return need_logits ? DF_TAIL_LOGITS : DF_TAIL_ARGMAX;
}

static void collect_drafts(const df_stepper *s, df_step_item *items, uint32_t n, uint32_t width) {
  const size_t k = width - 1;
  for (uint32_t i = 0; i < n; i++) memcpy(items[i].drafted, s->target->ws.drafted + i * k, k * sizeof(int32_t));
}

static void settle(const df_stepper *s, const df_step_plan *plan) {
  df_device *d = s->target->m->device;
  if (plan->apart) d->ops->quiesce(d);
}

df_status df_spec_prepare(const df_stepper *s, uint32_t seqs, uint32_t width, bool need_logits, df_error *err) {
  DF_TRY(df_target_prepare(s->target, seqs, 1, tail_of(s, 1, need_logits), err));
  if (width > 1) DF_TRY(df_target_prepare(s->target, seqs, width, tail_of(s, width, need_logits), err));
  return s->drafter ? df_drafter_prepare(s->drafter, seqs, width, err) : DF_OK;
}

/* A block each; *rows of it are worth verifying. */
static df_status draft(const df_stepper *s, df_step_item *items, uint32_t n, const df_step_plan *plan, uint32_t *rows,
                       df_error *err) {
  df_draft_item d[MAX_GROUP];
  for (uint32_t i = 0; i < n; i++)
    d[i] =
        (df_draft_item){items[i].seq, items[i].anchor, items[i].n, items[i].drafted, plan->cut ? items[i].sure : NULL};
  DF_TRY(df_drafter_draft(s->drafter, d, n, plan->width, err));
  if (plan->cut) *rows = plan->cut(plan->cut_ctx, items, n, plan->width);
  return DF_OK;
}

void df_spec_forget(df_pending *pending) {
  if (pending->row0) df_target_give_back(pending->target, pending->row0);
  *pending = (df_pending){0};
}

/* What waits, for the caller to inject before the next pass: the rows are free again. */
static df_inject_item take_pending(const df_kv_seq *seq, df_pending *p) {
  const df_inject_item in = {seq, p->row0, p->n, p->first};
  df_spec_forget(p);
  return in;
}

df_status df_spec_flush(const df_stepper *s, const df_kv_seq *seq, df_pending *pending, df_error *err) {
  if (!s->drafter || pending->n == 0) return DF_OK;
  const df_inject_item in = take_pending(seq, pending);
  return df_drafter_inject(s->drafter, &in, 1, err);
}

static df_status flush_all(const df_stepper *s, const df_step_item *items, uint32_t n, df_error *err) {
  df_inject_item in[MAX_GROUP];
  uint32_t m = 0;
  for (uint32_t i = 0; i < n; i++)
    if (items[i].pending && items[i].pending->n) in[m++] = take_pending(items[i].seq, items[i].pending);
  return m ? df_drafter_inject(s->drafter, in, m, err) : DF_OK;
}

/* A draft reads the K and V of every position in front of it. */
static df_status catch_up(const df_stepper *s, const df_step_item *items, uint32_t n, uint64_t *ns, df_error *err) {
  const uint64_t t0 = df_now_ns();
  bool any = false;
  for (uint32_t i = 0; i < n; i++) any |= items[i].pending && items[i].pending->n;
  if (!any) return DF_OK;
  DF_TRY(flush_all(s, items, n, err));
  *ns = df_now_ns() - t0;
  return DF_OK;
}

/* A plain step leaves its tapped row where it may wait. */
static void hold_row(const df_stepper *s, df_step_item *it, uint32_t row) {
  df_pending *p = it->pending;
  if (!s->drafter || !p) return;
  if (!p->row0) *p = (df_pending){.target = s->target, .row0 = df_target_keep(s->target)};
  if (p->n == 0) p->first = it->n;
  if (p->row0) s->target->batch.tap_row[row] = p->row0 + p->n;
}

static df_status verify(const df_stepper *s, df_step_item *items, uint32_t n, uint32_t width, bool need_logits,
                        df_error *err) {
  df_target *t = s->target;
  df_fill_begin(&t->batch);
  for (uint32_t i = 0; i < n; i++) {
    int32_t block[DF_TILE_ROWS];
    block[0] = items[i].anchor;
    memcpy(block + 1, items[i].drafted, (width - 1) * sizeof *block);
    items[i].out_row = df_fill_add(&t->batch, items[i].seq, block, width, items[i].n, DF_OUT_ALL);
    if (width == 1) hold_row(s, &items[i], i);
  }
  DF_TRY(df_target_run(t, width == 1 ? DF_MODE_DECODE : DF_MODE_TARGET_VERIFY, tail_of(s, width, need_logits), err));
  if (drafts_stay(s, width)) collect_drafts(s, items, n, width);
  return DF_OK;
}

static df_status pick_row(void *ctx, uint32_t row, int32_t *id, df_error *err) {
  df_step_item *it = ctx;
  return it->pick(it->pick_ctx, row, it->out_row + row, id, err);
}

/* What the best token of each row accepts; the device has counted where it has the drafts. */
static df_accept_result accept_best(const df_stepper *s, const df_step_item *it, uint32_t i, uint32_t rows) {
  const df_workspace *w = &s->target->ws;
  int32_t best[DF_TILE_ROWS];
  if (drafts_stay(s, rows)) return (df_accept_result){w->accepted[i], w->token[it->out_row + w->accepted[i]]};
  for (uint32_t r = 0; r < rows; r++) best[r] = df_workspace_best(w, it->out_row + r);
  return df_accept_compare(best, it->drafted, rows - 1);
}

static df_status accept(const df_stepper *s, df_step_item *items, uint32_t n, uint32_t width, uint32_t rows,
                        df_error *err) {
  for (uint32_t i = 0; i < n; i++) {
    df_accept_result r;
    if (items[i].pick)
      DF_TRY(df_accept_walk(pick_row, &items[i], items[i].drafted, rows - 1, &r, err));
    else
      r = accept_best(s, &items[i], i, rows);
    items[i].accepted = r.accepted;
    items[i].next = r.next;
    items[i].n_drafted = rows - 1;
    items[i].n_cut = width - rows;
  }
  return DF_OK;
}

/* Recurrent layers keep the state behind the accepted rows; the draft gets the features of the same rows. */
static df_status commit(const df_stepper *s, const df_step_item *items, uint32_t n, uint32_t width, df_error *err) {
  uint32_t lens[MAX_GROUP] = {0}, now = 0;
  df_inject_item in[MAX_GROUP];
  bool full = false;
  for (uint32_t i = 0; i < n; i++) {
    lens[i] = items[i].accepted + 1;
    if (!s->drafter) continue;
    if (width == 1 && items[i].pending && items[i].pending->row0)
      full |= ++items[i].pending->n == DF_TILE_ROWS;
    else
      in[now++] = (df_inject_item){items[i].seq, i * width, lens[i], items[i].n};
  }
  DF_TRY(s->target->attn->ops->commit(s->target->attn, &s->target->batch, lens, n, err));
  if (now) DF_TRY(df_drafter_inject(s->drafter, in, now, err));
  return full ? flush_all(s, items, n, err) : DF_OK;
}

df_status df_spec_step(const df_stepper *s, df_step_item *items, uint32_t n, const df_step_plan *plan,
                       df_step_times *times, df_error *err) {
  uint32_t rows = plan->width;
  uint64_t catch_up_ns = 0;
  if (n == 0 || n > MAX_GROUP || n > s->target->p.max_seqs)
    return DF_FAIL(err, DF_ERR_ARGUMENT, "a step of %u sequences is outside 1..%u", n, s->target->p.max_seqs);
  for (uint32_t i = 0; i < n; i++)
    if (!items[i].pick && plan->need_logits)
      return DF_FAIL(err, DF_ERR_ARGUMENT, "sequence %u of a step of logits has nobody to pick its tokens", i);
  if (plan->width > 1) DF_TRY(catch_up(s, items, n, &catch_up_ns, err));
  const uint64_t t0 = df_now_ns();
  if (plan->width > 1) DF_TRY(draft(s, items, n, plan, &rows, err));
  settle(s, plan);
  const uint64_t t1 = df_now_ns();
  DF_TRY(verify(s, items, n, rows, plan->need_logits, err));
  const uint64_t t2 = df_now_ns();
  DF_TRY(accept(s, items, n, plan->width, rows, err));
  const uint64_t t3 = df_now_ns();
  DF_TRY(commit(s, items, n, rows, err));
  settle(s, plan);
  *times = (df_step_times){t1 - t0, t2 - t1, t3 - t2, df_now_ns() - t3, catch_up_ns};
  return DF_OK;
}

uint32_t df_spec_prefill_rows(const df_stepper *s) {
  const df_attn_caps caps = s->target->attn->ops->caps(s->target->attn);
  return DF_MIN(s->target->p.max_rows, caps.max_rows);
}

df_status df_spec_prefill(const df_stepper *s, df_prefill_item *items, uint32_t n, df_error *err) {
  df_target *t = s->target;
  df_inject_item in[MAX_GROUP];
  uint32_t row = 0;
  bool any_out = false;
  if (n == 0 || n > MAX_GROUP || n > t->p.max_seqs)
    return DF_FAIL(err, DF_ERR_ARGUMENT, "a prefill of %u sequences", n);
  df_fill_begin(&t->batch);
  for (uint32_t i = 0; i < n; i++) {
    const df_prefill_item *it = &items[i];
    in[i] = (df_inject_item){it->seq, row, it->n, it->first};
    row += it->n;
    any_out |= it->last || it->all;
    const df_fill_out out = it->all ? DF_OUT_ALL : it->last ? DF_OUT_LAST : DF_OUT_NONE;
    items[i].out_row = df_fill_add(&t->batch, it->seq, it->ids, it->n, it->first, out);
  }
  DF_TRY(df_target_run(t, DF_MODE_EXTEND, any_out ? DF_TAIL_ARGMAX : DF_TAIL_NONE, err));
  return s->drafter ? df_drafter_inject(s->drafter, in, n, err) : DF_OK;
}
