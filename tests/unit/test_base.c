/* Base layer: errors, buffers, checked sizes, hash map, memory with failure injection. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/cpu.h"
#include "base/error.h"
#include "base/log.h"
#include "base/map.h"
#include "base/mem.h"
#include "base/size.h"

/* Small linear generator: order of the tests must not matter. */
static uint32_t next_random(uint32_t *s) { return *s = *s * 1664525u + 1013904223u; }

/* ---- error ----------------------------------------------------------------------------------------------- */

static void test_error_set__fills_every_field_and_clears_the_hint(void **state) {
  (void)state;
  df_error e;
  memset(&e, 0x55, sizeof e);
  const int line = __LINE__ + 1;
  assert_int_equal(DF_FAIL(&e, DF_ERR_IO, "could not open \"%s\": %s", "x.gguf", "no such file"), DF_ERR_IO);
  assert_int_equal(e.code, DF_ERR_IO);
  assert_string_equal(e.msg, "could not open \"x.gguf\": no such file");
  assert_string_equal(e.hint, "");
  assert_non_null(strstr(e.file, "test_base.c"));
  assert_int_equal(e.line, line);
  df_error_hint(&e, "try %d", 7);
  assert_string_equal(e.hint, "try 7");
  df_error_prefix(&e, "while loading %s", "the draft");
  assert_string_equal(e.msg, "while loading the draft: could not open \"x.gguf\": no such file");
  assert_string_equal(e.hint, "try 7");
}

static void test_error_set__without_a_record_only_returns_the_code(void **state) {
  (void)state;
  assert_int_equal(DF_FAIL(NULL, DF_ERR_FORMAT, "x"), DF_ERR_FORMAT);
  df_error_hint(NULL, "x");
  df_error_prefix(NULL, "x");
}

static void test_error_set__control_bytes_cannot_break_the_line(void **state) {
  (void)state;
  df_error e;
  (void)DF_FAIL(&e, DF_ERR_IO, "name \"a\nb\x1b[31mc\x7f\"");
  assert_string_equal(e.msg, "name \"a?b?[31mc?\"");
}

static bool valid_utf8(const char *s) {
  const unsigned char *p = (const unsigned char *)s;
  while (*p) {
    const int more = *p < 0x80 ? 0 : *p >= 0xF0 ? 3 : *p >= 0xE0 ? 2 : *p >= 0xC0 ? 1 : -1;
    if (more < 0) return false;
    p++;
    for (int i = 0; i < more; i++, p++)
      if ((*p & 0xC0) != 0x80) return false;
  }
  return true;
}

/* Every alignment of one to four byte characters against the end of the field. */
static void test_error_set__cuts_at_a_character_border(void **state) {
  (void)state;
  static const char *const chars[] = {"x", "\xc3\xa9", "\xe2\x82\xac", "\xf0\x9f\x98\x80"};
  for (size_t c = 0; c < DF_COUNT_OF(chars); c++)
    for (size_t lead = 0; lead < 8; lead++) {
      char text[2048] = "";
      size_t n = 0;
      for (; n < lead; n++) text[n] = 'a';
      while (n + 5 < sizeof text) {
        memcpy(text + n, chars[c], strlen(chars[c]));
        n += strlen(chars[c]);
      }
      text[n] = '\0';
      df_error e;
      (void)DF_FAIL(&e, DF_ERR_IO, "%s", text);
      assert_true(valid_utf8(e.msg));
      assert_true(strlen(e.msg) + 8 > sizeof e.msg); /* not cut more than a character or so */
      assert_memory_equal(e.msg, text, strlen(e.msg));
      df_error_hint(&e, "%s", text);
      assert_true(valid_utf8(e.hint));
      df_error_prefix(&e, "%s", text + 1800);
      assert_true(valid_utf8(e.msg) || lead != 0); /* the prefix itself may start inside a character */
    }
}

static void test_status_name__all_known(void **state) {
  (void)state;
  for (int s = 0; s >= DF_ERR_DEVICE; s--) {
    assert_string_not_equal(df_status_name((df_status)s), "unknown");
    for (int t = 0; t > s; t--) assert_string_not_equal(df_status_name((df_status)s), df_status_name((df_status)t));
  }
  assert_string_equal(df_status_name((df_status)-99), "unknown");
}

/* ---- buf ------------------------------------------------------------------------------------------------- */

static void test_buf__grows_like_plain_concatenation(void **state) {
  (void)state;
  df_buf b;
  df_buf_init(&b, 0);
  char *want = malloc(200000);
  size_t n = 0;
  uint32_t seed = 1;
  for (int i = 0; i < 3000; i++) {
    char part[64];
    const size_t m = next_random(&seed) >> 26;
    for (size_t j = 0; j < m; j++) part[j] = (char)(next_random(&seed) >> 24);
    assert_int_equal(df_buf_put(&b, part, m, NULL), DF_OK);
    memcpy(want + n, part, m);
    n += m;
    assert_int_equal(b.len, n);
    assert_int_equal(b.data[b.len], 0);
  }
  assert_memory_equal(b.data, want, n);
  free(want);
  df_buf_release(&b);
  assert_null(b.data);
}

static void test_buf_printf__keeps_what_was_there(void **state) {
  (void)state;
  df_buf b;
  df_buf_init(&b, 0);
  assert_int_equal(df_buf_puts(&b, "n=", NULL), DF_OK);
  assert_int_equal(df_buf_printf(&b, NULL, "%d;%s", 42, "end"), DF_OK);
  for (int i = 0; i < 100; i++) assert_int_equal(df_buf_printf(&b, NULL, "%c", 'x'), DF_OK);
  assert_int_equal(b.len, 108);
  assert_memory_equal(b.data, "n=42;endxxx", 11);
  char *taken = df_buf_take(&b);
  assert_int_equal(strlen(taken), 108);
  assert_int_equal(b.len, 0);
  df_free(taken);
}

static void test_buf_put__stops_at_its_maximum_and_keeps_its_content(void **state) {
  (void)state;
  df_buf b;
  df_error e;
  df_buf_init(&b, 5);
  assert_int_equal(df_buf_put(&b, "abc", 3, NULL), DF_OK);
  assert_int_equal(df_buf_put(&b, "def", 3, &e), DF_ERR_LIMIT);
  assert_string_equal(b.data, "abc");
  assert_int_equal(df_buf_put(&b, "de", 2, NULL), DF_OK);
  assert_string_equal(b.data, "abcde");
  assert_int_equal(df_buf_reserve(&b, SIZE_MAX - 2, &e), DF_ERR_LIMIT);
  df_buf_release(&b);
}

static void test_buf_reserve__is_a_string_at_once(void **state) {
  (void)state;
  df_buf b;
  df_buf_init(&b, 0);
  assert_int_equal(df_buf_reserve(&b, 1000, NULL), DF_OK);
  assert_string_equal(b.data, "");
  df_buf_release(&b);
}

/* ---- size ------------------------------------------------------------------------------------------------ */

static void test_size__overflow_is_seen_and_leaves_the_result(void **state) {
  (void)state;
  size_t r = 7;
  assert_true(df_mul_size(SIZE_MAX / 2, 2, &r));
  assert_true(r == SIZE_MAX - 1);
  r = 7;
  assert_false(df_mul_size(SIZE_MAX / 2 + 1, 2, &r));
  assert_false(df_add_size(SIZE_MAX, 1, &r));
  assert_int_equal(r, 7);
  assert_true(df_add_size(SIZE_MAX - 1, 1, &r));
  assert_true(r == SIZE_MAX);
  assert_int_equal(df_round_up(0, 64), 0);
  assert_int_equal(df_round_up(1, 64), 64);
  assert_int_equal(df_round_up(64, 64), 64);
  assert_int_equal(df_round_up(65, 64), 128);
}

/* ---- map ------------------------------------------------------------------------------------------------- */

static void test_map__holds_every_key_through_growth(void **state) {
  (void)state;
  enum { N = 20000 };
  char(*keys)[12] = malloc(N * sizeof *keys);
  df_map m = {0};
  for (uint32_t i = 0; i < N; i++) {
    (void)snprintf(keys[i], sizeof keys[i], "k%u", i * 7);
    bool existed = true;
    assert_int_equal(df_map_put(&m, keys[i], strlen(keys[i]), i, &existed, NULL), DF_OK);
    assert_false(existed);
  }
  assert_int_equal(m.count, N);
  for (uint32_t i = 0; i < N; i++) {
    uint32_t v = 0;
    assert_true(df_map_get(&m, keys[i], strlen(keys[i]), &v));
    assert_int_equal(v, i);
  }
  uint32_t v = 5;
  assert_false(df_map_get(&m, "k1", 2, &v));
  assert_int_equal(v, 5);
  bool existed = false;
  assert_int_equal(df_map_put(&m, "k7", 2, 999, &existed, NULL), DF_OK);
  assert_true(existed);
  assert_true(df_map_get(&m, "k7", 2, &v));
  assert_int_equal(v, 999);
  assert_int_equal(m.count, N);
  df_map_release(&m);
  assert_false(df_map_get(&m, "k7", 2, &v));
  free(keys);
}

static void test_map__keys_are_bytes_with_length(void **state) {
  (void)state;
  df_map m;
  assert_int_equal(df_map_init(&m, 4, NULL), DF_OK);
  uint32_t v;
  assert_int_equal(df_map_put(&m, "a\0b", 3, 1, NULL, NULL), DF_OK);
  assert_int_equal(df_map_put(&m, "a\0c", 3, 2, NULL, NULL), DF_OK);
  assert_int_equal(df_map_put(&m, "a", 1, 3, NULL, NULL), DF_OK);
  assert_int_equal(df_map_put(&m, "", 0, 4, NULL, NULL), DF_OK);
  assert_true(df_map_get(&m, "a\0c", 3, &v) && v == 2);
  assert_true(df_map_get(&m, "a", 1, &v) && v == 3);
  assert_true(df_map_get(&m, "", 0, &v) && v == 4);
  assert_false(df_map_get(&m, "a\0", 2, &v));
  df_map_release(&m);
}

static void test_hash_bytes__spreads_similar_keys(void **state) {
  (void)state;
  enum { BUCKETS = 256, N = 25600 };
  static uint32_t low[BUCKETS], high[BUCKETS];
  for (uint32_t i = 0; i < N; i++) {
    char key[16];
    const int n = snprintf(key, sizeof key, "%u", i);
    const uint64_t h = df_hash_bytes(key, (size_t)n, 0);
    low[h % BUCKETS]++;
    high[h >> 56]++;
  }
  double a = 0, b = 0;
  for (int i = 0; i < BUCKETS; i++) {
    a += (low[i] - 100.0) * (low[i] - 100.0) / 100.0;
    b += (high[i] - 100.0) * (high[i] - 100.0) / 100.0;
  }
  assert_true(a < 330.5 && b < 330.5); /* 255 degrees of freedom, p = 0.001 */
  assert_true(df_hash_bytes("ab", 2, 0) != df_hash_bytes("ab", 2, 1));
  assert_true(df_hash_bytes("\0", 1, 0) != df_hash_bytes("\0\0", 2, 0));
}

/* ---- mem ------------------------------------------------------------------------------------------------- */

static void test_mem_fail_after__hits_exactly_the_named_allocation(void **state) {
  (void)state;
  df_mem_fail_after(2, false);
  void *a = df_alloc(8), *b = df_alloc(8), *c = df_alloc(8);
  assert_non_null(a);
  assert_null(b);
  assert_non_null(c);
  df_mem_fail_after(2, true);
  void *d = df_alloc(8), *e = df_calloc(1, 8), *f = df_strdup("x");
  assert_non_null(d);
  assert_null(e);
  assert_null(f);
  assert_null(df_pages_alloc(4096));
  df_mem_fail_after(0, false);
  void *g = df_realloc(a, 100);
  assert_non_null(g);
  df_free(g), df_free(c), df_free(d);
}

static void test_mem_alloc_count__counts_every_kind(void **state) {
  (void)state;
  const uint64_t before = df_mem_alloc_count();
  void *p = df_alloc(1);
  p = df_realloc(p, 100);
  void *q = df_calloc(3, 5);
  char *s = df_strndup("hello", 2);
  void *pages = df_pages_alloc(10000);
  assert_int_equal(df_mem_alloc_count() - before, 5);
  assert_string_equal(s, "he");
  for (int i = 0; i < 15; i++) assert_int_equal(((char *)q)[i], 0);
  assert_int_equal((uintptr_t)pages % 4096, 0);
  for (int i = 0; i < 10000; i++) assert_int_equal(((char *)pages)[i], 0);
  df_free(p), df_free(q), df_free(s);
  df_pages_free(pages, 10000);
  assert_null(df_calloc(SIZE_MAX / 2, 3));
}

/* Each allocation of a growing map and buffer fails once: a status, no leak, content kept. */
static void test_containers__survive_every_failed_allocation(void **state) {
  (void)state;
  static const char *const keys[40] = {"a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l", "m", "n",
                                       "o", "p", "q", "r", "s", "t", "u", "v", "w", "x", "y", "z", "A", "B",
                                       "C", "D", "E", "F", "G", "H", "I", "J", "K", "L", "M", "N"};
  for (uint64_t n = 1; n < 12; n++) {
    df_map m = {0};
    df_buf b;
    df_buf_init(&b, 0);
    uint32_t in_map = 0, in_buf = 0, v;
    df_mem_fail_after(n, false);
    for (uint32_t i = 0; i < 40; i++) {
      df_error e;
      const df_status sm = df_map_put(&m, keys[i], 1, i, NULL, &e);
      assert_true(sm == DF_OK || (sm == DF_ERR_MEMORY && e.code == DF_ERR_MEMORY));
      if (sm != DF_OK) break;
      in_map++;
      const df_status sb = df_buf_put(&b, "0123456789", 10, &e);
      assert_true(sb == DF_OK || sb == DF_ERR_MEMORY);
      if (sb != DF_OK) break;
      in_buf++;
    }
    df_mem_fail_after(0, false);
    for (uint32_t i = 0; i < in_map; i++) assert_true(df_map_get(&m, keys[i], 1, &v) && v == i);
    assert_int_equal(m.count, in_map);
    assert_int_equal(b.len, 10 * in_buf);
    df_map_release(&m);
    df_buf_release(&b);
  }
}

/* ---- log, cpu -------------------------------------------------------------------------------------------- */

static char g_line[256];
static int g_lines;
static void sink(void *user, df_log_level level, const char *line) {
  (void)user;
  (void)level;
  g_lines++;
  (void)snprintf(g_line, sizeof g_line, "%s", line);
}

static void test_log__is_silent_without_a_sink_and_filters_levels(void **state) {
  (void)state;
  df_log(DF_LOG_ERROR, "nobody listens");
  df_log_set(sink, NULL, DF_LOG_WARN);
  df_log(DF_LOG_INFO, "too detailed");
  assert_int_equal(g_lines, 0);
  df_log(DF_LOG_WARN, "width %d", 8);
  assert_int_equal(g_lines, 1);
  assert_string_equal(g_line, "width 8");
  df_log_set(NULL, NULL, DF_LOG_DEBUG);
  df_log(DF_LOG_ERROR, "gone");
  assert_int_equal(g_lines, 1);
}

static void test_cpu_tier__names_parse_back(void **state) {
  (void)state;
  for (int t = DF_TIER_REF; t < DF_TIER_COUNT; t++) {
    assert_int_equal(df_cpu_tier_parse(df_cpu_tier_name((df_cpu_tier)t)), t);
    if (df_cpu_tier_fits((df_cpu_tier)t)) assert_true(df_cpu_tier_built((df_cpu_tier)t));
  }
  assert_true(df_cpu_tier_fits(DF_TIER_REF));
  assert_true(df_cpu_tier_fits(df_cpu_best_tier()));
  assert_int_equal(df_cpu_tier_parse("sse9"), -1);
  assert_true(df_cpu_count() >= 1);
  const uint32_t f = df_cpu_features();
  if (df_cpu_tier_fits(DF_TIER_AVX2)) assert_true((f & DF_CPU_AVX2) && (f & DF_CPU_FMA) && (f & DF_CPU_F16C));
  if (df_cpu_tier_fits(DF_TIER_AVX512)) assert_true((f & DF_CPU_AVX512) && (f & DF_CPU_AVX512VNNI));
  char brand[8];
  memset(brand, 'x', sizeof brand);
  df_cpu_brand(brand, 4);
  assert_true(memchr(brand, 0, 4) != NULL);
  assert_int_equal(brand[4], 'x');
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_error_set__fills_every_field_and_clears_the_hint),
      cmocka_unit_test(test_error_set__without_a_record_only_returns_the_code),
      cmocka_unit_test(test_error_set__control_bytes_cannot_break_the_line),
      cmocka_unit_test(test_error_set__cuts_at_a_character_border),
      cmocka_unit_test(test_status_name__all_known),
      cmocka_unit_test(test_buf__grows_like_plain_concatenation),
      cmocka_unit_test(test_buf_printf__keeps_what_was_there),
      cmocka_unit_test(test_buf_put__stops_at_its_maximum_and_keeps_its_content),
      cmocka_unit_test(test_buf_reserve__is_a_string_at_once),
      cmocka_unit_test(test_size__overflow_is_seen_and_leaves_the_result),
      cmocka_unit_test(test_map__holds_every_key_through_growth),
      cmocka_unit_test(test_map__keys_are_bytes_with_length),
      cmocka_unit_test(test_hash_bytes__spreads_similar_keys),
      cmocka_unit_test(test_mem_fail_after__hits_exactly_the_named_allocation),
      cmocka_unit_test(test_mem_alloc_count__counts_every_kind),
      cmocka_unit_test(test_containers__survive_every_failed_allocation),
      cmocka_unit_test(test_log__is_silent_without_a_sink_and_filters_levels),
      cmocka_unit_test(test_cpu_tier__names_parse_back),
  };
  return cmocka_run_group_tests_name("base", tests, NULL, NULL);
}
