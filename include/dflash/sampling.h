/*
 * dflash/sampling.h - how a token is chosen from the model's distribution.
 *
 * Order: logit bias, repetition penalty, presence and frequency penalty, temperature, top-k, top-p, min-p; then one
 * draw per emitted position from a generator keyed by (seed, position), so that the text does not depend on drafting.
 * Ownership: plain data; bias is borrowed by the calls that take the struct. Threads: no state.
 */
#ifndef DFLASH_SAMPLING_H
#define DFLASH_SAMPLING_H

#include <stdint.h>

#include "dflash/status.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct df_logit_bias {
  int32_t id;
  float bias; /* added to the logit; -INFINITY removes the id */
} df_logit_bias;

typedef struct df_sampling_params {
  float temperature;        /* >= 0; 0 = greedy: the best token, lowest id on ties */
  float top_p;              /* 0..1; 1 = off */
  float min_p;              /* 0..1; 0 = off */
  float repetition_penalty; /* > 0; 1 = off; once per distinct token of prompt and output */
  float presence_penalty;   /* any finite; 0 = off; output only */
  float frequency_penalty;  /* any finite; 0 = off; output only, per occurrence */
  int32_t top_k;            /* 0 or negative = off; exactly k stay */
  uint64_t seed;
  const df_logit_bias *bias; /* each id at most once; ids outside the vocabulary are ignored */
  uint32_t n_bias;
} df_sampling_params;

DF_API df_sampling_params df_sampling_params_default(void); /* greedy */

#ifdef __cplusplus
}
#endif
#endif
