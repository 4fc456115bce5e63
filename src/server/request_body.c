/* The JSON bodies of requests: parsing, the fields that are not numbers, and refusals that name the field. */
#include <string.h>
#include <strings.h>

#include "engine/json_schema.h"
#include "server/server_state.h"

void df_body_refuse(df_exchange *x, const df_error *err, const char *param) {
  if (err->code == DF_ERR_MEMORY)
    df_reply_error(x, 503, "unavailable_error", NULL, "out of memory");
  else
    df_reply_error(x, 400, "invalid_request_error", param, "%s", err->msg);
}

df_json *df_body_parse(df_exchange *x) {
  df_json *root = NULL;
  df_error err;
  if (x->body.len == 0) {
    df_reply_error(x, 400, "invalid_request_error", NULL, "the request has no body: a JSON object is expected");
    return NULL;
  }
  if (df_json_parse(x->body.data, x->body.len, &root, &err) != DF_OK) {
    df_error_prefix(&err, "the body is not valid JSON");
    df_body_refuse(x, &err, NULL);
    return NULL;
  }
  if (df_json_kind_of(root) != DF_JSON_OBJECT) {
    df_reply_error(x, 400, "invalid_request_error", NULL, "the body must be a JSON object, not %s",
                   df_json_kind_name(df_json_kind_of(root)));
    df_json_free(root);
    return NULL;
  }
  return root;
}

bool df_body_model_ok(df_server *s, df_exchange *x, const df_json *body) {
  const df_json *v = df_json_member(body, "model");
  const char *name = df_json_str(v, NULL);
  if (v && !name && df_json_kind_of(v) != DF_JSON_NULL) {
    df_reply_error(x, 400, "invalid_request_error", "model", "\"model\" must be a string, not %s",
                   df_json_kind_name(df_json_kind_of(v)));
    return false;
  }
  if (!s->p.strict_model || !name || strcmp(name, s->m.alias) == 0) return true;
  df_reply_error(x, 404, "not_found_error", "model", "the model \"%.100s\" is not here; \"%s\" is", name, s->m.alias);
  return false;
}

/* ---- constraints ---- */

typedef struct constraint {
  enum { NOTHING, GBNF, SCHEMA, OBJECT } kind;
  const char *text; /* GBNF, or a schema as JSON text */
  size_t n;
  const df_json *schema; /* or as a value */
} constraint;

static df_status compile(df_task *t, const constraint *c, df_error *err) {
  const df_tokenizer *tok = t->server->m.model->tok;
  if (c->kind == GBNF) return df_grammar_from_gbnf(tok, c->text, c->n, &t->grammar, err);
  if (c->text || c->kind == OBJECT)
    return df_json_schema_grammar(tok, c->text ? c->text : "{}", c->text ? c->n : 2, c->kind == OBJECT, &t->grammar,
                                  err);
  df_buf b;
  df_json_out w;
  df_buf_init(&b, 0);
  df_json_out_begin(&w, &b, err);
  df_json_out_value(&w, c->schema);
  df_status st = df_json_out_end(&w);
  if (st == DF_OK) st = df_json_schema_grammar(tok, b.data, b.len, false, &t->grammar, err);
  df_buf_release(&b);
  return st;
}

/* OpenAI's response_format; for /v1/responses the text.format object, whose schema lies one level higher. */
static df_status from_format(const df_json *v, constraint *c, df_error *err) {
  if (df_json_kind_of(v) != DF_JSON_OBJECT)
    return DF_FAIL(err, DF_ERR_FORMAT, "\"response_format\" must be an object, not %s",
                   df_json_kind_name(df_json_kind_of(v)));
  const char *type = df_json_str(df_json_member(v, "type"), NULL);
  if (!type) return DF_FAIL(err, DF_ERR_FORMAT, "\"response_format\" needs a \"type\"");
  const df_json *inner = df_json_member(v, "json_schema"), *schema = df_json_member(inner ? inner : v, "schema");
  if (df_json_kind_of(inner) != DF_JSON_OBJECT && df_json_kind_of(inner) != DF_JSON_NULL)
    return DF_FAIL(err, DF_ERR_FORMAT, "\"response_format\".\"json_schema\" must be an object, not %s",
                   df_json_kind_name(df_json_kind_of(inner)));
  if (strcmp(type, "text") == 0) return DF_OK;
  if (strcmp(type, "json_object") == 0) {
    c->kind = schema ? SCHEMA : OBJECT; /* llama-server: a schema may stand beside json_object */
    c->schema = schema;
    return DF_OK;
  }
  if (strcmp(type, "json_schema") != 0)
    return DF_FAIL(err, DF_ERR_FORMAT,
                   "\"response_format\" of type \"%.40s\" is unknown (text, json_object, json_schema)", type);
  if (df_json_kind_of(schema) != DF_JSON_OBJECT && df_json_kind_of(schema) != DF_JSON_BOOL)
    return DF_FAIL(err, DF_ERR_FORMAT, "\"response_format\" of type \"json_schema\" needs \"json_schema\".\"schema\"");
  c->kind = SCHEMA, c->schema = schema;
  return DF_OK;
}

static df_status from_text(const df_json *v, const char *name, int kind, constraint *c, df_error *err) {
  c->text = df_json_str(v, &c->n);
  if (!c->text)
    return DF_FAIL(err, DF_ERR_FORMAT, "\"%s\" must be a string, not %s", name, df_json_kind_name(df_json_kind_of(v)));
  if (c->n > 0) c->kind = kind; /* "" = none, as llama-server has it */
  return DF_OK;
}

static df_status from_schema(const df_json *v, const char *name, constraint *c, df_error *err) {
  if (df_json_kind_of(v) == DF_JSON_STRING) return from_text(v, name, SCHEMA, c, err);
  if (df_json_kind_of(v) != DF_JSON_OBJECT)
    return DF_FAIL(err, DF_ERR_FORMAT, "\"%s\" must be a JSON schema, not %s", name,
                   df_json_kind_name(df_json_kind_of(v)));
  c->kind = SCHEMA, c->schema = v;
  return DF_OK;
}

static df_status one_field(const char *name, const df_json *v, constraint *c, df_error *err) {
  if (strcmp(name, "response_format") == 0) return from_format(v, c, err);
  if (strcmp(name, "grammar") == 0 || strcmp(name, "ebnf") == 0 || strcmp(name, "guided_grammar") == 0)
    return from_text(v, name, GBNF, c, err);
  if (strcmp(name, "json_schema") == 0 || strcmp(name, "guided_json") == 0) return from_schema(v, name, c, err);
  return DF_FAIL(err, DF_ERR_UNSUPPORTED, "\"%s\" is not supported here; use a JSON schema or a GBNF grammar", name);
}

df_status df_body_grammar(df_task *t, const df_json *body, const char **param, df_error *err) {
  static const struct {
    const char *name;
    uint32_t families;
  } fields[] = {{"response_format", DF_FOR_CHAT | DF_FOR_COMPLETION | DF_FOR_LLAMA},
                {"grammar", DF_FOR_CHAT | DF_FOR_COMPLETION | DF_FOR_LLAMA},
                {"json_schema", DF_FOR_CHAT | DF_FOR_COMPLETION | DF_FOR_LLAMA | DF_FOR_SGLANG},
                {"guided_json", DF_FOR_CHAT | DF_FOR_COMPLETION},
                {"guided_grammar", DF_FOR_CHAT | DF_FOR_COMPLETION},
                {"guided_regex", DF_FOR_CHAT | DF_FOR_COMPLETION},
                {"guided_choice", DF_FOR_CHAT | DF_FOR_COMPLETION},
                {"ebnf", DF_FOR_CHAT | DF_FOR_COMPLETION | DF_FOR_SGLANG},
                {"regex", DF_FOR_CHAT | DF_FOR_COMPLETION | DF_FOR_SGLANG}};
  constraint c = {NOTHING, NULL, 0, NULL};
  for (size_t i = 0; i < sizeof fields / sizeof fields[0]; i++) {
    const df_json *v = df_json_member(body, fields[i].name);
    if (!(fields[i].families & t->shape->family) || df_json_kind_of(v) == DF_JSON_NULL) continue;
    const bool had = c.kind != NOTHING;
    constraint next = {NOTHING, NULL, 0, NULL};
    *param = fields[i].name;
    DF_TRY(one_field(fields[i].name, v, &next, err));
    if (next.kind == NOTHING) continue;
    if (had) return DF_FAIL(err, DF_ERR_FORMAT, "\"%s\": the output is constrained twice", fields[i].name);
    c = next;
  }
  if (t->shape->family == DF_FOR_RESPONSES) {
    const df_json *format = df_json_member(df_json_member(body, "text"), "format");
    *param = "text.format";
    if (df_json_kind_of(format) != DF_JSON_NULL) DF_TRY(from_format(format, &c, err));
  }
  if (c.kind != NOTHING) {
    df_status st = compile(t, &c, err);
    if (st != DF_OK) return st;
  }
  *param = NULL;
  return DF_OK;
}

void df_body_generate(df_server *s, df_exchange *x, const df_shape *shape, const char *id_prefix, df_body_reader read) {
  df_json *body = df_body_parse(x);
  if (!body) return;
  df_error err;
  const char *param = NULL;
  df_task *t = df_body_model_ok(s, x, body) ? df_task_create(s, x, shape, id_prefix) : NULL;
  if (!t) {
    df_json_free(body);
    return;
  }
  t->body = body;
  df_status st = df_gen_read(&t->gen, shape->family, body, &err);
  if (st == DF_OK) st = df_gen_check(&t->gen, shape->family, &err);
  if (st != DF_OK) param = t->gen.param;
  if (st == DF_OK) st = read(t, body, &param, &err);
  if (st == DF_OK)
    df_task_start(t);
  else
    df_task_fail_error(t, &err, param);
}
