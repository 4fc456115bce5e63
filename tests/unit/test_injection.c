/* Features of plain steps that wait on the device until a draft is made: as many injections as have to be, and the same
 * texts, accepted drafts and K and V of the draft as when every step injects at once. */
// clang-format off
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
// clang-format on

#include <string.h>

#include "base/mem.h"
#include "base/size.h"
#include "support/mixed_steps.h"
#include "support/shadow_device.h"
#include "support/tiny_target.h"

static void must(df_status s, const df_error *err) {
  if (s != DF_OK) fail_msg("%s", err->msg);
}

static int setup(void **state) {
  shadow_provide();
  return device_pair_setup(state, 0.3f); /* drafts are accepted often */
}

/* All requests that never draft, drafts after every kind of wait, and requests that wait while others draft. */
static const mixed k_plans[] = {
    {.batch = 1, .every = {0}, .width = {1}, .n_new = 52},
    {.batch = 1, .every = {2}, .width = {5}, .n_new = 60},
    {.batch = 1, .every = {16}, .width = {4}, .n_new = 60},
    {.batch = 1, .every = {17}, .width = {16}, .n_new = 60},
    {.batch = 1, .every = {18}, .width = {2}, .n_new = 60},
    {.batch = 3, .every = {4, 19, 0}, .width = {3, 8, 1}, .n_new = 56},
    {.batch = 3, .every = {7, 7, 7}, .width = {4, 4, 6}, .n_new = 50, .sampled = true},
    {.batch = 3, .every = {1, 5, 9}, .width = {2, 16, 2}, .n_new = 56, .goes_on = true},
    {.batch = 2, .every = {6, 0}, .width = {7, 1}, .n_new = 48, .park = 15, .goes_on = true},
};

/* The same with nothing kept; *saved: injections that waiting spares. */
static void against_at_once(const device_files *f, const mixed *o, mixed_text *want, uint32_t *saved) {
  static mixed_text got[MIXED_MOST];
  mixed at_once = *o, keeping = *o;
  at_once.keeps = 0;
  keeping.keeps = MIXED_MOST;
  const uint32_t all = mixed_run(f, &at_once, want), few = mixed_run(f, &keeping, got);
  mixed_same(o, got, want);
  assert_true(few <= all);
  *saved += all - few;
}

static void compare(const device_files *f, const char *device) {
  static mixed_text want[MIXED_MOST], processor[MIXED_MOST];
  uint32_t saved = 0, stood = 0;
  for (uint32_t i = 0; i < DF_COUNT_OF(k_plans); i++) {
    static const uint32_t pages[] = {16, 1, 64};
    mixed o = k_plans[i];
    o.eager = i % 4 == 3;
    o.page_size = pages[i % 3];
    o.f32 = device == NULL && i % 2;
    (void)mixed_run(f, &o, processor);
    o.device = device;
    against_at_once(f, &o, want, &saved);
    mixed_same(&o, want, processor);
    for (uint32_t r = 0; r < o.batch; r++) stood += want[r].accepted;
  }
  print_message("%u injections less, %u drafts stood\n", saved, stood);
  assert_true(saved > 200 && stood > 40);
}

static void test_waiting__on_the_processor(void **state) {
  const device_files *f = *state;
  compare(&f[0], NULL);
  compare(&f[1], NULL);
}

static void test_waiting__on_a_device(void **state) {
  const device_files *f = *state;
  shadow_like(false);
  compare(&f[1], "shadow");
  shadow_like(true);
  compare(&f[0], "shadow");
  assert_int_equal(shadow_take_counts().mapped, 0);
}

/* 52 tokens of a prompt's own row and 51 plain steps: 51 / 16 injections, one at the end, one of the prompt. */
static void test_waiting__counts(void **state) {
  const device_files *f = *state;
  static mixed_text text[MIXED_MOST];
  mixed o = k_plans[0];
  o.keeps = 1;
  assert_int_equal(mixed_run(f, &o, text), 1 + 51 / 16 + 1);
  o.n_new = 49; /* 48 steps: nothing is left */
  assert_int_equal(mixed_run(f, &o, text), 1 + 48 / 16);
  o.keeps = 0;
  assert_int_equal(mixed_run(f, &o, text), 1 + 48);
  o = k_plans[2]; /* every 16th step drafts: 15 wait */
  o.keeps = 1;
  o.n_new = 18; /* prompt in step 1, plain steps 2 .. 15, a block in step 16 */
  const uint32_t passes = mixed_run(f, &o, text);
  assert_true(text[0].drafted == 3 && passes >= 1 + 2 && passes <= 1 + 2 + 1);
}

/* Fewer rows than requests: whoever gets none injects at once. */
static void test_waiting__not_enough_room(void **state) {
  const device_files *f = *state;
  static mixed_text want[MIXED_MOST], got[MIXED_MOST];
  shadow_like(true);
  mixed o = k_plans[5];
  o.device = "shadow";
  const uint32_t all = mixed_run(f, &o, want);
  for (o.keeps = 1; o.keeps < MIXED_MOST; o.keeps++) {
    (void)mixed_run(f, &o, got);
    mixed_same(&o, got, want);
  }
  const uint32_t few = mixed_run(f, &o, got);
  mixed_same(&o, got, want);
  assert_true(few < all / 2);
}

static void test_keep__every_row_has_one_owner(void **state) {
  (void)state;
  const tiny_spec spec = tiny_spec_default();
  df_model *m = tiny_open_on(&spec, 1, NULL);
  df_pages pages;
  df_target t;
  df_error err = {0};
  const uint32_t taps[] = {0, 1};
  must(df_pages_init(&pages, 16, 160, &err), &err);
  df_target_params p = {.max_seqs = 4,
                        .max_rows = 64,
                        .max_out = 16,
                        .max_positions = 160,
                        .pages = &pages,
                        .attn = tiny_leaf(m, "flash"),
                        .taps = taps,
                        .n_taps = 2,
                        .keeps = 64};
  must(df_target_init(&t, m, &p, &err), &err);
  assert_int_equal(t.taps_bytes, (64 + 64 * DF_TILE_ROWS) * 2 * (size_t)m->cfg.hidden * sizeof(float));
  for (uint32_t i = 0; i < 64; i++) assert_int_equal(df_target_keep(&t), 64 + i * DF_TILE_ROWS);
  assert_int_equal(df_target_keep(&t), 0);
  df_target_give_back(&t, 64 + 63 * DF_TILE_ROWS);
  df_target_give_back(&t, 64 + 5 * DF_TILE_ROWS);
  assert_int_equal(df_target_keep(&t), 64 + 5 * DF_TILE_ROWS);
  assert_int_equal(df_target_keep(&t), 64 + 63 * DF_TILE_ROWS);
  assert_int_equal(df_target_keep(&t), 0);
  df_target_release(&t);
  p.attn = tiny_leaf(m, "flash");
  p.n_taps = 0; /* without a draft there is nothing to keep */
  must(df_target_init(&t, m, &p, &err), &err);
  assert_int_equal(df_target_keep(&t), 0);
  df_target_release(&t);
  df_pages_release(&pages);
  df_model_close(m);
}

/* A device that is lost in the middle of it: the rows are free once the requests are gone, as are the pages. */
static void fail_at(const device_files *f, uint32_t run) {
  df_error err = {0};
  df_model *m = NULL;
  df_draft *d = NULL;
  df_engine e;
  df_request q[2], *all[2] = {&q[0], &q[1]};
  df_model_params mp = df_model_params_default();
  df_engine_params p = {.session = df_session_params_default(), .max_seqs = 2};
  df_generate_params g = df_generate_params_default();
  const shadow_options o = {.like_a_card = true, .fail_run = run};
  static const int32_t ids[] = {97, 98, 99, 97, 98};
  mp.device = "shadow";
  p.session.n_ctx = 128;
  p.session.spec_draft_max = 3;
  g.max_tokens = 60;
  g.ignore_eos = true;
  shadow_set(&o);
  must(df_model_open(f->target, &mp, &m, &err), &err);
  must(df_draft_open(f->draft, m, NULL, &d, &err), &err);
  must(df_engine_init(&e, m, d, &p, &err), &err);
  for (uint32_t i = 0; i < 2; i++) must(df_engine_request(&e, &q[i], ids, 5 - i, 0, NULL, &g, &err), &err);
  for (uint32_t step = 0; q[0].state != DF_REQ_DONE || q[1].state != DF_REQ_DONE; step++) {
    for (uint32_t i = 0; i < 2; i++) q[i].width = step % (5 + 3 * i) == 4 ? 4 : 1;
    must(df_engine_step(&e, all, 2, &err), &err);
  }
  for (uint32_t i = 0; i < 2; i++) {
    assert_int_equal(q[i].failed, DF_ERR_DEVICE);
    df_kv_seq seq = df_request_park(&q[i]);
    df_kv_seq_release(&seq, &e.pages);
    df_request_release(&q[i]);
  }
  assert_true(e.target.kept == 0);
  assert_int_equal(e.pages.n_free, e.pages.n_pages - 1);
  df_engine_release(&e);
  df_draft_close(d);
  df_model_close(m);
}

static void test_waiting__a_device_is_lost(void **state) {
  const device_files *f = *state;
  for (uint32_t run = 3; run < 40; run += 1 + run / 8) fail_at(f, run);
  shadow_like(false);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_keep__every_row_has_one_owner), cmocka_unit_test(test_waiting__counts),
      cmocka_unit_test(test_waiting__not_enough_room),      cmocka_unit_test(test_waiting__a_device_is_lost),
      cmocka_unit_test(test_waiting__on_the_processor),     cmocka_unit_test(test_waiting__on_a_device),
  };
  return cmocka_run_group_tests_name("injection", tests, setup, device_pair_teardown);
}
