/*
 * engine/sampler.h - from one row of logits to one token.
 *
 * Order of the steps, each on the result of the one before:
 *   1. logit bias added, ids outside the mask removed;
 *   2. repetition penalty, once per distinct id of prompt and output (positive logit divided, other multiplied);
 *   3. presence penalty (once) and frequency penalty (per occurrence), ids of the output only, subtracted;
 *   4. division by temperature; 0 = the best id, ties to the lower id, no softmax;
 *   5. top_k: exactly k stay, ties to the lower id;
 *   6. softmax in double;
 *   7. top_p: best first, until the sum of those kept is >= top_p; at least one stays;
 *   8. min_p: p >= min_p * best p stays;
 *   9. renormalised; the first id, in id order, whose running sum exceeds u.
 *
 * u comes from (seed, absolute position) alone (engine/rng.h): one draw per emitted position, whatever was drafted.
 * exp is our own (error below 1e-15 relative) so that the same seed gives the same text with every libm.
 *
 * Threads: a scratch belongs to one thread at a time; everything else is read only.
 */
#ifndef DF_ENGINE_SAMPLER_H
#define DF_ENGINE_SAMPLER_H

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "dflash/sampling.h"
#include "engine/seen.h"

/* Ids that may not be picked. Both parts may be absent; both apply. */
typedef struct df_token_mask {
  const uint64_t *allowed; /* bit id % 64 of word id / 64; NULL = all */
  const int32_t *banned;   /* ids; outside the vocabulary = ignored */
  uint32_t n_banned;
} df_token_mask;

/* Work memory for rows of up to `vocab` logits: about 29 bytes an id. */
typedef struct df_sampler_scratch {
  uint32_t vocab;
  float *work;    /* processed logits */
  double *weight; /* exp((logit - best) / temperature) */
  uint64_t *heap; /* sortable keys */
  uint8_t *mark;  /* 1 = survived all filters */
  void *block;
} df_sampler_scratch;

/* DF_ERR_ARGUMENT with the name of the first field outside its range. */
df_status df_sampling_params_check(const df_sampling_params *p, df_error *err) DF_CHECK;

df_status df_sampler_scratch_init(df_sampler_scratch *s, uint32_t vocab, df_error *err) DF_CHECK;
void df_sampler_scratch_release(df_sampler_scratch *s);

/* Index of the largest of n floats (n >= 1), the lowest on ties. NaN is never the largest; -1 when all are NaN. */
int32_t df_argmax(const float *x, uint32_t n);

/* Picks the token of `position`. seen and mask may be NULL; params must be valid (df_sampling_params_check).
 * logprob_out (may be NULL, costs a pass over the row): ln of the id's probability under the model's own
 * distribution, before any of the steps above. Never allocates.
 * DF_ERR_INTERNAL when a logit is NaN or +infinity, DF_ERR_LIMIT when mask and bias leave nothing. */
df_status df_sampler_pick(const df_sampling_params *params, const float *logits, uint32_t vocab, const df_seen *seen,
                          uint64_t position, df_sampler_scratch *scratch, int32_t *id_out, float *logprob_out,
                          df_error *err) DF_CHECK;
df_status df_sampler_pick_masked(const df_sampling_params *params, const float *logits, uint32_t vocab,
                                 const df_seen *seen, const df_token_mask *mask, uint64_t position,
                                 df_sampler_scratch *scratch, int32_t *id_out, float *logprob_out,
                                 df_error *err) DF_CHECK;

/* Steps 1 to 8 alone: probs_out[vocab] sums to 1, zero for the ids removed. kept_out (may be NULL, room for vocab)
 * receives the ids left, ascending, and *n_kept_out their number. greedy_out (may be NULL): best id after step 3.
 * With this distribution as p, spec/accept.h verifies drafts that carry probabilities. */
df_status df_sampling_transform(const df_sampling_params *params, const float *logits, uint32_t vocab,
                                const df_seen *seen, const df_token_mask *mask, df_sampler_scratch *scratch,
                                double *probs_out, int32_t *kept_out, uint32_t *n_kept_out, int32_t *greedy_out,
                                df_error *err) DF_CHECK;

/* ln of the id's probability under the model's own distribution. DF_ERR_INTERNAL when a logit is NaN or +infinity. */
df_status df_sampler_logprob(const float *logits, uint32_t vocab, int32_t id, float *out, df_error *err) DF_CHECK;

/* The n most likely ids under the model's own distribution, best first, ties to the lower id, with ln p.
 * n is cut to the number of finite logits; the number written is returned through *n_out. */
df_status df_sampler_top_logprobs(const float *logits, uint32_t vocab, uint32_t n, df_sampler_scratch *scratch,
                                  int32_t *ids_out, float *logprobs_out, uint32_t *n_out, df_error *err) DF_CHECK;

#endif
