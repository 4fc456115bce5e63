/* Decoding of file blocks, half conversions, and the packed forms' exactness. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/bits.h"
#include "base/mem.h"
#include "support/kernel_data.h"

static size_t hex_decode(const char *hex, uint8_t *out, size_t cap) {
  size_t n = 0;
  for (; hex[2 * n] && n < cap; n++) {
    const char pair[3] = {hex[2 * n], hex[2 * n + 1], 0};
    out[n] = (uint8_t)strtoul(pair, NULL, 16);
  }
  return n;
}

static int dtype_by_name(const char *name) {
  for (int i = 0; i < 64; i++) {
    const char *s = df_dtype_name(i);
    if (s && strcmp(s, name) == 0) return i;
  }
  return -1;
}

static void test_dequant__golden(void **state) {
  (void)state;
  json_t *root = json_load_file(DF_SOURCE_DIR "/tests/golden/quant.json", 0, NULL);
  assert_non_null(root);
  const json_t *x = json_object_get(root, "x"), *blocks = json_object_get(root, "blocks");
  assert_true(json_array_size(blocks) >= 20);
  for (size_t b = 0; b < json_array_size(blocks); b++) {
    const json_t *blk = json_array_get(blocks, b), *want = json_object_get(blk, "values");
    const int type = dtype_by_name(json_string_value(json_object_get(blk, "type")));
    assert_true(type >= 0);
    uint8_t raw[256];
    const size_t raw_n = hex_decode(json_string_value(json_object_get(blk, "hex")), raw, sizeof raw);
    uint32_t values, bytes;
    assert_true(df_dtype_block(type, &values, &bytes));
    const size_t n = json_array_size(want);
    assert_int_equal(raw_n, n / values * bytes);
    float got[256];
    df_dequant((df_dtype)type, raw, n, got);
    double dot = 0, magnitude = 0;
    for (size_t i = 0; i < n; i++) {
      assert_int_equal(df_bits_of_float(got[i]), df_bits_of_float((float)json_number_value(json_array_get(want, i))));
      dot += (double)got[i] * json_number_value(json_array_get(x, i));
      magnitude += fabs((double)got[i] * json_number_value(json_array_get(x, i)));
    }
    const double want_dot = json_number_value(json_object_get(blk, "dot_x"));
    assert_true(fabs(dot - want_dot) <= 1e-7 * magnitude); /* the file gives nine digits */
  }
  json_decref(root);
}

/* Q5_0 and Q5_1 are not in the golden file: the format's formula, written out from the bits. */
static void test_dequant__q5_formula(void **state) {
  (void)state;
  uint64_t rng = 77;
  for (int round = 0; round < 200; round++) {
    uint8_t b0[22], b1[24];
    float y0[32], y1[32];
    test_fill_blocks(DF_Q5_0, TEST_FILL_RANDOM, &rng, 32, b0);
    test_fill_blocks(DF_Q5_1, TEST_FILL_RANDOM, &rng, 32, b1);
    df_dequant(DF_Q5_0, b0, 32, y0);
    df_dequant(DF_Q5_1, b1, 32, y1);
    const float d0 = df_f16_to_f32((uint16_t)(b0[0] | b0[1] << 8)), d1 = df_f16_to_f32((uint16_t)(b1[0] | b1[1] << 8));
    const float m1 = df_f16_to_f32((uint16_t)(b1[2] | b1[3] << 8));
    for (int i = 0; i < 32; i++) {
      const int n0 = i < 16 ? b0[6 + i] & 15 : b0[6 + i - 16] >> 4, n1 = i < 16 ? b1[8 + i] & 15 : b1[8 + i - 16] >> 4;
      const int h0 = (b0[2 + i / 8] >> (i % 8)) & 1, h1 = (b1[4 + i / 8] >> (i % 8)) & 1;
      assert_int_equal(df_bits_of_float(y0[i]), df_bits_of_float((float)(n0 + 16 * h0 - 16) * d0));
      assert_int_equal(df_bits_of_float(y1[i]),
                       df_bits_of_float((float)((double)(n1 + 16 * h1) * (double)d1 + (double)m1)));
    }
  }
}

static void test_dtype__table(void **state) {
  (void)state;
  static const struct {
    int id;
    const char *name;
    uint32_t values, bytes;
  } want[] = {{0, "F32", 1, 4},       {1, "F16", 1, 2},       {2, "Q4_0", 32, 18}, {3, "Q4_1", 32, 20},
              {6, "Q5_0", 32, 22},    {7, "Q5_1", 32, 24},    {8, "Q8_0", 32, 34}, {12, "Q4_K", 256, 144},
              {13, "Q5_K", 256, 176}, {14, "Q6_K", 256, 210}, {30, "BF16", 1, 2}};
  unsigned found = 0;
  for (int id = -3; id < 100; id++) {
    uint32_t values = 5, bytes = 6;
    const char *name = df_dtype_name(id);
    const bool known = df_dtype_block(id, &values, &bytes);
    assert_int_equal(known, name != NULL);
    if (!known) {
      assert_int_equal(values, 5);
      assert_int_equal(bytes, 6);
      continue;
    }
    assert_int_equal(want[found].id, id);
    assert_string_equal(want[found].name, name);
    assert_int_equal(want[found].values, values);
    assert_int_equal(want[found].bytes, bytes);
    found++;
  }
  assert_int_equal(found, 11);
  uint32_t values, bytes;
  assert_string_equal(df_dtype_name(DF_F8), "F8_E4M3"); /* no id of a file */
  assert_true(df_dtype_block(DF_F8, &values, &bytes));
  assert_int_equal(values, 64);
  assert_int_equal(bytes, 68);
  assert_false(df_dtype_block(INT32_MAX, &(uint32_t){0}, &(uint32_t){0}));
  assert_null(df_dtype_name(INT32_MIN));
}

static void test_f16__exhaustive(void **state) {
  (void)state;
  for (uint32_t h = 0; h < 0x10000; h++) {
    const float f = df_f16_to_f32((uint16_t)h);
    const int e = (int)((h >> 10) & 31);
    const double man = h & 0x3FF;
    if (e == 31 && man != 0) {
      assert_true(isnan(f));
      assert_int_equal(df_f32_to_f16(f), h | 0x200);
      continue;
    }
    const double want = e == 31 ? INFINITY : e ? ldexp(1024 + man, e - 25) : ldexp(man, -24);
    assert_int_equal(df_bits_of_float(f), df_bits_of_float((float)(h & 0x8000 ? -want : want)));
    assert_int_equal(df_f32_to_f16(f), h);
  }
}

/* Between every two neighbours: below the middle goes down, above goes up, the middle to the even one. */
static void test_f32_to_f16__rounding(void **state) {
  (void)state;
  for (uint32_t h = 0; h < 0x7C00; h++) {
    const float a = df_f16_to_f32((uint16_t)h);
    const float b = h == 0x7BFF ? 65536.0f : df_f16_to_f32((uint16_t)(h + 1)); /* infinity stands for 2^16 */
    const float mid = a + (b - a) / 2;                                         /* exact */
    assert_int_equal(df_f32_to_f16(nextafterf(mid, 0)), h);
    assert_int_equal(df_f32_to_f16(nextafterf(mid, INFINITY)), h + 1);
    assert_int_equal(df_f32_to_f16(mid), h & 1 ? h + 1 : h);
    assert_int_equal(df_f32_to_f16(-mid), 0x8000 | (h & 1 ? h + 1 : h));
  }
  assert_int_equal(df_f32_to_f16(INFINITY), 0x7C00);
  assert_int_equal(df_f32_to_f16(-3e38f), 0xFC00);
  assert_int_equal(df_f32_to_f16(1e-45f), 0);
  assert_int_equal(df_f32_to_f16(-1e-45f), 0x8000);
}

static void test_bf16__exhaustive(void **state) {
  (void)state;
  for (uint32_t h = 0; h < 0x10000; h++) {
    uint32_t want = h << 16, got = 0;
    const float f = df_bf16_to_f32((uint16_t)h);
    memcpy(&got, &f, 4);
    assert_int_equal(got, want);
  }
}

/* All 256 codes by the format's formula, and through every tier's product: a row that picks one code. */
static void test_e4m3__all_codes(void **state) {
  (void)state;
  static const uint8_t some[] = {0x00, 0x01, 0x07, 0x08, 0x38, 0x7E, 0x80, 0xC1, 0xFE};
  static const float values[] = {0, 0x1p-9f, 0x7p-9f, 0x1p-6f, 1, 448, -0.0f, -2.25f, -448};
  for (size_t i = 0; i < sizeof some; i++)
    assert_int_equal(df_bits_of_float(df_e4m3_to_f32(some[i])), df_bits_of_float(values[i]));
  for (uint32_t c = 0; c < 256; c++) {
    const int e = (int)(c >> 3 & 15), m = (int)(c & 7);
    const double mag = e ? ldexp(8 + m, e - 10) : ldexp(m, -9), want = c & 0x80 ? -mag : mag;
    const float got = df_e4m3_to_f32((uint8_t)c);
    if ((c & 0x7F) == 0x7F)
      assert_true(isnan(got));
    else
      assert_int_equal(df_bits_of_float(got), df_bits_of_float((float)want));
  }
}

/* Output o of a 256-output matrix holds code o everywhere; one activation is 1, the others 0 (NaN codes stay NaN). */
static void test_e4m3__all_codes_in_products(void **state) {
  (void)state;
  enum { N = 256, K = 64 };
  uint8_t *file = df_calloc(N, 68);
  for (uint32_t o = 0; o < N; o++) {
    const float scale = 0.5f;
    memcpy(file + o * 68, &scale, 4);
    memset(file + o * 68 + 4, (int)o, 64);
  }
  df_weights w = {.pack = DF_PACK_F8, .n = N, .k = K};
  assert_true(df_pack_strip_bytes(w.pack, K, &w.strip_bytes));
  test_guard g = test_guard_alloc(df_strips(N) * w.strip_bytes, true);
  w.data = g.p;
  df_pack_strips(&w, DF_F8, file, 68, NULL, 0, df_strips(N));
  float x[DF_TILE_ROWS * K] = {0}, out[DF_TILE_ROWS * N];
  for (uint32_t r = 0; r < DF_TILE_ROWS; r++) x[r * K + (r * 5) % K] = (float)(r + 1);
  for (int t = DF_TIER_REF; t < DF_TIER_COUNT; t++) {
    const df_kernels *kern = df_kernels_get((df_cpu_tier)t);
    for (uint32_t m = 1; kern && m <= DF_TILE_ROWS; m += 5) {
      kern->mm[DF_PACK_F8](&w, 0, df_strips(N), x, m, out, N);
      for (uint32_t r = 0; r < m; r++)
        for (uint32_t o = 0; o < N; o++) {
          const float want = 0.5f * (float)(r + 1) * df_e4m3_to_f32((uint8_t)o), got = out[r * N + o];
          if ((o & 0x7F) == 0x7F)
            assert_true(isnan(got));
          else if (want != 0)
            assert_int_equal(df_bits_of_float(got), df_bits_of_float(want));
          else
            assert_true(got == 0);
        }
    }
  }
  test_guard_free(&g);
  df_free(file);
}

static void test_pack_strip_bytes__limits(void **state) {
  (void)state;
  size_t b = 9;
  assert_false(df_pack_strip_bytes(DF_PACK_Q8, 0, &b));
  assert_false(df_pack_strip_bytes(DF_PACK_Q8, 33, &b));
  assert_false(df_pack_strip_bytes(DF_PACK_Q4K, 288, &b));
  assert_false(df_pack_strip_bytes(DF_PACK_Q6K, 32, &b));
  assert_false(df_pack_strip_bytes(DF_PACK_COUNT, 256, &b));
  assert_false(df_pack_strip_bytes((df_pack)-1, 256, &b));
  assert_int_equal(b, 9);
  for (int p = 0; p < DF_PACK_COUNT; p++) {
    assert_true(df_pack_strip_bytes((df_pack)p, 0xFFFFFF00u, &b));
    assert_true(b % 64 == 0 && b >= (size_t)0xFFFFFF00u * 8);
  }
  assert_true(df_pack_strip_bytes(DF_PACK_F16, 1, &b));
  assert_int_equal(b, 64);
  assert_true(df_pack_strip_bytes(DF_PACK_Q4K, 512, &b));
  assert_int_equal(b, 512 * 16 / 256 * 148); /* 144 file bytes plus 4: scales and mins unpacked to bytes */
}

/* Every value comes back with the file's bits; gaps and neighbours stay untouched; any split gives the same. */
static void pack_case(df_dtype type, test_fill fill, uint32_t n, uint32_t k, bool gather) {
  uint64_t rng = 1 + (uint64_t)type * 1000 + n * 31 + k + (uint64_t)fill;
  uint32_t values, bytes;
  assert_true(df_dtype_block((int)type, &values, &bytes));
  if (k % values) return;
  const size_t row_bytes = (size_t)k / values * bytes + 6; /* rows need not be adjacent */
  const uint32_t file_rows = n + 5;
  test_guard file = test_guard_alloc(file_rows * row_bytes - 6, true);
  for (uint32_t r = 0; r < file_rows; r++) test_fill_blocks(type, fill, &rng, k, file.p + r * row_bytes);
  uint32_t *row_of = df_calloc(n, sizeof *row_of);
  for (uint32_t i = 0; i < n; i++) row_of[i] = gather ? (uint32_t)(test_random(&rng) >> 33) % file_rows : i;

  df_weights w = {.pack = df_pack_of(type), .n = n, .k = k};
  assert_true(df_pack_strip_bytes(w.pack, k, &w.strip_bytes));
  const uint32_t strips = df_strips(n);
  test_guard once = test_guard_alloc(strips * w.strip_bytes, true),
             split = test_guard_alloc(strips * w.strip_bytes, false);
  memset(split.p, 0x5A, strips * w.strip_bytes); /* every byte must be written */
  w.data = split.p;
  for (uint32_t s = strips; s-- > 0;) df_pack_strips(&w, type, file.p, row_bytes, row_of, s, s + 1);
  w.data = once.p;
  df_pack_strips(&w, type, file.p, row_bytes, gather ? row_of : NULL, 0, strips);
  assert_memory_equal(once.p, split.p, strips * w.strip_bytes);

  float *want = df_calloc(k, sizeof *want), *got = df_calloc(k, sizeof *got);
  for (uint32_t r = 0; r < n; r++) {
    df_dequant(type, file.p + row_of[r] * row_bytes, k, want);
    for (int t = DF_TIER_REF; t < DF_TIER_COUNT; t++) {
      const df_kernels *kern = df_kernels_get((df_cpu_tier)t);
      if (!kern) continue;
      memset(got, 0xEE, k * sizeof *got);
      kern->unpack_row(&w, r, got);
      assert_memory_equal(got, want, k * sizeof *got);
    }
  }
  df_free(want);
  df_free(got);
  df_free(row_of);
  test_guard_free(&file);
  test_guard_free(&once);
  test_guard_free(&split);
}

static void test_pack_strips__exact(void **state) {
  (void)state;
  static const uint32_t n[] = {1, 15, 16, 17, 47}, k[] = {1, 7, 32, 96, 256, 288, 768};
  for (int t = 0; t < TEST_DTYPES; t++)
    for (int f = 0; f < TEST_FILLS; f++)
      for (int i = 0; i < 5; i++)
        for (int j = 0; j < 7; j++) pack_case(test_dtypes[t], (test_fill)f, n[i], k[j], (i + j + f) % 2);
}

/* The packed forms take the bytes that their description says, not more than 11 % above the file's (Q8M: expanded). */
static void test_pack_of__size(void **state) {
  (void)state;
  for (int t = 0; t < TEST_DTYPES; t++) {
    uint32_t values, bytes;
    size_t strip;
    assert_true(df_dtype_block((int)test_dtypes[t], &values, &bytes));
    assert_true(df_pack_strip_bytes(df_pack_of(test_dtypes[t]), 2048, &strip));
    const double ratio = (double)strip / (16.0 * 2048 / values * bytes);
    const double bound =
        test_dtypes[t] == DF_Q5_0 || test_dtypes[t] == DF_Q5_1 || test_dtypes[t] == DF_Q5_K ? 1.82 : 1.03;
    assert_true(ratio >= 1.0 && ratio <= bound);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_dequant__golden),
      cmocka_unit_test(test_dequant__q5_formula),
      cmocka_unit_test(test_dtype__table),
      cmocka_unit_test(test_f16__exhaustive),
      cmocka_unit_test(test_f32_to_f16__rounding),
      cmocka_unit_test(test_bf16__exhaustive),
      cmocka_unit_test(test_e4m3__all_codes),
      cmocka_unit_test(test_e4m3__all_codes_in_products),
      cmocka_unit_test(test_pack_strip_bytes__limits),
      cmocka_unit_test(test_pack_strips__exact),
      cmocka_unit_test(test_pack_of__size),
  };
  return cmocka_run_group_tests_name("quant", tests, NULL, NULL);
}
