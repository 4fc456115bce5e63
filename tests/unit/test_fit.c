/* Which pairs of target and draft are accepted, and what a refusal names. */
// clang-format off
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
// clang-format on

#include <string.h>

#include "draft/fit.h"

static df_config target_of(void) {
  df_config c = {.n_layers = 30, .hidden = 576, .vocab = 49152};
  memcpy(c.arch, "llama", 6);
  return c;
}

static df_config draft_of(void) {
  df_config c = {.is_draft = true,
                 .n_layers = 5,
                 .hidden = 576,
                 .vocab = 49152,
                 .mask_token_id = 16,
                 .n_taps = 5,
                 .taps = {1, 8, 14, 20, 27},
                 .n_target_layers = 30,
                 .block_size = 16};
  memcpy(c.arch, "dflash", 7);
  return c;
}

static void test_check_fit__fitting_pair(void **state) {
  (void)state;
  df_config t = target_of(), d = draft_of();
  df_fit_report r;
  assert_int_equal(df_draft_check_fit(&t, &d, 7, 7, &r, NULL), DF_OK);
  assert_true(r.fits);
  for (int i = 0; i < DF_FIT_COUNT; i++) assert_int_equal(r.item[i].verdict, DF_FIT_OK);
  assert_string_equal(r.item[DF_FIT_WIDTH].target, "576");
  assert_string_equal(r.item[DF_FIT_TAPS].draft, "1 8 14 20 27 of 30");
}

static void test_check_fit__silent_files_are_taken_as_fitting(void **state) {
  (void)state;
  df_config t = target_of(), d = draft_of();
  df_fit_report r;
  d.vocab = 0;
  d.mask_token_id = -1;
  d.n_target_layers = 0;
  assert_int_equal(df_draft_check_fit(&t, &d, 7, 0, &r, NULL), DF_OK);
  assert_int_equal(r.item[DF_FIT_VOCAB].verdict, DF_FIT_NOT_STATED);
  assert_int_equal(r.item[DF_FIT_MASK].verdict, DF_FIT_NOT_STATED);
  assert_int_equal(r.item[DF_FIT_TOKENIZER].verdict, DF_FIT_NOT_STATED);
  assert_int_equal(r.item[DF_FIT_TAPS].verdict, DF_FIT_OK);
  assert_string_equal(r.item[DF_FIT_VOCAB].draft, "not stated");
}

/* Breaks one thing at a time: exactly that item is bad, and the message names it. */
static void expect_bad(const df_config *t, const df_config *d, uint64_t th, uint64_t dh, df_fit_what what) {
  df_fit_report r;
  df_error err;
  assert_int_equal(df_draft_check_fit(t, d, th, dh, &r, &err), DF_ERR_MISMATCH);
  assert_false(r.fits);
  for (int i = 0; i < DF_FIT_COUNT; i++) assert_int_equal(r.item[i].verdict == DF_FIT_BAD, i == (int)what);
  assert_non_null(strstr(err.msg, r.item[what].name));
  assert_non_null(strstr(err.msg, r.item[what].target));
  assert_non_null(strstr(err.msg, r.item[what].draft));
}

static void test_check_fit__each_difference(void **state) {
  (void)state;
  df_config t = target_of(), d = draft_of();
  d.hidden = 1536;
  expect_bad(&t, &d, 7, 7, DF_FIT_WIDTH);
  d = draft_of();
  d.vocab = 49153;
  expect_bad(&t, &d, 7, 7, DF_FIT_VOCAB);
  d = draft_of();
  d.taps[4] = 30; /* the first layer that does not exist */
  expect_bad(&t, &d, 7, 7, DF_FIT_TAPS);
  d.taps[4] = 29; /* the last one that does */
  assert_int_equal(df_draft_check_fit(&t, &d, 7, 7, NULL, NULL), DF_OK);
  d = draft_of();
  d.n_target_layers = 28;
  expect_bad(&t, &d, 7, 7, DF_FIT_TAPS);
  d = draft_of();
  d.n_taps = 0;
  expect_bad(&t, &d, 7, 7, DF_FIT_TAPS);
  d = draft_of();
  d.mask_token_id = 49152;
  expect_bad(&t, &d, 7, 7, DF_FIT_MASK);
  d = draft_of();
  expect_bad(&t, &d, 7, 8, DF_FIT_TOKENIZER);
  d = draft_of();
  d.is_draft = false;
  expect_bad(&t, &d, 7, 7, DF_FIT_KIND);
  d = draft_of();
  t.is_draft = true;
  expect_bad(&t, &d, 7, 7, DF_FIT_KIND);
}

static void test_check_fit__first_difference_is_named(void **state) {
  (void)state;
  df_config t = target_of(), d = draft_of();
  df_error err;
  d.hidden = 1536;
  d.vocab = 151936;
  d.mask_token_id = 151669;
  assert_int_equal(df_draft_check_fit(&t, &d, 7, 8, NULL, &err), DF_ERR_MISMATCH);
  assert_non_null(strstr(err.msg, "width differs (target 576, draft 1536)"));
  assert_null(strstr(err.msg, "vocabulary"));
}

static void test_check_fit__many_taps_do_not_overflow(void **state) {
  (void)state;
  df_config t = target_of(), d = draft_of();
  df_fit_report r;
  d.n_taps = DF_LIMIT_TAPS;
  for (uint32_t i = 0; i < d.n_taps; i++) d.taps[i] = 1000000 + i;
  assert_int_equal(df_draft_check_fit(&t, &d, 0, 0, &r, NULL), DF_ERR_MISMATCH);
  assert_true(strlen(r.item[DF_FIT_TAPS].draft) < sizeof r.item[DF_FIT_TAPS].draft);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_check_fit__fitting_pair),
      cmocka_unit_test(test_check_fit__silent_files_are_taken_as_fitting),
      cmocka_unit_test(test_check_fit__each_difference),
      cmocka_unit_test(test_check_fit__first_difference_is_named),
      cmocka_unit_test(test_check_fit__many_taps_do_not_overflow),
  };
  return cmocka_run_group_tests_name("fit", tests, NULL, NULL);
}
