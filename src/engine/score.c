/* Teacher-forced scoring. */
#include <math.h>
#include <string.h>

#include "base/size.h"
#include "engine/session_internal.h"

/* ln p(id) under one row of logits, in double. */
static double logprob_of(const float *logits, uint32_t vocab, int32_t id) {
  float best = logits[0];
  for (uint32_t i = 1; i < vocab; i++) best = logits[i] > best ? logits[i] : best;
  double sum = 0;
  for (uint32_t i = 0; i < vocab; i++) sum += exp((double)logits[i] - best);
  return (double)logits[id] - best - log(sum);
}

static df_status score_chunk(df_session *s, const int32_t *ids, uint32_t at, uint32_t m, uint32_t n, double *logprob,
                             df_error *err) {
  df_target *t = &s->e.target;
  df_fill_begin(&t->batch);
  (void)df_fill_add(&t->batch, &s->seq, ids + at, m, at, DF_OUT_ALL);
  DF_TRY(df_target_run(t, DF_MODE_EXTEND, DF_TAIL_LOGITS, err));
  for (uint32_t i = 0; i < m && at + i + 1 < n; i++) {
    const float *logits;
    DF_TRY(df_workspace_logits(&t->ws, i, &logits, err));
    logprob[at + i] = logprob_of(logits, s->e.m->cfg.vocab, ids[at + i + 1]);
  }
  return DF_OK;
}

df_status df_session_score(df_session *s, const int32_t *ids, size_t n, double *logprob, df_progress_fn progress,
                           void *user, df_error *err) {
  if (n < 2) return DF_FAIL(err, DF_ERR_ARGUMENT, "scoring needs at least two tokens");
  if (n > s->e.n_ctx) return DF_FAIL(err, DF_ERR_LIMIT, "%zu tokens do not fit the context of %u", n, s->e.n_ctx);
  for (size_t i = 0; i < n; i++)
    if (ids[i] < 0 || (uint32_t)ids[i] >= s->e.m->cfg.vocab)
      return DF_FAIL(err, DF_ERR_ARGUMENT, "token %d at position %zu is outside the vocabulary of %u", ids[i], i,
                     s->e.m->cfg.vocab);
  df_session_reset(s);
  df_status st = df_kv_seq_reserve(&s->seq, &s->e.pages, (uint32_t)n, err);
  for (uint32_t at = 0; st == DF_OK && at < n; at += DF_MAX_WIDTH) {
    const uint32_t m = DF_MIN((uint32_t)n - at, (uint32_t)DF_MAX_WIDTH);
    st = score_chunk(s, ids, at, m, (uint32_t)n, logprob, err);
    if (st == DF_OK && progress && !progress(user, (double)(at + m) / (double)n))
      st = DF_FAIL(err, DF_ERR_CANCELLED, "cancelled");
  }
  df_session_reset(s);
  return st;
}
