/* text/chat_template.c - the two entry points of the template engine. */
#include "text/chat_template.h"

#include <string.h>

#include "base/mem.h"
#include "text/jinja_eval.h"
#include "text/jinja_json.h"
#include "text/jinja_parse.h"

static const char PREFIX[] = "could not";

df_status df_chat_template_parse(const char *source, size_t len, df_chat_template **out, df_error *err) {
  df_error local;
  df_chat_template *t = NULL;
  char *text = NULL;
  df_status s;
  if (!err) err = &local;
  if (len > JINJA_MAX_SOURCE)
    return DF_FAIL(err, DF_ERR_LIMIT, "could not read the chat template: %zu bytes exceed the limit of %zu", len,
                   JINJA_MAX_SOURCE);
  if (!df_jutf8_valid(source, len))
    return DF_FAIL(err, DF_ERR_FORMAT, "could not read the chat template: it is not valid UTF-8");
  t = df_calloc(1, sizeof *t);
  text = df_strndup(source, len);
  if (!t || !text) {
    s = DF_OOM(err, "a chat template", len + sizeof *t);
    goto out;
  }
  df_jarena_init(&t->arena, JINJA_MAX_ARENA);
  s = df_jparse(&t->arena, text, df_jlex_normalise(text, len), &t->body, &t->names, err);
  if (s != DF_OK && strncmp(err->msg, PREFIX, sizeof PREFIX - 1) != 0)
    df_error_prefix(err, "could not read the chat template");
  if (s == DF_OK) {
    *out = t;
    t = NULL;
  }
out:
  df_free(text);
  df_chat_template_free(t);
  return s;
}

void df_chat_template_free(df_chat_template *t) {
  if (!t) return;
  df_jarena_release(&t->arena);
  df_free(t);
}

static df_status render(df_jctx *c, const df_chat_template *t, const char *json, size_t n) {
  df_jv context;
  if (n > JINJA_MAX_CONTEXT)
    return DF_FAIL(c->err, DF_ERR_LIMIT, "could not read the template context: %zu bytes exceed the limit of %zu", n,
                   JINJA_MAX_CONTEXT);
  DF_TRY(df_jjson_parse(&c->arena, json, n, &context, c->err));
  if (context.t != JT_MAP)
    return DF_FAIL(c->err, DF_ERR_FORMAT, "could not read the template context: it is not a JSON object");
  c->context = context.u.m;
  DF_TRY(df_jx_scope_new(c, NULL, &c->scope));
  return df_jx_exec(c, t->body);
}

df_status df_chat_template_render(const df_chat_template *t, const char *context_json, size_t n,
                                  const df_render_options *opt, df_buf *out, df_error *err) {
  static const df_render_options defaults;
  df_error local;
  df_buf text;
  if (!err) err = &local;
  if (!opt) opt = &defaults;
  df_buf_init(&text, opt->max_output ? opt->max_output : JINJA_MAX_OUTPUT);
  df_jctx c = {.err = err,
               .out = &text,
               .names = &t->names,
               .budget = opt->max_steps > UINT64_MAX / JINJA_STEP_BYTES
                             ? UINT64_MAX
                             : (opt->max_steps ? opt->max_steps : JINJA_MAX_STEPS) * JINJA_STEP_BYTES,
               .now_unix = opt->now_unix};
  df_jarena_init(&c.arena, opt->max_memory ? opt->max_memory : JINJA_MAX_ARENA);
  df_status s = render(&c, t, context_json, n);
  /* Errors raised below carry a bare reason; only the reader of the context writes whole messages. */
  bool whole = c.context == NULL && strncmp(err->msg, PREFIX, sizeof PREFIX - 1) == 0;
  if (s != DF_OK && !whole) df_error_prefix(err, "could not render the chat template: line %u", c.line);
  if (s == DF_OK) s = df_buf_put(out, text.data, text.len, err);
  df_buf_release(&text);
  df_jarena_release(&c.arena);
  return s;
}
