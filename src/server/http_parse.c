#include "server/http_parse.h"

#include <string.h>
#include <strings.h>

#include "base/size.h"

size_t df_http_head_end(const char *p, size_t n) {
  const char *at = p, *end = p + n;
  while (at < end && (at = memchr(at, '\n', (size_t)(end - at))) != NULL) {
    at++;
    if (at < end && *at == '\n') return (size_t)(at + 1 - p);
    if (at + 1 < end && at[0] == '\r' && at[1] == '\n') return (size_t)(at + 2 - p);
  }
  return 0;
}

/* tchar of RFC 9110 section 5.6.2 */
static bool is_token(unsigned char c) {
  if ((c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z')) return true;
  return c != 0 && strchr("!#$%&'*+-.^_`|~", c) != NULL;
}

/* Cuts the next line out of the block: zero-terminated without its end. NULL at the end of the block or when the line
 * holds a zero byte or a lone carriage return. */
static char *next_line(char **at, const char *end) {
  char *line = *at, *lf = line < end ? memchr(line, '\n', (size_t)(end - line)) : NULL;
  if (!lf) return NULL;
  *at = lf + 1;
  if (lf > line && lf[-1] == '\r') lf--;
  *lf = '\0';
  if (strlen(line) != (size_t)(lf - line) || strchr(line, '\r')) return NULL;
  return line;
}

static const struct {
  const char *name;
  df_http_method method;
} methods[] = {{"GET", DF_HTTP_GET},       {"HEAD", DF_HTTP_HEAD},   {"POST", DF_HTTP_POST},      {"PUT", DF_HTTP_PUT},
               {"DELETE", DF_HTTP_DELETE}, {"PATCH", DF_HTTP_PATCH}, {"OPTIONS", DF_HTTP_OPTIONS}};

static int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

bool df_http_percent_decode(char *s) {
  char *to = s;
  for (; *s; s++) {
    if (*s != '%') {
      *to++ = *s;
      continue;
    }
    int hi = hex_digit(s[1]), lo = hi < 0 ? -1 : hex_digit(s[2]);
    if (lo < 0 || hi * 16 + lo == 0) return false;
    *to++ = (char)(hi * 16 + lo);
    s += 2;
  }
  *to = '\0';
  return true;
}

/* "http://host/path" is allowed in requests: only the path matters here. */
static char *origin_form(char *target) {
  if (strncasecmp(target, "http://", 7) != 0) return target;
  return strchr(target + 7, '/');
}

static int parse_request_line(char *line, df_http_head *h, const char **why) {
  *why = "the request line is not \"METHOD TARGET HTTP/1.1\"";
  char *sp = strchr(line, ' '), *version = sp ? strchr(sp + 1, ' ') : NULL;
  if (!sp || !version || sp == line || version == sp + 1) return 400;
  *sp = *version = '\0';
  for (const char *c = line; *c; c++) {
    if (!is_token((unsigned char)*c)) return 400;
  }
  if (strncmp(++version, "HTTP/", 5) != 0 || strlen(version) != 8 || version[6] != '.') return 400;
  if (version[5] != '1' || (version[7] != '0' && version[7] != '1')) {
    *why = "only HTTP/1.0 and HTTP/1.1 are spoken here";
    return 505;
  }
  h->minor = (unsigned)(version[7] - '0');
  h->method_name = line;
  h->method = DF_HTTP_OTHER;
  for (size_t i = 0; i < DF_COUNT_OF(methods); i++) {
    if (strcmp(methods[i].name, line) == 0) h->method = methods[i].method;
  }
  char *target = sp + 1;
  if (strlen(target) > DF_HTTP_TARGET_MAX) {
    *why = "the address is too long";
    return 414;
  }
  *why = "the address of the request is not a path";
  for (const char *c = target; *c; c++) {
    if ((unsigned char)*c <= 0x20 || *c == 0x7F) return 400;
  }
  target = origin_form(target);
  if (!target || (*target != '/' && strcmp(target, "*") != 0)) return 400;
  char *query = strchr(target, '?'), *fragment = strchr(target, '#');
  if (fragment) *fragment = '\0';
  if (query && fragment && query > fragment) query = NULL;
  h->query = query ? query + 1 : "";
  if (query) *query = '\0';
  if (!df_http_percent_decode(target)) return 400;
  h->path = target;
  return 0;
}

static int parse_header(char *line, df_http_head *h, const char **why) {
  *why = "a header line is not \"name: value\"";
  char *colon = strchr(line, ':');
  if (!colon || colon == line) return 400; /* folded lines begin with a blank and end here too */
  *colon = '\0';
  for (const char *c = line; *c; c++) {
    if (!is_token((unsigned char)*c)) return 400;
  }
  char *value = colon + 1 + strspn(colon + 1, " \t"), *end = value + strlen(value);
  while (end > value && (end[-1] == ' ' || end[-1] == '\t')) end--;
  *end = '\0';
  for (const char *c = value; *c; c++) {
    if (((unsigned char)*c < 0x20 && *c != '\t') || *c == 0x7F) {
      *why = "a header holds a control character";
      return 400;
    }
  }
  if (h->n_headers == DF_HTTP_HEADERS_MAX) {
    *why = "too many headers";
    return 431;
  }
  h->headers[h->n_headers++] = (df_http_header){line, value};
  return 0;
}

const char *df_http_header_get(const df_http_head *h, const char *name) {
  for (size_t i = 0; i < h->n_headers; i++) {
    if (strcasecmp(h->headers[i].name, name) == 0) return h->headers[i].value;
  }
  return NULL;
}

static size_t count_header(const df_http_head *h, const char *name) {
  size_t n = 0;
  for (size_t i = 0; i < h->n_headers; i++) n += strcasecmp(h->headers[i].name, name) == 0;
  return n;
}

/* Whether a comma-separated list holds a word, in any case. */
static bool list_has(const char *list, const char *word) {
  size_t len = strlen(word);
  while (list && *list) {
    list += strspn(list, ", \t");
    size_t n = strcspn(list, ",");
    while (n > 0 && (list[n - 1] == ' ' || list[n - 1] == '\t')) n--;
    if (n == len && strncasecmp(list, word, n) == 0) return true;
    list = strchr(list, ',');
  }
  return false;
}

static int parse_length(const char *text, int64_t *out) {
  int64_t v = 0;
  if (!*text) return 400;
  for (; *text; text++) {
    if (*text < '0' || *text > '9') return 400;
    if (v > (INT64_MAX - 9) / 10) return 413;
    v = v * 10 + (*text - '0');
  }
  *out = v;
  return 0;
}

/* How the body is framed and whether the connection stays. */
static int interpret(df_http_head *h, const char **why) {
  const char *coding = df_http_header_get(h, "transfer-encoding"), *length = df_http_header_get(h, "content-length");
  h->length = -1;
  if (count_header(h, "content-length") > 1 || (coding && length)) {
    *why = "the length of the body is stated twice";
    return 400;
  }
  if (coding) {
    *why = "only the transfer coding \"chunked\" is known here";
    if (count_header(h, "transfer-encoding") > 1 || strcasecmp(coding, "chunked") != 0 || h->minor == 0) return 501;
    h->chunked = true;
  }
  if (length) {
    *why = "Content-Length is not a number";
    int status = parse_length(length, &h->length);
    if (status) return status;
  }
  *why = "the header Host is missing or stated twice";
  if (h->minor == 1 && count_header(h, "host") != 1) return 400;
  const char *connection = df_http_header_get(h, "connection");
  h->keep_alive = h->minor == 1 ? !list_has(connection, "close") : list_has(connection, "keep-alive");
  const char *expect = df_http_header_get(h, "expect");
  *why = "only the expectation \"100-continue\" is known here";
  if (expect && strcasecmp(expect, "100-continue") != 0) return 417;
  h->expect_continue = expect != NULL && h->minor == 1;
  return 0;
}

int df_http_head_parse(char *block, size_t n, df_http_head *h, const char **why) {
  char *at = block, *line = next_line(&at, block + n);
  memset(h, 0, sizeof *h);
  h->method = DF_HTTP_OTHER, h->method_name = "?", h->path = "?", h->query = "", h->length = -1;
  *why = "the request holds a zero byte or a lone carriage return";
  if (!line) return 400;
  int status = parse_request_line(line, h, why);
  if (status) {
    h->method_name = "?", h->path = "?", h->query = "";
    return status;
  }
  for (;;) {
    *why = "the request holds a zero byte or a lone carriage return";
    line = next_line(&at, block + n);
    if (!line) return 400;
    if (!*line) break;
    status = parse_header(line, h, why);
    if (status) return status;
  }
  return interpret(h, why);
}

bool df_http_query_get(const char *query, const char *key, char *out, size_t cap) {
  size_t len = strlen(key);
  for (const char *p = query; *p;) {
    size_t n = strcspn(p, "&");
    if (n >= len && strncmp(p, key, len) == 0 && (n == len || p[len] == '=')) {
      size_t from = n == len ? len : len + 1, m = DF_MIN(n - from, cap - 1);
      memcpy(out, p + from, m);
      out[m] = '\0';
      for (char *c = out; *c; c++) {
        if (*c == '+') *c = ' ';
      }
      return df_http_percent_decode(out);
    }
    p += n;
    p += *p == '&';
  }
  return false;
}

/* ---- chunks ---- */

enum { CHUNK_SIZE, CHUNK_EXTENSION, CHUNK_DATA, CHUNK_DATA_CR, CHUNK_DATA_LF, CHUNK_TRAILER };
enum { CHUNK_LINE_MAX = 4096, CHUNK_OVERHEAD_MAX = 4 << 20 };

/* One byte of a size line. */
static int size_byte(df_http_chunks *c, char b) {
  if (++c->line > CHUNK_LINE_MAX) return 400;
  if (b == '\n') {
    if (c->digits == 0) return 400;
    c->state = c->left == 0 ? CHUNK_TRAILER : CHUNK_DATA;
    c->line = 0, c->digits = 0;
    return 0;
  }
  if (c->state == CHUNK_EXTENSION || b == '\r') return 0;
  int d = hex_digit(b);
  if (d < 0) {
    if ((b != ';' && b != ' ' && b != '\t') || c->digits == 0) return 400;
    c->state = CHUNK_EXTENSION;
    return 0;
  }
  if (++c->digits > 15) return 413;
  c->left = c->left * 16 + (uint64_t)d;
  return 0;
}

/* One byte of the lines behind the last chunk; an empty one ends the body. */
static int trailer_byte(df_http_chunks *c, char b) {
  if (b == '\r') return 0;
  if (b == '\n') {
    if (c->line == 0) return 1;
    c->line = 0;
    return 0;
  }
  return ++c->line > CHUNK_LINE_MAX ? 400 : 0;
}

int df_http_chunks_feed(df_http_chunks *c, const char *p, size_t n, size_t *used, df_buf *out, size_t max) {
  size_t i = 0;
  *used = 0;
  int status = 0;
  while (i < n && status == 0) {
    if (c->state == CHUNK_DATA) {
      size_t m = DF_MIN(n - i, (size_t)DF_MIN(c->left, (uint64_t)SIZE_MAX));
      if (out->len > max || m > max - out->len) return 413;
      if (df_buf_put(out, p + i, m, NULL) != DF_OK) return 500;
      i += m, c->left -= m;
      if (c->left == 0) c->state = CHUNK_DATA_CR;
      continue;
    }
    char b = p[i++];
    if (++c->overhead > CHUNK_OVERHEAD_MAX) return 413;
    switch (c->state) {
      case CHUNK_DATA_CR:
        if (b != '\r' && b != '\n') return 400;
        c->state = b == '\r' ? CHUNK_DATA_LF : CHUNK_SIZE;
        break;
      case CHUNK_DATA_LF:
        if (b != '\n') return 400;
        c->state = CHUNK_SIZE;
        break;
      case CHUNK_TRAILER: status = trailer_byte(c, b); break;
      default: status = size_byte(c, b); break;
    }
    /* a size beyond the limit is refused before its data come */
    if (status == 0 && c->state == CHUNK_DATA && (c->left > max || out->len > max - c->left)) return 413;
  }
  *used = i;
  return status;
}

const char *df_http_reason(int status) {
  static const struct {
    int status;
    const char *text;
  } reasons[] = {{200, "OK"},
                 {204, "No Content"},
                 {304, "Not Modified"},
                 {400, "Bad Request"},
                 {401, "Unauthorized"},
                 {404, "Not Found"},
                 {405, "Method Not Allowed"},
                 {408, "Request Timeout"},
                 {411, "Length Required"},
                 {413, "Content Too Large"},
                 {414, "URI Too Long"},
                 {417, "Expectation Failed"},
                 {429, "Too Many Requests"},
                 {431, "Request Header Fields Too Large"},
                 {500, "Internal Server Error"},
                 {501, "Not Implemented"},
                 {503, "Service Unavailable"},
                 {504, "Gateway Timeout"},
                 {505, "HTTP Version Not Supported"}};
  for (size_t i = 0; i < DF_COUNT_OF(reasons); i++) {
    if (reasons[i].status == status) return reasons[i].text;
  }
  return "Unknown";
}
