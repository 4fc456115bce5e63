/* The check of losslessness, on a pair of tiny models: it plans what it runs, finds nothing to complain about, stops
 * when asked to, and says what it cannot do. */
// clang-format off
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
// clang-format on

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "engine/check.h"
#include "support/sample_files.h"
#include "support/test_models.h"
#include "support/tiny_model.h"

typedef struct files {
  char *dir;
  char target[256], draft[256];
} files;

static int setup(void **state) {
  files *f = df_calloc(1, sizeof *f);
  if (!f) return -1;
  f->dir = test_dir_create();
  (void)snprintf(f->target, sizeof f->target, "%s/target.gguf", f->dir);
  (void)snprintf(f->draft, sizeof f->draft, "%s/draft.gguf", f->dir);
  const tiny_spec s = tiny_spec_default();
  const tiny_draft_spec d = tiny_draft_default(&s);
  tiny_model_write(&s, f->target);
  tiny_draft_write(&d, f->draft);
  *state = f;
  return 0;
}

static int teardown(void **state) {
  files *f = *state;
  test_dir_remove(f->dir);
  df_free(f);
  return 0;
}

typedef struct seen {
  uint32_t largest;
  uint64_t cases, hits, graphs, own_slot, on_decode, drafted, batches, stop_after;
} seen;

static bool on_case(void *user, const df_check_outcome *o, const df_check_summary *so_far) {
  seen *s = user;
  s->cases++;
  assert_true(so_far->combinations == s->cases);
  assert_true(o->identical && !o->refused);
  s->hits += o->c.prefix_hit;
  s->graphs += o->c.graph;
  s->own_slot += o->c.verify != NULL;
  s->on_decode += strcmp(o->c.mode, "decode") == 0;
  s->drafted += o->c.width > 1;
  s->batches += o->c.batch > 1;
  if (o->c.batch > s->largest) s->largest = o->c.batch;
  return s->cases != s->stop_after;
}

static void test_check_run__every_axis_of_the_quick_matrix(void **state) {
  const files *f = *state;
  seen s = {0};
  const df_check_params p = {.matrix = DF_CHECK_QUICK, .logits = true, .n_tokens = 6, .on_case = on_case, .user = &s};
  df_check_summary sum = {0};
  df_error err = {0};
  if (df_check_run(f->target, f->draft, &p, &sum, &err) != DF_OK) fail_msg("%s", err.msg);
  assert_true(sum.combinations == sum.planned && sum.identical == sum.planned && sum.refused == 0);
  assert_true(s.cases == sum.planned);
  assert_true(s.cases == 192 || s.cases == 384); /* one thread count, or two */
  assert_true(s.hits == s.cases / 2 && s.graphs == s.cases / 2 && s.drafted == s.cases / 2 && s.batches == s.cases / 2);
  assert_true(s.own_slot == s.cases / 3 && s.on_decode == s.cases / 3);
}

/* All 32,400 take minutes. */
static void test_check_run__full_matrix(void **state) {
  const files *f = *state;
  if (!df_test_long()) skip();
  seen s = {0};
  const df_check_params p = {.matrix = DF_CHECK_FULL, .n_tokens = 6, .on_case = on_case, .user = &s};
  df_check_summary sum = {0};
  df_error err = {0};
  if (df_check_run(f->target, f->draft, &p, &sum, &err) != DF_OK) fail_msg("%s", err.msg);
  assert_true(sum.combinations == sum.planned && sum.identical == sum.planned);
}

/* Up to 32 requests at once, two widths, recorded and eager, all routings of one leaf. */
static void test_check_run__batches(void **state) {
  const files *f = *state;
  seen s = {0};
  const df_check_params p = {.matrix = DF_CHECK_BATCH, .logits = true, .n_tokens = 3, .on_case = on_case, .user = &s};
  df_check_summary sum = {0};
  df_error err = {0};
  if (df_check_run(f->target, f->draft, &p, &sum, &err) != DF_OK) fail_msg("%s", err.msg);
  assert_true(sum.combinations == sum.planned && sum.identical == sum.planned && sum.refused == 0);
  assert_true(s.cases == 96 || s.cases == 192); /* one thread count, or two */
  assert_true(s.batches == s.cases && s.largest == DF_CHECK_MAX_BATCH);
}

/* What a leaf of another rounding may do: both sides of the margin, and what is never a tie. */
static void test_check_is_near_tie__rule(void **state) {
  (void)state;
  const df_check_outcome at = {.expected = 5, .got = 7, .margin = DF_CHECK_NEAR_TIE};
  assert_true(df_check_is_near_tie(&at, true));
  assert_false(df_check_is_near_tie(&at, false)); /* only leaves that say so */
  const struct {
    float margin;
    bool tie;
  } k[] = {{0, true}, {0.29f, true}, {nextafterf(1, 0), true}, {nextafterf(1, 2), false}, {17, false}, {NAN, false}};
  for (size_t i = 0; i < sizeof k / sizeof *k; i++) {
    df_check_outcome o = at;
    o.margin = k[i].margin;
    assert_int_equal(df_check_is_near_tie(&o, true), k[i].tie);
  }
  df_check_outcome o = at;
  o.expected = -1; /* an answer that ended is no tie with a token */
  assert_false(df_check_is_near_tie(&o, true));
  o = at, o.got = -1;
  assert_false(df_check_is_near_tie(&o, true));
  o = at, o.logits_only = true;
  assert_false(df_check_is_near_tie(&o, true));
}

static void test_check_run__without_draft(void **state) {
  const files *f = *state;
  seen s = {0};
  const df_check_params p = {.matrix = DF_CHECK_QUICK, .n_tokens = 2, .on_case = on_case, .user = &s};
  df_check_summary sum = {0};
  assert_int_equal(df_check_run(f->target, NULL, &p, &sum, NULL), DF_OK);
  assert_true(sum.combinations == sum.planned && sum.identical == sum.planned && s.drafted == 0);
}

static void test_check_run__stops(void **state) {
  const files *f = *state;
  seen s = {.stop_after = 7};
  const df_check_params p = {.matrix = DF_CHECK_QUICK, .n_tokens = 2, .on_case = on_case, .user = &s};
  df_check_summary sum = {0};
  assert_int_equal(df_check_run(f->target, f->draft, &p, &sum, NULL), DF_ERR_CANCELLED);
  assert_true(s.cases == 7);
}

static void test_check_run__refuses(void **state) {
  const files *f = *state;
  df_check_params p = {.n_tokens = 65};
  df_check_summary sum = {0};
  df_error err = {0};
  assert_int_equal(df_check_run(f->target, f->draft, &p, &sum, &err), DF_ERR_ARGUMENT);
  assert_non_null(strstr(err.msg, "65"));
  p.n_tokens = 1;
  assert_int_equal(df_check_run("/no/such/model", NULL, &p, &sum, &err), DF_ERR_IO);
  assert_int_not_equal(df_check_run(f->target, f->target, &p, &sum, &err), DF_OK); /* a target is no draft */
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_check_run__every_axis_of_the_quick_matrix),
      cmocka_unit_test(test_check_run__full_matrix),
      cmocka_unit_test(test_check_run__batches),
      cmocka_unit_test(test_check_is_near_tie__rule),
      cmocka_unit_test(test_check_run__without_draft),
      cmocka_unit_test(test_check_run__stops),
      cmocka_unit_test(test_check_run__refuses),
  };
  return cmocka_run_group_tests_name("check", tests, setup, teardown);
}
