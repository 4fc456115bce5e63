/* dflash serve: an HTTP server on the model. The server itself is server/server.h. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/log.h"
#include "base/mem.h"
#include "base/size.h"
#include "cli/cli_attention.h"
#include "cli/cli_model.h"
#include "cli/cli_text.h"
#include "cli/interrupt.h"
#include "cli/verbs.h"
#include "draft/draft.h"
#include "model/model.h"
#include "model/plan.h"
#include "server/server.h"

enum { KEYS_MAX = 1024, DEFAULT_PARALLEL = 8, DEFAULT_QUEUE = 256 };

typedef struct serve {
  df_cli *cli;
  df_loaded l;
  df_serve_params p;
  uint32_t sizes[DF_BATCH_SIZES_MAX];
  const char *keys[KEYS_MAX];
  char *key_file;      /* text that keys point into */
  char *template_text; /* --chat-template-file */
  char *alias;
} serve;

/* ---- options ---- */

/* One key a line; blank lines and lines that begin with '#' do not count. */
static df_status read_key_file(serve *s, const char *path, df_error *err) {
  df_buf b;
  df_buf_init(&b, 1 << 20);
  df_status st = df_text_read(path, &b, err);
  if (st == DF_OK) st = df_buf_puts(&b, "\n", err);
  if (st != DF_OK) {
    df_buf_release(&b);
    return st;
  }
  s->key_file = df_buf_take(&b);
  for (char *line = s->key_file, *end; (end = strchr(line, '\n')) != NULL; line = end + 1) {
    char *last = end;
    while (last > line && strchr(" \t\r", last[-1])) last--;
    *end = *last = '\0';
    line += strspn(line, " \t");
    if (!*line || *line == '#') continue;
    if (s->p.n_keys == KEYS_MAX) return DF_FAIL(err, DF_ERR_LIMIT, "\"%s\" holds more than %d keys", path, KEYS_MAX);
    s->keys[s->p.n_keys++] = line;
  }
  if (s->p.n_keys == 0) return DF_FAIL(err, DF_ERR_FORMAT, "\"%s\" holds no key", path);
  return DF_OK;
}

static df_status read_keys(serve *s, const df_opts *o, df_error *err) {
  const char *file = df_opt_text(o, OPT_API_KEY_FILE, NULL);
  for (uint32_t i = 0; i < o->n_keys; i++) s->keys[s->p.n_keys++] = o->keys[i];
  if (file) DF_TRY(read_key_file(s, file, err));
  s->p.keys = s->keys;
  return DF_OK;
}

static void read_defaults(serve *s, const df_opts *o) {
  df_sampling_params p = df_sampling_params_default();
  p.temperature = (float)df_opt_real(o, OPT_TEMP, (double)p.temperature);
  p.top_k = (int32_t)df_opt_int(o, OPT_TOP_K, p.top_k);
  p.top_p = (float)df_opt_real(o, OPT_TOP_P, (double)p.top_p);
  p.min_p = (float)df_opt_real(o, OPT_MIN_P, (double)p.min_p);
  p.repetition_penalty = (float)df_opt_real(o, OPT_REPEAT_PENALTY, (double)p.repetition_penalty);
  p.presence_penalty = (float)df_opt_real(o, OPT_PRESENCE_PENALTY, (double)p.presence_penalty);
  p.frequency_penalty = (float)df_opt_real(o, OPT_FREQUENCY_PENALTY, (double)p.frequency_penalty);
  const int64_t seed = df_opt_int(o, OPT_SEED, -1);
  p.seed = seed < 0 ? 0 : (uint64_t)seed;
  s->p.defaults =
      (df_serve_defaults){.sampling = p, .random_seed = seed < 0, .max_tokens = df_opt_int(o, OPT_PREDICT, -1)};
}

/* A header's value must not hold a line break. */
static df_status check_cors(const char *origin, df_error *err) {
  for (const char *c = origin; c && *c; c++) {
    if (*c <= 0x20 || *c > 0x7E)
      return DF_FAIL(err, DF_ERR_ARGUMENT, "--cors needs an origin as in https://example.org");
  }
  return DF_OK;
}

static df_status read_options(serve *s, const df_opts *o, df_error *err) {
  df_serve_params *p = &s->p;
  p->host = df_opt_text(o, OPT_HOST, "127.0.0.1");
  p->port = (uint16_t)df_opt_int(o, OPT_PORT, 8080);
  p->cors = df_opt_text(o, OPT_CORS, NULL);
  p->max_body = (size_t)df_opt_int(o, OPT_MAX_BODY, 32 << 20);
  p->max_connections = (uint32_t)df_opt_int(o, OPT_MAX_CONNECTIONS, 4096);
  p->request_timeout_s = df_opt_real(o, OPT_REQUEST_TIMEOUT, 0);
  p->drain_timeout_s = df_opt_real(o, OPT_DRAIN_TIMEOUT, 30);
  p->strict_model = df_opt_on(o, OPT_STRICT_MODEL, false);
  p->notify_socket = getenv("NOTIFY_SOCKET");
  DF_TRY(check_cors(p->cors, err));
  DF_TRY(read_keys(s, o, err));
  read_defaults(s, o);
  DF_TRY(df_session_params_from_opts(o, &p->sched.engine.session, s->sizes, err));
  p->sched.engine.max_seqs = (uint32_t)df_opt_int(o, OPT_PARALLEL, DEFAULT_PARALLEL);
  p->sched.max_waiting = (uint32_t)df_opt_int(o, OPT_MAX_QUEUE, DEFAULT_QUEUE);
  p->sched.no_prefix_cache = !df_opt_on(o, OPT_PREFIX_CACHE, true);
  return df_template_from_opts(o, &s->template_text, err);
}

/* What clients call the model: --alias, or the name of the file without its folder and ".gguf". */
static df_status choose_alias(serve *s, const df_opts *o, df_error *err) {
  const char *name = df_opt_text(o, OPT_ALIAS, NULL);
  if (!name) {
    name = df_opt_text(o, OPT_MODEL, "model");
    size_t n = strlen(name);
    while (n > 1 && name[n - 1] == '/') n--;
    const char *base = name + n;
    while (base > name && base[-1] != '/') base--;
    size_t len = (size_t)(name + n - base);
    if (len > 5 && strncmp(base + len - 5, ".gguf", 5) == 0) len -= 5;
    s->alias = df_strndup(base, len);
  } else {
    s->alias = df_strdup(name);
  }
  return s->alias ? DF_OK : DF_OOM(err, "the model's name", strlen(name));
}

/* ---- sizes ---- */

static uint64_t quarter_of_memory(void) {
  const long pages = sysconf(_SC_PHYS_PAGES), size = sysconf(_SC_PAGESIZE);
  return pages > 0 && size > 0 ? (uint64_t)pages * (uint64_t)size / 4 : UINT64_MAX;
}

/* Most bytes of the KV pool. */
static uint64_t kv_memory(const df_opts *o) {
  return df_opt_given(o, OPT_KV_MEMORY) ? (uint64_t)df_opt_int(o, OPT_KV_MEMORY, 0) : quarter_of_memory();
}

/* The context, and how many tokens the pool holds: full contexts for all as far as memory allows. */
static df_status choose_sizes(serve *s, const df_opts *o, df_sched_params *p, df_error *err) {
  df_session_params *sp = &p->engine.session;
  const uint32_t trained = s->l.info.n_ctx_train;
  if (sp->n_ctx == 0) sp->n_ctx = trained && trained < 8192 ? trained : 8192;
  uint64_t each = df_kv_token_bytes(&s->l.model->cfg, sp->kv_f32);
  if (s->l.draft) each += df_kv_token_bytes(&s->l.draft->cfg, sp->kv_f32);
  const uint64_t all = (uint64_t)p->engine.max_seqs * sp->n_ctx;
  const bool given = df_opt_given(o, OPT_KV_MEMORY);
  uint64_t tokens = kv_memory(o) / each;
  /* A full context, its page ends and the rows of a block that are written ahead. */
  const uint64_t least = (uint64_t)sp->n_ctx + 2 * DF_MAX_WIDTH + 64;
  if (given && tokens < least) {
    df_status st =
        DF_FAIL(err, DF_ERR_ARGUMENT, "--kv-memory holds %llu tokens, less than the %llu that one context of %u needs",
                (unsigned long long)tokens, (unsigned long long)least, sp->n_ctx);
    df_error_hint(err, "give %llu or more, or a smaller context with -c", (unsigned long long)(least * each));
    return st;
  }
  if (!given && tokens > all + least) tokens = all + least; /* room for prefixes beside full contexts is not needed */
  if (tokens < least) tokens = least;
  p->engine.kv_tokens = (uint32_t)DF_MIN(tokens, (uint64_t)1 << 28);
  return DF_OK;
}

/* ---- what the server calls ---- */

static df_status on_load(void *user, df_serve_model *out, df_sched_params *sched, df_error *err) {
  serve *s = user;
  DF_TRY(df_loaded_open_for(&s->l, s->cli, true, sched->engine.max_seqs, kv_memory(&s->cli->opts), err));
  DF_TRY(choose_sizes(s, &s->cli->opts, sched, err));
  *out = (df_serve_model){.model = s->l.model,
                          .draft = s->l.draft,
                          .alias = s->alias,
                          .model_path = s->l.model_path,
                          .draft_path = s->l.draft_path,
                          .width = s->l.width,
                          .template_text = s->template_text};
  return DF_OK;
}

static void on_cancel_load(void *user) {
  (void)user;
  df_interrupted = SIGTERM; /* the progress callback of the loader sees it */
}

static void on_listening(void *user, const char *host, uint16_t port) {
  const serve *s = user;
  const bool v6 = strchr(host, ':') != NULL;
  fprintf(stderr, "%slistening%s http://%s%s%s:%u\n", df_term_err(&s->cli->term, DF_STYLE_BOLD),
          df_term_err(&s->cli->term, DF_STYLE_RESET), v6 ? "[" : "", host, v6 ? "]" : "", (unsigned)port);
  (void)fflush(stderr);
}

static void on_ready(void *user, const char *host, uint16_t port) {
  const serve *s = user;
  const df_loaded *l = &s->l;
  const df_sched_params *p = &s->p.sched;
  const bool v6 = strchr(host, ':') != NULL;
  char machine[128];
  df_machine_text(&l->info, machine, sizeof machine);
  fprintf(stderr, "model     %s as \"%s\": %s, %u layers; %s\n",
          l->info.name && *l->info.name ? l->info.name : l->model_path, s->alias, l->info.arch, l->info.n_layers,
          machine);
  if (l->draft)
    fprintf(stderr, "drafting  on: draft-dflash, block size %u (%s %u drafted tokens a step)\n", l->width,
            l->width_given ? "at most" : "up to", l->width - 1);
  else
    fprintf(stderr, "drafting  off\n");
  fprintf(stderr, "requests  %u at once, %u may wait; prefix cache %s; %s\n", p->engine.max_seqs, p->max_waiting,
          p->no_prefix_cache ? "off" : "on", s->p.n_keys ? "API key needed" : "no API key");
  fprintf(stderr, "ready     http://%s%s%s:%u\n", v6 ? "[" : "", host, v6 ? "]" : "", (unsigned)port);
  (void)fflush(stderr);
}

static void on_draining(void *user, uint32_t requests) {
  (void)user;
  fprintf(stderr, "stopping: %u request%s to finish; once more stops at once\n", requests, requests == 1 ? "" : "s");
  (void)fflush(stderr);
}

/* Each connection takes a descriptor; the usual limit of 1024 is for programs with select(). */
static void raise_descriptor_limit(uint32_t connections) {
  struct rlimit lim;
  const rlim_t want = (rlim_t)connections + 64;
  if (getrlimit(RLIMIT_NOFILE, &lim) != 0 || lim.rlim_cur == RLIM_INFINITY || lim.rlim_cur >= want) return;
  lim.rlim_cur = lim.rlim_max == RLIM_INFINITY || lim.rlim_max > want ? want : lim.rlim_max;
  (void)setrlimit(RLIMIT_NOFILE, &lim);
}

int df_verb_serve(df_cli *cli) {
  const df_opts *o = &cli->opts;
  df_error err;
  df_status st;
  serve *s = df_calloc(1, sizeof *s);
  if (!s) {
    (void)DF_OOM(&err, "the server", sizeof *s);
    return df_cli_report(cli, &err);
  }
  s->cli = cli;
  struct sigaction ignore = {.sa_handler = SIG_IGN};
  (void)sigaction(SIGPIPE, &ignore, NULL); /* a client that left is an error of its socket, not the end of the server */
  DF_TRY_GOTO(st, df_need_model(o, &err), done);
  DF_TRY_GOTO(st, df_attention_opts_check(o, &err), done);
  DF_TRY_GOTO(st, read_options(s, o, &err), done);
  DF_TRY_GOTO(st, choose_alias(s, o, &err), done);
  raise_descriptor_limit(s->p.max_connections);
  s->p.load = on_load;
  s->p.cancel_load = on_cancel_load;
  s->p.listening = on_listening;
  s->p.ready = on_ready;
  s->p.draining = on_draining;
  s->p.user = s;
  st = df_serve(&s->p, &err);
  if (st == DF_ERR_CANCELLED && df_interrupted) st = DF_OK; /* told to stop while loading */
done:;
  const int status = st == DF_OK ? DF_EXIT_OK : df_cli_report(cli, &err);
  df_loaded_close(&s->l);
  df_free(s->key_file);
  df_free(s->template_text);
  df_free(s->alias);
  df_free(s);
  return status;
}
