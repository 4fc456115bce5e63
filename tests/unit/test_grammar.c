/*
 * Grammars: what is read, what is refused, characters, and the life of a matcher. That exactly the texts of a grammar
 * pass is the business of test_grammar_random.c.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "support/grammar_probe.h"
#include "support/kernel_data.h"
#include "support/sample_files.h"
#include "support/tiny_vocab.h"
#include "text/grammar.h"
#include "text/utf8.h"

static int try_text(const char *grammar, const char *text) {
  df_tokenizer *t = grammar_probe_tokenizer();
  df_grammar *g = grammar_probe_compile(t, grammar);
  df_matcher *m = NULL;
  assert_int_equal(df_matcher_create(g, &m, NULL), DF_OK);
  int result = grammar_probe_feed(m, text, strlen(text));
  df_matcher_free(m);
  df_grammar_release(g);
  df_tokenizer_free(t);
  return result;
}

/* ---- what is read -------------------------------------------------------------------------------------- */

static void test_from_gbnf__language(void **state) {
  (void)state;
  static const struct {
    const char *grammar, *text;
    int want;
  } cases[] = {
      {"root ::= \"abc\"", "abc", 1},
      {"root ::= \"abc\"", "ab", 0},
      {"root ::= \"abc\"", "abd", -1},
      {"root ::= \"a\" | \"b\" \"c\"", "bc", 1},
      {"root ::= \"a\" |\n  \"b\"\nother ::= root", "b", 1},
      {"# comment\nroot::=x # behind\n\nx ::= # and here\n  \"y\"", "y", 1},
      {"root ::= (\n\"a\"\n|\n\"b\"\n)* \"c\"", "abbac", 1},
      {"root ::= \"ab\"+", "abab", 1},
      {"root ::= \"ab\"+", "", 0},
      {"root ::= \"ab\"?", "", 1},
      {"root ::= \"ab\"{2}", "abab", 1},
      {"root ::= \"ab\"{2}", "ab", 0},
      {"root ::= \"ab\"{2}", "ababa", -1},
      {"root ::= \"a\"{2,}", "aaaaaa", 1},
      {"root ::= \"a\"{2,}", "a", 0},
      {"root ::= \"a\"{ 1 , 3 }", "aaa", 1},
      {"root ::= \"a\"{1,3}", "aaaa", -1},
      {"root ::= \"a\"{0}", "", 1},
      {"root ::= \"a\"{0}", "a", -1},
      {"root ::= (\"a\" | \"b\"{2}){2}", "bba", 1},
      {"root ::= [a-c]", "b", 1},
      {"root ::= [a-c]", "d", -1},
      {"root ::= [^a-c]", "d", 1},
      {"root ::= [^a-c]", "a", -1},
      {"root ::= [a-]", "-", 1},
      {"root ::= [-a]", "-", 1},
      {"root ::= [\\]\\[]", "]", 1},
      {"root ::= [\\x41-\\u0043]", "C", 1},
      {"root ::= \"\\x41\\u00e9\\U0001F600\\n\\t\\r\\\\\\\"\"", "A\xC3\xA9\xF0\x9F\x98\x80\n\t\r\\\"", 1},
      {"root ::= \"\\xe9\"", "\xC3\xA9", 1},
      {"root ::= .", "\xE2\x82\xAC", 1},
      {"root ::= .", "\xE2\x82", 0},
      {"root ::= .", "\n", 1},
      {"root ::= . .",
       "\xE2\x82\xAC"
       "x",
       1},
      {"root ::= \"\xC3\xA4\" [\xC3\xA4-\xC3\xB6]", "\xC3\xA4\xC3\xB5", 1},
      {"root ::= | \"a\"", "", 1},
      {"root ::= ", "", 1},
      {"root ::= (\"\")* \"a\"", "a", 1},
      {"root ::= ((\"a\"?)*)*", "aaa", 1},
      {"root ::= \"(\" root \")\" | \"\"", "((()))", 1},
      {"root ::= \"(\" root \")\" | \"\"", "((())))", -1},
      {"root ::= \"a\" root | \"b\"", "aaaaaaaab", 1},
      {"root ::= \"a\"?*", "aa", 1},
      {"my-rule_2 ::= \"a\"\r\nroot ::= my-rule_2\r\n", "a", 1},
      {"root ::= \"a\" dead | \"b\"\ndead ::= \"x\" dead", "a", -1},
      {"root ::= \"a\" [^\\x00-\\U0010FFFF] | \"b\"", "a", -1},
      {"root ::= [\\ud7ff-\\ue000]", "\xED\x9F\xBF", 1},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    int got = try_text(cases[i].grammar, cases[i].text);
    if (got != cases[i].want) fail_msg("case %zu: %d, not %d: %s", i, got, cases[i].want, cases[i].grammar);
  }
}

static void test_from_gbnf__refused(void **state) {
  (void)state;
  static const struct {
    const char *grammar;
    df_status status;
    const char *message;
  } cases[] = {
      {"", DF_ERR_FORMAT, "no rule \"root\""},
      {"rooot ::= \"a\"", DF_ERR_FORMAT, "no rule \"root\""},
      {"root ::= \"a\n\"", DF_ERR_FORMAT, "line 1 column 10: the string has no end"},
      {"root ::= \"a", DF_ERR_FORMAT, "line 1 column 10: the string has no end"},
      {"root ::= \"a\"\nx ::= [a", DF_ERR_FORMAT, "line 2 column 7: the character class has no end"},
      {"root ::= (\"a\"", DF_ERR_FORMAT, "line 1 column 10: the group has no end"},
      {"root ::= \"a\")", DF_ERR_FORMAT, "line 1 column 13: this cannot stand in a rule"},
      {"root ::= \"\xC3\xA4\" !", DF_ERR_FORMAT, "line 1 column 14: this cannot stand in a rule"},
      {"root ::= x\n\n x::= yy", DF_ERR_FORMAT, "line 3 column 7: rule \"yy\" is not defined"},
      {"root ::= \"a\"\nroot ::= \"b\"", DF_ERR_FORMAT, "line 2 column 1: the rule is defined twice"},
      {"root \"a\"", DF_ERR_FORMAT, "line 1 column 6: \"::=\" is expected here"},
      {"::= \"a\"", DF_ERR_FORMAT, "line 1 column 1: a rule name is expected here"},
      {"root ::= \"\\q\"", DF_ERR_FORMAT, "line 1 column 11: unknown escape"},
      {"root ::= \"\\x4\"", DF_ERR_FORMAT, "line 1 column 14: a hexadecimal digit is expected here"},
      {"root ::= \"\\ud800\"", DF_ERR_FORMAT, "column 11: the escape stands for no character"},
      {"root ::= \"\\U00110000\"", DF_ERR_FORMAT, "column 11: the escape stands for no character"},
      {"root ::= \"\xFF\"", DF_ERR_FORMAT, "line 1 column 11: the text is not valid UTF-8"},
      {"root ::= [z-a]", DF_ERR_FORMAT, "column 11: the range ends before it begins"},
      {"root ::= \"a\"{3,2}", DF_ERR_FORMAT, "column 13: the most is less than the least"},
      {"root ::= \"a\"{,2}", DF_ERR_FORMAT, "column 14: a number is expected here"},
      {"root ::= \"a\"{2", DF_ERR_FORMAT, "column 15: \"}\" is expected here"},
      {"root ::= \"a\"?*+?*", DF_ERR_LIMIT, "column 17: too many repetitions of one item"},
      {"root ::= \"a\"{70000}", DF_ERR_LIMIT, "column 14: the count is above 65536"},
      {"root ::= \"abcdefghijk\"{60000} ([a-b] \"c\" \"d\" \"e\"){60000} \"abcdefghijk\"{60000}\n"
       "b ::= \"abc\"{60000} \"abc\"{60000} \"abc\"{60000}",
       DF_ERR_LIMIT, "states"},
      {"root ::= root \"a\" | \"b\"", DF_ERR_FORMAT, "rule \"root\" can begin with itself"},
      {"root ::= \"x\"? y\ny ::= \"\" z\nz ::= (\"b\"* root)? \"c\"", DF_ERR_FORMAT, "can begin with itself"},
      {"root ::= root", DF_ERR_FORMAT, "admits no text that ends"},
      {"root ::= \"a\" root", DF_ERR_FORMAT, "admits no text that ends"},
      {"root ::= [^\\x00-\\U0010FFFF]", DF_ERR_FORMAT, "admits no text that ends"},
      {"root ::= []", DF_ERR_FORMAT, "admits no text that ends"},
  };
  df_tokenizer *t = grammar_probe_tokenizer();
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    df_grammar *g = NULL;
    df_error err = {0};
    df_status s = df_grammar_from_gbnf(t, cases[i].grammar, strlen(cases[i].grammar), &g, &err);
    if (s != cases[i].status || !strstr(err.msg, cases[i].message) || (s && g))
      fail_msg("case %zu: %d \"%s\": %s", i, s, err.msg, cases[i].grammar);
    df_grammar_release(g);
  }
  df_tokenizer_free(t);
}

static void test_from_gbnf__deep_groups(void **state) {
  (void)state;
  df_tokenizer *t = grammar_probe_tokenizer();
  for (int depth = 1; depth <= 100000; depth = depth < 64 ? 100 : depth * 10 + 31) {
    df_buf b = {0};
    df_grammar *g = NULL;
    df_error err = {0};
    assert_int_equal(df_buf_puts(&b, "root ::= ", NULL), DF_OK);
    for (int i = 0; i < depth; i++) assert_int_equal(df_buf_puts(&b, "(", NULL), DF_OK);
    assert_int_equal(df_buf_puts(&b, "\"a\"", NULL), DF_OK);
    for (int i = 0; i < depth; i++) assert_int_equal(df_buf_puts(&b, ")", NULL), DF_OK);
    df_status s = df_grammar_from_gbnf(t, b.data, b.len, &g, &err);
    assert_int_equal(s, depth <= 128 ? DF_OK : DF_ERR_LIMIT);
    df_grammar_release(g);
    df_buf_release(&b);
  }
  df_tokenizer_free(t);
}

/* ---- characters ---------------------------------------------------------------------------------------- */

static void check_class(const df_tokenizer *t, const char *text, bool (*in)(uint32_t cp)) {
  df_grammar *g = grammar_probe_compile(t, text);
  df_matcher *m = NULL;
  assert_int_equal(df_matcher_create(g, &m, NULL), DF_OK);
  for (uint32_t cp = 0; cp < 0x110000; cp++) {
    char utf8[4];
    if (cp >= 0xD800 && cp <= 0xDFFF) continue;
    size_t n = df_utf8_encode(cp, utf8);
    int got = grammar_probe_feed(m, utf8, n);
    if ((got == 1) != in(cp)) fail_msg("U+%04X: %d in %s", cp, got, text);
  }
  df_matcher_free(m);
  df_grammar_release(g);
}

static bool in_any(uint32_t cp) { return cp < 0x110000; }
static bool in_json(uint32_t cp) { return cp >= 0x20 && cp != '"' && cp != '\\'; }
static bool in_odd(uint32_t cp) {
  return (cp >= 'b' && cp <= 0x3A5) || (cp >= 0x7FF && cp <= 0x801) || (cp >= 0x1234 && cp <= 0x20ABC) ||
         cp == 0x10FFFF;
}
static bool not_odd(uint32_t cp) { return !in_odd(cp); }

static void test_classes__every_character(void **state) {
  (void)state;
  df_tokenizer *t = grammar_probe_tokenizer();
  check_class(t, "root ::= .", in_any);
  check_class(t, "root ::= [^\"\\\\\\x00-\\x1f]", in_json);
  check_class(t, "root ::= [\\u1234-\\U00020ABC\\U0010FFFFb-\\u03a5\\u07ff-\\u0801c-e]", in_odd);
  check_class(t, "root ::= [^\\u1234-\\U00020ABC\\U0010FFFFb-\\u03a5\\u07ff-\\u0801c-e]", not_odd);
  df_tokenizer_free(t);
}

static void test_classes__only_utf8(void **state) {
  (void)state;
  df_tokenizer *t = grammar_probe_tokenizer();
  df_grammar *g = grammar_probe_compile(t, "root ::= .");
  df_matcher *m = NULL;
  assert_int_equal(df_matcher_create(g, &m, NULL), DF_OK);
  uint64_t rng = 7;
  for (int i = 0; i < 400000; i++) {
    char s[4];
    uint64_t r = test_random(&rng);
    size_t n = 1 + r % 4, chars = 0;
    for (size_t k = 0; k < n; k++)
      s[k] = (char)(r >> (8 + 8 * k) | (r >> 60 ? 0x80 : 0) | (k == 0 && r >> 61 ? 0xC0 : 0));
    bool valid = df_utf8_valid(s, n);
    for (size_t k = 0; k < n; k++) chars += ((uint8_t)s[k] & 0xC0) != 0x80;
    assert_int_equal(grammar_probe_feed(m, s, n) == 1, valid && chars == 1);
  }
  df_matcher_free(m);
  df_grammar_release(g);
  df_tokenizer_free(t);
}

/* ---- matchers ------------------------------------------------------------------------------------------ */

static void test_matcher__end(void **state) {
  (void)state;
  df_tokenizer *t = grammar_probe_tokenizer();
  df_grammar *g = grammar_probe_compile(t, "root ::= \"a\" \"b\"?");
  df_matcher *m = NULL;
  assert_int_equal(df_matcher_create(g, &m, NULL), DF_OK);
  df_grammar_release(g); /* the matcher has its own reference */
  assert_false(grammar_probe_accept(m, GRAMMAR_PROBE_EOS));
  assert_true(grammar_probe_accept(m, 'a'));
  assert_true(df_matcher_may_end(m));
  assert_false(df_matcher_must_end(m));
  assert_true(grammar_probe_accept(m, 'b'));
  assert_true(df_matcher_must_end(m));
  assert_true(grammar_probe_accept(m, GRAMMAR_PROBE_EOS));
  assert_int_equal(df_matcher_length(m), 3);
  assert_true(df_matcher_may_end(m) && df_matcher_must_end(m));
  for (size_t i = 0; i < (df_tokenizer_size(t) + 63) / 64; i++) assert_true(grammar_probe_mask(m)[i] == 0);
  assert_false(grammar_probe_accept(m, GRAMMAR_PROBE_EOS));
  assert_false(grammar_probe_accept(m, 'a'));
  df_matcher_rollback(m, 2);
  assert_int_equal(df_matcher_length(m), 1);
  assert_true(grammar_probe_bit(grammar_probe_mask(m), 'b') &&
              grammar_probe_bit(grammar_probe_mask(m), GRAMMAR_PROBE_EOS));
  df_matcher_rollback(m, 100);
  assert_int_equal(df_matcher_length(m), 0);
  assert_true(grammar_probe_bit(grammar_probe_mask(m), 'a') && !grammar_probe_bit(grammar_probe_mask(m), 'b') &&
              !grammar_probe_bit(grammar_probe_mask(m), GRAMMAR_PROBE_EOS));
  df_matcher_free(m);
  df_tokenizer_free(t);
}

/* Places are dropped and made again; two matchers, one deep in a text all the while, keep theirs. */
static void test_matcher__many_places(void **state) {
  (void)state;
  df_tokenizer *t = grammar_probe_tokenizer();
  df_grammar *g = grammar_probe_compile(t, "root ::= \"a\" root \"b\" | \"b\" root \"a\" | \"c\"");
  df_matcher *deep = NULL, *other = NULL;
  assert_int_equal(df_matcher_create(g, &deep, NULL), DF_OK);
  char *text = df_alloc(300000);
  uint64_t rng = 5;
  for (int i = 0; i < 150000; i++) {
    text[i] = test_random(&rng) >> 40 & 1 ? 'a' : 'b';
    assert_true(grammar_probe_accept(deep, text[i]));
  }
  for (int round = 0; round < 8; round++) {
    assert_int_equal(df_matcher_create(g, &other, NULL), DF_OK);
    for (int i = 0; i < 60000; i++) {
      assert_true(grammar_probe_accept(other, test_random(&rng) >> 40 & 1 ? 'a' : 'b'));
      if (i % 1000 == 0) (void)grammar_probe_mask(other);
    }
    df_matcher_free(other);
  }
  assert_true(grammar_probe_accept(deep, 'c'));
  for (int i = 149999; i >= 75000; i--) {
    char want = text[i] == 'a' ? 'b' : 'a';
    assert_false(grammar_probe_accept(deep, text[i]));
    assert_true(grammar_probe_accept(deep, want));
  }
  df_matcher_rollback(deep, 75001);
  assert_int_equal(df_matcher_length(deep), 150000);
  assert_true(grammar_probe_bit(grammar_probe_mask(deep), 'a') && grammar_probe_bit(grammar_probe_mask(deep), 'b') &&
              grammar_probe_bit(grammar_probe_mask(deep), 'c') &&
              !grammar_probe_bit(grammar_probe_mask(deep), GRAMMAR_PROBE_EOS));
  df_free(text);
  df_matcher_free(deep);
  df_grammar_release(g);
  df_tokenizer_free(t);
}

static void test_matcher__too_ambiguous(void **state) {
  (void)state;
  df_tokenizer *t = grammar_probe_tokenizer();
  df_grammar *g = grammar_probe_compile(t, "root ::= \"a\" root \"b\" | \"a\" root \"c\" | \"x\"");
  df_matcher *m = NULL;
  df_error err = {0};
  assert_int_equal(df_matcher_create(g, &m, NULL), DF_OK);
  bool ok = true;
  df_status s = DF_OK;
  uint32_t n = 0;
  for (; n < 100 && s == DF_OK; n++) s = df_matcher_accept(m, 'a', &ok, &err);
  assert_int_equal(s, DF_ERR_LIMIT);
  assert_non_null(strstr(err.msg, "could not "));
  assert_int_equal(df_matcher_length(m), n - 1);
  df_matcher_rollback(m, n - 3);
  assert_true(grammar_probe_accept(m, 'x') && grammar_probe_accept(m, 'c') && grammar_probe_accept(m, 'b') &&
              df_matcher_must_end(m));
  df_matcher_free(m);
  df_grammar_release(g);
  df_tokenizer_free(t);
}

static void test_from_gbnf__vocabulary_without_some_bytes(void **state) {
  (void)state;
  static tiny_vocab v;
  tiny_init(&v, false);
  int32_t a = tiny_token(&v, "a", DF_TOKEN_NORMAL), xa = tiny_token(&v, "xa", DF_TOKEN_NORMAL);
  int32_t b = tiny_token(&v, "b", DF_TOKEN_NORMAL), end = tiny_token(&v, "<|im_end|>", DF_TOKEN_CONTROL);
  df_tokenizer *t = tiny_create(&v);
  df_grammar *g = grammar_probe_compile(t, "root ::= \"a\" (\"x\" \"y\" | \"xa\" | \"b\")");
  df_matcher *m = NULL;
  df_error err = {0};
  assert_int_equal(df_matcher_create(g, &m, NULL), DF_OK);
  assert_true(grammar_probe_accept(m, a));
  assert_false(grammar_probe_accept(m, xa)); /* "x" alone is no token: it could be a dead end, so it is left out */
  assert_true(grammar_probe_accept(m, b));
  assert_true(grammar_probe_accept(m, end));
  df_matcher_free(m);
  df_grammar_release(g);
  assert_int_equal(df_grammar_from_gbnf(t, "root ::= \"ax\"", 13, &g, &err), DF_ERR_UNSUPPORTED);
  assert_string_equal(err.msg, "could not use the grammar: the vocabulary spells no text of it");
  df_tokenizer_free(t);
}

static df_status work(void *arg, df_error *err) {
  df_tokenizer *t = arg;
  static const char text[] =
      "root ::= (\"ab\" x | [^x]{2,5} \"y\"){3,40} \"z\"\nx ::= \"(\" x \")\" | \"c\" | \"abc\"+";
  df_grammar *g = NULL;
  df_matcher *m = NULL;
  const uint64_t *bits;
  bool ok;
  df_status s = df_grammar_from_gbnf(t, text, sizeof text - 1, &g, err);
  if (s == DF_OK) s = df_matcher_create(g, &m, err);
  for (int i = 0; i < 100 && s == DF_OK; i++) {
    s = df_matcher_mask(m, &bits, err);
    if (s == DF_OK) s = df_matcher_accept(m, i < 2 ? 'a' + i : '(', &ok, err);
  }
  df_matcher_free(m);
  df_grammar_release(g);
  return s;
}

static void test_matcher__out_of_memory(void **state) {
  (void)state;
  df_tokenizer *t = grammar_probe_tokenizer();
  assert_true(test_each_allocation_fails(work, t) > 30);
  df_tokenizer_free(t);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_from_gbnf__language),
      cmocka_unit_test(test_from_gbnf__refused),
      cmocka_unit_test(test_from_gbnf__deep_groups),
      cmocka_unit_test(test_from_gbnf__vocabulary_without_some_bytes),
      cmocka_unit_test(test_classes__every_character),
      cmocka_unit_test(test_classes__only_utf8),
      cmocka_unit_test(test_matcher__end),
      cmocka_unit_test(test_matcher__many_places),
      cmocka_unit_test(test_matcher__too_ambiguous),
      cmocka_unit_test(test_matcher__out_of_memory),
  };
  return cmocka_run_group_tests_name("grammar", tests, NULL, NULL);
}
