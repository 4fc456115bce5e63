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
  char got[2048]; /* the client's */
  size_t n;
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
  static const char request[] = "POST /x HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: 2\r\n\r\n{}";
  rig *r = arg;
  const struct timeval limit = {.tv_sec = 20};
  struct sockaddr_in sa = {.sin_family = AF_INET, .sin_port = htons(r->port)};
  sa.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  if (fd < 0) return NULL;
  (void)setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  if (connect(fd, (struct sockaddr *)&sa, sizeof sa) == 0 &&
      send(fd, request, sizeof request - 1, MSG_NOSIGNAL) == (ssize_t)(sizeof request - 1)) {
    for (ssize_t k; r->n < sizeof r->got - 1 && (k = recv(fd, r->got + r->n, sizeof r->got - 1 - r->n, 0)) > 0;)
      r->n += (size_t)k;
  }
  (void)close(fd);
  return NULL;
}

/* The limit for writing an answer begins with the answer, not when the loop last looked at the clock. */
static void test_deadline__counts_from_when_it_is_set(void **state) {
  (void)state;
  rig r = {.base = df_http_base()};
  pthread_t thread;
  df_error err = {0};
  assert_non_null(r.base);
  const df_http_params p = {.host = "127.0.0.1",
                            .max_body = 100,
                            .max_connections = 4,
                            .write_s = 1,
                            .ops = {no_head, slow_request, refuse, done},
                            .user = &r};
  if (df_http_create(r.base, &p, &r.http, &err) != DF_OK) fail_msg("%s", err.msg);
  r.port = df_http_port(r.http);
  assert_int_equal(pthread_create(&thread, NULL, client, &r), 0);
  assert_true(event_base_dispatch(r.base) >= 0);
  df_http_free(r.http);
  event_base_free(r.base);
  (void)pthread_join(thread, NULL);
  if (strncmp(r.got, "HTTP/1.1 200 ", 13) != 0 || !strstr(r.got, "\r\n\r\nlate"))
    fail_msg("the client of a slow handler got \"%s\"", r.got);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_deadline__counts_from_when_it_is_set),
  };
  return cmocka_run_group_tests_name("server_loop", tests, NULL, NULL);
}
