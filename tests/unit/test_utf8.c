#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "text/utf8.h"

static bool is_scalar(uint32_t cp) { return cp < 0x110000 && (cp < 0xD800 || cp > 0xDFFF); }

/* The definition of UTF-8 written down once more, as bit fields. */
static size_t plain_encode(uint32_t cp, uint8_t *out) {
  size_t n = cp < 0x80 ? 1 : cp < 0x800 ? 2 : cp < 0x10000 ? 3 : 4;
  for (size_t i = n; i-- > 1; cp >>= 6) out[i] = (uint8_t)(0x80 + cp % 64);
  static const uint8_t mark[5] = {0, 0, 0xC0, 0xE0, 0xF0};
  out[0] = (uint8_t)(mark[n] + cp);
  return n;
}

static void test_utf8_encode__every_character(void **state) {
  (void)state;
  for (uint32_t cp = 0; cp < 0x110000; cp++) {
    if (!is_scalar(cp)) continue;
    uint8_t want[4];
    char got[4];
    size_t n = plain_encode(cp, want);
    assert_int_equal(df_utf8_encode(cp, got), n);
    assert_memory_equal(got, want, n);
    df_utf8_kind kind;
    uint32_t back = 0;
    assert_int_equal(df_utf8_step(got, n, &kind, &back), n);
    assert_int_equal(kind, DF_UTF8_CHAR);
    assert_int_equal(back, cp);
    for (size_t k = 1; k < n; k++) {
      assert_int_equal(df_utf8_step(got, k, &kind, NULL), k);
      assert_int_equal(kind, DF_UTF8_INCOMPLETE);
    }
  }
}

/* Bit sets of all beginnings of valid characters, 1 to 3 bytes long, made by encoding every character. */
static uint8_t *make_prefixes(void) {
  uint8_t *set = calloc(3, 1 << 21);
  assert_non_null(set);
  for (uint32_t cp = 0; cp < 0x110000; cp++) {
    uint8_t b[4];
    if (!is_scalar(cp)) continue;
    size_t n = plain_encode(cp, b);
    uint32_t key = 0;
    for (size_t i = 0; i < n && i < 3; i++) {
      key = key << 8 | b[i];
      set[((i << 24) + key) >> 3] |= (uint8_t)(1 << (key & 7));
    }
  }
  return set;
}

/* "Maximal subpart" by its definition: the longest beginning of the text that begins some character, or one byte. */
static size_t slow_step(const uint8_t *set, const uint8_t *p, size_t n, bool *whole) {
  size_t best = 0;
  uint32_t key = 0;
  size_t want = p[0] < 0x80 ? 1 : p[0] < 0xE0 ? 2 : p[0] < 0xF0 ? 3 : 4;
  for (size_t i = 0; i < n && i < want && i < 3; i++) {
    key = key << 8 | p[i];
    if (!(set[((i << 24) + key) >> 3] >> (key & 7) & 1)) break;
    best = i + 1;
  }
  if (best == 3 && want == 4 && n >= 4 && p[3] >= 0x80 && p[3] <= 0xBF) best = 4;
  *whole = best == want;
  return best ? best : 1;
}

static void test_utf8_count__characters_not_bytes(void **state) {
  (void)state;
  static const char text[] = "a\xc3\xa9\xe2\x82\xac\xf0\x9f\x99\x82z";
  assert_int_equal(df_utf8_count(text, sizeof text - 1), 5);
  assert_int_equal(df_utf8_count(text, 3), 2);
  assert_int_equal(df_utf8_count("", 0), 0);
}

static void test_utf8_put_replaced__equals_the_definition(void **state) {
  (void)state;
  /* Bytes next to every border of the tables. */
  static const uint8_t edge[] = {0x00, 0x41, 0x7F, 0x80, 0x8F, 0x90, 0x9F, 0xA0, 0xBF, 0xC0, 0xC1, 0xC2, 0xDF,
                                 0xE0, 0xE1, 0xEC, 0xED, 0xEE, 0xEF, 0xF0, 0xF1, 0xF3, 0xF4, 0xF5, 0xF8, 0xFF};
  enum { N = sizeof edge };
  uint8_t *set = make_prefixes();
  df_buf got = {0}, want = {0};
  for (size_t code = 0; code < (size_t)N * N * N * N; code++) {
    uint8_t text[4] = {edge[code % N], edge[code / N % N], edge[code / N / N % N], edge[code / N / N / N]};
    got.len = want.len = 0;
    assert_int_equal(df_utf8_put_replaced(&got, (const char *)text, 4, NULL), DF_OK);
    size_t good = 4;
    for (size_t i = 0; i < 4;) {
      bool whole;
      size_t k = slow_step(set, text + i, 4 - i, &whole);
      assert_int_equal(df_buf_put(&want, whole ? (const char *)text + i : "\xEF\xBF\xBD", whole ? k : 3, NULL), DF_OK);
      if (!whole && good == 4) good = i;
      i += k;
    }
    assert_int_equal(got.len, want.len);
    assert_memory_equal(got.data, want.data, got.len);
    assert_int_equal(df_utf8_valid_prefix((const char *)text, 4), good);
  }
  free(set);
  df_buf_release(&got);
  df_buf_release(&want);
}

#define R "\xEF\xBF\xBD"

static void test_utf8_put_replaced__python_vectors(void **state) {
  (void)state;
  /* bytes.decode("utf-8", "replace") of Python 3.11; the first is table 3-8 of the Unicode standard. */
  static const struct {
    const char *in, *out;
  } cases[] = {
      {"\x61\xF1\x80\x80\xE1\x80\xC2\x62\x80\x63\x80\xBF\x64", "a" R R R "b" R "c" R R "d"},
      {"\xE0\x80\x80", R R R},
      {"\xED\xA0\x80", R R R},
      {"\xED\x9F\xBF", "\xED\x9F\xBF"},
      {"\xF0\x80\x80\x80", R R R R},
      {"\xF4\x90\x80\x80", R R R R},
      {"\xF0\x9F\x98", R},
      {"\xF0\x9F\x98\xF0\x9F\x98\x80", R "\xF0\x9F\x98\x80"},
      {"\xE4\xBD\x41", R "A"},
      {"\xC3", R},
      {"\xC3\xC3\xA9", R "\xC3\xA9"},
      {"\xF8\x88\x80\x80\x80", R R R R R},
      {"ok \xFE\xFF", "ok " R R},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    df_buf out = {0};
    assert_int_equal(df_utf8_put_replaced(&out, cases[i].in, strlen(cases[i].in), NULL), DF_OK);
    assert_string_equal(out.data, cases[i].out);
    df_buf_release(&out);
  }
}

static void test_utf8_valid_prefix__any_place_in_long_text(void **state) {
  (void)state;
  char text[64];
  for (size_t at = 0; at < 40; at++) {
    memset(text, 'x', sizeof text);
    assert_true(df_utf8_valid(text, sizeof text));
    memcpy(text + at, "\xE4\xBD\xA0", 3);
    assert_int_equal(df_utf8_valid_prefix(text, sizeof text), sizeof text);
    assert_int_equal(df_utf8_valid_prefix(text, at + 2), at);
    text[at + 1] = (char)0xFF;
    assert_int_equal(df_utf8_valid_prefix(text, sizeof text), at);
  }
  assert_true(df_utf8_valid("", 0));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_utf8_encode__every_character),
      cmocka_unit_test(test_utf8_count__characters_not_bytes),
      cmocka_unit_test(test_utf8_put_replaced__equals_the_definition),
      cmocka_unit_test(test_utf8_put_replaced__python_vectors),
      cmocka_unit_test(test_utf8_valid_prefix__any_place_in_long_text),
  };
  return cmocka_run_group_tests_name("utf8", tests, NULL, NULL);
}
