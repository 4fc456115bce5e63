/* GGUF files that lie: truncated, absurd, overlapping names. Bytes are put together by hand, not by the writer. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/mem.h"
#include "format/gguf.h"
#include "format/limits.h"
#include "support/sample_files.h"

#define OK(expr) assert_int_equal((expr), DF_OK)

static void put_header(df_buf *b, uint32_t version, uint64_t n_tensors, uint64_t n_kv) {
  df_buf_init(b, 0);
  test_put(b, "GGUF", 4);
  test_put_u32(b, version);
  test_put_u64(b, n_tensors);
  test_put_u64(b, n_kv);
}

static void put_kv_u32(df_buf *b, const char *key, uint32_t v) {
  test_put_gguf_str(b, key);
  test_put_u32(b, DF_GGUF_U32);
  test_put_u32(b, v);
}

static void put_tensor(df_buf *b, const char *name, uint32_t n_dims, const uint64_t *dims, uint32_t type,
                       uint64_t offset) {
  test_put_gguf_str(b, name);
  test_put_u32(b, n_dims);
  test_put(b, dims, n_dims * sizeof *dims);
  test_put_u32(b, type);
  test_put_u64(b, offset);
}

static void put_data(df_buf *b, size_t align, size_t n) {
  while (b->len % align) test_put(b, "", 1);
  for (size_t i = 0; i < n; i++) test_put(b, "\x11", 1);
}

/* The bytes are copied to a block of exactly their size, so that the sanitizer sees every read past the end. */
static df_status open_copy(const df_buf *b, size_t n, df_gguf **out, df_error *err, void **copy) {
  *copy = df_alloc(n ? n : 1);
  assert_non_null(*copy);
  if (n) memcpy(*copy, b->data, n);
  return df_gguf_open_bytes(*copy, n, "h", out, err);
}

static void expect_bytes(df_buf *b, df_status want, const char *text) {
  df_gguf *g = NULL;
  df_error err = {0};
  void *copy;
  df_status s = open_copy(b, b->len, &g, &err, &copy);
  if (s != want || (text && !strstr(err.msg, text)))
    fail_msg("got %s \"%s\", expected %s \"%s\"", df_status_name(s), err.msg, df_status_name(want), text ? text : "");
  if (s == DF_OK) df_gguf_free(g);
  df_free(copy);
  df_buf_release(b);
}

static const uint64_t k_dim8[] = {8};

static void test_gguf_open__versions(void **state) {
  (void)state;
  df_buf b;
  put_header(&b, 3, 0, 0);
  expect_bytes(&b, DF_OK, NULL);
  put_header(&b, 2, 0, 0);
  expect_bytes(&b, DF_OK, NULL);
  put_header(&b, 1, 0, 0);
  expect_bytes(&b, DF_ERR_UNSUPPORTED, "version 1");
  put_header(&b, 4, 0, 0);
  expect_bytes(&b, DF_ERR_UNSUPPORTED, "version 4");
  put_header(&b, 0, 0, 0);
  expect_bytes(&b, DF_ERR_UNSUPPORTED, "version 0");
  put_header(&b, 0x03000000, 0, 0);
  expect_bytes(&b, DF_ERR_UNSUPPORTED, "big-endian");
  put_header(&b, 3, 0, 0);
  b.data[3] = 'X';
  expect_bytes(&b, DF_ERR_FORMAT, "not a GGUF file (the first bytes are 47 47 55 58)");
}

static void test_gguf_open__absurd_counts(void **state) {
  (void)state;
  df_buf b;
  put_header(&b, 3, UINT64_MAX, 0);
  expect_bytes(&b, DF_ERR_LIMIT, "18446744073709551615 tensors");
  put_header(&b, 3, 0, UINT64_MAX);
  expect_bytes(&b, DF_ERR_LIMIT, "18446744073709551615 metadata keys");
  put_header(&b, 3, 1, 0);
  expect_bytes(&b, DF_ERR_FORMAT, "1 tensors claimed");
  put_header(&b, 3, 0, 1);
  expect_bytes(&b, DF_ERR_FORMAT, "1 metadata keys claimed");
  /* A key, a string value, an array and a string in an array, each with a length near 2^64 or 2^63. */
  for (int bit = 0; bit < 2; bit++) {
    uint64_t n = bit ? 1ull << 63 : UINT64_MAX;
    put_header(&b, 3, 0, 1);
    test_put_u64(&b, n);
    test_put(&b, "0123456789", 10);
    expect_bytes(&b, DF_ERR_FORMAT, "inside metadata key");
    put_header(&b, 3, 0, 1);
    test_put_gguf_str(&b, "k");
    test_put_u32(&b, DF_GGUF_STRING);
    test_put_u64(&b, n);
    expect_bytes(&b, DF_ERR_FORMAT, "inside a string value");
    for (uint32_t elem = 0; elem <= DF_GGUF_F64; elem++) {
      if (elem == DF_GGUF_ARRAY) continue;
      put_header(&b, 3, 0, 1);
      test_put_gguf_str(&b, "k");
      test_put_u32(&b, DF_GGUF_ARRAY);
      test_put_u32(&b, elem);
      test_put_u64(&b, n);
      test_put_u64(&b, 0);
      expect_bytes(&b, DF_ERR_FORMAT, "the file ends");
    }
    put_header(&b, 3, 0, 1);
    test_put_gguf_str(&b, "k");
    test_put_u32(&b, DF_GGUF_ARRAY);
    test_put_u32(&b, DF_GGUF_STRING);
    test_put_u64(&b, 1);
    test_put_u64(&b, n);
    expect_bytes(&b, DF_ERR_FORMAT, "inside a string value");
  }
}

static void test_gguf_open__bad_metadata(void **state) {
  (void)state;
  df_buf b;
  put_header(&b, 3, 0, 2);
  put_kv_u32(&b, "twice", 1);
  put_kv_u32(&b, "twice", 2);
  expect_bytes(&b, DF_ERR_FORMAT, "metadata key \"twice\" appears twice");
  put_header(&b, 3, 0, 1);
  put_kv_u32(&b, "", 1);
  expect_bytes(&b, DF_ERR_FORMAT, "empty metadata key");
  put_header(&b, 3, 0, 1);
  test_put_u64(&b, 3);
  test_put(&b, "a\0b", 3);
  test_put_u32(&b, DF_GGUF_U32);
  test_put_u32(&b, 1);
  expect_bytes(&b, DF_ERR_FORMAT, "zero byte");
  put_header(&b, 3, 0, 1);
  test_put_gguf_str(&b, "k");
  test_put_u32(&b, 13);
  test_put_u64(&b, 0);
  expect_bytes(&b, DF_ERR_FORMAT, "unknown value type 13");
  put_header(&b, 3, 0, 1);
  test_put_gguf_str(&b, "k");
  test_put_u32(&b, DF_GGUF_ARRAY);
  test_put_u32(&b, DF_GGUF_ARRAY);
  test_put_u64(&b, 0);
  expect_bytes(&b, DF_ERR_UNSUPPORTED, "\"k\" is an array of arrays");
  put_header(&b, 3, 0, 1);
  test_put_gguf_str(&b, "flag");
  test_put_u32(&b, DF_GGUF_BOOL);
  test_put(&b, "\x02", 1);
  expect_bytes(&b, DF_ERR_FORMAT, "\"flag\" holds the bool 2");
}

static void test_gguf_open__bad_alignment(void **state) {
  (void)state;
  const uint32_t bad[] = {0, 1, 4, 24, 1u << 17, UINT32_MAX};
  for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
    df_buf b;
    put_header(&b, 3, 0, 1);
    put_kv_u32(&b, "general.alignment", bad[i]);
    expect_bytes(&b, DF_ERR_FORMAT, "not a power of two");
  }
  df_buf b;
  put_header(&b, 3, 1, 1);
  put_kv_u32(&b, "general.alignment", 8);
  put_tensor(&b, "t", 1, k_dim8, 0, 8);
  put_data(&b, 8, 40);
  expect_bytes(&b, DF_OK, NULL);
}

static void test_gguf_open__bad_tensors(void **state) {
  (void)state;
  df_buf b;
  const uint64_t zero[] = {8, 0}, wide[] = {1ull << 40, 1ull << 40}, bytes[] = {1ull << 62}, five[] = {1, 1, 1, 1, 1};
  const struct {
    const char *name;
    uint32_t n;
    const uint64_t *dims;
    uint32_t type;
    uint64_t offset;
    const char *why;
  } cases[] = {
      {"t", 2, zero, 0, 0, "\"t\" has a dimension of 0"},
      {"t", 2, wide, 0, 0, "product overflows"},
      {"t", 1, bytes, 0, 0, "byte count that overflows"},
      {"t", 5, five, 0, 0, "has 5 dimensions"},
      {"t", 1, k_dim8, 8, 0, "rows of 8 values, Q8_0 needs a multiple of 32"},
      {"t", 1, k_dim8, 0, 8, "offset 8, not a multiple of 32"},
      {"t", 1, k_dim8, 0, 32, "needs 32 bytes at offset 32 of a data section of 32"},
      {"t", 1, k_dim8, 0, 0xFFFFFFFFFFFFFFE0, "at offset 18446744073709551584"},
      {"", 1, k_dim8, 0, 0, "empty tensor name"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    put_header(&b, 3, 1, 0);
    put_tensor(&b, cases[i].name, cases[i].n, cases[i].dims, cases[i].type, cases[i].offset);
    put_data(&b, 32, 32);
    expect_bytes(&b, DF_ERR_FORMAT, cases[i].why);
  }
  put_header(&b, 3, 2, 0);
  put_tensor(&b, "same", 1, k_dim8, 0, 0);
  put_tensor(&b, "same", 1, k_dim8, 0, 0);
  put_data(&b, 32, 32);
  expect_bytes(&b, DF_ERR_FORMAT, "tensor \"same\" appears twice");
  char name[300] = {0};
  memset(name, 'n', 256);
  put_header(&b, 3, 1, 0);
  put_tensor(&b, name, 1, k_dim8, 0, 0);
  put_data(&b, 32, 32);
  expect_bytes(&b, DF_ERR_LIMIT, "tensor name of 256 bytes");
}

/* Types from the future must not keep a file from being listed; their bytes are never handed out. */
static void test_gguf_open__unknown_tensor_type(void **state) {
  (void)state;
  df_buf b;
  df_gguf *g = NULL;
  put_header(&b, 3, 2, 0);
  put_tensor(&b, "new", 1, k_dim8, 77, 0);
  put_tensor(&b, "huge", 1, k_dim8, UINT32_MAX, 0);
  put_data(&b, 32, 8);
  OK(df_gguf_open_bytes(b.data, b.len, "h", &g, NULL));
  const df_gguf_tensor *t = df_gguf_tensor_find(g, "new");
  assert_int_equal(t->type, 77);
  assert_int_equal(t->n_values, 8);
  assert_null(t->data);
  assert_int_equal(t->n_bytes, 0);
  assert_int_equal(df_gguf_tensor_find(g, "huge")->type, -1);
  df_gguf_free(g);
  df_buf_release(&b);
}

/* A valid file of every entry kind; *complete is the length that still holds all tensor data. */
static void put_valid(df_buf *b, size_t filler, size_t *complete) {
  put_header(b, 3, 2, 4);
  put_kv_u32(b, "a.number", 5);
  test_put_gguf_str(b, "a.text");
  test_put_u32(b, DF_GGUF_STRING);
  test_put_gguf_str(b, "some text");
  test_put_gguf_str(b, "a.list");
  test_put_u32(b, DF_GGUF_ARRAY);
  test_put_u32(b, DF_GGUF_STRING);
  test_put_u64(b, 3);
  test_put_gguf_str(b, "x");
  test_put_gguf_str(b, "");
  test_put_gguf_str(b, "zz");
  test_put_gguf_str(b, "a.filler");
  test_put_u32(b, DF_GGUF_ARRAY);
  test_put_u32(b, DF_GGUF_U8);
  test_put_u64(b, filler);
  for (size_t i = 0; i < filler; i++) test_put(b, "f", 1);
  put_tensor(b, "t.one", 1, k_dim8, 0, 0);
  put_tensor(b, "t.two", 1, k_dim8, 1, 32);
  put_data(b, 32, 32 + 16);
  *complete = b->len;
  put_data(b, 32, 0); /* padding after the last tensor */
}

static void try_length(const df_buf *b, size_t n, size_t complete) {
  df_gguf *g = NULL;
  df_error err = {0};
  void *copy;
  df_status s = open_copy(b, n, &g, &err, &copy);
  if (n >= complete) {
    assert_int_equal(s, DF_OK);
    assert_int_equal(((const uint8_t *)df_gguf_tensor_find(g, "t.two")->data)[15], 0x11);
    df_gguf_free(g);
  } else if (s != DF_ERR_FORMAT || err.msg[0] == '\0') {
    fail_msg("length %zu of %zu gave %s", n, b->len, df_status_name(s));
  }
  df_free(copy);
}

static void test_gguf_open__every_truncation(void **state) {
  (void)state;
  df_buf b;
  size_t complete;
  put_valid(&b, 5, &complete);
  for (size_t n = 0; n <= b.len; n++) try_length(&b, n, complete);
  df_buf_release(&b);
  put_valid(&b, 100000, &complete);
  for (size_t i = 0; i <= 64; i++) try_length(&b, b.len * i / 64, complete);
  df_buf_release(&b);
}

/* Any single damaged byte must give a clean result: success or a message, never a wild read. */
static void test_gguf_open__every_flipped_byte(void **state) {
  (void)state;
  df_buf b;
  size_t complete;
  put_valid(&b, 5, &complete);
  for (size_t i = 0; i < b.len; i++) {
    for (int k = 0; k < 4; k++) {
      const uint8_t flips[] = {0x01, 0x80, 0xFF, 0x7F};
      df_gguf *g = NULL;
      df_error err = {0};
      void *copy;
      b.data[i] = (char)(b.data[i] ^ flips[k]);
      df_status s = open_copy(&b, b.len, &g, &err, &copy);
      if (s == DF_OK)
        for (size_t t = 0; t < df_gguf_tensor_count(g); t++) {
          const df_gguf_tensor *x = df_gguf_tensor_at(g, t);
          if (x->data) assert_in_range((uintptr_t)x->data - (uintptr_t)copy, 0, b.len - x->n_bytes);
          assert_in_range(strlen(x->name), 1, b.len);
        }
      else
        assert_true(err.msg[0] != '\0');
      df_gguf_free(s == DF_OK ? g : NULL);
      df_free(copy);
      b.data[i] = (char)(b.data[i] ^ flips[k]);
    }
  }
  df_buf_release(&b);
}

static void expect_path(const char *path, const char *text) {
  df_gguf *g = NULL;
  df_error err = {0};
  assert_int_equal(df_gguf_open(path, &g, &err), DF_ERR_IO);
  if (!strstr(err.msg, text)) fail_msg("message \"%s\" lacks \"%s\"", err.msg, text);
  if (!strstr(err.msg, path)) fail_msg("message \"%s\" does not name the file", err.msg);
}

static void test_gguf_open__files_that_are_none(void **state) {
  (void)state;
  char *dir = test_dir_create();
  expect_path(dir, "it is a folder");
  expect_path(test_dir_path(dir, "missing.gguf"), "No such file");
  expect_path(test_dir_write(dir, "empty.gguf", "", 0), "is empty");
  const char *pipe_path = test_dir_path(dir, "pipe");
  assert_int_equal(mkfifo(pipe_path, 0600), 0);
  expect_path(pipe_path, "not a regular file"); /* and does not hang */
  test_dir_remove(dir);
}

typedef struct job {
  df_buf bytes;
  const char *path;
} job;

static df_status open_bytes_job(void *arg, df_error *err) {
  job *j = arg;
  df_gguf *g = NULL;
  df_status s = df_gguf_open_bytes(j->bytes.data, j->bytes.len, "h", &g, err);
  if (s == DF_OK) df_gguf_free(g);
  return s;
}

static df_status open_path_job(void *arg, df_error *err) {
  job *j = arg;
  df_gguf *g = NULL;
  df_status s = df_gguf_open(j->path, &g, err);
  if (s == DF_OK) df_gguf_free(g);
  return s;
}

static df_status write_job(void *arg, df_error *err) {
  (void)arg;
  static const float data[8];
  df_gguf_writer *w = NULL;
  df_buf b;
  df_buf_init(&b, 0);
  df_status s = df_gguf_writer_create(&w, err);
  if (s == DF_OK) s = df_gguf_put_u32(w, "n", 3, err);
  if (s == DF_OK) s = df_gguf_put_cstr(w, "s", "text", err);
  if (s == DF_OK) s = df_gguf_put_str_array(w, "l", (const df_gguf_str[]){{"a", 1}, {"b", 1}}, 2, err);
  if (s == DF_OK) s = df_gguf_put_tensor(w, "t", 0, 1, k_dim8, data, err);
  if (s == DF_OK) s = df_gguf_write_buf(w, NULL, NULL, &b, err);
  df_gguf_writer_free(w);
  df_buf_release(&b);
  return s;
}

static void test_gguf__every_allocation_fails(void **state) {
  (void)state;
  job j = {0};
  size_t complete;
  char *dir = test_dir_create();
  put_valid(&j.bytes, 5, &complete);
  assert_true(test_each_allocation_fails(open_bytes_job, &j) >= 6);
  j.path = test_dir_write(dir, "v.gguf", j.bytes.data, j.bytes.len);
  assert_true(test_each_allocation_fails(open_path_job, &j) >= 6);
  assert_true(test_each_allocation_fails(write_job, NULL) >= 8);
  df_buf_release(&j.bytes);
  test_dir_remove(dir);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_gguf_open__versions),
      cmocka_unit_test(test_gguf_open__absurd_counts),
      cmocka_unit_test(test_gguf_open__bad_metadata),
      cmocka_unit_test(test_gguf_open__bad_alignment),
      cmocka_unit_test(test_gguf_open__bad_tensors),
      cmocka_unit_test(test_gguf_open__unknown_tensor_type),
      cmocka_unit_test(test_gguf_open__every_truncation),
      cmocka_unit_test(test_gguf_open__every_flipped_byte),
      cmocka_unit_test(test_gguf_open__files_that_are_none),
      cmocka_unit_test(test_gguf__every_allocation_fails),
  };
  return cmocka_run_group_tests_name("gguf_hostile", tests, NULL, NULL);
}
