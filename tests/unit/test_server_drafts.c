/* Drafts that go against a constraint: control tokens where JSON is wanted, code fences where a tool is to be called.
 * They are refused one by one, the request goes on, and the text is the one without drafts. */
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
#include "server/tool_calls.h"
#include "support/sched_rig.h"
#include "support/tiny_target.h"

enum { CTX = 512, MAX_NEW = 160 };

static const char k_person[] =
    "{\"type\":\"object\",\"properties\":{\"in\":{\"type\":\"integer\",\"minimum\":0,\"maximum\":99},\"the\":{\"enum\":"
    "["
    "\"an\",\"he\"]}},\"required\":[\"in\",\"the\"],\"additionalProperties\":false}";
static const char k_tools[] =
    "[{\"type\":\"function\",\"function\":{\"name\":\"find\",\"parameters\":{\"type\":\"object\",\"properties\":{"
    "\"in\":{\"type\":"
    "\"boolean\"}},\"required\":[\"in\"],\"additionalProperties\":false}}}]";

/* A matcher that sees what was drafted before it is asked. */
typedef struct spy {
  df_matcher *m;
  const df_request *q;
  bool (*bad)(const df_request *q, int32_t id);
  uint32_t n_bad, n_drafted; /* drafts of the kind that can never be right, all drafts */
} spy;

static df_status spy_mask(void *ctx, const uint64_t **mask, df_error *err) {
  spy *s = ctx;
  if (s->q->drafted && df_matcher_length(s->m) == s->q->followed) /* row 0 of a step: its whole block is there */
    for (uint32_t i = 0; i + 1 < s->q->width; i++, s->n_drafted++) s->n_bad += s->bad(s->q, s->q->drafted[i]);
  return df_matcher_mask(s->m, mask, err);
}
static df_status spy_accept(void *ctx, int32_t id, bool *accepted, df_error *err) {
  return df_matcher_accept(((spy *)ctx)->m, id, accepted, err);
}
static void spy_rollback(void *ctx, uint32_t n) { df_matcher_rollback(((spy *)ctx)->m, n); }
static uint32_t spy_length(void *ctx) { return df_matcher_length(((spy *)ctx)->m); }

typedef struct output {
  char text[RIG_TEXT];
  size_t n;
} output;

static bool collect(void *user, const df_event *ev) {
  output *o = user;
  assert_true(o->n + ev->text_len < sizeof o->text);
  memcpy(o->text + o->n, ev->text, ev->text_len);
  o->n += ev->text_len;
  return true;
}

/* One constrained answer to its end. */
static void answer(df_engine *e, df_grammar *g, const int32_t *ids, uint32_t n, int32_t width, spy *s, output *out) {
  df_error err = {0};
  df_request q, *one = &q;
  df_kv_seq seq;
  df_generate_params gen = df_generate_params_default();
  const df_constraint c = {s, spy_mask, spy_accept, spy_rollback, spy_length};
  df_request_config rc = {.gen = &gen, .constraint = &c};
  const df_logit_bias tag = {'<', 40}; /* reasoning, where there is some, comes to its end */
  gen.max_tokens = MAX_NEW;
  gen.sampling.bias = &tag;
  gen.sampling.n_bias = 1;
  gen.on_event = collect;
  gen.user = out;
  s->q = &q;
  out->n = 0;
  assert_int_equal(df_matcher_create(g, &s->m, &err), DF_OK);
  assert_int_equal(df_engine_width(e, width, &rc, &err), DF_OK);
  assert_int_equal(df_request_init(&q, e->m, ids, n, CTX, &rc, &err), DF_OK);
  assert_int_equal(df_kv_seq_init(&seq, e->pages.size, CTX, &err), DF_OK);
  assert_int_equal(df_engine_admit(e, &q, &seq, 0, &err), DF_OK);
  while (q.state != DF_REQ_DONE) assert_int_equal(df_engine_step(e, &one, 1, &err), DF_OK);
  if (q.failed != DF_OK) fail_msg("width %d: %s", (int)width, q.why.msg);
  assert_int_equal(q.r.finish, DF_FINISH_EOS);
  assert_true(df_matcher_may_end(s->m) || df_matcher_length(s->m) == q.n_ids - q.n_prompt);
  seq = df_request_park(&q);
  df_kv_seq_release(&seq, &e->pages);
  df_request_release(&q);
  df_matcher_free(s->m);
}

static void engine_open(df_engine *e, const rig_models *f) {
  df_error err = {0};
  df_engine_params p = {.session = df_session_params_default(), .max_seqs = 1};
  p.session.n_ctx = CTX;
  p.session.spec_draft_max = 15;
  assert_int_equal(df_engine_init(e, f->m, f->d, &p, &err), DF_OK);
}

/* The same answer at every width; at least one of `share` drafts could never be right. */
static void check_widths(df_engine *e, df_grammar *g, const int32_t *ids, uint32_t n, uint32_t share,
                         bool (*bad)(const df_request *q, int32_t id), output *plain) {
  spy all = {.bad = bad};
  answer(e, g, ids, n, 1, &all, plain);
  assert_int_equal(all.n_drafted, 0);
  for (int32_t width = 2; width <= DF_MAX_WIDTH; width++) {
    output o;
    answer(e, g, ids, n, width, &all, &o);
    if (o.n != plain->n || memcmp(o.text, plain->text, o.n) != 0)
      fail_msg("width %d: \"%.*s\", not \"%.*s\"", (int)width, (int)o.n, o.text, (int)plain->n, plain->text);
  }
  if (all.n_bad * share < all.n_drafted || all.n_bad < 100)
    fail_msg("only %u of %u drafts were of the wrong kind", all.n_bad, all.n_drafted);
}

static bool is_control(const df_request *q, int32_t id) { return df_tokenizer_is_special(q->m->tok, id); }

static void test_drafts__control_tokens_under_a_schema(void **state) {
  const rig_models *f = *state;
  df_engine e;
  df_error err = {0};
  df_grammar *g;
  int32_t ids[120];
  engine_open(&e, f);
  assert_int_equal(df_json_schema_grammar(f->m->tok, k_person, strlen(k_person), false, &g, &err), DF_OK);
  static const int32_t control[] = {TINY_END, TINY_TURN, TINY_START, TINY_MASK};
  for (uint32_t kind = 0; kind <= DF_COUNT_OF(control); kind++) { /* each alone, then all in turn */
    output plain;
    df_json *v = NULL;
    for (uint32_t i = 0; i < 120; i++) ids[i] = control[kind < DF_COUNT_OF(control) ? kind : i % DF_COUNT_OF(control)];
    check_widths(&e, g, ids, 120, 10, is_control, &plain);
    assert_int_equal(df_json_parse(plain.text, plain.n, &v, &err), DF_OK);
    const int64_t in = df_json_int(df_json_member(v, "in"));
    const df_json *the = df_json_member(v, "the");
    assert_true(df_json_size(v) == 2 && df_json_kind_of(df_json_member(v, "in")) == DF_JSON_INT);
    assert_true(in >= 0 && in <= 99 && (df_json_equals(the, "an") || df_json_equals(the, "he")));
    df_json_free(v);
  }
  df_grammar_release(g);
  df_engine_release(&e);
}

static bool is_fence(const df_request *q, int32_t id) {
  (void)q;
  return id == '`';
}

typedef struct calls {
  uint32_t n_ended;
  char name[32], args[64];
} calls;

static df_status on_call(void *user, const df_answer_event *ev, df_error *err) {
  calls *c = user;
  (void)err;
  assert_true(ev->kind != DF_ANSWER_CONTENT && ev->kind != DF_ANSWER_CALL_BROKEN);
  if (ev->kind != DF_ANSWER_CALL_END) return DF_OK;
  c->n_ended++;
  (void)snprintf(c->name, sizeof c->name, "%s", ev->name);
  (void)snprintf(c->args, sizeof c->args, "%.*s", (int)ev->n, ev->text);
  return DF_OK;
}

/* Also behind reasoning: what comes out is one whole call, however eagerly fences are drafted. */
static void test_drafts__code_fences_where_a_call_must_be(void **state) {
  const rig_models *f = *state;
  static const df_think_mode modes[] = {DF_THINK_OFF, DF_THINK_AUTO, DF_THINK_OPEN};
  df_engine e;
  df_error err = {0};
  int32_t ids[120];
  engine_open(&e, f);
  for (uint32_t i = 0; i < 120; i++) ids[i] = "```json\n```"[i % 11];
  for (uint32_t i = 60; i < 120; i++) ids[i] = '`';
  for (uint32_t k = 0; k < DF_COUNT_OF(modes); k++) {
    df_buf gbnf = {0};
    df_grammar *g;
    df_answer_parser *parser;
    calls c = {0};
    output plain;
    assert_int_equal(df_tool_calls_gbnf(k_tools, strlen(k_tools), NULL, false, modes[k], &gbnf, &err), DF_OK);
    assert_int_equal(df_grammar_from_gbnf(f->m->tok, gbnf.data, gbnf.len, &g, &err), DF_OK);
    check_widths(&e, g, ids, 120, 2, is_fence, &plain);
    const df_answer_params ap = {.think = modes[k], .tools = true, .hold_calls = true};
    assert_int_equal(df_answer_parser_create(&ap, &parser, &err), DF_OK);
    assert_int_equal(df_answer_parser_push(parser, plain.text, plain.n, on_call, &c, &err), DF_OK);
    assert_int_equal(df_answer_parser_finish(parser, on_call, &c, &err), DF_OK);
    assert_int_equal(c.n_ended, 1);
    assert_string_equal(c.name, "find");
    assert_true(strstr(c.args, "true") || strstr(c.args, "false"));
    assert_null(strchr(c.args, '`'));
    df_answer_parser_free(parser);
    df_grammar_release(g);
    df_buf_release(&gbnf);
  }
  df_engine_release(&e);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_drafts__control_tokens_under_a_schema),
      cmocka_unit_test(test_drafts__code_fences_where_a_call_must_be),
  };
  return cmocka_run_group_tests_name("server_drafts", tests, rig_models_open, rig_models_close);
}
