/* The JSON bodies of requests: parsing, the fields that are not numbers, and refusals that name the field. */
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/size.h"
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
    df_error_prefix(&err, "the body");
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

/* A schema as a value; what it may hold is the compiler's business. */
static df_status take_schema(const df_json *v, const char *where, constraint *c, df_error *err) {
  const df_json_kind kind = df_json_kind_of(v);
  if (kind != DF_JSON_OBJECT && kind != DF_JSON_BOOL)
    return DF_FAIL(err, DF_ERR_FORMAT, "%s must be a JSON schema, not %s", where, df_json_kind_name(kind));
  c->kind = SCHEMA, c->schema = v;
  return DF_OK;
}

/* OpenAI's response_format. The schema lies in "json_schema", or beside the type, as /v1/responses (text.format) and
 * llama-server have it. */
static df_status from_format(const df_json *v, const char *name, constraint *c, df_error *err) {
  const df_json *inner;
  if (df_json_kind_of(v) != DF_JSON_OBJECT)
    return DF_FAIL(err, DF_ERR_FORMAT, "\"%s\" must be an object, not %s", name, df_json_kind_name(df_json_kind_of(v)));
  const df_json *type = df_json_member(v, "type");
  if (!df_json_str(type, NULL)) return DF_FAIL(err, DF_ERR_FORMAT, "\"%s\" needs a \"type\"", name);
  if (df_json_equals(type, "text")) return DF_OK;
  const bool object = df_json_equals(type, "json_object");
  if (!object && !df_json_equals(type, "json_schema"))
    return DF_FAIL(err, DF_ERR_FORMAT, "\"%s\" of type \"%.40s\" is unknown (text, json_object, json_schema)", name,
                   df_json_str(type, NULL));
  DF_TRY(df_json_opt_tree(v, "json_schema", DF_JSON_OBJECT, &inner, err));
  char where[48];
  (void)snprintf(where, sizeof where, "the \"schema\" of \"%s\"", name);
  const df_json *const places[] = {df_json_member(v, "schema"),
                                   df_json_member(inner, "schema")}; /* the last one counts */
  for (size_t i = 0; i < DF_COUNT_OF(places); i++) {
    if (df_json_kind_of(places[i]) != DF_JSON_NULL) DF_TRY(take_schema(places[i], where, c, err));
  }
  if (c->kind == NOTHING && !object)
    return DF_FAIL(err, DF_ERR_FORMAT, "\"%s\" of type \"json_schema\" needs \"json_schema\".\"schema\"", name);
  if (c->kind == NOTHING) c->kind = OBJECT;
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
  char where[48];
  if (df_json_kind_of(v) == DF_JSON_STRING) return from_text(v, name, SCHEMA, c, err);
  (void)snprintf(where, sizeof where, "\"%s\"", name);
  return take_schema(v, where, c, err);
}

static df_status one_field(const df_constraint_field *f, const df_json *v, constraint *c, df_error *err) {
  if (strcmp(f->schema, "response_format") == 0) return from_format(v, f->name, c, err);
  if (strcmp(f->schema, "gbnf") == 0) return from_text(v, f->name, GBNF, c, err);
  if (strcmp(f->schema, "json_schema") == 0) return from_schema(v, f->name, c, err);
  return DF_FAIL(err, DF_ERR_UNSUPPORTED, "\"%s\" is not supported here; use a JSON schema or a GBNF grammar", f->name);
}

df_status df_body_grammar(df_task *t, const df_json *body, const char **param, df_error *err) {
  constraint c = {NOTHING, NULL, 0, NULL};
  for (size_t i = 0; i < df_constraint_field_count; i++) {
    const df_constraint_field *f = &df_constraint_fields[i];
    const df_json *v = df_json_member(body, f->name);
    if (!(f->shapes & t->shape->family) || df_json_kind_of(v) == DF_JSON_NULL) continue;
    if (strcmp(f->name, "tool_choice") == 0) continue; /* read with the tools */
    constraint next = {NOTHING, NULL, 0, NULL};
    *param = f->name;
    DF_TRY(one_field(f, v, &next, err));
    if (next.kind == NOTHING) continue;
    if (c.kind != NOTHING) return DF_FAIL(err, DF_ERR_FORMAT, "\"%s\": the output is constrained twice", f->name);
    c = next;
  }
  if (t->shape->family == DF_FOR_RESPONSES) {
    const df_json *text, *format;
    *param = "text";
    DF_TRY(df_json_opt_tree(body, "text", DF_JSON_OBJECT, &text, err));
    format = df_json_member(text, "format");
    *param = "text.format";
    if (df_json_kind_of(format) != DF_JSON_NULL) DF_TRY(from_format(format, *param, &c, err));
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
