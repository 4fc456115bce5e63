/* Bodies of requests: the table of fields, messages, and the metrics page. */
// clang-format off
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
// clang-format on

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/size.h"
#include "server/params.h"
#include "server/prompts.h"
#include "server/server_metrics.h"

static const df_serve_defaults defaults = {
    .sampling = {.temperature = 0.5F, .top_p = 1, .repetition_penalty = 1}, .random_seed = true, .max_tokens = -1};

static df_json *root;

static df_status read_gen(df_gen *g, uint32_t shape, const char *json, df_error *err) {
  df_json_free(root);
  root = NULL;
  assert_int_equal(df_json_parse(json, strlen(json), &root, NULL), DF_OK);
  df_gen_init(g, shape, &defaults);
  df_status st = df_gen_read(g, shape, root, err);
  if (st == DF_OK) st = df_gen_check(g, shape, err);
  return st;
}

static void take(df_gen *g, uint32_t shape, const char *json) {
  df_error err = {0};
  if (read_gen(g, shape, json, &err) != DF_OK) fail_msg("%s: %s", json, err.msg);
}

static void refuse(uint32_t shape, const char *json, const char *param) {
  df_gen g;
  df_error err = {0};
  if (read_gen(&g, shape, json, &err) != DF_ERR_FORMAT) fail_msg("%s was taken", json);
  if (!g.param || strcmp(g.param, param) != 0) fail_msg("%s: param %s", json, g.param ? g.param : "none");
  if (!strstr(err.msg, param)) fail_msg("%s: \"%s\" does not name the field", json, err.msg);
  assert_null(strchr(err.msg, '\n'));
  df_gen_release(&g);
}

static void test_gen__defaults_of_the_families(void **state) {
  (void)state;
  static const struct {
    uint32_t shape;
    int64_t max_tokens;
  } rows[] = {
      {DF_FOR_CHAT, -1}, {DF_FOR_COMPLETION, 16}, {DF_FOR_RESPONSES, -1}, {DF_FOR_SGLANG, 128}, {DF_FOR_LLAMA, -1}};
  for (size_t i = 0; i < DF_COUNT_OF(rows); i++) {
    df_gen g;
    take(&g, rows[i].shape, "{}");
    assert_int_equal(g.max_tokens, rows[i].max_tokens);
    assert_true(g.p.sampling.temperature == 0.5F);
    assert_true(g.speculative && g.cache_prompt && !g.stream && !g.logprobs && !g.seed_given);
    assert_int_equal(g.n, 1);
    assert_int_equal(g.best_of, 1);
    df_gen_release(&g);
  }
}

static void test_gen__values(void **state) {
  (void)state;
  df_gen g;
  take(&g, DF_FOR_CHAT,
       "{\"max_tokens\":5,\"max_completion_tokens\":7,\"temperature\":1,\"top_p\":0.25,\"top_k\":-1,\"seed\":-"
       "9223372036854775808,"
       "\"stop\":[\"a\",\"\",\"b\"],\"logit_bias\":{\"5\":-100,\"7\":1.5},\"n\":2,\"stream\":true,\"stream_options\":"
       "{\"include_usage\":true},\"logprobs\":true,\"top_logprobs\":20,\"speculative\":false,\"spec_width\":4,\"user\":"
       "5}");
  assert_int_equal(g.max_tokens, 7); /* the newer name counts */
  assert_true(g.p.sampling.temperature == 1 && g.p.sampling.top_p == 0.25F);
  assert_int_equal(g.p.sampling.top_k, -1);
  assert_true(g.seed_given && g.p.sampling.seed == (uint64_t)1 << 63);
  assert_int_equal(g.n_stop, 2); /* an empty one stops nothing */
  assert_string_equal(g.p.stop[1], "b");
  assert_int_equal(g.p.sampling.n_bias, 2);
  assert_true(g.p.sampling.bias[1].id == 7 && g.p.sampling.bias[1].bias == 1.5F);
  assert_true(g.n == 2 && g.best_of == 2 && g.stream && g.include_usage && g.logprobs && !g.speculative);
  assert_int_equal(g.n_top, 20);
  df_gen_release(&g);
  take(&g, DF_FOR_COMPLETION, "{\"stop\":\"x\",\"logprobs\":0,\"echo\":true,\"best_of\":3,\"seed\":-1}");
  assert_true(g.logprobs && g.n_top == 0 && g.echo && g.best_of == 3 && !g.seed_given);
  df_gen_release(&g);
  take(&g, DF_FOR_LLAMA, "{\"n_predict\":-1,\"logit_bias\":[[5,false],[5,2],{\"id\":6,\"bias\":-1}],\"n_probs\":3}");
  assert_true(g.max_tokens == -1 && g.logprobs && g.n_top == 3);
  assert_int_equal(g.p.sampling.n_bias, 2); /* the last entry of an id counts */
  assert_true(g.bias[0].id == 5 && g.bias[0].bias == 2 && g.bias[1].bias == -1);
  df_gen_release(&g);
  take(&g, DF_FOR_LLAMA, "{\"max_tokens\":-2}");
  assert_int_equal(g.max_tokens, -1);
  df_gen_release(&g);
  take(&g, DF_FOR_LLAMA, "{\"n_predict\":5,\"max_tokens\":7}"); /* llama-server's own name counts */
  assert_int_equal(g.max_tokens, 5);
  df_gen_release(&g);
  take(&g, DF_FOR_LLAMA, "{\"logit_bias\":[[5,false]]}");
  assert_true(isinf(g.bias[0].bias) && g.bias[0].bias < 0);
  df_gen_release(&g);
  take(&g, DF_FOR_SGLANG, "{\"skip_special_tokens\":false,\"stop_token_ids\":[1,2],\"min_new_tokens\":3}");
  assert_true(g.p.show_special && g.n_stop_ids == 2 && g.p.min_tokens == 3 && g.cumulative);
  df_gen_release(&g);
}

/* Every field of the table refuses what it is not, and takes null as absent. */
static void test_gen__every_field(void **state) {
  (void)state;
  for (size_t i = 0; i < df_field_count; i++) {
    const df_field *f = &df_fields[i];
    for (uint32_t shape = 1; shape <= DF_FOR_LLAMA; shape <<= 1) {
      char json[200];
      df_gen g;
      if (!(f->shapes & shape)) continue;
      (void)snprintf(json, sizeof json, "{\"%s\":null}", f->name);
      take(&g, shape, json);
      df_gen_release(&g);
      (void)snprintf(json, sizeof json, "{\"%s\":{\"\":[]}}", f->name);
      if (strcmp(f->name, "stream_options") != 0) refuse(shape, json, f->name);
      if (f->kind == DF_FIELD_OWN) continue;
      (void)snprintf(json, sizeof json, "{\"%s\":\"1\"}", f->name);
      refuse(shape, json, f->name);
      if (f->kind == DF_FIELD_BOOL) continue;
      (void)snprintf(json, sizeof json, "{\"%s\":%.17g}", f->name, f->max + 1);
      refuse(shape, json, f->name);
      (void)snprintf(json, sizeof json, "{\"%s\":%.17g}", f->name, f->min - 1);
      refuse(shape, json, f->name);
      (void)snprintf(json, sizeof json, "{\"%s\":1e999999}", f->name);
      df_json *no = NULL;
      assert_int_not_equal(df_json_parse(json, strlen(json), &no, NULL), DF_OK); /* stopped by the parser already */
    }
  }
}

static void test_gen__what_does_not_fit_together(void **state) {
  (void)state;
  refuse(DF_FOR_CHAT, "{\"top_logprobs\":2}", "top_logprobs");
  refuse(DF_FOR_COMPLETION, "{\"best_of\":1,\"n\":2}", "best_of");
  refuse(DF_FOR_COMPLETION, "{\"best_of\":3,\"n\":2,\"stream\":true}", "best_of");
  refuse(DF_FOR_CHAT, "{\"min_tokens\":9,\"max_tokens\":8}", "min_tokens");
  refuse(DF_FOR_CHAT, "{\"logprobs\":1}", "logprobs");
  refuse(DF_FOR_COMPLETION, "{\"logprobs\":21}", "logprobs");
  refuse(DF_FOR_CHAT, "{\"max_tokens\":-1}", "max_tokens");
  refuse(DF_FOR_CHAT, "{\"stop\":\"a\\u0000b\"}", "stop");
  refuse(DF_FOR_CHAT, "{\"logit_bias\":{\"\":1}}", "logit_bias");
  refuse(DF_FOR_CHAT, "{\"logit_bias\":{\"1x\":1}}", "logit_bias");
  refuse(DF_FOR_CHAT, "{\"logit_bias\":{\"99999999999\":1}}", "logit_bias");
  refuse(DF_FOR_CHAT, "{\"logit_bias\":{\"1\":1e30}}", "logit_bias");
  refuse(DF_FOR_CHAT, "{\"logit_bias\":{\" 1\":1}}", "logit_bias");
  refuse(DF_FOR_LLAMA, "{\"logit_bias\":[[1,1,1]]}", "logit_bias");
  refuse(DF_FOR_LLAMA, "{\"max_tokens\":-3}", "max_tokens");
  refuse(DF_FOR_CHAT, "{\"stream_options\":{\"include_usage\":1}}", "stream_options");
}

static void test_field_schema__is_json(void **state) {
  (void)state;
  for (size_t i = 0; i < df_field_count; i++) {
    df_buf b;
    df_json *v = NULL;
    df_buf_init(&b, 0);
    assert_int_equal(df_field_schema(&df_fields[i], &b, NULL), DF_OK);
    assert_int_equal(df_json_parse(b.data, b.len, &v, NULL), DF_OK);
    assert_int_equal(df_json_kind_of(v), DF_JSON_OBJECT);
    assert_non_null(df_fields[i].doc);
    df_json_free(v);
    df_buf_release(&b);
  }
}

static df_status write_messages(const char *json, df_buf *out, df_error *err) {
  df_json *v = NULL;
  assert_int_equal(df_json_parse(json, strlen(json), &v, NULL), DF_OK);
  df_buf_init(out, 0);
  const df_status st = df_messages_write(v, out, err);
  df_json_free(v);
  return st;
}

static void test_messages__as_templates_want_them(void **state) {
  (void)state;
  static const char *const rows[][2] = {
      {"[{\"role\":\"user\",\"content\":\"x\"}]", "[{\"role\":\"user\",\"content\":\"x\"}]"},
      {"[{\"content\":\"x\",\"name\":\"n\",\"role\":\"developer\"}]",
       "[{\"role\":\"system\",\"content\":\"x\",\"name\":\"n\"}]"},
      {"[{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"a\"},{\"type\":\"input_text\",\"text\":\"b\\n\"}"
       "]}]",
       "[{\"role\":\"user\",\"content\":\"ab\\n\"}]"},
      {"[{\"role\":\"assistant\",\"content\":null,\"refusal\":null}]", "[{\"role\":\"assistant\",\"content\":\"\"}]"},
      {"[{\"role\":\"assistant\",\"tool_calls\":[{\"id\":\"i\",\"type\":\"function\",\"function\":{\"name\":\"f\","
       "\"arguments\":\"{\\\"a\\\": 1}\"}}]}]",
       "[{\"role\":\"assistant\",\"content\":\"\",\"tool_calls\":[{\"id\":\"i\",\"type\":\"function\",\"function\":{"
       "\"name\":"
       "\"f\",\"arguments\":{\"a\":1}}}]}]"},
      {"[{\"role\":\"assistant\",\"tool_calls\":[{\"function\":{\"arguments\":\"no json\"}}]}]",
       "[{\"role\":\"assistant\",\"content\":\"\",\"tool_calls\":[{\"function\":{\"arguments\":\"no json\"}}]}]"}};
  for (size_t i = 0; i < DF_COUNT_OF(rows); i++) {
    df_buf out;
    df_error err = {0};
    if (write_messages(rows[i][0], &out, &err) != DF_OK) fail_msg("%s: %s", rows[i][0], err.msg);
    assert_string_equal(out.data, rows[i][1]);
    df_buf_release(&out);
  }
  static const char *const bad[][2] = {{"{}", "array"},
                                       {"[]", "empty"},
                                       {"[1]", "messages[0]"},
                                       {"[{\"role\":\"user\",\"content\":\"x\"},{\"role\":5}]", "messages[1].role"},
                                       {"[{\"role\":\"x\",\"content\":\"\"}]", "unknown"},
                                       {"[{\"role\":\"user\"}]", "content is missing"},
                                       {"[{\"role\":\"user\",\"content\":{}}]", "an object"},
                                       {"[{\"role\":\"user\",\"content\":[{\"type\":\"image_url\"}]}]", "image_url"},
                                       {"[{\"role\":\"user\",\"content\":[{\"type\":\"text\"}]}]", "text"},
                                       {"[{\"role\":\"user\",\"content\":[5]}]", "type"},
                                       {"[{\"role\":\"assistant\",\"tool_calls\":5}]", "tool_calls"}};
  for (size_t i = 0; i < DF_COUNT_OF(bad); i++) {
    df_buf out;
    df_error err = {0};
    if (write_messages(bad[i][0], &out, &err) == DF_OK) fail_msg("%s was taken", bad[i][0]);
    if (!strstr(err.msg, bad[i][1])) fail_msg("%s: %s", bad[i][0], err.msg);
    df_buf_release(&out);
  }
}

/* ---- metrics ---- */

static double value_of(const char *page, const char *series) {
  const size_t n = strlen(series);
  for (const char *line = page; *line; line = strchr(line, '\n') + 1) {
    if (strncmp(line, series, n) == 0 && line[n] == ' ') return strtod(line + n, NULL);
  }
  fail_msg("no series %s", series);
  return 0;
}

static void test_metrics__page(void **state) {
  (void)state;
  df_server_metrics m;
  df_sched_stats s = {0};
  df_buf b;
  df_server_metrics_init(&m);
  s.running = 3, s.waiting = 4, s.pages_total = 100, s.pages_used = 25, s.page_size = 16;
  s.drafted = 30, s.accepted = 12, s.verify_steps = 6, s.emitted_verify = 18, s.generated_tokens = 40;
  for (unsigned i = 0; i < 4; i++) s.drafted_at[i] = 6, s.accepted_at[i] = 5 - i;
  df_histogram_add(&m.ttft, 0.0005, 1);
  df_histogram_add(&m.ttft, 0.001, 2); /* a bound belongs to its bucket */
  df_histogram_add(&m.ttft, 99999, 1);
  m.requests_stop = 7;
  const df_metrics_view v = {
      .m = &m, .s = &s, .model = "a\"b\\c\nd", .version = "1", .isa = "x", .width = 5, .max_seqs = 8};
  df_buf_init(&b, 0);
  assert_int_equal(df_metrics_write(&v, &b, NULL), DF_OK);
  const char *label = "{model_name=\"a\\\"b\\\\c\\nd\"}";
  char name[200];
  assert_true(value_of(b.data, "df_requests_running") == 3);
  (void)snprintf(name, sizeof name, "vllm:num_requests_waiting%s", label);
  assert_true(value_of(b.data, name) == 4);
  (void)snprintf(name, sizeof name, "sglang:spec_accept_length%s", label);
  assert_true(value_of(b.data, name) == 3);
  assert_true(value_of(b.data, "df_kv_usage_ratio") == 0.25);
  assert_true(value_of(b.data, "df_spec_rejected_tokens_total") == 18);
  assert_true(value_of(b.data, "df_spec_accepted_tokens_per_pos_total{position=\"3\"}") == 2);
  assert_true(value_of(b.data, "df_time_to_first_token_seconds_bucket{le=\"0.001\"}") == 3);
  assert_true(value_of(b.data, "df_time_to_first_token_seconds_bucket{le=\"2560\"}") == 3);
  assert_true(value_of(b.data, "df_time_to_first_token_seconds_bucket{le=\"+Inf\"}") == 4);
  assert_true(value_of(b.data, "df_time_to_first_token_seconds_count") == 4);
  assert_true(value_of(b.data, "df_requests_total{reason=\"stop\"}") == 7);
  /* every line is a comment or "name{labels} value", every name has its type before it, none comes twice */
  for (const char *line = b.data, *end; *line; line = end + 1) {
    end = strchr(line, '\n');
    assert_non_null(end);
    if (*line == '#') {
      if (strncmp(line, "# TYPE ", 7) == 0) {
        const char *again = strstr(end, "# TYPE ");
        for (; again; again = strstr(again + 1, "# TYPE "))
          assert_int_not_equal(strncmp(line, again, strcspn(line + 7, " ") + 8), 0);
      }
      continue;
    }
    const char *space = end;
    while (*space != ' ') space--;
    char *stop;
    (void)strtod(space + 1, &stop);
    assert_ptr_equal(stop, end);
  }
  df_buf_release(&b);
}

static void test_metrics__while_loading(void **state) {
  (void)state;
  df_server_metrics m;
  df_buf b;
  df_server_metrics_init(&m);
  const df_metrics_view v = {.m = &m, .model = "", .version = "1", .isa = ""};
  df_buf_init(&b, 0);
  assert_int_equal(df_metrics_write(&v, &b, NULL), DF_OK);
  assert_true(value_of(b.data, "df_ready") == 0);
  assert_null(strstr(b.data, "df_requests_running"));
  df_buf_release(&b);
}

/* No allocation that fails may do more than fail. */
static void test_gen__without_memory(void **state) {
  (void)state;
  static const char json[] = "{\"logit_bias\":{\"5\":1,\"6\":2},\"stop\":[\"a\"],\"temperature\":1}";
  df_json_free(root);
  root = NULL;
  assert_int_equal(df_json_parse(json, sizeof json - 1, &root, NULL), DF_OK);
  for (uint64_t n = 1; n < 10; n++) {
    df_gen g;
    df_error err;
    df_gen_init(&g, DF_FOR_CHAT, &defaults);
    df_mem_fail_after(n, false);
    const df_status st = df_gen_read(&g, DF_FOR_CHAT, root, &err);
    df_mem_fail_after(0, false);
    assert_true(st == DF_OK || st == DF_ERR_MEMORY);
    if (n == 1) assert_int_equal(st, DF_ERR_MEMORY);
    df_gen_release(&g);
  }
}

static int free_root(void **state) {
  (void)state;
  df_json_free(root);
  root = NULL;
  return 0;
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_gen__defaults_of_the_families),
                                     cmocka_unit_test(test_gen__values),
                                     cmocka_unit_test(test_gen__every_field),
                                     cmocka_unit_test(test_gen__what_does_not_fit_together),
                                     cmocka_unit_test(test_field_schema__is_json),
                                     cmocka_unit_test(test_messages__as_templates_want_them),
                                     cmocka_unit_test_teardown(test_gen__without_memory, free_root),
                                     cmocka_unit_test(test_metrics__page),
                                     cmocka_unit_test(test_metrics__while_loading)};
  return cmocka_run_group_tests_name("server_params", tests, NULL, free_root);
}
