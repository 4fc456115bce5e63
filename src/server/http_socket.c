#include "server/http_socket.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <sys/socket.h>

enum { SEND_BUFFER = 64 << 10 }; /* of the system for each connection: bounds what a slow reader costs */

void df_http_socket_options(evutil_socket_t fd) {
  int on = 1, idle = 60, interval = 15, count = 4, buffer = SEND_BUFFER;
  (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on); /* tokens are small and must not wait */
  (void)setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on); /* half-open connections end */
  (void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof idle);
  (void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &interval, sizeof interval);
  (void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &count, sizeof count);
  (void)setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &buffer, sizeof buffer);
}

void df_http_turn_away(evutil_socket_t fd) {
  static const char body[] =
      "{\"error\":{\"message\":\"too many connections\",\"type\":\"unavailable_error\",\"param\":null,\"code\":503}}";
  char text[512];
  int len = snprintf(text, sizeof text,
                     "HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\nRetry-After: 1\r\n"
                     "Connection: close\r\nContent-Length: %zu\r\n\r\n%s",
                     sizeof body - 1, body);
  ssize_t n = send(fd, text, (size_t)len, MSG_NOSIGNAL | MSG_DONTWAIT);
  (void)n;
  (void)evutil_closesocket(fd);
}
