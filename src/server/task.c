/* Requests that generate: submitting their choices, collecting what comes, telling the shape, ending. */
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/map.h"
#include "base/mem.h"
#include "server/server_state.h"

/* ---- the table from submissions to choices ---- */

static df_choice **bucket_of(df_server *s, uint64_t job) {
  return &s->bucket[(job * 0x9E3779B97F4A7C15u) >> 56 & (DF_TASK_BUCKETS - 1)];
}

static void choice_register(df_server *s, df_choice *c) {
  df_choice **b = bucket_of(s, c->job);
  c->hash_next = *b;
  *b = c;
}

static df_choice *choice_find(df_server *s, uint64_t job) {
  df_choice *c = *bucket_of(s, job);
  while (c && c->job != job) c = c->hash_next;
  return c;
}

static void choice_forget(df_server *s, df_choice *c) {
  df_choice **at = bucket_of(s, c->job);
  while (*at && *at != c) at = &(*at)->hash_next;
  if (*at) *at = c->hash_next;
}

/* ---- life ---- */

static void task_free(df_task *t) {
  df_server *s = t->server;
  if (t->prev)
    t->prev->next = t->next;
  else
    s->tasks = t->next;
  if (t->next) t->next->prev = t->prev;
  s->n_tasks--;
  for (uint32_t i = 0; i < t->n_choices; i++) {
    df_choice *c = &t->choices[i];
    df_buf_release(&c->text);
    df_buf_release(&c->content);
    df_buf_release(&c->reasoning);
    df_buf_release(&c->calls);
    df_free(c->ids);
    df_free(c->logprobs);
    df_free(c->top);
    df_free(c->prompt_logprobs);
    df_free(c->prompt_top);
    df_answer_parser_free(c->parser);
  }
  df_free(t->choices);
  df_prompt_list_release(&t->prompts);
  df_gen_release(&t->gen);
  df_grammar_release(t->grammar);
  df_buf_release(&t->out);
  df_json_free(t->body);
  df_free(t);
}

void df_task_free_all(df_server *s) {
  while (s->tasks) task_free(s->tasks);
}

/* The reply is done with: the exchange is forgotten, and the task too unless choices are still to come. */
static void task_detach(df_task *t) {
  t->x = NULL;
  if (t->n_live == 0) {
    task_free(t);
    return;
  }
  df_task_cancel(t, NULL);
}

static void task_gone(df_exchange *x) {
  df_task *t = x->user;
  t->server->metrics.clients_gone++;
  df_log(DF_LOG_DEBUG, "client of %s has left", x->id);
  task_detach(t);
}

df_task *df_task_create(df_server *s, df_exchange *x, const df_shape *shape, const char *id_prefix) {
  df_task *t = df_calloc(1, sizeof *t);
  if (!t) {
    df_reply_error(x, 503, "unavailable_error", NULL, "out of memory");
    return NULL;
  }
  t->server = s, t->x = x, t->shape = shape;
  df_gen_init(&t->gen, shape->family, &s->p.defaults);
  df_buf_init(&t->out, 0);
  t->prompts.max_bytes = s->max_prompt_bytes;
  t->created = (int64_t)time(NULL);
  t->t_write = df_now_ns();
  (void)snprintf(t->id, sizeof t->id, "%s%.128s", id_prefix, strncmp(x->id, "req-", 4) == 0 ? x->id + 4 : x->id);
  t->next = s->tasks;
  if (t->next) t->next->prev = t;
  s->tasks = t;
  s->n_tasks++;
  x->user = t;
  x->on_gone = task_gone;
  return t;
}

void df_task_cancel(df_task *t, const char *id) {
  const bool all = !id || strcmp(t->id, id) == 0 || (t->x && strcmp(t->x->id, id) == 0);
  for (uint32_t i = 0; i < t->n_choices; i++) {
    const df_choice *c = &t->choices[i];
    if (c->live && (all || df_json_equals(df_json_at(t->rids, c->prompt), id)))
      df_sched_cancel(t->server->sched, c->job);
  }
}

void df_task_fail(df_task *t, int status, const char *type, const char *param, const char *message) {
  df_exchange *x = t->x;
  if (!x) {
    if (t->n_live == 0) task_free(t);
    return;
  }
  x->on_gone = NULL;
  if (!t->begun) {
    df_reply_error(x, status, type, param, "%s", message);
  } else {
    /* The status is out already: an event says it, and the end marker is missing. */
    t->out.len = 0;
    df_status st = df_buf_puts(&t->out, "data: ", NULL);
    if (st == DF_OK) st = df_error_json(&t->out, status, type, param, message);
    if (st == DF_OK) st = df_buf_puts(&t->out, "\n\n", NULL);
    if (st == DF_OK && df_exchange_write(x, t->out.data, t->out.len))
      df_exchange_end(x);
    else
      df_exchange_abort(x);
  }
  task_detach(t);
}

void df_task_fail_error(df_task *t, const df_error *err, const char *param) {
  const char *type;
  int status = df_error_http(t->server, err, &type);
  if (status == 500 || err->code == DF_ERR_DEVICE) df_log(DF_LOG_ERROR, "request %s: %s", t->id, err->msg);
  if (status == 500) {
    df_task_fail(t, status, type, param, "the server could not finish the answer");
  } else {
    df_task_fail(t, status, type, param, err->msg);
  }
}

/* ---- submitting ---- */

static uint64_t draw(uint64_t *state) { /* splitmix64 */
  uint64_t z = *state += 0x9E3779B97F4A7C15u;
  z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
  z = (z ^ z >> 27) * 0x94D049BB133111EBu;
  return z ^ z >> 31;
}

static uint64_t client_of(const df_exchange *x) {
  const char *key = df_http_header_get(&x->head, "authorization");
  if (!key) key = x->peer;
  return df_hash_bytes(key, strlen(key), 0) | 1;
}

static df_job job_of(const df_task *t) {
  const df_gen *g = &t->gen;
  const df_server *s = t->server;
  df_job job = {.gen = g->p, .stop_ids = g->stop_ids, .n_stop_ids = g->n_stop_ids, .grammar = t->grammar};
  job.gen.max_tokens = g->max_tokens < 0 ? s->n_ctx : g->max_tokens == 0 ? 1 : (uint32_t)g->max_tokens;
  if (job.gen.max_tokens > s->n_ctx) job.gen.max_tokens = s->n_ctx;
  if (job.gen.min_tokens > job.gen.max_tokens) job.gen.min_tokens = job.gen.max_tokens;
  job.spec_width = g->speculative ? (int32_t)g->spec_width : 1;
  if (job.spec_width > (int32_t)s->width) job.spec_width = (int32_t)s->width;
  job.logprobs = g->logprobs || g->best_of > g->n;
  job.n_top = g->n_top;
  job.prompt_logprobs = g->echo && g->logprobs;
  job.priority = g->priority;
  job.no_cache = !g->cache_prompt;
  job.client = client_of(t->x);
  if (s->p.request_timeout_s > 0) job.deadline = t->x->t_start + (uint64_t)(s->p.request_timeout_s * 1e9);
  return job;
}

static df_status check_prompts(const df_task *t, df_error *err) {
  const uint32_t n_ctx = t->server->n_ctx;
  for (uint32_t i = 0; i < t->prompts.n; i++) {
    if (t->prompts.v[i].too_long)
      return DF_FAIL(err, DF_ERR_LIMIT, "the prompt has %zu bytes of text, more than the context of %u tokens can hold",
                     t->prompts.v[i].len, n_ctx);
    if (t->prompts.v[i].n == 0) return DF_FAIL(err, DF_ERR_FORMAT, "the prompt is empty");
    if (t->prompts.v[i].n >= n_ctx)
      return DF_FAIL(err, DF_ERR_LIMIT,
                     "the prompt has %zu tokens, but the context holds %u tokens, prompt and answer together",
                     t->prompts.v[i].n, n_ctx);
  }
  if ((uint64_t)t->prompts.n * t->gen.best_of > DF_GEN_MAX_CHOICES)
    return DF_FAIL(err, DF_ERR_FORMAT, "more than %d answers in one request", DF_GEN_MAX_CHOICES);
  return DF_OK;
}

static df_status submit_all(df_task *t, df_error *err) {
  df_job job = job_of(t);
  uint64_t random = df_now_ns() ^ (uintptr_t)t;
  for (uint32_t i = 0; i < t->n_choices; i++) {
    df_choice *c = &t->choices[i];
    job.ids = t->prompts.v[c->prompt].ids, job.n_ids = t->prompts.v[c->prompt].n;
    job.gen.sampling.seed =
        t->gen.seed_given ? t->gen.p.sampling.seed + c->index % t->gen.best_of : draw(&random) >> 32;
    DF_TRY(df_sched_submit(t->server->sched, &job, &c->job, err));
    c->live = true;
    t->n_live++;
    choice_register(t->server, c);
  }
  return DF_OK;
}

/* The field that the prompts came in, by the endpoint. */
static const char *prompt_field(const df_task *t) {
  switch (t->shape->family) {
    case DF_FOR_CHAT: return "messages";
    case DF_FOR_RESPONSES: return "input";
    case DF_FOR_SGLANG:
      return df_json_kind_of(df_json_member(t->body, "input_ids")) == DF_JSON_NULL ? "text" : "input_ids";
    default: return "prompt";
  }
}

void df_task_start(df_task *t) {
  df_error err;
  df_status st = check_prompts(t, &err);
  if (st != DF_OK) {
    if (st == DF_ERR_LIMIT)
      df_task_fail(t, 400, "exceed_context_size_error", prompt_field(t), err.msg);
    else
      df_task_fail_error(t, &err, prompt_field(t));
    return;
  }
  t->n_choices = t->prompts.n * t->gen.best_of;
  t->choices = df_calloc(t->n_choices, sizeof *t->choices);
  if (!t->choices) {
    t->n_choices = 0;
    df_task_fail(t, 503, "unavailable_error", NULL, "out of memory");
    return;
  }
  for (uint32_t i = 0; i < t->n_choices; i++) {
    df_choice *c = &t->choices[i];
    c->task = t, c->index = i, c->prompt = i / t->gen.best_of;
    c->matched_id = c->matched_string = -1;
    df_detok_init(&c->pieces, t->server->m.model->tok, t->gen.p.show_special);
    c->offsets = c->pieces;
    df_reasoning_init(&c->thought, t->think);
  }
  st = submit_all(t, &err);
  if (st != DF_OK) df_task_fail_error(t, &err, NULL);
}

/* ---- streams ---- */

/* Sends what the shape wrote. False: the task is over. */
static bool flush(df_task *t) {
  if (t->out.len == 0) return true;
  df_exchange *x = t->x;
  bool ok = t->begun;
  if (!ok) {
    df_exchange_header(x, "Cache-Control", "no-cache");
    df_exchange_header(x, "X-Accel-Buffering", "no");
    t->begun = true;
    ok = df_exchange_begin(x, 200, "text/event-stream");
  }
  if (ok) ok = df_exchange_write(x, t->out.data, t->out.len);
  t->out.len = 0;
  t->t_write = df_now_ns();
  if (ok) return true;
  t->server->metrics.slow_readers++;
  df_log(DF_LOG_DEBUG, "client of %s reads too slowly, or memory is out", t->id);
  x->on_gone = NULL;
  df_exchange_abort(x);
  task_detach(t);
  return false;
}

/* The role chunk and the like before the first piece. */
static df_status begin(df_task *t, df_error *err) {
  if (t->opened || !t->shape->begin) return DF_OK;
  t->opened = true;
  return t->shape->begin(t, err);
}

void df_task_tick(df_server *s) {
  const uint64_t now = df_now_ns();
  for (df_task *t = s->tasks, *next; t; t = next) {
    next = t->next;
    if (!t->x || !t->gen.stream || t->n_live == 0 || now - t->t_write < DF_TASK_KEEP_ALIVE_S * 1000000000ull) continue;
    if (df_buf_puts(&t->out, ": keep-alive\n\n", NULL) == DF_OK) (void)flush(t);
  }
}

/* ---- events ---- */

static void *grow(void *p, size_t count, size_t bytes) { return df_realloc(p, count * bytes); }

static df_status reserve_ids(df_choice *c, uint32_t n, bool logprobs, uint32_t n_top, df_error *err) {
  if (c->n_ids + n <= c->cap_ids) return DF_OK;
  const uint32_t cap = (c->n_ids + n) * 2 + 64;
  void *p = grow(c->ids, cap, sizeof *c->ids);
  if (p) c->ids = p;
  if (p && logprobs && (p = grow(c->logprobs, cap, sizeof *c->logprobs)) != NULL) c->logprobs = p;
  if (p && n_top && (p = grow(c->top, (size_t)cap * n_top, sizeof *c->top)) != NULL) c->top = p;
  if (!p) return DF_OOM(err, "the tokens of an answer", cap * sizeof *c->ids);
  c->cap_ids = cap;
  return DF_OK;
}

static df_status keep_tokens(df_choice *c, const df_sched_event *ev, df_error *err) {
  const uint32_t n_top = ev->top ? ev->n_top : 0;
  if (ev->n_ids) {
    DF_TRY(reserve_ids(c, ev->n_ids, ev->logprobs != NULL, n_top, err));
    memcpy(c->ids + c->n_ids, ev->ids, ev->n_ids * sizeof *c->ids);
    if (ev->logprobs) memcpy(c->logprobs + c->n_ids, ev->logprobs, ev->n_ids * sizeof *c->logprobs);
    if (n_top) memcpy(c->top + (size_t)c->n_ids * n_top, ev->top, (size_t)ev->n_ids * n_top * sizeof *c->top);
    c->n_ids += ev->n_ids;
    c->stats.new_tokens = c->n_ids;
  }
  return ev->text_len ? df_buf_put(&c->text, ev->text, ev->text_len, err) : DF_OK;
}

/* Time between tokens: the tokens of one step share the time since the step before. */
static void note_latency(df_server *s, df_choice *c, uint32_t n) {
  const uint64_t now = df_now_ns();
  if (n && c->t_last) df_histogram_add(&s->metrics.itl, (double)(now - c->t_last) / 1e9 / n, n);
  if (n) c->t_last = now;
  s->metrics.tokens_sent += n;
}

static void count_reasoning(const df_task *t, df_choice *c, const df_sched_event *ev) {
  const df_tokenizer *tok = t->server->m.model->tok;
  for (uint32_t i = 0; i < ev->n_ids; i++) {
    const char *bytes = "";
    size_t n = 0;
    if (t->gen.p.show_special || !df_tokenizer_is_special(tok, ev->ids[i]))
      (void)df_tokenizer_piece(tok, ev->ids[i], &bytes, &n);
    df_reasoning_token(&c->thought, bytes, n);
  }
}

static void on_tokens(df_task *t, df_choice *c, const df_sched_event *ev) {
  if (!t->x || t->gen.max_tokens == 0) return;
  df_error err;
  df_piece p = {.text = ev->text ? ev->text : "",
                .text_len = ev->text_len,
                .first = c->n_ids,
                .n = ev->n_ids,
                .n_drafted = ev->n_drafted,
                .n_accepted = ev->n_accepted};
  note_latency(t->server, c, ev->n_ids);
  df_status st = keep_tokens(c, ev, &err);
  count_reasoning(t, c, ev);
  if (st == DF_OK && t->gen.stream) st = begin(t, &err);
  if (st == DF_OK && t->gen.stream) st = t->shape->piece(t, c, &p, &err);
  if (st != DF_OK)
    df_task_fail_error(t, &err, NULL);
  else
    (void)flush(t);
}

/* What STARTED tells: the prompt as it was found, and its logprobs. */
static void on_started(df_task *t, df_choice *c, const df_sched_event *ev) {
  const size_t n = t->prompts.v[c->prompt].n, n_top = ev->top ? ev->n_top : 0;
  c->stats = ev->stats;
  if (!t->x || !t->gen.echo || !ev->logprobs) return;
  c->prompt_logprobs = df_alloc(n * sizeof *c->prompt_logprobs);
  c->prompt_top = n_top ? df_alloc(n * n_top * sizeof *c->prompt_top) : NULL;
  if (!c->prompt_logprobs || (n_top && !c->prompt_top)) {
    df_task_fail(t, 503, "unavailable_error", NULL, "out of memory");
    return;
  }
  memcpy(c->prompt_logprobs, ev->logprobs, n * sizeof *c->prompt_logprobs);
  if (n_top) memcpy(c->prompt_top, ev->top, n * n_top * sizeof *c->prompt_top);
}

static void count_done(df_server *s, const df_choice *c, df_status failed) {
  df_server_metrics *m = &s->metrics;
  if (failed != DF_OK)
    m->requests_error++;
  else if (c->finish == DF_FINISH_CANCELLED)
    m->requests_cancelled++;
  else if (c->finish == DF_FINISH_LENGTH || c->finish == DF_FINISH_CONTEXT)
    m->requests_length++;
  else
    m->requests_stop++;
  if (c->t_admit >= c->t_submit && c->t_admit) df_histogram_add(&m->queue, (double)(c->t_admit - c->t_submit) / 1e9, 1);
  if (failed != DF_OK || !c->t_first) return;
  df_histogram_add(&m->ttft, (double)(c->t_first - c->t_submit) / 1e9, 1);
  df_histogram_add(&m->e2e, (double)(c->t_done - c->t_submit) / 1e9, 1);
  df_histogram_add(&m->tokens_prompt, c->stats.prompt_tokens, 1);
  df_histogram_add(&m->tokens_generated, c->stats.new_tokens, 1);
}

static double mean_logprob(const df_choice *c) {
  double sum = 0;
  for (uint32_t i = 0; i < c->n_ids; i++) sum += (double)c->logprobs[i];
  return c->n_ids && c->logprobs ? sum / c->n_ids : -1e30;
}

/* best_of: moves the n likeliest answers of every prompt to the front, in order, and numbers them. */
static void choose_best(df_task *t) {
  const uint32_t n = t->gen.n, of = t->gen.best_of;
  for (uint32_t p = 0; p < t->prompts.n; p++) {
    df_choice *v = t->choices + (size_t)p * of;
    for (uint32_t i = 0; i < n; i++) {
      uint32_t best = i;
      for (uint32_t k = i + 1; k < of; k++) {
        if (mean_logprob(&v[k]) > mean_logprob(&v[best])) best = k;
      }
      const df_choice swap = v[i];
      v[i] = v[best];
      v[best] = swap;
    }
    for (uint32_t i = 0; i < of; i++) v[i].index = i < n ? p * n + i : UINT32_MAX; /* not in the reply */
  }
}

static void reply_whole(df_task *t) {
  df_error err;
  df_json_out w;
  df_buf b;
  df_exchange *x = t->x;
  df_buf_init(&b, 0);
  if (t->gen.best_of > t->gen.n) choose_best(t);
  df_json_out_begin(&w, &b, &err);
  df_status st = t->shape->whole(t, &w, &err);
  if (st == DF_OK) st = df_json_out_end(&w);
  if (st != DF_OK) {
    df_buf_release(&b);
    df_task_fail_error(t, &err, NULL);
    return;
  }
  x->on_gone = NULL;
  t->x = NULL;
  df_reply_json(x, &b, DF_OK);
  task_detach(t);
}

static void on_done(df_task *t, df_choice *c, const df_sched_event *ev) {
  df_server *s = t->server;
  df_error err;
  c->done = true;
  c->finish = ev->finish;
  c->matched_id = ev->matched_id, c->matched_string = ev->matched_string;
  c->stats = ev->stats;
  if (t->gen.max_tokens == 0) c->stats.new_tokens = 0, c->finish = DF_FINISH_LENGTH;
  c->t_submit = ev->t_submit, c->t_admit = ev->t_admit, c->t_first = ev->t_first, c->t_done = ev->t_done;
  count_done(s, c, ev->failed);
  if (!t->x) {
    if (t->n_live == 0) task_free(t);
    return;
  }
  if (ev->failed != DF_OK) {
    (void)DF_FAIL(&err, ev->failed, "%s", ev->message);
    df_task_fail_error(t, &err, NULL);
    return;
  }
  if (ev->timed_out) {
    df_task_fail(t, 504, "timeout_error", NULL, "the request took longer than the server allows");
    return;
  }
  if (ev->finish == DF_FINISH_CANCELLED && s->phase == DF_PHASE_DRAINING) {
    df_task_fail(t, 503, "unavailable_error", NULL, "the server is shutting down");
    return;
  }
  if (!t->gen.stream) {
    if (t->n_live == 0) reply_whole(t);
    return;
  }
  df_status st = begin(t, &err);
  if (st == DF_OK) st = t->shape->finish(t, c, &err);
  if (st == DF_OK && t->n_live == 0) st = t->shape->end(t, &err);
  if (st != DF_OK) {
    df_task_fail_error(t, &err, NULL);
    return;
  }
  if (!flush(t) || t->n_live > 0) return;
  df_exchange *x = t->x;
  x->on_gone = NULL;
  t->x = NULL;
  df_exchange_end(x);
  task_detach(t);
}

void df_task_event(df_server *s, df_sched_event *ev) {
  df_choice *c = choice_find(s, ev->id);
  if (!c) return;
  df_task *t = c->task;
  switch (ev->kind) {
    case DF_SCHED_STARTED: on_started(t, c, ev); break;
    case DF_SCHED_TOKENS: on_tokens(t, c, ev); break;
    case DF_SCHED_DONE:
      choice_forget(s, c);
      c->live = false;
      t->n_live--;
      on_done(t, c, ev);
      break;
  }
}
