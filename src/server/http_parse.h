/*
 * server/http_parse.h - HTTP/1.x text to structures: request heads, chunked bodies, percent-encoding. Pure functions
 * without sockets, so that they can be fuzzed.
 *
 * Strict where leniency lets two programs read one request differently (RFC 9112 sections 5 and 6): no folded header
 * lines, no space before a colon, no two lengths, no length beside chunks, no control characters.
 *
 * Trust:     everything here comes from strangers; every count and length is bounded by the numbers below.
 * Ownership: a head points into the block it was parsed from. Threads: no state.
 */
#ifndef DF_SERVER_HTTP_PARSE_H
#define DF_SERVER_HTTP_PARSE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"

enum {
  DF_HTTP_HEAD_MAX = 32 << 10,  /* browsers with many cookies reach 16 KiB */
  DF_HTTP_TARGET_MAX = 8 << 10, /* the length that RFC 9110 asks servers to take */
  DF_HTTP_HEADERS_MAX = 100
};

typedef enum df_http_method {
  DF_HTTP_GET = 1 << 0,
  DF_HTTP_HEAD = 1 << 1,
  DF_HTTP_POST = 1 << 2,
  DF_HTTP_PUT = 1 << 3,
  DF_HTTP_DELETE = 1 << 4,
  DF_HTTP_PATCH = 1 << 5,
  DF_HTTP_OPTIONS = 1 << 6,
  DF_HTTP_OTHER = 1 << 7
} df_http_method;

typedef struct df_http_header {
  const char *name, *value; /* zero-terminated; value without blanks around it */
} df_http_header;

typedef struct df_http_head {
  df_http_method method;
  const char *method_name;
  const char *path;  /* percent-decoded, begins with '/' (or is "*") */
  const char *query; /* as sent, "" when there is none */
  unsigned minor;    /* HTTP/1.minor: 0 or 1 */
  df_http_header headers[DF_HTTP_HEADERS_MAX];
  size_t n_headers;
  int64_t length; /* of the body; -1 = none stated */
  bool chunked, keep_alive, expect_continue;
} df_http_head;

/* Offset behind the empty line that ends a head, or 0 while it is not there. Lines end with CR LF or LF. */
size_t df_http_head_end(const char *p, size_t n);

/* Parses block[0..n), a whole head with its empty line, in place (zeros are written into it). 0, or the status to
 * answer: 400, 414, 417, 431, 501 (transfer coding), 505; *why then says what is wrong (static text). */
int df_http_head_parse(char *block, size_t n, df_http_head *out, const char **why);

/* Value of a header by its name in any case, or NULL. */
const char *df_http_header_get(const df_http_head *h, const char *name);

/* Replaces %XX in place; false when it is broken or hides a zero byte. */
bool df_http_percent_decode(char *s);
/* Value of a key in a query string, decoded into out (cut at cap); false when absent. */
bool df_http_query_get(const char *query, const char *key, char *out, size_t cap);

/* A chunked body as it comes in (RFC 9112 section 7.1). */
typedef struct df_http_chunks {
  int state;
  uint64_t left; /* bytes of this chunk that are still to come; its size while the size line is read */
  uint32_t digits, line;
  uint32_t overhead; /* bytes that are no data, all chunks: a body of one-byte chunks with long extensions ends here */
} df_http_chunks;

/* Takes what it can of p[0..n), appends data to out (at most max bytes altogether) and sets *used. Returns 0 for more,
 * 1 when the body is complete, else the status to answer: 400, 413, 500 (no memory). */
int df_http_chunks_feed(df_http_chunks *c, const char *p, size_t n, size_t *used, df_buf *out, size_t max);

/* "OK", "Not Found", ... */
const char *df_http_reason(int status);

#endif
