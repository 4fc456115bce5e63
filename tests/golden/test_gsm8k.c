/* The task gsm8k against lm-eval's own code: prompts of every kind byte for byte (by checksum), extracted numbers and
 * scores of hostile and ordinary answers. Vectors: tools/make-eval-vectors. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "eval/gsm8k.h"
#include "eval/tally.h"
#include "format/json.h"

static df_json *g_golden;
static df_gsm8k g_data;

static int setup(void **state) {
  df_error err;
  (void)state;
  if (df_json_load(DF_SOURCE_DIR "/tests/golden/eval-gsm8k.json", 8u << 20, &g_golden, &err) != DF_OK) return -1;
  return df_gsm8k_load(&g_data, DF_SOURCE_DIR "/data/gsm8k", true, &err) == DF_OK ? 0 : -1;
}

static int teardown(void **state) {
  (void)state;
  df_json_free(g_golden);
  df_gsm8k_release(&g_data);
  return 0;
}

static void sha256(const df_buf *b, char hex[65]) {
  unsigned char md[32];
  unsigned int n = 0;
  assert_int_equal(EVP_Digest(b->data, b->len, md, &n, EVP_sha256(), NULL), 1);
  for (int i = 0; i < 32; i++) (void)snprintf(hex + 2 * i, 3, "%02x", md[i]);
}

static void check_prompts(const df_json *p) {
  const uint32_t shots = (uint32_t)df_json_int(df_json_member(p, "shots"));
  const bool chat = df_json_bool(df_json_member(p, "chat"));
  const df_fewshot how =
      strcmp(df_json_str(df_json_member(p, "sampler"), NULL), "first_n") == 0 ? DF_FEWSHOT_FIRST : DF_FEWSHOT_SAMPLED;
  const df_json *sums = df_json_member(p, "sha256");
  df_gsm8k_picker picker;
  df_buf b;
  df_buf_init(&b, 0);
  assert_int_equal(
      df_gsm8k_picker_init(&picker, &g_data, how, shots, (uint64_t)df_json_int(df_json_member(p, "seed")), NULL),
      DF_OK);
  assert_true(df_json_size(sums) >= 20);
  for (uint32_t i = 0; i < df_json_size(sums); i++) {
    uint32_t ex[DF_GSM8K_MAX_SHOTS];
    char hex[65];
    b.len = 0;
    assert_int_equal(df_gsm8k_pick(&picker, &g_data, ex, NULL), DF_OK);
    assert_int_equal(
        chat ? df_gsm8k_messages(&g_data, i, ex, shots, &b, NULL) : df_gsm8k_prompt(&g_data, i, ex, shots, &b, NULL),
        DF_OK);
    if (i == 0) assert_string_equal(b.data, df_json_str(df_json_member(p, "first"), NULL));
    sha256(&b, hex);
    assert_string_equal(hex, df_json_str(df_json_at(sums, i), NULL));
  }
  df_buf_release(&b);
}

static void test_gsm8k_prompt__equals_lm_eval(void **state) {
  (void)state;
  const df_json *all = df_json_member(g_golden, "prompts");
  assert_int_equal(df_json_size(all), 7);
  assert_int_equal(df_json_size(df_json_member(df_json_at(all, 0), "sha256")), 1319);
  for (size_t i = 0; i < df_json_size(all); i++) check_prompts(df_json_at(all, i));
}

static void test_gsm8k_stop__equals_lm_eval(void **state) {
  (void)state;
  const df_json *g = df_json_member(df_json_at(df_json_member(g_golden, "prompts"), 0), "generation");
  const df_json *until = df_json_member(g, "until");
  assert_int_equal(df_json_size(until), 3);
  for (size_t i = 0; i < 3; i++) assert_string_equal(df_gsm8k_stop[i], df_json_str(df_json_at(until, i), NULL));
  assert_false(df_json_bool(df_json_member(g, "do_sample")));
}

static void check_text(const char *got, size_t n, const df_json *want) {
  size_t n_want;
  const char *w = df_json_str(want, &n_want);
  assert_int_equal(n, n_want);
  assert_memory_equal(got, w, n);
}

static void test_gsm8k_score_answer__equals_lm_eval(void **state) {
  (void)state;
  const df_json *all = df_json_member(g_golden, "answers");
  uint32_t hits = 0, invalid = 0;
  assert_true(df_json_size(all) >= 500);
  for (size_t i = 0; i < df_json_size(all); i++) {
    const df_json *row = df_json_at(all, i);
    const df_gsm8k_item *it = &g_data.test.items[df_json_int(df_json_at(row, 1))];
    df_gsm8k_score s;
    size_t n;
    const char *text = df_json_str(df_json_at(row, 0), &n);
    assert_int_equal(df_gsm8k_score_answer(text, n, it->answer, it->n_answer, &s, NULL), DF_OK);
    check_text(s.strict, s.n_strict, df_json_at(row, 2));
    check_text(s.flexible, s.n_flexible, df_json_at(row, 3));
    assert_int_equal(s.strict_ok, df_json_num(df_json_at(row, 4)) == 1);
    assert_int_equal(s.flexible_ok, df_json_num(df_json_at(row, 5)) == 1);
    hits += s.flexible_ok;
    invalid += !s.strict_valid;
  }
  assert_true(hits > 80 && invalid > 100); /* the vectors hold both kinds */
}

static void test_score__reference_forms(void **state) {
  (void)state;
  static const struct {
    const char *answer, *solution;
    bool strict, flexible;
  } k[] = {{"#### 1,000", "x #### 1000", true, true},
           {"#### 1000.", "#### 1,000", true, true},
           {"it is $1,000.", "#### 1000", false, true},
           {"#### 5", "#### 4 #### 5.", true, true},
           {"#### 5", "5.\n", false, false},
           {"#### 5..", "#### 5.", false, false},
           {"#### 5", "no mark 5", false, false},
           {"nothing", "#### [INVALID]", true, true}};
  for (size_t i = 0; i < sizeof k / sizeof *k; i++) {
    df_gsm8k_score s;
    assert_int_equal(
        df_gsm8k_score_answer(k[i].answer, strlen(k[i].answer), k[i].solution, strlen(k[i].solution), &s, NULL), DF_OK);
    assert_int_equal(s.strict_ok, k[i].strict);
    assert_int_equal(s.flexible_ok, k[i].flexible);
  }
}

static void test_tally__stderr_equals_lm_eval(void **state) {
  (void)state;
  const df_json *hits = df_json_member(g_golden, "hits");
  const uint32_t k = (uint32_t)df_json_int(df_json_at(hits, 0)), n = (uint32_t)df_json_int(df_json_at(hits, 1));
  assert_true(fabs((double)k / n - df_json_num(df_json_member(g_golden, "mean"))) < 1e-15);
  assert_true(fabs(df_share_stderr(k, n) - df_json_num(df_json_member(g_golden, "mean_stderr"))) < 1e-15);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_gsm8k_prompt__equals_lm_eval), cmocka_unit_test(test_gsm8k_stop__equals_lm_eval),
      cmocka_unit_test(test_gsm8k_score_answer__equals_lm_eval), cmocka_unit_test(test_score__reference_forms),
      cmocka_unit_test(test_tally__stderr_equals_lm_eval)};
  return cmocka_run_group_tests_name("gsm8k", tests, setup, teardown);
}
