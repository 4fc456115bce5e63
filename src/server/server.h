/*
 * server/server.h - an HTTP server over a scheduler: OpenAI's, SGLang's and llama-server's endpoints, metrics, a page.
 *
 * df_serve listens first and loads second, so that /health tells the truth while the model loads; it returns when the
 * server has been told to stop (SIGTERM, SIGINT) and has drained, or could not start.
 *
 * Ownership: everything in the params is borrowed for the call. Threads: the caller's thread runs the loop; `load` runs
 * on a thread of its own.
 */
#ifndef DF_SERVER_SERVER_H
#define DF_SERVER_SERVER_H

#include "engine/scheduler.h"

/* What `load` brings. */
typedef struct df_serve_model {
  df_model *model;
  df_draft *draft;           /* NULL = no drafting */
  const char *alias;         /* name that clients see */
  const char *model_path;    /* shown by /props and /get_model_info */
  const char *draft_path;    /* NULL without */
  uint32_t width;            /* rows of a verify block, 1 without a draft */
  const char *template_text; /* chat template instead of the model's own, or NULL */
} df_serve_model;

/* What a request gets that says nothing. */
typedef struct df_serve_defaults {
  df_sampling_params sampling;
  bool random_seed;   /* draw one for every request that gives none; else sampling.seed */
  int64_t max_tokens; /* -1 = as the endpoint's own engine does it: see docs/server.md */
} df_serve_defaults;

typedef struct df_serve_params {
  const char *host;
  uint16_t port; /* 0 = a free one */
  const char *const *keys;
  uint32_t n_keys;  /* 0 = no key is needed */
  const char *cors; /* origin that browsers may call from, "*" = any; NULL = none */
  size_t max_body;  /* bytes of a request */
  uint32_t max_connections;
  double request_timeout_s; /* 0 = none */
  double drain_timeout_s;
  bool strict_model; /* 404 for requests that name another model */
  df_serve_defaults defaults;
  df_sched_params sched; /* wake and user are set by the server */
  /* Opens the models and completes *sched: session.n_ctx must not be 0 afterwards. What it opened is freed by the
   * caller after df_serve. */
  df_status (*load)(void *user, df_serve_model *out, df_sched_params *sched, df_error *err);
  void (*cancel_load)(void *user); /* a signal came while loading */
  void (*listening)(void *user, const char *host, uint16_t port);
  void (*ready)(void *user, const char *host, uint16_t port);
  void (*draining)(void *user, uint32_t requests);
  const char *notify_socket; /* NOTIFY_SOCKET of systemd, or NULL */
  void *user;
} df_serve_params;

/* DF_ERR_IO (cannot listen), MEMORY, or whatever `load` and the scheduler return. */
df_status df_serve(const df_serve_params *p, df_error *err) DF_CHECK;

#endif
