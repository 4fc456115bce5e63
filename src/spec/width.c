#include "spec/width.h"

#include <string.h>

enum { PROBE_WIDTH = 4, MIN_PROBE_GAP = 24 };

static const double k_prior_weight = 4.0; /* imagined observations per slot */
static const double k_prior_accept = 0.7; /* of a draft that was trained for its target */
static const float k_decay = 0.96f;       /* memory of about 25 blocks: acceptance changes within a text */
static const double k_probe_share = 0.02; /* of plain decoding time that probes may cost */

void df_width_estimate_init(df_width_estimate *e) { memset(e, 0, sizeof *e); }

void df_width_estimate_update(df_width_estimate *e, uint32_t n_drafted, uint32_t accepted) {
  for (uint32_t j = 0; j < DF_WIDTH_MAX; j++) {
    /* What is known of every slot fades, also of those behind the first miss or the block's end, about which this block
     * says nothing: without new evidence a slot is then judged by the one before it. */
    e->tried[j] *= k_decay;
    e->accepted[j] *= k_decay;
    if (j >= n_drafted || j > accepted) continue;
    e->tried[j] += 1;
    if (j < accepted) e->accepted[j] += 1;
  }
  e->since_probe = 0;
}

double df_width_expected(const df_width_estimate *e, uint32_t width) {
  double all = 1, sum = 1, slot = k_prior_accept;
  for (uint32_t j = 0; j + 1 < width; j++) {
    slot = (e->accepted[j] + k_prior_weight * slot) / (e->tried[j] + k_prior_weight);
    all *= slot;
    sum += all;
  }
  return sum;
}

void df_width_cost_add(df_width_costs *c, bool draft, uint32_t rows, double ms) {
  double *at = &(draft ? c->draft : c->verify)[rows];
  if (*at == 0) {
    *at = ms;
    return;
  }
  const double capped = ms > 1.5 * *at ? 1.5 * *at : ms;
  *at += 0.1 * (capped - *at);
}

static double interpolate(const double *ms, uint32_t n, uint32_t rows) {
  if (ms[rows] > 0) return ms[rows];
  uint32_t lo = rows, hi = rows;
  while (lo > 0 && ms[lo] == 0) lo--;
  while (hi < n && ms[hi] == 0) hi++;
  const bool has_lo = lo > 0, has_hi = hi < n;
  if (has_lo && has_hi) return ms[lo] + (ms[hi] - ms[lo]) * (rows - lo) / (hi - lo);
  if (has_hi) return ms[hi];
  return has_lo ? ms[lo] * rows / lo : 0;
}

enum { ROWS = DF_WIDTH_MAX * DF_WIDTH_SEQS + 1 };

double df_width_cost_verify(const df_width_costs *c, uint32_t rows) { return interpolate(c->verify, ROWS, rows); }
double df_width_cost_draft(const df_width_costs *c, uint32_t rows) { return interpolate(c->draft, ROWS, rows); }

/* Expected tokens per millisecond of a step in which all n requests take w rows. */
static double rate(const df_width_costs *c, df_width_estimate *const *e, uint32_t n, uint32_t w) {
  double tokens = 0, ms = df_width_cost_verify(c, n * w);
  for (uint32_t i = 0; i < n; i++) tokens += w == 1 ? 1 : df_width_expected(e[i], w);
  if (w > 1) ms += df_width_cost_draft(c, n * w);
  return ms > 0 ? tokens / ms : 0;
}

/* Plain steps between two probes so that what a probe costs beyond a plain step stays within its share. */
static uint32_t probe_gap(const df_width_costs *c, uint32_t n, uint32_t w) {
  const double plain = df_width_cost_verify(c, n);
  const double extra = df_width_cost_verify(c, n * w) + df_width_cost_draft(c, n * w) - plain;
  const double gap = plain > 0 ? extra / plain / k_probe_share : 0;
  return gap > MIN_PROBE_GAP ? (uint32_t)gap : MIN_PROBE_GAP;
}

uint32_t df_width_choose(const df_width_costs *c, df_width_estimate *const *e, uint32_t n, uint32_t max) {
  uint32_t best = 1;
  double best_rate = rate(c, e, n, 1);
  for (uint32_t w = 2; w <= max; w++) {
    const double r = rate(c, e, n, w);
    if (r > best_rate) {
      best_rate = r;
      best = w;
    }
  }
  if (best > 1 || max < 2) return best;
  const uint32_t w = max < PROBE_WIDTH ? max : PROBE_WIDTH, gap = probe_gap(c, n, w);
  bool due = false;
  for (uint32_t i = 0; i < n; i++) due |= ++e[i]->since_probe >= gap;
  return due ? w : 1;
}
