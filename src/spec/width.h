/*
 * spec/width.h - how many rows the next verify block should have.
 *
 * Expected tokens of a block of w rows: E(w) = 1 + sum over j < w of prod_{i <= j} a_i, where a_i is the chance that
 * draft slot i is accepted given that all before it were. The controller takes the width with the best E(w) / cost(w);
 * width 1 (plain decoding) is always a candidate, so that a bad draft costs no more than the probes that notice a
 * better one.
 *
 * Costs are measured: a few widths at start, every step afterwards. Widths in between are interpolated.
 * The text does not depend on any of this: a block's width never changes what is accepted, only how much is tried.
 *
 * Threads: one owner. No allocation.
 */
#ifndef DF_SPEC_WIDTH_H
#define DF_SPEC_WIDTH_H

#include <stdbool.h>
#include <stdint.h>

enum { DF_WIDTH_MAX = 16, DF_WIDTH_SEQS = 64 };

enum { DF_WIDTH_ROWS = DF_WIDTH_MAX * DF_WIDTH_SEQS + 1 };

/* Milliseconds of one pass, by its rows and by the KV length that its attention reads: base + per_pos * depth. A base
 * of 0 = not measured yet. */
typedef struct df_width_cost {
  double base[DF_WIDTH_ROWS];
  double per_pos[DF_WIDTH_ROWS];
} df_width_cost;

typedef struct df_width_costs {
  df_width_cost verify; /* verify or decode */
  df_width_cost draft;  /* drafting and injection */
  uint32_t since_plain; /* drafting steps since the last run of plain ones */
  uint32_t plain_left;  /* plain steps still to come of such a run */
  uint32_t since_probe; /* plain steps since something was drafted, over all requests */
} df_width_costs;

/* Acceptance by slot, of one request or of all so far: decayed counts. */
typedef struct df_width_estimate {
  float tried[DF_WIDTH_MAX];    /* slot j was reached */
  float accepted[DF_WIDTH_MAX]; /* and accepted */
  float prior[DF_WIDTH_MAX];    /* rate of slot j to start from */
} df_width_estimate;

/* Nothing observed: E(w) starts from a prior of a few imagined observations, so that the first steps draft. */
void df_width_estimate_init(df_width_estimate *e);
/* The prior becomes what `others`, the requests before, have seen. */
void df_width_estimate_learn(df_width_estimate *e, const df_width_estimate *others);
/* A block of n_drafted slots of which `accepted` stood. */
void df_width_estimate_update(df_width_estimate *e, uint32_t n_drafted, uint32_t accepted);
/* E(w), at least 1. */
double df_width_expected(const df_width_estimate *e, uint32_t width);

/* Two measurements at start: with nothing in the cache, and at `depth` positions. */
void df_width_cost_calibrate(df_width_cost *c, uint32_t rows, double ms_empty, uint32_t depth, double ms_deep);
/* A measurement of a real step; outliers (another process took the core) count for little. */
void df_width_cost_add(df_width_cost *c, uint32_t rows, uint32_t depth, double ms);
/* Interpolated between measured row counts, extrapolated in proportion at the ends; 0 when nothing was measured. */
double df_width_cost_at(const df_width_cost *c, uint32_t rows, uint32_t depth);

/* Common width for a group of n requests whose KV length is about `depth`, 1..max. Drafting must promise 5 % more than
 * plain decoding to be chosen. Now and then it answers something else, to learn: behind many plain steps a small probe
 * width, at most so often that probing costs 2 % of plain decoding; behind many drafting steps a short run of plain
 * ones, the less often the clearer drafting wins. */
uint32_t df_width_choose(df_width_costs *c, df_width_estimate *const *e, uint32_t n, uint32_t max, uint32_t depth);

#endif
