/* safetensors files, whole, sharded and damaged. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "format/safetensors.h"
#include "support/sample_files.h"

#define OK(expr) assert_int_equal((expr), DF_OK)

static const uint8_t k_data[64] = {1,  2,  3,  4,  5,  6,  7,  8,  9,  10, 11, 12, 13, 14, 15, 16,
                                   17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31, 32};

/* A copy of exactly n bytes, so that the sanitizer sees every read past the end. */
static df_status open_copy(const void *data, size_t n, df_st **out, df_error *err, void **copy) {
  *copy = df_alloc(n);
  assert_non_null(*copy);
  memcpy(*copy, data, n);
  return df_st_open_bytes(*copy, n, "x.st", out, err);
}

static void expect_bytes(const df_buf *b, df_status want, const char *why) {
  df_st *st = NULL;
  df_error err = {0};
  void *copy;
  df_status s = open_copy(b->data, b->len, &st, &err, &copy);
  if (s != want || (s != DF_OK && (!strstr(err.msg, why) || !strstr(err.msg, "x.st"))))
    fail_msg("got %s \"%s\", expected %s \"%s\"", df_status_name(s), err.msg, df_status_name(want), why ? why : "");
  if (s == DF_OK) df_st_free(st);
  df_free(copy);
}

static void expect_header(const char *header, size_t data_bytes, df_status want, const char *why) {
  df_buf b;
  df_buf_init(&b, 0);
  test_put_safetensors(&b, header, k_data, data_bytes);
  expect_bytes(&b, want, why);
  df_buf_release(&b);
}

#define T(name, dtype, shape, begin, end) \
  "\"" name "\":{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":[" #begin "," #end "]}"

static void test_st_open_bytes__tensors(void **state) {
  (void)state;
  df_buf b;
  df_st *st = NULL;
  const char *header = "{\"__metadata__\":{\"format\":\"pt\"}," T("b", "BF16", "[2,3]", 4, 16) "," T(
      "a", "F32", "[]", 0, 4) "," T("none", "F16", "[0,7]", 16, 16) "," T("five", "U8", "[1,1,2,1,2]", 16,
                                                                          20) "," T("f4", "F4", "[3,2]", 20, 23) "}";
  df_buf_init(&b, 0);
  test_put_safetensors(&b, header, k_data, 23);
  OK(df_st_open_bytes(b.data, b.len, "x.st", &st, NULL));
  assert_int_equal(df_st_count(st), 5);
  const df_st_tensor *t = df_st_find(st, "b");
  assert_string_equal(t->dtype, "BF16");
  assert_int_equal(t->n_dims, 2);
  assert_int_equal(t->shape[0], 2);
  assert_int_equal(t->shape[1], 3);
  assert_int_equal(t->n_values, 6);
  assert_int_equal(t->n_bytes, 12);
  assert_memory_equal(t->data, k_data + 4, 12);
  t = df_st_find(st, "a");
  assert_int_equal(t->n_dims, 0);
  assert_int_equal(t->n_values, 1);
  assert_memory_equal(t->data, k_data, 4);
  assert_int_equal(df_st_find(st, "none")->n_bytes, 0);
  assert_int_equal(df_st_find(st, "five")->n_dims, 5);
  assert_int_equal(df_st_find(st, "f4")->n_bytes, 3);
  assert_null(df_st_find(st, "__metadata__"));
  assert_null(df_st_find(st, "c"));
  assert_string_equal(df_st_file_name(st, t->file), "x.st");
  df_st_free(st);
  df_buf_release(&b);
}

static void test_st_open_bytes__bad_tensors(void **state) {
  (void)state;
  const struct {
    const char *header;
    size_t n;
    df_status want;
    const char *why;
  } cases[] = {
      {"{" T("a", "F32", "[1]", 0, 4) "}", 4, DF_OK, NULL},
      {"{}", 0, DF_OK, NULL},
      {"{" T("a", "F32", "[1]", 0, 4) "}", 3, DF_ERR_FORMAT, "spans bytes 0 to 4 of a data section of 3"},
      {"{" T("a", "F32", "[1]", 4, 0) "}", 4, DF_ERR_FORMAT, "spans bytes 4 to 0"},
      {"{" T("a", "F32", "[2]", 0, 4) "}", 4, DF_ERR_FORMAT, "spans 4 bytes, its shape and dtype need 8"},
      {"{" T("a", "F32", "[-1]", 0, 4) "}", 4, DF_ERR_FORMAT, "tensor \"a\": a dimension is -1"},
      {"{" T("a", "F32", "[1.5]", 0, 4) "}", 4, DF_ERR_FORMAT, "a dimension is 1.5"},
      {"{" T("a", "F32", "[4294967296,4294967296]", 0, 4) "}", 4, DF_ERR_FORMAT, "product overflows"},
      {"{" T("a", "F32", "[4611686018427387904]", 0, 4) "}", 4, DF_ERR_FORMAT, "bytes or too many"},
      {"{" T("a", "F4", "[3]", 0, 2) "}", 2, DF_ERR_FORMAT, "no whole number of bytes"},
      {"{" T("a", "F32", "[1,1,1,1,1,1,1,1,1]", 0, 4) "}", 4, DF_ERR_LIMIT, "has 9 dimensions"},
      {"{" T("a", "F33", "[1]", 0, 4) "}", 4, DF_ERR_UNSUPPORTED, "unknown dtype \"F33\""},
      {"{" T("a", "F32", "[1]", 0, -4) "}", 4, DF_ERR_FORMAT, "the second offset is -4"},
      {"{" T("a", "F32", "[1]", 0, 18446744073709551615) "}", 4, DF_ERR_FORMAT, "the second offset"},
      {"{" T("", "F32", "[1]", 0, 4) "}", 4, DF_ERR_FORMAT, "tensor name of 0 bytes"},
      {"{" T("x\\u0000y", "F32", "[1]", 0, 4) "}", 4, DF_ERR_FORMAT, "NUL byte in object key"},
      {"{" T("a", "F32", "[1]", 0, 4) "," T("b", "U8", "[2]", 3, 5) "}", 5, DF_ERR_FORMAT,
       "tensors \"a\" and \"b\" overlap"},
      {"{" T("b", "F32", "[1]", 0, 4) "," T("a", "F32", "[1]", 0, 4) "}", 4, DF_ERR_FORMAT, "overlap"},
      {"{" T("b", "F32", "[1]", 0, 4) "," T("b", "F32", "[1]", 4, 8) "}", 8, DF_ERR_FORMAT, "duplicate"},
      {"{\"a\":[]}", 0, DF_ERR_FORMAT, "not described by an object"},
      {"{\"a\":{}}", 0, DF_ERR_FORMAT, "has no \"dtype\""},
      {"{\"a\":{\"dtype\":\"F32\"}}", 0, DF_ERR_FORMAT, "has no \"shape\""},
      {"{\"a\":{\"dtype\":\"F32\",\"shape\":[0]}}", 0, DF_ERR_FORMAT, "needs two \"data_offsets\""},
      {"{\"a\":{\"dtype\":7,\"shape\":[0]}}", 0, DF_ERR_FORMAT, "key \"dtype\" is an integer"},
      {"[]", 0, DF_ERR_FORMAT, "not a JSON object"},
      {"{,}", 0, DF_ERR_FORMAT, "could not read the header of"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
    expect_header(cases[i].header, cases[i].n, cases[i].want, cases[i].why);
}

static void test_st_open_bytes__bad_header_length(void **state) {
  (void)state;
  const uint64_t lengths[] = {0, 1, 3, 101u << 20, 1ull << 63, UINT64_MAX, UINT64_MAX - 7};
  for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++) {
    df_buf b;
    df_buf_init(&b, 0);
    test_put_u64(&b, lengths[i]);
    test_put(&b, "{}", 2);
    expect_bytes(&b, DF_ERR_FORMAT, "header");
    df_buf_release(&b);
  }
}

static void test_st_open_bytes__every_truncation_and_flip(void **state) {
  (void)state;
  df_buf b;
  df_buf_init(&b, 0);
  test_put_safetensors(&b, "{" T("w.one", "BF16", "[2,3]", 0, 12) "," T("w.two", "F32", "[2]", 12, 20) "}", k_data, 20);
  for (size_t n = 1; n <= b.len; n++) {
    df_st *st = NULL;
    df_error err = {0};
    void *copy;
    df_status s = open_copy(b.data, n, &st, &err, &copy);
    assert_int_equal(s, n == b.len ? DF_OK : DF_ERR_FORMAT);
    if (s == DF_OK) df_st_free(st);
    df_free(copy);
  }
  for (size_t i = 0; i < b.len; i++)
    for (int bit = 0; bit < 8; bit++) {
      df_st *st = NULL;
      df_error err = {0};
      void *copy;
      b.data[i] = (char)(b.data[i] ^ (1 << bit));
      df_status s = open_copy(b.data, b.len, &st, &err, &copy);
      if (s == DF_OK) {
        for (size_t t = 0; t < df_st_count(st); t++) {
          const df_st_tensor *x = df_st_at(st, t);
          assert_in_range((uintptr_t)x->data - (uintptr_t)copy, 0, b.len - x->n_bytes);
        }
        df_st_free(st);
      } else {
        assert_true(err.msg[0] != '\0');
      }
      df_free(copy);
      b.data[i] = (char)(b.data[i] ^ (1 << bit));
    }
  df_buf_release(&b);
}

/* ---- shards -------------------------------------------------------------------------------------------- */

static void write_shard(const char *dir, const char *name, const char *header, size_t n) {
  df_buf b;
  df_buf_init(&b, 0);
  test_put_safetensors(&b, header, k_data, n);
  (void)test_dir_write(dir, name, b.data, b.len);
  df_buf_release(&b);
}

static void write_index(const char *dir, const char *text) {
  (void)test_dir_write(dir, "model.safetensors.index.json", text, strlen(text));
}

static void expect_folder(const char *dir, df_status want, const char *why) {
  df_st *st = NULL;
  df_error err = {0};
  df_status s = df_st_open_folder(dir, &st, &err);
  if (s != want || (s != DF_OK && !strstr(err.msg, why)))
    fail_msg("got %s \"%s\", expected \"%s\"", df_status_name(s), err.msg, why);
  if (s == DF_OK) df_st_free(st);
}

static void test_st_open_folder__shards(void **state) {
  (void)state;
  char *dir = test_dir_create();
  df_st *st = NULL;
  write_shard(dir, "model-1.safetensors", "{" T("a", "F32", "[1]", 0, 4) "," T("old", "F32", "[1]", 4, 8) "}", 8);
  write_shard(dir, "model-2.safetensors", "{" T("b", "F32", "[1]", 8, 12) "," T("old", "F32", "[1]", 0, 4) "}", 12);
  write_index(dir,
              "{\"metadata\":{},\"weight_map\":{\"b\":\"model-2.safetensors\",\"a\":\"model-1.safetensors\",\"old\":"
              "\"model-2.safetensors\"}}");
  OK(df_st_open_folder(dir, &st, NULL));
  assert_int_equal(df_st_count(st), 3);
  assert_memory_equal(df_st_find(st, "a")->data, k_data, 4);
  assert_memory_equal(df_st_find(st, "b")->data, k_data + 8, 4);
  assert_int_equal(df_st_find(st, "old")->file, df_st_find(st, "b")->file); /* the index decides between copies */
  assert_non_null(strstr(df_st_file_name(st, df_st_find(st, "a")->file), "/model-1.safetensors"));
  const df_st_tensor *b = df_st_find(st, "b");
  df_st_drop(st, b);
  assert_memory_equal(b->data, k_data + 8, 4);
  df_st_free(st);
  test_dir_remove(dir);
}

static void test_st_open_folder__single(void **state) {
  (void)state;
  char *dir = test_dir_create();
  expect_folder(dir, DF_ERR_IO, "model.safetensors\": No such file");
  write_shard(dir, "model.safetensors", "{" T("a", "F32", "[1]", 0, 4) "}", 4);
  expect_folder(dir, DF_OK, NULL);
  test_dir_remove(dir);
}

static void test_st_open_index__bad(void **state) {
  (void)state;
  char *dir = test_dir_create();
  const struct {
    const char *text;
    df_status want;
    const char *why;
  } cases[] = {
      {"{\"weight_map\":{\"a\":\"../m.safetensors\"}}", DF_ERR_FORMAT, "\"../m.safetensors\", not a plain file name"},
      {"{\"weight_map\":{\"a\":\"/etc/passwd\"}}", DF_ERR_FORMAT, "not a plain file name"},
      {"{\"weight_map\":{\"a\":\"..\"}}", DF_ERR_FORMAT, "not a plain file name"},
      {"{\"weight_map\":{\"a\":\"\"}}", DF_ERR_FORMAT, "not a plain file name"},
      {"{\"weight_map\":{\"a\":\"m\\u0000.safetensors\"}}", DF_ERR_FORMAT, "not a plain file name"},
      {"{\"weight_map\":{\"a\":7}}", DF_ERR_FORMAT, "not a plain file name"},
      {"{\"weight_map\":{}}", DF_ERR_FORMAT, "no \"weight_map\""},
      {"{}", DF_ERR_FORMAT, "no \"weight_map\""},
      {"[]", DF_ERR_FORMAT, "no \"weight_map\""},
      {"{\"weight_map\":[]}", DF_ERR_FORMAT, "is an array, expected an object"},
      {"{\"weight_map\":{\"a\":\"gone.safetensors\"}}", DF_ERR_IO, "gone.safetensors\": No such file"},
      {"{\"weight_map\":{\"a\":\"m.safetensors\",\"z\":\"m.safetensors\"}}", DF_ERR_FORMAT,
       "tensor \"z\" is not in its shard \"m.safetensors\""},
      {"nonsense", DF_ERR_FORMAT, "could not parse JSON"},
      {"{\"weight_map\":{\"a\":\"m.safetensors\"}}", DF_OK, NULL},
  };
  write_shard(dir, "m.safetensors", "{" T("a", "F32", "[1]", 0, 4) "}", 4);
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    write_index(dir, cases[i].text);
    expect_folder(dir, cases[i].want, cases[i].why);
  }
  test_dir_remove(dir);
}

static df_status folder_job(void *arg, df_error *err) {
  df_st *st = NULL;
  df_status s = df_st_open_folder(arg, &st, err);
  if (s == DF_OK) df_st_free(st);
  return s;
}

static void test_st_open_folder__every_allocation_fails(void **state) {
  (void)state;
  char *dir = test_dir_create();
  write_shard(dir, "m1.safetensors", "{" T("a", "F32", "[1]", 0, 4) "}", 4);
  write_shard(dir, "m2.safetensors", "{" T("b", "F32", "[1]", 0, 4) "}", 4);
  write_index(dir, "{\"weight_map\":{\"a\":\"m1.safetensors\",\"b\":\"m2.safetensors\"}}");
  assert_true(test_each_allocation_fails(folder_job, dir) >= 12);
  test_dir_remove(dir);
  dir = test_dir_create();
  write_shard(dir, "model.safetensors", "{" T("a", "F32", "[1]", 0, 4) "}", 4);
  assert_true(test_each_allocation_fails(folder_job, dir) >= 7);
  test_dir_remove(dir);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_st_open_bytes__tensors),
      cmocka_unit_test(test_st_open_bytes__bad_tensors),
      cmocka_unit_test(test_st_open_bytes__bad_header_length),
      cmocka_unit_test(test_st_open_bytes__every_truncation_and_flip),
      cmocka_unit_test(test_st_open_folder__shards),
      cmocka_unit_test(test_st_open_folder__single),
      cmocka_unit_test(test_st_open_index__bad),
      cmocka_unit_test(test_st_open_folder__every_allocation_fails),
  };
  return cmocka_run_group_tests_name("safetensors", tests, NULL, NULL);
}
