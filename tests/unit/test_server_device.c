/* A device that is lost under a server: requests at work end with a message, later ones are refused at once, and
 * /health says so for as long as the server lives. */
// clang-format off
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
// clang-format on

#include <string.h>

#include "support/serve_rig.h"
#include "support/shadow_device.h"

static const char k_whole[] = "{\"prompt\":\"the hen\",\"max_tokens\":200,\"ignore_eos\":true,\"spec_width\":1}";
static const char k_stream[] =
    "{\"prompt\":\"the hen\",\"max_tokens\":200,\"ignore_eos\":true,\"spec_width\":1,\"stream\":true}";

static void expect(const char *method, const char *path, const char *body, int status, const char *has) {
  const char *reply = serve_rig_ask(method, path, body, NULL);
  if (serve_rig_status(reply) != status || !strstr(reply, has))
    fail_msg("%s %s: not %d with '%s': %.1000s", method, path, status, has, reply);
}

static void test_lost__while_streaming(void **state) {
  (void)state;
  const shadow_options o = {.fail_run = 60}; /* beyond the measuring of costs at the start, within the answer */
  shadow_set(&o);
  serve_rig_start("shadow", 256);
  expect("GET", "/health", "", 200, "\"ok\"");
  assert_true(serve_rig_metric("df_ready") == 1);
  /* The head is out: an event tells, and the end marker is missing. */
  const char *reply = serve_rig_ask("POST", "/v1/completions", k_stream, NULL);
  assert_int_equal(serve_rig_status(reply), 200);
  assert_non_null(strstr(reply, "\"text\":"));
  assert_non_null(strstr(reply, "data: {\"error\":{\"message\":\"the device is lost: run 60 failed\""));
  assert_null(strstr(reply, "[DONE]"));
  for (int i = 0; i < 2; i++) {
    expect("GET", "/health", "", 503, "the device is lost: run 60 failed");
    expect("GET", "/v1/health", "", 503, "\"unavailable_error\"");
    expect("GET", "/health_generate", "", 503, "the device is lost");
    expect("POST", "/v1/completions", k_whole, 503, "the device is lost: run 60 failed");
    expect("POST", "/v1/completions", k_stream, 503, "Retry-After");
    expect("GET", "/server_info", "", 200, "\"device lost\"");
    expect("POST", "/tokenize", "{\"content\":\"the hen\"}", 200, "tokens"); /* needs no device */
    serve_rig_wait_idle();
  }
  assert_true(serve_rig_metric("df_ready") == 0);
  serve_rig_stop();
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_lost__while_streaming)};
  shadow_provide();
  return cmocka_run_group_tests_name("server_device", tests, NULL, NULL);
}
