/*
 * Random grammars: exactly their texts pass. The oracle is a matcher of this file that works on the trees the grammars
 * were printed from, by recursion over all ways.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "support/grammar_probe.h"
#include "support/kernel_data.h"

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
  const uint64_t *bits = grammar_probe_mask(m);
  bool some = false;
  size_t words = (df_tokenizer_size(t) + 63) / 64;
  memcpy(copy, bits, words * sizeof *copy);
  for (int32_t id = -2; id < (int32_t)df_tokenizer_size(t) + 2; id++) {
    bool want = id >= 0 && id < (int32_t)df_tokenizer_size(t) && grammar_probe_bit(copy, id);
    uint32_t n = df_matcher_length(m);
    some = some || want;
    if (id >= 0 && id < 256 && (id < 'a' || id > 'c') && !want) continue;
    assert_int_equal(grammar_probe_accept(m, id), want);
    assert_int_equal(df_matcher_length(m), n + want);
    if (want) df_matcher_rollback(m, 1);
    assert_memory_equal(grammar_probe_mask(m), copy, words * sizeof *copy);
  }
  assert_true(some);
  assert_int_equal(grammar_probe_bit(copy, GRAMMAR_PROBE_EOS), df_matcher_may_end(m));
  assert_false(grammar_probe_bit(copy, GRAMMAR_PROBE_EOS + 1));
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
  for (int32_t id = GRAMMAR_PROBE_EOS + 2; id < (int32_t)df_tokenizer_size(t); id++) {
    const char *p;
    size_t n;
    (void)df_tokenizer_piece(t, id, &p, &n);
    bool text = n > 0 && df_tokenizer_type(t, id) != DF_TOKEN_UNUSED;
    assert_int_equal(grammar_probe_bit(copy, id), text && grammar_probe_feed(m, p, n) >= 0);
  }
  for (int c = 0; c < 3 && len < LONGEST; c++) {
    int next = number * 3 + 1 + c;
    if (x->begins[next]) assert_true(grammar_probe_bit(copy, 'a' + c));
    if (!grammar_probe_bit(copy, 'a' + c)) continue;
    assert_true(grammar_probe_accept(m, 'a' + c));
    check_texts(t, m, x, next, len + 1, grammar);
    df_matcher_rollback(m, 1);
    assert_memory_equal(grammar_probe_mask(m), copy, (df_tokenizer_size(t) + 63) / 64 * sizeof *copy);
  }
}

static void test_matcher__random_grammars(void **state) {
  (void)state;
  static oracle o;
  static texts x;
  df_tokenizer *t = grammar_probe_tokenizer();
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

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_matcher__random_grammars)};
  return cmocka_run_group_tests_name("grammar_random", tests, NULL, NULL);
}
