/* Chat templates against recorded renderings: two model files' templates, and cases written for this engine. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/test_models.h"
#include "text/chat_template.h"

static json_t *load(const char *name) {
  char path[512];
  json_error_t e;
  (void)snprintf(path, sizeof path, "%s/tests/golden/%s", DF_SOURCE_DIR, name);
  json_t *j = json_load_file(path, JSON_ALLOW_NUL, &e);
  if (!j) fail_msg("%s: %s (line %d)", path, e.text, e.line);
  return j;
}

static bool same_text(const char *label, const df_buf *got, const json_t *want) {
  size_t n = json_string_length(want);
  const char *p = json_string_value(want);
  if (got->len == n && (n == 0 || memcmp(got->data, p, n) == 0)) return true;
  size_t i = 0;
  while (i < n && i < got->len && got->data[i] == p[i]) i++;
  print_error("%s: differs at byte %zu\n  want: %s\n  got:  %s\n", label, i, p, got->data ? got->data : "");
  return false;
}

/* The context of a recorded case of a model template. */
static char *context_of(const json_t *c) {
  json_t *ctx = json_object();
  static const char *const keys[] = {"messages", "tools", "add_generation_prompt"};
  for (int i = 0; i < 3; i++) assert_int_equal(json_object_set(ctx, keys[i], json_object_get(c, keys[i])), 0);
  char *text = json_dumps(ctx, JSON_COMPACT);
  json_decref(ctx);
  assert_non_null(text);
  return text;
}

/* The ids of the whole rendering, control tokens parsed wherever they stand. */
static bool same_ids(const char *label, const df_tokenizer *tok, const df_buf *text, const json_t *want) {
  df_ids ids = {0};
  assert_int_equal(
      df_tokenizer_encode(tok, text->data ? text->data : "", text->len, DF_ENCODE_PARSE_SPECIAL, &ids, NULL), DF_OK);
  bool same = ids.n == json_array_size(want);
  for (size_t i = 0; same && i < ids.n; i++) same = ids.v[i] == json_integer_value(json_array_get(want, i));
  if (!same) print_error("%s: ids differ\n", label);
  df_ids_release(&ids);
  return same;
}

/* Renders every case of a file, and turns it into ids when there is a tokenizer; returns how many there were. */
static size_t replay_model(const char *file, const df_tokenizer *tok) {
  json_t *j = load(file), *c;
  df_chat_template *t = NULL;
  df_error err;
  size_t i, bad = 0, n = 0, errors = 0;
  const json_t *src = json_object_get(j, "template");
  assert_int_equal(df_chat_template_parse(json_string_value(src), json_string_length(src), &t, &err), DF_OK);
  json_array_foreach(json_object_get(j, "cases"), i, c) {
    const char *label = json_string_value(json_object_get(c, "name"));
    char *ctx = context_of(c);
    df_buf out;
    df_buf_init(&out, 0);
    df_status s = df_chat_template_render(t, ctx, strlen(ctx), NULL, &out, &err);
    if (json_object_get(c, "error")) {
      errors++;
      if (s != DF_ERR_TEMPLATE) bad++, print_error("%s %s: expected an error, got %d\n", file, label, s);
      if (out.len) bad++, print_error("%s %s: output in spite of the error\n", file, label);
    } else if (s != DF_OK) {
      bad++;
      print_error("%s %s: %s\n", file, label, err.msg);
    } else if (!same_text(label, &out, json_object_get(c, "text"))) {
      bad++;
    } else if (tok && !same_ids(label, tok, &out, json_object_get(c, "ids"))) {
      bad++;
    }
    n++;
    df_buf_release(&out);
    free(ctx);
  }
  assert_true(errors > 0);
  assert_int_equal(bad, 0);
  df_chat_template_free(t);
  json_decref(j);
  return n;
}

static void test_render__smollm2(void **state) {
  (void)state;
  assert_int_equal(replay_model("chat-template-smollm2.json", NULL), 56);
}

static void test_render__qwen2(void **state) {
  (void)state;
  assert_int_equal(replay_model("chat-template-qwen2.json", NULL), 98);
}

static void ids_of(const char *model, const char *file, size_t cases) {
  df_tokenizer *tok = df_test_tokenizer(df_test_model_or_skip(model));
  assert_int_equal(replay_model(file, tok), cases);
  df_tokenizer_free(tok);
}

static void test_render__smollm2_ids(void **state) {
  (void)state;
  ids_of("SmolLM2-135M-Instruct", "chat-template-smollm2.json", 56);
}

static void test_render__qwen2_ids(void **state) {
  (void)state;
  ids_of("qwen2.5-coder-1.5b-instruct-dflash", "chat-template-qwen2.json", 98);
}

static df_status status_of(const char *name) {
  if (strcmp(name, "format") == 0) return DF_ERR_FORMAT;
  if (strcmp(name, "limit") == 0) return DF_ERR_LIMIT;
  return DF_ERR_TEMPLATE;
}

/* Cases name their template and context by position. */
static const json_t *text_of(const json_t *file, const json_t *c, const char *list, const char *key) {
  const json_t *v = json_array_get(json_object_get(file, list), (size_t)json_integer_value(json_object_get(c, key)));
  assert_true(json_is_string(v));
  return v;
}

static bool replay_case(const json_t *file, const json_t *c) {
  const char *label = json_string_value(json_object_get(c, "name"));
  const json_t *src = text_of(file, c, "templates", "template"), *ctx = text_of(file, c, "contexts", "context");
  const json_t *line = json_object_get(c, "line"), *error = json_object_get(c, "error");
  df_render_options opt = {.now_unix = json_integer_value(json_object_get(file, "now"))};
  df_chat_template *t = NULL;
  df_error err = {0};
  df_buf out;
  bool good = true;
  df_buf_init(&out, 0);
  df_status s = df_chat_template_parse(json_string_value(src), json_string_length(src), &t, &err);
  if (s == DF_OK) s = df_chat_template_render(t, json_string_value(ctx), json_string_length(ctx), &opt, &out, &err);
  if (error) {
    char where[40];
    (void)snprintf(where, sizeof where, "line %d:", (int)json_integer_value(line));
    if (s != status_of(json_string_value(error))) {
      print_error("%s: expected a %s error, got %d %s\n  got: %s\n", label, json_string_value(error), s, err.msg,
                  out.data ? out.data : "");
      good = false;
    } else if (line && !strstr(err.msg, where)) {
      print_error("%s: expected an error in %s got %s\n", label, where, err.msg);
      good = false;
    }
  } else if (s != DF_OK) {
    print_error("%s: %s\n", label, err.msg);
    good = false;
  } else {
    good = same_text(label, &out, json_object_get(c, "text"));
  }
  df_buf_release(&out);
  df_chat_template_free(t);
  return good;
}

/* Contexts are kept as text: what becomes of their numbers and escapes is part of the test. */
static void test_render__cases(void **state) {
  (void)state;
  json_t *j = load("template-cases.json"), *c;
  size_t i, bad = 0;
  json_array_foreach(json_object_get(j, "cases"), i, c) bad += !replay_case(j, c);
  assert_true(json_array_size(json_object_get(j, "cases")) >= 300);
  assert_int_equal(bad, 0);
  json_decref(j);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_render__smollm2),     cmocka_unit_test(test_render__qwen2),
      cmocka_unit_test(test_render__smollm2_ids), cmocka_unit_test(test_render__qwen2_ids),
      cmocka_unit_test(test_render__cases),
  };
  return cmocka_run_group_tests_name("chat_template", tests, NULL, NULL);
}
