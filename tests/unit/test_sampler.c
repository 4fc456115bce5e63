/* Sampler: random generator known answers, token history, and every filter against a plain sorting oracle. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/size.h"
#include "engine/rng.h"
#include "engine/sampler.h"

static uint64_t g_draws;
static double rnd(void) { return df_rng_uniform(2024, g_draws++, 9); }
static uint32_t rnd_below(uint32_t n) { return (uint32_t)(rnd() * n); }

/* ---- generator ------------------------------------------------------------------------------------------- */

static void test_philox__known_answers(void **state) {
  (void)state;
  /* From the kat_vectors file of the Random123 distribution. */
  const uint32_t ones = 0xffffffffu;
  const uint32_t in[3][6] = {{0, 0, 0, 0, 0, 0},
                             {ones, ones, ones, ones, ones, ones},
                             {0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344, 0xa4093822, 0x299f31d0}};
  const uint32_t want[3][4] = {{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8},
                               {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd},
                               {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}};
  for (int i = 0; i < 3; i++) {
    uint32_t c[4];
    memcpy(c, in[i], sizeof c);
    df_philox4x32(c, in[i][4], in[i][5]);
    for (int j = 0; j < 4; j++) assert_int_equal(c[j], want[i][j]);
  }
}

static void test_rng_uniform__is_flat_and_neighbours_are_independent(void **state) {
  (void)state;
  enum { N = 64000, B = 16 };
  static uint32_t single[B], pair[B][B], seeds[B];
  for (uint64_t i = 0; i < N; i++) {
    const double a = df_rng_uniform(5, i, 0), b = df_rng_uniform(5, i + 1, 0), s = df_rng_uniform(i, 3, 0);
    assert_true(a >= 0.0 && a < 1.0);
    single[(int)(a * B)]++;
    pair[(int)(a * B)][(int)(b * B)]++;
    seeds[(int)(s * B)]++;
  }
  double x1 = 0, x2 = 0, x3 = 0;
  for (int i = 0; i < B; i++) {
    x1 += (single[i] - N / 16.0) * (single[i] - N / 16.0) / (N / 16.0);
    x3 += (seeds[i] - N / 16.0) * (seeds[i] - N / 16.0) / (N / 16.0);
    for (int j = 0; j < B; j++) x2 += (pair[i][j] - N / 256.0) * (pair[i][j] - N / 256.0) / (N / 256.0);
  }
  assert_true(x1 < 37.7 && x3 < 37.7); /* 15 degrees of freedom, p = 0.001 */
  assert_true(x2 < 330.5);             /* 255 */
  assert_true(df_rng_uniform(5, 1, 0) != df_rng_uniform(5, 1, 1));
  assert_true(df_rng_uniform(5, 1, 0) != df_rng_uniform(5 + (1ull << 32), 1, 0));
  assert_true(df_rng_uniform(5, 1, 0) != df_rng_uniform(5, 1 + (1ull << 32), 0));
}

/* ---- history --------------------------------------------------------------------------------------------- */

static void test_seen__pushes_and_pops_match_plain_counts(void **state) {
  (void)state;
  enum { IDS = 40, DEEP = 600 };
  df_seen s;
  assert_int_equal(df_seen_init(&s, IDS, NULL), DF_OK);
  uint32_t count[IDS][2] = {{0}};
  int32_t stack_id[DEEP];
  bool stack_gen[DEEP];
  uint32_t depth = 0;
  const uint64_t allocs = df_mem_alloc_count();
  for (int t = 0; t < 20000; t++) {
    if (depth < DEEP && rnd() < 0.52) {
      stack_id[depth] = (int32_t)rnd_below(IDS) * 7919;
      stack_gen[depth] = rnd() < 0.5;
      assert_int_equal(df_seen_push(&s, stack_id[depth], stack_gen[depth], NULL), DF_OK);
      count[stack_id[depth] / 7919][stack_gen[depth]]++;
      depth++;
    } else if (depth) {
      depth--;
      df_seen_pop(&s, stack_id[depth], stack_gen[depth]);
      count[stack_id[depth] / 7919][stack_gen[depth]]--;
    }
    const uint32_t probe = rnd_below(IDS);
    const df_seen_entry *e = df_seen_get(&s, (int32_t)probe * 7919);
    assert_int_equal(e ? e->in_prompt : 0, count[probe][0]);
    assert_int_equal(e ? e->generated : 0, count[probe][1]);
  }
  assert_int_equal(df_mem_alloc_count(), allocs);
  df_seen_release(&s);
}

static void test_seen_push__is_full_at_its_limit(void **state) {
  (void)state;
  df_seen s;
  df_error err;
  assert_int_equal(df_seen_init(&s, 2, NULL), DF_OK);
  assert_int_equal(df_seen_push(&s, 5, true, NULL), DF_OK);
  assert_int_equal(df_seen_push(&s, 6, true, NULL), DF_OK);
  assert_int_equal(df_seen_push(&s, 5, true, NULL), DF_OK);
  assert_int_equal(df_seen_push(&s, 7, true, &err), DF_ERR_LIMIT);
  assert_null(df_seen_get(&s, 7));
  df_seen_reset(&s);
  assert_null(df_seen_get(&s, 5));
  assert_int_equal(df_seen_push(&s, 7, false, NULL), DF_OK);
  df_seen_release(&s);
}

/* ---- oracle: sorts everything, in double, no shortcuts ---------------------------------------------------- */

typedef struct item {
  double v;
  int32_t id;
} item;

static int best_first(const void *a, const void *b) {
  const item *x = a, *y = b;
  if (x->v != y->v) return x->v > y->v ? -1 : 1;
  return (x->id > y->id) - (x->id < y->id);
}

/* Fills probs and keep; false when a comparison was too close to call between float and double arithmetic. */
static bool oracle(const df_sampling_params *p, const float *logits, uint32_t n, const uint32_t (*count)[2],
                   const uint8_t *banned, double *probs, uint8_t *keep) {
  item *it = malloc(n * sizeof *it);
  uint32_t m = 0;
  for (uint32_t i = 0; i < n; i++) {
    keep[i] = 0;
    probs[i] = 0;
    if (banned[i] || logits[i] == -INFINITY) continue;
    float v = logits[i];
    for (uint32_t b = 0; b < p->n_bias; b++)
      if (p->bias[b].id == (int32_t)i) v += p->bias[b].bias;
    if (count[i][0] + count[i][1] > 0) v = v > 0 ? v / p->repetition_penalty : v * p->repetition_penalty;
    if (count[i][1]) v -= p->presence_penalty + p->frequency_penalty * (float)count[i][1];
    it[m++] = (item){v, (int32_t)i};
  }
  qsort(it, m, sizeof *it, best_first);
  if (p->temperature == 0) m = 1;
  if (p->top_k > 0 && (uint32_t)p->top_k < m) m = (uint32_t)p->top_k;
  double sum = 0, cum = 0;
  const double best = it[0].v, t = p->temperature > 0 ? (double)p->temperature : 1.0;
  for (uint32_t j = 0; j < m; j++) sum += it[j].v = exp((it[j].v - best) / t);
  bool clear = true;
  uint32_t kept = 0;
  for (; kept < m; kept++) {
    if (p->top_p < 1.0f && kept && fabs(cum / sum - (double)p->top_p) < 1e-11) clear = false;
    if (p->top_p < 1.0f && kept && cum / sum >= (double)p->top_p) break;
    cum += it[kept].v;
  }
  double left = 0;
  for (uint32_t j = 0; j < kept; j++) {
    if (j && p->min_p > 0 && fabs(it[j].v - (double)p->min_p) < 1e-11 && it[j].v != 1.0) clear = false;
    if (j && it[j].v < (double)p->min_p)
      kept = j;
    else
      left += it[j].v;
  }
  for (uint32_t j = 0; j < kept; j++) {
    probs[it[j].id] = it[j].v / left;
    keep[it[j].id] = 1;
  }
  free(it);
  return clear;
}

static df_sampling_params random_params(void) {
  df_sampling_params p = df_sampling_params_default();
  p.temperature = rnd() < 0.1 ? 0.0f : (float)(0.05 + rnd() * 2);
  p.top_p = rnd() < 0.4 ? 1.0f : (float)rnd();
  p.min_p = rnd() < 0.6 ? 0.0f : (float)(rnd() * 0.3);
  p.top_k = rnd() < 0.5 ? 0 : 1 + (int32_t)rnd_below(60);
  if (rnd() < 0.4) p.repetition_penalty = (float)(0.7 + rnd());
  if (rnd() < 0.3) p.presence_penalty = (float)(rnd() * 2 - 0.5);
  if (rnd() < 0.3) p.frequency_penalty = (float)(rnd() - 0.3);
  p.seed = g_draws;
  return p;
}

/* Coarse logits give many ties, wide ones reach the last bin, the rest look like a model's. */
static void random_logits(float *x, uint32_t n) {
  const double kind = rnd(), spread = kind < 0.3 ? 4 : kind < 0.6 ? 12 : 120;
  for (uint32_t i = 0; i < n; i++) {
    const double g = (rnd() + rnd() + rnd() + rnd() - 2) * spread;
    x[i] = (float)(kind < 0.3 ? floor(g * 2) / 2 : g);
    if (rnd() < 0.02) x[i] = -INFINITY;
  }
  x[rnd_below(n)] = (float)spread;
}

enum { MAX_N = 700 };

static void test_sampling_transform__equals_the_oracle(void **state) {
  (void)state;
  static float logits[MAX_N];
  static double want[MAX_N], got[MAX_N];
  static uint8_t keep[MAX_N], banned[MAX_N];
  static uint32_t count[MAX_N][2];
  static int32_t kept[MAX_N], ban_ids[MAX_N];
  df_sampler_scratch s;
  df_seen seen;
  assert_int_equal(df_sampler_scratch_init(&s, MAX_N, NULL), DF_OK);
  assert_int_equal(df_seen_init(&seen, MAX_N, NULL), DF_OK);
  uint32_t compared = 0;
  for (int t = 0; t < 3000; t++) {
    const uint32_t n = 1 + rnd_below(t % 3 ? 40 : MAX_N);
    df_sampling_params p = random_params();
    const df_logit_bias bias[] = {{(int32_t)rnd_below(n), 3.5f}, {(int32_t)n + 5, 1.0f}};
    if (rnd() < 0.3) {
      p.bias = bias;
      p.n_bias = 2;
    }
    random_logits(logits, n);
    df_seen_reset(&seen);
    memset(count, 0, sizeof count);
    memset(banned, 0, sizeof banned);
    for (uint32_t i = 0, m = rnd_below(2 * n); i < m; i++) {
      const uint32_t id = rnd_below(n);
      const bool gen = rnd() < 0.5;
      assert_int_equal(df_seen_push(&seen, (int32_t)id, gen, NULL), DF_OK);
      count[id][gen]++;
    }
    df_token_mask mask = {.banned = ban_ids};
    for (uint32_t i = 0; i < n; i++)
      if (rnd() < 0.1 && !(logits[i] >= 4.0f)) banned[i] = 1, ban_ids[mask.n_banned++] = (int32_t)i;
    const bool clear = oracle(&p, logits, n, (const uint32_t(*)[2])count, banned, want, keep);
    uint32_t n_kept = 0;
    int32_t greedy;
    assert_int_equal(df_sampling_transform(&p, logits, n, &seen, &mask, &s, got, kept, &n_kept, &greedy, NULL), DF_OK);
    if (!clear) continue;
    compared++;
    uint32_t j = 0;
    for (uint32_t i = 0; i < n; i++) {
      if (fabs(got[i] - want[i]) > 1e-9) fail_msg("case %d: p[%u] is %.12g, not %.12g", t, i, got[i], want[i]);
      if (keep[i]) assert_int_equal(kept[j++], (int32_t)i);
    }
    assert_int_equal(j, n_kept);
  }
  assert_true(compared > 2900);
  df_seen_release(&seen);
  df_sampler_scratch_release(&s);
}

static void test_sampling_transform__reads_the_bitmap(void **state) {
  (void)state;
  float x[130];
  double probs[130];
  for (int i = 0; i < 130; i++) x[i] = (float)i;
  const uint64_t words[3] = {1ull << 63 | 1, 0, 2}; /* ids 0, 63, 129 */
  const df_token_mask mask = {.allowed = words};
  df_sampling_params p = df_sampling_params_default();
  p.temperature = 1;
  df_sampler_scratch s;
  int32_t kept[130], greedy;
  uint32_t n;
  assert_int_equal(df_sampler_scratch_init(&s, 130, NULL), DF_OK);
  assert_int_equal(df_sampling_transform(&p, x, 130, NULL, &mask, &s, probs, kept, &n, &greedy, NULL), DF_OK);
  assert_int_equal(n, 3);
  assert_int_equal(kept[0], 0);
  assert_int_equal(kept[1], 63);
  assert_int_equal(kept[2], 129);
  assert_int_equal(greedy, 129);
  df_sampler_scratch_release(&s);
}

/* ---- picking --------------------------------------------------------------------------------------------- */

static void test_argmax__lowest_id_on_ties_any_length(void **state) {
  (void)state;
  static float x[200];
  for (int t = 0; t < 3000; t++) {
    const uint32_t n = 1 + rnd_below(200);
    for (uint32_t i = 0; i < n; i++) x[i] = (float)rnd_below(6) - 3.0f;
    if (rnd() < 0.3) x[rnd_below(n)] = NAN;
    int32_t want = -1;
    for (uint32_t i = 0; i < n; i++)
      if (x[i] == x[i] && (want < 0 || x[i] > x[want])) want = (int32_t)i;
    assert_int_equal(df_argmax(x, n), want);
  }
  const float zeros[] = {-1.0f, -0.0f, 0.0f};
  assert_int_equal(df_argmax(zeros, 3), 1);
}

static void test_sampler_pick__is_the_inverse_cdf_of_the_transform(void **state) {
  (void)state;
  static float x[MAX_N];
  static double probs[MAX_N];
  df_sampler_scratch s;
  assert_int_equal(df_sampler_scratch_init(&s, MAX_N, NULL), DF_OK);
  for (int t = 0; t < 2000; t++) {
    const uint32_t n = 1 + rnd_below(300);
    const df_sampling_params p = random_params();
    random_logits(x, n);
    int32_t id, want = -1, greedy;
    assert_int_equal(df_sampling_transform(&p, x, n, NULL, NULL, &s, probs, NULL, NULL, &greedy, NULL), DF_OK);
    const double u = df_rng_uniform(p.seed, (uint64_t)t, DF_RNG_TOKEN);
    double run = 0;
    for (uint32_t i = 0; i < n && want < 0; i++)
      if ((run += probs[i]) > u) want = (int32_t)i;
    assert_int_equal(df_sampler_pick(&p, x, n, NULL, (uint64_t)t, &s, &id, NULL, NULL), DF_OK);
    assert_int_equal(id, want);
    if (p.temperature == 0) assert_int_equal(id, greedy);
  }
  df_sampler_scratch_release(&s);
}

static void test_sampler_pick__same_seed_and_position_same_token(void **state) {
  (void)state;
  enum { N = 50 };
  float x[N] = {0};
  df_sampling_params p = df_sampling_params_default();
  p.temperature = 1;
  p.seed = 11;
  df_sampler_scratch s;
  assert_int_equal(df_sampler_scratch_init(&s, N, NULL), DF_OK);
  uint32_t count[N] = {0}, moved = 0;
  for (uint64_t pos = 0; pos < 5000; pos++) {
    int32_t a, b, c;
    assert_int_equal(df_sampler_pick(&p, x, N, NULL, pos, &s, &a, NULL, NULL), DF_OK);
    assert_int_equal(df_sampler_pick(&p, x, N, NULL, pos, &s, &b, NULL, NULL), DF_OK);
    assert_int_equal(a, b);
    df_sampling_params q = p;
    q.seed = 12;
    assert_int_equal(df_sampler_pick(&q, x, N, NULL, pos, &s, &c, NULL, NULL), DF_OK);
    moved += c != a;
    count[a]++;
  }
  double chi = 0;
  for (int i = 0; i < N; i++) chi += (count[i] - 100.0) * (count[i] - 100.0) / 100.0;
  assert_true(chi < 85.4); /* 49 degrees of freedom, p = 0.001 */
  assert_true(moved > 4700);
  df_sampler_scratch_release(&s);
}

static void test_sampler_pick__reports_the_models_own_logprob(void **state) {
  (void)state;
  const float x[] = {1.0f, 3.0f, 2.0f, -INFINITY};
  const double norm = log(exp(1.0) + exp(3.0) + exp(2.0));
  df_sampling_params p = df_sampling_params_default();
  const int32_t ban = 1;
  const df_token_mask mask = {.banned = &ban, .n_banned = 1};
  df_sampler_scratch s;
  int32_t id;
  float lp;
  assert_int_equal(df_sampler_scratch_init(&s, 4, NULL), DF_OK);
  assert_int_equal(df_sampler_pick(&p, x, 4, NULL, 0, &s, &id, &lp, NULL), DF_OK);
  assert_int_equal(id, 1);
  assert_true(fabs((double)lp - (3.0 - norm)) < 1e-6);
  /* Filters and masks change the choice, not the figure. */
  p.temperature = 0.3f;
  p.top_k = 2;
  assert_int_equal(df_sampler_pick_masked(&p, x, 4, NULL, &mask, 0, &s, &id, &lp, NULL), DF_OK);
  assert_true(fabs((double)lp - ((double)x[id] - norm)) < 1e-6);
  df_sampler_scratch_release(&s);
}

static void test_sampler_top_logprobs__equals_a_full_sort(void **state) {
  (void)state;
  static float x[MAX_N];
  static item it[MAX_N];
  df_sampler_scratch s;
  assert_int_equal(df_sampler_scratch_init(&s, MAX_N, NULL), DF_OK);
  for (int t = 0; t < 300; t++) {
    const uint32_t n = 1 + rnd_below(MAX_N - 1);
    random_logits(x, n);
    double sum = 0;
    uint32_t m = 0;
    for (uint32_t i = 0; i < n; i++) {
      if (x[i] == -INFINITY) continue;
      it[m++] = (item){(double)x[i], (int32_t)i};
      sum += exp((double)x[i] - 120);
    }
    qsort(it, m, sizeof *it, best_first);
    int32_t ids[20];
    float lp[20];
    uint32_t got;
    assert_int_equal(df_sampler_top_logprobs(x, n, 20, &s, ids, lp, &got, NULL), DF_OK);
    assert_int_equal(got, DF_MIN(20, m));
    for (uint32_t j = 0; j < got; j++) {
      assert_int_equal(ids[j], it[j].id);
      assert_true(fabs((double)lp[j] - (it[j].v - 120 - log(sum))) < 1e-4);
    }
  }
  df_sampler_scratch_release(&s);
}

static void test_sampler_pick__large_row_without_allocation(void **state) {
  (void)state;
  enum { BIG = 151936 };
  float *x = malloc(BIG * sizeof *x);
  double *want = malloc(BIG * sizeof *want), *got = malloc(BIG * sizeof *got);
  uint8_t *keep = malloc(BIG), *banned = calloc(BIG, 1);
  uint32_t(*count)[2] = calloc(BIG, sizeof *count);
  df_sampler_scratch s;
  assert_int_equal(df_sampler_scratch_init(&s, BIG, NULL), DF_OK);
  const struct {
    float t, p, m;
    int32_t k;
  } c[] = {{0.7f, 0.95f, 0.0f, 0}, {1.0f, 1.0f, 0.0f, 50},    {1.0f, 0.9999f, 0.0f, 0},
           {1.0f, 1.0f, 0.05f, 0}, {1.3f, 0.9f, 0.01f, 5000}, {1.0f, 1.0f, 0.0f, 0}};
  for (uint32_t i = 0; i < BIG; i++) x[i] = (float)((rnd() + rnd() + rnd() + rnd() - 2) * 9);
  for (size_t i = 0; i < DF_COUNT_OF(c); i++) {
    df_sampling_params p = df_sampling_params_default();
    p.temperature = c[i].t;
    p.top_p = c[i].p;
    p.min_p = c[i].m;
    p.top_k = c[i].k;
    const bool clear = oracle(&p, x, BIG, (const uint32_t(*)[2])count, banned, want, keep);
    assert_true(clear);
    const uint64_t before = df_mem_alloc_count();
    uint32_t n_kept;
    int32_t id;
    assert_int_equal(df_sampling_transform(&p, x, BIG, NULL, NULL, &s, got, NULL, &n_kept, &id, NULL), DF_OK);
    assert_int_equal(df_sampler_pick(&p, x, BIG, NULL, i, &s, &id, NULL, NULL), DF_OK);
    assert_int_equal(df_mem_alloc_count(), before);
    for (uint32_t j = 0; j < BIG; j++) assert_true(fabs(got[j] - want[j]) < 1e-12 && (got[j] > 0) == keep[j]);
  }
  df_sampler_scratch_release(&s);
  free(x), free(want), free(got), free(keep), free(banned), free(count);
}

static void test_sampler_pick__refuses_broken_rows(void **state) {
  (void)state;
  float x[] = {1.0f, NAN, 2.0f};
  df_sampling_params p = df_sampling_params_default();
  df_sampler_scratch s;
  df_error err;
  int32_t id = 77;
  assert_int_equal(df_sampler_scratch_init(&s, 3, NULL), DF_OK);
  assert_int_equal(df_sampler_pick(&p, x, 3, NULL, 0, &s, &id, NULL, &err), DF_ERR_INTERNAL);
  x[1] = INFINITY;
  assert_int_equal(df_sampler_pick(&p, x, 3, NULL, 0, &s, &id, NULL, &err), DF_ERR_INTERNAL);
  assert_string_equal(err.msg, "could not pick a token: the logit of token 1 is inf");
  x[0] = x[1] = x[2] = -INFINITY;
  assert_int_equal(df_sampler_pick(&p, x, 3, NULL, 0, &s, &id, NULL, &err), DF_ERR_LIMIT);
  assert_int_equal(df_sampler_pick(&p, x, 4, NULL, 0, &s, &id, NULL, &err), DF_ERR_ARGUMENT);
  assert_int_equal(id, 77);
  df_sampler_scratch_release(&s);
}

static void test_sampling_params_check__names_the_field(void **state) {
  (void)state;
  df_error err;
  df_sampling_params p = df_sampling_params_default();
  assert_int_equal(df_sampling_params_check(&p, &err), DF_OK);
  p.temperature = NAN;
  assert_int_equal(df_sampling_params_check(&p, &err), DF_ERR_ARGUMENT);
  p = df_sampling_params_default();
  p.top_p = 1.5f;
  assert_int_equal(df_sampling_params_check(&p, &err), DF_ERR_ARGUMENT);
  assert_string_equal(err.msg, "top_p 1.5 is outside 0..1");
  p = df_sampling_params_default();
  p.repetition_penalty = 0;
  assert_int_equal(df_sampling_params_check(&p, &err), DF_ERR_ARGUMENT);
  const df_logit_bias bad = {3, NAN};
  p = df_sampling_params_default();
  p.bias = &bad;
  p.n_bias = 1;
  assert_int_equal(df_sampling_params_check(&p, &err), DF_ERR_ARGUMENT);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_philox__known_answers),
      cmocka_unit_test(test_rng_uniform__is_flat_and_neighbours_are_independent),
      cmocka_unit_test(test_seen__pushes_and_pops_match_plain_counts),
      cmocka_unit_test(test_seen_push__is_full_at_its_limit),
      cmocka_unit_test(test_sampling_transform__equals_the_oracle),
      cmocka_unit_test(test_sampling_transform__reads_the_bitmap),
      cmocka_unit_test(test_argmax__lowest_id_on_ties_any_length),
      cmocka_unit_test(test_sampler_pick__is_the_inverse_cdf_of_the_transform),
      cmocka_unit_test(test_sampler_pick__same_seed_and_position_same_token),
      cmocka_unit_test(test_sampler_pick__reports_the_models_own_logprob),
      cmocka_unit_test(test_sampler_top_logprobs__equals_a_full_sort),
      cmocka_unit_test(test_sampler_pick__large_row_without_allocation),
      cmocka_unit_test(test_sampler_pick__refuses_broken_rows),
      cmocka_unit_test(test_sampling_params_check__names_the_field),
  };
  return cmocka_run_group_tests_name("sampler", tests, NULL, NULL);
}
