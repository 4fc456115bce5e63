/* The promise of session.h on real models: tokens and logits of a generation do not depend on the draft, the width, the
 * threads, the processor's kernels, the device, eager or replayed programs, backends, page sizes, chunks of the prompt
 * or cached turns. DF_TEST_LONG asks for every prompt at every width and for the larger model at full length. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#include "base/cpu.h"
#include "base/mem.h"
#include "base/size.h"
#include "dflash/dflash.h"
#include "support/shadow_device.h"
#include "support/test_models.h"

enum { MAX_NEW = 160, MAX_IDS = 640, CTX = 1024 };

static const char *const k_prompts[] = {
    "The capital of France is",
    "Once upon a time there was a fox who",
    "def fibonacci(n):\n    ",
    "Q: What is 12 times 7?\nA:",
    "List three fruits:\n1.",
    "#include <stdio.h>\n\nint main(void) {\n",
    "The quick brown fox jumps over the lazy dog. The quick brown fox",
    "In 1969, the first people to walk on the moon were",
    "SELECT name, age FROM users WHERE",
    "Dear Sir or Madam,\n\nI am writing to",
    "Water boils at a temperature of",
    "{\"name\": \"Ada\", \"year\": 1815, \"field\":",
    "Le chat est assis sur la",
    "To make pancakes you need flour, eggs and",
    "The derivative of x squared is",
    "A B C D E F G",
    "Two plus two equals four. Three plus three equals",
    "<h1>Welcome</h1>\n<p>",
    "My favourite season is autumn because",
    "1, 1, 2, 3, 5, 8, 13,",
};

typedef struct pair {
  const char *target, *draft;
  bool large; /* seconds per answer: shorter runs */
} pair;

static const pair k_small = {"SmolLM2-135M-Instruct", "smollm2-135m-instruct-dflash", false};
static const pair k_large = {"qwen2.5-coder-1.5b-instruct", "qwen2.5-coder-1.5b-instruct-dflash", true};

/* An open pair of models and the prompt's ids. */
typedef struct rig {
  df_model *m;
  df_draft *d;
} rig;

typedef struct answer {
  int32_t ids[MAX_NEW];
  uint32_t n;
  uint64_t hash;
  df_stats stats;
} answer;

typedef enum sampling_kind { GREEDY, SAMPLED, FILTERED, PENALISED, KINDS } sampling_kind;

static rig open_rig_on(const pair *p, uint32_t threads, const char *tier, const char *device) {
  df_error err = {0};
  rig r = {0};
  df_model_params mp = df_model_params_default();
  mp.device = device;
  mp.n_threads = threads;
  mp.cpu_tier = tier;
  const char *draft = df_test_model_or_skip(p->draft), *target = df_test_model_or_skip(p->target);
  if (df_model_open(target, &mp, &r.m, &err) != DF_OK) fail_msg("%s", err.msg);
  if (df_draft_open(draft, r.m, NULL, &r.d, &err) != DF_OK) fail_msg("%s", err.msg);
  return r;
}

static rig open_rig(const pair *p, uint32_t threads, const char *tier) { return open_rig_on(p, threads, tier, NULL); }

static void close_rig(rig *r) {
  df_draft_close(r->d);
  df_model_close(r->m);
}

static df_session_params params_of(int32_t drafts) {
  df_session_params sp = df_session_params_default();
  sp.n_ctx = CTX;
  sp.spec_draft_max = drafts;
  return sp;
}

static df_session *session(const rig *r, bool with_draft, const df_session_params *sp) {
  df_error err = {0};
  df_session *s = NULL;
  if (df_session_create(r->m, with_draft ? r->d : NULL, sp, &s, &err) != DF_OK) fail_msg("%s", err.msg);
  return s;
}

static uint32_t tokens(const rig *r, const char *text, int32_t *ids, uint32_t max) {
  df_error err = {0};
  int32_t *list = NULL;
  size_t n = 0;
  if (df_model_tokenize(r->m, text, strlen(text), true, &list, &n, &err) != DF_OK) fail_msg("%s", err.msg);
  assert_true(n > 0 && n <= max);
  memcpy(ids, list, n * sizeof *ids);
  df_ids_free(list);
  return (uint32_t)n;
}

static df_generate_params request(sampling_kind kind, uint32_t max) {
  df_generate_params p = df_generate_params_default();
  p.max_tokens = max;
  p.ignore_eos = true;
  p.hash_logits = true;
  p.sampling.seed = 42;
  if (kind != GREEDY) p.sampling.temperature = 0.8f;
  if (kind == FILTERED) p.sampling.top_k = 40, p.sampling.top_p = 0.9f;
  if (kind == PENALISED) p.sampling.repetition_penalty = 1.2f, p.sampling.temperature = 0.3f;
  return p;
}

static answer ask(df_session *s, const int32_t *ids, uint32_t n, sampling_kind kind, uint32_t max) {
  df_error err = {0};
  df_result r;
  const df_generate_params p = request(kind, max);
  if (df_session_generate(s, ids, n, &p, &r, &err) != DF_OK) fail_msg("%s", err.msg);
  answer a = {.n = r.n_ids, .hash = r.logits_hash, .stats = r.stats};
  assert_int_equal(r.n_ids, max);
  assert_true(max <= MAX_NEW && r.logits_hash != 0);
  memcpy(a.ids, r.ids, r.n_ids * sizeof *r.ids);
  return a;
}

static answer ask_cold(df_session *s, const int32_t *ids, uint32_t n, sampling_kind kind, uint32_t max) {
  df_session_reset(s);
  return ask(s, ids, n, kind, max);
}

static void same(const answer *got, const answer *want, const char *what, int64_t detail) {
  assert_int_equal(got->n, want->n);
  for (uint32_t i = 0; i < want->n; i++)
    if (got->ids[i] != want->ids[i])
      fail_msg("%s (%lld): token %u is %d, expected %d", what, (long long)detail, i, got->ids[i], want->ids[i]);
  if (got->hash != want->hash) fail_msg("%s (%lld): equal tokens out of other logits", what, (long long)detail);
}

static uint32_t prompt_count(const pair *p) {
  const uint32_t all = DF_COUNT_OF(k_prompts);
  return df_test_long() ? (p->large ? 6 : all) : p->large ? 1 : all;
}

/* ---- widths and prompts --------------------------------------------------------------------------------- */

/* Each prompt at some widths (all of them in the long version), so that every width meets several prompts. */
static void check_widths(const pair *p) {
  const uint32_t max = df_test_long() ? (p->large ? 48 : 128) : p->large ? 12 : 24;
  rig r = open_rig(p, 0, NULL);
  df_session *spec[DF_MAX_WIDTH];
  answer *plain = df_calloc(DF_COUNT_OF(k_prompts), sizeof *plain);
  uint32_t accepted = 0, drafted = 0, runs = 0;
  assert_non_null(plain);
  df_session_params sp = params_of(-1);
  df_session *one = session(&r, false, &sp);
  for (int32_t w = 0; w < DF_MAX_WIDTH; w++) {
    sp = params_of(w);
    spec[w] = session(&r, true, &sp);
  }
  const uint32_t stride = df_test_long() ? 1 : p->large ? 7 : 8;
  for (uint32_t i = 0; i < prompt_count(p); i++) {
    int32_t ids[MAX_IDS];
    const uint32_t n = tokens(&r, k_prompts[i], ids, MAX_IDS);
    plain[i] = ask_cold(one, ids, n, GREEDY, max);
    for (uint32_t w = i % stride; w < DF_MAX_WIDTH; w += stride, runs++) {
      const answer a = ask_cold(spec[w], ids, n, GREEDY, max);
      same(&a, &plain[i], k_prompts[i], w + 1);
      assert_int_equal(a.stats.step_allocations, 0);
      if (w > 0) assert_true(a.stats.verify_steps > 0);
      accepted += a.stats.accepted;
      drafted += a.stats.drafted;
    }
  }
  print_message("%s: %u runs with a draft equal plain decoding; %u of %u drafted tokens accepted\n", p->target, runs,
                accepted, drafted);
  assert_true(accepted * 20 > drafted); /* a draft that never hits would prove nothing */
  for (int32_t w = 0; w < DF_MAX_WIDTH; w++) df_session_free(spec[w]);
  df_session_free(one);
  df_free(plain);
  close_rig(&r);
}

static void test_widths__small(void **state) {
  (void)state;
  check_widths(&k_small);
}

static void test_widths__large(void **state) {
  (void)state;
  check_widths(&k_large);
}

/* ---- sampling ------------------------------------------------------------------------------------------- */

static void test_sampling__small(void **state) {
  (void)state;
  const uint32_t max = df_test_long() ? 100 : 24, prompts = df_test_long() ? 8 : 2;
  rig r = open_rig(&k_small, 0, NULL);
  df_session_params sp = params_of(-1);
  df_session *plain = session(&r, false, &sp);
  uint64_t hashes[KINDS] = {0};
  for (uint32_t i = 0; i < prompts; i++) {
    int32_t ids[MAX_IDS];
    const uint32_t n = tokens(&r, k_prompts[i + 1], ids, MAX_IDS);
    for (int k = SAMPLED; k < KINDS; k++) {
      const answer want = ask_cold(plain, ids, n, (sampling_kind)k, max);
      hashes[k] = want.hash;
      for (int32_t drafts = 3; drafts < DF_MAX_WIDTH; drafts += 4) {
        sp = params_of(drafts);
        sp.no_graph = drafts == 7;
        df_session *spec = session(&r, true, &sp);
        const answer a = ask_cold(spec, ids, n, (sampling_kind)k, max);
        same(&a, &want, "sampling", k * 100 + drafts);
        if (!sp.no_graph) assert_int_equal(a.stats.step_allocations, 0);
        df_session_free(spec);
      }
    }
    assert_true(hashes[SAMPLED] != hashes[FILTERED] && hashes[FILTERED] != hashes[PENALISED]);
  }
  df_session_free(plain);
  close_rig(&r);
}

/* ---- machinery: threads, tiers, programs, backends, pages ------------------------------------------------ */

static void compare_machine(const pair *p, uint32_t threads, const char *tier, const int32_t *ids, uint32_t n,
                            uint32_t max, const answer *want) {
  rig r = open_rig(p, threads, tier);
  df_session_params sp = params_of(7);
  df_session *spec = session(&r, true, &sp);
  const answer a = ask_cold(spec, ids, n, GREEDY, max);
  same(&a, want, tier ? tier : "threads", threads);
  df_session_free(spec);
  close_rig(&r);
}

static void check_machines(const pair *p, uint32_t max, uint32_t ref_max) {
  rig r = open_rig(p, 1, NULL);
  int32_t ids[MAX_IDS];
  const uint32_t n = tokens(&r, k_prompts[6], ids, MAX_IDS);
  const df_session_params sp = params_of(-1);
  df_session *plain = session(&r, false, &sp);
  const answer want = ask_cold(plain, ids, n, GREEDY, max), shorter = ask_cold(plain, ids, n, GREEDY, ref_max);
  df_session_free(plain);
  close_rig(&r);
  compare_machine(p, 2, NULL, ids, n, max, &want);
  compare_machine(p, 3, NULL, ids, n, max, &want);
  for (int t = DF_TIER_REF + 1; t < DF_TIER_COUNT; t++) {
    if (df_cpu_tier_fits((df_cpu_tier)t)) compare_machine(p, 0, df_cpu_tier_name((df_cpu_tier)t), ids, n, max, &want);
  }
  if (ref_max) compare_machine(p, 0, "ref", ids, n, ref_max, &shorter);
}

static void test_machines__small(void **state) {
  (void)state;
  check_machines(&k_small, df_test_long() ? 128 : 32, 2);
}

static void test_machines__large(void **state) {
  (void)state;
  if (!df_test_long()) skip();
  check_machines(&k_large, 16, 1);
}

/* Prompt long enough for several KV chunks, so that backends split it. */
static uint32_t long_prompt(const rig *r, int32_t *ids, uint32_t n) {
  uint32_t have = 0;
  for (uint32_t i = 0; have < n; i = (i + 1) % DF_COUNT_OF(k_prompts)) {
    int32_t part[MAX_IDS];
    const uint32_t m = tokens(r, k_prompts[i], part, MAX_IDS);
    for (uint32_t j = 0; j < m && have < n; j++) ids[have++] = part[j];
  }
  return n;
}

static void test_backends__every_combination(void **state) {
  (void)state;
  static const char *const names[] = {"flash", "splitkv", "naive"};
  const uint32_t max = df_test_long() ? 48 : 8, n_names = df_test_long() ? 3 : 2;
  int32_t ids[MAX_IDS];
  rig r = open_rig(&k_small, 0, NULL);
  const uint32_t n = long_prompt(&r, ids, 150);
  df_session_params sp = params_of(-1);
  df_session *plain = session(&r, false, &sp);
  const answer want = ask_cold(plain, ids, n, GREEDY, max);
  df_session_free(plain);
  for (uint32_t c = 0; c < n_names * n_names * n_names; c++) {
    sp = params_of(7);
    sp.prefill_attention_backend = names[c % n_names];
    sp.decode_attention_backend = names[c / n_names % n_names];
    sp.verify_attention_backend = names[c / n_names / n_names];
    sp.no_graph = c % 3 == 1;
    df_session *spec = session(&r, true, &sp);
    const answer a = ask_cold(spec, ids, n, GREEDY, max);
    same(&a, &want, "backends", c);
    df_session_free(spec);
  }
  for (uint32_t mode = 0; mode < 2; mode++) {
    sp = params_of(7);
    sp.prefill_attention_backend = "flash";
    sp.decode_attention_backend = "splitkv";
    sp.speculative_attention_mode = mode ? "decode" : "prefill";
    sp.page_size = mode ? 1 : 64;
    sp.two_batch_overlap = mode != 0;
    df_session *spec = session(&r, true, &sp);
    const answer a = ask_cold(spec, ids, n, GREEDY, max);
    same(&a, &want, "speculative attention mode", mode);
    df_session_free(spec);
  }
  close_rig(&r);
}

static void test_programs__eager_equals_replay(void **state) {
  (void)state;
  const uint32_t max = df_test_long() ? 128 : 24;
  int32_t ids[MAX_IDS];
  rig r = open_rig(&k_small, 0, NULL);
  const uint32_t n = tokens(&r, k_prompts[3], ids, MAX_IDS);
  df_session_params sp = params_of(-1);
  sp.no_graph = true;
  df_session *eager_plain = session(&r, false, &sp);
  const answer want = ask_cold(eager_plain, ids, n, GREEDY, max);
  df_session_free(eager_plain);
  for (int32_t drafts = 1; drafts < DF_MAX_WIDTH; drafts += 7) {
    for (int eager = 0; eager < 2; eager++) {
      sp = params_of(drafts);
      sp.no_graph = eager != 0;
      df_session *s = session(&r, true, &sp);
      const answer a = ask_cold(s, ids, n, GREEDY, max);
      same(&a, &want, eager ? "eager" : "replay", drafts);
      df_session_free(s);
    }
  }
  close_rig(&r);
}

/* ---- prompts: chunks and cached turns -------------------------------------------------------------------- */

/* A prompt that arrives in two parts (a cached prefix and the rest) against the same in one go, around every border of
 * tiles, KV chunks and prefill passes. */
static void test_prefill__chunks_equal_one_go(void **state) {
  (void)state;
  static const uint32_t lengths[] = {15, 16, 17, 63, 64, 65, 255, 256, 257};
  int32_t ids[MAX_IDS];
  rig r = open_rig(&k_small, 0, NULL);
  (void)long_prompt(&r, ids, 300);
  const df_session_params sp = params_of(7), pp = params_of(-1);
  df_session *warm = session(&r, true, &sp), *cold = session(&r, false, &pp);
  for (size_t i = 0; i < DF_COUNT_OF(lengths); i++) {
    const uint32_t n = lengths[i], max = 3;
    const answer want = ask_cold(cold, ids, n, GREEDY, max);
    const uint32_t cuts[] = {1, n / 2, n - 1};
    for (size_t c = 0; c < DF_COUNT_OF(cuts); c++) {
      if (n > 100 && c == 0 && !df_test_long()) continue;
      (void)ask_cold(warm, ids, cuts[c], GREEDY, 1);
      const answer a = ask(warm, ids, n, GREEDY, max);
      assert_int_equal(a.stats.cached_tokens, cuts[c]);
      same(&a, &want, "prompt in two parts", n * 1000 + cuts[c]);
    }
  }
  df_session_free(cold);
  df_session_free(warm);
  close_rig(&r);
}

static void test_turns__cached_equal_cold(void **state) {
  (void)state;
  const uint32_t max = df_test_long() ? 100 : 16;
  int32_t ids[MAX_IDS];
  rig r = open_rig(&k_small, 0, NULL);
  const df_session_params sp = params_of(11), pp = params_of(-1);
  df_session *warm = session(&r, true, &sp), *cold = session(&r, false, &pp);
  uint32_t n = 0;
  for (int turn = 0; turn < 3; turn++) {
    n += tokens(&r, k_prompts[turn], ids + n, MAX_IDS - n);
    const answer a = ask(warm, ids, n, GREEDY, max), want = ask_cold(cold, ids, n, GREEDY, max);
    same(&a, &want, "turn", turn);
    if (turn) assert_true(a.stats.cached_tokens > 0);
    memcpy(ids + n, a.ids, a.n * sizeof *ids);
    n += a.n;
  }
  df_session_free(cold);
  df_session_free(warm);
  close_rig(&r);
}

/* A device with a memory of its own, which the host does not touch: once with the processor's leaves and K/V, once with
 * those of a card. */
static void test_devices__small(void **state) {
  (void)state;
  int32_t ids[MAX_IDS];
  enum { NEW = 40 };
  answer want[2];
  rig cpu = open_rig(&k_small, 2, NULL);
  const uint32_t n = tokens(&cpu, k_prompts[4], ids, MAX_IDS);
  const df_session_params plain = params_of(0);
  df_session *s = session(&cpu, false, &plain);
  want[0] = ask_cold(s, ids, n, GREEDY, NEW);
  want[1] = ask_cold(s, ids, n, FILTERED, NEW);
  df_session_free(s);
  close_rig(&cpu);
  shadow_provide();
  for (int a_card = 0; a_card < 2; a_card++) {
    const shadow_options o = {.like_a_card = a_card == 1};
    shadow_set(&o);
    rig r = open_rig_on(&k_small, 2, NULL, "shadow");
    for (int drafts = -1; drafts < 12; drafts += 8) {
      const df_session_params sp = params_of(drafts);
      s = session(&r, true, &sp);
      const answer greedy = ask_cold(s, ids, n, GREEDY, NEW), sampled = ask_cold(s, ids, n, FILTERED, NEW);
      same(&greedy, &want[0], "greedy on a device", drafts);
      same(&sampled, &want[1], "sampled on a device", drafts);
      df_session_free(s);
    }
    close_rig(&r);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_widths__small),
      cmocka_unit_test(test_sampling__small),
      cmocka_unit_test(test_machines__small),
      cmocka_unit_test(test_devices__small),
      cmocka_unit_test(test_backends__every_combination),
      cmocka_unit_test(test_programs__eager_equals_replay),
      cmocka_unit_test(test_prefill__chunks_equal_one_go),
      cmocka_unit_test(test_turns__cached_equal_cold),
      cmocka_unit_test(test_widths__large),
      cmocka_unit_test(test_machines__large),
  };
  return cmocka_run_group_tests_name("identity", tests, NULL, NULL);
}
