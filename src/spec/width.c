#include "spec/width.h"

#include <string.h>

enum { PROBE_WIDTH = 3, MIN_PROBE_GAP = 24, PLAIN_GAP = 32, PLAIN_GAP_MAX = 256, PLAIN_RUN = 4 };

static const double k_prior_weight = 4.0; /* imagined observations per slot */
static const float k_prior_accept = 0.6f; /* of a draft that was trained for its target */
static const float k_decay = 0.96f;       /* memory of about 25 blocks: acceptance changes within a text */
static const double k_learn = 0.25;       /* weight of a new measurement */
static const double k_margin = 1.05;      /* gain that drafting must promise: estimates err */
static const double k_probe_share = 0.02; /* of plain decoding time that probes may cost */
static const double k_aftermath = 3;      /* plain steps' worth of time that steps behind a draft lose to cold caches */

void df_width_estimate_init(df_width_estimate *e) {
  memset(e, 0, sizeof *e);
  for (uint32_t j = 0; j < DF_WIDTH_MAX; j++) e->prior[j] = k_prior_accept;
}

void df_width_estimate_learn(df_width_estimate *e, const df_width_estimate *others) {
  for (uint32_t j = 0; j < DF_WIDTH_MAX; j++)
    e->prior[j] =
        (others->accepted[j] + (float)k_prior_weight * others->prior[j]) / (others->tried[j] + (float)k_prior_weight);
}

void df_width_estimate_update(df_width_estimate *e, uint32_t n_drafted, uint32_t accepted) {
  for (uint32_t j = 0; j < DF_WIDTH_MAX; j++) {
    /* What is known of every slot fades, also of those behind the first miss or the block's end, about which this block
     * says nothing. */
    e->tried[j] *= k_decay;
    e->accepted[j] *= k_decay;
    if (j >= n_drafted || j > accepted) continue;
    e->tried[j] += 1;
    if (j < accepted) e->accepted[j] += 1;
  }
}

/* Slots about which little is known differ from their prior as the slot before them does from its own: a text that is
 * easy for the draft is so at every slot. */
double df_width_expected(const df_width_estimate *e, uint32_t width) {
  double all = 1, sum = 1, ratio = 1;
  for (uint32_t j = 0; j + 1 < width; j++) {
    const double guess = e->prior[j] * ratio, prior = guess < 1 ? guess : 1;
    const double slot = (e->accepted[j] + k_prior_weight * prior) / (e->tried[j] + k_prior_weight);
    ratio = e->prior[j] > 0 ? slot / e->prior[j] : 1;
    all *= slot;
    sum += all;
  }
  return sum;
}

void df_width_cost_calibrate(df_width_cost *c, uint32_t rows, double ms_empty, uint32_t depth, double ms_deep) {
  c->base[rows] = ms_empty;
  c->per_pos[rows] = depth && ms_deep > ms_empty ? (ms_deep - ms_empty) / depth : 0;
}

/* Value of a table at a row count: measured, between two measured ones, or in proportion to the nearest. */
static double interpolate(const double *known, const double *value, uint32_t rows) {
  if (known[rows] > 0) return value[rows];
  uint32_t lo = rows, hi = rows;
  while (lo > 0 && known[lo] == 0) lo--;
  while (hi < DF_WIDTH_ROWS && known[hi] == 0) hi++;
  const bool has_lo = lo > 0, has_hi = hi < DF_WIDTH_ROWS;
  if (has_lo && has_hi) return value[lo] + (value[hi] - value[lo]) * (rows - lo) / (hi - lo);
  if (has_hi) return value[hi];
  return has_lo ? value[lo] * rows / lo : 0;
}

double df_width_cost_at(const df_width_cost *c, uint32_t rows, uint32_t depth) {
  return interpolate(c->base, c->base, rows) + interpolate(c->base, c->per_pos, rows) * depth;
}

void df_width_cost_add(df_width_cost *c, uint32_t rows, uint32_t depth, double ms) {
  if (c->base[rows] == 0) {
    const double slope = interpolate(c->base, c->per_pos, rows), base = ms - slope * depth;
    c->per_pos[rows] = base > 0 ? slope : 0;
    c->base[rows] = base > 0 ? base : ms;
    return;
  }
  const double expected = df_width_cost_at(c, rows, depth);
  const double capped = ms > 1.5 * expected ? 1.5 * expected : ms;
  const double base = c->base[rows] + k_learn * (capped - expected);
  c->base[rows] = base > 0 ? base : 0.1 * expected;
}

/* Milliseconds of a step in which all n requests take w rows. */
static double step_cost(const df_width_costs *c, uint32_t n, uint32_t w, uint32_t depth) {
  return df_width_cost_at(&c->verify, n * w, depth) + (w > 1 ? df_width_cost_at(&c->draft, n * w, depth) : 0);
}

/* Expected tokens per millisecond of such a step. */
static double rate(const df_width_costs *c, df_width_estimate *const *e, uint32_t n, uint32_t w, uint32_t depth) {
  double tokens = 0;
  for (uint32_t i = 0; i < n; i++) tokens += w == 1 ? 1 : df_width_expected(e[i], w);
  const double ms = step_cost(c, n, w, depth);
  return ms > 0 ? tokens / ms : 0;
}

/* Plain steps between two probes so that what a probe costs beyond a plain step stays within its share. */
static uint32_t probe_gap(const df_width_costs *c, uint32_t n, uint32_t w, uint32_t depth) {
  const double plain = step_cost(c, n, 1, depth), more = step_cost(c, n, w, depth) - plain;
  const double gap = plain > 0 && more > 0 ? (more / plain + k_aftermath) / k_probe_share : 0;
  return gap > MIN_PROBE_GAP ? (uint32_t)gap : MIN_PROBE_GAP;
}

/* Whether a run of plain steps is due or going on. The price of plain decoding must not be an old one, and it takes a
 * run to see it: the first steps still pay for weights that drafting pushed out of the caches. Each step back from
 * drafting costs what drafting gains, so the clearer its gain the longer the gap. */
static bool plain_is_due(df_width_costs *c, double gain) {
  const double gap = PLAIN_GAP + 200 * (gain - 1);
  if (++c->since_plain > (gap < PLAIN_GAP_MAX ? gap : PLAIN_GAP_MAX)) {
    c->since_plain = 0;
    c->plain_left = PLAIN_RUN;
  }
  if (c->plain_left == 0) return false;
  c->plain_left--;
  return true;
}

uint32_t df_width_choose(df_width_costs *c, df_width_estimate *const *e, uint32_t n, uint32_t max, uint32_t depth) {
  uint32_t best = 1;
  const double plain = rate(c, e, n, 1, depth);
  double best_rate = plain * k_margin;
  for (uint32_t w = 2; w <= max; w++) {
    const double r = rate(c, e, n, w, depth);
    if (r > best_rate) {
      best_rate = r;
      best = w;
    }
  }
  if (max < 2) return 1;
  if (best > 1) {
    c->since_probe = 0;
    return plain_is_due(c, plain > 0 ? best_rate / plain : 2) ? 1 : best;
  }
  c->since_plain = c->plain_left = 0;
  const uint32_t w = max < PROBE_WIDTH ? max : PROBE_WIDTH;
  if (++c->since_probe < probe_gap(c, n, w, depth)) return 1;
  c->since_probe = 0;
  return w;
}
