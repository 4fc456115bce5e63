#include "spec/accept.h"

#include <string.h>

df_accept_result df_accept_compare(const int32_t *choice, const int32_t *drafted, uint32_t n_draft) {
  uint32_t a = 0;
  while (a < n_draft && choice[a] == drafted[a]) a++;
  return (df_accept_result){.accepted = a, .next = choice[a]};
}

df_status df_accept_walk(df_accept_pick pick, void *ctx, const int32_t *drafted, uint32_t n_draft,
                         df_accept_result *out, df_error *err) {
  for (uint32_t row = 0;; row++) {
    int32_t id;
    DF_TRY(pick(ctx, row, &id, err));
    if (row < n_draft && id == drafted[row]) continue;
    *out = (df_accept_result){.accepted = row, .next = id};
    return DF_OK;
  }
}

int32_t df_accept_draw(const double *prob, uint32_t vocab, double u) {
  double total = 0;
  for (uint32_t i = 0; i < vocab; i++) total += prob[i];
  const double goal = u * total;
  double run = 0;
  int32_t last = -1;
  for (uint32_t i = 0; i < vocab; i++) {
    if (!(prob[i] > 0)) continue;
    run += prob[i];
    last = (int32_t)i;
    if (run > goal) break;
  }
  return last;
}

static double prob_of(const df_prob_row *r, int32_t id) {
  if (!r->ids) return (uint32_t)id < r->n ? r->prob[id] : 0.0;
  for (uint32_t j = 0; j < r->n; j++)
    if (r->ids[j] == id) return r->prob[j];
  return 0.0;
}

static df_status check(const df_rejection_input *in, df_error *err) {
  for (uint32_t i = 0; i <= in->n_draft; i++)
    if (in->p[i].ids || in->p[i].n != in->vocab)
      return DF_FAIL(err, DF_ERR_ARGUMENT, "target row %u is not a dense distribution over %u ids", i, in->vocab);
  for (uint32_t i = 0; i < in->n_draft; i++) {
    const df_prob_row *q = &in->q[i];
    if (in->drafted[i] < 0 || (uint32_t)in->drafted[i] >= in->vocab)
      return DF_FAIL(err, DF_ERR_ARGUMENT, "draft %u is token %d of %u", i, in->drafted[i], in->vocab);
    if (!q->ids && q->n > in->vocab)
      return DF_FAIL(err, DF_ERR_ARGUMENT, "draft row %u has %u ids of %u", i, q->n, in->vocab);
    for (uint32_t j = 0; q->ids && j < q->n; j++)
      if (q->ids[j] < 0 || (uint32_t)q->ids[j] >= in->vocab)
        return DF_FAIL(err, DF_ERR_ARGUMENT, "draft row %u names token %d of %u", i, q->ids[j], in->vocab);
  }
  return DF_OK;
}

/* out = normalised max(0, p - q); p itself when nothing is left (p and q equal up to rounding). */
static void residual_of(const df_prob_row *p, const df_prob_row *q, uint32_t vocab, double *out) {
  memcpy(out, p->prob, vocab * sizeof *out);
  for (uint32_t j = 0; j < q->n; j++) out[q->ids ? (uint32_t)q->ids[j] : j] -= q->prob[j];
  double sum = 0;
  for (uint32_t i = 0; i < vocab; i++) {
    out[i] = out[i] > 0 ? out[i] : 0.0;
    sum += out[i];
  }
  if (!(sum > 0)) {
    memcpy(out, p->prob, vocab * sizeof *out);
    return;
  }
  for (uint32_t i = 0; i < vocab; i++) out[i] /= sum;
}

df_status df_accept_rejection(const df_rejection_input *in, double *residual, df_accept_result *out, df_error *err) {
  DF_TRY(check(in, err));
  uint32_t a = 0;
  /* Strictly less: with u = 0 a draft of probability 0 must still be rejected. */
  while (a < in->n_draft && in->u[a] * prob_of(&in->q[a], in->drafted[a]) < prob_of(&in->p[a], in->drafted[a])) a++;
  if (a < in->n_draft)
    residual_of(&in->p[a], &in->q[a], in->vocab, residual);
  else
    memcpy(residual, in->p[a].prob, in->vocab * sizeof *residual);
  const int32_t next = df_accept_draw(residual, in->vocab, in->v);
  if (next < 0) return DF_FAIL(err, DF_ERR_ARGUMENT, "target row %u has no probability anywhere", a);
  *out = (df_accept_result){.accepted = a, .next = next};
  return DF_OK;
}
