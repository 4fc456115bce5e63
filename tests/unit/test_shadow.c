/* The seam between the engine and devices: everything that runs on the processor runs on a device with a memory of its
 * own, with the same tokens and the same bits, and the host touches nothing there. */
// clang-format off
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
// clang-format on

#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "attention/recurrent.h"
#include "base/mem.h"
#include "base/size.h"
#include "device/lower.h"
#include "support/device_rig.h"
#include "support/shadow_device.h"
#include "support/tiny_target.h"

static void must(df_status s, const df_error *err) {
  if (s != DF_OK) fail_msg("%s", err->msg);
}

static int setup(void **state) {
  shadow_provide();
  return device_pair_setup(state, 0);
}

/* ---- the matrix of losslessness ------------------------------------------------------------------------- */

static void check(const device_files *f, bool a_card, uint64_t combinations) {
  shadow_like(a_card);
  (void)shadow_take_counts();
  const df_check_summary sum = device_check(f, "shadow");
  const shadow_counts c = shadow_take_counts();
  assert_string_equal(sum.device, "shadow");
  assert_string_equal(sum.reference, "cpu");
  assert_true(sum.planned == combinations);
  assert_true(c.runs > combinations && c.fetches > combinations);
  assert_int_equal(c.mapped, 0); /* whatever was mapped was unmapped */
}

static void test_check__like_the_processor(void **state) {
  const device_files *f = *state;
  check(&f[0], false, 192);
}

static void test_check__like_a_card(void **state) {
  const device_files *f = *state;
  check(&f[0], true, 48);
  check(&f[1], true, 48);
}

/* ---- batches, layouts, ways of picking ------------------------------------------------------------------ */

static void prompt_of(int32_t *ids, uint32_t n, uint32_t salt) {
  for (uint32_t i = 0; i < n; i++) ids[i] = (int32_t)((i * 31 + salt * 17 + i * i * 7) % 251);
}

static void test_engine__settings(void **state) {
  const device_files *f = *state;
  for (uint32_t i = 0; i < 4; i++) {
    shadow_like(i / 2);
    device_compare(&f[i % 2], "shadow", i < 2);
  }
  assert_int_equal(shadow_take_counts().mapped, 0);
}

/* Rows of logits come over when they are read: none for greedy text, one for each token that is sampled. */
static void test_logits__come_when_asked_for(void **state) {
  const device_files *f = *state;
  for (uint32_t sampled = 0; sampled < 2; sampled++) {
    df_error err = {0};
    df_model *m = NULL;
    df_session *s = NULL;
    df_result r;
    int32_t ids[9];
    df_model_params mp = df_model_params_default();
    df_generate_params g = df_generate_params_default();
    mp.device = "shadow";
    g.max_tokens = 10;
    g.ignore_eos = true;
    g.sampling.temperature = sampled ? 0.7f : 0;
    shadow_like(true);
    prompt_of(ids, 9, 1);
    must(df_model_open(f[0].target, &mp, &m, &err), &err);
    must(df_session_create(m, NULL, NULL, &s, &err), &err);
    (void)shadow_take_counts();
    must(df_session_generate(s, ids, 9, &g, &r, &err), &err);
    assert_int_equal(shadow_take_counts().fetches, sampled ? 10 : 0);
    assert_int_equal(r.stats.step_allocations, 0);
    df_session_free(s);
    df_model_close(m);
  }
}

static void test_score__same_numbers(void **state) {
  const device_files *f = *state;
  double score[2][60];
  int32_t ids[60];
  prompt_of(ids, 60, 4);
  for (int i = 0; i < 2; i++) {
    df_error err = {0};
    df_model *m = NULL;
    df_session *s = NULL;
    df_model_params mp = df_model_params_default();
    mp.device = i ? "shadow" : "cpu";
    shadow_like(true);
    must(df_model_open(f[1].target, &mp, &m, &err), &err);
    must(df_session_create(m, NULL, NULL, &s, &err), &err);
    must(df_session_score(s, ids, 60, score[i], NULL, NULL, &err), &err);
    df_session_free(s);
    df_model_close(m);
  }
  assert_memory_equal(score[0], score[1], 59 * sizeof(double));
}

/* ---- masks ---------------------------------------------------------------------------------------------- */

static float *masked_logits(const char *device, df_mask_layout layout, float *out) {
  enum { ROWS = 6, LEN = 70 };
  df_error err = {0};
  uint8_t mask[ROWS * (LEN + ROWS)];
  const tiny_spec spec = tiny_spec_default();
  df_model *m = tiny_open_on(&spec, 2, device);
  tiny_target x;
  tiny_options o = {.mask = layout};
  if (device && m->device->leaves == DF_LEAVES_CUDA) {
    const df_attn_shape shape = tiny_shape(m);
    must(df_attn_cuda_create(&shape, &o.attn, &err), &err);
  }
  const size_t cols = layout == DF_MASK_FULL ? LEN + ROWS : ROWS;
  for (size_t i = 0; i < ROWS * cols; i++) mask[i] = i % cols == i / cols + cols - ROWS || i % 3 != 0;
  tiny_target_init(&x, m, &o);
  tiny_prefill(&x, 0, LEN);
  const tiny_item it = {0, LEN, ROWS};
  must(tiny_try(&x, DF_MODE_TARGET_VERIFY, &it, 1, layout, mask, ROWS * cols, &err), &err);
  for (uint32_t r = 0; r < ROWS; r++) memcpy(out + (size_t)r * m->cfg.vocab, tiny_logits(&x, r), tiny_row_bytes(&x));
  tiny_target_release(&x);
  df_model_close(m);
  return out;
}

static void test_masks__travel(void **state) {
  static float want[6 * 300], got[6 * 300], other[6 * 300];
  (void)state;
  for (int a_card = 0; a_card < 2; a_card++) {
    shadow_like(a_card == 1);
    (void)masked_logits(NULL, DF_MASK_FULL, want);
    assert_memory_equal(want, masked_logits("shadow", DF_MASK_FULL, got), sizeof want);
    (void)masked_logits(NULL, DF_MASK_QLEN, other);
    assert_memory_equal(other, masked_logits("shadow", DF_MASK_QLEN, got), sizeof want);
    assert_memory_not_equal(want, other, sizeof want);
  }
}

/* ---- what is refused and what fails --------------------------------------------------------------------- */

static void test_recurrent__refused(void **state) {
  (void)state;
  df_error err = {0};
  const tiny_spec spec = tiny_spec_default();
  shadow_like(false);
  df_model *m = tiny_open_on(&spec, 1, "shadow");
  const df_attn_shape shape = tiny_shape(m);
  df_recurrent_state rs;
  static const uint32_t index[2] = {UINT32_MAX, 0};
  static const bool linear[2] = {false, true};
  must(df_recurrent_state_init(&rs, 1, 2, 32, TINY_SEQS, TINY_SEQS, 16, 1, &err), &err);
  df_attn *rec, *attn;
  df_pages pages;
  df_target t;
  must(df_attn_recurrent_create(&shape, &rs, index, 2, &rec, &err), &err);
  must(df_attn_hybrid_linear_create(tiny_leaf(m, "flash"), rec, linear, 2, &attn, &err), &err);
  must(df_pages_init(&pages, 16, 160, &err), &err);
  const df_target_params p = {
      .max_seqs = 1, .max_rows = 16, .max_out = 16, .max_positions = 160, .pages = &pages, .attn = attn};
  assert_int_equal(df_target_init(&t, m, &p, &err), DF_ERR_UNSUPPORTED);
  assert_string_equal(err.msg,
                      "attention backend \"hybrid-linear\" has recurrent layers, which run on the processor "
                      "only (--device cpu)");
  df_pages_release(&pages);
  df_recurrent_state_release(&rs);
  df_model_close(m);
}

/* The range is an address and nothing else: reading it ends the process, until it was fetched. */
static void test_scratch__not_the_hosts(void **state) {
  (void)state;
  const tiny_spec spec = tiny_spec_default();
  shadow_like(false);
  df_model *m = tiny_open_on(&spec, 1, "shadow");
  tiny_target x;
  const tiny_options o = {0};
  tiny_target_init(&x, m, &o);
  tiny_prefill(&x, 0, 8);
  volatile const float *const stray[] = {x.t.ws.logits, x.t.ws.x, (const float *)(const void *)x.t.kv.k,
                                         (const float *)m->block};
  for (size_t i = 0; i < DF_COUNT_OF(stray); i++) {
    const pid_t child = fork();
    if (child == 0) {
      (void)signal(SIGSEGV, SIG_DFL);
      const float v = *stray[i];
      _exit(v == 0 ? 1 : 2);
    }
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status));
  }
  const float first = tiny_logits(&x, 0)[0];
  assert_true(first == *stray[0]);
  tiny_target_release(&x);
  df_model_close(m);
}

static void test_room__too_little(void **state) {
  const device_files *f = *state;
  df_error err = {0};
  df_model *m = NULL;
  df_session *s = NULL;
  df_model_params mp = df_model_params_default();
  mp.device = "shadow";
  shadow_options o = {.room = 1000};
  shadow_set(&o);
  assert_int_equal(df_model_open(f[0].target, &mp, &m, &err), DF_ERR_MEMORY);
  assert_non_null(strstr(err.msg, "the weights"));
  assert_non_null(strstr(err.msg, "1000 of 1000 are free"));
  must(df_model_open(f[0].target, NULL, &m, &err), &err);
  o.room = df_model_get_info(m).weight_bytes + (64 << 10); /* the weights fit, activations and a context do not */
  df_model_close(m);
  shadow_set(&o);
  must(df_model_open(f[0].target, &mp, &m, &err), &err);
  assert_int_equal(df_session_create(m, NULL, NULL, &s, &err), DF_ERR_MEMORY);
  df_model_close(m);
  assert_int_equal(shadow_take_counts().mapped, 0);
  shadow_like(false);
}

/* A run that fails ends the requests of its pass; a device that stays lost ends every later one. */
static void test_run__fails(void **state) {
  const device_files *f = *state;
  df_error err = {0};
  df_model *m = NULL;
  df_session *s = NULL;
  df_result r;
  int32_t ids[9];
  df_model_params mp = df_model_params_default();
  df_generate_params g = df_generate_params_default();
  mp.device = "shadow";
  g.max_tokens = 10;
  g.ignore_eos = true;
  const shadow_options o = {.fail_run = 5};
  shadow_set(&o);
  prompt_of(ids, 9, 1);
  must(df_model_open(f[0].target, &mp, &m, &err), &err);
  must(df_session_create(m, NULL, NULL, &s, &err), &err);
  for (int i = 0; i < 2; i++) {
    assert_int_equal(df_session_generate(s, ids, 9, &g, &r, &err), DF_ERR_DEVICE);
    assert_string_equal(err.msg, "the device is lost: run 5 failed");
    assert_int_equal(df_session_n_cached(s), 0);
  }
  df_session_free(s);
  df_model_close(m);
  shadow_like(false);
}

/* ---- lowering ------------------------------------------------------------------------------------------- */

static void test_lower__names_what_is_not_mapped(void **state) {
  (void)state;
  static float x[64], w[64], out[64];
  static uint32_t n_rows = 1;
  df_error err = {0};
  df_mirrors m = {0};
  df_mirror *mx;
  df_program *p, *lowered;
  df_lower_uses uses = {0};
  must(df_mirrors_add(&m, x, sizeof x, DF_MEM_SCRATCH, "x", &mx, &err), &err);
  mx->there = (uint8_t *)(uintptr_t)0x10000;
  must(df_mirrors_add(&m, out, sizeof out, DF_MEM_OUTPUT, "out", &mx, &err), &err);
  mx->there = (uint8_t *)(uintptr_t)0x20000;
  must(df_mirrors_add(&m, &n_rows, sizeof n_rows, DF_MEM_INPUT, "n", &mx, &err), &err);
  mx->there = (uint8_t *)(uintptr_t)0x30000;
  must(df_program_create(1, 1, 1, &p, &err), &err);
  const df_op_norm norm = {.x = x + 32, .w = w, .n_rows = &n_rows, .out = {.f = out + 1, .k = 32}};
  must(df_emit_norm(p, &norm, &err), &err);
  assert_int_equal(df_lower_program(p, &m, &lowered, &uses, &err), DF_ERR_INTERNAL);
  assert_non_null(strstr(err.msg, "op norm: nothing is mapped at \"w\""));
  assert_int_equal(df_mirrors_add(&m, x + 60, sizeof x, DF_MEM_CONST, "half of x", &mx, &err), DF_ERR_INTERNAL);
  must(df_mirrors_add(&m, w, sizeof w, DF_MEM_WEIGHTS, "w", &mx, &err), &err);
  mx->there = (uint8_t *)(uintptr_t)0x40000;
  must(df_lower_program(p, &m, &lowered, &uses, &err), &err);
  uint32_t n;
  const df_op_norm *got = df_program_ops(lowered, &n)[0].args;
  assert_int_equal(n, 1);
  assert_true((uintptr_t)got->x == 0x10000 + 32 * sizeof(float) && (uintptr_t)got->w == 0x40000);
  assert_true((uintptr_t)got->out.f == 0x20000 + sizeof(float) && (uintptr_t)got->n_rows == 0x30000);
  assert_null(got->row_map);
  assert_null(got->out.q);
  assert_int_equal(got->out.k, 32);
  assert_int_equal(uses.n, 3); /* weights are only addresses */
  df_lower_uses_release(&uses);
  df_program_free(lowered);
  df_program_free(p);
  while (m.n) df_free(df_mirrors_take(&m, m.items[0]->host));
  df_mirrors_release(&m);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_lower__names_what_is_not_mapped),
      cmocka_unit_test(test_scratch__not_the_hosts),
      cmocka_unit_test(test_logits__come_when_asked_for),
      cmocka_unit_test(test_score__same_numbers),
      cmocka_unit_test(test_masks__travel),
      cmocka_unit_test(test_recurrent__refused),
      cmocka_unit_test(test_room__too_little),
      cmocka_unit_test(test_run__fails),
      cmocka_unit_test(test_engine__settings),
      cmocka_unit_test(test_check__like_the_processor),
      cmocka_unit_test(test_check__like_a_card),
  };
  return cmocka_run_group_tests_name("shadow", tests, setup, device_pair_teardown);
}
