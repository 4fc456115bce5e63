/* Tools to a grammar of calls. */
#include <string.h>

#include "base/map.h"
#include "base/mem.h"
#include "engine/json_schema.h"
#include "server/tool_calls.h"
#include "text/utf8.h"

/* Calls of one answer when several may come: enough, and it ends. */
enum { MAX_PARALLEL = 16 };

/* GBNF string of text that has been quoted as JSON: only quotes and backslashes need care. */
static df_status put_string(df_buf *b, const char *s, size_t n, df_error *err) {
  for (size_t i = 0; i < n; i++) {
    if (s[i] == '"' || s[i] == '\\') DF_TRY(df_buf_puts(b, "\\", err));
    if ((uint8_t)s[i] < 0x20 || s[i] == 0x7F)
      DF_TRY(df_buf_printf(b, err, "\\x%02X", (uint8_t)s[i]));
    else
      DF_TRY(df_buf_put(b, s + i, 1, err));
  }
  return DF_OK;
}

/* One alternative of "call": {"name": "...", "arguments": rule} */
static df_status put_call(df_buf *calls, const char *name, size_t n, const char *rule, df_error *err) {
  df_buf quoted = {0};
  df_status s = df_json_quote(&quoted, name, n, err);
  if (s == DF_OK) s = df_buf_puts(calls, calls->len ? " | \"{\\\"name\\\": " : "\"{\\\"name\\\": ", err);
  if (s == DF_OK) s = put_string(calls, quoted.data, quoted.len, err);
  if (s == DF_OK) s = df_buf_printf(calls, err, ", \\\"arguments\\\": \" %s \"}\"", rule);
  df_buf_release(&quoted);
  return s;
}

/* The "function" of one entry, checked. */
static df_status function_of(const df_json *tool, size_t i, const df_json **function, const char **name, size_t *n,
                             df_error *err) {
  *function = df_json_member(tool, "function");
  *name = df_json_str(df_json_member(*function, "name"), n);
  if (!df_json_equals(df_json_member(tool, "type"), "function") || !*name || *n == 0 || memchr(*name, '\0', *n))
    return DF_FAIL(
        err, DF_ERR_FORMAT,
        "could not use the tools: element %zu is not {\"type\": \"function\", \"function\": {\"name\": ...}}", i);
  if (df_utf8_count(*name, *n) > DF_TOOL_NAME_CHARS)
    return DF_FAIL(err, DF_ERR_FORMAT, "could not use the tools: the name of element %zu has more than %d characters",
                   i, (int)DF_TOOL_NAME_CHARS);
  const df_json_kind kind = df_json_kind_of(df_json_member(*function, "parameters"));
  if (kind != DF_JSON_OBJECT && kind != DF_JSON_NULL)
    return DF_FAIL(err, DF_ERR_FORMAT, "could not use the tools: the parameters of \"%.64s\" must be an object, not %s",
                   *name, df_json_kind_name(kind));
  return DF_OK;
}

static df_status add_tool(df_schema_rules *rules, const df_json *function, const char *name, size_t n, df_buf *calls,
                          df_error *err) {
  const df_json *parameters = df_json_member(function, "parameters");
  char rule[DF_SCHEMA_NAME_SIZE];
  if (df_json_kind_of(parameters) == DF_JSON_NULL) parameters = NULL;
  df_status s = df_schema_rules_add(rules, parameters, true, rule, err);
  if (s != DF_OK) {
    if (err) df_error_prefix(err, "tool \"%.64s\"", name);
    return s;
  }
  return put_call(calls, name, n, rule, err);
}

df_status df_tools_check(const df_json *tools, df_error *err) {
  df_map names = {0};
  df_status s = DF_OK;
  if (df_json_size(tools) > DF_TOOL_MAX_TOOLS)
    return DF_FAIL(err, DF_ERR_LIMIT, "could not use the tools: more than %d", (int)DF_TOOL_MAX_TOOLS);
  if (df_json_size(tools) == 0) return DF_OK;
  DF_TRY(df_map_init(&names, 16, err));
  for (size_t i = 0; i < df_json_size(tools) && s == DF_OK; i++) {
    const df_json *function;
    const char *name;
    size_t n;
    bool twice = false;
    s = function_of(df_json_at(tools, i), i, &function, &name, &n, err);
    if (s == DF_OK) s = df_map_put(&names, name, n, 0, &twice, err);
    if (s == DF_OK && twice) s = DF_FAIL(err, DF_ERR_FORMAT, "could not use the tools: two are called \"%.64s\"", name);
  }
  df_map_release(&names);
  return s;
}

static df_status add_tools(df_schema_rules *rules, const df_json *tools, const char *only, df_buf *calls,
                           df_error *err) {
  DF_TRY(df_tools_check(tools, err));
  for (size_t i = 0; i < df_json_size(tools); i++) {
    const df_json *function;
    const char *name;
    size_t n;
    DF_TRY(function_of(df_json_at(tools, i), i, &function, &name, &n, err));
    if (!only || strcmp(only, name) == 0) DF_TRY(add_tool(rules, function, name, n, calls, err));
  }
  return DF_OK;
}

static df_status put_root(df_buf *out, const df_buf *calls, bool parallel, df_think_mode think, df_error *err) {
  DF_TRY(df_buf_puts(out, "root ::= ", err));
  if (think == DF_THINK_AUTO) DF_TRY(df_buf_puts(out, "(\"<think>\" reasoning)? ", err));
  if (think == DF_THINK_OPEN) DF_TRY(df_buf_puts(out, "reasoning ", err));
  DF_TRY(df_buf_puts(out, "call", err));
  if (parallel) DF_TRY(df_buf_printf(out, err, " (\"\\n\" call){0,%d}", (int)MAX_PARALLEL - 1));
  DF_TRY(df_buf_puts(out, "\ncall ::= \"<tool_call>\\n\" (", err));
  DF_TRY(df_buf_put(out, calls->data, calls->len, err));
  DF_TRY(df_buf_puts(out, ") \"\\n</tool_call>\"\n", err));
  if (think == DF_THINK_OFF) return DF_OK;
  return df_buf_puts(out, "reasoning ::= [^<]* \"</think>\" \"\\n\"{0,2}\n", err);
}

static df_status build(const df_json *tools, const char *only, bool parallel, df_think_mode think, df_buf *out,
                       df_error *err) {
  df_schema_rules rules = {.out = out};
  df_buf calls = {0};
  df_status s = DF_OK;
  if (df_json_kind_of(tools) != DF_JSON_ARRAY)
    return DF_FAIL(err, DF_ERR_FORMAT, "could not use the tools: they must be a list");
  DF_TRY_GOTO(s, add_tools(&rules, tools, only, &calls, err), done);
  if (calls.len == 0) {
    s = only ? DF_FAIL(err, DF_ERR_ARGUMENT, "could not use the tools: none is called \"%.64s\"", only)
             : DF_FAIL(err, DF_ERR_ARGUMENT, "could not use the tools: there are none");
    goto done;
  }
  DF_TRY_GOTO(s, put_root(out, &calls, parallel, think, err), done);
  s = df_schema_rules_finish(&rules, err);
done:
  df_buf_release(&calls);
  return s;
}

df_status df_tool_calls_gbnf(const char *tools, size_t n, const char *only, bool parallel, df_think_mode think,
                             df_buf *out, df_error *err) {
  size_t before = out->len;
  df_json *v = NULL;
  df_status s = df_json_parse(tools, n, &v, err);
  if (s != DF_OK) {
    if (err) df_error_prefix(err, "could not use the tools");
    return s;
  }
  s = build(v, only, parallel, think, out, err);
  if (s != DF_OK) {
    out->len = before;
    if (out->data) out->data[before] = '\0';
  }
  df_json_free(v);
  return s;
}
