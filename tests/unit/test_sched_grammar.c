/* Requests under a grammar: the text follows it, ends where it ends, and is the same with and without drafting, with
 * company, after parking. Requests beside them that have none do not notice. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/size.h"
#include "dflash/dflash.h"
#include "engine/json_schema.h"
#include "support/sched_rig.h"
#include "support/tiny_target.h"

enum { CTX = 256, N_RULES = 6, N_VARIANTS = 5 };

typedef struct fixture {
  tiny_spec spec;
  df_model *m;
  df_draft *d;
  df_grammar *g[N_RULES];
} fixture;

/* What each grammar admits, worked out by hand below. */
static const char *const k_rules[N_RULES] = {
    "root ::= [a-z]{5,40}",
    "root ::= (\"the\" | \"an\" | \"in\")+ \".\"",
    "root ::= \"hello there\"",
    "root ::= \"{\" pair (\",\" pair)* \"}\"\npair ::= [a-c] \":\" [0-9]+",
    "root ::= item{3}\nitem ::= [^\\x00-\\x7f] | [0-9] [0-9]",
    "root ::= \"a\"* \"b\"",
};

static bool all_lower(const char *s, size_t n) {
  for (size_t i = 0; i < n; i++)
    if (s[i] < 'a' || s[i] > 'z') return false;
  return true;
}

static bool words(const char *s, size_t n) {
  size_t i = 0, k = 0;
  for (;; k++) {
    if (n - i >= 3 && memcmp(s + i, "the", 3) == 0)
      i += 3;
    else if (n - i >= 2 && (memcmp(s + i, "an", 2) == 0 || memcmp(s + i, "in", 2) == 0))
      i += 2;
    else
      return k > 0 && n - i == 1 && s[i] == '.';
  }
}

static bool pairs(const char *s, size_t n) {
  size_t i = 1;
  if (n < 5 || s[0] != '{') return false;
  for (;; i++) {
    if (n - i < 4 || s[i] < 'a' || s[i] > 'c' || s[i + 1] != ':') return false;
    size_t digits = 0;
    for (i += 2; i < n && s[i] >= '0' && s[i] <= '9'; i++) digits++;
    if (!digits || i == n) return false;
    if (s[i] != ',') return s[i] == '}' && i + 1 == n;
  }
}

static bool items(const char *s, size_t n) {
  size_t i = 0, k = 0;
  for (; i < n; k++) {
    const unsigned char c = (unsigned char)s[i];
    if (c >= '0' && c <= '9') {
      if (i + 1 >= n || s[i + 1] < '0' || s[i + 1] > '9') return false;
      i += 2;
    } else {
      const size_t len = c >= 0xF0 ? 4 : c >= 0xE0 ? 3 : c >= 0xC2 ? 2 : 0;
      if (!len) return false;
      i += len;
    }
  }
  return k == 3 && i == n;
}

static bool follows(uint32_t rule, const char *s, size_t n) {
  switch (rule) {
    case 0: return n >= 5 && n <= 40 && all_lower(s, n);
    case 1: return words(s, n);
    case 2: return n == 11 && memcmp(s, "hello there", 11) == 0;
    case 3: return pairs(s, n);
    case 4: return items(s, n);
    default: return n > 0 && strspn(s, "a") == n - 1 && s[n - 1] == 'b';
  }
}

static int setup(void **state) {
  df_error err = {0};
  fixture *f = df_calloc(1, sizeof *f);
  if (!f) return -1;
  f->spec = tiny_spec_default();
  f->m = tiny_open(&f->spec, 2);
  f->d = tiny_open_draft(&f->spec, f->m);
  for (uint32_t i = 0; i < N_RULES; i++)
    if (df_grammar_from_gbnf(f->m->tok, k_rules[i], strlen(k_rules[i]), &f->g[i], &err) != DF_OK)
      fail_msg("%s: %s", k_rules[i], err.msg);
  *state = f;
  return 0;
}

static int teardown(void **state) {
  fixture *f = *state;
  for (uint32_t i = 0; i < N_RULES; i++) df_grammar_release(f->g[i]);
  df_draft_close(f->d);
  df_model_close(f->m);
  df_free(f);
  return 0;
}

static df_sched_params params(uint32_t max_seqs, uint32_t kv_tokens) {
  df_sched_params p = {.engine = {.session = df_session_params_default(), .max_seqs = max_seqs}, .max_waiting = 64};
  p.engine.session.n_ctx = CTX;
  p.engine.kv_tokens = kv_tokens;
  return p;
}

/* rule N_RULES: none. The prompt ends in a letter that some grammar likes, so that drafts have a chance. */
static df_job job_of(const fixture *f, uint32_t rule, uint32_t variant, int32_t *ids) {
  const uint32_t n = 30 + 5 * variant;
  for (uint32_t i = 0; i < n; i++)
    ids[i] = (int32_t)((i * 7 + rule * 3) % 5 == 0 ? 'a' : "the1a:3b"[(i + variant) % 8]);
  df_job j = rig_job(ids, n, 60);
  j.grammar = rule < N_RULES ? f->g[rule] : NULL;
  j.gen.ignore_eos = variant == 1; /* a grammar ends all the same */
  j.gen.sampling.seed = variant;
  if (variant == 2) j.gen.sampling.temperature = 0.8f;
  if (variant == 3) j.gen.sampling.temperature = 1.0f, j.gen.sampling.repetition_penalty = 1.1f;
  if (variant == 4) j.gen.min_tokens = 50;
  return j;
}

static void test_grammar__same_text_with_drafts_and_company(void **state) {
  fixture *f = *state;
  int32_t ids[CTX];
  sched_rig plain, r;
  df_sched_params p = params(1, 0);
  rig_init(&plain, f->m, NULL, &p);
  for (uint32_t rule = 0; rule <= N_RULES; rule++)
    for (uint32_t v = 0; v < N_VARIANTS; v++) {
      const df_job j = job_of(f, rule, v, ids);
      (void)rig_submit(&plain, &j);
    }
  rig_wait_all(&plain);
  uint32_t ended = 0;
  for (uint32_t rule = 0; rule < N_RULES; rule++)
    for (uint32_t v = 0; v < N_VARIANTS; v++) {
      const rig_answer *a = rig_get(&plain, rule * N_VARIANTS + v);
      assert_int_equal(a->end.failed, DF_OK);
      if (a->end.finish == DF_FINISH_LENGTH) continue; /* not through yet */
      assert_int_equal(a->end.finish, DF_FINISH_EOS);
      if (!follows(rule, a->text, a->text_len)) fail_msg("rule %u admits no \"%.*s\"", rule, (int)a->text_len, a->text);
      ended++;
    }
  assert_true(ended > 15);
  uint64_t accepted = 0, parked = 0;
  for (int round = 0; round < 4; round++) {
    df_sched_stats st;
    p = params(round == 0 ? 16 : 7, round < 2 ? 0 : CTX - 96);
    p.engine.session.page_size = round == 3 ? 1 : 16;
    rig_init(&r, f->m, f->d, &p);
    for (uint32_t i = 0; i < plain.n; i++) {
      static const int32_t widths[] = {16, 0, 4, 8, 2, 1};
      df_job j = job_of(f, i / N_VARIANTS, i % N_VARIANTS, ids);
      j.spec_width = widths[(i + (uint32_t)round) % 6];
      j.logprobs = i % 4 == 0;
      (void)rig_submit(&r, &j);
    }
    rig_assert_at_rest(&r);
    for (uint32_t i = 0; i < plain.n; i++) {
      char what[48];
      (void)snprintf(what, sizeof what, "round %d, rule %u, variant %u", round, i / N_VARIANTS, i % N_VARIANTS);
      rig_assert_same(rig_get(&r, i), rig_get(&plain, i), what);
    }
    df_sched_get_stats(r.s, &st);
    accepted += st.accepted;
    parked += st.preempted;
    rig_release(&r);
  }
  assert_true(accepted > 50 && parked > 0);
  rig_release(&plain);
}

/* Answers that end at many places of a block: as the target's own token, or as a draft that stands, behind which the
 * matcher must not be asked. */
static void test_grammar__ends_anywhere_in_a_block(void **state) {
  fixture *f = *state;
  int32_t ids[64];
  sched_rig r;
  const df_sched_params p = params(8, 0);
  uint32_t drafted_ends = 0;
  rig_init(&r, f->m, f->d, &p);
  char text[64];
  for (uint32_t n = 1; n <= 120; n++) {
    df_grammar *g;
    df_error err = {0};
    const uint32_t letters = 1 + n % 9;
    (void)snprintf(text, sizeof text, "root ::= [ -~]{%u,%u}", letters, letters + n % 2);
    assert_int_equal(df_grammar_from_gbnf(f->m->tok, text, strlen(text), &g, &err), DF_OK);
    for (uint32_t i = 0; i < 48; i++) ids[i] = i % (2 + n / 9 % 5) ? TINY_END : (int32_t)(32 + (n * 7) % 95);
    for (int ignore = 0; ignore < 2; ignore++) {
      df_job j = rig_job(ids, 48, 60);
      j.grammar = g;
      j.gen.ignore_eos = ignore == 1;
      j.spec_width = 2 + (int32_t)n % 15;
      (void)rig_submit(&r, &j);
    }
    df_grammar_release(g); /* the submissions hold it */
    rig_wait_all(&r);
    for (uint32_t k = 2; k > 0; k--) {
      const rig_answer *a = rig_get(&r, r.n - k);
      assert_int_equal(a->end.failed, DF_OK);
      assert_int_equal(a->end.finish, DF_FINISH_EOS);
      assert_true(a->text_len >= letters && a->text_len <= letters + n % 2);
      for (uint32_t i = 0; i < a->text_len; i++) assert_true(a->text[i] >= ' ' && a->text[i] <= '~');
      assert_true(df_tokenizer_is_eog(f->m->tok, a->ids[a->n - 1]));
      assert_int_equal(a->end.matched_id, a->ids[a->n - 1]);
      drafted_ends += a->ended_drafted;
    }
  }
  rig_assert_at_rest(&r);
  if (drafted_ends < 10) fail_msg("only %u ends were drafted", drafted_ends);
  rig_release(&r);
}

/* A thousand answers of drafts that all stand but are longer than the grammar: it ends at every place of a block, what
 * was drafted behind is dropped, and nothing is asked of a matcher that is through. */
static void test_grammar__a_thousand_ends_inside_blocks(void **state) {
  (void)state;
  enum { LETTERS = 32 };
  rig_models x;
  int32_t ids[40];
  sched_rig r;
  char text[48];
  uint32_t runs = 0;
  bool cut[DF_MAX_WIDTH + 1] = {false};
  const df_sched_params p = params(8, 0);
  rig_echo_open(&x);
  for (uint32_t i = 0; i < 40; i++) ids[i] = 'h';
  rig_init(&r, x.m, x.d, &p);
  for (uint32_t n = 1; n <= LETTERS; n++) {
    df_grammar *g;
    df_error err = {0};
    (void)snprintf(text, sizeof text, "root ::= \"h\"{%u}", n);
    assert_int_equal(df_grammar_from_gbnf(x.m->tok, text, strlen(text), &g, &err), DF_OK);
    const uint32_t first = r.n;
    for (uint32_t k = 0; k < 32; k++) {
      df_job j = rig_job(ids, 8 + k, 64);
      j.grammar = g;
      j.spec_width = 1 + (int32_t)k % DF_MAX_WIDTH;
      j.gen.ignore_eos = k >= 16;
      (void)rig_submit(&r, &j);
    }
    df_grammar_release(g);
    rig_wait_all(&r);
    for (uint32_t i = first; i < r.n; i++, runs++) {
      const rig_answer *a = rig_get(&r, i);
      assert_int_equal(a->end.failed, DF_OK);
      assert_int_equal(a->end.finish, DF_FINISH_EOS);
      assert_int_equal(a->text_len, n);
      for (uint32_t k = 0; k < n; k++) assert_int_equal(a->text[k], 'h');
      assert_int_equal(a->n, n + 1); /* the end token, and nothing behind it */
      assert_true(df_tokenizer_is_eog(x.m->tok, a->ids[n]));
      cut[a->last_n] = true;
    }
  }
  assert_true(runs >= 1000);
  for (uint32_t place = 1; place <= DF_MAX_WIDTH; place++)
    if (!cut[place]) fail_msg("no answer ended at place %u of a block", place);
  rig_assert_at_rest(&r);
  rig_release(&r);
  rig_echo_close(&x);
}

/* ---- many schemas at once --------------------------------------------------------------------------------- */

/* {"kN": integer from N to N + 5, "t": one of two words}, and nothing else. */
static bool fits(const rig_answer *a, uint32_t i) {
  char key[8];
  df_json *v = NULL;
  if (df_json_parse(a->text, a->text_len, &v, NULL) != DF_OK) return false;
  (void)snprintf(key, sizeof key, "k%u", i);
  const df_json *n = df_json_member(v, key), *t = df_json_member(v, "t");
  const bool ok = df_json_size(v) == 2 && df_json_kind_of(n) == DF_JSON_INT && df_json_int(n) >= (int64_t)i &&
                  df_json_int(n) <= (int64_t)i + 5 && (df_json_equals(t, "an") || df_json_equals(t, "the"));
  df_json_free(v);
  return ok;
}

static void submit_schemas(const fixture *f, sched_rig *r, uint32_t n) {
  int32_t ids[100];
  char text[256];
  for (uint32_t i = 0; i < 100; i++) ids[i] = "{\"the\": 1, k"[i % 12];
  for (uint32_t i = 0; i < n; i++) {
    df_grammar *g;
    df_error err = {0};
    (void)snprintf(text, sizeof text,
                   "{\"type\":\"object\",\"properties\":{\"k%u\":{\"type\":\"integer\",\"minimum\":%u,\"maximum\":%u},"
                   "\"t\":{\"enum\":[\"an\",\"the\"]}},\"required\":[\"k%u\",\"t\"],\"additionalProperties\":false}",
                   i, i, i + 5, i);
    if (df_json_schema_grammar(f->m->tok, text, strlen(text), false, &g, &err) != DF_OK) fail_msg("%s", err.msg);
    df_job j = rig_job(ids, 100, 120);
    j.grammar = g;
    j.gen.ignore_eos = false;
    j.gen.sampling.seed = i;
    j.gen.sampling.temperature = i % 2 ? 0.9f : 0;
    j.spec_width = i % 4 == 3 ? 1 : 2 + (int32_t)i % 15;
    (void)rig_submit(r, &j);
    df_grammar_release(g);
  }
  rig_assert_at_rest(r);
}

/* Thirty-two requests behind one long prompt, each with a schema of its own, drafting: every answer fits its own schema
 * and is the one that it has alone and without drafts. */
static void test_schemas__thirty_two_at_once(void **state) {
  fixture *f = *state;
  enum { N = 32 };
  sched_rig r, alone;
  df_sched_stats st;
  df_sched_params p = params(1, 0);
  rig_init(&alone, f->m, NULL, &p);
  submit_schemas(f, &alone, N); /* through before the other one begins: they share the model's threads */
  p.engine.max_seqs = N;
  rig_init(&r, f->m, f->d, &p);
  submit_schemas(f, &r, N);
  for (uint32_t i = 0; i < N; i++) {
    const rig_answer *a = rig_get(&r, i);
    rig_assert_same(a, rig_get(&alone, i), "with company");
    if (a->end.finish != DF_FINISH_EOS || !fits(a, i)) fail_msg("schema %u: \"%.*s\"", i, (int)a->text_len, a->text);
  }
  df_sched_get_stats(r.s, &st);
  assert_true(st.drafted > N && st.cached_tokens > 20 * 64); /* they drafted, and shared their beginning */
  rig_release(&alone);
  rig_release(&r);
}

/* ---- a constraint that ends without an end token ---------------------------------------------------------- */

typedef struct script {
  uint64_t mask[8];
  uint32_t at, n;      /* tokens taken, tokens there are */
  int32_t id;          /* the only one that may come */
  const df_request *q; /* when set: what was drafted may come, so that whole blocks stand */
} script;

static df_status script_mask(void *ctx, const uint64_t **mask, df_error *err) {
  (void)err;
  script *s = ctx;
  const uint32_t row = s->q ? s->at - s->q->followed : 0;
  s->id = 'a';
  if (s->q && s->q->drafted && row + 1 < s->q->width && !df_tokenizer_is_eog(s->q->m->tok, s->q->drafted[row]))
    s->id = s->q->drafted[row];
  memset(s->mask, 0, sizeof s->mask);
  if (s->at < s->n) s->mask[s->id / 64] |= UINT64_C(1) << s->id % 64;
  *mask = s->mask;
  return DF_OK;
}

static df_status script_accept(void *ctx, int32_t id, bool *accepted, df_error *err) {
  (void)err;
  script *s = ctx;
  *accepted = s->at < s->n && id == s->id;
  s->at += *accepted;
  return DF_OK;
}

static void script_rollback(void *ctx, uint32_t n) {
  script *s = ctx;
  assert_true(n <= s->at);
  s->at -= n;
}

static uint32_t script_length(void *ctx) { return ((script *)ctx)->at; }

/* A text of n tokens, cut at max_tokens. Returns the accepted drafts. */
static uint32_t run_script(df_engine *e, uint32_t n, uint32_t max_tokens, int32_t width, bool follow_drafts) {
  int32_t ids[48];
  df_error err = {0};
  df_request q, *one = &q;
  df_kv_seq seq;
  script s = {.n = n, .q = follow_drafts ? &q : NULL};
  const df_constraint c = {&s, script_mask, script_accept, script_rollback, script_length};
  df_generate_params g = df_generate_params_default();
  df_request_config rc = {.gen = &g, .constraint = &c};
  const uint32_t want = DF_MIN(n, max_tokens);
  for (uint32_t i = 0; i < 48; i++) ids[i] = 'a' + (int32_t)i % 3;
  g.max_tokens = max_tokens;
  assert_int_equal(df_engine_width(e, width, &rc, &err), DF_OK);
  assert_int_equal(df_request_init(&q, e->m, ids, 48, CTX, &rc, &err), DF_OK);
  assert_int_equal(df_kv_seq_init(&seq, e->pages.size, CTX, &err), DF_OK);
  assert_int_equal(df_engine_admit(e, &q, &seq, 0, &err), DF_OK);
  for (uint32_t steps = 0; q.state != DF_REQ_DONE; steps++) {
    assert_true(steps <= want);
    assert_int_equal(df_engine_step(e, &one, 1, &err), DF_OK);
  }
  assert_int_equal(q.failed, DF_OK);
  assert_int_equal(q.r.finish, n < max_tokens ? DF_FINISH_EOS : DF_FINISH_LENGTH);
  assert_int_equal(q.r.stats.new_tokens, want);
  assert_int_equal(s.at, want); /* behind what was kept, whatever was tried */
  assert_int_equal(q.matched_id, -1);
  const uint32_t accepted = q.r.stats.accepted;
  seq = df_request_park(&q);
  df_kv_seq_release(&seq, &e->pages);
  df_request_release(&q);
  return accepted;
}

static void test_constraint__ends_when_nothing_may_come(void **state) {
  fixture *f = *state;
  df_error err = {0};
  df_engine e;
  df_engine_params p = {.session = df_session_params_default(), .max_seqs = 1};
  p.session.n_ctx = CTX;
  p.session.spec_draft_max = 15;
  assert_int_equal(df_engine_init(&e, f->m, f->d, &p, &err), DF_OK);
  uint32_t stood = 0;
  for (uint32_t n = 0; n < 40; n++) {
    (void)run_script(&e, n, 100, 1 + (int32_t)n % 16, false);
    stood += run_script(&e, n, 100, 1 + (int32_t)n % 16, true);
    (void)run_script(&e, 60, 1 + n, 1 + (int32_t)n % 16, true);
    (void)run_script(&e, 60, 1 + n, 16, true);
  }
  if (stood < 100) fail_msg("only %u drafts stood", stood);
  df_engine_release(&e);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_grammar__same_text_with_drafts_and_company),
      cmocka_unit_test(test_grammar__ends_anywhere_in_a_block),
      cmocka_unit_test(test_grammar__a_thousand_ends_inside_blocks),
      cmocka_unit_test(test_schemas__thirty_two_at_once),
      cmocka_unit_test(test_constraint__ends_when_nothing_may_come),
  };
  return cmocka_run_group_tests_name("sched_grammar", tests, setup, teardown);
}
