/*
 * server/http.h - HTTP/1.1 connections on libevent buffers: one exchange (request and response) at a time for each,
 * whole or streamed responses, limits, deadlines, and the news that a client has left.
 *
 * libevent's own evhttp is not used: it answers malformed requests with HTML pages, does not see a client leave before
 * a response has begun, and lets a slow sender hold a connection for ever.
 *
 * Life of an exchange: ops.head is called when the head is in, ops.request when the body is in. The handler answers at
 * once or later, with df_exchange_send, or df_exchange_begin / write / end; after send, end or abort the exchange is
 * gone. When the client leaves first, x->on_gone is called and the exchange is gone after it.
 *
 * Ownership: the exchange belongs to its connection. Threads: the loop's thread only.
 */
#ifndef DF_SERVER_HTTP_H
#define DF_SERVER_HTTP_H

#include "server/http_parse.h"

struct event_base;
typedef struct df_http df_http;
typedef struct df_exchange df_exchange;

enum {
  DF_HTTP_ID_MAX = 128,
  DF_HTTP_OUT_MAX = 128 << 10, /* of a stream waiting for a slow reader, beyond what the system buffers */
  DF_HTTP_IDLE_S = 300,        /* a connection without a request */
  DF_HTTP_HEAD_S = 10,         /* from the first byte of a head to its last */
  DF_HTTP_BODY_S = 60,         /* from the end of the head to the last byte of the body */
  DF_HTTP_WRITE_S = 30,        /* without a byte taken by the client */
  DF_HTTP_LINGER_S = 3         /* after an early answer, for the client to read it */
};

struct df_exchange {
  void *conn; /* private */
  df_http_head head;
  df_buf body;
  char id[DF_HTTP_ID_MAX + 1]; /* of the request: the client's x-request-id or one of ours */
  char peer[64];               /* address of the client */
  uint64_t t_start;            /* df_now_ns when the head was in */
  void *user;                  /* of the handler */
  void (*on_gone)(df_exchange *x);
  df_buf extra; /* more response headers, whole lines */
  bool streaming;
  int status; /* of the response, 0 before */
};

typedef struct df_http_ops {
  /* Before the body comes; answers (404, 401, ...) or returns without doing so to go on. */
  void (*head)(void *user, df_exchange *x);
  void (*request)(void *user, df_exchange *x);
  /* The connection layer must refuse: answer with this status and text. x->head may be empty. */
  void (*refuse)(void *user, df_exchange *x, int status, const char *why);
  /* A response is complete, or the client left before (status 499). */
  void (*done)(void *user, const df_exchange *x);
} df_http_ops;

typedef struct df_http_params {
  const char *host;
  uint16_t port; /* 0 = a free one */
  size_t max_body;
  uint32_t max_connections;
  uint32_t write_s; /* 0 = DF_HTTP_WRITE_S */
  df_http_ops ops;
  void *user;
} df_http_params;

/* The loop for df_http_create: for one thread, and its deadlines count from the moment they are set. event_base_free;
 * NULL without memory. */
struct event_base *df_http_base(void);
/* Binds and listens. DF_ERR_IO (address in use, unknown host), DF_ERR_MEMORY. */
df_status df_http_create(struct event_base *base, const df_http_params *p, df_http **out, df_error *err) DF_CHECK;
void df_http_free(df_http *h); /* closes everything at once; handlers are not called. NULL is fine */
uint16_t df_http_port(const df_http *h);
/* From now on every response closes its connection, and idle connections are closed. */
void df_http_drain(df_http *h);
/* Connections with an exchange or unsent bytes. */
uint32_t df_http_busy(const df_http *h);
uint32_t df_http_connections(const df_http *h);

/* Adds a response header (name and value are ours or checked: no line breaks). */
void df_exchange_header(df_exchange *x, const char *name, const char *value);
/* The whole response. type NULL: none. Closes the connection afterwards when the request was not read to its end. */
void df_exchange_send(df_exchange *x, int status, const char *type, const void *body, size_t n);
/* A response in pieces. write returns false when the client is too slow or memory is out: abort then. */
bool df_exchange_begin(df_exchange *x, int status, const char *type) DF_CHECK;
bool df_exchange_write(df_exchange *x, const void *p, size_t n) DF_CHECK;
void df_exchange_end(df_exchange *x);
/* Cuts the connection. */
void df_exchange_abort(df_exchange *x);

#endif
