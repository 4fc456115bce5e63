/* The width controller replayed on recorded texts, against every fixed width and against plain decoding, without a
 * model or a clock. tests/golden/drafts-accepted-*.txt is what bench_trace printed: for every position of a greedy text
 * how many drafts of a block would have stood, and how sure the first of them were. Machines are tables of milliseconds
 * that were measured once; a step's price is shown to the controller with noise, outliers and drift. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/size.h"
#include "spec/cut.h"

enum { MAX_TEXTS = 64, MAX_TEXT = 160, SURE = 8, N_ROWS = 7, DEPTH = 256, SEEDS = 10 };

typedef struct machine {
  const char *name, *texts;
  double verify[N_ROWS], draft[N_ROWS]; /* of k_rows rows */
  double slow; /* milliseconds more of the first plain step behind a draft; a fifth less with each */
  bool whole;  /* blocks are verified whole, as on cards */
} machine;

static const double k_rows[N_ROWS] = {1, 2, 4, 6, 8, 12, 16};
static const machine k_machines[] = {
    {"S, Zen 3", "smollm2", {4.2, 4.3, 5.6, 7.2, 8.85, 12.6, 16.0}, {0, 1.0, 1.2, 1.5, 1.8, 2.5, 3.2}, 0, false},
    {"S, Zen 4", "smollm2", {3.1, 3.3, 3.9, 4.5, 5.05, 6.9, 8.8}, {0, 0.6, 0.7, 0.8, 0.9, 1.2, 1.5}, 0, false},
    {"S in a large cache",
     "smollm2",
     {2.45, 3.0, 3.4, 3.9, 4.5, 6.5, 8.0},
     {0, 0.9, 1.0, 1.05, 1.1, 1.4, 1.8},
     1.2,
     false},
    {"S, H200",
     "smollm2",
     {.608, .687, .966, 1.146, 1.275, 1.721, 1.762},
     {0, .180, .229, .257, .280, .354, .362},
     0,
     true},
    {"Q", "qwen2.5-coder", {41.6, 43.8, 47.9, 54.0, 55.0, 78.6, 97.1}, {0, 3.5, 3.6, 3.8, 4.2, 5.5, 6.2}, 0, false},
};

typedef struct text {
  char set[24];
  uint8_t accepted[MAX_TEXT];
  float sure[MAX_TEXT][DF_WIDTH_MAX];
  uint32_t n;
} text;

static text g_texts[MAX_TEXTS];
static uint32_t g_n_texts;
static uint64_t g_random;

static double uniform(void) {
  g_random ^= g_random << 13;
  g_random ^= g_random >> 7;
  g_random ^= g_random << 17;
  return (double)(g_random >> 11) / 9007199254740992.0;
}

static void load_texts(const char *name) {
  char path[512], line[MAX_TEXT * (SURE + 1) + 64];
  (void)snprintf(path, sizeof path, "%s/tests/golden/drafts-accepted-%s.txt", DF_SOURCE_DIR, name);
  FILE *f = fopen(path, "re");
  assert_non_null(f);
  g_n_texts = 0;
  while (fgets(line, sizeof line, f)) {
    char letters[MAX_TEXT + 1], sure[MAX_TEXT * SURE + 1];
    assert_true(g_n_texts < MAX_TEXTS);
    text *t = &g_texts[g_n_texts++];
    assert_int_equal(sscanf(line, "%23s %160s %1280s", t->set, letters, sure), 3);
    t->n = (uint32_t)strlen(letters);
    assert_int_equal(strlen(sure), t->n * SURE);
    for (uint32_t i = 0; i < t->n; i++) /* further back a block is as sure as at the last that is known */
      for (uint32_t j = 0; j < DF_WIDTH_MAX; j++)
        t->sure[i][j] = ((float)(sure[i * SURE + DF_MIN(j, SURE - 1u)] - '0') + 0.5f) / 64;
    for (uint32_t i = 0; i < t->n; i++)
      t->accepted[i] = (uint8_t)(strchr("0123456789abcdef", letters[i]) - "0123456789abcdef");
  }
  (void)fclose(f);
  assert_true(g_n_texts >= 8);
}

static double at_rows(const double *table, double rows) {
  int i = 0;
  while (i + 2 < N_ROWS && k_rows[i + 1] < rows) i++;
  return table[i] + (table[i + 1] - table[i]) * (rows - k_rows[i]) / (k_rows[i + 1] - k_rows[i]);
}

static double draft_ms(const machine *m, uint32_t w) { return w > 1 ? at_rows(m->draft, w < 2 ? 2 : w) : 0; }

/* How many tokens a step of w rows brings at a position. */
static uint32_t tokens_at(const text *t, uint32_t at, uint32_t w) {
  const uint32_t run = DF_MIN((uint32_t)t->accepted[at], w - 1) + 1;
  return DF_MIN(run, t->n - at);
}

static double fixed_ms(const machine *m, const text *t, uint32_t w) {
  double ms = 0;
  for (uint32_t at = 0; at < t->n; at += tokens_at(t, at, w)) ms += at_rows(m->verify, w) + draft_ms(m, w);
  return ms;
}

typedef struct player {
  df_width_costs costs;
  df_width_estimate all;
  df_cut_trust trust;
  double noise;         /* share of a price */
  uint32_t clock, busy; /* steps so far; steps still to come beside another process */
} player;

/* What a step's price looks like. */
static double seen(player *p, double ms) {
  const double wobble = (uniform() + uniform() + uniform() + uniform() - 2) * 1.73 * p->noise;
  const double outlier = (uniform() < 0.4 * p->noise ? 1.6 : 1) * (p->busy ? 1.5 : 1);
  return ms * (1 + wobble) * outlier * (1 + 1.6 * p->noise * sin(0.02 * p->clock));
}

static void start(player *p, const machine *m, double noise, uint64_t seed) {
  static const uint32_t k_calibrated[] = {1, 3, 8, 16};
  *p = (player){.noise = noise, .costs = {.cuts = !m->whole}};
  g_random = 88172645463325252u + seed * 7919;
  df_width_estimate_init_all(&p->all);
  for (size_t i = 0; i < DF_COUNT_OF(k_calibrated); i++) {
    const uint32_t w = k_calibrated[i];
    df_width_cost_calibrate(&p->costs.verify, w, seen(p, at_rows(m->verify, w)), 0, 0);
    if (w > 1) df_width_cost_calibrate(&p->costs.draft, w, seen(p, draft_ms(m, w)), 0, 0);
  }
}

/* A step later: now and then another process takes a share of the machine for a while. */
static void tick(player *p) {
  p->clock++;
  if (p->busy)
    p->busy--;
  else if (uniform() < 0.16 * p->noise)
    p->busy = 10 + (uint32_t)(20 * uniform());
}

/* Rows of a block that are verified, and what its drafts promise. */
static uint32_t cut(player *p, const df_width_estimate *e, const text *t, uint32_t at, uint32_t w,
                    float chance[1][DF_WIDTH_MAX]) {
  for (uint32_t j = 0; j + 1 < w; j++)
    chance[0][j] = (float)df_cut_chance(&p->trust, t->sure[at][j], df_width_estimate_trust(e));
  return w > 1 && p->costs.cuts ? df_cut_rows(&p->costs, chance, 1, w, DEPTH, p->costs.per_ms) : w;
}

/* A text as the engine decodes it. */
static double auto_ms(player *p, const machine *m, const text *t) {
  df_width_estimate e, *one = &e;
  double ms = 0, slow = 0;
  df_width_estimate_init(&e);
  df_width_estimate_learn(&e, &p->all);
  for (uint32_t at = 0; at < t->n;) {
    float chance[1][DF_WIDTH_MAX];
    const uint32_t w = df_width_choose(&p->costs, &one, 1, DF_MIN(16u, t->n - at), DEPTH);
    const uint32_t rows = cut(p, &e, t, at, w, chance), n = tokens_at(t, at, rows);
    const float *promised = p->costs.cuts ? chance[0] : NULL;
    const double verify = at_rows(m->verify, rows) + (w == 1 ? slow : 0), draft = draft_ms(m, w);
    slow = w > 1 ? m->slow : 0.8 * slow;
    ms += verify + draft;
    tick(p);
    df_width_note(&p->costs, 1, w, rows, DEPTH, seen(p, verify), seen(p, draft));
    df_width_account(&e, df_width_plain_steps(&p->costs, 1, w, rows, DEPTH), n);
    if (w == 1) {
      df_width_estimate_fade(&e);
    } else {
      df_width_estimate_update(&e, rows - 1, n - 1, promised, w - rows);
      df_width_estimate_update(&p->all, rows - 1, n - 1, promised, w - rows);
      df_cut_learn(&p->trust, t->sure[at], rows - 1, n - 1);
    }
    at += n;
  }
  return ms;
}

typedef struct outcome {
  double of_best; /* time of the best fixed width against the controller's, all texts of a set */
  double worst;   /* time of plain decoding against the controller's, of one text */
} outcome;

static outcome play_set(const machine *m, const char *set, double noise, uint32_t seeds) {
  outcome o = {0, 9};
  double best = 1e30, mine = 0;
  for (uint32_t w = 1; w <= 16; w++) {
    double sum = 0;
    for (uint32_t i = 0; i < g_n_texts; i++)
      if (strcmp(g_texts[i].set, set) == 0) sum += fixed_ms(m, &g_texts[i], w);
    best = DF_MIN(best, sum);
  }
  for (uint32_t seed = 0; seed < seeds; seed++) {
    player p;
    start(&p, m, noise, seed);
    for (uint32_t i = 0; i < g_n_texts; i++) {
      if (strcmp(g_texts[i].set, set) != 0) continue;
      const double ms = auto_ms(&p, m, &g_texts[i]);
      o.worst = DF_MIN(o.worst, fixed_ms(m, &g_texts[i], 1) / ms);
      mine += ms / seeds;
    }
  }
  o.of_best = best / mine;
  return o;
}

/* least_set: of the best fixed width, every set; least_mean: mean over the sets; least_text: of plain decoding. */
static void play(const machine *m, double noise, double least_set, double least_mean, double least_text) {
  static const char *const k_sets[] = {"gsm8k-chat", "gsm8k-5shot", "chat", "code"};
  double sum = 0;
  uint32_t n = 0;
  load_texts(m->texts);
  for (size_t i = 0; i < DF_COUNT_OF(k_sets); i++) {
    bool there = false;
    for (uint32_t k = 0; k < g_n_texts; k++) there |= strcmp(g_texts[k].set, k_sets[i]) == 0;
    if (!there) continue;
    const outcome o = play_set(m, k_sets[i], noise, noise > 0 ? SEEDS : 1);
    print_message("%-20s noise %.2f %-12s %.3f of the best fixed width, worst text %.3f of plain\n", m->name, noise,
                  k_sets[i], o.of_best, o.worst);
    assert_true(o.of_best >= least_set);
    assert_true(o.worst >= least_text);
    sum += o.of_best;
    n++;
  }
  print_message("%-20s noise %.2f mean %.3f\n", m->name, noise, sum / n);
  assert_true(sum / n >= least_mean);
}

static void test_replay__true_prices(void **state) {
  (void)state;
  play(&k_machines[0], 0, 0.975, 1.015, 0.97);
  play(&k_machines[1], 0, 0.975, 1.015, 0.97);
  play(&k_machines[3], 0, 0.98, 1.0, 0.97);
  play(&k_machines[4], 0, 0.99, 1.015, 1.2);
}

static void test_replay__noisy_prices(void **state) {
  (void)state;
  play(&k_machines[0], 0.05, 0.96, 1.0, 0.93);
  play(&k_machines[1], 0.05, 0.96, 1.0, 0.93);
  play(&k_machines[3], 0.01, 0.96, 0.98, 0.96); /* its steps hardly vary */
  play(&k_machines[4], 0.05, 0.97, 1.0, 1.15);
}

/* Where drafting pushes weights out of a cache that plain decoding lives in, each change of mind costs. */
static void test_replay__plain_steps_are_slow_behind_drafts(void **state) {
  (void)state;
  play(&k_machines[2], 0.05, 0.92, 0.96, 0.78);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_replay__true_prices),
      cmocka_unit_test(test_replay__noisy_prices),
      cmocka_unit_test(test_replay__plain_steps_are_slow_behind_drafts),
  };
  return cmocka_run_group_tests_name("width_replay", tests, NULL, NULL);
}
