/*
 * support/serve_rig.h - the whole server on a tiny model with a draft, on a thread of this process, and a client that
 * allocates nothing of ours.
 *
 * Threads: one test at a time; the server is stopped by SIGTERM. Failures end the test.
 */
#ifndef DF_TEST_SUPPORT_SERVE_RIG_H
#define DF_TEST_SUPPORT_SERVE_RIG_H

#include <stddef.h>
#include <stdint.h>

/* Starts it on a free port; device NULL = the processor. context: tokens of a request. */
void serve_rig_start(const char *device, uint32_t context);
/* Ends it and gives everything back. */
void serve_rig_stop(void);

/* One request on a connection of its own, and the whole reply until the server closes, head first. The text lives until
 * the next call; *n (may be NULL) is its length, 0 = closed without an answer. */
const char *serve_rig_ask(const char *method, const char *path, const char *body, size_t *n);
/* The status of a reply. */
int serve_rig_status(const char *reply);
/* A series of /metrics without labels. */
double serve_rig_metric(const char *name);
/* Waits until nothing runs, waits or holds pages. */
void serve_rig_wait_idle(void);

#endif
