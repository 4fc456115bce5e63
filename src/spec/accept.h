/*
 * spec/accept.h - how many drafted tokens of a chain stand, and which token of the target follows them.
 *
 * Row i of the target sees the anchor and drafts 0..i-1 and predicts what follows: it is compared with draft i.
 * Row n_draft follows the last draft. Every rule here emits accepted + 1 tokens: drafts 0..accepted-1, then `next`.
 *
 *   compare    next[i] = argmax (greedy) or a seeded draw (sampled) of row i; accept while it equals draft i.
 *              Exact for any draft: each emitted token is the target's own choice. For greedy requests and for
 *              drafts without a distribution.
 *   rejection  drafts drawn from q: accept while u * q(d) < p(d), else draw from the normalised max(0, p - q)
 *              (Leviathan, Kalman, Matias: "Fast inference from transformers via speculative decoding", 2023).
 *              Exact in law when q is the distribution that the draft was drawn from.
 *
 * Ownership: nothing is kept. Threads: no shared state.
 */
#ifndef DF_SPEC_ACCEPT_H
#define DF_SPEC_ACCEPT_H

#include <stdint.h>

#include "base/error.h"

typedef struct df_accept_result {
  uint32_t accepted; /* 0..n_draft */
  int32_t next;      /* the target's token after the accepted drafts */
} df_accept_result;

/* choice[n_draft + 1] = the target's token of each row, drafted[n_draft]. */
df_accept_result df_accept_compare(const int32_t *choice, const int32_t *drafted, uint32_t n_draft);

/* The same, asking for the target's token row by row: rows behind the first miss are never sampled, and the callback
 * may extend its token history by drafted[row - 1] before it samples `row` > 0. A failing callback ends the walk with
 * its status; *out is then untouched. */
typedef df_status (*df_accept_pick)(void *ctx, uint32_t row, int32_t *id_out, df_error *err);
df_status df_accept_walk(df_accept_pick pick, void *ctx, const int32_t *drafted, uint32_t n_draft,
                         df_accept_result *out, df_error *err) DF_CHECK;

/* One distribution: dense (ids NULL, prob[n] by id) or sparse (prob[j] belongs to ids[j], each id once, the rest 0). */
typedef struct df_prob_row {
  const int32_t *ids;
  const double *prob;
  uint32_t n;
} df_prob_row;

/* Smallest id, in id order, whose running sum exceeds u * total (total = sum of prob). Rounding at the end gives the
 * last id with prob > 0; -1 when there is none. */
int32_t df_accept_draw(const double *prob, uint32_t vocab, double u);

typedef struct df_rejection_input {
  const df_prob_row *p; /* n_draft + 1 rows of the target, dense, `vocab` wide, after all request processing */
  const df_prob_row *q; /* n_draft rows of the draft; a greedy draft is the point mass {d: 1} */
  const int32_t *drafted;
  const double *u; /* n_draft coins in [0, 1) */
  double v;        /* the final draw */
  uint32_t n_draft;
  uint32_t vocab;
} df_rejection_input;

/* residual[vocab] is work memory; on return it holds the distribution that `next` was drawn from.
 * DF_ERR_ARGUMENT when a drafted id or an id of q is outside the vocabulary or a row of p is not dense. */
df_status df_accept_rejection(const df_rejection_input *in, double *residual, df_accept_result *out,
                              df_error *err) DF_CHECK;

#endif
