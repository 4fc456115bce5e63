/* Opening tiny models and drafts: every missing or misshapen tensor, drafts of other targets, and every allocation that
 * can fail between the file and the last token. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/size.h"
#include "dflash/dflash.h"
#include "draft/draft.h"
#include "kernels/encode.h"
#include "support/sample_files.h"
#include "support/tiny_model.h"

typedef struct files {
  char *dir;
  char target[256], draft[256];
  tiny_spec spec;
} files;

static int setup(void **state) {
  files *f = df_calloc(1, sizeof *f);
  if (!f) return -1;
  f->dir = test_dir_create();
  f->spec = tiny_spec_default();
  (void)snprintf(f->target, sizeof f->target, "%s/target.gguf", f->dir);
  (void)snprintf(f->draft, sizeof f->draft, "%s/draft.gguf", f->dir);
  *state = f;
  return 0;
}

static int teardown(void **state) {
  files *f = *state;
  test_dir_remove(f->dir);
  df_free(f);
  return 0;
}

static df_model_params one_thread(void) {
  df_model_params p = df_model_params_default();
  p.n_threads = 1;
  return p;
}

static df_status try_target(const files *f, const tiny_spec *s, df_error *err) {
  df_model *m = NULL;
  const df_model_params p = one_thread();
  tiny_model_write(s, f->target);
  const df_status st = df_model_open(f->target, &p, &m, err);
  if (st != DF_OK) assert_null(m);
  df_model_close(m);
  return st;
}

static const char *const k_layer_tensors[] = {"attn_norm.weight", "attn_q.weight",      "attn_k.weight",
                                              "attn_v.weight",    "attn_output.weight", "ffn_norm.weight",
                                              "ffn_gate.weight",  "ffn_up.weight",      "ffn_down.weight"};

static void expect_named(df_status st, const df_error *err, const char *name, const char *path) {
  if (st == DF_OK) fail_msg("a file with a wrong \"%s\" was accepted", name);
  if (st != DF_ERR_FORMAT) fail_msg("%s: status %s: %s", name, df_status_name(st), err->msg);
  if (!strstr(err->msg, name)) fail_msg("the message does not name \"%s\": %s", name, err->msg);
  if (!strstr(err->msg, path)) fail_msg("the message does not name the file: %s", err->msg);
}

static void check_target_tensor(const files *f, tiny_spec s, const char *name) {
  df_error err = {0};
  s.omit = name;
  expect_named(try_target(f, &s, &err), &err, name, f->target);
  s.omit = NULL;
  s.bend = name;
  expect_named(try_target(f, &s, &err), &err, name, f->target);
}

static void test_model_open__names_a_wrong_tensor(void **state) {
  const files *f = *state;
  tiny_spec s = f->spec;
  char name[64];
  check_target_tensor(f, s, "token_embd.weight");
  check_target_tensor(f, s, "output_norm.weight");
  for (uint32_t l = 0; l < s.n_layers; l++)
    for (size_t i = 0; i < DF_COUNT_OF(k_layer_tensors); i++) {
      (void)snprintf(name, sizeof name, "blk.%u.%s", l, k_layer_tensors[i]);
      check_target_tensor(f, s, name);
    }
  df_error err = {0};
  s.untied = true;
  s.bend = "output.weight";
  expect_named(try_target(f, &s, &err), &err, "output.weight", f->target);
  s = f->spec;
  s.arch = "qwen2", s.bias = true, s.bend = "blk.1.attn_k.bias";
  expect_named(try_target(f, &s, &err), &err, "blk.1.attn_k.bias", f->target);
  s = f->spec;
  s.arch = "qwen3", s.qk_norm = true;
  check_target_tensor(f, s, "blk.1.attn_q_norm.weight");
  check_target_tensor(f, s, "blk.1.attn_k_norm.weight");
}

/* A bias in one layer only would be read as none: the file is inconsistent. */
static void test_model_open__refuses_half_a_bias(void **state) {
  const files *f = *state;
  df_error err = {0};
  tiny_spec s = f->spec;
  s.arch = "qwen2", s.bias = true, s.omit = "blk.1.attn_v.bias";
  assert_int_equal(try_target(f, &s, &err), DF_ERR_FORMAT);
  assert_non_null(strstr(err.msg, "blk.1.attn_v.bias"));
}

static void test_model_open__refuses_head_widths_it_cannot_run(void **state) {
  const files *f = *state;
  df_error err = {0};
  tiny_spec s = f->spec;
  s.head_dim = 20;
  df_model *m = NULL;
  df_session *ses = NULL;
  const df_model_params p = one_thread();
  tiny_model_write(&s, f->target);
  df_status st = df_model_open(f->target, &p, &m, &err);
  if (st == DF_OK) st = df_session_create(m, NULL, NULL, &ses, &err);
  assert_int_equal(st, DF_ERR_UNSUPPORTED);
  assert_non_null(strstr(err.msg, "20"));
  df_model_close(m);
}

static void test_model_open__reports_paths(void **state) {
  const files *f = *state;
  df_error err = {0};
  df_model *m = NULL;
  assert_int_equal(df_model_open("/nonexistent/x.gguf", NULL, &m, &err), DF_ERR_IO);
  assert_non_null(strstr(err.msg, "/nonexistent/x.gguf"));
  const tiny_draft_spec d = tiny_draft_default(&f->spec);
  tiny_draft_write(&d, f->draft);
  assert_int_equal(df_model_open(f->draft, NULL, &m, &err), DF_ERR_MISMATCH); /* a draft is no target */
  assert_null(m);
}

static bool stop_loading(void *user, double fraction) {
  double *seen = user;
  *seen = fraction;
  return false;
}

static void test_model_open__can_be_cancelled(void **state) {
  const files *f = *state;
  df_error err = {0};
  df_model *m = NULL;
  double seen = 0;
  df_model_params p = one_thread();
  p.progress = stop_loading;
  p.progress_user = &seen;
  tiny_model_write(&f->spec, f->target);
  assert_int_equal(df_model_open(f->target, &p, &m, &err), DF_ERR_CANCELLED);
  assert_true(seen > 0 && seen <= 1);
  assert_null(m);
}

/* ---- drafts --------------------------------------------------------------------------------------------- */

static df_status try_draft(const files *f, df_model *m, const tiny_draft_spec *d, const df_draft_params *p,
                           df_error *err) {
  df_draft *draft = NULL;
  tiny_draft_write(d, f->draft);
  const df_status st = df_draft_open(f->draft, m, p, &draft, err);
  if (st != DF_OK) assert_null(draft);
  df_draft_close(draft);
  return st;
}

static df_model *target_of(const files *f) {
  df_error err = {0};
  df_model *m = NULL;
  const df_model_params p = one_thread();
  tiny_model_write(&f->spec, f->target);
  if (df_model_open(f->target, &p, &m, &err) != DF_OK) fail_msg("%s", err.msg);
  return m;
}

static void test_draft_open__names_a_wrong_tensor(void **state) {
  const files *f = *state;
  df_model *m = target_of(f);
  static const char *const more[] = {"fc.weight", "enc.output_norm.weight", "output_norm.weight",
                                     "blk.0.attn_q_norm.weight", "blk.0.attn_k_norm.weight"};
  char name[64];
  for (size_t i = 0; i < DF_COUNT_OF(more) + DF_COUNT_OF(k_layer_tensors); i++) {
    df_error err = {0};
    tiny_draft_spec d = tiny_draft_default(&f->spec);
    if (i < DF_COUNT_OF(more))
      (void)snprintf(name, sizeof name, "%s", more[i]);
    else
      (void)snprintf(name, sizeof name, "blk.0.%s", k_layer_tensors[i - DF_COUNT_OF(more)]);
    d.bend = name;
    expect_named(try_draft(f, m, &d, NULL, &err), &err, name, f->draft);
    if (strcmp(name, "blk.0.attn_q_norm.weight") == 0) continue; /* it tells that the draft has head norms */
    d.bend = NULL;
    d.omit = name;
    expect_named(try_draft(f, m, &d, NULL, &err), &err, name, f->draft);
  }
  df_model_close(m);
}

static void expect_mismatch(const files *f, df_model *m, const tiny_draft_spec *d, const char *word) {
  df_error err = {0};
  const df_status st = try_draft(f, m, d, NULL, &err);
  if (st != DF_ERR_MISMATCH || !strstr(err.msg, word))
    fail_msg("expected a mismatch of the %s, got %s: %s", word, df_status_name(st), err.msg);
}

static void test_draft_open__refuses_other_targets_drafts(void **state) {
  const files *f = *state;
  df_model *m = target_of(f);
  const tiny_draft_spec good = tiny_draft_default(&f->spec);
  tiny_draft_spec d = good;
  df_error err = {0};
  assert_int_equal(try_draft(f, m, &good, NULL, &err), DF_OK);
  d.hidden = 96;
  expect_mismatch(f, m, &d, "width");
  d = good, d.vocab = 301;
  expect_mismatch(f, m, &d, "vocabulary");
  d = good, d.taps[1] = 2;
  expect_mismatch(f, m, &d, "tapped layers");
  d = good, d.other_tokenizer = true;
  expect_mismatch(f, m, &d, "tokenizer");
  d = good, d.no_tokenizer = true;
  assert_int_equal(try_draft(f, m, &d, NULL, &err), DF_OK); /* taken as fitting when the file does not say */
  tiny_model_write(&f->spec, f->draft);
  df_draft *draft = NULL;
  assert_int_equal(df_draft_open(f->draft, m, NULL, &draft, &err), DF_ERR_MISMATCH);
  df_model_close(m);
}

/* Without a mask token there is nothing to fill a block with. */
static void test_draft_open__needs_a_mask_token(void **state) {
  const files *f = *state;
  df_model *m = target_of(f);
  tiny_draft_spec d = tiny_draft_default(&f->spec);
  df_error err = {0};
  d.mask = -1;
  const df_status st = try_draft(f, m, &d, NULL, &err);
  assert_true(st == DF_ERR_FORMAT || st == DF_ERR_MISMATCH || st == DF_ERR_UNSUPPORTED);
  assert_non_null(strstr(err.msg, "mask token"));
  df_model_close(m);
}

static void test_draft_open__restricts_the_vocabulary(void **state) {
  const files *f = *state;
  df_model *m = target_of(f);
  tiny_draft_spec d = tiny_draft_default(&f->spec);
  const df_draft_params p = {.draft_vocab = 16};
  df_error err = {0};
  assert_int_equal(try_draft(f, m, &d, &p, &err), DF_ERR_UNSUPPORTED); /* no rank table */
  d.rank_table = true;
  assert_int_equal(try_draft(f, m, &d, &p, &err), DF_OK);
  df_draft *draft = NULL;
  assert_int_equal(df_draft_open(f->draft, m, &p, &draft, &err), DF_OK);
  assert_int_equal(df_draft_get_info(draft).draft_vocab, 16);
  df_draft_close(draft);
  df_model_close(m);
}

static void must(df_status s, const df_error *err) {
  if (s != DF_OK) fail_msg("%s", err->msg);
}

/* Rounded while loading: every row is what the encoder makes of the file's, the weights are smaller, and a text is the
 * same. */
static void test_draft_open__rounds_its_matrices(void **state) {
  const files *f = *state;
  df_model *m = target_of(f);
  tiny_draft_spec spec = tiny_draft_default(&f->spec);
  df_draft_params p = {.draft_vocab = DF_DRAFT_VOCAB_FULL, .weight_type = "q5_0"};
  df_error err = {0};
  assert_int_equal(try_draft(f, m, &spec, &p, &err), DF_ERR_ARGUMENT);
  assert_non_null(strstr(err.msg, "\"q5_0\""));
  static const char *const k_names[] = {NULL, "q8_0", "Q4_1", "q4_0"};
  static const df_dtype k_types[] = {DF_F32, DF_Q8_0, DF_Q4_1, DF_Q4_0};
  uint64_t before = UINT64_MAX;
  for (size_t i = 0; i < DF_COUNT_OF(k_names); i++) {
    df_draft *d = NULL;
    df_tensor_view t;
    p.weight_type = k_names[i];
    must(df_draft_open(f->draft, m, &p, &d, &err), &err);
    assert_true(df_draft_get_info(d).weight_bytes < before);
    before = df_draft_get_info(d).weight_bytes;
    must(df_source_get(d->source, "fc.weight", &t, &err), &err);
    const uint32_t k = d->fc.k;
    float *x = df_alloc(k * sizeof *x), *want = df_alloc(k * sizeof *want), *got = df_alloc(k * sizeof *got);
    uint8_t *bytes = df_alloc(k * sizeof *x);
    for (uint32_t r = 0; r < d->fc.n; r++) {
      df_dequant((df_dtype)t.dtype, (const uint8_t *)t.data + r * (t.n_bytes / d->fc.n), k, x);
      df_encode_quick(k_types[i], x, k, bytes);
      df_dequant(k_types[i], bytes, k, want);
      df_kernels_get(DF_TIER_REF)->unpack_row(&d->fc, r, got);
      assert_memory_equal(want, got, k * sizeof *want);
    }
    df_free(x), df_free(want), df_free(got), df_free(bytes);
    df_draft_close(d);
  }
  df_model_close(m);
}

/* ---- allocations ---------------------------------------------------------------------------------------- */

typedef struct whole_run {
  const files *f;
  df_session_params sp;
  df_generate_params gp;
  int32_t want[12];
  uint32_t n_want;
} whole_run;

static df_status generate_all(const whole_run *w, df_session *s, df_error *err) {
  static const int32_t ids[] = {104, 105, 32, TINY_START, 97, 98, 99};
  df_result r;
  DF_TRY(df_session_generate(s, ids, DF_COUNT_OF(ids), &w->gp, &r, err));
  if (w->n_want) {
    assert_int_equal(r.n_ids, w->n_want);
    assert_memory_equal(r.ids, w->want, w->n_want * sizeof *w->want);
  }
  assert_int_equal(r.n_ids, DF_COUNT_OF(w->want));
  memcpy(((whole_run *)w)->want, r.ids, r.n_ids * sizeof *r.ids);
  ((whole_run *)w)->n_want = r.n_ids;
  return DF_OK;
}

/* Everything from the files to the last token. */
static df_status run_everything(void *arg, df_error *err) {
  whole_run *w = arg;
  df_model *m = NULL;
  df_draft *d = NULL;
  df_session *s = NULL;
  const df_model_params mp = one_thread();
  const df_draft_params dp = {.draft_vocab = 48};
  df_status st = df_model_open(w->f->target, &mp, &m, err);
  if (st == DF_OK) st = df_draft_open(w->f->draft, m, &dp, &d, err);
  if (st == DF_OK) st = df_session_create(m, d, &w->sp, &s, err);
  if (st == DF_OK) st = generate_all(w, s, err);
  df_session_free(s);
  df_draft_close(d);
  df_model_close(m);
  return st;
}

static whole_run prepare_run(const files *f) {
  tiny_spec s = f->spec;
  s.chat_template = "{% for m in messages %}{{ m.role }}: {{ m.content }}{% endfor %}";
  tiny_draft_spec d = tiny_draft_default(&f->spec);
  d.rank_table = true;
  tiny_model_write(&s, f->target);
  tiny_draft_write(&d, f->draft);
  whole_run w = {.f = f, .sp = df_session_params_default(), .gp = df_generate_params_default()};
  w.sp.n_ctx = 64;
  w.gp.max_tokens = DF_COUNT_OF(w.want);
  w.gp.ignore_eos = true;
  return w;
}

static void test_everything__survives_failed_allocations(void **state) {
  whole_run w = prepare_run(*state);
  const size_t n = test_each_allocation_fails(run_everything, &w);
  assert_true(n > 100);
  print_message("%zu allocations, each failed once alone and once with all later ones\n", n);
}

static void test_everything__survives_failed_allocations_sampling_eager(void **state) {
  whole_run w = prepare_run(*state);
  static const char *const stop[] = {"never seen", "nor this"};
  w.sp.no_graph = true;
  w.sp.attention_backend = "splitkv";
  w.sp.decode_attention_backend = "flash";
  w.gp.stop = stop;
  w.gp.n_stop = 2;
  w.gp.sampling.temperature = 0.7f;
  w.gp.sampling.repetition_penalty = 1.2f;
  assert_true(test_each_allocation_fails(run_everything, &w) > 100);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_model_open__names_a_wrong_tensor),
      cmocka_unit_test(test_model_open__refuses_half_a_bias),
      cmocka_unit_test(test_model_open__refuses_head_widths_it_cannot_run),
      cmocka_unit_test(test_model_open__reports_paths),
      cmocka_unit_test(test_model_open__can_be_cancelled),
      cmocka_unit_test(test_draft_open__names_a_wrong_tensor),
      cmocka_unit_test(test_draft_open__refuses_other_targets_drafts),
      cmocka_unit_test(test_draft_open__needs_a_mask_token),
      cmocka_unit_test(test_draft_open__restricts_the_vocabulary),
      cmocka_unit_test(test_draft_open__rounds_its_matrices),
      cmocka_unit_test(test_everything__survives_failed_allocations),
      cmocka_unit_test(test_everything__survives_failed_allocations_sampling_eager),
  };
  return cmocka_run_group_tests_name("engine load", tests, setup, teardown);
}
