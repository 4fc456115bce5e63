#include "server/prompts.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/mem.h"

#define KIND(v) df_json_kind_name(df_json_kind_of(v))

void df_prompt_list_release(df_prompt_list *l) {
  for (uint32_t i = 0; i < l->n; i++) {
    df_free(l->v[i].ids);
    df_free(l->v[i].text);
  }
  df_free(l->v);
  *l = (df_prompt_list){0};
}

static df_status add(df_prompt_list *l, df_prompt **out, df_error *err) {
  if (l->n == DF_PROMPTS_MAX) return DF_FAIL(err, DF_ERR_FORMAT, "more than %d prompts", DF_PROMPTS_MAX);
  df_prompt *v = df_realloc(l->v, (l->n + 1) * sizeof *v);
  if (!v) return DF_OOM(err, "prompts", (l->n + 1) * sizeof *v);
  l->v = v;
  *out = &v[l->n++];
  **out = (df_prompt){0};
  return DF_OK;
}

df_status df_prompt_add_text(df_prompt_list *l, const df_model *m, const char *text, size_t n, bool special,
                             df_error *err) {
  df_prompt *p;
  DF_TRY(add(l, &p, err));
  p->len = n;
  if (l->max_bytes && n > l->max_bytes) {
    p->too_long = true;
    return DF_OK;
  }
  p->text = df_strndup(text, n);
  if (!p->text) return DF_OOM(err, "a prompt", n);
  return df_model_tokenize(m, text, n, special, &p->ids, &p->n, err);
}

static bool is_number(const df_json *v) {
  return df_json_kind_of(v) == DF_JSON_INT || df_json_kind_of(v) == DF_JSON_REAL;
}

static df_status add_ids(df_prompt_list *l, const df_model *m, const df_json *v, const char *name, df_error *err) {
  const size_t n = df_json_size(v);
  const uint32_t vocab = df_tokenizer_size(m->tok);
  df_prompt *p;
  DF_TRY(add(l, &p, err));
  if (n == 0) return DF_OK;
  p->ids = df_alloc(n * sizeof *p->ids);
  if (!p->ids) return DF_OOM(err, "a prompt", n * sizeof *p->ids);
  for (size_t i = 0; i < n; i++) {
    const df_json *e = df_json_at(v, i);
    int64_t id;
    if (!is_number(e)) return DF_FAIL(err, DF_ERR_FORMAT, "\"%s\" mixes token ids with %s", name, KIND(e));
    if (df_json_to_i64(e, "an id", 0, (int64_t)vocab - 1, &id, NULL) != DF_OK)
      return DF_FAIL(err, DF_ERR_FORMAT, "token id %.16g of \"%s\" is outside the vocabulary of %u", df_json_num(e),
                     name, vocab);
    p->ids[i] = (int32_t)id;
  }
  p->n = n;
  return DF_OK;
}

/* What a value of these kinds looks like, for messages. */
static const char *shape_of(unsigned kinds) {
  return kinds == DF_PROMPT_TEXT  ? "a string or an array of strings"
         : kinds == DF_PROMPT_IDS ? "an array of token ids, or an array of these"
                                  : "a string, an array of token ids, or an array of these";
}

static df_status add_one(df_prompt_list *l, const df_model *m, const df_json *v, unsigned kinds, const char *name,
                         df_error *err) {
  size_t n;
  const char *text = df_json_str(v, &n);
  if (text && (kinds & DF_PROMPT_TEXT)) return df_prompt_add_text(l, m, text, n, true, err);
  if (df_json_kind_of(v) == DF_JSON_ARRAY && (kinds & DF_PROMPT_IDS)) return add_ids(l, m, v, name, err);
  return DF_FAIL(err, DF_ERR_FORMAT, "\"%s\" must be %s, not %s", name, shape_of(kinds), KIND(v));
}

df_status df_prompt_add_json(df_prompt_list *l, const df_model *m, const df_json *v, unsigned kinds, const char *name,
                             df_error *err) {
  if (df_json_kind_of(v) != DF_JSON_ARRAY) return add_one(l, m, v, kinds, name, err);
  const size_t n = df_json_size(v);
  if (n == 0) return DF_FAIL(err, DF_ERR_FORMAT, "\"%s\" is empty", name);
  if (is_number(df_json_at(v, 0))) return add_one(l, m, v, kinds, name, err);
  for (size_t i = 0; i < n; i++) {
    const df_json *e = df_json_at(v, i);
    if (df_json_kind_of(e) == DF_JSON_ARRAY && df_json_size(e) == 0)
      return DF_FAIL(err, DF_ERR_FORMAT, "prompt %zu of \"%s\" is empty", i, name);
    DF_TRY(add_one(l, m, e, kinds, name, err));
  }
  return DF_OK;
}

/* ---- messages ---- */

static bool is_text_part(const df_json *type) {
  return df_json_equals(type, "text") || df_json_equals(type, "input_text") || df_json_equals(type, "output_text") ||
         df_json_equals(type, "refusal");
}

/* The texts of an array of parts, one behind the other. */
static df_status join_parts(const df_json *parts, const char *at, df_buf *text, df_error *err) {
  for (size_t i = 0; i < df_json_size(parts); i++) {
    const df_json *part = df_json_at(parts, i);
    size_t n;
    const df_json *type = df_json_member(part, "type");
    const char *s = df_json_str(part, &n);
    if (!s) {
      const char *key = df_json_equals(type, "refusal") ? "refusal" : "text";
      if (!df_json_str(type, NULL)) return DF_FAIL(err, DF_ERR_FORMAT, "%s.content[%zu] needs a \"type\"", at, i);
      if (!is_text_part(type))
        return DF_FAIL(err, DF_ERR_UNSUPPORTED, "%s.content[%zu]: this model reads text only, not \"%.40s\"", at, i,
                       df_json_str(type, NULL));
      s = df_json_str(df_json_member(part, key), &n);
      if (!s) return DF_FAIL(err, DF_ERR_FORMAT, "%s.content[%zu].%s must be a string", at, i, key);
    }
    DF_TRY(df_buf_put(text, s, n, err));
  }
  return DF_OK;
}

static df_status write_content(df_json_out *w, const df_json *v, const char *at, df_error *err) {
  size_t n;
  const char *s = df_json_str(v, &n);
  if (s) {
    df_json_out_str(w, s, n);
    return DF_OK;
  }
  if (df_json_kind_of(v) == DF_JSON_NULL) {
    df_json_out_cstr(w, "");
    return DF_OK;
  }
  if (df_json_kind_of(v) != DF_JSON_ARRAY)
    return DF_FAIL(err, DF_ERR_FORMAT, "%s.content must be a string or an array of parts, not %s", at, KIND(v));
  df_buf text;
  df_buf_init(&text, 0);
  df_status st = join_parts(v, at, &text, err);
  if (st == DF_OK) df_json_out_str(w, text.data ? text.data : "", text.len);
  df_buf_release(&text);
  return st;
}

/* {"name", "arguments"} with arguments as an object: templates write them with tojson. */
static void write_function(df_json_out *w, const df_json *f) {
  df_json_iter it = df_json_begin(f);
  const char *key;
  size_t len;
  const df_json *v;
  df_json_out_object(w);
  while (df_json_next(&it, &key, &len, &v)) {
    size_t n;
    const char *text = strcmp(key, "arguments") == 0 ? df_json_str(v, &n) : NULL;
    df_json *parsed = NULL;
    df_json_out_key(w, key);
    if (text && df_json_parse(text, n, &parsed, NULL) == DF_OK && df_json_kind_of(parsed) == DF_JSON_OBJECT)
      df_json_out_value(w, parsed);
    else
      df_json_out_value(w, v);
    df_json_free(parsed);
  }
  df_json_out_close(w);
}

static df_status write_calls(df_json_out *w, const df_json *calls, const char *at, df_error *err) {
  if (df_json_kind_of(calls) != DF_JSON_ARRAY)
    return DF_FAIL(err, DF_ERR_FORMAT, "%s.tool_calls must be an array, not %s", at, KIND(calls));
  df_json_out_array(w);
  for (size_t i = 0; i < df_json_size(calls); i++) {
    const df_json *call = df_json_at(calls, i), *function = df_json_member(call, "function");
    if (df_json_kind_of(call) != DF_JSON_OBJECT)
      return DF_FAIL(err, DF_ERR_FORMAT, "%s.tool_calls[%zu] must be an object, not %s", at, i, KIND(call));
    if (df_json_kind_of(function) != DF_JSON_NULL && df_json_kind_of(function) != DF_JSON_OBJECT)
      return DF_FAIL(err, DF_ERR_FORMAT, "%s.tool_calls[%zu].function must be an object, not %s", at, i,
                     KIND(function));
    df_json_iter it = df_json_begin(call);
    const char *key;
    size_t len;
    const df_json *v;
    df_json_out_object(w);
    while (df_json_next(&it, &key, &len, &v)) {
      df_json_out_key(w, key);
      if (strcmp(key, "function") == 0 && df_json_kind_of(v) == DF_JSON_OBJECT)
        write_function(w, v);
      else
        df_json_out_value(w, v);
    }
    df_json_out_close(w);
  }
  df_json_out_close(w);
  return DF_OK;
}

static df_status check_role(const df_json *role, const char *at, df_error *err) {
  static const char *const known[] = {"system", "user", "assistant", "tool", "developer", "function"};
  if (!df_json_str(role, NULL)) return DF_FAIL(err, DF_ERR_FORMAT, "%s.role must be a string, not %s", at, KIND(role));
  for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
    if (df_json_equals(role, known[i])) return DF_OK;
  }
  return DF_FAIL(err, DF_ERR_FORMAT,
                 "%s.role \"%.40s\" is unknown (system, developer, user, assistant, tool, function)", at,
                 df_json_str(role, NULL));
}

df_status df_message_write(df_json_out *w, const df_json *m, const char *at, df_error *err) {
  if (df_json_kind_of(m) != DF_JSON_OBJECT)
    return DF_FAIL(err, DF_ERR_FORMAT, "%s must be an object, not %s", at, KIND(m));
  DF_TRY(check_role(df_json_member(m, "role"), at, err));
  const char *role = df_json_str(df_json_member(m, "role"), NULL);
  const df_json *content = df_json_member(m, "content");
  if (df_json_kind_of(content) == DF_JSON_NULL && strcmp(role, "assistant") != 0)
    return DF_FAIL(err, DF_ERR_FORMAT, "%s.content is missing", at);
  df_json_out_object(w);
  df_json_out_key(w, "role"), df_json_out_cstr(w, strcmp(role, "developer") == 0 ? "system" : role);
  df_json_out_key(w, "content");
  DF_TRY(write_content(w, content, at, err));
  df_json_iter it = df_json_begin(m);
  const char *key;
  size_t len;
  const df_json *v;
  while (df_json_next(&it, &key, &len, &v)) {
    if (strcmp(key, "role") == 0 || strcmp(key, "content") == 0 || df_json_kind_of(v) == DF_JSON_NULL) continue;
    df_json_out_key(w, key);
    if (strcmp(key, "tool_calls") == 0)
      DF_TRY(write_calls(w, v, at, err));
    else
      df_json_out_value(w, v);
  }
  df_json_out_close(w);
  return DF_OK;
}

df_status df_messages_write(const df_json *messages, df_buf *out, df_error *err) {
  df_json_out w;
  if (df_json_kind_of(messages) != DF_JSON_ARRAY)
    return DF_FAIL(err, DF_ERR_FORMAT, "\"messages\" must be an array, not %s", KIND(messages));
  if (df_json_size(messages) == 0) return DF_FAIL(err, DF_ERR_FORMAT, "\"messages\" is empty");
  df_json_out_begin(&w, out, err);
  df_json_out_array(&w);
  for (size_t i = 0; i < df_json_size(messages); i++) {
    char at[40];
    (void)snprintf(at, sizeof at, "messages[%zu]", i);
    DF_TRY(df_message_write(&w, df_json_at(messages, i), at, err));
  }
  df_json_out_close(&w);
  return df_json_out_end(&w);
}

/* ---- templates ---- */

static void put_token(df_json_out *w, const df_model *m, const char *key, int32_t id) {
  const df_slice t = id >= 0 ? df_tokenizer_text(m->tok, id) : (df_slice){"", 0};
  df_json_out_key(w, key), df_json_out_str(w, t.p ? t.p : "", t.n);
}

/* A template's own variables cannot be replaced through kwargs. */
static bool reserved(const char *key) {
  return strcmp(key, "messages") == 0 || strcmp(key, "tools") == 0 || strcmp(key, "add_generation_prompt") == 0 ||
         strcmp(key, "bos_token") == 0 || strcmp(key, "eos_token") == 0;
}

static df_status write_context(const df_model *m, const df_chat_input *in, df_buf *out, df_error *err) {
  df_json_out w;
  df_json_out_begin(&w, out, err);
  df_json_out_object(&w);
  df_json_out_key(&w, "messages"), df_json_out_raw(&w, in->messages, strlen(in->messages));
  df_json_out_key(&w, "tools");
  if (in->tools && df_json_size(in->tools) > 0)
    df_json_out_value(&w, in->tools);
  else
    df_json_out_null(&w);
  df_json_out_key(&w, "add_generation_prompt"), df_json_out_bool(&w, in->add_generation_prompt);
  put_token(&w, m, "bos_token", df_tokenizer_bos(m->tok));
  put_token(&w, m, "eos_token", df_tokenizer_eos(m->tok));
  df_json_iter it = df_json_begin(in->kwargs);
  const char *key;
  size_t len;
  const df_json *v;
  while (in->kwargs && df_json_next(&it, &key, &len, &v)) {
    if (reserved(key)) continue;
    df_json_out_key(&w, key), df_json_out_value(&w, v);
  }
  df_json_out_close(&w);
  return df_json_out_end(&w);
}

df_status df_chat_render(const df_model *m, const df_chat_template *t, const df_chat_input *in, df_buf *out,
                         df_error *err) {
  if (!t)
    return DF_FAIL(err, DF_ERR_UNSUPPORTED,
                   "the model has no chat template: use /v1/completions, or start the server "
                   "with --chat-template-file");
  df_buf context;
  df_buf_init(&context, 0);
  df_status st = write_context(m, in, &context, err);
  const df_render_options opt = {.now_unix = (int64_t)time(NULL)};
  if (st == DF_OK) st = df_chat_template_render(t, context.data, context.len, &opt, out, err);
  df_buf_release(&context);
  return st;
}
