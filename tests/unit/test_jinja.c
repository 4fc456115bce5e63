/* The template engine where the recorded renderings do not reach: limits, messages, memory, threads, JSON reading. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/mem.h"
#include "base/size.h"
#include "text/chat_template.h"
#include "text/jinja_json.h"
#include "text/jinja_limits.h"
#include "text/jinja_number.h"

typedef struct result {
  df_status s;
  df_buf out;
  df_error err;
} result;

static result render_opt(const char *src, const char *json, const df_render_options *opt) {
  result r = {.err = {0}};
  df_chat_template *t = NULL;
  df_buf_init(&r.out, 0);
  r.s = df_chat_template_parse(src, strlen(src), &t, &r.err);
  if (r.s == DF_OK) r.s = df_chat_template_render(t, json, strlen(json), opt, &r.out, &r.err);
  df_chat_template_free(t);
  return r;
}

static void expect_text(const char *src, const char *json, const char *want) {
  result r = render_opt(src, json, NULL);
  if (r.s != DF_OK) fail_msg("%s: %s", src, r.err.msg);
  assert_string_equal(r.out.data ? r.out.data : "", want);
  df_buf_release(&r.out);
}

static void expect_error(const char *src, const char *json, df_status s, const char *msg) {
  result r = render_opt(src, json, NULL);
  assert_int_equal(r.s, s);
  assert_int_equal(r.err.code, s);
  assert_string_equal(r.err.msg, msg);
  assert_int_equal(r.out.len, 0);
  df_buf_release(&r.out);
}

/* ---- messages ---- */

static void test_render__errors_name_the_line(void **state) {
  (void)state;
  expect_error("a\n{{ x | foo }}", "{}", DF_ERR_FORMAT,
               "could not render the chat template: line 2: unknown filter \"foo\"");
  expect_error("{% if true %}\n{{ x | foo }}{% endif %}", "{}", DF_ERR_TEMPLATE,
               "could not render the chat template: line 2: unknown filter \"foo\"");
  expect_error("{{ x is foo }}", "{}", DF_ERR_FORMAT,
               "could not render the chat template: line 1: unknown test \"foo\"");
  expect_error("\n\n{% foo %}", "{}", DF_ERR_FORMAT, "could not render the chat template: line 3: unknown tag \"foo\"");
  expect_error("{% for x in [1] %}\n\n{{ raise_exception('roles must\nalternate') }}{% endfor %}", "{}",
               DF_ERR_TEMPLATE, "could not render the chat template: line 3: roles must?alternate");
  expect_error("{{ messages[0].role }}", "{\"messages\": []}", DF_ERR_TEMPLATE,
               "could not render the chat template: line 1: the list has no element \"0\"");
  expect_error("{{ a.b.c }}", "{\"a\": {}}", DF_ERR_TEMPLATE,
               "could not render the chat template: line 1: the map has no \"b\"");
  expect_error("{{ a.b }}", "{}", DF_ERR_TEMPLATE, "could not render the chat template: line 1: \"a\" is undefined");
  expect_error("x\n{{ 'a' +\n none }}", "{}", DF_ERR_TEMPLATE,
               "could not render the chat template: line 2: cannot apply \"+\" to a string and a none");
  expect_error("{% if a %}\n{{ b }}", "{}", DF_ERR_FORMAT,
               "could not render the chat template: line 2: missing \"endif\"");
}

static void test_render__context_must_be_an_object(void **state) {
  (void)state;
  expect_error("x", "[1]", DF_ERR_FORMAT, "could not read the template context: it is not a JSON object");
  expect_error("x", "", DF_ERR_FORMAT, "could not read the template context: byte 0: expected a value");
  expect_error("x", "{\"a\": 1,}", DF_ERR_FORMAT, "could not read the template context: byte 8: expected a string");
}

static void test_render__output_is_appended_on_success_only(void **state) {
  (void)state;
  df_chat_template *t = NULL;
  df_buf out;
  const char *src = "b{% if fail %}{{ raise_exception('x') }}{% endif %}";
  df_buf_init(&out, 0);
  assert_int_equal(df_buf_puts(&out, "a", NULL), DF_OK);
  assert_int_equal(df_chat_template_parse(src, strlen(src), &t, NULL), DF_OK);
  assert_int_equal(df_chat_template_render(t, "{\"fail\":1}", 10, NULL, &out, NULL), DF_ERR_TEMPLATE);
  assert_string_equal(out.data, "a");
  assert_int_equal(df_chat_template_render(t, "{}", 2, NULL, &out, NULL), DF_OK);
  assert_string_equal(out.data, "ab");
  df_buf_release(&out);
  df_chat_template_free(t);
}

/* ---- limits ---- */

static double cpu_seconds(void) {
  struct timespec t;
  (void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* Templates that would run for ever, fill the memory or the stack. Each must stop by a limit, and soon: the bound is
 * loose because sanitizers slow everything down. */
static void test_render__runaways_stop(void **state) {
  (void)state;
  static const char *const runaways[] = {
      "{% for a in range(10**9) %}{% endfor %}",
      "{% for a in range(100000) %}{% for b in range(100000) %}{% endfor %}{% endfor %}",
      "{% for a in range(100000) %}{% for b in range(100000) %}{{ b }}{% endfor %}{% endfor %}",
      "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
      "{% macro f(n) %}{{ f(n + 1) }}{{ f(n + 1) }}{% endmacro %}{{ f(0) }}",
      "{% macro f(g) %}{{ g(g) }}{% endmacro %}{{ f(f) }}",
      "{% for a in [1] recursive %}{{ loop([1]) }}{% endfor %}",
      "{% for a in [1, 1] recursive %}{{ loop([1, 1]) }}{% endfor %}",
      "{% set ns = namespace(x='ab') %}{% for a in range(99) %}{% set ns.x = ns.x ~ ns.x %}{% endfor %}{{ ns.x }}",
      "{% set ns = namespace(x='ab') %}{% for a in range(99) %}{% set ns.x = ns.x + ns.x %}{% endfor %}",
      "{% set ns = namespace(x='ab') %}{% for a in range(99) %}{% set ns.x %}{{ ns.x }}{{ ns.x }}{% endset %}{% endfor "
      "%}",
      "{% set ns = namespace(x='aa') %}{% for a in range(99) %}{% set ns.x = ns.x | replace('a', 'aa') %}{% endfor %}",
      "{% set ns = namespace(x='aa') %}{% for a in range(99) %}{% set ns.x = ns.x.join(ns.x) %}{% endfor %}",
      "{% set ns = namespace(x=[1]) %}{% for a in range(99) %}{% set ns.x = ns.x + ns.x %}{% endfor %}",
      "{% set ns = namespace(x=[1]) %}{% for a in range(99) %}{% set ns.x = [ns.x, ns.x] %}{% endfor %}{{ ns.x }}",
      "{% set ns = namespace(x=(1,)) %}{% for a in range(99) %}{% set ns.x = (ns.x, ns.x) %}{% endfor %}{{ {ns.x: 1} "
      "}}",
      "{% set ns = namespace(x=[1], y=[1]) %}{% for a in range(99) %}{% set ns.x = [ns.x, ns.x] %}{% set ns.y = [ns.y, "
      "ns.y] %}{% endfor %}{{ ns.x == ns.y }}",
      "{% set ns = namespace(x=[1]) %}{% for a in range(99) %}{% set ns.x = [ns.x, ns.x] %}{% endfor %}{{ ns.x | "
      "tojson }}",
      "{% set ns = namespace(x=[1]) %}{% for a in range(999) %}{% set ns.x = [ns.x] %}{% endfor %}{{ ns.x }}",
      "{% set ns = namespace() %}{% set ns.x = ns %}{{ ns }}",
      "{{ 'a' * 10**12 }}",
      "{{ [1] * 10**12 }}",
      "{{ 'a'.center(10**15) }}",
      "{{ '%1000000000d' % 1 * 99999 }}{{ '%.999f' % 1.5 }}",
      "{{ {} | tojson(indent=10**15) }}",
      "{% set s = 'a' * 10**7 %}{% for i in range(99999) %}{% if 'b' in s %}{% endif %}{% endfor %}",
      "{% set s = 'a' * 10**7 %}{% for i in range(99999) %}{% if s.rfind('b') %}{% endif %}{% endfor %}",
      "{% set s = ('a' * 10**6) ~ 'é' %}{% for i in range(99999) %}{% set c = s[-1] %}{% endfor %}",
      "{% set s = 'a' * 10**6 %}{% for i in range(99999) %}{% set c = s == 'a' * 10**6 %}{% endfor %}",
      "{% set s = 'a' * 10**6 %}{% for i in range(99999) %}{{ s }}{% endfor %}",
      "{% set s = ' ' * 10**6 %}{% for i in range(99999) %}{% set c = s | trim %}{% endfor %}",
      "{% set s = 'a b' * 10**6 %}{% for i in range(99999) %}{% set c = s.split() %}{% endfor %}",
      "{% for i in range(99999) %}{% set c = range(99999) | list | sort %}{% endfor %}",
      "{% for i in range(99999) %}{% for x in range(99999) if false %}{% endfor %}{% endfor %}",
      "{{ range(99999) | map('string') | map('center', 10**6) | list }}",
      "{% set r = range(99999) | list %}{% for i in r %}{% if -1 in r %}{% endif %}{% endfor %}",
      "{% set r = range(99999) | list %}{% for i in r %}{% set x = r[::-1] %}{% endfor %}",
  };
  for (size_t i = 0; i < DF_COUNT_OF(runaways); i++) {
    double start = cpu_seconds();
    result r = render_opt(runaways[i], "{}", NULL);
    double took = cpu_seconds() - start;
    bool refused = r.s == DF_ERR_LIMIT || (r.s == DF_ERR_TEMPLATE && strstr(r.err.msg, "cannot be a key"));
    if (!refused || took > 5.0) fail_msg("%s: %d %s after %.2f s", runaways[i], r.s, r.err.msg, took);
    if (took > 1.0) print_message("%s took %.2f s\n", runaways[i], took);
    df_buf_release(&r.out);
  }
}

/* n times a, then b, then n times c, with an optional text in front. */
static char *sandwich(const char *front, const char *a, const char *b, const char *c, size_t n) {
  df_buf t;
  df_buf_init(&t, 0);
  assert_int_equal(df_buf_puts(&t, front, NULL), DF_OK);
  for (size_t i = 0; i < n; i++) assert_int_equal(df_buf_puts(&t, a, NULL), DF_OK);
  assert_int_equal(df_buf_puts(&t, b, NULL), DF_OK);
  for (size_t i = 0; i < n; i++) assert_int_equal(df_buf_puts(&t, c, NULL), DF_OK);
  return df_buf_take(&t);
}

static void test_parse__nesting_is_bounded(void **state) {
  (void)state;
  static const char *const parts[][4] = {
      {"{{ ", "(", "1", ")"},  {"{{ ", "[", "1", "]"},           {"{{ ", "not ", "1", ""},
      {"{{ ", "-", "1", ""},   {"{{ ", "{1:", "1", "}"},         {"{{ ", "f(", "1", ")"},
      {"{{ ", "a[", "1", "]"}, {"{{ ", "1 if 1 else ", "1", ""}, {"{{ ", "a is a(", "1", ")"}};
  for (size_t i = 0; i < DF_COUNT_OF(parts); i++) {
    for (size_t n = 1000; n <= 100000; n *= 100) {
      char *src = sandwich(parts[i][0], parts[i][1], parts[i][2], parts[i][3], n);
      df_chat_template *t = NULL;
      df_error err;
      assert_int_equal(df_chat_template_parse(src, strlen(src), &t, &err), DF_ERR_LIMIT);
      assert_null(t);
      df_free(src);
    }
  }
  char *src = sandwich("", "{% if 1 %}", "x", "{% endif %}", 1000);
  result r = render_opt(src, "{}", NULL);
  assert_int_equal(r.s, DF_ERR_LIMIT);
  df_free(src);
  src = sandwich("", "{% for a in [1] %}", "x", "{% endfor %}", 150);
  expect_text(src, "{}", "x");
  df_free(src);
  src = sandwich("{{ ", "(", "7", ")", 150);
  assert_non_null(src);
  df_free(src);
}

/* Long chains are deep trees without being nested in the source: evaluation has its own bound. */
static void test_render__chains_are_bounded(void **state) {
  (void)state;
  static const char *const links[][2] = {{"1", " + 1"},    {"1", " | abs"}, {"a", ".a"},  {"1", " and 1"},
                                         {"1", " is odd"}, {"a", "(1)"},    {"a", "[0]"}, {"1", " ** 1"}};
  for (size_t i = 0; i < DF_COUNT_OF(links); i++) {
    char *src = sandwich("{{ ", "", links[i][0], links[i][1], 50000);
    df_buf t;
    df_buf_init(&t, 0);
    assert_int_equal(df_buf_puts(&t, src, NULL), DF_OK);
    assert_int_equal(df_buf_puts(&t, " }}", NULL), DF_OK);
    result r = render_opt(t.data, "{}", NULL);
    assert_true(r.s == DF_ERR_LIMIT || r.s == DF_ERR_TEMPLATE || r.s == DF_ERR_FORMAT);
    df_buf_release(&r.out);
    df_buf_release(&t);
    df_free(src);
  }
  /* Chains of ~, of elif, of adjacent strings and of list elements are not deep. */
  char *src = sandwich("{% if false %}", "{% elif false %}", "{% else %}y{% endif %}", "", 20000);
  expect_text(src, "{}", "y");
  df_free(src);
  src = sandwich("{% set x = 1", " ~ 1", " %}{{ x | length }}", "", 20000);
  expect_text(src, "{}", "20001");
  df_free(src);
}

static void test_render__macro_depth_is_exact(void **state) {
  (void)state;
  static const char src[] =
      "{% macro f(n) %}{% if n > 1 %}{{ f(n - 1) }}{% else %}end{% endif %}{% endmacro %}{{ f(n) }}";
  expect_text(src, "{\"n\": 64}", "end");
  expect_error(src, "{\"n\": 65}", DF_ERR_LIMIT,
               "could not render the chat template: line 1: macro calls nested deeper than 64");
}

static void test_render__options_lower_the_limits(void **state) {
  (void)state;
  df_render_options opt = {.max_steps = 100};
  result r = render_opt("{% for i in range(200) %}{% endfor %}", "{}", &opt);
  assert_int_equal(r.s, DF_ERR_LIMIT);
  assert_string_equal(r.err.msg, "could not render the chat template: line 1: more evaluation steps than allowed");
  df_buf_release(&r.out);
  opt = (df_render_options){.max_output = 10};
  r = render_opt("12345678901", "{}", &opt);
  assert_int_equal(r.s, DF_ERR_LIMIT);
  df_buf_release(&r.out);
  r = render_opt("1234567890", "{}", &opt);
  assert_int_equal(r.s, DF_OK);
  df_buf_release(&r.out);
  opt = (df_render_options){.max_memory = 100000};
  r = render_opt("{{ 'a' * 200000 }}", "{}", &opt);
  assert_int_equal(r.s, DF_ERR_LIMIT);
  df_buf_release(&r.out);
}

static void test_parse__source_size_is_bounded(void **state) {
  (void)state;
  size_t n = JINJA_MAX_SOURCE;
  char *src = df_alloc(n + 1);
  df_chat_template *t = NULL;
  assert_non_null(src);
  memset(src, 'a', n + 1);
  assert_int_equal(df_chat_template_parse(src, n + 1, &t, NULL), DF_ERR_LIMIT);
  assert_int_equal(df_chat_template_parse(src, n, &t, NULL), DF_OK);
  df_chat_template_free(t);
  df_free(src);
}

static void test_parse__invalid_utf8_is_refused(void **state) {
  (void)state;
  static const char *const bad[] = {"\xff", "a\xC3", "\xC0\x80", "\xED\xA0\x80", "\xF5\x80\x80\x80", "{{ '\xE9' }}"};
  for (size_t i = 0; i < DF_COUNT_OF(bad); i++) {
    df_chat_template *t = NULL;
    assert_int_equal(df_chat_template_parse(bad[i], strlen(bad[i]), &t, NULL), DF_ERR_FORMAT);
  }
}

/* ---- values ---- */

static void test_render__strings_may_contain_zero_bytes(void **state) {
  (void)state;
  result r =
      render_opt("{{ a }}|{{ a | length }}|{{ a | tojson }}|{{ a[1:] }}|{{ a.split('\\0')[1] }}|{{ '{}'.format(a) }}",
                 "{\"a\": \"x\\u0000y\"}", NULL);
  static const char want[] = "x\0y|3|\"x\\u0000y\"|\0y|y|x\0y";
  assert_int_equal(r.s, DF_OK);
  assert_int_equal(r.out.len, sizeof want - 1);
  assert_memory_equal(r.out.data, want, sizeof want - 1);
  df_buf_release(&r.out);
}

static void test_render__time_comes_from_the_options(void **state) {
  (void)state;
  df_render_options opt = {.now_unix = 951782400}; /* 29 February 2000 */
  result r = render_opt("{{ strftime_now('%d %B %Y %H:%M:%S %j %A') }}", "{}", &opt);
  assert_string_equal(r.out.data, "29 February 2000 00:00:00 060 Tuesday");
  df_buf_release(&r.out);
  opt.now_unix = -1;
  r = render_opt("{{ strftime_now('%Y-%m-%d %H:%M:%S') }}", "{}", &opt);
  assert_string_equal(r.out.data, "1969-12-31 23:59:59");
  df_buf_release(&r.out);
}

/* A context cannot be changed, and macros, loops and with blocks leave no names behind. */
static void test_render__scopes(void **state) {
  (void)state;
  expect_text("{% macro f(a) %}{% set b = a %}{{ b }}{% endmacro %}{{ f(1) }}{{ a is defined }}{{ b is defined }}",
              "{}", "1FalseFalse");
  expect_text("{% for x in [1] %}{% set y = x %}{% endfor %}{{ x is defined }}{{ y is defined }}{{ loop is defined }}",
              "{}", "FalseFalseFalse");
  expect_text("{% set m = messages[1:] %}{{ messages | length }}{{ m | length }}", "{\"messages\": [1, 2]}", "21");
}

static void test_number__repr_reads_back(void **state) {
  (void)state;
  uint64_t x = 88172645463325252u;
  for (int i = 0; i < 20000; i++) {
    double f, back;
    char t[JNUMBER_MAX];
    x ^= x << 13, x ^= x >> 7, x ^= x << 17;
    memcpy(&f, &x, sizeof f);
    if (f != f || f - f != 0) continue;
    size_t n = df_jnumber_repr(f, t);
    assert_int_equal(n, strlen(t));
    assert_true(df_jnumber_float(t, n, &back));
    assert_memory_equal(&f, &back, sizeof f);
  }
}

/* ---- JSON ---- */

static void test_json__refuses_what_is_not_json(void **state) {
  (void)state;
  static const char *const bad[] = {"",
                                    " ",
                                    "{",
                                    "[",
                                    "\"",
                                    "\"a",
                                    "{\"a\"",
                                    "{\"a\":",
                                    "{\"a\":1",
                                    "{\"a\":1,",
                                    "{a:1}",
                                    "[1,]",
                                    "[1 2]",
                                    "[,1]",
                                    "01",
                                    "-",
                                    "+1",
                                    "1.",
                                    ".5",
                                    "1e",
                                    "1e+",
                                    "--1",
                                    "0x1",
                                    "NaN",
                                    "Infinity",
                                    "tru",
                                    "nul",
                                    "True",
                                    "'a'",
                                    "\"\\x\"",
                                    "\"\\u12\"",
                                    "\"\\ud800\"",
                                    "\"\\udc00\"",
                                    "\"\\ud800\\u0041\"",
                                    "\"\n\"",
                                    "\"\t\"",
                                    "\"\xff\"",
                                    "\"\xC3\"",
                                    "{} x",
                                    "[1]]",
                                    "{\"a\":1}}",
                                    "// c\n1",
                                    "\xEF\xBB\xBF{}"};
  for (size_t i = 0; i < DF_COUNT_OF(bad); i++) {
    df_jarena a;
    df_jv v;
    df_jarena_init(&a, 1 << 20);
    if (df_jjson_parse(&a, bad[i], strlen(bad[i]), &v, NULL) != DF_ERR_FORMAT) fail_msg("accepted %s", bad[i]);
    df_jarena_release(&a);
  }
}

static void test_json__depth_is_bounded(void **state) {
  (void)state;
  for (int over = 0; over < 2; over++) {
    df_jarena a;
    df_jv v;
    size_t n = JINJA_MAX_VALUE_DEPTH - 1 + (size_t)over;
    char *text = sandwich("", "[", "1", "]", n);
    df_jarena_init(&a, 1 << 22);
    assert_int_equal(df_jjson_parse(&a, text, strlen(text), &v, NULL), over ? DF_ERR_LIMIT : DF_OK);
    df_jarena_release(&a);
    df_free(text);
  }
}

/* ---- memory and threads ---- */

static const char *const rich =
    "{%- set ns = namespace(n=0) -%}{% macro m(a, b=2) %}<{{ a }}{{ b }}{{ varargs }}{{ kwargs }}>{% endmacro %}"
    "{% for x in messages[::-1] if x.role != 'q' %}{% set ns.n = ns.n + 1 %}{{ m(x.role, c=x) }}{{ (loop.nextitem or "
    "0) | tojson }}"
    "{% endfor %}{% set t | upper %}{{ messages | tojson(indent=2, sort_keys=true) }}{% endset %}{{ t }}"
    "{{ messages | map(attribute='role') | sort | unique | join('~') }}{{ 'a,b'.split(',') }}{{ '%s' % ns.n }}"
    "{{ messages | groupby('role') | length }}{{ range(40) | batch(7) | list }}{{ dict(a=1, **{'b': 2}) | dictsort }}"
    "{{ 'x'.center(9) ~ 'é' | upper | replace('É', 'ab') }}{{ '{}'.format(1) }}";

static const char *const rich_context =
    "{\"messages\": [{\"role\": \"user\", \"content\": \"h\\u00e9\"}, {\"role\": \"b\"}, "
    "{\"role\": \"q\", \"n\": [1.5, 12345678901234567890, {}]}]}";

/* Every allocation fails once: a clean DF_ERR_MEMORY each time, no leak (the sanitizers look), no other output. */
static void test_render__allocation_failures(void **state) {
  (void)state;
  uint64_t fails = 0;
  for (uint64_t n = 1;; n++) {
    df_chat_template *t = NULL;
    df_buf out;
    df_error err = {0};
    df_buf_init(&out, 0);
    df_mem_fail_after(n, n % 2 == 0);
    df_status s = df_chat_template_parse(rich, strlen(rich), &t, &err);
    if (s == DF_OK) s = df_chat_template_render(t, rich_context, strlen(rich_context), NULL, &out, &err);
    df_mem_fail_after(0, false);
    df_chat_template_free(t);
    if (s == DF_OK) {
      assert_true(out.len > 300);
      df_buf_release(&out);
      break;
    }
    assert_int_equal(s, DF_ERR_MEMORY);
    assert_int_equal(out.len, 0);
    df_buf_release(&out);
    fails++;
  }
  assert_true(fails > 10);
}

typedef struct job {
  const df_chat_template *t;
  df_buf out;
  df_status s;
} job;

static void *render_often(void *p) {
  job *j = p;
  for (int i = 0; i < 200; i++) {
    df_buf_release(&j->out);
    j->s = df_chat_template_render(j->t, rich_context, strlen(rich_context), NULL, &j->out, NULL);
    if (j->s != DF_OK) break;
  }
  return NULL;
}

static void test_render__threads_share_a_template(void **state) {
  (void)state;
  df_chat_template *t = NULL;
  job jobs[4];
  pthread_t threads[4];
  assert_int_equal(df_chat_template_parse(rich, strlen(rich), &t, NULL), DF_OK);
  for (int i = 0; i < 4; i++) {
    jobs[i] = (job){.t = t};
    df_buf_init(&jobs[i].out, 0);
    assert_int_equal(pthread_create(&threads[i], NULL, render_often, &jobs[i]), 0);
  }
  for (int i = 0; i < 4; i++) assert_int_equal(pthread_join(threads[i], NULL), 0);
  for (int i = 0; i < 4; i++) {
    assert_int_equal(jobs[i].s, DF_OK);
    assert_string_equal(jobs[i].out.data, jobs[0].out.data);
  }
  for (int i = 0; i < 4; i++) df_buf_release(&jobs[i].out);
  df_chat_template_free(t);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_render__errors_name_the_line),
      cmocka_unit_test(test_render__context_must_be_an_object),
      cmocka_unit_test(test_render__output_is_appended_on_success_only),
      cmocka_unit_test(test_render__runaways_stop),
      cmocka_unit_test(test_parse__nesting_is_bounded),
      cmocka_unit_test(test_render__chains_are_bounded),
      cmocka_unit_test(test_render__macro_depth_is_exact),
      cmocka_unit_test(test_render__options_lower_the_limits),
      cmocka_unit_test(test_parse__source_size_is_bounded),
      cmocka_unit_test(test_parse__invalid_utf8_is_refused),
      cmocka_unit_test(test_render__strings_may_contain_zero_bytes),
      cmocka_unit_test(test_render__time_comes_from_the_options),
      cmocka_unit_test(test_render__scopes),
      cmocka_unit_test(test_number__repr_reads_back),
      cmocka_unit_test(test_json__refuses_what_is_not_json),
      cmocka_unit_test(test_json__depth_is_bounded),
      cmocka_unit_test(test_render__allocation_failures),
      cmocka_unit_test(test_render__threads_share_a_template),
  };
  return cmocka_run_group_tests_name("jinja", tests, NULL, NULL);
}
