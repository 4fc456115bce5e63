/* Sequences that share pages: counts, independence, refusals. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "kv/pages.h"

typedef struct fixture {
  df_pages pages;
  df_kv_seq a, b;
} fixture;

static void begin(fixture *f) {
  assert_int_equal(df_pages_init(&f->pages, 16, 160, NULL), DF_OK);
  assert_int_equal(df_kv_seq_init(&f->a, 16, 160, NULL), DF_OK);
  assert_int_equal(df_kv_seq_init(&f->b, 16, 64, NULL), DF_OK);
  assert_int_equal(df_kv_seq_reserve(&f->a, &f->pages, 40, NULL), DF_OK);
}

static void end(fixture *f) {
  df_kv_seq_release(&f->a, &f->pages);
  df_kv_seq_release(&f->b, &f->pages);
  assert_int_equal(f->pages.n_free, 10);
  df_pages_release(&f->pages);
}

static void test_seq_fork__shares_then_parts(void **state) {
  (void)state;
  fixture f;
  begin(&f);
  assert_int_equal(df_kv_seq_fork(&f.b, &f.a, &f.pages, 32, NULL), DF_OK);
  assert_int_equal(f.pages.n_free, 7); /* nothing was taken */
  assert_int_equal(df_kv_seq_reserve(&f.b, &f.pages, 40, NULL), DF_OK);
  assert_int_equal(f.pages.n_free, 6);
  for (uint32_t pos = 0; pos < 32; pos++) assert_int_equal(df_kv_slot(&f.a, pos), df_kv_slot(&f.b, pos));
  assert_int_not_equal(df_kv_slot(&f.a, 32), df_kv_slot(&f.b, 32));
  df_kv_seq_trim(&f.a, &f.pages, 0); /* b keeps what it shares */
  assert_int_equal(f.pages.n_free, 7);
  assert_int_equal(f.pages.refs[f.b.pages[0]], 1);
  end(&f);
}

static void test_seq_fork__refuses(void **state) {
  (void)state;
  fixture f;
  begin(&f);
  assert_int_equal(df_kv_seq_fork(&f.b, &f.a, &f.pages, 24, NULL), DF_ERR_ARGUMENT); /* half a page */
  assert_int_equal(df_kv_seq_fork(&f.b, &f.a, &f.pages, 64, NULL), DF_ERR_ARGUMENT); /* more than there is */
  assert_int_equal(df_kv_seq_reserve(&f.a, &f.pages, 96, NULL), DF_OK);
  assert_int_equal(df_kv_seq_fork(&f.b, &f.a, &f.pages, 80, NULL), DF_ERR_LIMIT); /* more than b may hold */
  assert_int_equal(df_kv_seq_fork(&f.b, &f.a, &f.pages, 48, NULL), DF_OK);
  assert_int_equal(df_kv_seq_fork(&f.b, &f.a, &f.pages, 16, NULL), DF_ERR_ARGUMENT); /* not empty any more */
  end(&f);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_seq_fork__shares_then_parts),
                                     cmocka_unit_test(test_seq_fork__refuses)};
  return cmocka_run_group_tests_name("kv_fork", tests, NULL, NULL);
}
