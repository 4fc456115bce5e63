/*
 * Grammars: what is read, what is refused, and that exactly the texts of a grammar pass. The oracle for the latter is a
 * matcher of this file that works on trees of random grammars directly, by recursion over all ways.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "support/kernel_data.h"
#include "support/sample_files.h"
#include "support/tiny_vocab.h"
#include "text/grammar.h"
#include "text/utf8.h"

enum { EOS = 256 };

static tiny_vocab g_vocab;

/* 0..255 bytes, 256 the end, 257 a control token with the text "a", then texts of several bytes, "a" once more. */
static df_tokenizer *make_tokenizer(void) {
  static const char *const words[] = {"ab", "abc", "bc", "aa", "ca", "cab", "abab", "bb", "cc", "aaa", "a"};
  tiny_init(&g_vocab, true);
  assert_int_equal(tiny_token(&g_vocab, "<|im_end|>", DF_TOKEN_CONTROL), EOS);
  (void)tiny_token(&g_vocab, "a<x>", DF_TOKEN_CONTROL);
  for (size_t i = 0; i < sizeof words / sizeof *words; i++)
    (void)tiny_token(&g_vocab, words[i], i + 1 < sizeof words / sizeof *words ? DF_TOKEN_NORMAL : DF_TOKEN_USER);
  (void)tiny_token(&g_vocab, "", DF_TOKEN_NORMAL);
  (void)tiny_token(&g_vocab, "ab", DF_TOKEN_UNUSED);
  return tiny_create(&g_vocab);
}

static df_grammar *compile(const df_tokenizer *t, const char *text) {
  df_grammar *g = NULL;
  df_error err = {0};
  if (df_grammar_from_gbnf(t, text, strlen(text), &g, &err) != DF_OK) fail_msg("%s\n%s", err.msg, text);
  return g;
}

static bool accept(df_matcher *m, int32_t id) {
  bool ok = false;
  df_error err = {0};
  if (df_matcher_accept(m, id, &ok, &err) != DF_OK) fail_msg("%s", err.msg);
  return ok;
}

static const uint64_t *mask(df_matcher *m) {
  const uint64_t *bits = NULL;
  df_error err = {0};
  if (df_matcher_mask(m, &bits, &err) != DF_OK) fail_msg("%s", err.msg);
  return bits;
}

static bool bit(const uint64_t *bits, int32_t id) { return bits[id / 64] >> (id % 64) & 1; }

/* -1: some byte is not allowed; else whether the text may end behind it. The matcher is where it was afterwards. */
static int feed(df_matcher *m, const char *text, size_t n) {
  uint32_t before = df_matcher_length(m);
  int result = -1;
  size_t i = 0;
  while (i < n && accept(m, (uint8_t)text[i])) i++;
  if (i == n) result = df_matcher_may_end(m);
  df_matcher_rollback(m, df_matcher_length(m) - before);
  return result;
}

static int try_text(const char *grammar, const char *text) {
  df_tokenizer *t = make_tokenizer();
  df_grammar *g = compile(t, grammar);
  df_matcher *m = NULL;
  assert_int_equal(df_matcher_create(g, &m, NULL), DF_OK);
  int result = feed(m, text, strlen(text));
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
  df_tokenizer *t = make_tokenizer();
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
  df_tokenizer *t = make_tokenizer();
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
  df_grammar *g = compile(t, text);
  df_matcher *m = NULL;
  assert_int_equal(df_matcher_create(g, &m, NULL), DF_OK);
  for (uint32_t cp = 0; cp < 0x110000; cp++) {
    char utf8[4];
    if (cp >= 0xD800 && cp <= 0xDFFF) continue;
    size_t n = df_utf8_encode(cp, utf8);
    int got = feed(m, utf8, n);
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
  df_tokenizer *t = make_tokenizer();
  check_class(t, "root ::= .", in_any);
  check_class(t, "root ::= [^\"\\\\\\x00-\\x1f]", in_json);
  check_class(t, "root ::= [\\u1234-\\U00020ABC\\U0010FFFFb-\\u03a5\\u07ff-\\u0801c-e]", in_odd);
  check_class(t, "root ::= [^\\u1234-\\U00020ABC\\U0010FFFFb-\\u03a5\\u07ff-\\u0801c-e]", not_odd);
  df_tokenizer_free(t);
}

static void test_classes__only_utf8(void **state) {
  (void)state;
  df_tokenizer *t = make_tokenizer();
  df_grammar *g = compile(t, "root ::= .");
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
    assert_int_equal(feed(m, s, n) == 1, valid && chars == 1);
  }
  df_matcher_free(m);
  df_grammar_release(g);
  df_tokenizer_free(t);
}

/* ---- random grammars against the oracle ---------------------------------------------------------------- */

typedef enum tree_kind { T_TEXT, T_CLASS, T_SEQ, T_ALT, T_REPEAT, T_RULE } tree_kind;

typedef struct tree {
  tree_kind kind;
  char text[4];
  unsigned letters; /* CLASS: bits of a, b, c */
  int child[3], n, min, max, rule;
} tree;

enum { MAX_TREES = 200, RULES = 3, LONGEST = 6, INFINITE = 99, KNOWN = 1 << 20 };

typedef struct oracle {
  tree trees[MAX_TREES];
  int n, bodies[RULES];
  const char *s;
  int len;
  bool busy[RULES][LONGEST + 1], again;
  unsigned memo[MAX_TREES][LONGEST + 1]; /* ends and the bit KNOWN */
} oracle;

static unsigned below(uint64_t *rng, unsigned n) { return (unsigned)(test_random(rng) >> 33) % n; }

static int random_tree(oracle *o, uint64_t *rng, int depth) {
  static const tree_kind kinds[10] = {T_TEXT, T_TEXT, T_CLASS, T_RULE, T_SEQ, T_SEQ, T_ALT, T_ALT, T_REPEAT, T_REPEAT};
  int at = o->n++;
  tree t = {.kind = kinds[below(rng, depth > 0 && at < MAX_TREES - 8 ? 10 : 4)]};
  t.rule = (int)below(rng, RULES);
  t.letters = below(rng, 8);
  for (unsigned i = 0, n = below(rng, 8) ? 1 + below(rng, 3) : 0; i < n; i++) t.text[i] = (char)('a' + below(rng, 3));
  t.min = (int)below(rng, 3);
  t.max = below(rng, 2) ? INFINITE : t.min + (int)below(rng, 3);
  if (t.kind == T_SEQ || t.kind == T_ALT) t.n = 1 + (int)below(rng, 3);
  if (t.kind == T_REPEAT) t.n = 1;
  for (int i = 0; i < t.n; i++) t.child[i] = random_tree(o, rng, depth - 1);
  o->trees[at] = t;
  return at;
}

static void print_tree(const oracle *o, int at, df_buf *b) {
  const tree *t = &o->trees[at];
  df_status s = DF_OK;
  switch (t->kind) {
    case T_TEXT: s = df_buf_printf(b, NULL, "\"%s\"", t->text); break;
    case T_CLASS:
      s = df_buf_printf(b, NULL, "[%s%s%s]", t->letters & 1 ? "a" : "", t->letters & 2 ? "b" : "",
                        t->letters & 4 ? "c" : "");
      break;
    case T_RULE: s = df_buf_printf(b, NULL, "%s", t->rule == 0 ? "root" : t->rule == 1 ? "r-one" : "r-two"); break;
    case T_SEQ:
    case T_ALT:
    case T_REPEAT:
      s = df_buf_puts(b, "(", NULL);
      for (int i = 0; i < t->n; i++) {
        if (i) s = df_buf_puts(b, t->kind == T_ALT ? " | " : " ", NULL);
        print_tree(o, t->child[i], b);
      }
      s = df_buf_puts(b, ")", NULL);
      if (t->kind != T_REPEAT) break;
      if (t->max == INFINITE && t->min < 2)
        s = df_buf_puts(b, t->min ? "+" : "*", NULL);
      else if (t->max == INFINITE)
        s = df_buf_printf(b, NULL, "{%d,}", t->min);
      else
        s = df_buf_printf(b, NULL, "{%d,%d}", t->min, t->max);
      break;
  }
  assert_int_equal(s, DF_OK);
}

/* Bit e of the result: the tree matches s[at .. e). */
static unsigned ends(oracle *o, int index, int at);

static unsigned ends_of_all(oracle *o, int index, unsigned starts) {
  unsigned all = 0;
  for (int i = 0; i <= o->len; i++)
    if (starts >> i & 1) all |= ends(o, index, i);
  return all;
}

static unsigned ends_repeat(oracle *o, const tree *t, int at) {
  unsigned now = 1u << at, all = t->min == 0 ? now : 0;
  int most = t->max == INFINITE ? t->min + LONGEST + 1 : t->max;
  for (int i = 1; i <= most; i++) {
    now = ends_of_all(o, t->child[0], now);
    if (i >= t->min) all |= now;
  }
  return all;
}

static unsigned ends_now(oracle *o, const tree *t, int at) {
  unsigned all = 0;
  size_t n = strlen(t->text);
  switch (t->kind) {
    case T_TEXT: return (int)n <= o->len - at && memcmp(o->s + at, t->text, n) == 0 ? 1u << (at + (int)n) : 0;
    case T_CLASS: return at < o->len && (t->letters >> (o->s[at] - 'a') & 1) ? 1u << (at + 1) : 0;
    case T_SEQ:
      all = 1u << at;
      for (int i = 0; i < t->n; i++) all = ends_of_all(o, t->child[i], all);
      return all;
    case T_ALT:
      for (int i = 0; i < t->n; i++) all |= ends(o, t->child[i], at);
      return all;
    case T_REPEAT: return ends_repeat(o, t, at);
    case T_RULE:
      if (o->busy[t->rule][at]) {
        o->again = true;
        return 0;
      }
      o->busy[t->rule][at] = true;
      all = ends(o, o->bodies[t->rule], at);
      o->busy[t->rule][at] = false;
      return all;
  }
  return 0;
}

static unsigned ends(oracle *o, int index, int at) {
  if (!(o->memo[index][at] & KNOWN)) o->memo[index][at] = ends_now(o, &o->trees[index], at) | KNOWN;
  return o->memo[index][at] & ~(unsigned)KNOWN;
}

static bool oracle_accepts(oracle *o, const char *s, int len) {
  o->s = s;
  o->len = len;
  memset(o->memo, 0, sizeof o->memo);
  o->busy[0][0] = true;
  bool yes = ends(o, o->bodies[0], 0) >> len & 1;
  o->busy[0][0] = false;
  return yes;
}

/* All texts of at most LONGEST letters, numbered: a text's number times 3 plus 1..3 is the number of the text with one
 * letter more. */
enum { TEXTS = (3 * 3 * 3 * 3 * 3 * 3 * 3 - 1) / 2 };

typedef struct texts {
  bool whole[TEXTS], begins[TEXTS]; /* accepted; begins an accepted one */
  int n_whole;
} texts;

static void spell(int number, char *s, int *len) {
  *len = 0;
  for (int k = number; k > 0; k = (k - 1) / 3) *len += 1;
  for (int k = number, i = *len; k > 0; k = (k - 1) / 3) s[--i] = (char)('a' + (k - 1) % 3);
}

static void ask_oracle(oracle *o, texts *x) {
  memset(x, 0, sizeof *x);
  for (int k = TEXTS - 1; k >= 0; k--) {
    char s[LONGEST + 1];
    int len;
    spell(k, s, &len);
    x->whole[k] = oracle_accepts(o, s, len);
    x->n_whole += x->whole[k];
    if (x->whole[k] || x->begins[k]) {
      x->begins[k] = true;
      if (k) x->begins[(k - 1) / 3] = true;
    }
  }
}

/* Everything that holds at one place, whichever texts led there. Returns a copy of the mask. */
static void check_place(const df_tokenizer *t, df_matcher *m, uint64_t *copy) {
  const uint64_t *bits = mask(m);
  bool some = false;
  size_t words = (df_tokenizer_size(t) + 63) / 64;
  memcpy(copy, bits, words * sizeof *copy);
  for (int32_t id = -2; id < (int32_t)df_tokenizer_size(t) + 2; id++) {
    bool want = id >= 0 && id < (int32_t)df_tokenizer_size(t) && bit(copy, id);
    uint32_t n = df_matcher_length(m);
    some = some || want;
    if (id >= 0 && id < 256 && (id < 'a' || id > 'c') && !want) continue;
    assert_int_equal(accept(m, id), want);
    assert_int_equal(df_matcher_length(m), n + want);
    if (want) df_matcher_rollback(m, 1);
    assert_memory_equal(mask(m), copy, words * sizeof *copy);
  }
  assert_true(some);
  assert_int_equal(bit(copy, EOS), df_matcher_may_end(m));
  assert_false(bit(copy, EOS + 1));
}

/* Walks all texts, by single letters. A token of several letters must be allowed exactly when its letters are. */
static void check_texts(const df_tokenizer *t, df_matcher *m, const texts *x, int number, int len,
                        const char *grammar) {
  uint64_t copy[8] = {0};
  check_place(t, m, copy);
  if (df_matcher_may_end(m) != x->whole[number]) {
    char s[LONGEST + 1] = {0};
    spell(number, s, &len);
    fail_msg("\"%s\" should %sbe accepted by %s", s, x->whole[number] ? "" : "not ", grammar);
  }
  for (int32_t id = EOS + 2; id < (int32_t)df_tokenizer_size(t); id++) {
    const char *p;
    size_t n;
    (void)df_tokenizer_piece(t, id, &p, &n);
    bool text = n > 0 && df_tokenizer_type(t, id) != DF_TOKEN_UNUSED;
    assert_int_equal(bit(copy, id), text && feed(m, p, n) >= 0);
  }
  for (int c = 0; c < 3 && len < LONGEST; c++) {
    int next = number * 3 + 1 + c;
    if (x->begins[next]) assert_true(bit(copy, 'a' + c));
    if (!bit(copy, 'a' + c)) continue;
    assert_true(accept(m, 'a' + c));
    check_texts(t, m, x, next, len + 1, grammar);
    df_matcher_rollback(m, 1);
    assert_memory_equal(mask(m), copy, (df_tokenizer_size(t) + 63) / 64 * sizeof *copy);
  }
}

static void test_matcher__random_grammars(void **state) {
  (void)state;
  static oracle o;
  static texts x;
  df_tokenizer *t = make_tokenizer();
  uint64_t rng = 20240917;
  int compiled = 0, recursive = 0, empty = 0;
  for (int round = 0; round < 400; round++) {
    df_buf b = {0};
    df_grammar *g = NULL;
    df_matcher *m = NULL;
    df_error err = {0};
    memset(&o, 0, sizeof o);
    static const char *const heads[RULES] = {"root ::= ", "\nr-one ::= ", "\nr-two ::= "};
    for (int r = 0; r < RULES; r++) {
      o.bodies[r] = random_tree(&o, &rng, 4);
      assert_int_equal(df_buf_puts(&b, heads[r], NULL), DF_OK);
      print_tree(&o, o.bodies[r], &b);
    }
    ask_oracle(&o, &x);
    df_status s = df_grammar_from_gbnf(t, b.data, b.len, &g, &err);
    if (s != DF_OK) {
      for (int r = 1; r < RULES; r++) { /* rules that root does not reach count too */
        o.s = "";
        o.len = 0;
        memset(o.memo, 0, sizeof o.memo);
        o.busy[r][0] = true;
        (void)ends(&o, o.bodies[r], 0);
        o.busy[r][0] = false;
      }
      bool itself = strstr(err.msg, "can begin with itself"), never = strstr(err.msg, "admits no text");
      if (!(itself && o.again) && !(never && x.n_whole == 0)) fail_msg("%s\n%s", err.msg, b.data);
      recursive += itself;
      empty += never;
    } else {
      assert_int_equal(df_matcher_create(g, &m, NULL), DF_OK);
      check_texts(t, m, &x, 0, 0, b.data);
      df_matcher_free(m);
      compiled++;
    }
    df_grammar_release(g);
    df_buf_release(&b);
  }
  assert_true(compiled > 150 && recursive > 20 && empty > 5);
  df_tokenizer_free(t);
}

/* ---- matchers ------------------------------------------------------------------------------------------ */

static void test_matcher__end(void **state) {
  (void)state;
  df_tokenizer *t = make_tokenizer();
  df_grammar *g = compile(t, "root ::= \"a\" \"b\"?");
  df_matcher *m = NULL;
  assert_int_equal(df_matcher_create(g, &m, NULL), DF_OK);
  df_grammar_release(g); /* the matcher has its own reference */
  assert_false(accept(m, EOS));
  assert_true(accept(m, 'a'));
  assert_true(df_matcher_may_end(m));
  assert_false(df_matcher_must_end(m));
  assert_true(accept(m, 'b'));
  assert_true(df_matcher_must_end(m));
  assert_true(accept(m, EOS));
  assert_int_equal(df_matcher_length(m), 3);
  assert_true(df_matcher_may_end(m) && df_matcher_must_end(m));
  for (size_t i = 0; i < (df_tokenizer_size(t) + 63) / 64; i++) assert_true(mask(m)[i] == 0);
  assert_false(accept(m, EOS));
  assert_false(accept(m, 'a'));
  df_matcher_rollback(m, 2);
  assert_int_equal(df_matcher_length(m), 1);
  assert_true(bit(mask(m), 'b') && bit(mask(m), EOS));
  df_matcher_rollback(m, 100);
  assert_int_equal(df_matcher_length(m), 0);
  assert_true(bit(mask(m), 'a') && !bit(mask(m), 'b') && !bit(mask(m), EOS));
  df_matcher_free(m);
  df_tokenizer_free(t);
}

/* Places are dropped and made again; two matchers, one deep in a text all the while, keep theirs. */
static void test_matcher__many_places(void **state) {
  (void)state;
  df_tokenizer *t = make_tokenizer();
  df_grammar *g = compile(t, "root ::= \"a\" root \"b\" | \"b\" root \"a\" | \"c\"");
  df_matcher *deep = NULL, *other = NULL;
  assert_int_equal(df_matcher_create(g, &deep, NULL), DF_OK);
  char *text = df_alloc(300000);
  uint64_t rng = 5;
  for (int i = 0; i < 150000; i++) {
    text[i] = test_random(&rng) >> 40 & 1 ? 'a' : 'b';
    assert_true(accept(deep, text[i]));
  }
  for (int round = 0; round < 8; round++) {
    assert_int_equal(df_matcher_create(g, &other, NULL), DF_OK);
    for (int i = 0; i < 60000; i++) {
      assert_true(accept(other, test_random(&rng) >> 40 & 1 ? 'a' : 'b'));
      if (i % 1000 == 0) (void)mask(other);
    }
    df_matcher_free(other);
  }
  assert_true(accept(deep, 'c'));
  for (int i = 149999; i >= 75000; i--) {
    char want = text[i] == 'a' ? 'b' : 'a';
    assert_false(accept(deep, text[i]));
    assert_true(accept(deep, want));
  }
  df_matcher_rollback(deep, 75001);
  assert_int_equal(df_matcher_length(deep), 150000);
  assert_true(bit(mask(deep), 'a') && bit(mask(deep), 'b') && bit(mask(deep), 'c') && !bit(mask(deep), EOS));
  df_free(text);
  df_matcher_free(deep);
  df_grammar_release(g);
  df_tokenizer_free(t);
}

static void test_matcher__too_ambiguous(void **state) {
  (void)state;
  df_tokenizer *t = make_tokenizer();
  df_grammar *g = compile(t, "root ::= \"a\" root \"b\" | \"a\" root \"c\" | \"x\"");
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
  assert_true(accept(m, 'x') && accept(m, 'c') && accept(m, 'b') && df_matcher_must_end(m));
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
  df_grammar *g = compile(t, "root ::= \"a\" (\"x\" \"y\" | \"xa\" | \"b\")");
  df_matcher *m = NULL;
  df_error err = {0};
  assert_int_equal(df_matcher_create(g, &m, NULL), DF_OK);
  assert_true(accept(m, a));
  assert_false(accept(m, xa)); /* "x" alone is no token: it could be a dead end, so it is left out */
  assert_true(accept(m, b));
  assert_true(accept(m, end));
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
  df_tokenizer *t = make_tokenizer();
  assert_true(test_each_allocation_fails(work, t) > 30);
  df_tokenizer_free(t);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_from_gbnf__language),      cmocka_unit_test(test_from_gbnf__refused),
      cmocka_unit_test(test_from_gbnf__deep_groups),   cmocka_unit_test(test_from_gbnf__vocabulary_without_some_bytes),
      cmocka_unit_test(test_classes__every_character), cmocka_unit_test(test_classes__only_utf8),
      cmocka_unit_test(test_matcher__random_grammars), cmocka_unit_test(test_matcher__end),
      cmocka_unit_test(test_matcher__many_places),     cmocka_unit_test(test_matcher__too_ambiguous),
      cmocka_unit_test(test_matcher__out_of_memory),
  };
  return cmocka_run_group_tests_name("grammar", tests, NULL, NULL);
}
