/* Models known by name: the drafts that come with the program are the ones the table and models/README.md state. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "cli/known.h"
#include "support/test_models.h"

static void test_known__drafts_are_shipped_whole(void **state) {
  (void)state;
  size_t n;
  char *readme = df_test_read_file("models/README.md", &n);
  for (unsigned i = 0; i < df_known_model_count; i++) {
    const df_known_model *k = &df_known_models[i];
    char path[512], hex[65];
    (void)snprintf(path, sizeof path, "%s/models/%s", DF_SOURCE_DIR, k->draft_file);
    df_test_sha256(path, hex);
    assert_string_equal(hex, k->draft_sha256);
    assert_non_null(strstr(readme, k->draft_sha256));
    assert_true(df_file_bytes(path) <= 60000000);
    assert_int_equal(strncmp(k->draft_file, k->draft, strlen(k->draft)), 0); /* found by its name */
  }
  df_free(readme);
}

static void test_known__names(void **state) {
  (void)state;
  assert_ptr_equal(df_known_find("Q"), df_known_find("qwen2.5-coder-1.5b"));
  assert_ptr_equal(df_known_find("smollm2"), df_known_find("smollm2-135m-instruct"));
  assert_null(df_known_find("qwen2.5-coder-1.5"));
  assert_null(df_known_find(""));
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_known__drafts_are_shipped_whole),
                                     cmocka_unit_test(test_known__names)};
  return cmocka_run_group_tests_name("cli_known", tests, NULL, NULL);
}
