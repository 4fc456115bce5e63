/*
 * spec/width.h - how many rows the next verify block should have.
 *
 * Expected tokens of a block of w rows: E(w) = 1 + sum over j < w of prod_{i <= j} a_i, where a_i is the chance that
 * draft slot i is accepted given that all before it were. The controller takes the width with the best E(w) / cost(w);
 * width 1 (plain decoding) is always a candidate.
 *
 * What is known of a request's acceptance fades, with every block and with every plain step, towards what all requests
 * before it have shown: a text that was hard for the draft is tried again before long. So that this costs no request
 * more than it should, each keeps an account, in plain steps, of what drafting saved or lost it, and drafts only while
 * the account, a small credit included, covers a block of which nothing is accepted.
 *
 * Costs are measured: a few widths at start, every step afterwards. Widths in between are interpolated.
 * Plain steps leave their features for later. A 16th of an injection for each, when no more can be kept, is in the
 * price of the plain steps behind it; what waits when something is drafted again is injected first. This is paid once
 * and not for every block: so it is no part of any width's price, but of what the change from plain decoding to
 * drafting costs, like the slow steps behind the change back: a probe's loss, the gain that a change must promise, and
 * the accounts count it. The text does not depend on any of this: a block's width never changes what is accepted, only
 * how much is tried.
 *
 * Threads: one owner. No allocation.
 */
#ifndef DF_SPEC_WIDTH_H
#define DF_SPEC_WIDTH_H

#include <stdbool.h>
#include <stdint.h>

enum { DF_WIDTH_MAX = 16, DF_WIDTH_SEQS = 64 };

enum { DF_WIDTH_ROWS = DF_WIDTH_MAX * DF_WIDTH_SEQS + 1 };

/* Milliseconds of one pass, by its rows and by the KV length that its attention reads: (base + per_pos * depth) * pace.
 * A base of 0 = not measured yet; all zero = nothing is. */
typedef struct df_width_cost {
  double pace; /* of the machine now, beside that of the first measurement */
  double base[DF_WIDTH_ROWS];
  double per_pos[DF_WIDTH_ROWS];
  uint8_t seen[DF_WIDTH_ROWS]; /* measurements, as far as they matter */
} df_width_cost;

/* Plain steps in a row. Behind drafting the first of them are slow where drafting pushed the target's weights out of a
 * cache: runs that last show by how much. */
typedef struct df_width_run {
  uint32_t n, len;         /* sequences of its steps, 0 = they differed; steps */
  double third, sum, late; /* milliseconds: the third step, the first ones together, the mean of late ones */
} df_width_run;

typedef struct df_width_costs {
  df_width_cost verify; /* verify or decode */
  df_width_cost draft;  /* drafting and injection */
  double catch_up;      /* injecting what plain steps left, before the draft behind them; 0 = free, or not known */
  double wake;          /* plain steps' worth of time that the steps behind a draft lose */
  double third;         /* of this the third step's share of a step */
  df_width_run run;
  bool drafting;        /* the last choice, probes and looks at plain decoding aside */
  uint32_t since_plain; /* drafting steps since the last look at plain decoding */
  uint32_t plain_left;  /* plain steps still to come of such a look */
  uint32_t since_probe; /* plain steps since something was drafted, over all requests */
  double per_ms;        /* tokens that the last choice expects of a millisecond, all requests of its group together */
  bool cuts;            /* blocks are cut when the draft has said how sure it is: draft a little more */
} df_width_costs;

/* Acceptance by slot, of one request or of all so far: decayed counts. */
typedef struct df_width_estimate {
  float tried[DF_WIDTH_MAX];    /* slot j was reached */
  float accepted[DF_WIDTH_MAX]; /* and accepted */
  float prior[DF_WIDTH_MAX];    /* rate of slot j to start from */
  float promised, stood;        /* verified drafts by their chances, and those that stood: how far to trust chances */
  float keep;                   /* share of the counts that a block leaves */
  double saved;                 /* plain steps' time that drafting saved this request; negative: lost */
  double tokens;                /* of this request so far */
} df_width_estimate;

/* Nothing observed, of a request: E(w) starts from a prior of a few imagined observations. */
void df_width_estimate_init(df_width_estimate *e);
/* The same for what all requests show: it remembers about eight times as many blocks. */
void df_width_estimate_init_all(df_width_estimate *e);
/* The prior becomes what `others`, the requests before, have seen. */
void df_width_estimate_learn(df_width_estimate *e, const df_width_estimate *others);
/* A block: n slots were verified and `accepted` stood. chance: NULL, or of every slot before the verify; then the block
 * had n_cut slots more, and if all verified ones stood, these are counted by their chances. */
void df_width_estimate_update(df_width_estimate *e, uint32_t n, uint32_t accepted, const float *chance, uint32_t n_cut);
/* A plain step: what is known gets older. */
void df_width_estimate_fade(df_width_estimate *e);
/* What becomes of a chance that drafts have in general, for this request: its factor. */
double df_width_estimate_trust(const df_width_estimate *e);
/* Adds E(w) to tokens[w], w = 1..max. */
void df_width_expected(const df_width_estimate *e, uint32_t max, double *tokens);
/* What a step of n requests costs that drafts blocks of `width` rows and verifies `rows` of them, in plain steps of
 * theirs; 0 when that is not known. */
double df_width_plain_steps(const df_width_costs *c, uint32_t n, uint32_t width, uint32_t rows, uint32_t depth);
/* A step that costs so many plain steps brought the request `tokens`: on its account. */
void df_width_account(df_width_estimate *e, double plain_steps, uint32_t tokens);

/* Two measurements at start: with nothing in the cache, and at `depth` positions. */
void df_width_cost_calibrate(df_width_cost *c, uint32_t rows, double ms_empty, uint32_t depth, double ms_deep);
/* A measurement of a real step; outliers (another process took the core) count for little. All row counts follow it,
 * since most of what changes is the machine's speed, and the measured one a little further. */
void df_width_cost_add(df_width_cost *c, uint32_t rows, uint32_t depth, double ms);
/* Interpolated between measured row counts, extrapolated in proportion at the ends; 0 when nothing was measured. */
double df_width_cost_at(const df_width_cost *c, uint32_t rows, uint32_t depth);
/* Everything that a step of n requests showed which drafted `width` rows and verified `rows` of them (1, 1 = plain
 * decoding). The first two plain steps behind drafting tell nothing of the price of plain decoding, the third is
 * corrected by what is known of such steps; so does a verify of one row. */
void df_width_note(df_width_costs *c, uint32_t n, uint32_t width, uint32_t rows, uint32_t depth, double verify_ms,
                   double draft_ms);
/* What catching up in front of a draft took, measured apart from it: it is in neither of the times above. */
void df_width_note_catch_up(df_width_costs *c, double ms);
/* The same in plain steps of n requests. */
double df_width_catch_up_steps(const df_width_costs *c, uint32_t n, uint32_t depth);

/* Draft and verify of such a step were waited for together: shares of their time in proportion to what each costs. Left
 * alone where no costs are known. */
void df_width_share(const df_width_costs *c, uint32_t n, uint32_t width, uint32_t rows, uint32_t depth,
                    double *verify_ms, double *draft_ms);

/* Common width of the blocks to draft for a group of n requests whose KV length is about `depth`, 1..max. Now and then
 * it answers something else, to learn: behind plain steps a probe of the best width, at most so often that probing
 * costs 2 % of plain decoding; behind many drafting steps a few plain ones, the less often the clearer drafting wins.
 */
uint32_t df_width_choose(df_width_costs *c, df_width_estimate *const *e, uint32_t n, uint32_t max, uint32_t depth);

#endif
