/* Sixteen requests at once on a real pair of model and draft: each text is the one it has alone, without a draft. */
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
#include "support/sched_rig.h"
#include "support/test_models.h"

enum { CTX = 512, N_JOBS = 16 };

static const char k_shots[] =
    "Question: Tom has 3 apples and buys 4 more. How many apples does he have?\nAnswer: 3 + 4 = 7. The answer is 7.\n\n"
    "Question: A train goes 60 miles an hour. How far does it go in 3 hours?\nAnswer: 60 * 3 = 180. The answer is "
    "180.\n"
    "\n";

static const char *const k_questions[] = {
    "Question: Ann has 12 pencils and gives 5 away. How many are left?\nAnswer:",
    "Question: Eggs cost 2 dollars a dozen. How much are 36 eggs?\nAnswer:",
    "Question: A book has 200 pages. Ben reads 25 pages a day. How many days does he need?\nAnswer:",
    "Question: Write a short sentence about the sea.\nAnswer:",
    "def fibonacci(n):\n",
    "The capital of France is",
    "Once upon a time there was a",
    "1, 2, 3, 4, 5,",
};

static df_job job_of(df_model *m, uint32_t i, int32_t **ids) {
  char text[1024];
  size_t n = 0;
  df_error err = {0};
  (void)snprintf(text, sizeof text, "%s%s", i % 8 < 4 ? k_shots : "", k_questions[i % 8]);
  if (df_model_tokenize(m, text, strlen(text), true, ids, &n, &err) != DF_OK) fail_msg("%s", err.msg);
  df_job j = rig_job(*ids, n, df_test_long() ? 128 : 24);
  j.gen.ignore_eos = false;
  if (i >= 8) {
    j.gen.sampling.temperature = 0.8f;
    j.gen.sampling.top_p = 0.95f;
    j.gen.sampling.seed = i;
  }
  return j;
}

static void test_submit__texts_of_a_real_model(void **state) {
  (void)state;
  const char *target = df_test_model_or_skip("SmolLM2-135M-Instruct");
  const char *draft = df_test_model_or_skip("smollm2-135m-instruct-dflash");
  df_error err = {0};
  df_model *m = NULL;
  df_draft *d = NULL;
  const df_model_params mp = df_model_params_default();
  if (df_model_open(target, &mp, &m, &err) != DF_OK) fail_msg("%s", err.msg);
  if (df_draft_open(draft, m, NULL, &d, &err) != DF_OK) fail_msg("%s", err.msg);
  df_sched_params p = {.engine = {.session = df_session_params_default(), .max_seqs = N_JOBS}, .max_waiting = 16};
  p.engine.session.n_ctx = CTX;
  p.engine.kv_tokens = 2048;
  sched_rig r;
  df_sched_stats st;
  int32_t *ids[N_JOBS];
  rig_answer *want = df_calloc(N_JOBS, sizeof *want);
  assert_non_null(want);
  for (uint32_t i = 0; i < N_JOBS; i++) {
    const df_job j = job_of(m, i, &ids[i]);
    rig_alone(m, CTX, &j, &want[i]);
    df_ids_free(ids[i]);
  }
  rig_init(&r, m, d, &p);
  for (uint32_t round = 0; round < 2; round++) { /* the second time prompts are cached */
    for (uint32_t i = 0; i < N_JOBS; i++) {
      df_job j = job_of(m, i, &ids[i]);
      j.logprobs = i % 2;
      j.spec_width = (int32_t)(i % 3 == 2 ? 8 : 0);
      (void)rig_submit(&r, &j);
      df_ids_free(ids[i]);
    }
    rig_assert_at_rest(&r);
    for (uint32_t i = 0; i < N_JOBS; i++) {
      char what[48];
      (void)snprintf(what, sizeof what, "round %u, request %u", round, i);
      rig_assert_same(rig_get(&r, round * N_JOBS + i), &want[i], what);
    }
  }
  df_sched_get_stats(r.s, &st);
  print_message("%d drafted, %d stood; %d of %d prompt tokens cached; %.1f s, of it %.1f in the model\n",
                (int)st.drafted, (int)st.accepted, (int)st.cached_tokens, (int)st.prompt_tokens, st.busy_s, st.model_s);
  assert_true(st.accepted > st.drafted / 10 && st.cached_tokens > st.prompt_tokens / 2);
  rig_release(&r);
  df_free(want);
  df_draft_close(d);
  df_model_close(m);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_submit__texts_of_a_real_model)};
  return cmocka_run_group_tests_name("sched_model", tests, NULL, NULL);
}
