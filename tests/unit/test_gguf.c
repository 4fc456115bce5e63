/* GGUF: what the writer writes, the reader reads; typed access. Hostile files: test_gguf_hostile.c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/size.h"
#include "format/gguf.h"
#include "kernels/kernels.h"
#include "support/sample_files.h"

#define OK(expr) assert_int_equal((expr), DF_OK)

static const float k_weights[8] = {1, -2, 3.5f, 0, 1e-3f, 5, 6, 7};
static uint8_t k_q8[2 * 34 * 3];

static df_gguf_writer *new_writer(void) {
  df_gguf_writer *w = NULL;
  OK(df_gguf_writer_create(&w, NULL));
  return w;
}

/* Every kind of value, with the extremes of each, and three tensors at alignment 64. */
static df_gguf_writer *full_writer(void) {
  df_gguf_writer *w = new_writer();
  const uint8_t u8[] = {0, 255};
  const int8_t i8[] = {-128, 127};
  const uint16_t u16[] = {0, 65535};
  const int16_t i16[] = {-32768, 32767};
  const uint32_t u32[] = {0, UINT32_MAX};
  const int32_t i32[] = {INT32_MIN, INT32_MAX};
  const uint64_t u64[] = {0, UINT64_MAX};
  const int64_t i64[] = {INT64_MIN, INT64_MAX};
  const float f32[] = {-1.5f, 3.25e30f};
  const double f64[] = {0.1, -1e300};
  const uint8_t bools[] = {1, 0, 1};
  const struct {
    const char *name;
    df_gguf_type type;
    const void *p;
    size_t size;
  } kinds[] = {{"u8", DF_GGUF_U8, u8, 1},    {"i8", DF_GGUF_I8, i8, 1},    {"u16", DF_GGUF_U16, u16, 2},
               {"i16", DF_GGUF_I16, i16, 2}, {"u32", DF_GGUF_U32, u32, 4}, {"i32", DF_GGUF_I32, i32, 4},
               {"u64", DF_GGUF_U64, u64, 8}, {"i64", DF_GGUF_I64, i64, 8}, {"f32", DF_GGUF_F32, f32, 4},
               {"f64", DF_GGUF_F64, f64, 8}};
  OK(df_gguf_put_u32(w, "general.alignment", 64, NULL));
  OK(df_gguf_put_cstr(w, "general.architecture", "llama", NULL));
  for (size_t i = 0; i < DF_COUNT_OF(kinds); i++) {
    char key[32];
    for (int j = 0; j < 2; j++) {
      (void)snprintf(key, sizeof key, "one.%s.%d", kinds[i].name, j);
      OK(df_gguf_put_scalar(w, key, kinds[i].type, (const char *)kinds[i].p + (size_t)j * kinds[i].size, NULL));
    }
    (void)snprintf(key, sizeof key, "many.%s", kinds[i].name);
    OK(df_gguf_put_array(w, key, kinds[i].type, kinds[i].p, 2, NULL));
  }
  OK(df_gguf_put_bool(w, "one.bool", true, NULL));
  OK(df_gguf_put_array(w, "many.bool", DF_GGUF_BOOL, bools, 3, NULL));
  OK(df_gguf_put_str(w, "one.str", (df_gguf_str){"a\0b", 3}, NULL));
  const df_gguf_str strings[] = {{"first", 5}, {"", 0}, {"\xC3\xA9", 2}};
  OK(df_gguf_put_str_array(w, "many.str", strings, 3, NULL));
  OK(df_gguf_put_array(w, "empty.i32", DF_GGUF_I32, i32, 0, NULL));
  OK(df_gguf_put_str_array(w, "empty.str", strings, 0, NULL));
  OK(df_gguf_put_f32(w, "pi", 3.14159274f, NULL));
  for (size_t i = 0; i < sizeof k_q8; i++) k_q8[i] = (uint8_t)(i * 7);
  OK(df_gguf_put_tensor(w, "a.weight", DF_F32, 2, (const uint64_t[]){4, 2}, k_weights, NULL));
  OK(df_gguf_put_tensor(w, "b.weight", DF_Q8_0, 3, (const uint64_t[]){64, 1, 3}, k_q8, NULL));
  OK(df_gguf_put_tensor(w, "c.scale", DF_F32, 0, NULL, k_weights + 2, NULL));
  return w;
}

static void finish(df_gguf_writer *w, df_buf *b) {
  df_buf_init(b, 0);
  OK(df_gguf_write_buf(w, NULL, NULL, b, NULL));
  df_gguf_writer_free(w);
}

static df_gguf *open_full(df_buf *b) {
  df_gguf *g = NULL;
  finish(full_writer(), b);
  OK(df_gguf_open_bytes(b->data, b->len, "full", &g, NULL));
  return g;
}

static int64_t int_of(const df_gguf *g, const char *key, uint64_t i) {
  const df_gguf_kv *kv = df_gguf_find(g, key);
  assert_non_null(kv);
  assert_true(i < kv->count);
  return df_gguf_int_at(kv, i);
}

static void test_gguf_open__round_trip_scalars(void **state) {
  (void)state;
  df_buf b;
  df_gguf *g = open_full(&b);
  float f;
  bool flag = false;
  uint64_t u;
  int64_t i;
  df_gguf_str s;
  assert_int_equal(df_gguf_version(g), 3);
  assert_int_equal(df_gguf_alignment(g), 64);
  assert_string_equal(df_gguf_label(g), "full");
  assert_int_equal(df_gguf_kv_count(g), 2 + 10 * 3 + 7);
  assert_int_equal(int_of(g, "one.u8.1", 0), 255);
  assert_int_equal(int_of(g, "one.i8.0", 0), -128);
  assert_int_equal(int_of(g, "one.u16.1", 0), 65535);
  assert_int_equal(int_of(g, "one.i16.0", 0), -32768);
  assert_int_equal(int_of(g, "one.u32.1", 0), UINT32_MAX);
  assert_int_equal(int_of(g, "one.i32.0", 0), INT32_MIN);
  OK(df_gguf_get_u64(g, "one.u64.1", &u, NULL));
  assert_true(u == UINT64_MAX);
  OK(df_gguf_get_i64(g, "one.i64.0", &i, NULL));
  assert_true(i == INT64_MIN);
  OK(df_gguf_get_f32(g, "one.f32.1", &f, NULL));
  assert_true(f == 3.25e30f);
  OK(df_gguf_get_f32(g, "one.f64.0", &f, NULL));
  assert_true(f == 0.1f);
  OK(df_gguf_get_f32(g, "pi", &f, NULL));
  assert_true(f == 3.14159274f);
  OK(df_gguf_get_bool(g, "one.bool", &flag, NULL));
  assert_true(flag);
  OK(df_gguf_get_str(g, "one.str", &s, NULL));
  assert_int_equal(s.len, 3);
  assert_memory_equal(s.data, "a\0b", 3);
  df_gguf_free(g);
  df_buf_release(&b);
}

static void test_gguf_open__round_trip_arrays(void **state) {
  (void)state;
  df_buf b;
  df_gguf *g = open_full(&b);
  const df_gguf_kv *kv;
  df_gguf_str s;
  assert_int_equal(int_of(g, "many.i8", 1), 127);
  assert_int_equal(int_of(g, "many.u16", 1), 65535);
  assert_int_equal(int_of(g, "many.i32", 0), INT32_MIN);
  assert_true(int_of(g, "many.i64", 1) == INT64_MAX);
  assert_true(int_of(g, "many.u64", 1) == INT64_MAX); /* clamped, as documented */
  OK(df_gguf_opt_float_array(g, "many.f64", &kv, NULL));
  assert_true(df_gguf_float_at(kv, 1) == -1e300);
  OK(df_gguf_opt_float_array(g, "many.f32", &kv, NULL));
  assert_true(df_gguf_float_at(kv, 0) == -1.5);
  OK(df_gguf_opt_bool_array(g, "many.bool", &kv, NULL));
  assert_int_equal(kv->count, 3);
  assert_int_equal(df_gguf_int_at(kv, 0) * 100 + df_gguf_int_at(kv, 1) * 10 + df_gguf_int_at(kv, 2), 101);
  OK(df_gguf_opt_str_array(g, "many.str", &kv, NULL));
  df_gguf_str_iter it = df_gguf_str_begin(kv);
  assert_true(df_gguf_str_next(&it, &s) && s.len == 5 && memcmp(s.data, "first", 5) == 0);
  assert_true(df_gguf_str_next(&it, &s) && s.len == 0);
  assert_true(df_gguf_str_next(&it, &s) && s.len == 2 && memcmp(s.data, "\xC3\xA9", 2) == 0);
  assert_false(df_gguf_str_next(&it, &s));
  OK(df_gguf_opt_int_array(g, "empty.i32", &kv, NULL));
  assert_int_equal(kv->count, 0);
  OK(df_gguf_opt_str_array(g, "empty.str", &kv, NULL));
  it = df_gguf_str_begin(kv);
  assert_false(df_gguf_str_next(&it, &s));
  OK(df_gguf_opt_int_array(g, "not there", &kv, NULL));
  assert_null(kv);
  df_gguf_free(g);
  df_buf_release(&b);
}

static void test_gguf_open__round_trip_tensors(void **state) {
  (void)state;
  df_buf b;
  df_gguf *g = open_full(&b);
  assert_int_equal(df_gguf_tensor_count(g), 3);
  const df_gguf_tensor *a = df_gguf_tensor_find(g, "a.weight"), *q = df_gguf_tensor_find(g, "b.weight"),
                       *c = df_gguf_tensor_find(g, "c.scale");
  assert_non_null(a);
  assert_ptr_equal(a, df_gguf_tensor_at(g, 0));
  assert_int_equal(a->n_dims, 2);
  assert_int_equal(a->dims[0], 4);
  assert_int_equal(a->dims[1], 2);
  assert_int_equal(a->dims[2], 1);
  assert_int_equal(a->n_bytes, 32);
  assert_memory_equal(a->data, k_weights, 32);
  assert_int_equal(q->type, DF_Q8_0);
  assert_int_equal(q->n_values, 192);
  assert_int_equal(q->n_bytes, sizeof k_q8);
  assert_int_equal(q->offset, 64);
  assert_memory_equal(q->data, k_q8, sizeof k_q8);
  assert_int_equal(c->n_dims, 0);
  assert_int_equal(c->n_values, 1);
  assert_int_equal(c->offset, 64 + 256);
  assert_memory_equal(c->data, k_weights + 2, 4);
  assert_null(df_gguf_tensor_find(g, "a.weigh"));
  assert_null(df_gguf_tensor_find(g, ""));
  df_gguf_free(g);
  df_buf_release(&b);
}

/* An entry copied with put_kv must give the same file again. */
static void test_gguf_put_kv__copies_a_file_byte_for_byte(void **state) {
  (void)state;
  df_buf b, again;
  df_gguf *g = open_full(&b);
  df_gguf_writer *w = new_writer();
  for (size_t i = 0; i < df_gguf_kv_count(g); i++) OK(df_gguf_put_kv(w, df_gguf_kv_at(g, i), NULL));
  for (size_t i = 0; i < df_gguf_tensor_count(g); i++) {
    const df_gguf_tensor *t = df_gguf_tensor_at(g, i);
    OK(df_gguf_put_tensor(w, t->name, t->type, t->n_dims, t->dims, t->data, NULL));
  }
  finish(w, &again);
  assert_int_equal(again.len, b.len);
  assert_memory_equal(again.data, b.data, b.len);
  df_gguf_free(g);
  df_buf_release(&b);
  df_buf_release(&again);
}

static void expect_fail(df_status got, df_status want, const df_error *err, const char *text) {
  assert_int_equal(got, want);
  if (!strstr(err->msg, text)) fail_msg("message \"%s\" lacks \"%s\"", err->msg, text);
}

static void test_gguf_get__names_key_and_reason(void **state) {
  (void)state;
  df_buf b;
  df_error err;
  df_gguf *g = open_full(&b);
  uint32_t u = 77;
  uint64_t big;
  int64_t i;
  float f;
  bool flag;
  df_gguf_str s;
  const df_gguf_kv *kv;
  expect_fail(df_gguf_get_u32(g, "nope", &u, &err), DF_ERR_FORMAT, &err, "\"full\": key \"nope\" is missing");
  expect_fail(df_gguf_get_u32(g, "one.i8.0", &u, &err), DF_ERR_FORMAT, &err, "is -128, must not be negative");
  expect_fail(df_gguf_get_u64(g, "one.i64.0", &big, &err), DF_ERR_FORMAT, &err, "must not be negative");
  expect_fail(df_gguf_get_u32(g, "one.u64.1", &u, &err), DF_ERR_FORMAT, &err, "at most 4294967295 fit");
  expect_fail(df_gguf_get_i64(g, "one.u64.1", &i, &err), DF_ERR_FORMAT, &err, "out of range");
  expect_fail(df_gguf_get_u32(g, "pi", &u, &err), DF_ERR_FORMAT, &err, "of type f32, expected an integer");
  expect_fail(df_gguf_get_u32(g, "many.u32", &u, &err), DF_ERR_FORMAT, &err, "of type array of u32");
  expect_fail(df_gguf_get_f32(g, "one.u8.0", &f, &err), DF_ERR_FORMAT, &err, "expected a float");
  expect_fail(df_gguf_get_f32(g, "one.f64.1", &f, &err), DF_ERR_FORMAT, &err, "not a finite number");
  expect_fail(df_gguf_get_bool(g, "one.u8.1", &flag, &err), DF_ERR_FORMAT, &err, "expected bool");
  expect_fail(df_gguf_get_str(g, "many.str", &s, &err), DF_ERR_FORMAT, &err, "expected string");
  expect_fail(df_gguf_opt_int_array(g, "one.u8.1", &kv, &err), DF_ERR_FORMAT, &err, "expected an array of integers");
  expect_fail(df_gguf_opt_str_array(g, "many.i8", &kv, &err), DF_ERR_FORMAT, &err, "expected an array of strings");
  assert_int_equal(u, 77); /* outputs only on success */
  OK(df_gguf_opt_u32(g, "nope", 5, &u, NULL));
  assert_int_equal(u, 5);
  OK(df_gguf_opt_u32(g, "one.u16.1", 5, &u, NULL));
  assert_int_equal(u, 65535);
  assert_int_equal(df_gguf_opt_u32(g, "one.i8.0", 5, &u, NULL), DF_ERR_FORMAT);
  OK(df_gguf_opt_str(g, "nope", (df_gguf_str){"x", 1}, &s, NULL));
  assert_int_equal(s.data[0], 'x');
  df_gguf_free(g);
  df_buf_release(&b);
}

static void test_gguf_put__refuses_what_the_reader_would(void **state) {
  (void)state;
  df_error err;
  df_gguf_writer *w = new_writer();
  static char long_name[300];
  memset(long_name, 'x', sizeof long_name - 1);
  OK(df_gguf_put_u32(w, "k", 1, NULL));
  expect_fail(df_gguf_put_u32(w, "k", 1, &err), DF_ERR_ARGUMENT, &err, "\"k\": it is there already");
  expect_fail(df_gguf_put_u32(w, "", 1, &err), DF_ERR_ARGUMENT, &err, "of 0 bytes");
  expect_fail(df_gguf_put_u32(w, "general.alignment", 48, &err), DF_ERR_ARGUMENT, &err, "48");
  expect_fail(df_gguf_put_scalar(w, "s", DF_GGUF_STRING, "x", &err), DF_ERR_ARGUMENT, &err, "not a scalar");
  const uint64_t row[] = {33}, zero[] = {4, 0}, huge[] = {1ull << 33, 1ull << 33, 1ull << 33};
  expect_fail(df_gguf_put_tensor(w, "t", DF_Q8_0, 1, row, NULL, &err), DF_ERR_ARGUMENT, &err, "multiple of 32");
  expect_fail(df_gguf_put_tensor(w, "t", DF_F32, 2, zero, NULL, &err), DF_ERR_ARGUMENT, &err, "dimension 1 is 0");
  expect_fail(df_gguf_put_tensor(w, "t", DF_F32, 3, huge, NULL, &err), DF_ERR_ARGUMENT, &err,
              "dimension 1 is 8589934592");
  expect_fail(df_gguf_put_tensor(w, "t", 99, 1, row, NULL, &err), DF_ERR_ARGUMENT, &err, "unknown type 99");
  expect_fail(df_gguf_put_tensor(w, long_name, DF_F32, 1, row, NULL, &err), DF_ERR_ARGUMENT, &err, "299 bytes");
  OK(df_gguf_put_tensor(w, "t", DF_F32, 1, row, NULL, NULL));
  expect_fail(df_gguf_put_tensor(w, "t", DF_F32, 1, row, NULL, &err), DF_ERR_ARGUMENT, &err, "there already");
  expect_fail(df_gguf_put_u32(w, "general.alignment", 64, &err), DF_ERR_ARGUMENT, &err, "too late");
  df_buf b;
  df_buf_init(&b, 0);
  test_put(&b, "old", 3);
  expect_fail(df_gguf_write_buf(w, NULL, NULL, &b, &err), DF_ERR_ARGUMENT, &err, "\"t\": it has no data");
  assert_int_equal(b.len, 3);
  df_buf_release(&b);
  df_gguf_writer_free(w);
}

typedef struct filler {
  float values[33];
  int calls;
  bool fails;
} filler;

static df_status fill(void *user, const char *name, size_t n_bytes, const void **data, df_error *err) {
  filler *f = user;
  assert_string_equal(name, "t");
  assert_int_equal(n_bytes, 33 * 4);
  f->calls++;
  if (f->fails) return DF_FAIL(err, DF_ERR_CANCELLED, "no more");
  for (int i = 0; i < 33; i++) f->values[i] = (float)i;
  *data = f->values;
  return DF_OK;
}

static void test_gguf_write_file__whole_or_not_at_all(void **state) {
  (void)state;
  char *dir = test_dir_create(), path[256];
  df_error err;
  (void)snprintf(path, sizeof path, "%s", test_dir_path(dir, "x.gguf"));
  df_gguf_writer *w = new_writer();
  filler f = {.fails = true};
  OK(df_gguf_put_tensor(w, "t", DF_F32, 1, (const uint64_t[]){33}, NULL, NULL));
  expect_fail(df_gguf_write_file(w, fill, &f, path, &err), DF_ERR_CANCELLED, &err, "no more");
  assert_int_equal(access(path, F_OK), -1);
  assert_int_equal(rmdir(dir), 0); /* nothing was left behind */
  expect_fail(df_gguf_write_file(w, fill, &f, path, &err), DF_ERR_IO, &err, "could not create");
  df_free(dir);
  dir = test_dir_create();
  (void)snprintf(path, sizeof path, "%s", test_dir_path(dir, "x.gguf"));
  f = (filler){0};
  OK(df_gguf_write_file(w, fill, &f, path, NULL));
  assert_int_equal(f.calls, 1);
  df_gguf *g = NULL;
  OK(df_gguf_open(path, &g, NULL));
  const df_gguf_tensor *t = df_gguf_tensor_find(g, "t");
  for (int i = 0; i < 33; i++) assert_true(((const float *)t->data)[i] == (float)i);
  df_gguf_tensor_drop(g, t); /* dropped pages come back from the file */
  for (int i = 0; i < 33; i++) assert_true(((const float *)t->data)[i] == (float)i);
  df_gguf_free(g);
  df_gguf_writer_free(w);
  test_dir_remove(dir);
}

/* A file packed by another program (tests/fuzz/make_format_corpus.py), so that reader and writer cannot agree on
 * a common mistake. */
static void test_gguf_open__file_of_another_writer(void **state) {
  (void)state;
  df_gguf *g = NULL;
  OK(df_gguf_open(DF_SOURCE_DIR "/tests/fuzz/corpus/gguf/kinds.gguf", &g, NULL));
  const char *const ints[] = {"k.u8", "k.i8", "k.u16", "k.i16", "k.u32", "k.i32", "k.u64", "k.i64"};
  const int64_t want[] = {200, -100, 60000, -30000, 4000000000, -2000000000, 1ll << 60, -(1ll << 60)};
  for (size_t i = 0; i < DF_COUNT_OF(ints); i++) assert_true(int_of(g, ints[i], 0) == want[i]);
  float f;
  df_gguf_str s;
  const df_gguf_kv *kv;
  OK(df_gguf_get_f32(g, "k.f32", &f, NULL));
  assert_true(f == 0.25f);
  OK(df_gguf_get_f32(g, "k.f64", &f, NULL));
  assert_true(f == -0.125f);
  OK(df_gguf_get_str(g, "k.str", &s, NULL));
  assert_int_equal(s.len, 5);
  assert_memory_equal(s.data, "h\xC3\xA9j!", 5);
  OK(df_gguf_opt_str_array(g, "k.strs", &kv, NULL));
  assert_int_equal(kv->count, 2);
  const df_gguf_tensor *t = df_gguf_tensor_find(g, "m");
  assert_non_null(t);
  assert_int_equal(t->dims[0], 3);
  assert_int_equal(t->dims[1], 2);
  for (int i = 0; i < 6; i++) assert_true(((const float *)t->data)[i] == (float)(i + 1) / 2);
  df_gguf_free(g);
}

/* Two tables of the same facts, in layers that may not include each other. */
static void test_gguf_dtype_block__agrees_with_kernels(void **state) {
  (void)state;
  int common = 0;
  for (int type = -2; type < 100; type++) {
    uint32_t v, b, kv, kb;
    bool here = df_gguf_dtype_block(type, &v, &b);
    assert_int_equal(here, df_gguf_dtype_name(type) != NULL);
    if (!df_dtype_block(type, &kv, &kb)) continue;
    common++;
    assert_true(here);
    assert_int_equal(v, kv);
    assert_int_equal(b, kb);
    assert_string_equal(df_gguf_dtype_name(type), df_dtype_name(type));
  }
  assert_int_equal(common, 11);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_gguf_open__round_trip_scalars),
      cmocka_unit_test(test_gguf_open__round_trip_arrays),
      cmocka_unit_test(test_gguf_open__round_trip_tensors),
      cmocka_unit_test(test_gguf_put_kv__copies_a_file_byte_for_byte),
      cmocka_unit_test(test_gguf_get__names_key_and_reason),
      cmocka_unit_test(test_gguf_put__refuses_what_the_reader_would),
      cmocka_unit_test(test_gguf_write_file__whole_or_not_at_all),
      cmocka_unit_test(test_gguf_open__file_of_another_writer),
      cmocka_unit_test(test_gguf_dtype_block__agrees_with_kernels),
  };
  return cmocka_run_group_tests_name("gguf", tests, NULL, NULL);
}
