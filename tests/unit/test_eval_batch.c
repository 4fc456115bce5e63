/* Many prompts through one engine: the texts of one at a time, whatever runs beside them and whatever is shared. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "base/mem.h"
#include "base/size.h"
#include "dflash/dflash.h"
#include "eval/prompt_batch.h"
#include "support/sample_files.h"
#include "support/tiny_model.h"

enum { N = 9, COMMON = 40, NEW = 24, CTX = 128 };

typedef struct fixture {
  char *dir;
  df_model *m;
  df_draft *d;
  int32_t ids[N][64];
  df_batch_prompt prompt[N];
  int32_t want[N][NEW];
  uint32_t n_want[N];
} fixture;

static int setup(void **state) {
  fixture *f = df_calloc(1, sizeof *f);
  if (!f) return -1;
  f->dir = test_dir_create();
  const tiny_spec spec = tiny_spec_default();
  const tiny_draft_spec d = tiny_draft_default(&spec);
  tiny_model_write(&spec, test_dir_path(f->dir, "t.gguf"));
  tiny_draft_write(&d, test_dir_path(f->dir, "d.gguf"));
  if (df_model_open(test_dir_path(f->dir, "t.gguf"), NULL, &f->m, NULL) != DF_OK) return -1;
  if (df_draft_open(test_dir_path(f->dir, "d.gguf"), f->m, NULL, &f->d, NULL) != DF_OK) return -1;
  for (uint32_t i = 0; i < N; i++) { /* the same beginning, then their own ends of different lengths */
    const uint32_t n = COMMON + 1 + i * 2;
    for (uint32_t k = 0; k < n; k++) f->ids[i][k] = (int32_t)(k < COMMON ? 65 + k % 26 : 97 + (i * 7 + k * 3) % 26);
    f->prompt[i] = (df_batch_prompt){f->ids[i], n};
  }
  df_session *s;
  df_generate_params g = df_generate_params_default();
  g.max_tokens = NEW;
  if (df_session_create(f->m, NULL, NULL, &s, NULL) != DF_OK) return -1;
  for (uint32_t i = 0; i < N; i++) {
    df_result r;
    df_session_reset(s);
    if (df_session_generate(s, f->ids[i], f->prompt[i].n, &g, &r, NULL) != DF_OK) return -1;
    memcpy(f->want[i], r.ids, r.n_ids * sizeof *r.ids);
    f->n_want[i] = r.n_ids;
  }
  df_session_free(s);
  *state = f;
  return 0;
}

static int teardown(void **state) {
  fixture *f = *state;
  df_draft_close(f->d);
  df_model_close(f->m);
  test_dir_remove(f->dir);
  df_free(f);
  return 0;
}

typedef struct seen {
  const fixture *f;
  uint32_t times[N], n, cached, tokens, texts;
  uint32_t stop_at; /* 0 = never; fails in this answer */
} seen;

static df_status on_answer(void *user, const df_batch_answer *a, df_error *err) {
  seen *s = user;
  if (++s->n == s->stop_at) return DF_FAIL(err, DF_ERR_IO, "the disk is full");
  assert_true(a->index < N);
  s->times[a->index]++;
  s->cached += a->stats->cached_tokens;
  assert_int_equal(a->n_ids, s->f->n_want[a->index]);
  assert_memory_equal(a->ids, s->f->want[a->index], a->n_ids * sizeof *a->ids);
  char *text;
  size_t n;
  /* rows of the vocabulary without text cannot be turned into any */
  if (df_model_detokenize(s->f->m, a->ids, a->n_ids, false, &text, &n, NULL) != DF_OK) return DF_OK;
  s->texts++;
  assert_int_equal(a->n_text, n);
  assert_memory_equal(a->text, text, n);
  df_text_free(text);
  return DF_OK;
}

static void on_tokens(void *user, uint32_t n) { ((seen *)user)->tokens += n; }

static df_status run(const fixture *f, bool draft, uint32_t parallel, bool no_cache, seen *s, df_error *err) {
  df_engine_params ep = {.session = df_session_params_default(), .max_seqs = parallel};
  df_batch_params bp = {.gen = df_generate_params_default(),
                        .parallel = parallel,
                        .no_prefix_cache = no_cache,
                        .on_answer = on_answer,
                        .on_tokens = on_tokens,
                        .user = s};
  df_engine e;
  ep.session.n_ctx = CTX;
  ep.session.spec_draft_max = draft ? 5 : -1;
  ep.kv_tokens = (parallel + 1) * CTX;
  bp.gen.max_tokens = NEW;
  assert_int_equal(df_engine_init(&e, f->m, draft ? f->d : NULL, &ep, err), DF_OK);
  const uint32_t free_pages = e.pages.n_free;
  const df_status st = df_batch_run(&e, f->prompt, N, &bp, err);
  assert_int_equal(e.pages.n_free, free_pages); /* everything was given back */
  df_engine_release(&e);
  return st;
}

static void test_batch_run__same_texts(void **state) {
  const fixture *f = *state;
  static const uint32_t k_parallel[] = {1, 3, 8, 16};
  for (size_t p = 0; p < DF_COUNT_OF(k_parallel); p++)
    for (int draft = 0; draft < 2; draft++)
      for (int no_cache = 0; no_cache < 2; no_cache++) {
        seen s = {.f = f};
        uint32_t total = 0;
        assert_int_equal(run(f, draft, k_parallel[p], no_cache, &s, NULL), DF_OK);
        for (uint32_t i = 0; i < N; i++) {
          assert_int_equal(s.times[i], 1);
          total += f->n_want[i];
        }
        assert_int_equal(s.tokens, total);
        assert_true(s.texts > 0);
        assert_int_equal(s.cached, no_cache ? 0 : N * 32); /* whole pages of the 40 */
      }
}

static void test_batch_run__an_answer_that_cannot_be_kept(void **state) {
  const fixture *f = *state;
  df_error err;
  seen s = {.f = f, .stop_at = 3};
  assert_int_equal(run(f, true, 4, false, &s, &err), DF_ERR_IO);
  assert_string_equal(err.msg, "the disk is full");
  assert_int_equal(s.n, 3);
}

static void test_batch_run__refuses(void **state) {
  const fixture *f = *state;
  df_engine_params ep = {.session = df_session_params_default(), .max_seqs = 2};
  df_batch_params bp = {.gen = df_generate_params_default(), .parallel = 3, .on_answer = on_answer};
  df_engine e;
  df_error err;
  seen s = {.f = f};
  ep.session.n_ctx = 48;
  bp.user = &s;
  assert_int_equal(df_engine_init(&e, f->m, NULL, &ep, NULL), DF_OK);
  assert_int_equal(df_batch_run(&e, f->prompt, N, &bp, &err), DF_ERR_ARGUMENT);
  bp.parallel = 2;
  bp.no_prefix_cache = true;
  bp.gen.max_tokens = 2;
  assert_int_equal(df_batch_run(&e, f->prompt + 6, 1, &bp, &err), DF_ERR_LIMIT); /* 53 tokens */
  assert_non_null(strstr(err.msg, "prompt 0"));
  df_engine_release(&e);
}

static void test_batch_run__cancelled(void **state) {
  const fixture *f = *state;
  static volatile sig_atomic_t flag = 1;
  df_engine_params ep = {.session = df_session_params_default(), .max_seqs = 2};
  df_batch_params bp = {.gen = df_generate_params_default(), .parallel = 2, .on_answer = on_answer};
  df_engine e;
  seen s = {.f = f};
  ep.session.n_ctx = CTX;
  bp.user = &s;
  bp.gen.cancel = &flag;
  assert_int_equal(df_engine_init(&e, f->m, NULL, &ep, NULL), DF_OK);
  assert_int_equal(df_batch_run(&e, f->prompt, N, &bp, NULL), DF_ERR_CANCELLED);
  assert_int_equal(s.n, 0);
  df_engine_release(&e);
}

static void test_batch_common__leaves_one_token(void **state) {
  const fixture *f = *state;
  assert_int_equal(df_batch_common(f->prompt, N), COMMON);
  assert_int_equal(df_batch_common(f->prompt, 0), 0);
  const df_batch_prompt same[] = {f->prompt[2], f->prompt[2]};
  assert_int_equal(df_batch_common(same, 2), f->prompt[2].n - 1);
  const df_batch_prompt cut[] = {f->prompt[2], {f->prompt[2].ids, 17}, {f->prompt[2].ids, 30}};
  assert_int_equal(df_batch_common(cut, 3), 16);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_batch_run__same_texts), cmocka_unit_test(test_batch_run__an_answer_that_cannot_be_kept),
      cmocka_unit_test(test_batch_run__refuses), cmocka_unit_test(test_batch_run__cancelled),
      cmocka_unit_test(test_batch_common__leaves_one_token)};
  return cmocka_run_group_tests_name("eval_batch", tests, setup, teardown);
}
