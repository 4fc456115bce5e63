/* The examination of a configuration, on a pair of tiny models. */
// clang-format off
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
// clang-format on

#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "engine/doctor.h"
#include "support/sample_files.h"
#include "support/stub_attn.h"
#include "support/tiny_model.h"

typedef struct files {
  char *dir;
  char target[256], draft[256];
  df_doctor d;
  df_doctor_params p;
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
  f->p = (df_doctor_params){.model = f->target, .draft = f->draft, .model_params = df_model_params_default()};
  f->p.model_params.n_threads = 1;
  f->p.draft_params = df_draft_params_default();
  f->p.engine = (df_engine_params){.session = df_session_params_default(), .max_seqs = 1};
  f->p.engine.session.n_ctx = 128;
  *state = f;
  return 0;
}

static int teardown(void **state) {
  files *f = *state;
  df_doctor_release(&f->d);
  test_dir_remove(f->dir);
  df_free(f);
  return 0;
}

static void examine(files *f) {
  df_error err = {0};
  df_doctor_release(&f->d);
  if (df_doctor_run(&f->p, &f->d, &err) != DF_OK) fail_msg("%s", err.msg);
}

static void is_route(const df_doctor *d, df_mode mode, const char *want) {
  char got[128] = "";
  size_t n = 0;
  for (uint32_t i = 0; i < d->route[mode].n; i++)
    n += (size_t)snprintf(got + n, sizeof got - n, "%s%s", i ? ">" : "", d->route[mode].path[i]);
  assert_string_equal(got, want);
}

/* The problems' settings in order, separated by blanks. */
static void are_refused(const df_doctor *d, const char *want) {
  char got[256] = "";
  size_t n = 0;
  for (uint32_t i = 0; i < d->n_problems; i++)
    n += (size_t)snprintf(got + n, sizeof got - n, "%s%s", i ? " " : "", d->problem[i].setting);
  assert_string_equal(got, want);
}

static void test_doctor_run__defaults(void **state) {
  files *f = *state;
  examine(f);
  const df_doctor *d = &f->d;
  assert_int_equal(d->n_problems, 0);
  assert_true(d->has_plan && d->has_fit && d->fit.fits);
  for (int m = 0; m < DF_MODE_COUNT; m++) is_route(d, (df_mode)m, "flash");
  assert_int_equal(d->n_leaves, 1);
  assert_int_equal(d->leaf[0].modes, (1u << DF_MODE_COUNT) - 1);
  assert_int_equal(d->mask_layout, DF_MASK_NONE);
  assert_string_equal(d->mask_executor, "flash");
  assert_int_equal(d->n_ctx, 128);
  assert_int_equal(d->page_size, 16);
  assert_int_equal(d->pages, 8);
  /* 2 layers, K and V, 2 heads of width 32, two bytes each; the draft has one layer. */
  assert_int_equal(d->memory.kv_token, 2 * 2 * 2 * 32 * 2);
  assert_int_equal(d->memory.draft_kv_token, 2 * 2 * 32 * 2);
  assert_true(d->memory.kv_pool >= 128 * d->memory.kv_token && d->memory.weights > 0 && d->memory.draft_weights > 0);
  uint64_t bytes = 0;
  for (uint32_t i = 0; i < d->n_graphs; i++) bytes += d->graph[i].bytes;
  assert_true(bytes == d->memory.programs && bytes > 0);
}

static void test_doctor_run__routes(void **state) {
  files *f = *state;
  df_session_params *s = &f->p.engine.session;
  s->prefill_attention_backend = "flashinfer";
  s->decode_attention_backend = "trtllm_mha";
  examine(f);
  is_route(&f->d, DF_MODE_EXTEND, "hybrid>flash");
  is_route(&f->d, DF_MODE_DECODE, "hybrid>splitkv");
  is_route(&f->d, DF_MODE_TARGET_VERIFY, "hybrid>flash");
  is_route(&f->d, DF_MODE_DRAFT_BLOCK, "flash");
  assert_int_equal(f->d.n_aliases, 2);
  assert_string_equal(f->d.alias[1].setting, "decode-attention-backend");
  assert_string_equal(f->d.alias[1].leaf, "splitkv");
  s->speculative_attention_mode = "decode";
  s->two_batch_overlap = true;
  examine(f);
  is_route(&f->d, DF_MODE_TARGET_VERIFY, "tbo>hybrid>splitkv");
  is_route(&f->d, DF_MODE_IDLE, "tbo>hybrid>splitkv");
  assert_string_equal(f->d.mask_executor, "splitkv");
  s->verify_attention_backend = "naive";
  f->p.draft = NULL;
  examine(f);
  is_route(&f->d, DF_MODE_TARGET_VERIFY, "tbo>hybrid>naive");
  is_route(&f->d, DF_MODE_DRAFT_BLOCK, "");
  assert_false(f->d.has_fit);
  assert_int_equal(f->d.n_problems, 0);
}

static void test_doctor_run__programs_of_every_batch_size(void **state) {
  files *f = *state;
  static const uint32_t sizes[] = {1, 2, 5};
  df_session_params *s = &f->p.engine.session;
  s->graph_seqs = sizes;
  s->n_graph_seqs = 3;
  s->spec_draft_max = 3;
  f->p.engine.max_seqs = 5;
  examine(f);
  assert_int_equal(f->d.n_buckets, 3);
  for (uint32_t i = 0; i < 3; i++) {
    uint32_t verify = 0, decode = 0, block = 0;
    for (uint32_t g = 0; g < f->d.n_graphs; g++) {
      const df_doctor_graph *x = &f->d.graph[g];
      if (x->key.seqs != sizes[i]) continue;
      verify += x->key.mode == DF_MODE_TARGET_VERIFY && x->key.rows == 4;
      decode += x->key.mode == DF_MODE_DECODE && x->key.rows == 1;
      block += x->of_draft && x->key.mode == DF_MODE_DRAFT_BLOCK && x->key.rows == 4;
    }
    assert_int_equal(verify, 2); /* with the best token, and with logits */
    assert_int_equal(decode, 2);
    assert_int_equal(block, 1);
  }
  s->no_graph = true;
  examine(f);
  assert_int_equal(f->d.n_graphs, 0);
  assert_int_equal(f->d.memory.programs, 0);
}

static void test_doctor_run__collects_all_refusals(void **state) {
  files *f = *state;
  static const uint32_t sizes[] = {4, 2};
  df_session_params *s = &f->p.engine.session;
  s->prefill_attention_backend = "flsh";
  s->verify_attention_backend = "cutlass";
  s->speculative_attention_mode = "both";
  s->spec_draft_max = 16; /* the block has 16 rows: 15 drafts */
  s->page_size = 32;
  s->graph_seqs = sizes;
  s->n_graph_seqs = 2;
  s->graph_memory = 100;
  s->n_ctx = 1;
  f->p.engine.max_seqs = 8;
  examine(f);
  are_refused(&f->d,
              "prefill-attention-backend verify-attention-backend ctx-size spec-draft-n-max page-size "
              "speculative-attention-mode graph-bs graph-memory");
  assert_non_null(strstr(f->d.problem[0].error.msg, "did you mean \"flash\""));
  assert_true(f->d.has_plan); /* of what is left */
  assert_int_equal(f->d.page_size, 16);
  is_route(&f->d, DF_MODE_EXTEND, "flash");
}

static void test_doctor_run__models_that_do_not_fit(void **state) {
  files *f = *state;
  const tiny_spec s = tiny_spec_default();
  tiny_draft_spec d = tiny_draft_default(&s);
  d.hidden = 96;
  tiny_draft_write(&d, f->draft);
  examine(f);
  are_refused(&f->d, "spec-draft-model");
  assert_true(f->d.has_fit && !f->d.fit.fits);
  assert_int_equal(f->d.fit.item[DF_FIT_WIDTH].verdict, DF_FIT_BAD);
  assert_true(f->d.has_plan);
  is_route(&f->d, DF_MODE_DRAFT_BLOCK, "");
  f->p.model = "/no/such/model";
  f->p.engine.session.attention_backend = "flsh";
  examine(f);
  are_refused(&f->d, "attention-backend model");
  assert_false(f->d.has_plan);
}

static void test_doctor_run__memory_of_all_programs(void **state) {
  files *f = *state;
  static const uint32_t sizes[] = {1, 2, 3, 4};
  df_session_params *s = &f->p.engine.session;
  s->spec_draft_max = 3;
  examine(f);
  const uint64_t one = f->d.memory.programs;
  s->graph_seqs = sizes;
  s->n_graph_seqs = 4;
  s->graph_memory = one;
  f->p.engine.max_seqs = 4;
  examine(f);
  are_refused(&f->d, ""); /* the programs of one request fit: the others' passes run eagerly */
  assert_true(f->d.memory.programs <= one && f->d.graphs_full);
  s->graph_memory = 0;
  examine(f);
  assert_true(f->d.memory.programs > one && !f->d.graphs_full);
}

/* No leaf there is lacks a page size or a KV type; a stub may. */
static void test_target_init__refuses_a_pool_that_its_backend_cannot_read(void **state) {
  files *f = *state;
  df_model *m;
  df_pages pages;
  df_target t;
  df_error err = {0};
  assert_int_equal(df_model_open(f->target, &f->p.model_params, &m, NULL), DF_OK);
  assert_int_equal(df_pages_init(&pages, 64, 128, NULL), DF_OK);
  df_target_params p = {
      .max_seqs = 1, .max_rows = 16, .max_out = 1, .max_positions = 128, .pages = &pages, .kv = DF_KV_F16};
  df_attn_caps caps = stub_caps_all();
  caps.page_sizes = 1 | 16;
  stub_attn leaf = stub_leaf("small", caps);
  p.attn = &leaf.base;
  assert_int_equal(df_target_init(&t, m, &p, &err), DF_ERR_UNSUPPORTED);
  assert_non_null(strstr(err.msg, "\"small\" cannot read KV pages of 64 tokens (--page-size)"));
  assert_int_equal(leaf.calls[STUB_FREE], 1);
  caps.page_sizes = 64;
  caps.kv_types = 1u << DF_KV_F32;
  leaf = stub_leaf("wide", caps);
  assert_int_equal(df_target_init(&t, m, &p, &err), DF_ERR_UNSUPPORTED);
  assert_non_null(strstr(err.msg, "\"wide\" cannot read an f16 KV cache"));
  p.kv = DF_KV_F32;
  assert_int_equal(df_target_init(&t, m, &p, NULL), DF_OK);
  df_target_release(&t);
  df_pages_release(&pages);
  df_model_close(m);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(test_doctor_run__defaults, setup, teardown),
      cmocka_unit_test_setup_teardown(test_doctor_run__routes, setup, teardown),
      cmocka_unit_test_setup_teardown(test_doctor_run__programs_of_every_batch_size, setup, teardown),
      cmocka_unit_test_setup_teardown(test_doctor_run__collects_all_refusals, setup, teardown),
      cmocka_unit_test_setup_teardown(test_doctor_run__models_that_do_not_fit, setup, teardown),
      cmocka_unit_test_setup_teardown(test_doctor_run__memory_of_all_programs, setup, teardown),
      cmocka_unit_test_setup_teardown(test_target_init__refuses_a_pool_that_its_backend_cannot_read, setup, teardown),
  };
  return cmocka_run_group_tests_name("doctor", tests, NULL, NULL);
}
