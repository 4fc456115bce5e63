/* The whole server on a tiny model, inside this process: replies and streams, and every allocation failing once. */
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
#include "support/serve_rig.h"

static const struct {
  const char *path, *body;
} asks[] = {
    {"/v1/chat/completions",
     "{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"the "
     "hen\"}]}],\"max_tokens\":6,\"stop\":[\"zq\"],"
     "\"logprobs\":true,\"top_logprobs\":2,\"ignore_eos\":true,\"logit_bias\":{\"300\":1}}"},
    {"/v1/chat/completions",
     "{\"messages\":[{\"role\":\"user\",\"content\":\"the hen\"}],\"max_tokens\":6,\"stream\":true,\"stream_options\":{"
     "\"include_usage\":true},\"dflash_tokens\":true,\"ignore_eos\":true,\"spec_width\":4,\"n\":2}"},
    {"/v1/completions",
     "{\"prompt\":[\"the hen\",\"in "
     "an\"],\"max_tokens\":5,\"echo\":true,\"logprobs\":2,\"best_of\":2,\"temperature\":1,"
     "\"seed\":1,\"ignore_eos\":true}"},
    {"/v1/responses", "{\"input\":\"the hen\",\"max_output_tokens\":4,\"stream\":true,\"ignore_eos\":true}"},
    {"/generate",
     "{\"input_ids\":[[1,2,3]],\"sampling_params\":{\"max_new_tokens\":4,\"ignore_eos\":true},\"return_logprob\":true,"
     "\"logprob_start_len\":0,\"stream\":true}"},
    {"/completion",
     "{\"prompt\":\"the hen\",\"n_predict\":4,\"n_probs\":2,\"ignore_eos\":true,\"grammar\":\"root ::= [a-z]+\"}"},
    {"/v1/chat/completions",
     "{\"messages\":[{\"role\":\"user\",\"content\":\"x\"}],\"max_tokens\":4,\"response_format\":{\"type\":\"json_"
     "object\"}}"},
    {"/tokenize", "{\"content\":\"the hen\",\"with_pieces\":true}"},
    {"/detokenize", "{\"tokens\":[1,2,300,5]}"},
    {"/apply-template", "{\"messages\":[{\"role\":\"user\",\"content\":\"x\"}]}"},
};

static void test_serve__answers(void **state) {
  (void)state;
  for (size_t i = 0; i < DF_COUNT_OF(asks); i++) {
    const bool bad = strcmp(asks[i].path, "/detokenize") == 0; /* id 300 is beyond the vocabulary */
    const char *reply = serve_rig_ask("POST", asks[i].path, asks[i].body, NULL);
    const int status = serve_rig_status(reply);
    if (status != (bad ? 400 : 200)) fail_msg("%s %s: %.500s", asks[i].path, asks[i].body, reply);
  }
  static const char *const pages[] = {"/v1/models",      "/props",        "/slots",  "/get_server_info",
                                      "/get_model_info", "/openapi.json", "/health", "/health_generate",
                                      "/metrics",        "/version"};
  for (size_t i = 0; i < DF_COUNT_OF(pages); i++) {
    assert_int_equal(serve_rig_status(serve_rig_ask("GET", pages[i], "", NULL)), 200);
  }
  serve_rig_wait_idle();
}

/* Whatever allocation fails, in whichever thread: an answer, an error, or a closed connection; never a crash, a wrong
 * reply or silence. Afterwards all is as before. */
static void test_serve__every_allocation_fails(void **state) {
  (void)state;
  uint32_t refused = 0, served = 0;
  for (size_t i = 0; i < DF_COUNT_OF(asks); i++) {
    uint32_t untouched = 0;
    for (uint64_t n = 1; n < 400 && untouched < 3; n++) {
      df_mem_fail_after(n, false);
      const uint64_t before = df_mem_alloc_count();
      size_t len;
      const char *reply = serve_rig_ask("POST", asks[i].path, asks[i].body, &len);
      const bool reached = df_mem_alloc_count() - before >= n;
      df_mem_fail_after(0, false);
      untouched = reached ? 0 : untouched + 1;
      if (len == 0) {
        refused++;
        continue;
      }
      const int status = serve_rig_status(reply);
      if (status == 200)
        served++;
      else
        refused++;
      if (status != 200 && !strstr(reply, "\"error\""))
        fail_msg("%s, allocation %u: %.300s", asks[i].path, (unsigned)n, reply);
      /* 429: those before are still ending */
      if (status != 200 && status != 503 && status != 400 && status != 500 && status != 429)
        fail_msg("%s, allocation %u: %.300s", asks[i].path, (unsigned)n, reply);
    }
    serve_rig_wait_idle();
  }
  assert_true(refused > 50);
  assert_true(served > 20);
  test_serve__answers(state);
}

static int start(void **state) {
  (void)state;
  serve_rig_start(NULL, 256);
  return 0;
}

static int stop(void **state) {
  (void)state;
  serve_rig_stop();
  return 0;
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_serve__answers),
                                     cmocka_unit_test(test_serve__every_allocation_fails)};
  return cmocka_run_group_tests_name("server_run", tests, start, stop);
}
