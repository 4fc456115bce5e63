#include "server/routes.h"

#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/size.h"

#define GET DF_HTTP_GET
#define POST DF_HTTP_POST

const df_route df_routes[] = {
    {"/v1/chat/completions", POST, false, false, df_handle_chat, "Answer a conversation", "OpenAI"},
    {"/v1/completions", POST, false, false, df_handle_completion, "Continue a prompt", "OpenAI"},
    {"/v1/responses", POST, false, false, df_handle_responses, "Answer, in the form of the Responses API", "OpenAI"},
    {"/v1/models", GET, false, false, df_handle_models, "List the models", "OpenAI"},
    {"/v1/models/*", GET, false, false, df_handle_models, "Describe one model", "OpenAI"},
    {"/v1/embeddings", POST, false, false, df_handle_embeddings, "Not implemented", "OpenAI"},
    {"/chat/completions", POST, false, false, df_handle_chat, NULL, NULL},
    {"/models", GET, false, false, df_handle_models, NULL, NULL},
    {"/embeddings", POST, false, false, df_handle_embeddings, NULL, NULL},
    {"/generate", GET | POST, false, false, df_handle_generate, "Continue prompts", "SGLang"},
    {"/get_model_info", GET, false, false, df_handle_model_info, "Describe the model", "SGLang"},
    {"/model_info", GET, false, false, df_handle_model_info, NULL, NULL},
    {"/get_server_info", GET, false, false, df_handle_server_info, "Describe the server and its state", "SGLang"},
    {"/server_info", GET, false, false, df_handle_server_info, NULL, NULL},
    {"/flush_cache", GET | POST, false, false, df_handle_flush_cache, "Forget cached prefixes", "SGLang"},
    {"/abort_request", POST, false, false, df_handle_abort, "End a request or all of them", "SGLang"},
    {"/health", GET, true, true, df_handle_health, "Whether the server can work", "Operation"},
    {"/v1/health", GET, true, true, df_handle_health, NULL, NULL},
    {"/ping", GET | POST, true, true, df_handle_health, NULL, NULL},
    {"/health_generate", GET, false, false, df_handle_health_generate, "Generate one token", "Operation"},
    {"/completion", POST, false, false, df_handle_llama_completion, "Continue a prompt", "llama-server"},
    {"/completions", POST, false, false, df_handle_llama_completion, NULL, NULL},
    {"/tokenize", POST, false, false, df_handle_tokenize, "Text to token ids", "llama-server"},
    {"/detokenize", POST, false, false, df_handle_detokenize, "Token ids to text", "llama-server"},
    {"/apply-template", POST, false, false, df_handle_apply_template, "Messages to a prompt", "llama-server"},
    {"/props", GET, false, false, df_handle_props, "Settings of the server", "llama-server"},
    {"/slots", GET, false, false, df_handle_slots, "Requests at work", "llama-server"},
    {"/metrics", GET, false, true, df_handle_metrics, "Prometheus metrics", "Operation"},
    {"/version", GET, false, true, df_handle_version, "Version of the server", "Operation"},
    {"/openapi.json", GET, false, true, df_handle_openapi, "This description", "Operation"},
    {"/", GET, true, true, df_handle_web, NULL, NULL},
    {"/web/*", GET, true, true, df_handle_web, NULL, NULL},
    {"/favicon.ico", GET, true, true, df_handle_web, NULL, NULL},
};

const size_t df_route_count = DF_COUNT_OF(df_routes);

static bool path_matches(const char *pattern, const char *path) {
  const size_t n = strlen(pattern);
  if (pattern[n - 1] == '*') return strncmp(pattern, path, n - 1) == 0 && path[n - 1] != '\0';
  return strcmp(pattern, path) == 0;
}

const df_route *df_route_find(const char *path, df_http_method method, unsigned *allowed) {
  const df_route *found = NULL;
  if (method == DF_HTTP_HEAD) method = DF_HTTP_GET;
  *allowed = 0;
  for (size_t i = 0; i < df_route_count; i++) {
    const df_route *r = &df_routes[i];
    if (!path_matches(r->path, path)) continue;
    *allowed |= r->methods;
    if (!found && (r->methods & method)) found = r;
  }
  return found;
}

static void add_cors(const df_server *s, df_exchange *x) {
  if (!s->p.cors) return;
  df_exchange_header(x, "Access-Control-Allow-Origin", s->p.cors);
  df_exchange_header(x, "Access-Control-Expose-Headers", "x-request-id");
  if (strcmp(s->p.cors, "*") != 0) df_exchange_header(x, "Vary", "Origin");
}

static void method_list(unsigned methods, char *out, size_t cap) {
  (void)snprintf(out, cap, "%s%sOPTIONS", methods & GET ? "GET, HEAD, " : "", methods & POST ? "POST, " : "");
}

/* A browser asks what it may do. */
static void preflight(df_server *s, df_exchange *x, unsigned allowed) {
  char list[64];
  method_list(allowed, list, sizeof list);
  df_exchange_header(x, "Allow", list);
  if (s->p.cors) {
    df_exchange_header(x, "Access-Control-Allow-Methods", list);
    df_exchange_header(x, "Access-Control-Allow-Headers", "authorization, content-type, x-api-key, x-request-id");
    df_exchange_header(x, "Access-Control-Max-Age", "86400");
  }
  df_exchange_send(x, 204, NULL, NULL, 0);
}

/* False, and answered, when the request must not go on. */
static bool admit(df_server *s, df_exchange *x, const df_route *r) {
  if (s->p.n_keys && !r->open) {
    const char *key = df_key_presented(&x->head);
    if (!df_key_matches(s->p.keys, s->p.n_keys, key)) {
      df_reply_error(x, 401, "authentication_error", NULL, key ? "the API key is wrong" : "an API key is needed");
      return false;
    }
  }
  if (r->loading || s->phase == DF_PHASE_READY) return true;
  if (s->phase == DF_PHASE_DRAINING && s->n_ctx && (r->methods & GET)) return true; /* information stays */
  df_reply_error(x, 503, "unavailable_error", NULL,
                 s->phase == DF_PHASE_LOADING ? "the model is loading" : "the server is shutting down");
  return false;
}

void df_route_head(void *server, df_exchange *x) {
  df_server *s = server;
  unsigned allowed;
  const df_route *r = df_route_find(x->head.path, x->head.method, &allowed);
  add_cors(s, x);
  if (allowed == 0) {
    df_reply_error(x, 404, "not_found_error", NULL, "there is nothing at %.200s", x->head.path);
  } else if (x->head.method == DF_HTTP_OPTIONS) {
    preflight(s, x, allowed);
  } else if (!r) {
    char list[64];
    method_list(allowed, list, sizeof list);
    df_exchange_header(x, "Allow", list);
    df_reply_error(x, 405, "invalid_request_error", NULL, "%.40s is not a method of %.200s (%s)", x->head.method_name,
                   x->head.path, list);
  } else {
    (void)admit(s, x, r);
  }
}

void df_route_request(void *server, df_exchange *x) {
  df_server *s = server;
  unsigned allowed;
  const df_route *r = df_route_find(x->head.path, x->head.method, &allowed);
  if (r && admit(s, x, r)) r->handle(s, x); /* the phase may have changed while the body came */
}

void df_route_refuse(void *server, df_exchange *x, int status, const char *why) {
  add_cors(server, x);
  df_reply_error(x, status, status >= 500 ? "unavailable_error" : "invalid_request_error", NULL, "%s", why);
}

void df_route_done(void *server, const df_exchange *x) {
  df_server *s = server;
  const int kind = x->status == 499 || x->status < 100 ? 0 : x->status / 100;
  if (kind <= 5) s->metrics.http_requests[kind]++;
  df_log(DF_LOG_DEBUG, "%s \"%s %.200s\" %d %.1f ms %s", x->peer, x->head.method_name, x->head.path, x->status,
         (double)(df_now_ns() - x->t_start) / 1e6, x->id);
}
