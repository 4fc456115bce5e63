/* The whole server on a tiny model, inside this process: replies and streams, and every allocation failing once. */
// clang-format off
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
// clang-format on

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
#include <unistd.h>

#include "base/mem.h"
#include "base/size.h"
#include "dflash/dflash.h"
#include "server/server.h"
#include "support/sample_files.h"
#include "support/tiny_model.h"

typedef struct rig {
  char *dir;
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
  DF_TRY(df_model_open(test_dir_path(g->dir, "t.gguf"), &mp, &g->model, err));
  DF_TRY(df_draft_open(test_dir_path(g->dir, "d.gguf"), g->model, &dp, &g->draft, err));
  sched->engine.session.n_ctx = 256;
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

static int start(void **state) {
  (void)state;
  tiny_spec t = tiny_spec_default();
  t.chat_template = "{% for m in messages %}{{ m.content }}{% endfor %}:";
  const tiny_draft_spec d = tiny_draft_default(&t);
  memset(&r, 0, sizeof r);
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
  if (pthread_create(&r.thread, NULL, serve, &r) != 0) return -1;
  pthread_mutex_lock(&r.lock);
  while (!r.ready && !r.over) pthread_cond_wait(&r.cond, &r.lock);
  pthread_mutex_unlock(&r.lock);
  if (r.over) fail_msg("the server did not start: %s", r.err.msg);
  return 0;
}

static int stop(void **state) {
  (void)state;
  (void)kill(getpid(), SIGTERM);
  (void)pthread_join(r.thread, NULL);
  df_draft_close(r.draft);
  df_model_close(r.model);
  test_dir_remove(r.dir);
  return r.result == DF_OK ? 0 : -1;
}

/* ---- a client that allocates nothing of ours ---- */

enum { REPLY_MAX = 1 << 20 };
static char reply[REPLY_MAX];

/* The whole reply until the server closes; its length. Fails the test when the server goes silent. */
static size_t ask(const char *method, const char *path, const char *body) {
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
  return n;
}

static double metric(const char *name) {
  (void)ask("GET", "/metrics", "");
  char want[100];
  (void)snprintf(want, sizeof want, "\n%s ", name);
  const char *at = strstr(reply, want);
  if (!at) fail_msg("no metric %s", name);
  return strtod(at + strlen(want), NULL);
}

static void wait_idle(void) {
  for (int i = 0; i < 2000; i++) {
    if (metric("df_requests_running") == 0 && metric("df_requests_waiting") == 0 && metric("df_kv_blocks_used") == 0)
      return;
    const struct timespec ms = {.tv_nsec = 5000000};
    (void)nanosleep(&ms, NULL);
  }
  fail_msg("requests do not end");
}

static const struct {
  const char *path, *body;
} asks[] = {
    {"/v1/chat/completions",
     "{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"the "
     "hen\"}]}],\"max_tokens\":6,\"stop\":[\"zq\"],"
     "\"logprobs\":true,\"top_logprobs\":2,\"ignore_eos\":true,\"logit_bias\":{\"300\":1}}"},
    {"/v1/chat/completions",
     "{\"messages\":[{\"role\":\"user\",\"content\":\"the hen\"}],\"max_tokens\":6,\"stream\":true,\"stream_options\":{"
     "\"include_usage\":true},\"dflash_tokens\":true,\"ignore_eos\":true,\"spec_width\":4,\"n\":2}"},
    {"/v1/completions",
     "{\"prompt\":[\"the hen\",\"in "
     "an\"],\"max_tokens\":5,\"echo\":true,\"logprobs\":2,\"best_of\":2,\"temperature\":1,"
     "\"seed\":1,\"ignore_eos\":true}"},
    {"/v1/responses", "{\"input\":\"the hen\",\"max_output_tokens\":4,\"stream\":true,\"ignore_eos\":true}"},
    {"/generate",
     "{\"input_ids\":[[1,2,3]],\"sampling_params\":{\"max_new_tokens\":4,\"ignore_eos\":true},\"return_logprob\":true,"
     "\"logprob_start_len\":0,\"stream\":true}"},
    {"/completion",
     "{\"prompt\":\"the hen\",\"n_predict\":4,\"n_probs\":2,\"ignore_eos\":true,\"grammar\":\"root ::= [a-z]+\"}"},
    {"/v1/chat/completions",
     "{\"messages\":[{\"role\":\"user\",\"content\":\"x\"}],\"max_tokens\":4,\"response_format\":{\"type\":\"json_"
     "object\"}}"},
    {"/tokenize", "{\"content\":\"the hen\",\"with_pieces\":true}"},
    {"/detokenize", "{\"tokens\":[1,2,300,5]}"},
    {"/apply-template", "{\"messages\":[{\"role\":\"user\",\"content\":\"x\"}]}"},
};

static void test_serve__answers(void **state) {
  (void)state;
  for (size_t i = 0; i < DF_COUNT_OF(asks); i++) {
    const bool bad = strcmp(asks[i].path, "/detokenize") == 0; /* id 300 is beyond the vocabulary */
    (void)ask("POST", asks[i].path, asks[i].body);
    const int status = atoi(reply + 9); /* checksrc: allow atoi */
    if (status != (bad ? 400 : 200)) fail_msg("%s %s: %.500s", asks[i].path, asks[i].body, reply);
  }
  static const char *const pages[] = {"/v1/models",      "/props",        "/slots",  "/get_server_info",
                                      "/get_model_info", "/openapi.json", "/health", "/health_generate",
                                      "/metrics",        "/version"};
  for (size_t i = 0; i < DF_COUNT_OF(pages); i++) {
    (void)ask("GET", pages[i], "");
    assert_memory_equal(reply, "HTTP/1.1 200", 12);
  }
  wait_idle();
}

/* Whatever allocation fails, in whichever thread: an answer, an error, or a closed connection; never a crash, a wrong
 * reply or silence. Afterwards all is as before. */
static void test_serve__every_allocation_fails(void **state) {
  (void)state;
  uint32_t refused = 0, served = 0;
  for (size_t i = 0; i < DF_COUNT_OF(asks); i++) {
    uint32_t untouched = 0;
    for (uint64_t n = 1; n < 400 && untouched < 3; n++) {
      df_mem_fail_after(n, false);
      const uint64_t before = df_mem_alloc_count();
      const size_t len = ask("POST", asks[i].path, asks[i].body);
      const bool reached = df_mem_alloc_count() - before >= n;
      df_mem_fail_after(0, false);
      untouched = reached ? 0 : untouched + 1;
      if (len == 0) {
        refused++;
        continue;
      }
      assert_memory_equal(reply, "HTTP/1.1 ", 9);
      const int status = atoi(reply + 9); /* checksrc: allow atoi */
      if (status == 200)
        served++;
      else
        refused++;
      if (status != 200 && !strstr(reply, "\"error\""))
        fail_msg("%s, allocation %u: %.300s", asks[i].path, (unsigned)n, reply);
      /* 429: those before are still ending */
      if (status != 200 && status != 503 && status != 400 && status != 500 && status != 429)
        fail_msg("%s, allocation %u: %.300s", asks[i].path, (unsigned)n, reply);
    }
    wait_idle();
  }
  assert_true(refused > 50);
  assert_true(served > 20);
  test_serve__answers(state);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_serve__answers),
                                     cmocka_unit_test(test_serve__every_allocation_fails)};
  return cmocka_run_group_tests_name("server_run", tests, start, stop);
}
