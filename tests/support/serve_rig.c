#include "support/serve_rig.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#include "dflash/dflash.h"
#include "server/server.h"
#include "support/sample_files.h"
#include "support/tiny_model.h"

typedef struct rig {
  char *dir;
  const char *device;
  uint32_t context;
  df_model *model;
  df_draft *draft;
  df_serve_params p;
  pthread_t thread;
  pthread_mutex_t lock;
  pthread_cond_t cond;
  uint16_t port;
  bool ready, over;
  df_status result;
  df_error err;
} rig;

static rig r;

static df_status load(void *user, df_serve_model *out, df_sched_params *sched, df_error *err) {
  rig *g = user;
  df_model_params mp = df_model_params_default();
  df_draft_params dp = df_draft_params_default();
  mp.n_threads = 1;
  mp.device = g->device;
  DF_TRY(df_model_open(test_dir_path(g->dir, "t.gguf"), &mp, &g->model, err));
  DF_TRY(df_draft_open(test_dir_path(g->dir, "d.gguf"), g->model, &dp, &g->draft, err));
  sched->engine.session.n_ctx = g->context;
  *out = (df_serve_model){.model = g->model,
                          .draft = g->draft,
                          .alias = "tiny",
                          .model_path = "t.gguf",
                          .draft_path = "d.gguf",
                          .width = 16};
  return DF_OK;
}

static void on_ready(void *user, const char *host, uint16_t port) {
  rig *g = user;
  (void)host;
  pthread_mutex_lock(&g->lock);
  g->port = port;
  g->ready = true;
  pthread_cond_broadcast(&g->cond);
  pthread_mutex_unlock(&g->lock);
}

static void *serve(void *arg) {
  rig *g = arg;
  const df_status st = df_serve(&g->p, &g->err);
  pthread_mutex_lock(&g->lock);
  g->result = st;
  g->over = true;
  pthread_cond_broadcast(&g->cond);
  pthread_mutex_unlock(&g->lock);
  return NULL;
}

void serve_rig_start(const char *device, uint32_t context) {
  tiny_spec t = tiny_spec_default();
  t.chat_template = "{% for m in messages %}{{ m.content }}{% endfor %}:";
  const tiny_draft_spec d = tiny_draft_default(&t);
  memset(&r, 0, sizeof r);
  r.device = device;
  r.context = context;
  (void)signal(SIGPIPE, SIG_IGN);
  r.dir = test_dir_create();
  tiny_model_write(&t, test_dir_path(r.dir, "t.gguf"));
  tiny_draft_write(&d, test_dir_path(r.dir, "d.gguf"));
  (void)pthread_mutex_init(&r.lock, NULL);
  (void)pthread_cond_init(&r.cond, NULL);
  r.p = (df_serve_params){.host = "127.0.0.1", .max_body = 1 << 20, .max_connections = 16, .drain_timeout_s = 5};
  r.p.defaults.sampling = df_sampling_params_default();
  r.p.defaults.max_tokens = -1;
  r.p.sched.engine.session = df_session_params_default();
  r.p.sched.engine.max_seqs = 2;
  r.p.sched.max_waiting = 8;
  r.p.load = load, r.p.ready = on_ready, r.p.user = &r;
  assert_int_equal(pthread_create(&r.thread, NULL, serve, &r), 0);
  pthread_mutex_lock(&r.lock);
  while (!r.ready && !r.over) pthread_cond_wait(&r.cond, &r.lock);
  pthread_mutex_unlock(&r.lock);
  if (r.over) fail_msg("the server did not start: %s", r.err.msg);
}

void serve_rig_stop(void) {
  (void)kill(getpid(), SIGTERM);
  (void)pthread_join(r.thread, NULL);
  df_draft_close(r.draft);
  df_model_close(r.model);
  test_dir_remove(r.dir);
  (void)pthread_cond_destroy(&r.cond);
  (void)pthread_mutex_destroy(&r.lock);
  if (r.result != DF_OK) fail_msg("the server ended badly: %s", r.err.msg);
}

/* ---- the client ---- */

enum { REPLY_MAX = 1 << 20 };
static char reply[REPLY_MAX];

const char *serve_rig_ask(const char *method, const char *path, const char *body, size_t *length) {
  static char out[4096];
  const struct sockaddr_in to = {
      .sin_family = AF_INET, .sin_port = htons(r.port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  const struct timeval wait = {.tv_sec = 60};
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  size_t n = 0;
  assert_true(fd >= 0);
  (void)setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &wait, sizeof wait);
  reply[0] = '\0';
  if (connect(fd, (const struct sockaddr *)&to, sizeof to) == 0) {
    const int len =
        snprintf(out, sizeof out, "%s %s HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: %zu\r\n\r\n%s",
                 method, path, strlen(body), body);
    assert_true(len > 0 && (size_t)len < sizeof out);
    (void)!send(fd, out, (size_t)len, MSG_NOSIGNAL);
    for (ssize_t got; n + 1 < sizeof reply; n += (size_t)got) {
      got = recv(fd, reply + n, sizeof reply - 1 - n, 0);
      if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) fail_msg("%s %s: no answer", path, body);
      if (got <= 0) break;
    }
  }
  (void)close(fd);
  reply[n] = '\0';
  if (length) *length = n;
  return reply;
}

int serve_rig_status(const char *text) {
  assert_memory_equal(text, "HTTP/1.1 ", 9);
  return (int)strtol(text + 9, NULL, 10);
}

double serve_rig_metric(const char *name) {
  (void)serve_rig_ask("GET", "/metrics", "", NULL);
  char want[100];
  (void)snprintf(want, sizeof want, "\n%s ", name);
  const char *at = strstr(reply, want);
  if (!at) fail_msg("no metric %s", name);
  return strtod(at + strlen(want), NULL);
}

void serve_rig_wait_idle(void) {
  for (int i = 0; i < 2000; i++) {
    if (serve_rig_metric("df_requests_running") == 0 && serve_rig_metric("df_requests_waiting") == 0 &&
        serve_rig_metric("df_kv_blocks_used") == 0)
      return;
    const struct timespec ms = {.tv_nsec = 5000000};
    (void)nanosleep(&ms, NULL);
  }
  fail_msg("requests do not end");
}
