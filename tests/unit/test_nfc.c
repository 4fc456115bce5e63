#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/size.h"
#include "text/tokenizer_parts.h"

static void expect(const char *text, const char *want) {
  df_buf out = {0};
  assert_int_equal(df_nfc_normalize(text, strlen(text), &out, NULL), DF_OK);
  assert_string_equal(out.data, want);
  if (df_nfc_is_plain(text, strlen(text))) assert_string_equal(text, want);
  df_buf_release(&out);
}

static void test_nfc_normalize__vectors(void **state) {
  (void)state;
  expect("abc", "abc");
  expect("e\xCC\x81", "\xC3\xA9");                                /* e + acute */
  expect("\xE2\x84\xAB \xE2\x84\xAA", "\xC3\x85 K");              /* angstrom and kelvin signs */
  expect("e\xCC\x81\xCC\xA7", "\xC8\xA9\xCC\x81");                /* the cedilla moves before the acute */
  expect("\xE1\x84\x92\xE1\x85\xA1\xE1\x86\xAB", "\xED\x95\x9C"); /* Hangul syllable from its letters */
  expect("\xE0\xA5\x9C", "\xE0\xA4\xA1\xE0\xA4\xBC");             /* excluded from composition */
  expect("\xE1\xBA\x9B\xCC\xA3", "\xE1\xBA\x9B\xCC\xA3");         /* no such pair: stays */
  expect("\xEF\xA4\x80", "\xE8\xB1\x88");                         /* compatibility ideograph with a canonical image */
  expect("\xCC\x81", "\xCC\x81");                                 /* a mark alone */
  expect("\xCE\xB1\xCC\x94\xCC\x81\xCD\x85", "\xE1\xBE\x85");     /* three marks in one character */
}

static void test_nfc_is_plain__knows_what_it_says(void **state) {
  (void)state;
  assert_true(df_nfc_is_plain("", 0));
  assert_true(df_nfc_is_plain("caf\xC3\xA9 \xC5\x93 \xCB\xBF", 12));
  assert_false(df_nfc_is_plain("e\xCC\x81", 3));
  assert_false(df_nfc_is_plain("\xE4\xBD\xA0", 3));
}

/* A long run of marks in reverse order of class comes out sorted and stable, fast: U+0301 and U+0300 have class 230,
 * U+0316 and U+0317 class 220. */
static void test_nfc_normalize__long_run_of_marks(void **state) {
  (void)state;
  enum { N = 200000 };
  char *text = malloc(2 * N + 1);
  assert_non_null(text);
  text[0] = 'x';
  for (size_t i = 0; i < N; i++) {
    static const char marks[4][3] = {"\xCC\x81", "\xCC\x96", "\xCC\x80", "\xCC\x97"};
    memcpy(text + 1 + 2 * i, marks[i % 4], 2);
  }
  df_buf out = {0};
  assert_int_equal(df_nfc_normalize(text, 2 * N + 1, &out, NULL), DF_OK);
  assert_int_equal(out.len, 2 * N + 1);
  for (size_t i = 0; i < N; i++) {
    const char *want = i < N / 2 ? (i % 2 ? "\xCC\x97" : "\xCC\x96") : (i % 2 ? "\xCC\x80" : "\xCC\x81");
    assert_memory_equal(out.data + 1 + 2 * i, want, 2);
  }
  df_buf_release(&out);
  free(text);
}

/* The NFC form of an NFC form is itself, whatever was mixed. */
static void test_nfc_normalize__is_idempotent(void **state) {
  (void)state;
  uint64_t seed = 7;
  df_buf once = {0}, twice = {0};
  for (int round = 0; round < 2000; round++) {
    char text[256];
    size_t n = 0;
    for (size_t k = 0; k < 40; k++) {
      static const char *const parts[] = {"a",
                                          "e",
                                          "\xCC\x81",
                                          "\xCC\xA7",
                                          "\xCC\xA3",
                                          "\xCD\x85",
                                          "\xE0\xA4\xBC",
                                          "\xE1\xBA\xBF",
                                          "\xED\x95\x9C",
                                          "\xE1\x86\xAB",
                                          "\xCC\x88",
                                          "\xE3\x82\x99"};
      seed = seed * 6364136223846793005u + 1442695040888963407u;
      const char *s = parts[(seed >> 33) % DF_COUNT_OF(parts)];
      memcpy(text + n, s, strlen(s));
      n += strlen(s);
    }
    assert_int_equal(df_nfc_normalize(text, n, &once, NULL), DF_OK);
    assert_int_equal(df_nfc_normalize(once.data, once.len, &twice, NULL), DF_OK);
    assert_int_equal(once.len, twice.len);
    assert_memory_equal(once.data, twice.data, once.len);
  }
  df_buf_release(&once);
  df_buf_release(&twice);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_nfc_normalize__vectors),
      cmocka_unit_test(test_nfc_is_plain__knows_what_it_says),
      cmocka_unit_test(test_nfc_normalize__long_run_of_marks),
      cmocka_unit_test(test_nfc_normalize__is_idempotent),
  };
  return cmocka_run_group_tests_name("nfc", tests, NULL, NULL);
}
