#include "engine/sampler.h"

#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "base/size.h"
#include "engine/rng.h"

enum { BINS = 1024, LANES = 16 };
static const float BINS_PER_LOGIT = 32.0f;

df_sampling_params df_sampling_params_default(void) {
  return (df_sampling_params){.temperature = 0.0f, .top_p = 1.0f, .repetition_penalty = 1.0f};
}

df_status df_sampling_params_check(const df_sampling_params *p, df_error *err) {
  /* Written so that NaN fails every test. */
  if (!(p->temperature >= 0.0f && p->temperature <= 1e6f))
    return DF_FAIL(err, DF_ERR_ARGUMENT, "temperature %g is outside 0..1e6", (double)p->temperature);
  if (!(p->top_p >= 0.0f && p->top_p <= 1.0f))
    return DF_FAIL(err, DF_ERR_ARGUMENT, "top_p %g is outside 0..1", (double)p->top_p);
  if (!(p->min_p >= 0.0f && p->min_p <= 1.0f))
    return DF_FAIL(err, DF_ERR_ARGUMENT, "min_p %g is outside 0..1", (double)p->min_p);
  if (!(p->repetition_penalty > 0.0f && p->repetition_penalty <= 1e6f))
    return DF_FAIL(err, DF_ERR_ARGUMENT, "repetition_penalty %g is outside 0..1e6", (double)p->repetition_penalty);
  if (!(fabsf(p->presence_penalty) <= 1e6f))
    return DF_FAIL(err, DF_ERR_ARGUMENT, "presence_penalty %g is outside -1e6..1e6", (double)p->presence_penalty);
  if (!(fabsf(p->frequency_penalty) <= 1e6f))
    return DF_FAIL(err, DF_ERR_ARGUMENT, "frequency_penalty %g is outside -1e6..1e6", (double)p->frequency_penalty);
  for (uint32_t i = 0; i < p->n_bias; i++)
    if (!(p->bias[i].bias <= 1e6f))
      return DF_FAIL(err, DF_ERR_ARGUMENT, "the bias of token %d is not a number below 1e6", p->bias[i].id);
  return DF_OK;
}

df_status df_sampler_scratch_init(df_sampler_scratch *s, uint32_t vocab, df_error *err) {
  *s = (df_sampler_scratch){0};
  if (vocab == 0 || vocab > (1u << 28))
    return DF_FAIL(err, DF_ERR_ARGUMENT, "a vocabulary of %u tokens is outside 1..2^28", vocab);
  const size_t n = df_round_up(vocab, 64);
  char *b = df_alloc(n * (sizeof(double) + sizeof(uint64_t) + sizeof(float) + 1));
  if (!b) return DF_OOM(err, "sampling", n * 21);
  *s = (df_sampler_scratch){.vocab = vocab, .block = b};
  s->weight = (double *)(void *)b;
  s->heap = (uint64_t *)(void *)(b + n * 8);
  s->work = (float *)(void *)(b + n * 16);
  s->mark = (uint8_t *)(b + n * 20);
  return DF_OK;
}

void df_sampler_scratch_release(df_sampler_scratch *s) {
  df_free(s->block);
  *s = (df_sampler_scratch){0};
}

/* ---- arithmetic ------------------------------------------------------------------------------------------ */

/* exp(x) for x <= 0. 2^n * exp(r) with |r| <= ln2/2 and a degree 12 Taylor polynomial; branch free, so that the
 * compiler can use vectors. Below -700 it is 0. */
static inline double exp_neg(double x) {
  const double magic = 0x1.8p52;
  const double xc = x < -700.0 ? -700.0 : x;
  const double t = xc * 0x1.71547652b82fep+0 + magic; /* the low bits of t hold n */
  const double n = t - magic;
  const double r = (xc - n * 0x1.62e42fefa38p-1) - n * 0x1.ef35793c7673p-45;
  double p = 1.0 / 479001600.0;
  p = p * r + 1.0 / 39916800.0;
  p = p * r + 1.0 / 3628800.0;
  p = p * r + 1.0 / 362880.0;
  p = p * r + 1.0 / 40320.0;
  p = p * r + 1.0 / 5040.0;
  p = p * r + 1.0 / 720.0;
  p = p * r + 1.0 / 120.0;
  p = p * r + 1.0 / 24.0;
  p = p * r + 1.0 / 6.0;
  p = p * r + 0.5;
  p = p * r + 1.0;
  p = p * r + 1.0;
  uint64_t bits, scale;
  memcpy(&bits, &t, 8);
  memcpy(&scale, &p, 8);
  scale += bits << 52;
  double y;
  memcpy(&y, &scale, 8);
  return x < -700.0 ? 0.0 : y;
}

/* Largest value, -INFINITY for an empty row; *broken becomes true when NaN or +infinity occur. */
static float row_max(const float *x, uint32_t n, bool *broken) {
  float best[LANES];
  unsigned odd[LANES] = {0};
  for (int l = 0; l < LANES; l++) best[l] = -INFINITY;
  uint32_t i = 0;
  for (; i + LANES <= n; i += LANES)
    for (int l = 0; l < LANES; l++) {
      const float v = x[i + (uint32_t)l];
      best[l] = v > best[l] ? v : best[l];
      odd[l] |= v < INFINITY ? 0u : 1u;
    }
  for (; i < n; i++) {
    best[0] = x[i] > best[0] ? x[i] : best[0];
    odd[0] |= x[i] < INFINITY ? 0u : 1u;
  }
  float m = best[0];
  unsigned any = odd[0];
  for (int l = 1; l < LANES; l++) {
    m = best[l] > m ? best[l] : m;
    any |= odd[l];
  }
  *broken = any != 0;
  return m;
}

int32_t df_argmax(const float *x, uint32_t n) {
  bool broken;
  const float m = row_max(x, n, &broken);
  for (uint32_t i = 0; i < n; i++)
    if (x[i] == m) return (int32_t)i;
  return -1;
}

/* ---- steps 1 to 3 ---------------------------------------------------------------------------------------- */

static bool valid_id(int32_t id, uint32_t vocab) { return id >= 0 && (uint32_t)id < vocab; }

static void apply_seen(const df_sampling_params *p, const df_seen *seen, float *work, uint32_t vocab) {
  for (uint32_t i = 0; i < seen->n; i++) {
    const df_seen_entry e = seen->entries[i];
    if (!valid_id(e.id, vocab)) continue;
    float v = work[e.id];
    v = v > 0.0f ? v / p->repetition_penalty : v * p->repetition_penalty;
    if (e.generated) v -= p->presence_penalty + p->frequency_penalty * (float)e.generated;
    work[e.id] = v;
  }
}

static void apply_mask(const df_token_mask *m, float *work, uint32_t vocab) {
  if (m->allowed)
    for (uint32_t i = 0; i < vocab; i++)
      if (!(m->allowed[i / 64] >> (i % 64) & 1)) work[i] = -INFINITY;
  for (uint32_t i = 0; i < m->n_banned; i++)
    if (valid_id(m->banned[i], vocab)) work[m->banned[i]] = -INFINITY;
}

/* The row after penalties: the caller's own when there is nothing to change, else scratch->work. */
static const float *processed(const df_sampling_params *p, const float *logits, uint32_t vocab, const df_seen *seen,
                              const df_token_mask *mask, df_sampler_scratch *s) {
  const bool penal =
      seen && seen->n && (p->repetition_penalty != 1.0f || p->presence_penalty != 0.0f || p->frequency_penalty != 0.0f);
  const bool masked = mask && (mask->allowed || mask->n_banned);
  if (!penal && !masked && p->n_bias == 0) return logits;
  memcpy(s->work, logits, (size_t)vocab * sizeof *logits);
  for (uint32_t i = 0; i < p->n_bias; i++)
    if (valid_id(p->bias[i].id, vocab)) s->work[p->bias[i].id] += p->bias[i].bias;
  if (masked) apply_mask(mask, s->work, vocab);
  if (penal) apply_seen(p, seen, s->work, vocab);
  return s->work;
}

/* ---- best-first order ------------------------------------------------------------------------------------ */

/* Larger logit = larger key, then lower id = larger key; all keys differ. +0 and -0 tie. */
static inline uint64_t sort_key(float v, uint32_t id) {
  v += 0.0f;
  uint32_t b;
  memcpy(&b, &v, 4);
  b = b & 0x80000000u ? ~b : b | 0x80000000u;
  return (uint64_t)b << 32 | (uint32_t)~id;
}

static inline uint32_t key_id(uint64_t key) { return ~(uint32_t)key; }

static void sift_down(uint64_t *h, uint32_t i, uint32_t n) {
  const uint64_t v = h[i];
  for (;;) {
    uint32_t c = 2 * i + 1;
    if (c >= n) break;
    if (c + 1 < n && h[c + 1] > h[c]) c++;
    if (h[c] <= v) break;
    h[i] = h[c];
    i = c;
  }
  h[i] = v;
}

static void heapify(uint64_t *h, uint32_t n) {
  for (uint32_t i = n / 2; i-- > 0;) sift_down(h, i, n);
}

static uint32_t heap_pop(uint64_t *h, uint32_t *n) {
  const uint32_t id = key_id(h[0]);
  h[0] = h[--*n];
  if (*n) sift_down(h, 0, *n);
  return id;
}

/* Distance from the best in steps of 1/32. Rounding is monotone, so bins never contradict the order of keys. */
static inline uint32_t bin_of(float v, float best) {
  const float d = (best - v) * BINS_PER_LOGIT;
  return d < (float)(BINS - 1) ? (uint32_t)d : BINS - 1;
}

/* Heap of all finite ids in bins 0..last; returns their number. */
static uint32_t gather(const float *x, uint32_t vocab, float best, uint32_t last, uint64_t *heap) {
  uint32_t n = 0;
  for (uint32_t i = 0; i < vocab; i++)
    if (bin_of(x[i], best) <= last && x[i] > -INFINITY) heap[n++] = sort_key(x[i], i);
  heapify(heap, n);
  return n;
}

/* Smallest bin such that bins 0..it hold at least k ids. */
static uint32_t bin_for_count(const float *x, uint32_t vocab, float best, uint32_t k) {
  uint32_t count[BINS] = {0};
  for (uint32_t i = 0; i < vocab; i++) count[bin_of(x[i], best)]++;
  uint64_t sum = 0;
  uint32_t b = 0;
  for (; b < BINS - 1; b++) {
    sum += count[b];
    if (sum >= k) break;
  }
  return b;
}

static uint32_t bin_for_mass(const float *x, const double *w, uint32_t vocab, float best, double need) {
  double mass[BINS] = {0};
  for (uint32_t i = 0; i < vocab; i++) mass[bin_of(x[i], best)] += w[i];
  double sum = 0;
  uint32_t b = 0;
  for (; b < BINS - 1; b++) {
    sum += mass[b];
    if (sum >= need) break;
  }
  return b;
}

/* ---- steps 4 to 8: marks the survivors and fills their weights ------------------------------------------- */

typedef struct row {
  const float *x; /* processed logits */
  uint32_t vocab;
  float best;
  double inv_t;
} row;

static void weigh_all(const row *r, double *w) {
  for (uint32_t i = 0; i < r->vocab; i++) w[i] = exp_neg(((double)r->x[i] - (double)r->best) * r->inv_t);
}

static double sum_of(const double *w, uint32_t n) {
  double sum = 0;
  for (uint32_t i = 0; i < n; i++) sum += w[i];
  return sum;
}

static void filter_top_k(const df_sampling_params *p, const row *r, uint32_t k, df_sampler_scratch *s) {
  uint32_t left = gather(r->x, r->vocab, r->best, bin_for_count(r->x, r->vocab, r->best, k), s->heap);
  /* heap_pop frees the last place of the heap; the ids already popped, best first, are parked there. */
  const uint32_t n = left;
  k = DF_MIN(k, left);
  double sum = 0;
  for (uint32_t j = 0; j < k; j++) {
    const uint32_t id = heap_pop(s->heap, &left);
    s->heap[n - 1 - j] = id;
    s->weight[id] = exp_neg(((double)r->x[id] - (double)r->best) * r->inv_t);
    sum += s->weight[id];
  }
  const double need = p->top_p < 1.0f ? (double)p->top_p * sum : INFINITY;
  double cum = 0;
  for (uint32_t j = 0; j < k; j++) {
    const uint32_t id = (uint32_t)s->heap[n - 1 - j];
    if (j > 0 && (cum >= need || s->weight[id] < (double)p->min_p)) break;
    s->mark[id] = 1;
    cum += s->weight[id];
  }
}

/* Pops best first until the mass is reached; false when the heap ran out before. */
static bool mark_top_p(const df_sampling_params *p, double need, uint32_t left, df_sampler_scratch *s) {
  double cum = 0;
  for (bool first = true; left; first = false) {
    if (!first && cum >= need) return true;
    const uint32_t id = heap_pop(s->heap, &left);
    if (!first && s->weight[id] < (double)p->min_p) return true;
    s->mark[id] = 1;
    cum += s->weight[id];
  }
  return cum >= need;
}

static void filter_top_p(const df_sampling_params *p, const row *r, df_sampler_scratch *s) {
  weigh_all(r, s->weight);
  const double need = (double)p->top_p * sum_of(s->weight, r->vocab);
  uint32_t last = bin_for_mass(r->x, s->weight, r->vocab, r->best, need);
  /* The bins add up in another order than the walk: when rounding makes them end just short, walk everything. */
  while (!mark_top_p(p, need, gather(r->x, r->vocab, r->best, last, s->heap), s) && last < BINS - 1) {
    memset(s->mark, 0, r->vocab);
    last = BINS - 1;
  }
}

static void filter_none(const df_sampling_params *p, const row *r, df_sampler_scratch *s) {
  weigh_all(r, s->weight);
  /* The best weight is exactly 1, so min_p needs no normalisation; without min_p everything finite stays. */
  const double floor_w = (double)p->min_p;
  for (uint32_t i = 0; i < r->vocab; i++) s->mark[i] = s->weight[i] >= floor_w && r->x[i] > -INFINITY;
}

static df_status prepare(const df_sampling_params *p, const float *logits, uint32_t vocab, const df_seen *seen,
                         const df_token_mask *mask, df_sampler_scratch *s, row *r, df_error *err) {
  if (vocab == 0 || vocab > s->vocab)
    return DF_FAIL(err, DF_ERR_ARGUMENT, "a row of %u logits does not fit a scratch for %u", vocab, s->vocab);
  const float *x = processed(p, logits, vocab, seen, mask, s);
  bool broken;
  const float best = row_max(x, vocab, &broken);
  if (broken) {
    uint32_t i = 0;
    while (i < vocab && x[i] < INFINITY) i++;
    return DF_FAIL(err, DF_ERR_INTERNAL, "could not pick a token: the logit of token %u is %g", i, (double)x[i]);
  }
  if (!(best > -INFINITY)) return DF_FAIL(err, DF_ERR_LIMIT, "could not pick a token: every token is excluded");
  *r = (row){.x = x, .vocab = vocab, .best = best, .inv_t = p->temperature > 0.0f ? 1.0 / (double)p->temperature : 0};
  return DF_OK;
}

static uint32_t first_best(const row *r) {
  uint32_t i = 0;
  while (r->x[i] != r->best) i++;
  return i;
}

static void filter(const df_sampling_params *p, const row *r, df_sampler_scratch *s) {
  memset(s->mark, 0, r->vocab);
  if (p->temperature == 0.0f) {
    const uint32_t id = first_best(r);
    s->mark[id] = 1;
    s->weight[id] = 1.0;
  } else if (p->top_k > 0 && (uint32_t)p->top_k < r->vocab) {
    filter_top_k(p, r, (uint32_t)p->top_k, s);
  } else if (p->top_p < 1.0f) {
    filter_top_p(p, r, s);
  } else {
    filter_none(p, r, s);
  }
}

static double kept_sum(const df_sampler_scratch *s, uint32_t vocab) {
  double sum = 0;
  for (uint32_t i = 0; i < vocab; i++)
    if (s->mark[i]) sum += s->weight[i];
  return sum;
}

static int32_t inverse_cdf(const df_sampler_scratch *s, uint32_t vocab, double u) {
  const double goal = u * kept_sum(s, vocab);
  double run = 0;
  int32_t last = -1;
  for (uint32_t i = 0; i < vocab; i++) {
    if (!s->mark[i] || s->weight[i] == 0.0) continue;
    run += s->weight[i];
    last = (int32_t)i;
    if (run > goal) break;
  }
  return last; /* also when rounding leaves the sum at the goal: the last id that has weight */
}

/* ---- public ---------------------------------------------------------------------------------------------- */

/* ln of the sum of exp(logit - best): what a logit loses to become a log-probability. */
static double log_norm(const float *logits, uint32_t vocab, float best) {
  double part[8] = {0}; /* fixed lanes: a vector unit may work on them, the sum stays the same */
  uint32_t i = 0;
  for (; i + 8 <= vocab; i += 8)
    for (uint32_t l = 0; l < 8; l++) part[l] += exp_neg((double)logits[i + l] - (double)best);
  for (; i < vocab; i++) part[0] += exp_neg((double)logits[i] - (double)best);
  return log(sum_of(part, 8));
}

df_status df_sampler_pick_masked(const df_sampling_params *params, const float *logits, uint32_t vocab,
                                 const df_seen *seen, const df_token_mask *mask, uint64_t position,
                                 df_sampler_scratch *scratch, int32_t *id_out, float *logprob_out, df_error *err) {
  row r = {0};
  DF_TRY(prepare(params, logits, vocab, seen, mask, scratch, &r, err));
  int32_t id;
  if (params->temperature == 0.0f || params->top_k == 1) {
    id = (int32_t)first_best(&r);
  } else {
    filter(params, &r, scratch);
    id = inverse_cdf(scratch, vocab, df_rng_uniform(params->seed, position, DF_RNG_TOKEN));
  }
  if (logprob_out) {
    bool broken;
    const float best = r.x == logits ? r.best : row_max(logits, vocab, &broken);
    *logprob_out = (float)((double)logits[id] - (double)best - log_norm(logits, vocab, best));
  }
  *id_out = id;
  return DF_OK;
}

df_status df_sampler_pick(const df_sampling_params *params, const float *logits, uint32_t vocab, const df_seen *seen,
                          uint64_t position, df_sampler_scratch *scratch, int32_t *id_out, float *logprob_out,
                          df_error *err) {
  return df_sampler_pick_masked(params, logits, vocab, seen, NULL, position, scratch, id_out, logprob_out, err);
}

df_status df_sampling_transform(const df_sampling_params *params, const float *logits, uint32_t vocab,
                                const df_seen *seen, const df_token_mask *mask, df_sampler_scratch *scratch,
                                double *probs_out, int32_t *kept_out, uint32_t *n_kept_out, int32_t *greedy_out,
                                df_error *err) {
  row r = {0};
  DF_TRY(prepare(params, logits, vocab, seen, mask, scratch, &r, err));
  filter(params, &r, scratch);
  const double sum = kept_sum(scratch, vocab);
  uint32_t n = 0;
  for (uint32_t i = 0; i < vocab; i++) {
    probs_out[i] = scratch->mark[i] ? scratch->weight[i] / sum : 0.0;
    if (!scratch->mark[i]) continue;
    if (kept_out) kept_out[n] = (int32_t)i;
    n++;
  }
  if (n_kept_out) *n_kept_out = n;
  if (greedy_out) *greedy_out = (int32_t)first_best(&r);
  return DF_OK;
}

df_status df_sampler_logprob(const float *logits, uint32_t vocab, int32_t id, float *out, df_error *err) {
  bool broken;
  const float best = row_max(logits, vocab, &broken);
  if (broken || !(best > -INFINITY) || id < 0 || (uint32_t)id >= vocab)
    return DF_FAIL(err, DF_ERR_INTERNAL, "could not tell the probability of token %d", id);
  *out = (float)((double)logits[id] - (double)best - log_norm(logits, vocab, best));
  return DF_OK;
}

df_status df_sampler_top_logprobs(const float *logits, uint32_t vocab, uint32_t n, df_sampler_scratch *scratch,
                                  int32_t *ids_out, float *logprobs_out, uint32_t *n_out, df_error *err) {
  const df_sampling_params plain = df_sampling_params_default();
  row r = {0};
  DF_TRY(prepare(&plain, logits, vocab, NULL, NULL, scratch, &r, err));
  const double norm = log_norm(logits, vocab, r.best);
  uint32_t left = gather(logits, vocab, r.best, bin_for_count(logits, vocab, r.best, n), scratch->heap);
  n = DF_MIN(n, left);
  for (uint32_t j = 0; j < n; j++) {
    const uint32_t id = heap_pop(scratch->heap, &left);
    ids_out[j] = (int32_t)id;
    logprobs_out[j] = (float)((double)logits[id] - (double)r.best - norm);
  }
  *n_out = n;
  return DF_OK;
}
