/* The loop: listening, loading beside it, waking up for events, shutting down. */
#include "server/server.h"

#include <errno.h>
#include <event2/event.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "server/routes.h"

enum { EVENTS_AT_ONCE = 256 }; /* before sockets get their turn */

/* What only the loop needs. */
typedef struct loop {
  df_server s;
  int wake[2]; /* pipe: the engine's and the loader's threads write, the loop reads */
  struct event *on_wake, *on_term, *on_int, *on_tick;
  pthread_t loader;
  bool has_loader, stopped;
  df_status load_status; /* of the loader's thread; read after it has written to the pipe */
  df_error load_error;
  uint64_t drain_until;
  df_error *err;
  df_status result;
} loop;

static void wake_up(int fd, char what) {
  ssize_t n;
  do n = write(fd, &what, 1);
  while (n < 0 && errno == EINTR); /* a full pipe is as good as another byte */
}

/* ---- NOTIFY_SOCKET: what systemd wants to hear ---- */

static void notify(const char *path, const char *text) {
  struct sockaddr_un to = {.sun_family = AF_UNIX};
  if (!path || (path[0] != '/' && path[0] != '@') || strlen(path) >= sizeof to.sun_path) return;
  memcpy(to.sun_path, path, strlen(path));
  if (path[0] == '@') to.sun_path[0] = '\0';
  int fd = socket(AF_UNIX, SOCK_DGRAM, 0);
  if (fd < 0) return;
  (void)sendto(fd, text, strlen(text), MSG_NOSIGNAL, (struct sockaddr *)&to,
               (socklen_t)(offsetof(struct sockaddr_un, sun_path) + strlen(path)));
  (void)close(fd);
}

/* ---- loading ---- */

static void engine_wakes(void *user) { wake_up(((loop *)user)->wake[1], 'e'); }

static df_status load_all(loop *l) {
  df_server *s = &l->s;
  df_error *err = &l->load_error;
  DF_TRY(s->p.load(s->p.user, &s->m, &s->p.sched, err));
  s->info = df_model_get_info(s->m.model);
  s->chat = s->m.model->chat;
  if (s->m.template_text) {
    df_status st = df_chat_template_parse(s->m.template_text, strlen(s->m.template_text), &s->own_template, err);
    if (st != DF_OK) {
      df_error_prefix(err, "could not use the chat template");
      return st;
    }
    s->chat = s->own_template;
  }
  s->p.sched.wake = engine_wakes;
  s->p.sched.user = l;
  return df_sched_create(s->m.model, s->m.draft, &s->p.sched, &s->sched, err);
}

static void *load_thread(void *arg) {
  loop *l = arg;
  l->load_status = load_all(l);
  wake_up(l->wake[1], 'l');
  return NULL;
}

/* Bytes of the longest text that could fit: all tokens the longest there are, and four times as many bytes before they
 * are normalised. */
static size_t most_bytes(const df_server *s) {
  const df_tokenizer *tok = s->m.model->tok;
  size_t longest = 1;
  for (uint32_t id = 0; id < df_tokenizer_size(tok); id++) {
    const char *p;
    size_t n;
    if (df_tokenizer_piece(tok, (int32_t)id, &p, &n) && n > longest) longest = n;
  }
  return (size_t)s->n_ctx * longest * 4;
}

/* Numbers of the running engine that replies tell. */
static void take_facts(df_server *s) {
  s->n_ctx = s->p.sched.engine.session.n_ctx;
  s->width = s->m.draft ? s->m.width : 1;
  s->max_seqs = s->p.sched.engine.max_seqs;
  s->max_prompt_bytes = most_bytes(s);
  (void)snprintf(s->fingerprint, sizeof s->fingerprint, "dflash-" DF_VERSION "-%s", s->info.cpu_tier);
}

static void loaded(loop *l) {
  df_server *s = &l->s;
  (void)pthread_join(l->loader, NULL);
  l->has_loader = false;
  if (l->load_status != DF_OK) {
    l->result = l->load_status;
    *l->err = l->load_error;
    s->load_failed = true;
    (void)event_base_loopbreak(s->base);
    return;
  }
  take_facts(s);
  if (s->phase != DF_PHASE_LOADING) return; /* told to stop meanwhile */
  s->phase = DF_PHASE_READY;
  if (s->p.ready) s->p.ready(s->p.user, s->p.host, df_http_port(s->http));
  notify(s->p.notify_socket, "READY=1\nSTATUS=serving");
}

/* ---- events of the engine ---- */

static void take_events(loop *l) {
  df_server *s = &l->s;
  for (int i = 0; i < EVENTS_AT_ONCE; i++) {
    df_sched_event *ev = df_sched_take_event(s->sched);
    if (!ev) return;
    df_task_event(s, ev);
    df_sched_free_event(ev);
  }
  wake_up(l->wake[1], 'e'); /* there may be more */
}

static void stop_if_drained(loop *l) {
  df_server *s = &l->s;
  if (s->phase != DF_PHASE_DRAINING || l->has_loader) return;
  const bool late = df_now_ns() >= l->drain_until;
  if (late) {
    for (df_task *t = s->tasks; t; t = t->next) df_task_cancel(t, NULL);
  }
  if ((s->n_tasks == 0 && df_http_busy(s->http) == 0) || df_now_ns() >= l->drain_until + 5000000000ull) {
    l->stopped = true;
    (void)event_base_loopbreak(s->base);
  }
}

static void on_wake(evutil_socket_t fd, short what, void *arg) {
  loop *l = arg;
  char bytes[256];
  bool load_done = false;
  ssize_t n;
  (void)what;
  while ((n = read(fd, bytes, sizeof bytes)) > 0) {
    if (memchr(bytes, 'l', (size_t)n)) load_done = true;
    if ((size_t)n < sizeof bytes) break;
  }
  if (load_done) loaded(l);
  if (!l->has_loader && l->s.sched) take_events(l);
  stop_if_drained(l);
}

static void on_tick(evutil_socket_t fd, short what, void *arg) {
  loop *l = arg;
  (void)fd, (void)what;
  df_task_tick(&l->s);
  stop_if_drained(l);
}

/* ---- signals ---- */

static void on_signal(evutil_socket_t signo, short what, void *arg) {
  loop *l = arg;
  df_server *s = &l->s;
  (void)what, (void)signo;
  if (s->phase == DF_PHASE_DRAINING) { /* the second one: at once */
    if (l->has_loader) return;         /* the loader ends soon: it was told to */
    (void)event_base_loopbreak(s->base);
    return;
  }
  const bool loading = s->phase == DF_PHASE_LOADING;
  s->phase = DF_PHASE_DRAINING;
  l->drain_until = df_now_ns() + (uint64_t)(s->p.drain_timeout_s * 1e9);
  notify(s->p.notify_socket, "STOPPING=1");
  if (loading && s->p.cancel_load) s->p.cancel_load(s->p.user);
  if (!l->has_loader && s->sched) df_sched_close(s->sched);
  df_http_drain(s->http);
  if (s->p.draining) s->p.draining(s->p.user, s->n_tasks);
  stop_if_drained(l);
}

/* ---- set up and tear down ---- */

static df_status make_pipe(loop *l, df_error *err) {
  if (pipe(l->wake) != 0) {
    l->wake[0] = l->wake[1] = -1;
    return DF_FAIL(err, DF_ERR_IO, "could not make a pipe: %s", strerror(errno));
  }
  for (int i = 0; i < 2; i++) {
    (void)fcntl(l->wake[i], F_SETFL, fcntl(l->wake[i], F_GETFL) | O_NONBLOCK);
    (void)fcntl(l->wake[i], F_SETFD, FD_CLOEXEC);
  }
  return DF_OK;
}

static df_status make_events(loop *l, df_error *err) {
  const struct timeval second = {.tv_sec = 1};
  df_server *s = &l->s;
  l->on_wake = event_new(s->base, l->wake[0], EV_READ | EV_PERSIST, on_wake, l);
  l->on_term = evsignal_new(s->base, SIGTERM, on_signal, l);
  l->on_int = evsignal_new(s->base, SIGINT, on_signal, l);
  l->on_tick = event_new(s->base, -1, EV_PERSIST, on_tick, l);
  if (!l->on_wake || !l->on_term || !l->on_int || !l->on_tick || event_add(l->on_wake, NULL) != 0 ||
      event_add(l->on_term, NULL) != 0 || event_add(l->on_int, NULL) != 0 || event_add(l->on_tick, &second) != 0)
    return DF_FAIL(err, DF_ERR_MEMORY, "could not set up the event loop");
  return DF_OK;
}

static df_status listen_on(loop *l, df_error *err) {
  df_server *s = &l->s;
  const df_http_params hp = {.host = s->p.host,
                             .port = s->p.port,
                             .max_body = s->p.max_body,
                             .max_connections = s->p.max_connections,
                             .ops = {df_route_head, df_route_request, df_route_refuse, df_route_done},
                             .user = s};
  DF_TRY(df_http_create(s->base, &hp, &s->http, err));
  if (s->p.listening) s->p.listening(s->p.user, s->p.host, df_http_port(s->http));
  return DF_OK;
}

/* The loader is the only other thread: without it the model may take minutes while /health cannot answer. */
static df_status start_loader(loop *l, df_error *err) {
  sigset_t all, old;
  (void)sigfillset(&all);
  (void)pthread_sigmask(SIG_SETMASK, &all, &old); /* signals are for the loop; the engine's threads inherit this */
  int rc = pthread_create(&l->loader, NULL, load_thread, l);
  (void)pthread_sigmask(SIG_SETMASK, &old, NULL);
  if (rc != 0) return DF_FAIL(err, DF_ERR_MEMORY, "could not start a thread: %s", strerror(rc));
  l->has_loader = true;
  return DF_OK;
}

static void free_event(struct event *e) {
  if (e) event_free(e);
}

static void end(loop *l) {
  df_server *s = &l->s;
  if (l->has_loader) (void)pthread_join(l->loader, NULL);
  df_http_free(s->http);
  s->http = NULL;
  df_sched_free(s->sched, 0);
  df_task_free_all(s);
  df_chat_template_free(s->own_template);
  free_event(l->on_wake);
  free_event(l->on_term);
  free_event(l->on_int);
  free_event(l->on_tick);
  if (s->base) event_base_free(s->base);
  for (int i = 0; i < 2; i++) {
    if (l->wake[i] >= 0) (void)close(l->wake[i]);
  }
  df_free(l);
}

df_status df_serve(const df_serve_params *p, df_error *err) {
  df_status st;
  df_error ignored;
  event_set_mem_functions(df_alloc, df_realloc, df_free);
  loop *l = df_calloc(1, sizeof *l);
  if (!l) return DF_OOM(err, "the server", sizeof *l);
  df_server *s = &l->s;
  l->err = err ? err : &ignored;
  l->wake[0] = l->wake[1] = -1;
  s->p = *p;
  s->started = (int64_t)time(NULL);
  df_server_metrics_init(&s->metrics);
  s->base = df_http_base();
  if (!s->base) {
    st = DF_FAIL(err, DF_ERR_MEMORY, "could not set up the event loop");
    goto done;
  }
  DF_TRY_GOTO(st, make_pipe(l, err), done);
  DF_TRY_GOTO(st, make_events(l, err), done);
  DF_TRY_GOTO(st, listen_on(l, err), done);
  DF_TRY_GOTO(st, start_loader(l, err), done);
  if (event_base_dispatch(s->base) < 0) {
    st = DF_FAIL(err, DF_ERR_INTERNAL, "the event loop failed");
    goto done;
  }
  st = l->result;
done:
  end(l);
  return st;
}
