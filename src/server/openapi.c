/* GET /openapi.json: made from the table of routes and the table of fields, so that it says what is served. */
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "dflash/dflash.h"
#include "server/routes.h"

#define RAW(w, text) df_json_out_raw(w, text, strlen(text))

static void member_raw(df_json_out *w, const char *key, const char *json) {
  df_json_out_key(w, key);
  RAW(w, json);
}

/* ---- bodies ---- */

/* Fields of a body that are not in the table of fields: JSON members of "properties". */
typedef struct body_spec {
  const char *path;
  uint32_t family;   /* fields of the table that belong to the body itself, 0 = none */
  const char *extra; /* further members, each with a comma in front */
  const char *required;
} body_spec;

#define TEXT_OR_IDS                                                                                          \
  "{\"anyOf\":[{\"type\":\"string\",\"minLength\":1},{\"type\":\"array\",\"minItems\":1,\"maxItems\":64,"    \
  "\"items\":{\"type\":\"string\",\"minLength\":1}},{\"type\":\"array\",\"minItems\":1,\"items\":{\"type\":" \
  "\"integer\",\"minimum\":0}}]}"
#define MESSAGES                                                                                                  \
  "{\"type\":\"array\",\"minItems\":1,\"items\":{\"type\":\"object\",\"required\":[\"role\",\"content\"],"        \
  "\"properties\":{\"role\":{\"enum\":[\"system\",\"developer\",\"user\",\"assistant\",\"tool\"]},\"content\":{"  \
  "\"anyOf\":[{\"type\":\"string\"},{\"type\":\"array\",\"items\":{\"anyOf\":[{\"type\":\"string\"},{\"type\":"   \
  "\"object\",\"required\":[\"type\",\"text\"],\"properties\":{\"type\":{\"const\":\"text\"},\"text\":{\"type\":" \
  "\"string\"}}}]}}]}}}}"
#define ANY_MODEL ",\"model\":{\"type\":[\"string\",\"null\"]}"
#define FORMAT                                                                                              \
  ",\"response_format\":{\"type\":[\"object\",\"null\"],\"required\":[\"type\"],\"properties\":{\"type\":{" \
  "\"enum\":[\"text\",\"json_object\",\"json_schema\"]},\"json_schema\":{\"type\":[\"object\",\"null\"]}}}" \
  ",\"grammar\":{\"type\":[\"string\",\"null\"]}"

static const body_spec bodies[] = {
    {"/v1/chat/completions", DF_FOR_CHAT,
     ANY_MODEL FORMAT
     ",\"messages\":" MESSAGES ",\"tools\":{\"type\":[\"array\",\"null\"],\"items\":{\"type\":\"object\"}}"
     ",\"tool_choice\":{\"anyOf\":[{\"enum\":[\"none\",\"auto\",null]},{\"type\":\"object\",\"required\":["
     "\"function\"],\"properties\":{\"function\":{\"type\":\"object\",\"required\":[\"name\"],"
     "\"properties\":{\"name\":{\"type\":\"string\"}}}}},{\"const\":\"required\"}]}"
     ",\"chat_template_kwargs\":{\"type\":[\"object\",\"null\"]}",
     "[\"messages\"]"},
    {"/v1/completions", DF_FOR_COMPLETION, ANY_MODEL FORMAT ",\"prompt\":" TEXT_OR_IDS, "[\"prompt\"]"},
    {"/v1/responses", DF_FOR_RESPONSES,
     ANY_MODEL ",\"input\":{\"anyOf\":[{\"type\":\"string\"}," MESSAGES
               "]},\"instructions\":{\"type\":[\"string\",\"null\"]}",
     "[\"input\"]"},
    {"/generate", 0,
     ",\"text\":{\"anyOf\":[{\"type\":\"string\",\"minLength\":1},{\"type\":\"array\",\"minItems\":1,\"items\":{"
     "\"type\":\"string\",\"minLength\":1}},{\"type\":\"null\"}]},\"input_ids\":{\"type\":[\"array\",\"null\"],"
     "\"minItems\":1,\"items\":{\"type\":"
     "\"integer\",\"minimum\":0}},\"stream\":{\"type\":[\"boolean\",\"null\"]},\"return_logprob\":{\"type\":["
     "\"boolean\",\"null\"]},\"rid\":{\"type\":[\"string\",\"null\"]}",
     "[],\"oneOf\":[{\"required\":[\"text\"],\"properties\":{\"text\":{\"type\":[\"string\",\"array\"]}}},{"
     "\"required\":[\"input_ids\"],\"properties\":{\"input_ids\":{\"type\":\"array\"}}}]"},
    {"/completion", DF_FOR_LLAMA, ANY_MODEL FORMAT ",\"prompt\":" TEXT_OR_IDS, "[\"prompt\"]"},
    {"/tokenize", 0,
     ",\"content\":{\"type\":\"string\"},\"add_special\":{\"type\":[\"boolean\",\"null\"]},\"parse_special\":{\"type\":"
     "["
     "\"boolean\",\"null\"]},\"with_pieces\":{\"type\":[\"boolean\",\"null\"]}",
     "[\"content\"]"},
    {"/detokenize", 0, ",\"tokens\":{\"type\":\"array\",\"items\":{\"type\":\"integer\",\"minimum\":0}}",
     "[\"tokens\"]"},
    {"/apply-template", 0, ",\"messages\":" MESSAGES ",\"add_generation_prompt\":{\"type\":[\"boolean\",\"null\"]}",
     "[\"messages\"]"},
    {"/abort_request", 0, ",\"rid\":{\"type\":[\"string\",\"null\"]},\"abort_all\":{\"type\":[\"boolean\",\"null\"]}",
     "[],\"anyOf\":[{\"required\":[\"rid\"],\"properties\":{\"rid\":{\"type\":\"string\"}}},{\"required\":["
     "\"abort_all\"],\"properties\":{\"abort_all\":{\"const\":true}}}]"},
};

/* {"type": "object", "properties": {...}} of the fields of a family and the extra members. */
static df_status schema_of(df_buf *b, uint32_t family, const char *extra, const char *required, df_error *err) {
  const char *comma = "";
  DF_TRY(df_buf_puts(b, "{\"type\":\"object\",\"properties\":{", err));
  for (size_t i = 0; i < df_field_count; i++) {
    const df_field *f = &df_fields[i];
    if (!(f->shapes & family)) continue;
    DF_TRY(df_buf_printf(b, err, "%s\"%s\":{\"description\":\"%s\",\"allOf\":[", comma, f->name, f->doc));
    DF_TRY(df_field_schema(f, b, err));
    DF_TRY(df_buf_puts(b, "]}", err));
    comma = ",";
  }
  DF_TRY(df_buf_puts(b, *comma ? extra : extra + (*extra == ','), err));
  return df_buf_printf(b, err, "},\"required\":%s}", required);
}

static df_status put_body(df_json_out *w, const char *path, df_error *err) {
  for (size_t i = 0; i < sizeof bodies / sizeof bodies[0]; i++) {
    const body_spec *s = &bodies[i];
    if (strcmp(s->path, path) != 0) continue;
    df_buf b, params;
    df_buf_init(&b, 0);
    df_buf_init(&params, 0);
    df_status st = DF_OK;
    if (strcmp(path, "/generate") == 0) { /* its fields lie one level lower */
      st = df_buf_printf(&params, err, "%s,\"sampling_params\":{\"anyOf\":[{\"type\":\"null\"},", s->extra);
      if (st == DF_OK) st = schema_of(&params, DF_FOR_SGLANG, "", "[]", err);
      if (st == DF_OK) st = df_buf_puts(&params, "]}", err);
    }
    if (st == DF_OK) st = schema_of(&b, s->family, params.len ? params.data : s->extra, s->required, err);
    if (st == DF_OK) {
      df_json_out_key(w, "requestBody");
      df_json_out_object(w);
      df_json_out_key(w, "required"), df_json_out_bool(w, true);
      df_json_out_key(w, "content");
      df_json_out_object(w);
      df_json_out_key(w, "application/json");
      df_json_out_object(w);
      df_json_out_key(w, "schema"), df_json_out_raw(w, b.data, b.len);
      df_json_out_close(w);
      df_json_out_close(w);
      df_json_out_close(w);
    }
    df_buf_release(&b);
    df_buf_release(&params);
    return st;
  }
  return DF_OK;
}

/* ---- responses ---- */

static bool streams(const char *path) {
  return strcmp(path, "/v1/chat/completions") == 0 || strcmp(path, "/v1/completions") == 0 ||
         strcmp(path, "/v1/responses") == 0 || strcmp(path, "/generate") == 0 || strcmp(path, "/completion") == 0;
}

static void put_responses(df_json_out *w, const df_route *r, bool get) {
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
    if (!get && streams(r->path)) member_raw(w, "text/event-stream", any);
    df_json_out_close(w);
    df_json_out_close(w);
  }
  static const char *const codes[] = {"400", "401", "404", "413", "429", "500", "501", "503", "504"};
  for (size_t i = 0; i < sizeof codes / sizeof codes[0]; i++)
    member_raw(w, codes[i], "{\"$ref\":\"#/components/responses/error\"}");
  df_json_out_close(w);
}

static df_status put_operation(df_json_out *w, const df_route *r, bool get, df_error *err) {
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
  if (!get || strcmp(r->path, "/generate") == 0) DF_TRY(put_body(w, r->path, err)); /* its GET has a body as well */
  put_responses(w, r, get);
  df_json_out_close(w);
  return DF_OK;
}

static df_status put_paths(df_json_out *w, df_error *err) {
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
    if (r->methods & DF_HTTP_GET) DF_TRY(put_operation(w, r, true, err));
    if (r->methods & DF_HTTP_POST) DF_TRY(put_operation(w, r, false, err));
    df_json_out_close(w);
  }
  df_json_out_close(w);
  return DF_OK;
}

static df_status write_all(const df_server *s, df_buf *b, df_error *err) {
  df_json_out w;
  df_json_out_begin(&w, b, err);
  df_json_out_object(&w);
  df_json_put_cstr(&w, "openapi", "3.1.0");
  df_json_out_key(&w, "info");
  df_json_out_object(&w);
  df_json_put_cstr(&w, "title", "dflash");
  df_json_put_cstr(&w, "version", df_version());
  df_json_put_cstr(&w, "description",
                   "A language model with block-diffusion speculative decoding. Unknown fields are ignored.");
  df_json_out_close(&w);
  df_status st = put_paths(&w, err);
  if (st != DF_OK) return st;
  df_json_out_key(&w, "components");
  df_json_out_object(&w);
  member_raw(
      &w, "responses",
      "{\"error\":{\"description\":\"refused or failed\",\"content\":{\"application/json\":{\"schema\":{\"$ref\":"
      "\"#/components/schemas/error\"}}}}}");
  member_raw(&w, "schemas",
             "{\"error\":{\"type\":\"object\",\"required\":[\"error\"],\"properties\":{\"error\":{\"type\":\"object\","
             "\"required\":[\"message\",\"type\",\"param\",\"code\"],\"properties\":{\"message\":{\"type\":\"string\"},"
             "\"type\":{\"type\":\"string\"},\"param\":{\"type\":[\"string\",\"null\"]},\"code\":{\"type\":\"integer\"}"
             "}}}}}");
  member_raw(&w, "securitySchemes", "{\"key\":{\"type\":\"http\",\"scheme\":\"bearer\"}}");
  df_json_out_close(&w);
  if (s->p.n_keys) member_raw(&w, "security", "[{\"key\":[]}]");
  df_json_out_close(&w);
  return df_json_out_end(&w);
}

void df_handle_openapi(df_server *s, df_exchange *x) {
  df_buf b;
  df_buf_init(&b, 0);
  df_reply_json(x, &b, write_all(s, &b, NULL));
}
