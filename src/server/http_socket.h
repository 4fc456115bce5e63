/*
 * server/http_socket.h - what a connection asks of the system.
 *
 * Threads: the loop's thread only.
 */
#ifndef DF_SERVER_HTTP_SOCKET_H
#define DF_SERVER_HTTP_SOCKET_H

#include <event2/util.h>

/* Tokens leave at once, half-open connections end, and the system buffers little for a slow reader. */
void df_http_socket_options(evutil_socket_t fd);
/* Without memory or room for one more: a short refusal, as far as it gets; closes the socket. */
void df_http_turn_away(evutil_socket_t fd);

#endif
