#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/buf.h"
#include "base/size.h"
#include "text/pretok.h"

/* Pieces with bars between them. */
static df_status join(void *arg, const char *piece, size_t n, df_error *err) {
  df_buf *out = arg;
  assert_true(n > 0);
  if (out->len) DF_TRY(df_buf_put(out, "|", 1, err));
  return df_buf_put(out, piece, n, err);
}

static void expect(const char *name, const char *text, const char *want) {
  df_pretok *p = NULL;
  df_error err = {0};
  df_buf out = {0};
  if (df_pretok_create(name, &p, &err) != DF_OK) fail_msg("%s", err.msg);
  if (df_pretok_run(p, text, strlen(text), join, &out, &err) != DF_OK) fail_msg("%s", err.msg);
  if (strcmp(out.data ? out.data : "", want) != 0)
    fail_msg("%s: \"%s\" gave \"%s\", not \"%s\"", name, text, out.data, want);
  df_buf_release(&out);
  df_pretok_free(p);
}

static void test_pretok_run__gpt2(void **state) {
  (void)state;
  expect("gpt-2", "", "");
  expect("gpt-2", "Hello world", "Hello| world");
  expect("gpt-2", "we'll don't I'M", "we|'ll| don|'t| I|'|M");
  expect("gpt-2", "a  b   \n c", "a| | b|   \n| c");
  expect("gpt-2", "x1234 567...", "x|1234| 567|...");
  expect("gpt-2", "end \n\n", "end| \n\n");
  /* U+0085 and U+3000 are white space, U+180E and U+200B are not. */
  expect("gpt-2", "a\xC2\x85\x62", "a|\xC2\x85|b");
  expect("gpt-2", "a\xE3\x80\x80\xE3\x80\x80\x62", "a|\xE3\x80\x80|\xE3\x80\x80|b");
  expect("gpt-2", "a \xE1\xA0\x8E\x62", "a| \xE1\xA0\x8E|b");
  expect("gpt-2", "a \xE2\x80\x8B\x62", "a| \xE2\x80\x8B|b");
}

static void test_pretok_run__smollm_splits_digits_first(void **state) {
  (void)state;
  expect("smollm", "x123", "x|1|2|3");
  expect("smollm", "a  1", "a|  |1"); /* both blanks: the look-ahead ends with the stretch before the digit */
  expect("smollm", "1's", "1|'s");
  expect("smollm", "\xC2\xBD\xE2\x85\xA7\xD9\xA3", "\xC2\xBD|\xE2\x85\xA7|\xD9\xA3"); /* No, Nl, Nd */
}

static void test_pretok_run__qwen2(void **state) {
  (void)state;
  expect("qwen2", "I'M (foo) 123", "I|'M| (|foo|)| |1|2|3");
  expect("qwen2", "f(x);\n\n  y", "f|(x|);\n\n| | y");
  expect("qwen2", "a \n \n b", "a| \n \n| b");
  expect("qwen2", "'\xC5\xBF'\xE2\x84\xAA", "'\xC5\xBF|'\xE2\x84\xAA"); /* long s folds to s */
  expect("qwen2", "\tkey", "\tkey");
  expect("qwen2", "e\xCC\x81t", "e|\xCC\x81t");
}

static void test_pretok_run__others(void **state) {
  (void)state;
  expect("llama-bpe", "x1234567 'LL", "x|123|456|7| '|LL");
  expect("llama-bpe", "it'LL", "it|'LL");
  expect("qwen35", "e\xCC\x81t 12", "e\xCC\x81t| |1|2");
  expect("gpt-4o", " NASA's fooBAR a/\nb", " NASA's| foo|BAR| a|/\n|b");
  expect("gpt-4o", "HelloWorld1234", "Hello|World|123|4");
}

static void test_pretok_create__unknown_name(void **state) {
  (void)state;
  df_pretok *p = NULL;
  const char *names[] = {"", "default", "gpt", "gpt-22", "QWEN2"};
  for (size_t i = 0; i < DF_COUNT_OF(names); i++) {
    df_error err = {0};
    assert_int_equal(df_pretok_create(names[i], &p, &err), DF_ERR_UNSUPPORTED);
    assert_null(p);
    assert_non_null(strstr(err.msg, names[i]));
    assert_non_null(strstr(err.hint, "gpt-2, smollm, qwen2"));
    assert_non_null(strstr(err.hint, "gpt-4o"));
  }
}

/* Counts bytes and pieces, fails at the third one when asked to. */
typedef struct counter {
  size_t bytes, pieces, stop_at;
} counter;

static df_status count(void *arg, const char *piece, size_t n, df_error *err) {
  counter *c = arg;
  (void)piece;
  c->bytes += n;
  if (++c->pieces == c->stop_at) return DF_FAIL(err, DF_ERR_CANCELLED, "stop");
  return DF_OK;
}

/* Runs of one character, a megabyte each: what makes patterns with nested repeats explode. */
static void test_pretok_run__long_runs(void **state) {
  (void)state;
  static char text[1 << 20];
  const char *names[] = {"gpt-2", "smollm", "qwen2", "llama-bpe", "qwen35", "gpt-4o"};
  for (size_t k = 0; k < DF_COUNT_OF(names); k++) {
    df_pretok *p = NULL;
    assert_int_equal(df_pretok_create(names[k], &p, NULL), DF_OK);
    const char fill[] = " \naA<'";
    for (size_t i = 0; i + 1 < sizeof fill; i++) {
      counter c = {0};
      memset(text, fill[i], sizeof text);
      text[sizeof text - 1] = '!';
      assert_int_equal(df_pretok_run(p, text, sizeof text, count, &c, NULL), DF_OK);
      assert_int_equal(c.bytes, sizeof text);
      assert_true(c.pieces <= 3);
    }
    df_pretok_free(p);
  }
}

static void test_pretok_run__callback_stops_it(void **state) {
  (void)state;
  df_pretok *p = NULL;
  df_error err = {0};
  counter c = {.stop_at = 3};
  assert_int_equal(df_pretok_create("smollm", &p, NULL), DF_OK);
  assert_int_equal(df_pretok_run(p, "1a 2b 3c", 8, count, &c, &err), DF_ERR_CANCELLED);
  assert_int_equal(c.pieces, 3);
  assert_string_equal(err.msg, "stop");
  df_pretok_free(p);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_pretok_run__gpt2),
      cmocka_unit_test(test_pretok_run__smollm_splits_digits_first),
      cmocka_unit_test(test_pretok_run__qwen2),
      cmocka_unit_test(test_pretok_run__others),
      cmocka_unit_test(test_pretok_create__unknown_name),
      cmocka_unit_test(test_pretok_run__long_runs),
      cmocka_unit_test(test_pretok_run__callback_stops_it),
  };
  return cmocka_run_group_tests_name("pretok", tests, NULL, NULL);
}
