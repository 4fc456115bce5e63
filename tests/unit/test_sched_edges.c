/* Edges of drafting among many: a full batch whose requests leave one by one, drafts of which none is ever right, and
 * one recorded program over thousands of positions. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/mem.h"
#include "dflash/dflash.h"
#include "support/sched_rig.h"
#include "support/tiny_target.h"

enum { CTX = 256, MOST = 32 };

static df_sched_params params(uint32_t max_seqs) {
  df_sched_params p = {.engine = {.session = df_session_params_default(), .max_seqs = max_seqs}, .max_waiting = 64};
  p.engine.session.n_ctx = CTX;
  p.engine.session.spec_draft_max = DF_MAX_WIDTH - 1;
  return p;
}

static void prompt_of(int32_t *ids, uint32_t n, uint32_t salt) {
  for (uint32_t i = 0; i < n; i++) ids[i] = (int32_t)((i * 31 + salt * 17 + i * i * 7) % 251);
}

/* ---- a batch that shrinks ------------------------------------------------------------------------------- */

/* Thirty-two run at once, as many as there may be, each with a whole block; from then on one leaves after the other, so
 * that every number of sequences from 32 down to 1 is met. */
static void shrink(rig_models *f, int32_t width, bool no_graph) {
  sched_rig r;
  df_sched_stats st;
  df_sched_params p = params(MOST);
  int32_t ids[MOST][24];
  uint32_t at[MOST];
  uint32_t met = 0; /* bit n - 1: n were running */
  rig_answer *want = df_calloc(MOST, sizeof *want);
  assert_non_null(want);
  p.engine.session.no_graph = no_graph;
  p.no_prefix_cache = true;
  rig_init(&r, f->m, f->d, &p);
  for (uint32_t i = 0; i < MOST; i++) {
    prompt_of(ids[i], 10 + i % 7, i);
    df_job j = rig_job(ids[i], 10 + i % 7, 40 + 3 * i);
    j.spec_width = width;
    at[i] = i == 0 ? rig_submit_held(&r, &j) : rig_submit(&r, &j);
  }
  for (bool all = false; !all;) {
    rig_turn(&r);
    df_sched_get_stats(r.s, &st);
    if (st.running) met |= 1u << (st.running - 1);
    all = st.running + st.waiting <= 1;
  }
  rig_go(&r);
  rig_wait_all(&r);
  df_sched_get_stats(r.s, &st);
  if (width == 1)
    assert_int_equal(met, UINT32_MAX); /* by three tokens apart: each number for three steps */
  else
    assert_true(met >> (MOST - 1) & 1 && st.drafted > 5000);
  for (uint32_t i = 0; i < MOST; i++) {
    char name[64];
    df_job j = rig_job(ids[i], 10 + i % 7, 40 + 3 * i);
    rig_alone(f->m, CTX, &j, &want[i]);
    (void)snprintf(name, sizeof name, "width %d, request %u", (int)width, (unsigned)i);
    rig_assert_same(rig_get(&r, at[i]), &want[i], name);
  }
  rig_assert_at_rest(&r);
  rig_release(&r);
  df_free(want);
}

static void test_batch__shrinks_one_by_one(void **state) {
  shrink(*state, 1, false);
  shrink(*state, 16, false);
  shrink(*state, 5, false);
  shrink(*state, 16, true);
}

/* ---- drafts that are always wrong ----------------------------------------------------------------------- */

static void count_warning(void *user, df_log_level level, const char *line) {
  if (level == DF_LOG_WARN && strstr(line, "(accept length 1.00): the draft does not fit")) ++*(uint32_t *)user;
}

/* The target would repeat its last token and the draft knows that, but no token may come twice: no draft stands, at any
 * width, and the text is the plain one. A warning says so, once. */
static void test_drafts__never_right(void **state) {
  (void)state;
  rig_models x;
  sched_rig r;
  df_sched_stats st;
  df_sched_params p = params(4);
  int32_t ids[12];
  uint32_t at[DF_MAX_WIDTH + 1] = {0};
  uint32_t warnings = 0;
  df_log_set(count_warning, &warnings, DF_LOG_WARN);
  rig_echo_open(&x);
  rig_init(&r, x.m, x.d, &p);
  prompt_of(ids, 12, 3);
  for (int32_t width = 1; width <= DF_MAX_WIDTH; width++) {
    df_job j = rig_job(ids, 12, 100);
    j.gen.sampling.presence_penalty = 1000;
    j.spec_width = width;
    at[width] = rig_submit(&r, &j);
  }
  rig_wait_all(&r);
  for (int32_t width = 1; width <= DF_MAX_WIDTH; width++) {
    const rig_answer *a = rig_get(&r, at[width]);
    rig_assert_same(a, rig_get(&r, at[1]), "width");
    assert_int_equal(a->end.stats.accepted, 0);
    assert_int_equal(a->end.stats.emitted_verify, a->end.stats.verify_steps);
    if (width > 1) assert_true(a->end.stats.verify_steps >= 98 && a->end.stats.drafted >= 98);
  }
  df_sched_get_stats(r.s, &st);
  assert_int_equal(st.accepted, 0);
  rig_assert_at_rest(&r);
  rig_release(&r);
  rig_echo_close(&x);
  df_log_set(NULL, NULL, DF_LOG_DEBUG);
  assert_int_equal(warnings, 1);
}

/* ---- one program, thousands of positions ---------------------------------------------------------------- */

typedef struct run {
  int32_t ids[3000];
  uint64_t hash;
} run;

static void generate(const rig_models *x, bool draft, bool no_graph, uint32_t width, run *out) {
  df_error err = {0};
  df_session *s = NULL;
  df_result r;
  int32_t ids[20];
  df_session_params sp = df_session_params_default();
  df_generate_params g = df_generate_params_default();
  sp.n_ctx = 3100;
  sp.no_graph = no_graph;
  sp.spec_draft_max = width - 1;
  g.max_tokens = 3000;
  g.ignore_eos = true;
  g.hash_logits = true;
  g.sampling.temperature = 1; /* or it would run in a circle */
  g.sampling.seed = 5;
  prompt_of(ids, 20, 9);
  if (df_session_create(x->m, draft ? x->d : NULL, &sp, &s, &err) != DF_OK) fail_msg("%s", err.msg);
  if (df_session_generate(s, ids, 20, &g, &r, &err) != DF_OK) fail_msg("%s", err.msg);
  assert_int_equal(r.n_ids, 3000);
  if (draft) assert_true(r.stats.verify_steps > 500);
  memcpy(out->ids, r.ids, sizeof out->ids);
  out->hash = r.logits_hash;
  df_session_free(s);
}

/* Recorded once and replayed while the text grows past every border of pages and chunks: each token's logits are those
 * of programs made anew for every step. */
static void test_graphs__three_thousand_tokens(void **state) {
  (void)state;
  static run want, got;
  rig_models x = {.spec = tiny_spec_default()};
  x.spec.n_layers = 2;
  x.spec.hidden = 32;
  x.spec.n_heads = x.spec.n_kv_heads = 1;
  x.spec.ffn = 32;
  x.spec.context = 3100;
  x.m = tiny_open(&x.spec, 1);
  x.d = tiny_open_draft(&x.spec, x.m);
  generate(&x, false, true, 1, &want);
  for (uint32_t i = 0; i < 3; i++) {
    generate(&x, i > 0, i == 2, i > 0 ? 8 : 1, &got);
    assert_memory_equal(got.ids, want.ids, sizeof want.ids);
    assert_true(got.hash == want.hash);
  }
  df_draft_close(x.d);
  df_model_close(x.m);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(test_batch__shrinks_one_by_one, rig_models_open, rig_models_close),
      cmocka_unit_test(test_drafts__never_right), cmocka_unit_test(test_graphs__three_thousand_tokens)};
  return cmocka_run_group_tests_name("sched_edges", tests, NULL, NULL);
}
