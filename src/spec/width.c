#include "spec/width.h"

#include <math.h>
#include <string.h>

#include "base/size.h"

enum {
  MIN_PROBE_GAP = 8,
  MAX_PROBE_GAP = 300,
  PLAIN_GAP = 64,
  PLAIN_GAP_MAX = 256,
  PLAIN_RUN = 3,
  RUN_EARLY = 15, /* plain steps that may still be slow behind a draft */
  RUN_END = 19    /* by then it is known how slow they were */
};

/* Chosen by replaying recorded texts (tests/unit/test_width_replay.c); all of them are flat around these values. */
static const double k_slot_weight = 8;   /* imagined observations of a slot at what its neighbours suggest */
static const double k_pool_weight = 6;   /* imagined acceptances of the whole text at the prior */
static const double k_trust_weight = 10; /* imagined drafts that kept what they promised */
static const double k_most_trust = 1.1;
static const float k_prior_accept = 0.5f; /* of a draft that was trained for its target */
static const double k_most_accept = 0.98; /* no suggestion is surer than this */
static const float k_keep = 0.97f;        /* memory of about 30 blocks: acceptance changes within a text */
static const float k_keep_all = 0.995f;   /* of about 200 */
static const float k_fade = 0.98f;        /* of about 50 plain steps */
static const double k_learn = 0.02;       /* weight of a new measurement for its own row count */
static const double k_learn_drift = 0.15; /* and for the others */
static const double k_learn_plain = 0.1;  /* plain steps come by seldom while drafting goes on */
static const uint8_t k_calibrated = 4;    /* measurements that the ones at start are worth */
static const double k_learn_run = 0.3;
static const double k_learn_catch_up = 0.1;
static const double k_most_over = 0.15;     /* a measurement counts as no further off than this: another process */
static const double k_most_under = 0.5;     /* can only make it longer */
static const double k_probe_share = 0.02;   /* of plain decoding time that probes may cost */
static const double k_credit = 1.25;        /* plain steps that a request may lose to drafting before it saved any */
static const double k_credit_gain = 8;      /* times more per gain that the text promises */
static const double k_credit_share = 0.015; /* and beyond that per token */
static const double k_sticky = 0.03;        /* gain that a change between plain and drafting must promise, per wake */
static const double k_spare = 0.6;          /* share of its time that a row must earn on the average to be drafted */
static const double k_gap_gain = 400, k_gap_wake = 40; /* drafting steps between looks at plain decoding */

static double at_most(double x, double most) { return x < most ? x : most; }
static double clamp(double x, double least, double most) { return x < least ? least : at_most(x, most); }

/* ---- acceptance ----------------------------------------------------------------------------------------- */

void df_width_estimate_init(df_width_estimate *e) {
  memset(e, 0, sizeof *e);
  e->keep = k_keep;
  for (uint32_t j = 0; j < DF_WIDTH_MAX; j++) e->prior[j] = k_prior_accept;
}

void df_width_estimate_init_all(df_width_estimate *e) {
  df_width_estimate_init(e);
  e->keep = k_keep_all;
}

/* A text that is easy for the draft is so at every slot: how much easier than the prior says, over all slots. */
static double ease(const df_width_estimate *e) {
  double seen = k_pool_weight, expected = k_pool_weight;
  for (uint32_t j = 0; j < DF_WIDTH_MAX; j++) {
    seen += e->accepted[j];
    expected += e->prior[j] * e->tried[j];
  }
  return seen / expected;
}

static double slot_rate(const df_width_estimate *e, uint32_t j, double text_ease) {
  const double guess = at_most(e->prior[j] * text_ease, k_most_accept);
  return (e->accepted[j] + k_slot_weight * guess) / (e->tried[j] + k_slot_weight);
}

void df_width_estimate_learn(df_width_estimate *e, const df_width_estimate *others) {
  const double text_ease = ease(others);
  for (uint32_t j = 0; j < DF_WIDTH_MAX; j++) e->prior[j] = (float)slot_rate(others, j, text_ease);
}

/* What is known of every slot fades, also of those behind the first miss or the block's end, about which a block says
 * nothing. */
static void fade(df_width_estimate *e, float keep) {
  for (uint32_t j = 0; j < DF_WIDTH_MAX; j++) {
    e->tried[j] *= keep;
    e->accepted[j] *= keep;
  }
}

void df_width_estimate_update(df_width_estimate *e, uint32_t n, uint32_t accepted, const float *chance,
                              uint32_t n_cut) {
  fade(e, e->keep);
  for (uint32_t j = 0; j < n && j <= accepted; j++) {
    e->tried[j] += 1;
    if (j < accepted) e->accepted[j] += 1;
  }
  e->promised *= e->keep;
  e->stood *= e->keep;
  for (uint32_t j = 0; chance && j < n && j <= accepted; j++) e->promised += chance[j];
  if (chance) e->stood += (float)DF_MIN(accepted, n);
  float reached = chance && accepted == n;
  for (uint32_t j = n; j < n + n_cut && reached > 0; j++) {
    e->tried[j] += reached;
    reached *= chance[j];
    e->accepted[j] += reached;
  }
}

double df_width_estimate_trust(const df_width_estimate *e) {
  return at_most((e->stood + k_trust_weight) / (e->promised + k_trust_weight), k_most_trust);
}

void df_width_estimate_fade(df_width_estimate *e) { fade(e, k_fade); }

void df_width_expected(const df_width_estimate *e, uint32_t max, double *tokens) {
  const double text_ease = ease(e);
  double all = 1, sum = 1;
  for (uint32_t w = 1; w <= max; w++) {
    tokens[w] += sum;
    if (w == max) break;
    all *= slot_rate(e, w - 1, text_ease);
    sum += all;
  }
}

/* ---- costs ---------------------------------------------------------------------------------------------- */

void df_width_cost_calibrate(df_width_cost *c, uint32_t rows, double ms_empty, uint32_t depth, double ms_deep) {
  if (c->pace == 0) c->pace = 1;
  c->base[rows] = ms_empty / c->pace;
  c->seen[rows] = k_calibrated;
  c->per_pos[rows] = depth && ms_deep > ms_empty ? (ms_deep - ms_empty) / depth / c->pace : 0;
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
  return (interpolate(c->base, c->base, rows) + interpolate(c->base, c->per_pos, rows) * depth) * c->pace;
}

/* A row count that was not measured yet starts from what its neighbours say, and the first steps count for more: one is
 * no price. */
static void learn_cost(df_width_cost *c, uint32_t rows, uint32_t depth, double ms, double own) {
  const double expected = df_width_cost_at(c, rows, depth);
  if (c->base[rows] == 0) {
    c->per_pos[rows] = interpolate(c->base, c->per_pos, rows);
    c->base[rows] = interpolate(c->base, c->base, rows);
  }
  if (expected == 0) {
    c->pace = 1;
    c->base[rows] = ms;
    return;
  }
  const double off = clamp(ms / expected - 1, -k_most_under, k_most_over), usual = expected / c->pace;
  const double weight = DF_MAX(own, 1.0 / (c->seen[rows] + 2));
  if (c->seen[rows] < UINT8_MAX) c->seen[rows]++;
  c->base[rows] = DF_MAX(c->base[rows] + weight * off * usual, 0.1 * usual);
  c->pace *= 1 + k_learn_drift * off;
}

void df_width_cost_add(df_width_cost *c, uint32_t rows, uint32_t depth, double ms) {
  learn_cost(c, rows, depth, ms, k_learn);
}

/* How much slower than a late step the len-th plain step behind a draft is: a fifth less with each. */
static double slowness(const df_width_costs *c, uint32_t len) {
  double s = len <= RUN_EARLY ? c->third : 0;
  for (uint32_t i = 3; i < len && s > 0; i++) s *= 0.8;
  return s;
}

static void note_plain(df_width_costs *c, uint32_t n, uint32_t depth, double ms) {
  df_width_run *r = &c->run;
  if (r->len == 0) *r = (df_width_run){.n = n};
  if (r->n != n) r->n = 0;
  r->len = DF_MIN(r->len + 1, (uint32_t)RUN_END + 1);
  if (r->len == 3) r->third = ms;
  if (r->len <= RUN_EARLY)
    r->sum += ms;
  else if (r->len <= RUN_END)
    r->late += ms / (RUN_END - RUN_EARLY);
  if (r->len == RUN_END && r->n && r->late > 0) {
    c->third += k_learn_run * (clamp(r->third / r->late - 1, 0, 1) - c->third);
    c->wake += k_learn_run * (clamp(r->sum / r->late - RUN_EARLY, 0, RUN_EARLY) - c->wake);
  }
  if (r->len >= 3) learn_cost(&c->verify, n, depth, ms / (1 + slowness(c, r->len)), k_learn_plain);
}

void df_width_note(df_width_costs *c, uint32_t n, uint32_t width, uint32_t rows, uint32_t depth, double verify_ms,
                   double draft_ms) {
  if (width == 1) {
    note_plain(c, n, depth, verify_ms);
    return;
  }
  c->run.len = 0;
  if (rows > 1) df_width_cost_add(&c->verify, n * rows, depth, verify_ms);
  df_width_cost_add(&c->draft, n * width, depth, draft_ms);
}

void df_width_note_catch_up(df_width_costs *c, double ms) {
  c->catch_up += (c->catch_up > 0 ? k_learn_catch_up : 1) * (ms - c->catch_up);
}

double df_width_catch_up_steps(const df_width_costs *c, uint32_t n, uint32_t depth) {
  const double plain = df_width_cost_at(&c->verify, n, depth);
  return plain > 0 ? c->catch_up / plain : 0;
}

void df_width_share(const df_width_costs *c, uint32_t n, uint32_t width, uint32_t rows, uint32_t depth,
                    double *verify_ms, double *draft_ms) {
  const double v = df_width_cost_at(&c->verify, n * rows, depth), d = df_width_cost_at(&c->draft, n * width, depth);
  const double ms = *verify_ms + *draft_ms;
  if (width == 1 || !(v > 0) || !(d > 0)) return;
  *verify_ms = ms * v / (v + d);
  *draft_ms = ms - *verify_ms;
}

/* Milliseconds of a step in which all n requests draft `width` rows and verify `rows`. */
static double step_cost(const df_width_costs *c, uint32_t n, uint32_t width, uint32_t rows, uint32_t depth) {
  return df_width_cost_at(&c->verify, n * rows, depth) +
         (width > 1 ? df_width_cost_at(&c->draft, n * width, depth) : 0);
}

double df_width_plain_steps(const df_width_costs *c, uint32_t n, uint32_t width, uint32_t rows, uint32_t depth) {
  if (width == 1) return 1;
  const double plain = step_cost(c, n, 1, 1, depth);
  return plain > 0 ? step_cost(c, n, width, rows, depth) / plain : 0;
}

void df_width_account(df_width_estimate *e, double plain_steps, uint32_t tokens) {
  e->tokens += tokens;
  e->saved += tokens - plain_steps;
}

/* Rows to draft where `rows` are best to verify in all blocks alike. One more earns its time in those blocks of which
 * the draft is sure, if it earns enough of it on the average. */
static uint32_t draft_rows(const df_width_costs *c, const double *tokens, uint32_t n, uint32_t rows, uint32_t max,
                           uint32_t depth) {
  if (!c->cuts || rows == max) return rows;
  const double ms = step_cost(c, n, rows + 1, rows + 1, depth) - step_cost(c, n, rows, rows, depth);
  return tokens[rows + 1] - tokens[rows] > k_spare * c->per_ms * ms ? rows + 1 : rows;
}

/* ---- the choice ----------------------------------------------------------------------------------------- */

/* Whether the accounts of a group cover a step of which nothing is accepted. A text that still promises much may lose
 * more: bad luck at its beginning must not keep it from drafting. */
static bool can_afford(df_width_estimate *const *e, uint32_t n, double steps, double gain) {
  const double credit = k_credit * (1 + (gain > 1 ? k_credit_gain * (gain - 1) : 0));
  double sum = 0;
  for (uint32_t i = 0; i < n; i++) sum += e[i]->saved + credit + k_credit_share * e[i]->tokens;
  return sum >= n * (steps - 1);
}

/* Whether a look at plain decoding is due or going on. Its price must not be an old one, and it takes a few steps to
 * see it: the first still pay for weights that drafting pushed out of the caches. Each step back from drafting costs
 * what drafting gains, so the clearer its gain the longer the gap. */
static bool plain_is_due(df_width_costs *c, double gain) {
  const double gap = PLAIN_GAP + k_gap_gain * (gain - 1);
  if (++c->since_plain > clamp(gap, PLAIN_GAP, PLAIN_GAP_MAX) + k_gap_wake * c->wake) {
    c->since_plain = 0;
    c->plain_left = PLAIN_RUN;
  }
  if (c->plain_left == 0) return false;
  c->plain_left--;
  return true;
}

/* Whether a probe is due that costs `steps` plain steps, `change` more to change to drafting and back, and brings
 * `gain` of plain decoding's tokens for its time. */
static bool probe_is_due(df_width_costs *c, double steps, double gain, double change) {
  const double loss = steps * (1 - gain) + change;
  if (c->since_probe < clamp(loss / k_probe_share, MIN_PROBE_GAP, MAX_PROBE_GAP)) return false;
  c->since_probe = 0;
  return true;
}

uint32_t df_width_choose(df_width_costs *c, df_width_estimate *const *e, uint32_t n, uint32_t max, uint32_t depth) {
  uint32_t best = 1;
  double tokens[DF_WIDTH_MAX + 1] = {0}, best_rate = 0, most = INFINITY;
  for (uint32_t i = 0; i < n; i++) df_width_expected(e[i], max, tokens);
  const double one = step_cost(c, n, 1, 1, depth), plain = one > 0 ? n / one : 0;
  /* No width costs more than a wider one: a price from a time when the machine was slow must not keep it from being
   * tried again. */
  for (uint32_t w = max; w >= 2; w--) {
    most = at_most(step_cost(c, n, w, w, depth), most);
    const double rate = most > 0 ? tokens[w] / most : 0;
    if (rate >= best_rate && rate > 0) {
      best_rate = rate;
      best = w;
    }
  }
  c->per_ms = plain > best_rate ? plain : best_rate;
  if (best == 1 || plain == 0) return 1;
  const uint32_t width = draft_rows(c, tokens, n, best, max, depth);
  const double first = c->run.len > 0 ? df_width_catch_up_steps(c, n, depth) : 0, change = c->wake + first;
  const double gain = best_rate / plain, sticky = k_sticky * change;
  const double steps = df_width_plain_steps(c, n, width, best, depth);
  c->since_probe++;
  if (!can_afford(e, n, steps + first, gain)) {
    c->drafting = false;
    return 1;
  }
  if (gain > (c->drafting ? 1 - sticky : 1 + sticky)) {
    c->drafting = true;
    c->since_probe = 0;
    return plain_is_due(c, gain) ? 1 : width;
  }
  c->drafting = false;
  c->since_plain = c->plain_left = 0;
  return probe_is_due(c, steps, gain, change) ? width : 1;
}
