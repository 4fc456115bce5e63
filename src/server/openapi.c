/* GET /openapi.json: made from the table of routes, the table of fields and the files of the folder openapi. What no
 * schema can say (a grammar's text, how two numbers compare) is in the descriptions. */
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/size.h"
#include "dflash/dflash.h"
#include "server/routes.h"

#define RAW(w, text) df_json_out_raw(w, text, strlen(text))

static void member_raw(df_json_out *w, const char *key, const char *json) {
  df_json_out_key(w, key);
  RAW(w, json);
}

/* ---- bodies ---- */

/* Two files of the folder openapi: what the table of fields does not say about bodies, and the schemas that both use.
 */
static const df_web_file *part(const char *name) {
  for (size_t i = 0; i < df_openapi_file_count; i++) {
    if (strcmp(df_openapi_files[i].path, name) == 0) return &df_openapi_files[i];
  }
  return NULL;
}

static df_status load(const char *name, df_json **out, df_error *err) {
  const df_web_file *f = part(name);
  return df_json_parse(f->data, f->n, out, err);
}

/* The fields of the table that belong to a body itself, 0 = none. */
static uint32_t family_of(const char *body) {
  static const struct {
    const char *body;
    uint32_t family;
  } families[] = {{"/v1/chat/completions", DF_FOR_CHAT},
                  {"/v1/completions", DF_FOR_COMPLETION},
                  {"/v1/responses", DF_FOR_RESPONSES},
                  {"sampling_params", DF_FOR_SGLANG},
                  {"/completion", DF_FOR_LLAMA}};
  for (size_t i = 0; i < DF_COUNT_OF(families); i++) {
    if (strcmp(families[i].body, body) == 0) return families[i].family;
  }
  return 0;
}

static df_status put_field(df_json_out *w, const df_field *f, df_error *err) {
  df_buf b;
  df_buf_init(&b, 0);
  df_status st = df_field_schema(f, &b, err);
  if (st == DF_OK) {
    df_json_out_key(w, f->name);
    df_json_out_object(w);
    df_json_put_cstr(w, "description", f->doc);
    df_json_out_key(w, "allOf");
    df_json_out_array(w);
    df_json_out_raw(w, b.data, b.len);
    df_json_out_close(w);
    df_json_out_close(w);
  }
  df_buf_release(&b);
  return st;
}

static void put_ref(df_json_out *w, const char *key, const char *schema) {
  char ref[80];
  (void)snprintf(ref, sizeof ref, "#/components/schemas/%s", schema);
  df_json_out_key(w, key);
  df_json_out_object(w);
  df_json_put_cstr(w, "$ref", ref);
  df_json_out_close(w);
}

/* "anyOf": for every field that can constrain the output, that none of the others does. */
static void put_one_constraint(df_json_out *w, uint32_t family) {
  df_json_out_key(w, "anyOf");
  df_json_out_array(w);
  for (size_t i = 0; i < df_constraint_field_count; i++) {
    const df_constraint_field *f = &df_constraint_fields[i];
    if (!(f->shapes & family) || strcmp(f->schema, f->idle) == 0) continue; /* it never does */
    df_json_out_object(w);
    df_json_out_key(w, "properties");
    df_json_out_object(w);
    for (size_t k = 0; k < df_constraint_field_count; k++) {
      const df_constraint_field *other = &df_constraint_fields[k];
      if (k != i && (other->shapes & family)) put_ref(w, other->name, other->idle);
    }
    df_json_out_close(w);
    df_json_out_close(w);
  }
  df_json_out_close(w);
}

static bool constrained(uint32_t family) {
  for (size_t i = 0; i < df_constraint_field_count; i++) {
    if (df_constraint_fields[i].shapes & family) return true;
  }
  return false;
}

static df_status put_properties(df_json_out *w, const df_json *more, uint32_t family, df_error *err) {
  df_json_iter it = df_json_begin(more);
  const char *key;
  size_t len;
  const df_json *v;
  df_json_out_key(w, "properties");
  df_json_out_object(w);
  while (df_json_next(&it, &key, &len, &v)) df_json_out_key(w, key), df_json_out_value(w, v);
  for (size_t i = 0; i < df_field_count; i++) {
    if (df_fields[i].shapes & family) DF_TRY(put_field(w, &df_fields[i], err));
  }
  for (size_t i = 0; i < df_constraint_field_count; i++) {
    const df_constraint_field *f = &df_constraint_fields[i];
    if (f->shapes & family) put_ref(w, f->name, f->schema);
  }
  df_json_out_close(w);
  return DF_OK;
}

/* The body of the file with the fields of the tables among its properties. */
static df_status put_schema(df_json_out *w, const char *name, const df_json *body, df_error *err) {
  const uint32_t family = family_of(name);
  df_json_iter it = df_json_begin(body);
  const char *key;
  size_t len;
  const df_json *v;
  df_json_out_object(w);
  df_json_put_cstr(w, "type", "object");
  put_ref(w, "propertyNames", "member_name");
  DF_TRY(put_properties(w, df_json_member(body, "properties"), family, err));
  put_ref(w, "additionalProperties", "value");
  while (df_json_next(&it, &key, &len, &v)) {
    if (strcmp(key, "properties") != 0) df_json_out_key(w, key), df_json_out_value(w, v);
  }
  if (constrained(family)) put_one_constraint(w, family);
  df_json_out_close(w);
  return DF_OK;
}

static df_status put_body(df_json_out *w, const char *path, const df_json *bodies, df_error *err) {
  const df_json *body = df_json_member(bodies, path);
  if (!body) return DF_OK;
  df_json_out_key(w, "requestBody");
  df_json_out_object(w);
  df_json_out_key(w, "required"), df_json_out_bool(w, true);
  df_json_out_key(w, "content");
  df_json_out_object(w);
  df_json_out_key(w, "application/json");
  df_json_out_object(w);
  df_json_out_key(w, "schema");
  DF_TRY(put_schema(w, path, body, err));
  df_json_out_close(w);
  df_json_out_close(w);
  df_json_out_close(w);
  return DF_OK;
}

/* The schemas of the file, and those that depend on the table or the model. */
static df_status put_schemas(df_json_out *w, const df_server *s, const df_json *bodies, df_error *err) {
  df_json *schemas = NULL;
  const char *key;
  size_t len;
  const df_json *v;
  DF_TRY(load("schemas.json", &schemas, err));
  df_json_out_key(w, "schemas");
  df_json_out_object(w);
  for (df_json_iter it = df_json_begin(schemas); df_json_next(&it, &key, &len, &v);)
    df_json_out_key(w, key), df_json_out_value(w, v);
  df_json_free(schemas);
  df_json_out_key(w, "token_id");
  df_json_out_object(w);
  df_json_put_cstr(w, "type", "integer");
  df_json_put_u64(w, "minimum", 0);
  if (s->n_ctx) df_json_put_u64(w, "maximum", df_tokenizer_size(s->m.model->tok) - 1); /* not known while loading */
  df_json_out_close(w);
  df_json_out_key(w, "sampling_params");
  df_status st = put_schema(w, "sampling_params", df_json_member(bodies, "sampling_params"), err);
  df_json_out_close(w);
  return st;
}

/* ---- responses ---- */

static bool streams(const char *path) {
  return strcmp(path, "/v1/chat/completions") == 0 || strcmp(path, "/v1/completions") == 0 ||
         strcmp(path, "/v1/responses") == 0 || strcmp(path, "/generate") == 0 || strcmp(path, "/completion") == 0;
}

static void put_responses(df_json_out *w, const df_route *r) {
  static const char any[] = "{\"schema\":{}}";
  const bool text = strcmp(r->path, "/metrics") == 0 || strcmp(r->path, "/flush_cache") == 0;
  df_json_out_key(w, "responses");
  df_json_out_object(w);
  if (strcmp(r->path, "/v1/embeddings") != 0) {
    df_json_out_key(w, "200");
    df_json_out_object(w);
    df_json_put_cstr(w, "description", "OK");
    df_json_out_key(w, "content");
    df_json_out_object(w);
    member_raw(w, text ? "text/plain" : "application/json", any);
    if (streams(r->path)) member_raw(w, "text/event-stream", any);
    df_json_out_close(w);
    df_json_out_close(w);
  }
  static const char *const codes[] = {"400", "401", "404", "413", "429", "500", "501", "503", "504"};
  for (size_t i = 0; i < sizeof codes / sizeof codes[0]; i++)
    member_raw(w, codes[i], "{\"$ref\":\"#/components/responses/error\"}");
  df_json_out_close(w);
}

static df_status put_operation(df_json_out *w, const df_route *r, bool get, const df_json *bodies, df_error *err) {
  char id[80];
  size_t n = 0;
  n += (size_t)snprintf(id, sizeof id, "%s", get ? "get" : "post");
  for (const char *c = r->path; *c && n + 2 < sizeof id; c++)
    id[n++] = *c == '/' || *c == '.' || *c == '-' || *c == '*' ? '_' : *c;
  id[n] = '\0';
  df_json_out_key(w, get ? "get" : "post");
  df_json_out_object(w);
  df_json_put_cstr(w, "operationId", id);
  df_json_put_cstr(w, "summary", r->summary);
  df_json_out_key(w, "tags");
  df_json_out_array(w);
  df_json_out_cstr(w, r->tag);
  df_json_out_close(w);
  if (r->path[strlen(r->path) - 1] == '*')
    member_raw(w, "parameters",
               "[{\"name\":\"model\",\"in\":\"path\",\"required\":true,\"schema\":{\"type\":\"string\"}}]");
  if (r->open) member_raw(w, "security", "[]");
  if (!get || strcmp(r->path, "/generate") == 0)
    DF_TRY(put_body(w, r->path, bodies, err)); /* its GET has a body as well */
  put_responses(w, r);
  df_json_out_close(w);
  return DF_OK;
}

static df_status put_paths(df_json_out *w, const df_json *bodies, df_error *err) {
  df_json_out_key(w, "paths");
  df_json_out_object(w);
  for (size_t i = 0; i < df_route_count; i++) {
    const df_route *r = &df_routes[i];
    char path[80];
    if (!r->summary) continue;
    const size_t n = strlen(r->path);
    if (r->path[n - 1] == '*')
      (void)snprintf(path, sizeof path, "%.*s{model}", (int)n - 1, r->path);
    else
      (void)snprintf(path, sizeof path, "%s", r->path);
    df_json_out_key(w, path);
    df_json_out_object(w);
    if (r->methods & DF_HTTP_GET) DF_TRY(put_operation(w, r, true, bodies, err));
    if (r->methods & DF_HTTP_POST) DF_TRY(put_operation(w, r, false, bodies, err));
    df_json_out_close(w);
  }
  df_json_out_close(w);
  return DF_OK;
}

static void put_info(df_json_out *w) {
  df_json_put_cstr(w, "openapi", "3.1.0");
  df_json_out_key(w, "info");
  df_json_out_object(w);
  df_json_put_cstr(w, "title", "dflash");
  df_json_put_cstr(w, "version", df_version());
  df_json_put_cstr(w, "description",
                   "A language model with block-diffusion speculative decoding. Unknown fields are ignored.");
  df_json_out_close(w);
}

static df_status write_all(const df_server *s, df_buf *b, df_error *err) {
  df_json_out w;
  df_json *bodies = NULL;
  DF_TRY(load("bodies.json", &bodies, err));
  df_json_out_begin(&w, b, err);
  df_json_out_object(&w);
  put_info(&w);
  df_status st = put_paths(&w, bodies, err);
  df_json_out_key(&w, "components");
  df_json_out_object(&w);
  member_raw(
      &w, "responses",
      "{\"error\":{\"description\":\"refused or failed\",\"content\":{\"application/json\":{\"schema\":{\"$ref\":"
      "\"#/components/schemas/error\"}}}}}");
  if (st == DF_OK) st = put_schemas(&w, s, bodies, err);
  member_raw(&w, "securitySchemes", "{\"key\":{\"type\":\"http\",\"scheme\":\"bearer\"}}");
  df_json_out_close(&w);
  if (s->p.n_keys) member_raw(&w, "security", "[{\"key\":[]}]");
  df_json_out_close(&w);
  df_json_free(bodies);
  return st == DF_OK ? df_json_out_end(&w) : st;
}

void df_handle_openapi(df_server *s, df_exchange *x) {
  df_buf b;
  df_buf_init(&b, 0);
  df_reply_json(x, &b, write_all(s, &b, NULL));
}
