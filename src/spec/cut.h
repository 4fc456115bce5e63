/*
 * spec/cut.h - how many of a block's drafts are worth verifying, decided when the draft has said how sure it is.
 *
 * A draft's own probability of its token tells how likely the token stands, block by block; what stood of drafts that
 * were as sure corrects it. With chances p_j a verify of m rows brings 1 + sum over j < m of prod_{i <= j} p_i tokens,
 * and each further row has to earn what its time would bring elsewhere: tokens(m) - per_ms * cost(m) is the largest at
 * the rows to take. The text does not depend on it.
 *
 * Threads: one owner. No allocation.
 */
#ifndef DF_SPEC_CUT_H
#define DF_SPEC_CUT_H

#include "spec/width.h"

enum { DF_CUT_BINS = 8 };

/* What drafts promised and what stood of it, by how sure they were: decayed sums over blocks. */
typedef struct df_cut_trust {
  float promised[DF_CUT_BINS], stood[DF_CUT_BINS];
} df_cut_trust;

/* Chance that a draft stands given that all before it do. sure: the draft's probability of its token; text: how much
 * more or less of such chances stand in this text (df_width_estimate_trust), 1 = as always. */
double df_cut_chance(const df_cut_trust *t, double sure, double text);
/* A block: of drafts that were so sure the first n were verified, and `accepted` of these stood. */
void df_cut_learn(df_cut_trust *t, const float *sure, uint32_t n, uint32_t accepted);

/* Rows 1..width to verify of blocks of `width` rows of n requests, all the same. chance[i][j]: of draft j of request i.
 * per_ms: tokens that a millisecond brings elsewhere. */
uint32_t df_cut_rows(const df_width_costs *c, const float (*chance)[DF_WIDTH_MAX], uint32_t n, uint32_t width,
                     uint32_t depth, double per_ms);

#endif
