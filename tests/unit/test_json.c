/* JSON reading and writing. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <float.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "format/json.h"
#include "format/limits.h"
#include "support/sample_files.h"

#define OK(expr) assert_int_equal((expr), DF_OK)

static df_json *parse(const char *text) {
  df_json *root = NULL;
  df_error err = {0};
  if (df_json_parse(text, strlen(text), &root, &err) != DF_OK) fail_msg("%s: %s", text, err.msg);
  return root;
}

static void expect_parse(const void *text, size_t n, df_status want, const char *why) {
  df_json *root = NULL;
  df_error err = {0};
  df_status s = df_json_parse(text, n, &root, &err);
  if (s != want || (want != DF_OK && !strstr(err.msg, why)))
    fail_msg("%.*s: got %s \"%s\"", (int)n, (const char *)text, df_status_name(s), err.msg);
  if (s == DF_OK) df_json_free(root);
}

static void test_json_equals__the_whole_string(void **state) {
  (void)state;
  df_json *root = parse("{\"a\":\"auto\",\"z\":\"auto\\u0000\",\"e\":\"\",\"n\":5}");
  assert_true(df_json_equals(df_json_member(root, "a"), "auto"));
  assert_false(df_json_equals(df_json_member(root, "a"), "aut"));
  assert_false(df_json_equals(df_json_member(root, "a"), "autos"));
  assert_false(df_json_equals(df_json_member(root, "z"), "auto"));
  assert_true(df_json_equals(df_json_member(root, "e"), ""));
  assert_false(df_json_equals(df_json_member(root, "n"), "5"));
  assert_false(df_json_equals(df_json_member(root, "absent"), ""));
  df_json_free(root);
}

static void expect_error(df_status got, const df_error *err, const char *text) {
  assert_int_equal(got, DF_ERR_FORMAT);
  if (!strstr(err->msg, text)) fail_msg("message \"%s\" lacks \"%s\"", err->msg, text);
}

static void test_json_parse__kinds_and_values(void **state) {
  (void)state;
  df_json *root = parse(
      "{\"n\":null,\"t\":true,\"f\":false,\"i\":-9223372036854775808,\"r\":0.1,\"s\":\"a\\u0000\\u00e9\\ud83d\\ude00\","
      "\"a\":[1,[2]],\"o\":{}}");
  size_t len = 0;
  const char *s = df_json_str(df_json_member(root, "s"), &len);
  assert_int_equal(df_json_kind_of(root), DF_JSON_OBJECT);
  assert_int_equal(df_json_size(root), 8);
  assert_int_equal(df_json_kind_of(df_json_member(root, "n")), DF_JSON_NULL);
  assert_int_equal(df_json_kind_of(df_json_member(root, "absent")), DF_JSON_NULL);
  assert_null(df_json_member(root, "absent"));
  assert_non_null(df_json_member(root, "n"));
  assert_true(df_json_bool(df_json_member(root, "t")));
  assert_false(df_json_bool(df_json_member(root, "f")));
  assert_int_equal(df_json_kind_of(df_json_member(root, "f")), DF_JSON_BOOL);
  assert_true(df_json_int(df_json_member(root, "i")) == INT64_MIN);
  assert_true(df_json_num(df_json_member(root, "r")) == 0.1);
  assert_int_equal(len, 8);
  assert_memory_equal(s, "a\0\xC3\xA9\xF0\x9F\x98\x80", 9);
  const df_json *a = df_json_member(root, "a");
  assert_int_equal(df_json_size(a), 2);
  assert_true(df_json_int(df_json_at(df_json_at(a, 1), 0)) == 2);
  assert_null(df_json_at(a, 2));
  assert_null(df_json_at(root, 0));
  assert_null(df_json_member(a, "x"));
  assert_null(df_json_str(a, &len));
  df_json_free(root);
}

static void test_json_next__keeps_file_order(void **state) {
  (void)state;
  df_json *root = parse("{\"z\":1,\"a\":2,\"\":3,\"m\":4,\"k1\":5,\"k2\":6,\"k3\":7,\"k4\":8,\"k5\":9,\"k6\":10}");
  const char *want[] = {"z", "a", "", "m", "k1", "k2", "k3", "k4", "k5", "k6"}, *key;
  size_t len;
  const df_json *v;
  df_json_iter it = df_json_begin(root);
  for (int i = 0; i < 10; i++) {
    assert_true(df_json_next(&it, &key, &len, &v));
    assert_string_equal(key, want[i]);
    assert_int_equal(len, strlen(want[i]));
    assert_int_equal(df_json_int(v), i + 1);
  }
  assert_false(df_json_next(&it, &key, &len, &v));
  df_json_free(root);
  it = df_json_begin(NULL);
  assert_false(df_json_next(&it, &key, &len, &v));
}

static void test_json_parse__refuses(void **state) {
  (void)state;
  const char *const bad[] = {
      "",     "{",         "[1,]",     "{\"a\":1,}",   "nul", "01", "1 2",   "\"\\ud800\"",       "'a'",
      "[1}",  "{\"a\" 1}", "\"\xFF\"", "\"\xC0\x80\"", "NaN", "+1", "1e999", "{\"a\":1,\"a\":2}", "\"a\nb\"",
      "{1:2}"};
  for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
    expect_parse(bad[i], strlen(bad[i]), DF_ERR_FORMAT, "could not parse JSON: line 1 column");
  expect_parse("1\0", 2, DF_ERR_FORMAT, "zero byte at offset 1");
  expect_parse("\"\\\0\"", 4, DF_ERR_FORMAT, "zero byte at offset 2");
  expect_parse("{\"key\":\n  oops}", 15, DF_ERR_FORMAT, "line 2");
  expect_parse(" 1 \n", 4, DF_OK, NULL);
}

static void test_json_parse__depth_limit(void **state) {
  (void)state;
  enum { MAX = DF_LIMIT_JSON_DEPTH + 1 };
  char text[2 * MAX + 1];
  for (int extra = 0; extra < 2; extra++) {
    int depth = DF_LIMIT_JSON_DEPTH + extra;
    memset(text, '[', (size_t)depth);
    memset(text + depth, ']', (size_t)depth);
    expect_parse(text, 2 * (size_t)depth, extra ? DF_ERR_LIMIT : DF_OK, "nested deeper than 128");
  }
  /* A string that ends in an escaped backslash must not hide what follows it. */
  char after[2 * MAX + 16];
  int n = snprintf(after, sizeof after, "[\"\\\\\",");
  memset(after + n, '[', MAX);
  memset(after + n + MAX, ']', MAX);
  after[n + 2 * MAX] = ']';
  expect_parse(after, (size_t)n + 2 * MAX + 1, DF_ERR_LIMIT, "nested deeper than 128");
  /* Brackets in strings and closed ones do not count. */
  df_buf b;
  df_buf_init(&b, 0);
  test_put(&b, "[\"\\\"", 4);
  for (int i = 0; i < 500; i++) test_put(&b, "[{", 2);
  test_put(&b, "\"", 1);
  for (int i = 0; i < 500; i++) test_put(&b, ",[]", 3);
  test_put(&b, "]", 1);
  expect_parse(b.data, b.len, DF_OK, NULL);
  df_buf_release(&b);
}

/* Tokenizer files hold 1000000000000000019884624838656 as "no limit". */
static void test_json_parse__integers_beyond_64_bits(void **state) {
  (void)state;
  df_json *root = parse("{\"big\":1000000000000000019884624838656,\"n\":12}");
  int64_t v;
  assert_true(df_json_num(df_json_member(root, "big")) == 1000000000000000019884624838656.0);
  OK(df_json_opt_i64(root, "n", 0, 0, 100, &v, NULL));
  assert_int_equal(v, 12);
  df_error err;
  expect_error(df_json_opt_i64(root, "big", 0, 0, INT64_MAX, &v, &err), &err, "key \"big\" is 1e+30");
  df_json_free(root);
}

static void test_json_opt__defaults_ranges_kinds(void **state) {
  (void)state;
  df_json *root = parse(
      "{\"i\":7,\"r\":2.0,\"h\":2.5,\"neg\":-1,\"s\":\"txt\",\"z\":\"a\\u0000b\",\"null\":null,\"b\":true,\"a\":[],"
      "\"big\":5000000000}");
  df_error err;
  int64_t i = 99;
  uint32_t u = 99;
  double d = 99;
  bool b;
  const char *s;
  const df_json *t;
  OK(df_json_opt_i64(root, "absent", -5, 0, 10, &i, NULL));
  assert_int_equal(i, -5); /* the default need not be in range */
  OK(df_json_opt_i64(root, "null", 3, 0, 10, &i, NULL));
  assert_int_equal(i, 3);
  OK(df_json_opt_i64(root, "i", 0, 7, 7, &i, NULL));
  assert_int_equal(i, 7);
  OK(df_json_opt_i64(root, "r", 0, 0, 10, &i, NULL));
  assert_int_equal(i, 2);
  expect_error(df_json_opt_i64(root, "h", 0, 0, 10, &i, &err), &err,
               "key \"h\" is 2.5, expected an integer from 0 to 10");
  expect_error(df_json_opt_i64(root, "neg", 0, 0, 10, &i, &err), &err, "key \"neg\" is -1, expected 0 to 10");
  expect_error(df_json_opt_i64(root, "s", 0, 0, 10, &i, &err), &err, "key \"s\" is a string, expected an integer");
  assert_int_equal(i, 2);
  OK(df_json_opt_u32(root, "i", 0, 0, UINT32_MAX, &u, NULL));
  assert_int_equal(u, 7);
  expect_error(df_json_opt_u32(root, "big", 0, 0, UINT32_MAX, &u, &err), &err, "expected 0 to 4294967295");
  OK(df_json_opt_f64(root, "h", 0, 0, 10, &d, NULL));
  assert_true(d == 2.5);
  OK(df_json_opt_f64(root, "i", 0, 0, 10, &d, NULL));
  assert_true(d == 7);
  expect_error(df_json_opt_f64(root, "h", 0, 0, 1, &d, &err), &err, "key \"h\" is 2.5, expected 0 to 1");
  expect_error(df_json_opt_f64(root, "b", 0, 0, 1, &d, &err), &err, "is a bool, expected a number");
  OK(df_json_opt_bool(root, "b", false, &b, NULL));
  assert_true(b);
  expect_error(df_json_opt_bool(root, "i", false, &b, &err), &err, "is an integer, expected a bool");
  OK(df_json_opt_str(root, "s", NULL, &s, NULL));
  assert_string_equal(s, "txt");
  OK(df_json_opt_str(root, "null", "def", &s, NULL));
  assert_string_equal(s, "def");
  expect_error(df_json_opt_str(root, "z", NULL, &s, &err), &err, "contains a zero byte");
  expect_error(df_json_opt_str(root, "a", NULL, &s, &err), &err, "is an array, expected a string");
  OK(df_json_opt_tree(root, "a", DF_JSON_ARRAY, &t, NULL));
  assert_ptr_equal(t, df_json_member(root, "a"));
  expect_error(df_json_opt_tree(root, "a", DF_JSON_OBJECT, &t, &err), &err, "is an array, expected an object");
  OK(df_json_need(root, "i", NULL));
  expect_error(df_json_need(root, "null", &err), &err, "key \"null\" is missing");
  df_json_free(root);
}

static void test_json_load__names_the_file(void **state) {
  (void)state;
  char *dir = test_dir_create();
  df_json *root = NULL;
  df_error err = {0};
  const char *path = test_dir_write(dir, "x.json", "{\"a\": oops}", 11);
  expect_error(df_json_load(path, 1000, &root, &err), &err, "x.json\": could not parse JSON: line 1 column");
  assert_int_equal(df_json_load(path, 10, &root, &err), DF_ERR_LIMIT);
  assert_non_null(strstr(err.msg, "11 bytes, at most 10"));
  assert_int_equal(df_json_load(dir, 10, &root, &err), DF_ERR_IO);
  path = test_dir_write(dir, "y.json", "[3]", 3);
  OK(df_json_load(path, 3, &root, &err));
  assert_int_equal(df_json_int(df_json_at(root, 0)), 3);
  df_json_free(root);
  test_dir_remove(dir);
}

/* ---- writing ------------------------------------------------------------------------------------------- */

static void test_json_out__document(void **state) {
  (void)state;
  df_buf b;
  df_json_out w;
  df_json *v = parse("[ 1 , {\"k\" : [null, 2.5]} ]");
  df_buf_init(&b, 0);
  df_json_out_begin(&w, &b, NULL);
  df_json_out_object(&w);
  df_json_out_key(&w, "text");
  df_json_out_cstr(&w, "q\"\\/\n\r\t\b\f\x01\x7F\xC3\xA9");
  df_json_out_key(&w, "list");
  df_json_out_array(&w);
  df_json_out_i64(&w, INT64_MIN);
  df_json_out_u64(&w, UINT64_MAX);
  df_json_out_f64(&w, 0.1);
  df_json_out_f64(&w, -1e300);
  df_json_out_f64(&w, NAN);
  df_json_out_bool(&w, true);
  df_json_out_null(&w);
  df_json_out_array(&w);
  df_json_out_close(&w);
  df_json_out_object(&w);
  df_json_out_close(&w);
  df_json_out_close(&w);
  df_json_out_key(&w, "copy");
  df_json_out_value(&w, v);
  df_json_out_key(&w, "raw");
  df_json_out_raw(&w, "{\"x\":1}", 7);
  df_json_out_close(&w);
  OK(df_json_out_end(&w));
  assert_string_equal(b.data,
                      "{\"text\":\"q\\\"\\\\/"
                      "\\n\\r\\t\\b\\f\\u0001\\u007f\xC3\xA9\",\"list\":[-9223372036854775808,18446744073709551615,"
                      "0.1,-1e+300,null,true,null,[],{}],\"copy\":[1,{\"k\":[null,2.5]}],\"raw\":{\"x\":1}}");
  df_json_free(v);
  df_buf_release(&b);
}

static void expect_quoted(const char *s, size_t n, const char *want) {
  df_buf b;
  df_buf_init(&b, 0);
  OK(df_json_quote(&b, s, n, NULL));
  assert_string_equal(b.data, want);
  df_buf_release(&b);
}

#define BAD "\xEF\xBF\xBD"

/* Maximal subparts as in the Unicode standard, section 3.9, tables 3-8 to 3-11. */
static void test_json_quote__bad_utf8(void **state) {
  (void)state;
  expect_quoted("\xC0\xAF\xE0\x80\xBF\xF0\x81\x82\x41", 9, "\"" BAD BAD BAD BAD BAD BAD BAD BAD "A\"");
  expect_quoted("\xED\xA0\x80\xED\xBF\xBF\xED\xAF\x41", 9, "\"" BAD BAD BAD BAD BAD BAD BAD BAD "A\"");
  expect_quoted("\xF4\x91\x92\x93\xFF\x41\x80\xBF\x42", 9, "\"" BAD BAD BAD BAD BAD "A" BAD BAD "B\"");
  expect_quoted("\xE1\x80\xE2\xF0\x91\x92\xF1\xBF\x41", 9, "\"" BAD BAD BAD BAD "A\"");
  expect_quoted("\xF4\x8F\xBF\xBF\xEE\x80\x80\xE0\xA0\x80", 10, "\"\xF4\x8F\xBF\xBF\xEE\x80\x80\xE0\xA0\x80\"");
  expect_quoted("x\xF0\x9F\x98", 4, "\"x" BAD "\"");
  expect_quoted("a\0b", 3, "\"a\\u0000b\"");
  expect_quoted("", 0, "\"\"");
}

static uint64_t next_random(uint64_t *s) {
  *s ^= *s << 13;
  *s ^= *s >> 7;
  *s ^= *s << 17;
  return *s;
}

/* Every finite double survives writing and reading, and 15 digits are used when they are enough. */
static void test_json_put__key_and_value(void **state) {
  (void)state;
  static const char want[] = "{\"a\":\"x\\n\",\"b\":null,\"c\":18446744073709551615,\"d\":0.5,\"e\":true,\"f\":null}";
  df_buf b;
  df_json_out w;
  df_buf_init(&b, 0);
  df_json_out_begin(&w, &b, NULL);
  df_json_out_object(&w);
  df_json_put_cstr(&w, "a", "x\n");
  df_json_put_cstr(&w, "b", NULL);
  df_json_put_u64(&w, "c", UINT64_MAX);
  df_json_put_f64(&w, "d", 0.5);
  df_json_put_bool(&w, "e", true);
  df_json_put_null(&w, "f");
  df_json_out_close(&w);
  assert_int_equal(df_json_out_end(&w), DF_OK);
  assert_int_equal(b.len, sizeof want - 1);
  assert_memory_equal(b.data, want, b.len);
  df_buf_release(&b);
}

static void test_json_out_f64__reads_back_equal(void **state) {
  (void)state;
  uint64_t seed = 88172645463325252u;
  for (int i = 0; i < 20000; i++) {
    uint64_t bits = next_random(&seed);
    double d;
    memcpy(&d, &bits, sizeof d);
    if (i == 0) d = DBL_MIN;
    if (i == 1) d = DBL_TRUE_MIN;
    if (i == 2) d = DBL_MAX;
    if (i == 3) d = 1.0 / 3;
    if (i == 4) d = -0.0;
    if (i == 5) d = 1;
    if (!isfinite(d)) continue;
    df_buf b;
    df_json_out w;
    df_json *v = NULL;
    df_buf_init(&b, 0);
    df_json_out_begin(&w, &b, NULL);
    df_json_out_f64(&w, d);
    OK(df_json_out_end(&w));
    OK(df_json_parse(b.data, b.len, &v, NULL));
    assert_int_equal(df_json_kind_of(v), DF_JSON_REAL);
    assert_true(df_json_num(v) == d && !signbit(df_json_num(v)) == !signbit(d));
    if (i == 4) assert_string_equal(b.data, "-0.0");
    if (i == 3) assert_string_equal(b.data, "0.3333333333333333");
    df_json_free(v);
    df_buf_release(&b);
  }
}

/* Random bytes as a string: the output parses, and parses back to the same bytes when they were UTF-8. */
static void test_json_quote__random_strings(void **state) {
  (void)state;
  uint64_t seed = 42;
  for (int i = 0; i < 20000; i++) {
    char raw[16];
    size_t n = next_random(&seed) % sizeof raw, len = 0;
    for (size_t j = 0; j < n; j++) raw[j] = (char)(i % 2 ? next_random(&seed) & 0x7F : next_random(&seed));
    df_buf b;
    df_json *v = NULL;
    df_buf_init(&b, 0);
    OK(df_json_quote(&b, raw, n, NULL));
    OK(df_json_parse(b.data, b.len, &v, NULL));
    const char *s = df_json_str(v, &len);
    if (i % 2) {
      assert_int_equal(len, n);
      assert_memory_equal(s, raw, n);
    }
    df_json_free(v);
    df_buf_release(&b);
  }
}

static void test_json_out__first_failure_sticks(void **state) {
  (void)state;
  df_buf b;
  df_json_out w;
  df_error err = {0};
  df_buf_init(&b, 8);
  df_json_out_begin(&w, &b, &err);
  df_json_out_array(&w);
  df_json_out_i64(&w, 123456789);
  df_json_out_i64(&w, 1); /* would fit, must not be written */
  df_json_out_close(&w);
  assert_int_equal(df_json_out_end(&w), DF_ERR_LIMIT);
  assert_int_equal(err.code, DF_ERR_LIMIT);
  assert_string_equal(b.data, "[");
  df_buf_release(&b);
  df_buf_init(&b, 0);
  df_json_out_begin(&w, &b, &err);
  for (int i = 0; i < 129; i++) df_json_out_array(&w);
  for (int i = 0; i < 128; i++) df_json_out_close(&w);
  assert_int_equal(df_json_out_end(&w), DF_ERR_LIMIT);
  df_buf_release(&b);
}

static df_status parse_job(void *arg, df_error *err) {
  df_json *root = NULL;
  df_status s = df_json_parse(arg, strlen(arg), &root, err);
  if (s == DF_OK) df_json_free(root);
  return s;
}

static df_status write_job(void *arg, df_error *err) {
  df_buf b;
  df_json_out w;
  df_buf_init(&b, 0);
  df_json_out_begin(&w, &b, err);
  df_json_out_object(&w);
  df_json_out_key(&w, "k");
  for (int i = 0; i < 3; i++) df_json_out_value(&w, arg);
  df_json_out_close(&w);
  df_status s = df_json_out_end(&w);
  df_buf_release(&b);
  return s;
}

static void test_json__every_allocation_fails(void **state) {
  (void)state;
  char text[] =
      "{\"a\":[1,2.5,\"some text that is longer than a first "
      "buffer\",{\"b\":null,\"c\":true}],\"d\":\"\\u00e9\",\"e\":-1,"
      "\"f\":[[],{}],\"g\":1,\"h\":2,\"i\":3,\"j\":4,\"k\":5,\"l\":6,\"m\":123456789012345678901234567890}";
  assert_true(test_each_allocation_fails(parse_job, text) >= 3);
  /* A text whose values, keys and one long string fill many chunks. */
  df_buf b;
  df_buf_init(&b, 0);
  test_put(&b, "{\"long\":\"", 9);
  for (int i = 0; i < 20000; i++) test_put(&b, "x", 1);
  test_put(&b, "\"", 1);
  for (int i = 0; i < 2000; i++) OK(df_buf_printf(&b, NULL, ",\"key%d\":[%d]", i, i));
  test_put(&b, "}", 1);
  assert_true(test_each_allocation_fails(parse_job, b.data) >= 8);
  df_json *big = parse(b.data);
  assert_int_equal(df_json_int(df_json_at(df_json_member(big, "key1999"), 0)), 1999);
  df_json_free(big);
  df_buf_release(&b);
  df_json *root = parse(text);
  df_json *quoted = parse("\"0123456789012345678901234567890123456789012345678901234567890123456789\"");
  assert_true(test_each_allocation_fails(write_job, quoted) >= 2);
  df_json_free(quoted);
  df_json_free(root);
}

static void *parse_many(void *arg) {
  char text[64];
  for (int i = 0; i < 300; i++) {
    df_json *root = NULL;
    (void)snprintf(text, sizeof text, "{\"a\":[%d,\"thread %d\"]%s", i, *(int *)arg, i % 3 ? "}" : "");
    df_status s = df_json_parse(text, strlen(text), &root, NULL);
    if (s != (i % 3 ? DF_OK : DF_ERR_FORMAT)) return arg;
    if (s == DF_OK && df_json_int(df_json_at(df_json_member(root, "a"), 0)) != i) return arg;
    if (s == DF_OK) df_json_free(root);
  }
  return NULL;
}

static void test_json_parse__from_many_threads(void **state) {
  (void)state;
  pthread_t threads[4];
  int ids[4] = {0, 1, 2, 3};
  for (int i = 0; i < 4; i++) assert_int_equal(pthread_create(&threads[i], NULL, parse_many, &ids[i]), 0);
  for (int i = 0; i < 4; i++) {
    void *bad = NULL;
    assert_int_equal(pthread_join(threads[i], &bad), 0);
    assert_null(bad);
  }
}

static void test_json_parse__constants_as_root(void **state) {
  (void)state;
  const char *const texts[] = {"null", "true", "false", "7", "\"s\""};
  const df_json_kind kinds[] = {DF_JSON_NULL, DF_JSON_BOOL, DF_JSON_BOOL, DF_JSON_INT, DF_JSON_STRING};
  for (int i = 0; i < 5; i++) {
    df_json *root = parse(texts[i]);
    assert_int_equal(df_json_kind_of(root), kinds[i]);
    df_json_free(root);
  }
  df_json_free(NULL);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_json_parse__kinds_and_values),
      cmocka_unit_test(test_json_equals__the_whole_string),
      cmocka_unit_test(test_json_next__keeps_file_order),
      cmocka_unit_test(test_json_parse__refuses),
      cmocka_unit_test(test_json_parse__depth_limit),
      cmocka_unit_test(test_json_parse__from_many_threads),
      cmocka_unit_test(test_json_parse__constants_as_root),
      cmocka_unit_test(test_json_parse__integers_beyond_64_bits),
      cmocka_unit_test(test_json_opt__defaults_ranges_kinds),
      cmocka_unit_test(test_json_load__names_the_file),
      cmocka_unit_test(test_json_out__document),
      cmocka_unit_test(test_json_quote__bad_utf8),
      cmocka_unit_test(test_json_put__key_and_value),
      cmocka_unit_test(test_json_out_f64__reads_back_equal),
      cmocka_unit_test(test_json_quote__random_strings),
      cmocka_unit_test(test_json_out__first_failure_sticks),
      cmocka_unit_test(test_json__every_allocation_fails),
  };
  return cmocka_run_group_tests_name("json", tests, NULL, NULL);
}
