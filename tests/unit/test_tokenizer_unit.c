#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "base/size.h"
#include "support/tiny_vocab.h"

static tiny_vocab g_vocab;

static uint32_t rnd(uint64_t *seed, uint32_t n) {
  *seed = *seed * 6364136223846793005u + 1442695040888963407u;
  return (uint32_t)(*seed >> 33) % n;
}

/* Encodes n bytes and compares with a list of ids that ends with -1. */
static void expect_n(const df_tokenizer *t, const char *text, size_t n, unsigned flags, const int32_t *want) {
  df_ids ids = {0};
  df_error err = {0};
  if (df_tokenizer_encode(t, text, n, flags, &ids, &err) != DF_OK) fail_msg("%s", err.msg);
  size_t m = 0;
  while (want[m] >= 0) m++;
  if (ids.n != m) fail_msg("\"%s\" gave %zu ids, not %zu", text, ids.n, m);
  for (size_t i = 0; i < m; i++) assert_int_equal(ids.v[i], want[i]);
  df_ids_release(&ids);
}

#define EXPECT(t, text, flags, ...) expect_n((t), (text), strlen(text), (flags), (const int32_t[]){__VA_ARGS__, -1})
#define SPECIAL DF_ENCODE_PARSE_SPECIAL

static void test_tokenizer_encode__lowest_rank_then_leftmost(void **state) {
  (void)state;
  tiny_init(&g_vocab, true);
  int32_t bc = tiny_merge(&g_vocab, "b", "c"), ab = tiny_merge(&g_vocab, "a", "b"), aa = tiny_merge(&g_vocab, "a", "a"),
          abc = tiny_merge(&g_vocab, "a", "bc"), aaaa = tiny_merge(&g_vocab, "aa", "aa");
  df_tokenizer *t = tiny_create(&g_vocab);
  EXPECT(t, "abc", 0, abc);
  EXPECT(t, "abd", 0, ab, 'd');
  EXPECT(t, "xbc", 0, 'x', bc);
  EXPECT(t, "aaa", 0, aa, 'a');
  EXPECT(t, "aaaaaaa", 0, aaaa, aa, 'a');
  EXPECT(t, "aab", 0, 'a', ab);
  EXPECT(t, "a a", 0, 'a', ' ', 'a'); /* nothing merges across pieces: " a" is one, "a" another */
  expect_n(t, "", 0, 0, (const int32_t[]){-1});
  df_tokenizer_free(t);
}

static void test_tokenizer_encode__bytes_without_token_vanish(void **state) {
  (void)state;
  tiny_init(&g_vocab, false);
  int32_t eq = tiny_token(&g_vocab, "=", DF_TOKEN_NORMAL), a = tiny_token(&g_vocab, "a", DF_TOKEN_NORMAL);
  int32_t eqeq = tiny_merge(&g_vocab, "=", "=");
  df_tokenizer *t = tiny_create(&g_vocab);
  EXPECT(t, "=\x04=", 0, eqeq);
  EXPECT(t, "=a\x04=", 0, eq, a, eq);
  expect_n(t, "\x04\x05", 2, 0, (const int32_t[]){-1});
  char text[200]; /* the same in a piece long enough for the heap */
  memset(text, '=', sizeof text);
  for (size_t i = 1; i < sizeof text; i += 2) text[i] = '\x04';
  int32_t want[51];
  for (size_t i = 0; i < 50; i++) want[i] = eqeq;
  want[50] = -1;
  expect_n(t, text, sizeof text, 0, want);
  df_tokenizer_free(t);
}

static void test_tokenizer_encode__added_tokens(void **state) {
  (void)state;
  tiny_init(&g_vocab, true);
  int32_t end = tiny_token(&g_vocab, "<|end|>", DF_TOKEN_CONTROL), tool = tiny_token(&g_vocab, "<t>", DF_TOKEN_USER),
          tool2 = tiny_token(&g_vocab, "<t><u>", DF_TOKEN_USER), ab = tiny_token(&g_vocab, "ab", DF_TOKEN_USER),
          bcd = tiny_token(&g_vocab, "bcd", DF_TOKEN_USER), none = tiny_token(&g_vocab, "<t>x", DF_TOKEN_UNUSED);
  (void)tiny_token(&g_vocab, "", DF_TOKEN_USER); /* matches nowhere */
  df_tokenizer *t = tiny_create(&g_vocab);
  assert_int_equal(none, 256 + 5);
  EXPECT(t, "x<|end|>y", SPECIAL, 'x', end, 'y');
  EXPECT(t, "<|end|>", 0, '<', '|', 'e', 'n', 'd', '|', '>');
  EXPECT(t, "<t>", 0, tool);
  EXPECT(t, "<t><t><u>", 0, tool, tool2); /* the longest at its place */
  EXPECT(t, "<t><u", SPECIAL, tool, '<', 'u');
  EXPECT(t, "abcd", 0, ab, 'c', 'd'); /* the leftmost, though the other is longer */
  EXPECT(t, "<t>x", 0, tool, 'x');
  EXPECT(t, "<|end|><|end|", SPECIAL, end, '<', '|', 'e', 'n', 'd', '|');
  EXPECT(t, "bcdab", 0, bcd, ab);
  df_tokenizer_free(t);
}

/* Many tokens with common beginnings, against a scan over all of them. */
static void test_tokenizer_encode__added_tokens_against_scan(void **state) {
  (void)state;
  tiny_init(&g_vocab, true);
  uint64_t seed = 3;
  for (int i = 0; i < 60; i++) {
    char text[6] = {0};
    size_t n = 1 + rnd(&seed, 5);
    for (size_t k = 0; k < n; k++) text[k] = (char)('a' + rnd(&seed, 2));
    (void)tiny_token(&g_vocab, text, DF_TOKEN_USER);
  }
  df_tokenizer *t = tiny_create(&g_vocab);
  for (int round = 0; round < 500; round++) {
    char text[40];
    int32_t want[sizeof text + 1];
    size_t m = 0;
    for (size_t i = 0; i < sizeof text; i++) text[i] = (char)('a' + rnd(&seed, 3));
    for (size_t i = 0; i < sizeof text;) {
      size_t best = 0;
      int32_t id = (uint8_t)text[i];
      for (uint32_t k = 256; k < g_vocab.spec.n_tokens; k++) {
        df_slice s = g_vocab.tokens[k];
        if (s.n > best && s.n <= sizeof text - i && memcmp(s.p, text + i, s.n) == 0) {
          best = s.n;
          id = (int32_t)k;
        }
      }
      want[m++] = id;
      i += best ? best : 1;
    }
    want[m] = -1;
    expect_n(t, text, sizeof text, 0, want);
  }
  df_tokenizer_free(t);
}

static void test_tokenizer_encode__broken_utf8(void **state) {
  (void)state;
  tiny_init(&g_vocab, true);
  int32_t e = tiny_merge(&g_vocab, "\xC3\x83", "\xC2\xA9"); /* the bytes C3 A9 */
  df_tokenizer *t = tiny_create(&g_vocab);
  EXPECT(t, "\xC3\xA9", 0, e);
  EXPECT(t, "\xC3", 0, 0xC3);
  EXPECT(t, "\xC3\xC3\xA9", 0, 0xC3, e);
  EXPECT(t, "\xA9\xC3\xA9\xF0\x9F", 0, 0xA9, e, 0xF0, 0x9F);
  EXPECT(t, "\xED\xA0\x80", 0, 0xED, 0xA0, 0x80);
  expect_n(t, "a\0\xFF", 3, 0, (const int32_t[]){'a', 0, 0xFF, -1});
  df_tokenizer_free(t);
}

static void test_tokenizer_encode__nfc_between_added_tokens(void **state) {
  (void)state;
  tiny_init(&g_vocab, true);
  int32_t mark = tiny_token(&g_vocab, "\xCC\x81!", DF_TOKEN_USER); /* begins with a combining acute */
  df_tokenizer *plain = tiny_create(&g_vocab);
  g_vocab.spec.normalize_nfc = true;
  df_tokenizer *nfc = tiny_create(&g_vocab);
  g_vocab.spec.normalize_nfc = false;
  g_vocab.spec.pre = "qwen2";
  df_tokenizer *qwen = tiny_create(&g_vocab);
  EXPECT(plain, "e\xCC\x81", 0, 'e', 0xCC, 0x81);
  EXPECT(nfc, "e\xCC\x81", 0, 0xC3, 0xA9);
  EXPECT(qwen, "e\xCC\x81", 0, 0xC3, 0xA9);
  EXPECT(nfc, "e\xCC\x81!", 0, 'e', mark);
  df_tokenizer_free(plain);
  df_tokenizer_free(nfc);
  df_tokenizer_free(qwen);
}

static void test_tokenizer_encode__bos_and_appending(void **state) {
  (void)state;
  tiny_init(&g_vocab, true);
  int32_t bos = tiny_token(&g_vocab, "<s>", DF_TOKEN_CONTROL);
  g_vocab.spec.bos = bos;
  df_tokenizer *without = tiny_create(&g_vocab);
  g_vocab.spec.add_bos = true;
  df_tokenizer *with = tiny_create(&g_vocab);
  EXPECT(without, "a", DF_ENCODE_ADD_BOS, 'a');
  EXPECT(with, "a", DF_ENCODE_ADD_BOS, bos, 'a');
  EXPECT(with, "a", 0, 'a');
  EXPECT(with, "", DF_ENCODE_ADD_BOS, bos);
  df_ids ids = {0};
  assert_int_equal(df_tokenizer_encode(with, "ab", 2, 0, &ids, NULL), DF_OK);
  assert_int_equal(df_tokenizer_encode(with, "c", 1, 0, &ids, NULL), DF_OK);
  assert_int_equal(ids.n, 3);
  assert_int_equal(ids.v[2], 'c');
  df_ids_release(&ids);
  df_tokenizer_free(without);
  df_tokenizer_free(with);
}

static void test_tokenizer_encode__ignore_merges(void **state) {
  (void)state;
  tiny_init(&g_vocab, true);
  int32_t whole = tiny_token(&g_vocab, "\xC4\xA0xyz", DF_TOKEN_NORMAL); /* " xyz", reached by no merge */
  (void)tiny_token(&g_vocab, "stop", DF_TOKEN_CONTROL);
  df_tokenizer *merging = tiny_create(&g_vocab);
  g_vocab.spec.ignore_merges = true;
  df_tokenizer *ignoring = tiny_create(&g_vocab);
  EXPECT(merging, "a xyz", 0, 'a', ' ', 'x', 'y', 'z');
  EXPECT(ignoring, "a xyz", 0, 'a', whole);
  EXPECT(ignoring, "stop", 0, 's', 't', 'o', 'p'); /* text never turns into a control token */
  df_tokenizer_free(merging);
  df_tokenizer_free(ignoring);
}

static void test_tokenizer_encode__no_control_token_by_merging(void **state) {
  (void)state;
  tiny_init(&g_vocab, true);
  int32_t stop = tiny_token(&g_vocab, "stop", DF_TOKEN_CONTROL), st = tiny_merge(&g_vocab, "s", "t"),
          op = tiny_merge(&g_vocab, "o", "p");
  assert_int_equal(tiny_merge(&g_vocab, "st", "op"), stop);
  df_tokenizer *t = tiny_create(&g_vocab);
  EXPECT(t, "stop", 0, st, op);
  EXPECT(t, "stop", SPECIAL, stop);
  df_tokenizer_free(t);
}

/* A user-defined token stands for its text as it is, a byte token for one byte: neither may come out of other bytes. */
static void test_tokenizer_encode__no_added_token_for_other_bytes(void **state) {
  (void)state;
  tiny_init(&g_vocab, true);
  (void)tiny_token(&g_vocab, "\xC4\xA0hey", DF_TOKEN_USER); /* the text "Ġhey", not " hey" */
  (void)tiny_token(&g_vocab, "<0x0A>", DF_TOKEN_BYTE);
  int32_t tag = tiny_token(&g_vocab, "<t>", DF_TOKEN_USER); /* the same either way */
  g_vocab.spec.ignore_merges = true;
  df_tokenizer *t = tiny_create(&g_vocab);
  EXPECT(t, "a hey", 0, 'a', ' ', 'h', 'e', 'y');
  EXPECT(t, "<0x0A>", 0, '<', '0', 'x', '0', 'A', '>');
  EXPECT(t, "<t>", 0, tag);
  df_tokenizer_free(t);
}

/* The definition again, on texts instead of ids and without any cleverness. */
static size_t slow_bpe(const tiny_vocab *v, const char *text, size_t n, int32_t *out) {
  size_t at[512], m = n; /* symbol i is text[at[i] .. at[i + 1]) */
  for (size_t i = 0; i <= n; i++) at[i] = i;
  for (;;) {
    size_t best_rank = SIZE_MAX, best = 0;
    for (size_t i = 0; i + 1 < m; i++) {
      size_t l = at[i + 1] - at[i], r = at[i + 2] - at[i + 1];
      for (uint32_t k = 0; k < v->spec.n_merges && k < best_rank; k++) {
        df_slice g = v->merges[k];
        if (g.n != l + r + 1 || memcmp(g.p, text + at[i], l) != 0 || g.p[l] != ' ') continue;
        if (memcmp(g.p + l + 1, text + at[i + 1], r) != 0) continue;
        best_rank = k;
        best = i;
      }
    }
    if (best_rank == SIZE_MAX) break;
    m--;
    for (size_t i = best + 1; i <= m; i++) at[i] = at[i + 1];
  }
  for (size_t i = 0; i < m; i++) {
    out[i] = -2;
    for (uint32_t k = 0; k < v->spec.n_tokens && out[i] == -2; k++)
      if (v->tokens[k].n == at[i + 1] - at[i] && memcmp(v->tokens[k].p, text + at[i], v->tokens[k].n) == 0)
        out[i] = (int32_t)k;
  }
  return m;
}

static void test_tokenizer_encode__equals_slow_bpe(void **state) {
  (void)state;
  uint64_t seed = 99;
  for (int vocab = 0; vocab < 25; vocab++) {
    tiny_init(&g_vocab, true);
    for (int k = 0; k < 60; k++) { /* joins of random letters and earlier results, in random order of size */
      char side[2][64];
      for (int s = 0; s < 2; s++) {
        df_slice pick = {&"abc"[rnd(&seed, 3)], 1};
        if (g_vocab.spec.n_tokens > 256 && rnd(&seed, 2))
          pick = g_vocab.tokens[256 + rnd(&seed, g_vocab.spec.n_tokens - 256)];
        if (pick.n > 20) pick.n = 1;
        memcpy(side[s], pick.p, pick.n);
        side[s][pick.n] = '\0';
      }
      (void)tiny_merge(&g_vocab, side[0], side[1]);
    }
    df_tokenizer *t = tiny_create(&g_vocab);
    for (int round = 0; round < 40; round++) {
      char text[300];
      int32_t want[301];
      size_t n =
          round < 25 ? 1 + rnd(&seed, 60) : 1 + rnd(&seed, 300); /* both sides of the border between the two methods */
      for (size_t i = 0; i < n; i++) text[i] = (char)('a' + (rnd(&seed, 8) ? rnd(&seed, 2) : 2));
      want[slow_bpe(&g_vocab, text, n, want)] = -1;
      expect_n(t, text, n, 0, want);
    }
    df_tokenizer_free(t);
  }
}

static void test_tokenizer_encode__million_letters(void **state) {
  (void)state;
  tiny_init(&g_vocab, true);
  char side[260] = "a";
  for (size_t n = 1; n <= 128; n *= 2) {
    (void)tiny_merge(&g_vocab, side, side);
    memset(side, 'a', 2 * n);
  }
  df_tokenizer *t = tiny_create(&g_vocab);
  size_t n = (1 << 20) + 5;
  char *text = malloc(n);
  assert_non_null(text);
  memset(text, 'a', n);
  df_ids ids = {0};
  assert_int_equal(df_tokenizer_encode(t, text, n, 0, &ids, NULL), DF_OK);
  assert_int_equal(ids.n, (1 << 12) + 2);
  assert_int_equal(ids.v[0], 256 + 7);
  assert_int_equal(ids.v[ids.n - 2], 256 + 1);
  assert_int_equal(ids.v[ids.n - 1], 'a');
  df_ids_release(&ids);
  free(text);
  df_tokenizer_free(t);
}

static void expect_refused(df_status code, const char *part) {
  df_tokenizer *t = NULL;
  df_error err = {0};
  assert_int_equal(df_tokenizer_create(&g_vocab.spec, &t, &err), code);
  assert_null(t);
  if (!strstr(err.msg, part)) fail_msg("\"%s\" does not say \"%s\"", err.msg, part);
}

static void test_tokenizer_create__refuses(void **state) {
  (void)state;
  tiny_init(&g_vocab, false);
  expect_refused(DF_ERR_ARGUMENT, "0 tokens");
  tiny_init(&g_vocab, true);
  g_vocab.spec.pre = "gpt-3";
  expect_refused(DF_ERR_UNSUPPORTED, "unknown pre-tokeniser \"gpt-3\"");
  g_vocab.spec.pre = NULL;
  expect_refused(DF_ERR_ARGUMENT, "no pre-tokeniser");
  g_vocab.spec.pre = "gpt-2";
  g_vocab.spec.eos = 256;
  expect_refused(DF_ERR_ARGUMENT, "eos id 256 is outside the vocabulary of 256");
  g_vocab.spec.eos = -2;
  expect_refused(DF_ERR_ARGUMENT, "eos id -2");
  g_vocab.spec.eos = -1;
  static const char *const bad_merges[] = {"", " ", "ab", "a ", " b", "a b", "a zz", "zz a"};
  static const char *const why[] = {"two texts", "two texts",     "two texts",     "two texts",
                                    "two texts", "makes a token", "names a token", "names a token"};
  for (size_t i = 0; i < DF_COUNT_OF(bad_merges); i++) {
    g_vocab.merges[0] = (df_slice){bad_merges[i], strlen(bad_merges[i])};
    g_vocab.spec.n_merges = 1;
    expect_refused(DF_ERR_FORMAT, why[i]);
  }
  g_vocab.spec.n_merges = 0;
  g_vocab.types[7] = 0;
  expect_refused(DF_ERR_FORMAT, "token 7 has the unknown type 0");
  g_vocab.types[7] = 7;
  expect_refused(DF_ERR_FORMAT, "unknown type 7");
  g_vocab.types[7] = DF_TOKEN_BYTE;
  expect_refused(DF_ERR_FORMAT, "byte token 7");
  g_vocab.types[7] = DF_TOKEN_NORMAL;
  char longest[DF_ADDED_TOKEN_MAX + 2];
  memset(longest, 'x', sizeof longest);
  longest[DF_ADDED_TOKEN_MAX] = '\0';
  (void)tiny_token(&g_vocab, longest, DF_TOKEN_USER);
  df_tokenizer_free(tiny_create(&g_vocab));
  longest[DF_ADDED_TOKEN_MAX] = 'x';
  longest[DF_ADDED_TOKEN_MAX + 1] = '\0';
  (void)tiny_token(&g_vocab, longest, DF_TOKEN_USER);
  expect_refused(DF_ERR_LIMIT, "added token 257 has 1025 bytes");
}

static void test_tokenizer_piece__and_queries(void **state) {
  (void)state;
  tiny_init(&g_vocab, true);
  int32_t hello = tiny_token(&g_vocab, "\xC4\xA0hi\xC4\x8A", DF_TOKEN_NORMAL); /* " hi\n" */
  int32_t odd = tiny_token(&g_vocab, "\xE4\xBD\xA0 x", DF_TOKEN_NORMAL);       /* not of the printable form */
  int32_t user = tiny_token(&g_vocab, "\xC4\xA0", DF_TOKEN_USER);              /* same text as the token of a space */
  int32_t byte = tiny_token(&g_vocab, "<0xfE>", DF_TOKEN_BYTE);
  int32_t eot = tiny_token(&g_vocab, "<|eot_id|>", DF_TOKEN_CONTROL);
  int32_t end = tiny_token(&g_vocab, "<|im_end|>", DF_TOKEN_NORMAL); /* a known text, but plain */
  int32_t unk = tiny_token(&g_vocab, "<unk>", DF_TOKEN_UNKNOWN);
  g_vocab.spec.eos = 'x';
  g_vocab.spec.mask = unk;
  df_tokenizer *t = tiny_create(&g_vocab);
  const struct {
    int32_t id;
    const char *want;
  } pieces[] = {{'A', "A"},         {' ', " "},     {0xFF, "\xFF"},     {hello, " hi\n"}, {odd, "\xE4\xBD\xA0 x"},
                {user, "\xC4\xA0"}, {byte, "\xFE"}, {eot, "<|eot_id|>"}};
  for (size_t i = 0; i < DF_COUNT_OF(pieces); i++) {
    const char *p;
    size_t n;
    assert_true(df_tokenizer_piece(t, pieces[i].id, &p, &n));
    assert_int_equal(n, strlen(pieces[i].want));
    assert_memory_equal(p, pieces[i].want, n);
  }
  const char *p = NULL;
  size_t n = 1;
  assert_false(df_tokenizer_piece(t, (int32_t)df_tokenizer_size(t), &p, &n));
  assert_false(df_tokenizer_piece(t, -1, &p, &n));
  assert_int_equal(n, 0);
  assert_int_equal(df_tokenizer_find(t, "\xC4\xA0", 2), ' ');
  assert_int_equal(df_tokenizer_find(t, " ", 1), -1);
  assert_int_equal(df_tokenizer_find(t, "<|eot_id|>", 10), eot);
  assert_int_equal(df_tokenizer_text(t, hello).n, 6);
  assert_null(df_tokenizer_text(t, -1).p);
  assert_int_equal(df_tokenizer_mask(t), unk);
  assert_int_equal(df_tokenizer_bos(t), -1);
  assert_true(df_tokenizer_is_special(t, unk) && df_tokenizer_is_special(t, eot) && !df_tokenizer_is_special(t, user));
  const int32_t *eog = df_tokenizer_eog_ids(t, &n);
  assert_int_equal(n, 2);
  assert_int_equal(eog[0], 'x');
  assert_int_equal(eog[1], eot);
  assert_true(df_tokenizer_is_eog(t, eot) && !df_tokenizer_is_eog(t, end) && !df_tokenizer_is_eog(t, -1));
  df_tokenizer_free(t);
}

static void test_tokenizer_hash__sees_every_change(void **state) {
  (void)state;
  tiny_init(&g_vocab, true);
  (void)tiny_merge(&g_vocab, "a", "b");
  (void)tiny_merge(&g_vocab, "c", "d");
  df_tokenizer *a = tiny_create(&g_vocab), *same = tiny_create(&g_vocab);
  assert_true(df_tokenizer_hash(a) == df_tokenizer_hash(same));
  assert_int_equal(df_tokenizer_first_difference(a, same), -1);
  df_slice first = g_vocab.merges[0];
  g_vocab.merges[0] = g_vocab.merges[1];
  g_vocab.merges[1] = first;
  df_tokenizer *swapped = tiny_create(&g_vocab);
  assert_true(df_tokenizer_hash(a) != df_tokenizer_hash(swapped));
  assert_int_equal(df_tokenizer_first_difference(a, swapped), -1);
  (void)tiny_token(&g_vocab, "more", DF_TOKEN_NORMAL);
  df_tokenizer *longer = tiny_create(&g_vocab);
  assert_true(df_tokenizer_hash(swapped) != df_tokenizer_hash(longer));
  assert_int_equal(df_tokenizer_first_difference(swapped, longer), 258);
  df_slice x = g_vocab.tokens[65];
  g_vocab.tokens[65] = g_vocab.tokens[66];
  g_vocab.tokens[66] = x;
  g_vocab.spec.n_merges = 0;
  df_tokenizer *other = tiny_create(&g_vocab);
  assert_int_equal(df_tokenizer_first_difference(longer, other), 65);
  df_tokenizer *all[] = {a, same, swapped, longer, other};
  for (size_t i = 0; i < DF_COUNT_OF(all); i++) df_tokenizer_free(all[i]);
}

/* A vocabulary that makes encoding use every kind of memory: NFC, long pieces, whole pieces. */
static df_status use_everything(const char *text, size_t n, df_ids *ids, df_buf *out, df_error *err) {
  df_tokenizer *t = NULL;
  df_status s = df_tokenizer_create(&g_vocab.spec, &t, err);
  if (s == DF_OK) {
    size_t before = ids->n;
    s = df_tokenizer_encode(t, text, n, SPECIAL, ids, err);
    if (s != DF_OK) assert_int_equal(ids->n, before);
  }
  if (s == DF_OK) s = df_tokenizer_decode(t, ids->v, ids->n, DF_DECODE_SHOW_SPECIAL, out, err);
  if (s != DF_OK) assert_int_equal(out->len, 0);
  df_tokenizer_free(t);
  return s;
}

static void test_tokenizer__every_allocation_may_fail(void **state) {
  (void)state;
  tiny_init(&g_vocab, true);
  (void)tiny_merge(&g_vocab, "a", "a");
  (void)tiny_token(&g_vocab, "<end>", DF_TOKEN_CONTROL);
  (void)tiny_token(&g_vocab, "<tool>", DF_TOKEN_USER);
  g_vocab.spec.pre = "qwen2";
  g_vocab.spec.eos = 'x';
  g_vocab.spec.ignore_merges = true;
  char text[600] = "<tool>e\xCC\x81\xCC\xA7 <end> ";
  size_t n = strlen(text);
  for (int i = 0; i < 24; i++, n += 2) memcpy(text + n, i % 2 ? "\xCC\x81" : "\xCC\xA7", 2);
  memset(text + n, 'a', 200);
  n += 200;
  size_t failures = 0;
  for (int sticky = 0; sticky < 2; sticky++) {
    for (uint64_t k = 1;; k++) {
      df_ids ids = {0};
      df_buf out = {0};
      df_error err = {0};
      df_mem_fail_after(k, sticky);
      df_status s = use_everything(text, n, &ids, &out, &err);
      df_mem_fail_after(0, false);
      if (s == DF_OK) assert_int_equal(ids.v[0], 258); /* never a wrong result instead of an error */
      df_ids_release(&ids);
      df_buf_release(&out);
      failures += s == DF_ERR_MEMORY;
      if (s == DF_OK && k > 200) break;
      assert_true(s == DF_OK || s == DF_ERR_MEMORY);
    }
  }
  assert_true(failures > 40);
}

typedef struct job {
  const df_tokenizer *t;
  const char *text;
  size_t n;
  const df_ids *want;
  int wrong;
} job;

static void *encode_often(void *arg) {
  job *j = arg;
  for (int i = 0; i < 50; i++) {
    df_ids ids = {0};
    if (df_tokenizer_encode(j->t, j->text, j->n, SPECIAL, &ids, NULL) != DF_OK || ids.n != j->want->n ||
        memcmp(ids.v, j->want->v, ids.n * sizeof *ids.v) != 0)
      j->wrong++;
    df_ids_release(&ids);
  }
  return NULL;
}

static void test_tokenizer_encode__from_several_threads(void **state) {
  (void)state;
  tiny_init(&g_vocab, true);
  (void)tiny_merge(&g_vocab, "a", "b");
  (void)tiny_merge(&g_vocab, "ab", "ab");
  (void)tiny_token(&g_vocab, "<end>", DF_TOKEN_CONTROL);
  g_vocab.spec.pre = "qwen2";
  df_tokenizer *t = tiny_create(&g_vocab);
  char text[3000];
  for (size_t i = 0; i < sizeof text; i++) text[i] = "ababab <end> abe\xCC\x81 12 "[i % 22];
  df_ids want = {0};
  assert_int_equal(df_tokenizer_encode(t, text, sizeof text, SPECIAL, &want, NULL), DF_OK);
  pthread_t threads[4];
  job jobs[4];
  for (int i = 0; i < 4; i++) {
    jobs[i] = (job){.t = t, .text = text, .n = sizeof text, .want = &want};
    assert_int_equal(pthread_create(&threads[i], NULL, encode_often, &jobs[i]), 0);
  }
  for (int i = 0; i < 4; i++) {
    pthread_join(threads[i], NULL);
    assert_int_equal(jobs[i].wrong, 0);
  }
  df_ids_release(&want);
  df_tokenizer_free(t);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_tokenizer_encode__lowest_rank_then_leftmost),
      cmocka_unit_test(test_tokenizer_encode__bytes_without_token_vanish),
      cmocka_unit_test(test_tokenizer_encode__added_tokens),
      cmocka_unit_test(test_tokenizer_encode__added_tokens_against_scan),
      cmocka_unit_test(test_tokenizer_encode__broken_utf8),
      cmocka_unit_test(test_tokenizer_encode__nfc_between_added_tokens),
      cmocka_unit_test(test_tokenizer_encode__bos_and_appending),
      cmocka_unit_test(test_tokenizer_encode__ignore_merges),
      cmocka_unit_test(test_tokenizer_encode__no_control_token_by_merging),
      cmocka_unit_test(test_tokenizer_encode__no_added_token_for_other_bytes),
      cmocka_unit_test(test_tokenizer_encode__equals_slow_bpe),
      cmocka_unit_test(test_tokenizer_encode__million_letters),
      cmocka_unit_test(test_tokenizer_create__refuses),
      cmocka_unit_test(test_tokenizer_piece__and_queries),
      cmocka_unit_test(test_tokenizer_hash__sees_every_change),
      cmocka_unit_test(test_tokenizer__every_allocation_may_fail),
      cmocka_unit_test(test_tokenizer_encode__from_several_threads),
  };
  return cmocka_run_group_tests_name("tokenizer_unit", tests, NULL, NULL);
}
