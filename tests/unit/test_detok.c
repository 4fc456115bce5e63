#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/size.h"
#include "support/tiny_vocab.h"
#include "text/detok.h"
#include "text/utf8.h"

#define R "\xEF\xBF\xBD"

static tiny_vocab g_vocab;

enum { END = 256, STEP, USER, HALF_A, HALF_B, LONG };

/* The 256 single bytes and a few longer tokens. */
static df_tokenizer *make(void) {
  tiny_init(&g_vocab, true);
  assert_int_equal(tiny_token(&g_vocab, "<|im_end|>", DF_TOKEN_CONTROL), END);
  assert_int_equal(tiny_token(&g_vocab, "<step>", DF_TOKEN_CONTROL), STEP);
  assert_int_equal(tiny_token(&g_vocab, "<tool>", DF_TOKEN_USER), USER);
  /* Bytes "x F0 9F" and "98 80 y", so that U+1F600 lies in two tokens. */
  assert_int_equal(tiny_token(&g_vocab, "x\xC3\xB0\xC5\x81", DF_TOKEN_NORMAL), HALF_A);
  assert_int_equal(tiny_token(&g_vocab, "\xC4\xBA\xC4\xA2y", DF_TOKEN_NORMAL), HALF_B);
  assert_int_equal(tiny_token(&g_vocab, "two\xC4\xA0words", DF_TOKEN_NORMAL), LONG);
  return tiny_create(&g_vocab);
}

/* Pushes one id and checks what comes out. */
static void expect(df_detok *d, int32_t id, const char *want) {
  df_buf out = {0};
  assert_int_equal(df_detok_push(d, id, &out, NULL), DF_OK);
  assert_string_equal(out.data ? out.data : "", want);
  df_buf_release(&out);
}

static void expect_flush(df_detok *d, const char *want) {
  df_buf out = {0};
  assert_int_equal(df_detok_flush(d, &out, NULL), DF_OK);
  assert_string_equal(out.data ? out.data : "", want);
  df_buf_release(&out);
}

static void test_detok_push__holds_back_incomplete_characters(void **state) {
  (void)state;
  df_tokenizer *t = make();
  df_detok d;
  df_detok_init(&d, t, false);
  expect(&d, LONG, "two words");
  expect(&d, HALF_A, "x");
  expect(&d, HALF_B, "\xF0\x9F\x98\x80y");
  expect(&d, 0xC3, "");
  expect(&d, 0xA9, "\xC3\xA9");
  expect(&d, 0xE2, "");
  expect(&d, 0x80, "");
  expect_flush(&d, R);
  expect_flush(&d, "");
  expect(&d, 'a', "a");
  df_tokenizer_free(t);
}

static void test_detok_push__replaces_broken_parts_at_once(void **state) {
  (void)state;
  df_tokenizer *t = make();
  df_detok d;
  df_detok_init(&d, t, false);
  expect(&d, 0xFF, R);
  expect(&d, 0x80, R);
  expect(&d, 0xF0, "");
  expect(&d, 0x9F, "");
  expect(&d, 'a', R "a"); /* the two bytes before are one part */
  expect(&d, 0xE4, "");
  expect(&d, 0xE4, R); /* the second one may still become a character */
  expect(&d, 0xBD, "");
  expect(&d, 0xA0, "\xE4\xBD\xA0");
  expect(&d, 0xF0, "");
  expect(&d, 0x80, R R); /* F0 80 begins nothing: both are broken */
  expect(&d, HALF_A, "x");
  expect(&d, LONG, R "two words");
  expect_flush(&d, "");
  df_tokenizer_free(t);
}

static void test_detok_push__special_tokens(void **state) {
  (void)state;
  df_tokenizer *t = make();
  df_detok hide, show;
  df_detok_init(&hide, t, false);
  df_detok_init(&show, t, true);
  expect(&hide, 0xC3, "");
  expect(&hide, STEP, ""); /* hidden: the character goes on behind it */
  expect(&hide, 0xA9, "\xC3\xA9");
  expect(&hide, USER, "<tool>");
  expect(&hide, END, "");
  expect(&show, 0xC3, "");
  expect(&show, STEP, R "<step>");
  expect(&show, USER, "<tool>");
  expect(&show, END, "<|im_end|>");
  df_tokenizer_free(t);
}

static void test_detok_push__failure_changes_nothing(void **state) {
  (void)state;
  df_tokenizer *t = make();
  df_detok d;
  df_error err = {0};
  df_buf out;
  df_buf_init(&out, 6);
  df_detok_init(&d, t, false);
  assert_int_equal(df_detok_push(&d, HALF_A, &out, NULL), DF_OK);
  const int32_t bad[] = {-1, (int32_t)df_tokenizer_size(t), INT32_MAX, INT32_MIN};
  for (size_t i = 0; i < DF_COUNT_OF(bad); i++) {
    assert_int_equal(df_detok_push(&d, bad[i], &out, &err), DF_ERR_ARGUMENT);
    assert_non_null(strstr(err.msg, "could not decode token"));
  }
  assert_int_equal(df_detok_push(&d, LONG, &out, NULL), DF_ERR_LIMIT);
  assert_string_equal(out.data, "x");
  assert_int_equal(df_detok_push(&d, HALF_B, &out, NULL), DF_OK); /* what was held back is still there */
  assert_string_equal(out.data, "x\xF0\x9F\x98\x80y");
  df_buf_release(&out);
  df_tokenizer_free(t);
}

static uint64_t g_seed = 12345;
static uint32_t rnd(uint32_t n) {
  g_seed = g_seed * 6364136223846793005u + 1442695040888963407u;
  return (uint32_t)(g_seed >> 33) % n;
}

/* Random ids, most of them bytes that make up characters: the stream is the replaced form of all bytes, and whole
 * characters at every step. */
static void test_detok_push__stream_equals_one_shot(void **state) {
  (void)state;
  df_tokenizer *t = make();
  df_buf raw = {0}, want = {0}, got = {0}, whole = {0};
  for (int round = 0; round < 4000; round++) {
    int32_t ids[200];
    size_t n = 0;
    while (n < 60) {
      static const uint32_t top[] = {0x80, 0x800, 0x10000, 0x110000};
      char c[4];
      uint32_t cp = rnd(top[rnd(4)]);
      size_t k = df_utf8_encode(cp >= 0xD800 && cp <= 0xDFFF ? 'x' : cp, c);
      if (rnd(8) == 0) c[rnd((uint32_t)k)] = (char)rnd(256);
      for (size_t i = rnd(10) == 0; i < k; i++) ids[n++] = (uint8_t)c[i];
      if (rnd(10) == 0) ids[n++] = END + (int32_t)rnd(6);
    }
    bool show = rnd(2);
    raw.len = want.len = got.len = whole.len = 0;
    df_detok d;
    df_detok_init(&d, t, show);
    for (size_t i = 0; i < n; i++) {
      const char *p;
      size_t k, before = got.len;
      assert_true(df_tokenizer_piece(t, ids[i], &p, &k));
      if (show || (ids[i] != END && ids[i] != STEP)) assert_int_equal(df_buf_put(&raw, p, k, NULL), DF_OK);
      assert_int_equal(df_detok_push(&d, ids[i], &got, NULL), DF_OK);
      assert_true(got.len == before || df_utf8_valid(got.data + before, got.len - before));
      assert_true(d.n_held <= 3);
    }
    assert_int_equal(df_detok_flush(&d, &got, NULL), DF_OK);
    assert_int_equal(df_utf8_put_replaced(&want, raw.data, raw.len, NULL), DF_OK);
    assert_int_equal(got.len, want.len);
    assert_memory_equal(got.data, want.data, got.len);
    unsigned flags = show ? DF_DECODE_SHOW_SPECIAL : 0;
    assert_int_equal(df_tokenizer_decode(t, ids, n, flags, &whole, NULL), DF_OK);
    assert_int_equal(whole.len, want.len);
    assert_memory_equal(whole.data, want.data, want.len);
    whole.len = 0;
    assert_int_equal(df_tokenizer_decode(t, ids, n, flags | DF_DECODE_RAW, &whole, NULL), DF_OK);
    assert_int_equal(whole.len, raw.len);
    assert_memory_equal(whole.data, raw.data, raw.len);
  }
  df_buf_release(&raw);
  df_buf_release(&want);
  df_buf_release(&got);
  df_buf_release(&whole);
  df_tokenizer_free(t);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_detok_push__holds_back_incomplete_characters),
      cmocka_unit_test(test_detok_push__replaces_broken_parts_at_once),
      cmocka_unit_test(test_detok_push__special_tokens),
      cmocka_unit_test(test_detok_push__failure_changes_nothing),
      cmocka_unit_test(test_detok_push__stream_equals_one_shot),
  };
  return cmocka_run_group_tests_name("detok", tests, NULL, NULL);
}
