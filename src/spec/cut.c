#include "spec/cut.h"

#include "base/size.h"

static const float k_weight = 8;    /* imagined drafts of every bin that kept what they promised */
static const float k_keep = 0.999f; /* memory of about a thousand drafts a bin */
static const double k_most = 0.99;  /* nothing is surer */
static const double k_least_row =
    0.01; /* of a step of one row: what a further row costs at least, whatever was measured */

static uint32_t bin_of(double sure) { return sure > 0 ? DF_MIN((uint32_t)(sure * DF_CUT_BINS), DF_CUT_BINS - 1u) : 0; }

double df_cut_chance(const df_cut_trust *t, double sure, double text) {
  const uint32_t b = bin_of(sure);
  const double p = text * sure * (t->stood[b] + k_weight) / (t->promised[b] + k_weight);
  return p > 0 ? DF_MIN(p, k_most) : 0; /* NaN: a draft whose logits are not sound */
}

void df_cut_learn(df_cut_trust *t, const float *sure, uint32_t n, uint32_t accepted) {
  for (uint32_t j = 0; j < n && j <= accepted; j++) {
    const uint32_t b = bin_of(sure[j]);
    t->promised[b] = t->promised[b] * k_keep + (sure[j] > 0 ? sure[j] : 0);
    t->stood[b] = t->stood[b] * k_keep + (j < accepted);
  }
}

uint32_t df_cut_rows(const df_width_costs *c, const float (*chance)[DF_WIDTH_MAX], uint32_t n, uint32_t width,
                     uint32_t depth, double per_ms) {
  double all[DF_WIDTH_SEQS], tokens = 0, best = 0;
  const double one = df_width_cost_at(&c->verify, n, depth);
  double ms = one;
  uint32_t rows = 1;
  for (uint32_t i = 0; i < n; i++) all[i] = 1;
  for (uint32_t m = 2; m <= width; m++) {
    for (uint32_t i = 0; i < n; i++) {
      all[i] *= chance[i][m - 2];
      tokens += all[i];
    }
    ms = DF_MAX(ms + k_least_row * one, df_width_cost_at(&c->verify, n * m, depth));
    const double worth = tokens - per_ms * (ms - one);
    if (worth > best) best = worth, rows = m;
  }
  return rows;
}
