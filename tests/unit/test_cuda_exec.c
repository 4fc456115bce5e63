/* The C side of the CUDA device on a made-up runtime (tests/cuda/fake): what is said without a card, memory, programs
 * as graphs, inputs and results, failures. What the kernels compute is tested in tests/cuda. */
// clang-format off
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
// clang-format on

#include "base/size.h"
#include "device/cuda/cuda_archs.h"

static void test_archs_fit__table(void **state) {
  (void)state;
  static const struct {
    const char *archs;
    uint32_t major, minor;
    bool fits;
  } k[] = {
      {"sm_90a compute_90", 9, 0, true},
      {"sm_90a compute_90", 10, 0, true},
      {"sm_90a compute_90", 12, 1, true},
      {"sm_90a compute_90", 8, 9, false},
      {"sm_90a", 9, 0, true},
      {"sm_90a", 10, 0, false},
      {"sm_90", 9, 0, true},
      {"sm_80", 8, 6, true},
      {"sm_86", 8, 0, false},
      {"sm_80 sm_86 sm_89", 9, 0, false},
      {"sm_80 sm_120 sm_121", 12, 1, true},
      {"compute_90a", 9, 0, true},
      {"compute_90a", 10, 0, false},
      {"compute_80", 7, 5, false},
      {"", 9, 0, false},
      {"unknown", 9, 0, false},
      {"sm_100", 10, 3, true},
      {"sm_103", 10, 0, false},
      {"sm_80  compute_80 ", 12, 0, true},
  };
  for (size_t i = 0; i < DF_COUNT_OF(k); i++)
    if (df_cuda_archs_fit(k[i].archs, k[i].major, k[i].minor) != k[i].fits)
      fail_msg("\"%s\" on %u.%u", k[i].archs, k[i].major, k[i].minor);
}

#ifdef DF_FAKE_CUDA

#include <cuda_runtime_api.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "cuda/fake/fake_cuda.h"
#include "device/cuda/cuda_device.h"
#include "support/device_group.h"

typedef struct fixture {
  device_files plain, q8, f16;
} fixture;

static void must(df_status s, const df_error *err) {
  if (s != DF_OK) fail_msg("%s", err->msg);
}

static int setup(void **state) {
  fixture *f = df_calloc(1, sizeof *f);
  const tiny_spec plain = tiny_spec_default(), q8 = device_rich_spec(DF_Q8_0), f16 = device_rich_spec(DF_F16);
  const fake_card card = fake_card_default();
  if (!f) return -1;
  fake_set(&card);
  device_files_write(&f->plain, &plain);
  device_files_write(&f->q8, &q8);
  device_files_write(&f->f16, &f16);
  *state = f;
  return 0;
}

static int teardown(void **state) {
  fixture *f = *state;
  device_files_release(&f->plain);
  device_files_release(&f->q8);
  device_files_release(&f->f16);
  df_free(f);
  return 0;
}

static void assert_nothing_left(void) {
  const fake_counts c = fake_take_counts();
  assert_true(c.blocks == 0 && c.bytes == 0 && c.pinned == 0 && c.streams == 0 && c.events == 0 && c.graphs == 0);
}

/* ---- without a card ------------------------------------------------------------------------------------- */

static void refused(const fake_card *card, const char *device, const char *message, const char *hint) {
  df_error err = {0};
  fake_set(card);
  assert_int_equal(df_device_check(device, NULL, &err), DF_ERR_UNSUPPORTED);
  assert_string_equal(err.msg, message);
  if (!strstr(err.hint, hint)) fail_msg("hint: %s", err.hint);
}

static void test_check__one_line_each(void **state) {
  (void)state;
  df_error err = {0};
  fake_card c = fake_card_default();
  fake_set(&c);
  must(df_device_check("cuda", NULL, &err), &err);
  must(df_device_check("cuda:0", NULL, &err), &err);
  refused(&c, "cuda:2", "there is no card 2: the driver lists 1", "count from 0");
  c.archs = "sm_90a";
  c.major = 7, c.minor = 5;
  refused(&c, "cuda", "cuda:0 (made up) has compute capability 7.5, this build has kernels for sm_90a",
          "DF_CUDA_ARCHS");
  c = fake_card_default();
  c.n_cards = 0;
  refused(&c, "cuda", "there is no CUDA card: the driver lists none", "--device cpu");
  c.driver = 12020;
  refused(&c, "cuda:0", "the CUDA driver is for CUDA 12.2, this build needs 13.0", "update the driver");
  c.driver = 0;
  refused(&c, "cuda", "there is no CUDA driver (libcuda.so.1) on this machine", "--device cpu");
  df_leaf_set set = DF_LEAVES_CUDA; /* auto takes the processor then */
  must(df_device_check("auto", &set, &err), &err);
  assert_int_equal(set, DF_LEAVES_HOST);
  c = fake_card_default();
  fake_set(&c);
  must(df_device_check("auto", &set, &err), &err);
  assert_int_equal(set, DF_LEAVES_CUDA);
}

/* ---- the engine on it ----------------------------------------------------------------------------------- */

static void test_engine__same_answers(void **state) {
  const fixture *f = *state;
  device_compare(&f->plain, "cuda", false);
  device_compare(&f->q8, "cuda:0", false);
  device_compare(&f->f16, "cuda", false);
  assert_nothing_left();
}

static void test_check__same_bits(void **state) {
  const fixture *f = *state;
  df_check_summary s = device_check(&f->q8, "cuda");
  assert_string_equal(s.device, "cuda:0");
  assert_string_equal(s.reference, "cpu");
  s = device_check(&f->f16, "cuda"); /* their products have bits of their own on a card */
  assert_string_equal(s.reference, "cuda:0");
  assert_nothing_left();
}

typedef struct on_card {
  df_model *m;
  df_draft *d;
  df_session *s;
} on_card;

static on_card open_on(const char *device, const device_files *f, bool eager, int32_t drafts) {
  df_error err = {0};
  on_card c = {0};
  df_model_params mp = df_model_params_default();
  df_session_params sp = df_session_params_default();
  mp.device = device;
  sp.n_ctx = 640;
  sp.no_graph = eager;
  sp.spec_draft_max = drafts;
  must(df_model_open(f->target, &mp, &c.m, &err), &err);
  must(df_draft_open(f->draft, c.m, NULL, &c.d, &err), &err);
  must(df_session_create(c.m, c.d, &sp, &c.s, &err), &err);
  return c;
}

static on_card open_on_card(const device_files *f, bool eager, int32_t drafts) {
  return open_on("cuda", f, eager, drafts);
}

static void close_all(on_card *c) {
  df_session_free(c->s);
  df_draft_close(c->d);
  df_model_close(c->m);
}

static df_status ask_about(on_card *c, uint32_t n_prompt, uint32_t n, bool hash, df_result *r, df_error *err) {
  int32_t ids[600];
  df_generate_params g = df_generate_params_default();
  g.max_tokens = n;
  g.ignore_eos = true;
  g.hash_logits = hash;
  for (uint32_t i = 0; i < n_prompt; i++) ids[i] = (int32_t)((i * 7 + n) % 250);
  df_session_reset(c->s);
  return df_session_generate(c->s, ids, n_prompt, &g, r, err);
}

static df_status ask(on_card *c, uint32_t n_prompt, uint32_t n, df_result *r, df_error *err) {
  return ask_about(c, n_prompt, n, false, r, err);
}

/* A plain step of a session with a draft is one pass: one copy of inputs, one launch, and one wait, for the token,
 * which the card writes to the host's memory itself. Features are injected once in 16 steps, and at the end. */
static void test_run__no_more_than_needed(void **state) {
  const fixture *f = *state;
  df_error err = {0};
  df_result r;
  fake_counts few, many;
  on_card c = open_on_card(&f->q8, false, 0);
  must(ask(&c, 9, 3, &r, &err), &err); /* everything is recorded */
  (void)fake_take_counts();
  must(ask(&c, 9, 3, &r, &err), &err);
  few = fake_take_counts();
  must(ask(&c, 9, 13, &r, &err), &err);
  many = fake_take_counts();
  assert_int_equal(many.waits - few.waits, 10);
  assert_int_equal(many.graph_launches - few.graph_launches, 10);
  assert_true(many.op_launches == 0 && many.copies_in == 0 && many.came_back == 0); /* all inside the graphs */
  assert_int_equal(r.stats.step_allocations, 0);
  must(ask(&c, 9, 35, &r, &err), &err); /* 34 steps: two injections, and one at the end as in the others */
  many = fake_take_counts();
  assert_int_equal(many.waits - few.waits, 32);
  assert_int_equal(many.graph_launches - few.graph_launches, 32 + 2);
  close_all(&c);
  c = open_on_card(&f->q8, true, 0);
  must(ask(&c, 9, 3, &r, &err), &err);
  (void)fake_take_counts();
  must(ask(&c, 9, 3, &r, &err), &err);
  few = fake_take_counts();
  must(ask(&c, 9, 13, &r, &err), &err);
  many = fake_take_counts();
  assert_int_equal(many.graph_launches, 0);
  assert_int_equal(many.copies_in - few.copies_in, 10);
  assert_int_equal(many.copies_out, 0);
  close_all(&c);
  assert_nothing_left();
}

/* A drafted step is three passes and one wait: drafts stay on the card, and what of them stands is found there. */
static void test_drafts__one_wait_a_step(void **state) {
  const fixture *f = *state;
  df_error err = {0};
  df_result few, many;
  for (int32_t drafts = 1; drafts <= 15; drafts += 7) {
    on_card c = open_on_card(&f->q8, false, drafts);
    must(ask(&c, 9, 40, &few, &err), &err); /* everything is recorded */
    (void)fake_take_counts();
    must(ask(&c, 9, 1, &few, &err), &err);
    const fake_counts prompt = fake_take_counts();
    must(ask(&c, 9, 40, &many, &err), &err);
    const fake_counts all = fake_take_counts();
    const uint32_t steps = (uint32_t)(many.stats.steps - few.stats.steps), blocks = (uint32_t)many.stats.verify_steps;
    assert_true(blocks > 1 && steps >= blocks);
    assert_int_equal(all.waits - prompt.waits, steps);
    assert_int_equal(all.came_back, 0); /* tokens come by themselves */
    assert_int_equal(all.graph_launches - prompt.graph_launches, 3 * blocks + 2 * (steps - blocks));
    assert_int_equal(many.stats.step_allocations, 0);
    close_all(&c);
  }
  assert_nothing_left();
}

static void test_drafts__texts_of_the_processor(void **state) {
  const fixture *f = *state;
  assert_true(device_group_compare(&f->plain, "cuda", 7) > 20);
  assert_nothing_left();
}

/* A prompt of several passes: nothing is waited for between them, but no input may change while it is on its way. */
static void test_prefill__passes_follow_each_other(void **state) {
  const fixture *f = *state;
  for (int eager = 0; eager < 2; eager++) {
    df_error err = {0};
    df_result r;
    on_card c = open_on("cpu", &f->q8, eager == 1, 5);
    must(ask_about(&c, 600, 16, true, &r, &err), &err);
    const uint64_t want = r.logits_hash;
    close_all(&c);
    c = open_on_card(&f->q8, eager == 1, 5);
    must(ask_about(&c, 600, 15, true, &r, &err), &err); /* another prompt; recording its passes waits for each */
    must(ask_about(&c, 600, 16, true, &r, &err), &err);
    assert_int_equal(r.n_ids, 16);
    assert_true(r.logits_hash == want);
    close_all(&c);
  }
}

/* Weights of the host's form stay byte for byte; the others arrive in the card's. The host's copy is given back. */
static void test_weights__leave_the_host(void **state) {
  const fixture *f = *state;
  on_card c = open_on_card(&f->f16, false, 0);
  const uint8_t *block = c.m->block;
  for (size_t i = 0; i < c.m->block_bytes; i++) assert_int_equal(block[i], 0);
  df_device_info info;
  c.m->device->ops->info(c.m->device, &info);
  assert_string_equal(info.name, "cuda:0");
  assert_string_equal(info.card, "made up");
  assert_true(info.major == 9 && info.minor == 0 && info.driver == 13000 && info.runtime == 13000);
  assert_true(info.memory_total == (uint64_t)1 << 30 && info.memory_free < info.memory_total);
  assert_true(info.mapped[DF_MEM_WEIGHTS] >= c.m->block_bytes + c.d->block_bytes);
  assert_true(info.mapped[DF_MEM_SCRATCH] > 0 && info.mapped[DF_MEM_INPUT] > 0 && info.mapped[DF_MEM_OUTPUT] > 0);
  close_all(&c);
  assert_nothing_left();
}

/* ---- failures ------------------------------------------------------------------------------------------- */

static void test_memory__too_little(void **state) {
  const fixture *f = *state;
  df_error err = {0};
  df_model *m = NULL;
  df_session *s = NULL;
  df_model_params mp = df_model_params_default();
  fake_card card = fake_card_default();
  mp.device = "cuda";
  card.memory = 256 << 20; /* what is kept for other things alone */
  fake_set(&card);
  assert_int_equal(df_model_open(f->q8.target, &mp, &m, &err), DF_ERR_MEMORY);
  if (!strstr(err.msg, "the weights need ") || !strstr(err.msg, " MiB on cuda:0 (made up), where 256.0 of 256.0 MiB"))
    fail_msg("%s", err.msg);
  assert_nothing_left();
  card.memory = 300 << 20;
  fake_set(&card);
  /* The pool and the draft count too, before anything is read. */
  mp.n_seqs = 4;
  mp.n_ctx = 1 << 17;
  mp.draft = f->q8.draft;
  assert_int_equal(df_model_open(f->q8.target, &mp, &m, &err), DF_ERR_MEMORY);
  if (!strstr(err.msg, "the weights (") || !strstr(err.msg, " MiB), a KV pool of 524288 tokens (") ||
      !strstr(err.msg, ") and the draft (") || !strstr(err.msg, " MiB on cuda:0 (made up), where 300.0 of 300.0 MiB"))
    fail_msg("%s", err.msg);
  assert_nothing_left();
  mp.kv_bytes = 1 << 20; /* a pool that is bounded fits */
  must(df_model_open(f->q8.target, &mp, &m, &err), &err);
  df_model_close(m);
  mp.n_seqs = 0;
  df_session_params sp = df_session_params_default();
  sp.n_ctx = 1 << 20;
  must(df_model_open(f->q8.target, &mp, &m, &err), &err);
  assert_int_equal(df_session_create(m, NULL, &sp, &s, &err), DF_ERR_MEMORY);
  if (!strstr(err.msg, " need ") || !strstr(err.msg, "of 300.0 MiB are free")) fail_msg("%s", err.msg);
  assert_non_null(strstr(err.hint, "--ctx-size"));
  df_model_close(m);
  card = fake_card_default();
  fake_set(&card);
  assert_nothing_left();
}

/* The card breaks in the middle of an answer: the request ends with one line, so does every later one, nothing hangs,
 * and what was there can be closed. */
static void test_run__the_card_is_lost(void **state) {
  const fixture *f = *state;
  const fake_card card = fake_card_default();
  for (int i = 0; i < 3; i++) {
    df_error err = {0};
    df_result r;
    on_card c = open_on_card(&f->q8, i == 2, i == 1 ? 4 : 0);
    must(ask(&c, 9, 5, &r, &err), &err);
    if (i == 2)
      fake_fail_launch(9, cudaErrorIllegalAddress);
    else
      fake_fail_wait(3, cudaErrorIllegalAddress);
    for (int again = 0; again < 2; again++) {
      assert_int_equal(ask(&c, 9, 20, &r, &err), DF_ERR_DEVICE);
      if (!strstr(err.msg, "cuda:0 is lost: an illegal access (illegal) while ")) fail_msg("%s", err.msg);
      assert_non_null(strstr(err.hint, "start the program again"));
    }
    close_all(&c);
    fake_set(&card);
    assert_nothing_left();
    c = open_on_card(&f->q8, false, 0); /* a new one works */
    must(ask(&c, 9, 5, &r, &err), &err);
    close_all(&c);
  }
}

static void test_kv__f32_refused(void **state) {
  const fixture *f = *state;
  df_error err = {0};
  df_model *m = NULL;
  df_session *s = NULL;
  df_model_params mp = df_model_params_default();
  df_session_params sp = df_session_params_default();
  mp.device = "cuda";
  sp.kv_f32 = true;
  must(df_model_open(f->q8.target, &mp, &m, &err), &err);
  assert_int_equal(df_session_create(m, NULL, &sp, &s, &err), DF_ERR_UNSUPPORTED);
  assert_string_equal(err.msg, "attention backend \"cuda\" cannot read an f32 KV cache (-ctk, -ctv)");
  df_model_close(m);
  assert_nothing_left();
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_archs_fit__table),         cmocka_unit_test(test_check__one_line_each),
      cmocka_unit_test(test_run__no_more_than_needed), cmocka_unit_test(test_prefill__passes_follow_each_other),
      cmocka_unit_test(test_drafts__one_wait_a_step),  cmocka_unit_test(test_drafts__texts_of_the_processor),
      cmocka_unit_test(test_weights__leave_the_host),  cmocka_unit_test(test_engine__same_answers),
      cmocka_unit_test(test_check__same_bits),         cmocka_unit_test(test_memory__too_little),
      cmocka_unit_test(test_run__the_card_is_lost),    cmocka_unit_test(test_kv__f32_refused),
  };
  return cmocka_run_group_tests_name("cuda_exec", tests, setup, teardown);
}

#else

static void test_device__needs_the_toolkits_headers(void **state) {
  (void)state;
  skip();
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_archs_fit__table),
      cmocka_unit_test(test_device__needs_the_toolkits_headers),
  };
  return cmocka_run_group_tests_name("cuda_exec", tests, NULL, NULL);
}
#endif
