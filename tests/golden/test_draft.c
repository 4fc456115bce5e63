/* The DFlash draft of SmolLM2 and the whole loop against an independent float32 reference (draft-smollm2.json).
 *
 * The reference was made from a file whose header differs from the one in models/; features, K and V agree to float32
 * rounding, so the tensors are the same training. Q's reference was made from another form of its draft (bfloat16; here
 * there is only Q8_0), so it binds only loosely. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/size.h"
#include "dflash/session.h"
#include "engine/sampler.h"
#include "support/engine_probe.h"
#include "support/test_models.h"

enum { LONG_PROMPT = 200, MAX_IDS = 1024, SLOTS = DF_MAX_WIDTH - 1 };

typedef struct bounds {
  double vector; /* features, K, V: relative to the norm */
  double logit;  /* single top-8 draft logit; 0 = none */
  double margin; /* choices must agree where the reference's margin is larger */
} bounds;

typedef struct fixture {
  df_model *m;
  df_draft *d;
  json_t *root;
  engine_probe p;
  bounds b;
  bool exact;
  const json_t *prompt; /* current */
  const char *name;
  int32_t ids[MAX_IDS];
  uint32_t n;
  /* measured */
  double feature, k, v, logit;
  double flip; /* largest margin of a slot whose best token differs */
  uint32_t slots, same;
} fixture;

static double num(const json_t *o, const char *key) {
  const json_t *v = json_object_get(o, key);
  assert_true(json_is_number(v));
  return json_number_value(v);
}

static uint32_t ids_of(const json_t *a, int32_t *out, uint32_t max) {
  const size_t n = json_array_size(a);
  assert_true(n <= max);
  for (size_t i = 0; i < n; i++) out[i] = (int32_t)json_integer_value(json_array_get(a, i));
  return (uint32_t)n;
}

static double worst_of(const float *x, const json_t *want, double norm) {
  double worst = 0;
  for (size_t i = 0; i < json_array_size(want); i++)
    worst = fmax(worst, fabs(x[i] - json_number_value(json_array_get(want, i))) / norm);
  return worst;
}

static void within(const fixture *f, double *worst, double got, const char *what, uint32_t at) {
  *worst = fmax(*worst, got);
  if (!(got <= f->b.vector)) fail_msg("%s: %s of position %u differs by %.3g of its norm", f->name, what, at, got);
}

static void check_feature(fixture *f, uint32_t row, uint32_t pos) {
  const json_t *list = json_object_get(f->prompt, "features");
  const uint32_t n = f->d->cfg.hidden;
  for (size_t i = 0; i < json_array_size(list); i++) {
    const json_t *w = json_array_get(list, i);
    if ((uint32_t)num(w, "pos") != pos) continue;
    float *x = df_alloc(n * sizeof *x);
    probe_feature(&f->p, row, x);
    const double norm = num(w, "norm");
    within(f, &f->feature, fabs(probe_norm(x, n) - norm) / norm, "the feature", pos);
    within(f, &f->feature, worst_of(x, json_object_get(w, "first8"), norm), "the feature", pos);
    df_free(x);
  }
}

static void check_kv(fixture *f) {
  const json_t *list = json_object_get(f->prompt, "kv");
  const uint32_t heads = f->d->cfg.n_kv_heads;
  assert_int_equal(json_array_size(list), 2);
  for (size_t i = 0; i < json_array_size(list); i++) {
    const json_t *w = json_array_get(list, i);
    const uint32_t layer = (uint32_t)num(w, "layer"), pos = (uint32_t)num(w, "pos");
    const double k_norm = num(w, "k_norm"), v_norm = num(w, "v_norm");
    float k[256], v[256];
    double kk = 0, vv = 0;
    for (uint32_t h = 0; h < heads; h++) {
      probe_draft_kv(&f->p, layer, h, pos, k, v);
      kk += pow(probe_norm(k, f->d->cfg.head_dim), 2);
      vv += pow(probe_norm(v, f->d->cfg.head_dim), 2);
      within(f, &f->k, worst_of(k, json_array_get(json_object_get(w, "k_first4"), h), k_norm), "K", pos);
      within(f, &f->v, worst_of(v, json_array_get(json_object_get(w, "v_first4"), h), v_norm), "V", pos);
    }
    within(f, &f->k, fabs(sqrt(kk) - k_norm) / k_norm, "K", pos);
    within(f, &f->v, fabs(sqrt(vv) - v_norm) / v_norm, "V", pos);
  }
}

static void check_first_round(fixture *f) {
  const json_t *rows = json_object_get(f->prompt, "first_round");
  int32_t drafted[SLOTS];
  assert_int_equal(json_array_size(rows), SLOTS);
  probe_draft(&f->p, (int32_t)num(f->prompt, "anchor"), f->n, DF_MAX_WIDTH, drafted);
  for (uint32_t s = 0; s < SLOTS; s++) {
    const json_t *row = json_array_get(rows, s), *top = json_object_get(row, "top8");
    const float *logits = probe_draft_logits(&f->p, s + 1);
    assert_int_equal(num(row, "pos"), f->n + s + 1);
    for (size_t i = 0; i < json_array_size(top); i++) {
      const json_t *pair = json_array_get(top, i);
      const double want = json_number_value(json_array_get(pair, 1));
      const double d = fabs(logits[json_integer_value(json_array_get(pair, 0))] - want);
      f->logit = fmax(f->logit, d);
      if (f->b.logit > 0 && !(d <= f->b.logit))
        fail_msg("%s: draft logit of slot %u differs by %.4f from %.4f", f->name, s + 1, d, want);
    }
    assert_int_equal(drafted[s], df_argmax(logits, f->m->cfg.vocab));
    const bool same = drafted[s] == json_integer_value(json_array_get(json_array_get(top, 0), 0));
    f->slots++;
    f->same += same;
    if (!same) f->flip = fmax(f->flip, num(row, "margin"));
    if (!same && num(row, "margin") > f->b.margin) fail_msg("%s: slot %u drafts another token", f->name, s + 1);
  }
}

/* Narrow blocks see fewer mask rows, so they are other computations, not prefixes. The file gives no margins here: with
 * exact arithmetic all must agree. */
static void check_narrow(fixture *f) {
  const json_t *narrow = json_object_get(f->prompt, "first_round_narrow");
  const char *key;
  json_t *list;
  uint32_t seen = 0;
  json_object_foreach((json_t *)narrow, key, list) {
    int32_t want[SLOTS], got[SLOTS];
    const uint32_t width = ids_of(list, want, SLOTS) + 1;
    assert_int_equal(strtoul(key, NULL, 10), width);
    probe_draft(&f->p, (int32_t)num(f->prompt, "anchor"), f->n, width, got);
    seen++;
    if (f->exact && memcmp(got, want, (width - 1) * sizeof *got) != 0)
      fail_msg("%s: a block of %u rows drafts otherwise", f->name, width);
  }
  assert_int_equal(seen, 3);
}

static void check_prompt(fixture *f, const json_t *prompt) {
  f->prompt = prompt;
  f->name = json_string_value(json_object_get(prompt, "name"));
  f->n = ids_of(json_object_get(prompt, "ids"), f->ids, MAX_IDS);
  assert_int_equal(f->n, num(prompt, "n"));
  for (uint32_t at = 0; at < f->n; at += PROBE_ROWS) {
    const uint32_t m = DF_MIN(f->n - at, (uint32_t)PROBE_ROWS);
    probe_run(&f->p, f->ids + at, m, at);
    for (uint32_t i = 0; i < m; i++) check_feature(f, i, at + i);
    if (at + m < f->n) continue;
    if (f->exact) assert_int_equal(df_argmax(probe_logits(&f->p, m - 1), f->m->cfg.vocab), num(prompt, "anchor"));
  }
  check_kv(f);
  check_first_round(f);
  check_narrow(f);
}

static void open_pair(fixture *f, const char *golden, const char *target, const char *draft, bool exact, bounds b) {
  json_error_t e;
  char path[256];
  df_error err = {0};
  const char *target_file = df_test_model_or_skip(target), *draft_file = df_test_model_or_skip(draft);
  *f = (fixture){.b = b, .exact = exact};
  (void)snprintf(path, sizeof path, "%s/tests/golden/%s", DF_SOURCE_DIR, golden);
  f->root = json_load_file(path, 0, &e);
  assert_non_null(f->root);
  df_model_params mp = df_model_params_default();
  mp.exact = exact;
  if (df_model_open(target_file, &mp, &f->m, &err) != DF_OK) fail_msg("%s", err.msg);
  const df_draft_params dp = {.draft_vocab = DF_DRAFT_VOCAB_FULL}; /* the reference drafts from the whole vocabulary */
  if (df_draft_open(draft_file, f->m, &dp, &f->d, &err) != DF_OK) fail_msg("%s", err.msg);
}

static void close_pair(fixture *f) {
  df_draft_close(f->d);
  df_model_close(f->m);
  json_decref(f->root);
}

static void check_config(const fixture *f) {
  const json_t *c = json_object_get(f->root, "draft_config");
  const df_config *g = &f->d->cfg;
  int32_t taps[DF_LIMIT_TAPS];
  assert_int_equal(g->n_layers, num(c, "layers"));
  assert_int_equal(g->hidden, num(c, "hidden"));
  assert_int_equal(g->n_heads, num(c, "heads"));
  assert_int_equal(g->n_kv_heads, num(c, "kv_heads"));
  assert_int_equal(g->head_dim, num(c, "head_dim"));
  assert_int_equal(g->ffn, num(c, "ffn"));
  assert_int_equal(g->block_size, num(c, "block_size"));
  assert_int_equal(g->mask_token_id, num(c, "mask_token_id"));
  assert_true(g->rms_eps == (float)num(c, "rms_eps") && g->rope.base == (float)num(c, "rope_theta"));
  assert_int_equal(g->n_taps, ids_of(json_object_get(c, "target_layer_ids"), taps, DF_LIMIT_TAPS));
  for (uint32_t i = 0; i < g->n_taps; i++) assert_int_equal(g->taps[i], taps[i]);
}

static void check_first(const char *golden, const char *target, const char *draft, bool exact, bounds b) {
  fixture f;
  open_pair(&f, golden, target, draft, exact, b);
  check_config(&f);
  probe_init(&f.p, f.m, f.d, false, exact ? DF_KV_F32 : DF_KV_F16, MAX_IDS);
  const json_t *prompts = json_object_get(f.root, "prompts");
  assert_true(json_array_size(prompts) > 0);
  for (size_t i = 0; i < json_array_size(prompts); i++) check_prompt(&f, json_array_get(prompts, i));
  print_message(
      "%s %s: features %.2g, K %.2g, V %.2g; draft logits %.2g max; slots %u of %u, largest flipped margin %.3f\n",
      draft, exact ? "exact" : "int8", f.feature, f.k, f.v, f.logit, f.same, f.slots, f.flip);
  probe_release(&f.p);
  close_pair(&f);
}

/* ---- the loop ------------------------------------------------------------------------------------------- */

typedef struct tau_sum {
  double reference_rounds, reference_tokens, rounds, tokens;
} tau_sum;

/* What the events of one generation say, against the reference's rounds. */
typedef struct loop {
  const json_t *rounds;
  const char *name;
  double margin;
  size_t at, n_ev;
  bool follow; /* the decisions so far were beyond doubt */
  double accepted;
} loop;

static bool on_event(void *user, const df_event *ev) {
  loop *l = user;
  if (l->n_ev++ == 0) return true; /* the anchor, out of the prefill */
  l->accepted += ev->n_drafted ? ev->n_accepted + 1 : 0;
  if (!l->follow || l->at >= json_array_size(l->rounds)) return true;
  const json_t *r = json_array_get(l->rounds, l->at++), *committed = json_object_get(r, "committed");
  if (fmin(num(r, "target_margin"), num(r, "draft_margin")) < l->margin) {
    l->follow = false;
    return true;
  }
  /* The last token of a request is decoded without a draft; the reference drafts and cuts. */
  if (ev->n_drafted && ev->n_accepted != num(r, "accepted"))
    fail_msg("%s: round %zu accepts %u of %u", l->name, l->at - 1, ev->n_accepted, ev->n_drafted);
  assert_int_equal(ev->n_ids, json_array_size(committed));
  for (uint32_t i = 0; i < ev->n_ids; i++)
    assert_int_equal(ev->ids[i], json_integer_value(json_array_get(committed, i)));
  return true;
}

static df_result generate(df_session *s, const int32_t *ids, uint32_t n, uint32_t max, loop *l) {
  df_error err = {0};
  df_result r;
  df_generate_params gp = df_generate_params_default();
  gp.max_tokens = max;
  gp.on_event = l ? on_event : NULL;
  gp.user = l;
  if (df_session_generate(s, ids, n, &gp, &r, &err) != DF_OK) fail_msg("%s", err.msg);
  return r;
}

static df_session *session(const fixture *f, bool with_draft) {
  df_error err = {0};
  df_session *s = NULL;
  df_session_params sp = df_session_params_default();
  sp.n_ctx = MAX_IDS;
  sp.kv_f32 = f->exact;
  sp.spec_draft_max = with_draft ? SLOTS : -1;
  if (df_session_create(f->m, with_draft ? f->d : NULL, &sp, &s, &err) != DF_OK) fail_msg("%s", err.msg);
  return s;
}

/* The reference's tau counts every round; the engine decodes the last token of a request without drafting. */
static void check_loop(const fixture *f, const json_t *prompt, df_session *plain, df_session *spec, double tau_bound,
                       tau_sum *sum) {
  int32_t ids[MAX_IDS], want[256];
  const uint32_t n = ids_of(json_object_get(prompt, "ids"), ids, MAX_IDS),
                 max = (uint32_t)num(f->root, "max_new_tokens");
  const uint32_t n_want = ids_of(json_object_get(prompt, "generated"), want, 256);
  loop l = {.rounds = json_object_get(prompt, "rounds"),
            .name = json_string_value(json_object_get(prompt, "name")),
            .margin = f->b.margin,
            .follow = f->exact};
  const df_result r = generate(spec, ids, n, max, &l);
  const bool stopped = strcmp(json_string_value(json_object_get(prompt, "stopped")), "stop") == 0;
  if (f->exact && l.follow) {
    assert_int_equal(r.finish, stopped ? DF_FINISH_EOS : DF_FINISH_LENGTH);
    assert_int_equal(r.n_ids, n_want);
    assert_memory_equal(r.ids, want, n_want * sizeof *want);
  }
  const double tau = l.accepted / r.stats.verify_steps, ref = num(prompt, "tau");
  print_message("  %-12s tau %.3f, reference %.3f%s\n", l.name, tau, ref,
                f->exact ? l.follow ? ", all rounds equal" : ", equal up to a close call" : "");
  if (fabs(tau - ref) > tau_bound) fail_msg("%s: tau is %.3f, the reference %.3f", l.name, tau, ref);
  sum->tokens += l.accepted;
  sum->rounds += r.stats.verify_steps;
  sum->reference_rounds += (double)json_array_size(l.rounds);
  sum->reference_tokens += ref * (double)json_array_size(l.rounds);
  int32_t spec_ids[256];
  const uint32_t n_spec = r.n_ids;
  assert_true(n_spec <= 256);
  memcpy(spec_ids, r.ids, n_spec * sizeof *spec_ids);
  const df_result p = generate(plain, ids, n, max, NULL);
  assert_int_equal(p.n_ids, n_spec);
  assert_memory_equal(p.ids, spec_ids, n_spec * sizeof *spec_ids);
  assert_int_equal(p.finish, r.finish);
}

static void check_loops(const char *golden, const char *target, const char *draft, bool exact, bounds b,
                        double tau_bound) {
  fixture f;
  tau_sum sum = {0};
  open_pair(&f, golden, target, draft, exact, b);
  df_session *plain = session(&f, false), *spec = session(&f, true);
  const json_t *prompts = json_object_get(f.root, "prompts");
  for (size_t i = 0; i < json_array_size(prompts); i++) {
    const json_t *prompt = json_array_get(prompts, i);
    if (exact && !df_test_long() && num(prompt, "n") > LONG_PROMPT) continue; /* minutes of float32 arithmetic */
    check_loop(&f, prompt, plain, spec, tau_bound, &sum);
  }
  const double all = sum.tokens / sum.rounds, ref = sum.reference_tokens / sum.reference_rounds;
  print_message("%s %s: tau of all prompts %.3f, reference %.3f\n", draft, exact ? "exact" : "int8", all, ref);
  if (!(fabs(all - ref) <= 0.1 * ref)) fail_msg("tau of all prompts is %.3f, the reference %.3f", all, ref);
  df_session_free(spec);
  df_session_free(plain);
  close_pair(&f);
}

static const bounds k_float32 = {.vector = 1e-4, .logit = 2e-3, .margin = 0.005};
static const bounds k_int8 = {.vector = 0.10, .margin = 0.5};
static const bounds k_int8_qwen2 = {.vector = 0.04, .margin = 0.5};

static const char S_GOLDEN[] = "draft-smollm2.json", S_TARGET[] = "SmolLM2-135M-Instruct";
static const char Q_GOLDEN[] = "draft-qwen2.json", Q_TARGET[] = "qwen2.5-coder-1.5b-instruct";

static void test_draft__smollm2_exact(void **state) {
  (void)state;
  check_first(S_GOLDEN, S_TARGET, "smollm2-135m-instruct-dflash/", true, k_float32);
}

static void test_draft__smollm2_int8(void **state) {
  (void)state;
  check_first(S_GOLDEN, S_TARGET, "smollm2-135m-instruct-dflash", false, k_int8);
}

static void test_draft__qwen2_int8(void **state) {
  (void)state;
  check_first(Q_GOLDEN, Q_TARGET, "qwen2.5-coder-1.5b-instruct-dflash", false, k_int8_qwen2);
}

static void test_loop__smollm2_exact(void **state) {
  (void)state;
  check_loops(S_GOLDEN, S_TARGET, "smollm2-135m-instruct-dflash/", true, k_float32, 0.4);
}

static void test_loop__smollm2_int8(void **state) {
  (void)state;
  check_loops(S_GOLDEN, S_TARGET, "smollm2-135m-instruct-dflash", false, k_int8, 0.4);
}

static void test_loop__qwen2_int8(void **state) {
  (void)state;
  if (!df_test_long()) skip();
  check_loops(Q_GOLDEN, Q_TARGET, "qwen2.5-coder-1.5b-instruct-dflash", false, k_int8_qwen2, 0.4);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_draft__smollm2_exact), cmocka_unit_test(test_draft__smollm2_int8),
      cmocka_unit_test(test_draft__qwen2_int8),    cmocka_unit_test(test_loop__smollm2_exact),
      cmocka_unit_test(test_loop__smollm2_int8),   cmocka_unit_test(test_loop__qwen2_int8),
  };
  return cmocka_run_group_tests_name("draft", tests, NULL, NULL);
}
