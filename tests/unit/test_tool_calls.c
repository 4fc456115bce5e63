/*
 * Answers of models taken apart: the events of a text are the same however it is cut, and those that are written down
 * here. And grammars of calls: what they admit comes out as calls.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "format/json.h"
#include "server/tool_calls.h"
#include "support/kernel_data.h"
#include "support/sample_files.h"
#include "support/tiny_vocab.h"
#include "text/grammar.h"

/* Events as text: R(..) C(..) BEGIN name, A(..), END(..), BROKEN; pieces of one kind behind each other are joined. */
typedef struct log {
  df_buf b;
  int last;
  char id[DF_TOOL_ID_SIZE], ids[4][DF_TOOL_ID_SIZE];
  uint32_t n_ids;
} log;

static void put(log *l, const char *s, size_t n) { assert_int_equal(df_buf_put(&l->b, s, n, NULL), DF_OK); }

static df_status note(void *user, const df_answer_event *ev, df_error *err) {
  static const char *const names[] = {"R(", "C(", "BEGIN ", "A(", "END(", "BROKEN "};
  log *l = user;
  (void)err;
  bool text = ev->kind <= DF_ANSWER_CONTENT || ev->kind == DF_ANSWER_CALL_ARGS;
  if (text) assert_true(ev->n > 0);
  if (text && l->last == (int)ev->kind)
    l->b.len--; /* the closing bracket */
  else
    put(l, names[ev->kind], strlen(names[ev->kind]));
  l->last = (int)ev->kind;
  put(l, ev->text, ev->n);
  if (ev->kind >= DF_ANSWER_CALL_BEGIN) {
    bool begins = ev->kind == DF_ANSWER_CALL_BEGIN;
    if (begins) memcpy(l->id, ev->id, strlen(ev->id) + 1);
    if (begins && l->n_ids < 4) memcpy(l->ids[l->n_ids++], ev->id, strlen(ev->id) + 1);
    assert_string_equal(ev->id, l->id);
    assert_int_equal(strlen(ev->id), 29);
  }
  if (ev->kind == DF_ANSWER_CALL_BEGIN || ev->kind == DF_ANSWER_CALL_BROKEN)
    assert_int_equal(df_buf_printf(&l->b, NULL, "%u %s;", ev->index, ev->name), DF_OK);
  else
    put(l, ")", 1);
  return DF_OK;
}

/* cut 0: all at once; 1: byte by byte; else random pieces. */
static void parse(const df_answer_params *p, const char *text, size_t n, uint64_t cut, log *l) {
  df_answer_parser *a = NULL;
  uint64_t rng = cut;
  *l = (log){.last = -1};
  assert_int_equal(df_answer_parser_create(p, &a, NULL), DF_OK);
  char *copy = df_alloc(n + 1);
  for (size_t i = 0; i < n;) {
    size_t k = cut == 0 ? n : cut == 1 ? 1 : 1 + test_random(&rng) % 9;
    k = k < n - i ? k : n - i;
    memcpy(copy, text + i, k); /* what is borrowed must not be kept */
    assert_int_equal(df_answer_parser_push(a, copy, k, note, l, NULL), DF_OK);
    memset(copy, '#', k);
    i += k;
  }
  assert_int_equal(df_answer_parser_finish(a, note, l, NULL), DF_OK);
  df_free(copy);
  df_answer_parser_free(a);
  put(l, "", 0);
}

static void check(df_think_mode think, bool tools, bool hold, const char *text, const char *want) {
  df_answer_params p = {.think = think, .tools = tools, .hold_calls = hold, .id_seed = 7};
  log first = {0};
  for (uint64_t cut = 0; cut < 12; cut++) {
    log l;
    parse(&p, text, strlen(text), cut, &l);
    if (strcmp(l.b.data, want) != 0)
      fail_msg("cut %u\n text %s\n got  %s\n want %s", (unsigned)cut, text, l.b.data, want);
    if (cut == 0) memcpy(&first, &l, sizeof l);
    assert_memory_equal(first.ids, l.ids, sizeof l.ids);
    if (cut == 0) first.b = (df_buf){0};
    df_buf_release(&l.b);
  }
}

#define CALL(name, args) "<tool_call>\n{\"name\": \"" name "\", \"arguments\": " args "}\n</tool_call>"

static void test_push__calls(void **state) {
  (void)state;
  static const struct {
    const char *text, *want;
  } cases[] = {
      {"", ""},
      {"Hello", "C(Hello)"},
      {" Hello \n", "C( Hello \n)"},
      {CALL("f", "{\"a\": 1}"), "BEGIN 0 f;A({\"a\": 1})END({\"a\": 1})"},
      {"One moment.\n\n" CALL("f", "{}"), "C(One moment.)BEGIN 0 f;A({})END({})"},
      {CALL("f", "{}") "\n" CALL("g", "{\"x\":[{}]}") "\n",
       "BEGIN 0 f;A({})END({})BEGIN 1 g;A({\"x\":[{}]})END({\"x\":[{}]})"},
      {CALL("f", "{}") "\n\nDone.", "BEGIN 0 f;A({})END({})C(\n\nDone.)"},
      {"a" CALL("f", "{}") "b" CALL("f", "{}") "c", "C(a)BEGIN 0 f;A({})END({})C(b)BEGIN 1 f;A({})END({})C(c)"},
      {"<tool_call>{\"arguments\":{\"k\":\"}\\\"\"},\"name\":\"f\"}</tool_call>",
       "BEGIN 0 f;A({\"k\":\"}\\\"\"})END({\"k\":\"}\\\"\"})"},
      {"<tool_call>{\"name\":\"f\"}</tool_call>", "BEGIN 0 f;A({})END({})"},
      {"<tool_call>{\"name\":\"f\",\"arguments\":null}</tool_call>", "BEGIN 0 f;A({})END({})"},
      {"<tool_call>{\"id\":[1,{\"name\":\"no\"}],\"name\":\"f\\u0041\\n\"}</tool_call>", "BEGIN 0 fA\n;A({})END({})"},
      {"<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": [1, -2.5e+3, true, null, \"\\u00e9\xC3\xA9\"]}}",
       "BEGIN 0 f;A({\"a\": [1, -2.5e+3, true, null, \"\\u00e9\xC3\xA9\"]})END({\"a\": [1, -2.5e+3, true, null, "
       "\"\\u00e9\xC3\xA9\"]})"},
      {"<tool_call>{\"name\":\"f\",\"arguments\":{\"t\":\"</tool_call><tool_call>\"}}</tool_call>",
       "BEGIN 0 f;A({\"t\":\"</tool_call><tool_call>\"})END({\"t\":\"</tool_call><tool_call>\"})"},
      {"<tool_call>{\"name\":\"f\"}</tool", "BEGIN 0 f;A({})END({})"},
      {"<tool_call>{\"name\":\"f\"}</tools>", "BEGIN 0 f;A({})END({})C(</tools>)"},
      {"<tool_call>{\"name\":\"f\"}\n<tool_call>{\"name\":\"g\"}", "BEGIN 0 f;A({})END({})BEGIN 1 g;A({})END({})"},
      /* not calls */
      {"a < b <tool> <tool_cal", "C(a < b <tool> <tool_cal)"},
      {"<<tool_call>{\"name\":\"f\"}", "C(<)BEGIN 0 f;A({})END({})"},
      {"<tool_call>", "C(<tool_call>)"},
      {"x\n<tool_call>\n", "C(x\n<tool_call>\n)"},
      {"x <tool_call> y", "C(x <tool_call> y)"},
      {"<tool_call><tool_call>{\"name\":\"f\"}", "C(<tool_call>)BEGIN 0 f;A({})END({})"},
      {"<tool_call>[1]</tool_call>", "C(<tool_call>[1]</tool_call>)"},
      {"<tool_call>{}</tool_call>", "C(<tool_call>{}</tool_call>)"},
      {"<tool_call>{\"name\":\"\"}</tool_call>", "C(<tool_call>{\"name\":\"\"}</tool_call>)"},
      {"<tool_call>{\"name\":1}</tool_call>", "C(<tool_call>{\"name\":1}</tool_call>)"},
      {"<tool_call>{\"name\":\"a\\u0000b\"}", "C(<tool_call>{\"name\":\"a\\u0000b\"})"},
      {"<tool_call>{\"name\":\"f\",\"name\":\"g\"}", "C(<tool_call>{\"name\":\"f\",\"name\":\"g\"})"},
      {"<tool_call>{\"name\":\"f\",\"arguments\":[]}", "C(<tool_call>{\"name\":\"f\",\"arguments\":[]})"},
      {"<tool_call>{\"name\":\"f\",\"arguments\":\"{}\"}", "C(<tool_call>{\"name\":\"f\",\"arguments\":\"{}\"})"},
      {"<tool_call>{\"name\":\"f\",}", "C(<tool_call>{\"name\":\"f\",})"},
      {"<tool_call>{\"name\" \"f\"}", "C(<tool_call>{\"name\" \"f\"})"},
      {"<tool_call>{\"name\":\"f\"", "C(<tool_call>{\"name\":\"f\")"},
      {"<tool_call>{name:\"f\"}", "C(<tool_call>{name:\"f\"})"},
      {"<tool_call>{\"a\":tru,\"name\":\"f\"}", "C(<tool_call>{\"a\":tru,\"name\":\"f\"})"},
      {"<tool_call>{\"a\":01,\"name\":\"f\"}", "C(<tool_call>{\"a\":01,\"name\":\"f\"})"},
      {"<tool_call>{\"a\":\"\\x\",\"name\":\"f\"}", "C(<tool_call>{\"a\":\"\\x\",\"name\":\"f\"})"},
      {"<tool_call>{\"a\":\"\n\",\"name\":\"f\"}", "C(<tool_call>{\"a\":\"\n\",\"name\":\"f\"})"},
      {"<tool_call>{\"a\":[1},\"name\":\"f\"}", "C(<tool_call>{\"a\":[1},\"name\":\"f\"})"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    check(DF_THINK_OFF, true, true, cases[i].text, cases[i].want);
    if (strchr(cases[i].want, '(')) check(DF_THINK_AUTO, true, false, cases[i].text, cases[i].want);
  }
}

static void test_push__broken_after_begin(void **state) {
  (void)state;
  static const char text[] = "x <tool_call>{\"name\":\"f\",\"arguments\":{\"a\":1,}}</tool_call>" CALL("g", "{}");
  check(DF_THINK_OFF, true, false, text,
        "C(x)BEGIN 0 f;A({\"a\":1,)BROKEN 0 f;C( <tool_call>{\"name\":\"f\",\"arguments\":{\"a\":1,}}</tool_call>)"
        "BEGIN 0 g;A({})END({})");
  check(DF_THINK_OFF, true, true, text,
        "C(x <tool_call>{\"name\":\"f\",\"arguments\":{\"a\":1,}}</tool_call>)BEGIN 0 g;A({})END({})");
  check(DF_THINK_OFF, true, false, "<tool_call>{\"name\":\"f\",\"arguments\":{\"a",
        "BEGIN 0 f;A({\"a)BROKEN 0 f;C(<tool_call>{\"name\":\"f\",\"arguments\":{\"a)");
  df_answer_params p = {.tools = true, .id_seed = 1}, q = {.tools = true, .id_seed = 2};
  log l, m;
  parse(&p, text, strlen(text), 0, &l);
  parse(&q, text, strlen(text), 0, &m);
  assert_int_equal(l.n_ids, 2);
  assert_string_not_equal(l.ids[0], l.ids[1]);
  assert_string_not_equal(l.ids[0], m.ids[0]);
  assert_int_equal(strncmp(l.ids[0], "call_", 5), 0);
  df_buf_release(&l.b);
  df_buf_release(&m.b);
}

static void test_push__reasoning(void **state) {
  (void)state;
  check(DF_THINK_AUTO, false, false, "<think>\nHm.\n\nYes.\n</think>\n\nHello", "R(Hm.\n\nYes.)C(Hello)");
  check(DF_THINK_AUTO, true, false, "\n<think>a</think>\n" CALL("f", "{}"), "R(a)BEGIN 0 f;A({})END({})");
  check(DF_THINK_AUTO, true, false, "<think>\n\n</think>\n\nHello ", "C(Hello )");
  check(DF_THINK_AUTO, true, false, "<think>" CALL("f", "{}") "</think>x",
        "R(<tool_call>\n{\"name\": \"f\", \"arguments\": {}}\n</tool_call>)C(x)");
  check(DF_THINK_AUTO, true, false, "<think>a < b </thin <</think>", "R(a < b </thin <)");
  check(DF_THINK_AUTO, true, false, "<think>cut </thi", "R(cut </thi)");
  check(DF_THINK_AUTO, true, false, " <thin air", "C( <thin air)");
  check(DF_THINK_AUTO, true, false, " <thi", "C( <thi)");
  check(DF_THINK_AUTO, true, false, "x<think>y</think>", "C(x<think>y</think>)");
  check(DF_THINK_AUTO, true, false, "<" CALL("f", "{}"), "C(<)BEGIN 0 f;A({})END({})");
  check(DF_THINK_OFF, true, false, "<think>y</think>", "C(<think>y</think>)");
  check(DF_THINK_OPEN, true, false, "\nHm\n</think>\n\nx <think>", "R(Hm)C(x <think>)");
  check(DF_THINK_OPEN, false, false, "no end", "R(no end)");
  check(DF_THINK_OFF, false, false, CALL("f", "{}"), "C(" CALL("f", "{}") ")");
  assert_int_equal(df_think_mode_of_prompt("assistant\n<think>\n", 18), DF_THINK_OPEN);
  assert_int_equal(df_think_mode_of_prompt("assistant\n<think>\n\n</think>\n\n", 29), DF_THINK_AUTO);
  assert_int_equal(df_think_mode_of_prompt("<think", 6), DF_THINK_AUTO);
}

static void test_push__limits(void **state) {
  (void)state;
  df_answer_params p = {.tools = true, .hold_calls = true};
  df_buf text = {0};
  log l;
  for (uint32_t depth = DF_TOOL_MAX_DEPTH - 3; depth < DF_TOOL_MAX_DEPTH; depth++) { /* and the call, the arguments */
    text.len = 0;
    assert_int_equal(df_buf_puts(&text, "<tool_call>{\"name\":\"f\",\"arguments\":{\"a\":", NULL), DF_OK);
    for (uint32_t i = 0; i < depth; i++) assert_int_equal(df_buf_puts(&text, "[", NULL), DF_OK);
    for (uint32_t i = 0; i < depth; i++) assert_int_equal(df_buf_puts(&text, "]", NULL), DF_OK);
    assert_int_equal(df_buf_puts(&text, "}}", NULL), DF_OK);
    parse(&p, text.data, text.len, 0, &l);
    assert_int_equal(l.b.data[0], depth <= DF_TOOL_MAX_DEPTH - 2 ? 'B' : 'C');
    df_buf_release(&l.b);
  }
  text.len = 0;
  assert_int_equal(df_buf_puts(&text, "<tool_call>{\"name\":\"f\",\"arguments\":{\"a\":\"", NULL), DF_OK);
  while (text.len < DF_TOOL_MAX_CALL_BYTES + 64) assert_int_equal(df_buf_puts(&text, "0123456789abcdef", NULL), DF_OK);
  assert_int_equal(df_buf_puts(&text, "\"}}", NULL), DF_OK);
  parse(&p, text.data, text.len, 0, &l);
  assert_int_equal(l.b.len, text.len + 3); /* C(...) */
  df_buf_release(&l.b);
  text.len = 0;
  for (int i = 0; i < DF_TOOL_MAX_CALLS + 1; i++)
    assert_int_equal(df_buf_puts(&text, "<tool_call>{\"name\":\"f\"}</tool_call>", NULL), DF_OK);
  parse(&p, text.data, text.len, 0, &l);
  assert_non_null(strstr(l.b.data, "BEGIN 127 f;A({})END({})C(<tool_call>{\"name\":\"f\"}</tool_call>)"));
  df_buf_release(&l.b);
  df_buf_release(&text);
}

static df_status stop_at_end(void *user, const df_answer_event *ev, df_error *err) {
  (void)user;
  return ev->kind == DF_ANSWER_CALL_END ? DF_FAIL(err, DF_ERR_CANCELLED, "enough") : DF_OK;
}

static void test_push__sink_fails(void **state) {
  (void)state;
  df_answer_params p = {.tools = true};
  df_answer_parser *a = NULL;
  assert_int_equal(df_answer_parser_create(&p, &a, NULL), DF_OK);
  assert_int_equal(df_answer_parser_push(a, "<tool_call>{\"name\":\"f\"}", 23, stop_at_end, NULL, NULL),
                   DF_ERR_CANCELLED);
  df_answer_parser_free(a);
}

static df_status swallow(void *user, const df_answer_event *ev, df_error *err) {
  (void)user;
  (void)ev;
  (void)err;
  return DF_OK;
}

static df_status work(void *arg, df_error *err) {
  static const char text[] = "<think>Hm</think> x " CALL("f", "{\"a\": \"bcd\"}") " <tool_call>{\"nam";
  df_answer_params p = {.tools = true, .think = DF_THINK_AUTO};
  df_answer_parser *a = NULL;
  (void)arg;
  df_status s = df_answer_parser_create(&p, &a, err);
  for (size_t i = 0; i + 1 < sizeof text && s == DF_OK; i++)
    s = df_answer_parser_push(a, text + i, 1, swallow, NULL, err);
  if (s == DF_OK) s = df_answer_parser_finish(a, swallow, NULL, err);
  df_answer_parser_free(a);
  return s;
}

static void test_push__out_of_memory(void **state) {
  (void)state;
  assert_true(test_each_allocation_fails(work, NULL) > 5);
}

/* ---- grammars ------------------------------------------------------------------------------------------ */

#define WEATHER                                                                                             \
  "{\"type\":\"function\",\"function\":{\"name\":\"get_weather\",\"description\":\"d\",\"parameters\":"     \
  "{\"type\":\"object\",\"properties\":{\"city\":{\"type\":\"string\"},\"days\":{\"$ref\":\"#/$defs/n\"}}," \
  "\"required\":[\"city\"],\"additionalProperties\":false,\"$defs\":{\"n\":{\"type\":\"integer\"}}}}}"
#define NOW "{\"type\":\"function\",\"function\":{\"name\":\"now \\\"x\\\"\",\"strict\":true}}"
#define W_CALL CALL("get_weather", "{\"city\": \"Ulm\", \"days\": 3}")
#define N_CALL CALL("now \\\"x\\\"", "{}")

/* -1 refused, 0 not at an end, 1 may end */
static int admits(const char *only, bool parallel, df_think_mode think, const char *text) {
  static tiny_vocab v;
  df_buf b = {0};
  df_error err = {0};
  df_grammar *g = NULL;
  df_matcher *m = NULL;
  static const char tools[] = "[" WEATHER "," NOW "]";
  if (df_tool_calls_gbnf(tools, sizeof tools - 1, only, parallel, think, &b, &err) != DF_OK) fail_msg("%s", err.msg);
  tiny_init(&v, true);
  df_tokenizer *t = tiny_create(&v);
  if (df_grammar_from_gbnf(t, b.data, b.len, &g, &err) != DF_OK) fail_msg("%s", err.msg);
  assert_int_equal(df_matcher_create(g, &m, NULL), DF_OK);
  bool ok = true;
  for (; *text && ok; text++) assert_int_equal(df_matcher_accept(m, (uint8_t)*text, &ok, &err), DF_OK);
  int result = ok ? df_matcher_may_end(m) : -1;
  df_matcher_free(m);
  df_grammar_release(g);
  df_tokenizer_free(t);
  df_buf_release(&b);
  return result;
}

static void test_gbnf__admits_calls(void **state) {
  (void)state;
  assert_int_equal(admits(NULL, false, DF_THINK_OFF, W_CALL), 1);
  assert_int_equal(admits(NULL, false, DF_THINK_OFF, N_CALL), 1);
  assert_int_equal(admits(NULL, false, DF_THINK_OFF, ""), 0);
  assert_int_equal(admits(NULL, false, DF_THINK_OFF, "Hello"), -1);
  assert_int_equal(admits(NULL, false, DF_THINK_OFF, W_CALL "\n" N_CALL), -1);
  assert_int_equal(admits(NULL, true, DF_THINK_OFF, W_CALL "\n" N_CALL), 1);
  assert_int_equal(admits("get_weather", true, DF_THINK_OFF, W_CALL), 1);
  assert_int_equal(admits("get_weather", true, DF_THINK_OFF, N_CALL), -1);
  assert_int_equal(admits("now \"x\"", false, DF_THINK_OFF, N_CALL), 1);
  assert_int_equal(admits(NULL, false, DF_THINK_OFF, CALL("get_weather", "{\"days\": 3}")), -1);
  assert_int_equal(admits(NULL, false, DF_THINK_OFF, CALL("get_weather", "{\"city\": \"x\", \"days\": 3.5}")), -1);
  assert_int_equal(admits(NULL, false, DF_THINK_OFF, CALL("other", "{}")), -1);
  assert_int_equal(admits(NULL, false, DF_THINK_AUTO, W_CALL), 1);
  assert_int_equal(admits(NULL, false, DF_THINK_AUTO, "<think>\nHm\n</think>\n\n" W_CALL), 1);
  assert_int_equal(admits(NULL, false, DF_THINK_OPEN, "Hm\n</think>\n\n" W_CALL), 1);
  assert_int_equal(admits(NULL, false, DF_THINK_OPEN, W_CALL), -1);
}

static void test_gbnf__refused(void **state) {
  (void)state;
  static const struct {
    const char *tools, *only;
    df_status status;
    const char *message;
  } cases[] = {
      {"{}", NULL, DF_ERR_FORMAT, "must be a list"},
      {"[", NULL, DF_ERR_FORMAT, "could not use the tools"},
      {"[]", NULL, DF_ERR_ARGUMENT, "there are none"},
      {"[" WEATHER "]", "nope", DF_ERR_ARGUMENT, "none is called \"nope\""},
      {"[" WEATHER "," WEATHER "]", NULL, DF_ERR_FORMAT, "two are called \"get_weather\""},
      {"[1]", NULL, DF_ERR_FORMAT, "element 0"},
      {"[{\"type\":\"function\",\"function\":{}}]", NULL, DF_ERR_FORMAT, "element 0"},
      {"[" WEATHER ",{\"type\":\"retrieval\",\"function\":{\"name\":\"x\"}}]", NULL, DF_ERR_FORMAT, "element 1"},
      {"[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"parameters\":{\"properties\":{\"a\":{\"not\":{}}}}}}]",
       NULL, DF_ERR_UNSUPPORTED, "tool \"f\": could not use the schema: #/properties/a: \"not\" is not supported"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    df_buf b = {0};
    df_error err = {0};
    assert_int_equal(df_buf_puts(&b, "kept", NULL), DF_OK);
    df_status s =
        df_tool_calls_gbnf(cases[i].tools, strlen(cases[i].tools), cases[i].only, true, DF_THINK_OFF, &b, &err);
    if (s != cases[i].status || !strstr(err.msg, cases[i].message)) fail_msg("case %zu: %d %s", i, s, err.msg);
    assert_string_equal(b.data, "kept");
    df_buf_release(&b);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_push__calls),        cmocka_unit_test(test_push__broken_after_begin),
      cmocka_unit_test(test_push__reasoning),    cmocka_unit_test(test_push__limits),
      cmocka_unit_test(test_push__sink_fails),   cmocka_unit_test(test_push__out_of_memory),
      cmocka_unit_test(test_gbnf__admits_calls), cmocka_unit_test(test_gbnf__refused),
  };
  return cmocka_run_group_tests_name("tool_calls", tests, NULL, NULL);
}
