/* The whole engine on the CUDA device without a card: the C side of the device as it is, the kernels' own sources
 * emulated on the host, a made-up runtime in between. Quantised models give the processor's tokens and logits, bit for
 * bit; models with F16 weights give the same ones however they are run.
 *
 *   test_cuda_engine [--long]      long: every setting, with long prompts */
// clang-format off
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
// clang-format on

#include <string.h>

#include "base/size.h"
#include "cuda/fake/fake_cuda.h"
#include "support/device_group.h"
#include "support/mixed_steps.h"

static bool g_long;

static void begin(device_files *f, df_dtype type, uint32_t head_dim) {
  tiny_spec spec = device_rich_spec(type);
  spec.head_dim = head_dim;
  const fake_card card = fake_card_default();
  fake_set(&card);
  device_files_write(f, &spec);
}

static void same(const device_answer *got, const device_answer *want, uint32_t setting) {
  for (uint32_t r = 0; r < DEVICE_BATCH; r++) {
    assert_int_equal(got[r].n, want[r].n);
    if (memcmp(got[r].ids, want[r].ids, want[r].n * sizeof *want[r].ids) != 0 || got[r].hash != want[r].hash)
      fail_msg("setting %u, request %u differs", setting, r);
  }
}

/* Answers of a quantised model are the processor's; how often a program was one kernel. */
static uint32_t quantised(uint32_t head_dim) {
  device_files f;
  uint32_t n, whole = 0;
  const device_setting *s = device_settings(&n);
  begin(&f, DF_Q8_0, head_dim);
  for (uint32_t i = 0; i < n; i++) {
    device_answer want[DEVICE_BATCH], got[DEVICE_BATCH];
    device_setting one = s[i];
    if (one.f32 || (!g_long && i > 2)) continue;
    one.small = !g_long;
    device_answers(&f, NULL, &one, want);
    (void)fake_take_counts();
    device_answers(&f, "cuda", &one, got);
    const uint32_t now = fake_take_counts().whole;
    if (one.eager) assert_int_equal(now, 0);
    whole += now;
    same(got, want, i);
  }
  device_files_release(&f);
  return whole;
}

static void test_quantised__the_processors_bits(void **state) {
  (void)state;
  assert_int_equal(quantised(32), 0);
}

/* Heads of 64: recorded programs of few rows are one kernel each. */
static void test_quantised__recorded_programs_are_one_kernel(void **state) {
  (void)state;
  assert_true(quantised(64) > 3);
}

/* Answers of a model of halves are the same however it is run; how often a program was one kernel. */
static uint32_t halves(df_dtype type, uint32_t head_dim) {
  device_files f;
  uint32_t n, whole = 0;
  const device_setting *s = device_settings(&n);
  device_answer first[DEVICE_BATCH];
  bool any = false;
  begin(&f, type, head_dim);
  for (uint32_t i = 0; i < n; i++) {
    device_answer got[DEVICE_BATCH];
    device_setting one = s[i];
    if (one.f32 || (!g_long && i > 2)) continue;
    one.small = !g_long;
    (void)fake_take_counts();
    device_answers(&f, "cuda", &one, got);
    const uint32_t now = fake_take_counts().whole;
    if (one.eager) assert_int_equal(now, 0);
    whole += now;
    if (any) same(got, first, i);
    if (!any) memcpy(first, got, sizeof first);
    any = true;
  }
  device_files_release(&f);
  return whole;
}

static void test_halves__however_they_are_run(void **state) {
  (void)state;
  assert_int_equal(halves(DF_F16, 32), 0);
}

/* Heads of 64: recorded programs of few rows are one kernel each, and eager ones many. */
static void test_halves__recorded_programs_are_one_kernel(void **state) {
  (void)state;
  assert_true(halves(DF_BF16, 64) > 3);
}

/* Drafts that stay on the card, in groups of which all, one or none samples: texts and accepted drafts are the
 * processor's for quantised weights, and those of eager passes of one request for halves. */
static void drafts(df_dtype type, uint32_t head_dim, bool processors) {
  static const device_group k[] = {
      {.width = 4, .batch = 2, .sampled = 2, .draft_vocab = 120},
      {.width = 16, .batch = 1},
      {.width = 2, .batch = 3, .draft_vocab = 120},
      {.width = 7, .batch = 4, .eager = true},
      {.width = 3, .batch = 2, .sampled = 3},
      {.width = 8, .batch = 2, .sampled = 1, .eager = true, .draft_vocab = 120},
  };
  device_files f;
  begin(&f, type, head_dim);
  for (size_t i = 0; i < DF_COUNT_OF(k) && (g_long || i < 2); i++) {
    device_text want[GROUP_MOST], got[GROUP_MOST];
    device_group g = k[i], other = k[i];
    g.few = other.few = !g_long;
    other.eager = !k[i].eager;
    (void)device_group_run(&f, "cuda", &g, got);
    (void)device_group_run(&f, processors ? NULL : "cuda", processors ? &g : &other, want);
    device_group_same(&g, got, want);
    assert_true(got[0].blocks > 0);
  }
  device_files_release(&f);
}

static void test_drafts__quantised(void **state) {
  (void)state;
  drafts(DF_Q8_0, 32, true);
}

static void test_drafts__halves(void **state) {
  (void)state;
  drafts(DF_BF16, 64, false);
}

/* Features of plain steps wait on the card; texts, accepted drafts and the draft's K and V are those of injecting at
 * once, and the processor's for quantised weights. */
static void waiting(df_dtype type, bool processors) {
  static mixed_text want[MIXED_MOST], got[MIXED_MOST];
  device_files f;
  mixed o = {.keeps = MIXED_MOST,
             .batch = g_long ? 3 : 2,
             .every = {18, 5, 0},
             .width = {4, 3, 1},
             .n_new = g_long ? 44 : 22,
             .goes_on = g_long};
  begin(&f, type, 64);
  if (processors) (void)mixed_run(&f, &o, want);
  o.device = "cuda";
  (void)fake_take_counts();
  const uint32_t few = mixed_run(&f, &o, got);
  assert_true(fake_take_counts().whole > 1);
  if (processors) mixed_same(&o, got, want);
  o.keeps = 0;
  assert_true(mixed_run(&f, &o, want) > few + 10);
  mixed_same(&o, got, want);
  o.keeps = MIXED_MOST;
  o.eager = true;
  (void)mixed_run(&f, &o, want);
  mixed_same(&o, got, want);
  device_files_release(&f);
}

static void test_waiting__quantised(void **state) {
  (void)state;
  waiting(DF_Q8_0, true);
}

static void test_waiting__halves(void **state) {
  (void)state;
  waiting(DF_BF16, false);
}

int main(int argc, char **argv) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_quantised__the_processors_bits),
      cmocka_unit_test(test_quantised__recorded_programs_are_one_kernel),
      cmocka_unit_test(test_halves__however_they_are_run),
      cmocka_unit_test(test_halves__recorded_programs_are_one_kernel),
      cmocka_unit_test(test_drafts__quantised),
      cmocka_unit_test(test_drafts__halves),
      cmocka_unit_test(test_waiting__quantised),
      cmocka_unit_test(test_waiting__halves),
  };
  g_long = argc > 1 && strcmp(argv[1], "--long") == 0;
  return cmocka_run_group_tests_name("cuda_engine", tests, NULL, NULL);
}
