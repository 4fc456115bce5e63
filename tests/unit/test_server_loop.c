/* The connection layer on a loop of its own, in real time: what a handler that is slow does to the deadlines. */
// clang-format off
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
// clang-format on

#include <arpa/inet.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#include <event2/event.h>

#include "server/http.h"

typedef struct rig {
  struct event_base *base;
  df_http *http;
  uint16_t port;
  const char *path; /* of the client's request; NULL = "/x" */
  char got[2048];   /* the client's */
  size_t n;
  bool other_ok;
} rig;

static void no_head(void *user, df_exchange *x) { (void)user, (void)x; }

/* Longer than the limit for writing. */
static void slow_request(void *user, df_exchange *x) {
  const struct timespec t = {.tv_sec = 1, .tv_nsec = 400000000};
  (void)user;
  (void)nanosleep(&t, NULL);
  df_exchange_send(x, 200, "text/plain", "late", 4);
}

static void refuse(void *user, df_exchange *x, int status, const char *why) {
  (void)user;
  df_exchange_send(x, status, "text/plain", why, strlen(why));
}

static void done(void *user, const df_exchange *x) {
  const struct timeval soon = {.tv_usec = 200000}; /* what is written still leaves */
  (void)x;
  (void)event_base_loopexit(((rig *)user)->base, &soon);
}

static void *client(void *arg) {
  rig *r = arg;
  char request[128];
  const int len = snprintf(request, sizeof request,
                           "POST %s HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: 2\r\n\r\n{}",
                           r->path ? r->path : "/x");
  const struct timeval limit = {.tv_sec = 20};
  struct sockaddr_in sa = {.sin_family = AF_INET, .sin_port = htons(r->port)};
  sa.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  if (fd < 0) return NULL;
  (void)setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  if (connect(fd, (struct sockaddr *)&sa, sizeof sa) == 0 && send(fd, request, (size_t)len, MSG_NOSIGNAL) == len) {
    for (ssize_t k; r->n < sizeof r->got - 1 && (k = recv(fd, r->got + r->n, sizeof r->got - 1 - r->n, 0)) > 0;)
      r->n += (size_t)k;
  }
  (void)close(fd);
  return NULL;
}

/* A server of these handlers until its loop ends, with `clients` at work beside it. */
static void run_server(rig *r, df_http_ops ops, uint32_t write_s, void *(*clients)(void *)) {
  pthread_t thread;
  df_error err = {0};
  r->base = df_http_base();
  assert_non_null(r->base);
  const df_http_params p = {
      .host = "127.0.0.1", .max_body = 100, .max_connections = 4, .write_s = write_s, .ops = ops, .user = r};
  if (df_http_create(r->base, &p, &r->http, &err) != DF_OK) fail_msg("%s", err.msg);
  r->port = df_http_port(r->http);
  assert_int_equal(pthread_create(&thread, NULL, clients, r), 0);
  assert_true(event_base_dispatch(r->base) >= 0);
  df_http_free(r->http);
  event_base_free(r->base);
  (void)pthread_join(thread, NULL);
}

/* The limit for writing an answer begins with the answer, not when the loop last looked at the clock. */
static void test_deadline__counts_from_when_it_is_set(void **state) {
  (void)state;
  rig r = {0};
  run_server(&r, (df_http_ops){no_head, slow_request, refuse, done}, 1, client);
  if (strncmp(r.got, "HTTP/1.1 200 ", 13) != 0 || !strstr(r.got, "\r\n\r\nlate"))
    fail_msg("the client of a slow handler got \"%s\"", r.got);
}

/* ---- a process that stands still ------------------------------------------------------------------------ */

static df_exchange *g_stream; /* begun, its end is still to come */

/* "/a": begins a stream. "/b": writes into it, stands still for longer than any limit, ends it later. */
static void stall_request(void *user, df_exchange *x) {
  const struct timespec t = {.tv_sec = 4};
  (void)user;
  if (strcmp(x->head.path, "/a") == 0) {
    assert_true(df_exchange_begin(x, 200, "text/plain"));
    g_stream = x;
    return;
  }
  assert_non_null(g_stream);
  assert_true(df_exchange_write(g_stream, "one ", 4)); /* waits for the loop */
  (void)nanosleep(&t, NULL);
  df_exchange_send(x, 200, "text/plain", "two", 3);
}

static void end_stream(evutil_socket_t fd, short what, void *arg) {
  (void)fd, (void)what, (void)arg;
  if (!g_stream) return;
  assert_true(df_exchange_write(g_stream, "three", 5));
  df_exchange_end(g_stream);
}

static void stall_done(void *user, const df_exchange *x) {
  const struct timeval soon = {.tv_usec = 300000};
  if (x == g_stream) g_stream = NULL;
  if (strcmp(x->head.path, "/b") == 0)
    (void)event_base_once(((rig *)user)->base, -1, EV_TIMEOUT, end_stream, NULL, &soon);
  else
    (void)event_base_loopexit(((rig *)user)->base, &soon);
}

/* Two requests on two connections; what came of the first is kept. */
static void *two_clients(void *arg) {
  rig *r = arg, second = {.port = r->port};
  const struct timespec later = {.tv_nsec = 200000000};
  pthread_t b;
  r->path = "/a", second.path = "/b";
  pthread_t a;
  if (pthread_create(&a, NULL, client, r) != 0) return NULL;
  (void)nanosleep(&later, NULL);
  if (pthread_create(&b, NULL, client, &second) == 0) (void)pthread_join(b, NULL);
  (void)pthread_join(a, NULL);
  r->other_ok = strstr(second.got, "\r\n\r\ntwo") != NULL;
  return NULL;
}

/* What was written before a process was stopped for longer than the limit for writing leaves when it goes on: nobody
 * refused to read. */
static void test_deadline__a_stopped_process_cuts_nobody(void **state) {
  (void)state;
  rig r = {0};
  run_server(&r, (df_http_ops){no_head, stall_request, refuse, stall_done}, 2, two_clients);
  assert_true(r.other_ok);
  if (!strstr(r.got, "one ") || !strstr(r.got, "three\r\n0\r\n\r\n")) fail_msg("the stream was \"%s\"", r.got);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_deadline__counts_from_when_it_is_set),
      cmocka_unit_test(test_deadline__a_stopped_process_cuts_nobody),
  };
  return cmocka_run_group_tests_name("server_loop", tests, NULL, NULL);
}
