#include "spec/step.h"

#include <string.h>

#include "base/clock.h"
#include "base/size.h"

static df_status verify(const df_stepper *s, const df_step_in *in, const int32_t *block, df_error *err) {
  df_target *t = s->target;
  df_batch_fill_one(&t->batch, in->seq, block, in->width, in->n, true);
  const df_mode mode = in->width == 1 ? DF_MODE_DECODE : DF_MODE_TARGET_VERIFY;
  return df_target_run(t, mode, in->need_logits ? DF_TAIL_LOGITS : DF_TAIL_ARGMAX, err);
}

df_status df_spec_prepare(const df_stepper *s, uint32_t width, bool need_logits, df_error *err) {
  const df_tail tail = need_logits ? DF_TAIL_LOGITS : DF_TAIL_ARGMAX;
  DF_TRY(df_target_prepare(s->target, 1, tail, err));
  if (width < 2) return DF_OK;
  DF_TRY(df_target_prepare(s->target, width, tail, err));
  return df_drafter_prepare(s->drafter, width, err);
}

df_status df_spec_step(const df_stepper *s, const df_step_in *in, df_step_out *out, df_error *err) {
  int32_t block[DF_TILE_ROWS];
  *out = (df_step_out){.n_drafted = in->width - 1};
  DF_TRY(df_kv_seq_reserve(in->seq, s->pages, in->n + in->width, err));
  const uint64_t t0 = df_now_ns();
  if (in->width > 1) DF_TRY(df_drafter_draft(s->drafter, in->seq, in->anchor, in->n, in->width, out->drafted, err));
  const uint64_t t1 = df_now_ns();
  block[0] = in->anchor;
  memcpy(block + 1, out->drafted, out->n_drafted * sizeof *block);
  DF_TRY(verify(s, in, block, err));
  const uint64_t t2 = df_now_ns();
  df_accept_result r;
  DF_TRY(df_accept_walk(in->pick, in->pick_ctx, out->drafted, out->n_drafted, &r, err));
  const uint64_t t3 = df_now_ns();
  out->accepted = r.accepted;
  out->next = r.next;
  const uint32_t len = r.accepted + 1;
  DF_TRY(s->target->attn->ops->commit(s->target->attn, &len, 1, err));
  if (s->drafter) DF_TRY(df_drafter_inject(s->drafter, in->seq, 0, len, in->n, err));
  out->draft_ns = t1 - t0;
  out->verify_ns = t2 - t1;
  out->pick_ns = t3 - t2;
  out->inject_ns = df_now_ns() - t3;
  return DF_OK;
}

df_status df_spec_prefill(const df_stepper *s, df_kv_seq *seq, const int32_t *ids, uint32_t n, uint32_t first,
                          const volatile sig_atomic_t *cancel, df_error *err) {
  df_target *t = s->target;
  const df_attn_caps caps = t->attn->ops->caps(t->attn);
  const uint32_t step = DF_MIN(t->p.max_rows, caps.max_rows);
  DF_TRY(df_kv_seq_reserve(seq, s->pages, first + n, err));
  for (uint32_t at = 0; at < n; at += step) {
    if (cancel && *cancel) return DF_FAIL(err, DF_ERR_CANCELLED, "cancelled");
    const uint32_t m = DF_MIN(n - at, step);
    const bool last = at + m == n;
    df_batch_fill_one(&t->batch, seq, ids + at, m, first + at, false);
    DF_TRY(df_target_run(t, DF_MODE_EXTEND, last ? DF_TAIL_ARGMAX : DF_TAIL_NONE, err));
    if (s->drafter) DF_TRY(df_drafter_inject(s->drafter, seq, 0, m, first + at, err));
  }
  return DF_OK;
}
