#include "server/http.h"

#include <errno.h>
#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <event2/event.h>
#include <event2/listener.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "server/http_socket.h"

typedef enum conn_state {
  CONN_IDLE,   /* no byte of a request yet */
  CONN_HEAD,   /* within a head */
  CONN_BODY,   /* within a body */
  CONN_BUSY,   /* the handler has the request */
  CONN_FLUSH,  /* the last response leaves, then the connection closes */
  CONN_LINGER, /* our side is closed; what the client still sends is thrown away so that it can read the response */
  CONN_DEAD    /* to be freed */
} conn_state;

enum {
  PIPELINE_MAX = 64 << 10,   /* bytes that may come while a request is at work */
  LINGER_BYTES = 64 << 20,   /* thrown away at most after an early answer */
  BODY_PIECE_MAX = 256 << 10 /* taken at once */
};

/* A beat of one second that comes later than this: the process stood still. */
#define STALL_NS UINT64_C(3000000000)

typedef struct conn conn;
struct conn {
  df_http *http;
  conn *next, *prev;
  struct bufferevent *bev;
  struct event *deadline;
  evutil_socket_t fd;
  conn_state state;
  bool processing; /* conn_process is on the stack */
  bool whole;      /* the body was read to its end */
  bool close;      /* after this response */
  bool chunked;    /* the response */
  bool broken;     /* bytes were lost: abort */
  bool has_exchange;
  char *block; /* the head's bytes */
  df_http_chunks chunks;
  size_t lingered;
  df_exchange x;
};

struct df_http {
  struct event_base *base;
  struct evconnlistener *listener;
  struct event *beat;             /* every second */
  uint64_t t_beat, t_stood_still; /* df_now_ns; the end of the last stall, 0 = there was none */
  df_http_params p;
  conn *conns;
  uint32_t n_conns;
  uint16_t port;
  bool draining;
  uint64_t next_id, id_salt;
};

static void conn_process(conn *c);

/* ---- life of a connection ---- */

static void conn_deadline(conn *c, int seconds) {
  const struct timeval tv = {.tv_sec = seconds};
  (void)event_add(c->deadline, &tv); /* cannot fail: the event has room in the heap since it was made */
}

/* A process that was stopped, or had no processor, finds all deadlines passed when it goes on, and libevent forgets
 * what could be read or written meanwhile: clients that did nothing wrong. They get the whole time anew. */
static bool excused(const df_http *h, int seconds) {
  const uint64_t now = df_now_ns(), most = (uint64_t)seconds * 1000000000u;
  return now - h->t_beat > STALL_NS || (h->t_stood_still && now - h->t_stood_still < most);
}

static void on_beat(evutil_socket_t fd, short what, void *arg) {
  df_http *h = arg;
  const uint64_t now = df_now_ns();
  (void)fd, (void)what;
  if (now - h->t_beat > STALL_NS) h->t_stood_still = now;
  h->t_beat = now;
}

static void exchange_release(conn *c) {
  if (!c->has_exchange) return;
  c->has_exchange = false;
  df_free(c->block);
  c->block = NULL;
  df_buf_release(&c->x.body);
  df_buf_release(&c->x.extra);
}

static void conn_free(conn *c) {
  df_http *h = c->http;
  if (c->processing) { /* its frame still looks at it */
    c->state = CONN_DEAD;
    return;
  }
  exchange_release(c);
  if (c->prev)
    c->prev->next = c->next;
  else
    h->conns = c->next;
  if (c->next) c->next->prev = c->prev;
  h->n_conns--;
  if (c->deadline) event_free(c->deadline);
  if (c->bev)
    bufferevent_free(c->bev); /* closes the socket */
  else
    (void)evutil_closesocket(c->fd);
  df_free(c);
}

/* The client is not there any more. */
static void conn_gone(conn *c) {
  if (c->state == CONN_DEAD) return;
  if (c->has_exchange) {
    df_exchange *x = &c->x;
    void (*on_gone)(df_exchange *) = x->on_gone;
    bool unanswered = c->state == CONN_BUSY;
    x->on_gone = NULL;
    if (unanswered) {
      x->status = 499;
      if (on_gone) on_gone(x);
      c->http->p.ops.done(c->http->p.user, x);
    }
  }
  conn_free(c);
}

static void conn_linger(conn *c) {
  c->state = CONN_LINGER;
  (void)shutdown(c->fd, SHUT_WR);
  conn_deadline(c, DF_HTTP_LINGER_S);
}

/* All bytes of the last response have left. */
static void conn_flushed(conn *c) {
  if (c->whole)
    conn_free(c);
  else
    conn_linger(c);
}

/* The exchange is over. */
static void conn_finished(conn *c) {
  bool close = c->close || !c->whole || c->http->draining || !c->x.head.keep_alive;
  c->http->p.ops.done(c->http->p.user, &c->x);
  exchange_release(c);
  if (c->broken) {
    conn_free(c);
    return;
  }
  if (close) {
    c->state = CONN_FLUSH;
    conn_deadline(c, DF_HTTP_WRITE_S * 4);
    if (evbuffer_get_length(bufferevent_get_output(c->bev)) == 0) conn_flushed(c);
    return;
  }
  c->state = CONN_IDLE;
  conn_deadline(c, DF_HTTP_IDLE_S);
  conn_process(c);
}

/* ---- responses ---- */

static void conn_put(conn *c, const void *p, size_t n) {
  struct evbuffer *out = bufferevent_get_output(c->bev);
  const bool idle = evbuffer_get_length(out) == 0;
  if (!c->broken && evbuffer_add(out, p, n) != 0) c->broken = true;
  /* libevent starts to write by itself, but keeps quiet when it lacked memory for that: the bytes would lie for ever.
   */
  if (!c->broken && idle && bufferevent_enable(c->bev, EV_WRITE) != 0) c->broken = true;
}

static void http_date(char *out, size_t cap) {
  time_t now = time(NULL);
  struct tm tm;
  if (!gmtime_r(&now, &tm) || strftime(out, cap, "%a, %d %b %Y %H:%M:%S GMT", &tm) == 0) out[0] = '\0';
}

static void put_head(conn *c, int status, const char *type, const char *framing) {
  df_exchange *x = &c->x;
  char head[1024], date[64];
  bool close = c->close || !c->whole || c->http->draining || !x->head.keep_alive;
  http_date(date, sizeof date);
  int n = snprintf(head, sizeof head,
                   "HTTP/1.1 %d %s\r\nDate: %s\r\nServer: dflash/" DF_VERSION
                   "\r\nx-request-id: %s\r\n%s%s%s%s"
                   "Connection: %s\r\n",
                   status, df_http_reason(status), date, x->id, type ? "Content-Type: " : "", type ? type : "",
                   type ? "\r\n" : "", framing, close ? "close" : "keep-alive");
  x->status = status;
  conn_put(c, head, (size_t)n < sizeof head ? (size_t)n : sizeof head - 1);
  if (x->extra.len) conn_put(c, x->extra.data, x->extra.len);
  conn_put(c, "\r\n", 2);
}

void df_exchange_header(df_exchange *x, const char *name, const char *value) {
  size_t mark = x->extra.len;
  if (df_buf_printf(&x->extra, NULL, "%s: %s\r\n", name, value) != DF_OK) x->extra.len = mark;
}

void df_exchange_send(df_exchange *x, int status, const char *type, const void *body, size_t n) {
  conn *c = x->conn;
  char framing[64] = "";
  if (status != 204 && status != 304) (void)snprintf(framing, sizeof framing, "Content-Length: %zu\r\n", n);
  put_head(c, status, type, framing);
  if (x->head.method != DF_HTTP_HEAD && n > 0) conn_put(c, body, n);
  conn_finished(c);
}

bool df_exchange_begin(df_exchange *x, int status, const char *type) {
  conn *c = x->conn;
  c->chunked = x->head.minor == 1;
  if (!c->chunked) c->close = true;
  x->streaming = true;
  put_head(c, status, type, c->chunked ? "Transfer-Encoding: chunked\r\n" : "");
  return !c->broken;
}

bool df_exchange_write(df_exchange *x, const void *p, size_t n) {
  conn *c = x->conn;
  char size[24];
  if (n == 0) return !c->broken;
  if (c->chunked) conn_put(c, size, (size_t)snprintf(size, sizeof size, "%zx\r\n", n));
  conn_put(c, p, n);
  if (c->chunked) conn_put(c, "\r\n", 2);
  return !c->broken && evbuffer_get_length(bufferevent_get_output(c->bev)) <= DF_HTTP_OUT_MAX;
}

void df_exchange_end(df_exchange *x) {
  conn *c = x->conn;
  if (c->chunked) conn_put(c, "0\r\n\r\n", 5);
  c->chunked = false;
  conn_finished(c);
}

void df_exchange_abort(df_exchange *x) {
  conn *c = x->conn;
  c->http->p.ops.done(c->http->p.user, x);
  conn_free(c);
}

/* ---- requests ---- */

static bool id_ok(const char *s) {
  size_t n = strlen(s);
  if (n == 0 || n > DF_HTTP_ID_MAX) return false;
  for (; *s; s++) {
    if (*s <= 0x20 || *s > 0x7E) return false;
  }
  return true;
}

static void exchange_begin(conn *c) {
  df_http *h = c->http;
  df_exchange *x = &c->x;
  memset(x, 0, sizeof *x);
  x->conn = c;
  x->head.method = DF_HTTP_OTHER, x->head.method_name = "?", x->head.path = "?", x->head.query = "";
  x->head.length = -1;
  x->t_start = df_now_ns();
  df_buf_init(&x->body, h->p.max_body);
  df_buf_init(&x->extra, 4096);
  (void)snprintf(x->id, sizeof x->id, "req-%016llx", (unsigned long long)((++h->next_id ^ h->id_salt)));
  c->has_exchange = true;
  c->whole = c->close = c->chunked = false;
  memset(&c->chunks, 0, sizeof c->chunks);
  struct sockaddr_storage sa;
  socklen_t len = sizeof sa;
  if (getpeername(c->fd, (struct sockaddr *)&sa, &len) != 0 ||
      getnameinfo((struct sockaddr *)&sa, len, x->peer, sizeof x->peer, NULL, 0, NI_NUMERICHOST) != 0)
    (void)snprintf(x->peer, sizeof x->peer, "?");
}

static void refuse(conn *c, int status, const char *why) {
  c->state = CONN_BUSY;
  c->close = true;
  c->http->p.ops.refuse(c->http->p.user, &c->x, status, why);
}

/* Takes a head from the input when it is whole. False = wait for more. */
static bool take_head(conn *c) {
  struct evbuffer *in = bufferevent_get_input(c->bev);
  for (;;) { /* empty lines before a request are ignored (RFC 9112 section 2.2) */
    char b[1];
    if (evbuffer_copyout(in, b, 1) < 1) break;
    if (b[0] != '\r' && b[0] != '\n') break;
    (void)evbuffer_drain(in, 1);
  }
  size_t have = evbuffer_get_length(in);
  if (have == 0) return false;
  if (c->state == CONN_IDLE) {
    c->state = CONN_HEAD;
    conn_deadline(c, DF_HTTP_HEAD_S);
  }
  size_t look = have < DF_HTTP_HEAD_MAX ? have : DF_HTTP_HEAD_MAX;
  const char *p = (const char *)evbuffer_pullup(in, (ev_ssize_t)look);
  size_t n = p ? df_http_head_end(p, look) : 0;
  if (p && n == 0 && have < DF_HTTP_HEAD_MAX) return false;
  exchange_begin(c);
  if (!p) {
    refuse(c, 503, "out of memory");
    return true;
  }
  if (n == 0) {
    refuse(c, 431, "the head of the request is too long");
    return true;
  }
  c->block = df_alloc(n + 1);
  if (!c->block || evbuffer_remove(in, c->block, n) != (int)n) {
    refuse(c, 503, "out of memory");
    return true;
  }
  c->block[n] = '\0';
  const char *why = "";
  int status = df_http_head_parse(c->block, n, &c->x.head, &why);
  const char *id = df_http_header_get(&c->x.head, "x-request-id");
  if (id && id_ok(id)) (void)snprintf(c->x.id, sizeof c->x.id, "%s", id);
  if (status == 0 && c->x.head.length > 0 && (uint64_t)c->x.head.length > c->http->p.max_body)
    status = 413, why = "the body is too large";
  if (status) {
    refuse(c, status, why);
    return true;
  }
  c->state = CONN_BODY;
  c->whole = c->x.head.length <= 0 && !c->x.head.chunked;
  c->http->p.ops.head(c->http->p.user, &c->x);
  if (c->state != CONN_BODY) return true; /* answered */
  if (!c->whole) {
    conn_deadline(c, DF_HTTP_BODY_S);
    if (c->x.head.expect_continue && evbuffer_get_length(in) == 0) conn_put(c, "HTTP/1.1 100 Continue\r\n\r\n", 25);
  }
  return true;
}

static void request_ready(conn *c) {
  c->whole = true;
  c->state = CONN_BUSY;
  (void)event_del(c->deadline);
  c->http->p.ops.request(c->http->p.user, &c->x);
}

/* Takes what there is of the body. False = wait for more. */
static bool take_body(conn *c) {
  struct evbuffer *in = bufferevent_get_input(c->bev);
  df_exchange *x = &c->x;
  if (c->whole) {
    request_ready(c);
    return true;
  }
  size_t have = evbuffer_get_length(in);
  if (have == 0) return false;
  if (have > BODY_PIECE_MAX) have = BODY_PIECE_MAX;
  if (!x->head.chunked) {
    size_t left = (size_t)x->head.length - x->body.len;
    if (have > left) have = left;
    if (df_buf_reserve(&x->body, have, NULL) != DF_OK ||
        evbuffer_remove(in, x->body.data + x->body.len, have) != (int)have) {
      refuse(c, 503, "out of memory");
      return true;
    }
    x->body.len += have;
    x->body.data[x->body.len] = '\0';
    if (x->body.len == (size_t)x->head.length) request_ready(c);
    return true;
  }
  const char *p = (const char *)evbuffer_pullup(in, (ev_ssize_t)have);
  size_t used = 0;
  int status = p ? df_http_chunks_feed(&c->chunks, p, have, &used, &x->body, c->http->p.max_body) : 500;
  (void)evbuffer_drain(in, used);
  if (status > 1)
    refuse(c, status == 500 ? 503 : status,
           status == 413   ? "the body is too large"
           : status == 500 ? "out of memory"
                           : "the chunks of the body are broken");
  else if (status == 1)
    request_ready(c);
  return true;
}

/* Goes on as far as the input reaches. */
static void conn_process(conn *c) {
  if (c->processing) return;
  c->processing = true;
  bool more = true;
  while (more && c->state <= CONN_BODY) more = c->state == CONN_BODY ? take_body(c) : take_head(c);
  c->processing = false;
  if (c->state == CONN_DEAD) conn_free(c);
}

/* ---- libevent's callbacks ---- */

static void on_read(struct bufferevent *bev, void *arg) {
  conn *c = arg;
  struct evbuffer *in = bufferevent_get_input(bev);
  if (c->state == CONN_BUSY) {
    if (evbuffer_get_length(in) > PIPELINE_MAX) conn_gone(c);
    return;
  }
  if (c->state == CONN_FLUSH || c->state == CONN_LINGER) {
    c->lingered += evbuffer_get_length(in);
    (void)evbuffer_drain(in, evbuffer_get_length(in));
    if (c->lingered > LINGER_BYTES) conn_free(c);
    return;
  }
  conn_process(c);
}

static void on_write(struct bufferevent *bev, void *arg) {
  (void)bev;
  conn *c = arg;
  if (c->state == CONN_FLUSH) conn_flushed(c);
}

/* End, error or a write that makes no progress: nobody is there. */
static void on_event(struct bufferevent *bev, short what, void *arg) {
  const df_http *h = ((conn *)arg)->http;
  if ((what & BEV_EVENT_TIMEOUT) && excused(h, (int)h->p.write_s) && bufferevent_enable(bev, EV_WRITE) == 0) return;
  conn_gone(arg);
}

static void on_deadline(evutil_socket_t fd, short what, void *arg) {
  (void)fd, (void)what;
  conn *c = arg;
  const int again = c->state == CONN_IDLE ? DF_HTTP_IDLE_S : c->state == CONN_HEAD ? DF_HTTP_HEAD_S : DF_HTTP_BODY_S;
  if (c->state <= CONN_BODY && excused(c->http, again)) {
    conn_deadline(c, again);
    return;
  }
  switch (c->state) {
    case CONN_HEAD:
      exchange_begin(c);
      refuse(c, 408, "the head of the request took too long");
      break;
    case CONN_BODY: refuse(c, 408, "the body of the request took too long"); break;
    case CONN_BUSY: break; /* requests have their own time limit */
    default: conn_free(c); break;
  }
}

static void on_accept(struct evconnlistener *l, evutil_socket_t fd, struct sockaddr *sa, int len, void *arg) {
  (void)l, (void)sa, (void)len;
  df_http *h = arg;
  conn *c = h->n_conns < h->p.max_connections ? df_calloc(1, sizeof *c) : NULL;
  if (!c) {
    df_http_turn_away(fd);
    return;
  }
  c->http = h, c->fd = fd;
  c->next = h->conns;
  if (c->next) c->next->prev = c;
  h->conns = c;
  h->n_conns++;
  df_http_socket_options(fd);
  c->bev = bufferevent_socket_new(h->base, fd, BEV_OPT_CLOSE_ON_FREE);
  c->deadline = event_new(h->base, -1, 0, on_deadline, c);
  const struct timeval stuck = {.tv_sec = h->p.write_s}, idle = {.tv_sec = DF_HTTP_IDLE_S};
  if (!c->bev || !c->deadline || event_add(c->deadline, &idle) != 0) {
    conn_free(c);
    return;
  }
  bufferevent_setcb(c->bev, on_read, on_write, on_event, c);
  /* Reading never stops: this is how a client that leaves is seen in every state. */
  if (bufferevent_set_timeouts(c->bev, NULL, &stuck) != 0 || bufferevent_enable(c->bev, EV_READ | EV_WRITE) != 0)
    conn_free(c);
}

/* Out of descriptors: wait for some to come back instead of spinning. */
static void on_accept_again(evutil_socket_t fd, short what, void *arg) {
  (void)fd, (void)what;
  (void)evconnlistener_enable(((df_http *)arg)->listener);
}

static void on_accept_error(struct evconnlistener *l, void *arg) {
  df_http *h = arg;
  const struct timeval tv = {.tv_usec = 100000};
  df_log(DF_LOG_WARN, "could not accept a connection: %s", strerror(EVUTIL_SOCKET_ERROR()));
  if (event_base_once(h->base, -1, EV_TIMEOUT, on_accept_again, h, &tv) == 0) (void)evconnlistener_disable(l);
}

/* ---- the listener ---- */

static df_status bind_any(df_http *h, const struct addrinfo *list, df_error *err) {
  int last = 0;
  for (const struct addrinfo *a = list; a; a = a->ai_next) {
    h->listener = evconnlistener_new_bind(h->base, on_accept, h,
                                          LEV_OPT_CLOSE_ON_FREE | LEV_OPT_REUSEABLE | LEV_OPT_CLOSE_ON_EXEC, 1024,
                                          a->ai_addr, (int)a->ai_addrlen);
    if (h->listener) return DF_OK;
    last = errno;
  }
  df_status st = DF_FAIL(err, DF_ERR_IO, "could not listen on %s port %u: %s", h->p.host, (unsigned)h->p.port,
                         last ? strerror(last) : "no address");
  if (last == EADDRINUSE) df_error_hint(err, "another program uses the port; choose one with --port, or --port 0");
  return st;
}

struct event_base *df_http_base(void) {
  struct event_config *config = event_config_new();
  if (!config) return NULL;
  (void)event_config_set_flag(config, EVENT_BASE_FLAG_NOLOCK);
  /* Otherwise a deadline set after a long piece of work counts from before it, and has passed at once. */
  (void)event_config_set_flag(config, EVENT_BASE_FLAG_NO_CACHE_TIME);
  struct event_base *base = event_base_new_with_config(config);
  event_config_free(config);
  return base;
}

df_status df_http_create(struct event_base *base, const df_http_params *p, df_http **out, df_error *err) {
  struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE | AI_NUMERICSERV}, *list = NULL;
  char port[8];
  df_http *h = df_calloc(1, sizeof *h);
  if (!h) return DF_OOM(err, "the server", sizeof *h);
  h->base = base, h->p = *p;
  if (h->p.write_s == 0) h->p.write_s = DF_HTTP_WRITE_S;
  h->id_salt = df_now_ns() * 0x9E3779B97F4A7C15u ^ (uint64_t)getpid() << 48;
  (void)snprintf(port, sizeof port, "%u", (unsigned)p->port);
  df_status st;
  int rc = getaddrinfo(p->host, port, &hints, &list);
  if (rc != 0) {
    st = DF_FAIL(err, DF_ERR_IO, "could not listen on host \"%.80s\": %s", p->host, gai_strerror(rc));
    goto fail;
  }
  DF_TRY_GOTO(st, bind_any(h, list, err), fail);
  const struct timeval second = {.tv_sec = 1};
  h->t_beat = df_now_ns();
  h->beat = event_new(base, -1, EV_PERSIST, on_beat, h);
  if (!h->beat || event_add(h->beat, &second) != 0) {
    st = DF_OOM(err, "the server", sizeof *h);
    goto fail;
  }
  evconnlistener_set_error_cb(h->listener, on_accept_error);
  struct sockaddr_storage sa;
  socklen_t len = sizeof sa;
  if (getsockname(evconnlistener_get_fd(h->listener), (struct sockaddr *)&sa, &len) == 0) {
    const struct sockaddr_in *v4 = (const void *)&sa;
    const struct sockaddr_in6 *v6 = (const void *)&sa;
    h->port = ntohs(sa.ss_family == AF_INET6 ? v6->sin6_port : v4->sin_port);
  }
  freeaddrinfo(list);
  *out = h;
  return DF_OK;
fail:
  if (list) freeaddrinfo(list);
  df_http_free(h);
  return st;
}

void df_http_free(df_http *h) {
  if (!h) return;
  while (h->conns) {
    h->conns->processing = false;
    conn_free(h->conns);
  }
  if (h->listener) evconnlistener_free(h->listener);
  if (h->beat) event_free(h->beat);
  df_free(h);
}

uint16_t df_http_port(const df_http *h) { return h->port; }

void df_http_drain(df_http *h) {
  h->draining = true;
  for (conn *c = h->conns, *next; c; c = next) {
    next = c->next;
    if (c->state == CONN_IDLE) conn_free(c);
  }
}

uint32_t df_http_busy(const df_http *h) {
  uint32_t n = 0;
  for (const conn *c = h->conns; c; c = c->next)
    n += c->state == CONN_BUSY || c->state == CONN_FLUSH || evbuffer_get_length(bufferevent_get_output(c->bev)) > 0;
  return n;
}

uint32_t df_http_connections(const df_http *h) { return h->n_conns; }
