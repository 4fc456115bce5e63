/*
 * server/routes.h - which handler answers which path and method. One table: dispatch, 405 and /openapi.json come from
 * it.
 */
#ifndef DF_SERVER_ROUTES_H
#define DF_SERVER_ROUTES_H

#include "server/server_state.h"

typedef struct df_route {
  const char *path; /* a trailing "*" matches what follows */
  unsigned methods; /* df_http_method bits; HEAD comes with GET, OPTIONS always */
  bool open;        /* needs no key */
  bool loading;     /* works before the model is there */
  void (*handle)(df_server *s, df_exchange *x);
  const char *summary; /* NULL = an alias, not in /openapi.json */
  const char *tag;
} df_route;

extern const df_route df_routes[];
extern const size_t df_route_count;

/* NULL when no path matches. *allowed: methods of all routes of this path. */
const df_route *df_route_find(const char *path, df_http_method method, unsigned *allowed);

/* The connection layer's callbacks. */
void df_route_head(void *server, df_exchange *x);
void df_route_request(void *server, df_exchange *x);
void df_route_refuse(void *server, df_exchange *x, int status, const char *why);
void df_route_done(void *server, const df_exchange *x);

/* ---- handlers ---- */
void df_handle_chat(df_server *s, df_exchange *x);
void df_handle_completion(df_server *s, df_exchange *x);
void df_handle_responses(df_server *s, df_exchange *x);
void df_handle_models(df_server *s, df_exchange *x);
void df_handle_embeddings(df_server *s, df_exchange *x);
void df_handle_generate(df_server *s, df_exchange *x);
void df_handle_model_info(df_server *s, df_exchange *x);
void df_handle_server_info(df_server *s, df_exchange *x);
void df_handle_flush_cache(df_server *s, df_exchange *x);
void df_handle_abort(df_server *s, df_exchange *x);
void df_handle_health(df_server *s, df_exchange *x);
void df_handle_health_generate(df_server *s, df_exchange *x);
void df_handle_llama_completion(df_server *s, df_exchange *x);
void df_handle_tokenize(df_server *s, df_exchange *x);
void df_handle_detokenize(df_server *s, df_exchange *x);
void df_handle_apply_template(df_server *s, df_exchange *x);
void df_handle_props(df_server *s, df_exchange *x);
void df_handle_slots(df_server *s, df_exchange *x);
void df_handle_metrics(df_server *s, df_exchange *x);
void df_handle_version(df_server *s, df_exchange *x);
void df_handle_openapi(df_server *s, df_exchange *x);
void df_handle_web(df_server *s, df_exchange *x);

/* The prompt of a chat body: messages, tools, chat_template_kwargs through the template. Sets *param on failure. */
df_status df_chat_prompt_text(df_server *s, const df_json *body, bool add_generation_prompt, df_buf *out,
                              const char **param, df_error *err) DF_CHECK;

/* Whether one of n keys equals the presented one; the time depends on the presented length alone. (auth.c) */
bool df_key_matches(const char *const *keys, uint32_t n, const char *presented);
/* The key of a request: "Authorization: Bearer KEY" or "x-api-key: KEY"; NULL when there is none. */
const char *df_key_presented(const df_http_head *head);

/* Files in the program (generated): of the page, and of the description that /openapi.json gives. */
typedef struct df_web_file {
  const char *path, *type;
  const unsigned char *data;
  size_t n;
  const char *etag;
} df_web_file;
extern const df_web_file df_web_files[];
extern const size_t df_web_file_count;
extern const df_web_file df_openapi_files[];
extern const size_t df_openapi_file_count;

#endif
