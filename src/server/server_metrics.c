/* The page of /metrics: one table of values, each with our name and the names that other engines' dashboards read. */
#include "server/server_metrics.h"

#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "base/size.h"

/* The buckets that vLLM uses, so that its dashboards fit. */
static const double ttft_bounds[] = {0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75,
                                     1,     2.5,   5,    7.5,  10,   20,   40,   80,  160,  640, 2560};
static const double itl_bounds[] = {0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3,
                                    0.4,   0.5,    0.75,  1,    2.5,   5,    7.5,   10,  20,   40,  80};
static const double time_bounds[] = {0.005, 0.01, 0.05, 0.1, 0.3, 0.5, 0.8, 1,   1.5, 2,   2.5, 5,
                                     10,    15,   20,   30,  40,  50,  60,  120, 240, 480, 960, 1920};
static const double token_bounds[] = {1,   2,    5,    10,   20,    50,    100,   200,
                                      500, 1000, 2000, 5000, 10000, 20000, 50000, 100000};

static void hist_init(df_histogram *h, const double *bounds, size_t n) {
  memset(h, 0, sizeof *h);
  h->bounds = bounds;
  h->n = (uint32_t)n;
}

void df_server_metrics_init(df_server_metrics *m) {
  memset(m, 0, sizeof *m);
  hist_init(&m->ttft, ttft_bounds, DF_COUNT_OF(ttft_bounds));
  hist_init(&m->itl, itl_bounds, DF_COUNT_OF(itl_bounds));
  hist_init(&m->e2e, time_bounds, DF_COUNT_OF(time_bounds));
  hist_init(&m->queue, time_bounds, DF_COUNT_OF(time_bounds));
  hist_init(&m->tokens_prompt, token_bounds, DF_COUNT_OF(token_bounds));
  hist_init(&m->tokens_generated, token_bounds, DF_COUNT_OF(token_bounds));
}

void df_histogram_add(df_histogram *h, double value, uint64_t times) {
  uint32_t i = 0;
  while (i < h->n && value > h->bounds[i]) i++;
  h->count[i] += times;
  h->sum += value * (double)times;
  h->total += times;
}

/* The first failure sticks. */
typedef struct page {
  df_buf *out;
  df_error *err;
  df_status st;
  char label[600]; /* model_name="...": what other engines' series carry */
} page;

#define PUT(p, ...)                                                                 \
  do {                                                                              \
    if ((p)->st == DF_OK) (p)->st = df_buf_printf((p)->out, (p)->err, __VA_ARGS__); \
  } while (0)

static void head(page *p, const char *name, const char *type, const char *help) {
  PUT(p, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

static bool is_own(const char *name) {
  return strncmp(name, "df_", 3) == 0 || strncmp(name, "llamacpp:", 9) == 0 || strncmp(name, "process_", 8) == 0;
}

/* One value under several names, separated by blanks: ours first. Foreign series carry the model's name. */
static void value(page *p, const char *names, const char *type, const char *help, double v) {
  char name[80];
  while (*names) {
    const size_t n = strcspn(names, " ");
    (void)snprintf(name, sizeof name, "%.*s", (int)n, names);
    names += n + (names[n] == ' ');
    head(p, name, type, help);
    if (is_own(name))
      PUT(p, "%s %.17g\n", name, v);
    else
      PUT(p, "%s{%s} %.17g\n", name, p->label, v);
  }
}

static void counter(page *p, const char *names, const char *help, double v) { value(p, names, "counter", help, v); }
static void gauge(page *p, const char *names, const char *help, double v) { value(p, names, "gauge", help, v); }

static void one_histogram(page *p, const char *name, const char *help, const df_histogram *h) {
  const bool own = is_own(name);
  const char *label = own ? "" : p->label, *sep = own ? "" : ",";
  uint64_t sum = 0;
  head(p, name, "histogram", help);
  for (uint32_t i = 0; i < h->n; i++) {
    sum += h->count[i];
    PUT(p, "%s_bucket{%s%sle=\"%g\"} %llu\n", name, label, sep, h->bounds[i], (unsigned long long)sum);
  }
  PUT(p, "%s_bucket{%s%sle=\"+Inf\"} %llu\n", name, label, sep, (unsigned long long)h->total);
  if (own) {
    PUT(p, "%s_sum %.17g\n%s_count %llu\n", name, h->sum, name, (unsigned long long)h->total);
  } else {
    PUT(p, "%s_sum{%s} %.17g\n%s_count{%s} %llu\n", name, label, h->sum, name, label, (unsigned long long)h->total);
  }
}

static void histogram(page *p, const char *names, const char *help, const df_histogram *h) {
  char name[80];
  while (*names) {
    const size_t n = strcspn(names, " ");
    (void)snprintf(name, sizeof name, "%.*s", (int)n, names);
    names += n + (names[n] == ' ');
    one_histogram(p, name, help, h);
  }
}

static void reasons(page *p, const char *name, bool own, const df_server_metrics *m) {
  const struct {
    const char *reason;
    uint64_t n;
  } rows[] = {{"stop", m->requests_stop},
              {"length", m->requests_length},
              {own ? "cancelled" : "abort", m->requests_cancelled},
              {"error", m->requests_error}};
  head(p, name, "counter", "Answers that ended, by reason");
  for (size_t i = 0; i < DF_COUNT_OF(rows); i++)
    PUT(p, "%s{%s%s%s=\"%s\"} %llu\n", name, own ? "" : p->label, own ? "" : ",", own ? "reason" : "finished_reason",
        rows[i].reason, (unsigned long long)rows[i].n);
}

static void http_series(page *p, const df_metrics_view *v) {
  static const char *const classes[] = {"gone", "1xx", "2xx", "3xx", "4xx", "5xx"};
  head(p, "df_http_requests_total", "counter",
       "HTTP requests by status class; gone: the client left before the answer");
  for (size_t i = 0; i < DF_COUNT_OF(classes); i++)
    PUT(p, "df_http_requests_total{class=\"%s\"} %llu\n", classes[i], (unsigned long long)v->m->http_requests[i]);
  gauge(p, "df_http_connections", "Open connections", v->connections);
  counter(p, "df_clients_gone_total", "Clients that left while their request was at work", (double)v->m->clients_gone);
  counter(p, "df_slow_readers_total", "Streams cut because the client did not read", (double)v->m->slow_readers);
}

static void queue_series(page *p, const df_metrics_view *v) {
  const df_sched_stats *s = v->s;
  const double usage = s->pages_total ? (double)s->pages_used / s->pages_total : 0;
  gauge(p, "df_requests_running vllm:num_requests_running sglang:num_running_reqs llamacpp:requests_processing",
        "Requests in the running batch", s->running);
  gauge(p, "df_requests_waiting vllm:num_requests_waiting sglang:num_queue_reqs llamacpp:requests_deferred",
        "Requests in the queue", s->waiting);
  gauge(p, "df_requests_running_max sglang:max_running_requests", "Most requests in the running batch", v->max_seqs);
  gauge(p,
        "df_kv_usage_ratio vllm:kv_cache_usage_perc vllm:gpu_cache_usage_perc sglang:token_usage "
        "llamacpp:kv_cache_usage_ratio",
        "Share of the KV pages held by requests, 1 = all", usage);
  gauge(p, "df_kv_blocks_used", "KV pages held by requests", s->pages_used);
  gauge(p, "df_kv_blocks_cached", "KV pages held by the prefix cache only", s->pages_cached);
  gauge(p, "df_kv_blocks_total", "KV pages", s->pages_total);
  gauge(p, "df_kv_block_size", "Tokens of a KV page", s->page_size);
  gauge(p, "sglang:num_used_tokens llamacpp:kv_cache_tokens", "Tokens of KV held by requests",
        (double)s->pages_used * s->page_size);
  gauge(p, "sglang:max_total_num_tokens", "Tokens that fit into the KV pages", (double)s->pages_total * s->page_size);
  head(p, "vllm:cache_config_info", "gauge", "KV cache settings");
  PUT(p, "vllm:cache_config_info{%s,block_size=\"%u\",num_gpu_blocks=\"%u\"} 1\n", p->label, s->page_size,
      s->pages_total);
  counter(p, "df_preemptions_total vllm:num_preemptions_total sglang:num_retracted_reqs_total",
          "Requests put back because KV pages ran out", (double)s->preempted);
  counter(p, "df_requests_submitted_total sglang:num_requests_total", "Requests accepted into the queue",
          (double)s->submitted);
  counter(p, "df_requests_refused_total", "Requests refused because the queue was full", (double)s->refused);
  counter(p, "df_requests_timed_out_total", "Requests that ran out of time", (double)s->timed_out);
}

static void token_series(page *p, const df_metrics_view *v) {
  const df_sched_stats *s = v->s;
  counter(p, "df_prompt_tokens_total vllm:prompt_tokens_total sglang:prompt_tokens_total llamacpp:prompt_tokens_total",
          "Prompt tokens of admitted requests", (double)s->prompt_tokens);
  counter(p,
          "df_generation_tokens_total vllm:generation_tokens_total sglang:generation_tokens_total "
          "llamacpp:tokens_predicted_total",
          "Tokens generated", (double)s->generated_tokens);
  counter(p, "df_sent_tokens_total", "Tokens generated for clients that still listened", (double)v->m->tokens_sent);
  counter(p, "df_cached_tokens_total sglang:cached_tokens_total", "Prompt tokens taken from the prefix cache",
          (double)s->cached_tokens);
  counter(p, "df_prefix_cache_queries_total vllm:prefix_cache_queries_total", "Tokens looked up in the prefix cache",
          (double)s->prefix_queries);
  counter(p, "df_prefix_cache_hits_total vllm:prefix_cache_hits_total", "Tokens found in the prefix cache",
          (double)s->prefix_hits);
  gauge(p, "sglang:cache_hit_rate", "Share of looked up tokens found",
        s->prefix_queries ? (double)s->prefix_hits / (double)s->prefix_queries : 0);
  gauge(p, "sglang:gen_throughput llamacpp:predicted_tokens_seconds", "Tokens generated for each second of work",
        s->busy_s > 0 ? (double)s->generated_tokens / s->busy_s : 0);
  counter(p, "df_engine_steps_total llamacpp:n_decode_total", "Steps of the engine", (double)s->steps);
  counter(p, "df_engine_busy_seconds_total", "Time in steps", s->busy_s);
  counter(p, "df_engine_model_seconds_total", "Time in the model's programs, of the time in steps", s->model_s);
}

static void by_position(page *p, const char *name, const char *help, const uint64_t *v, uint32_t n) {
  const bool own = is_own(name);
  head(p, name, "counter", help);
  for (uint32_t i = 0; i < n; i++)
    PUT(p, "%s{%s%sposition=\"%u\"} %llu\n", name, own ? "" : p->label, own ? "" : ",", i, (unsigned long long)v[i]);
}

static void spec_series(page *p, const df_metrics_view *v) {
  const df_sched_stats *s = v->s;
  const uint32_t slots = v->width > 1 ? v->width - 1 : 0;
  gauge(p, "df_spec_width", "Most rows of a verify block; 1 = no drafting", v->width);
  counter(p, "df_spec_drafts_total vllm:spec_decode_num_drafts_total", "Verify steps", (double)s->verify_steps);
  counter(p, "df_spec_draft_tokens_total vllm:spec_decode_num_draft_tokens_total", "Drafted tokens",
          (double)s->drafted);
  counter(p, "df_spec_accepted_tokens_total vllm:spec_decode_num_accepted_tokens_total", "Drafted tokens accepted",
          (double)s->accepted);
  counter(p, "df_spec_rejected_tokens_total", "Drafted tokens rejected", (double)(s->drafted - s->accepted));
  counter(p, "df_spec_emitted_tokens_total", "Tokens emitted by verify steps, the target's own included",
          (double)s->emitted_verify);
  by_position(p, "df_spec_drafted_tokens_per_pos_total", "Drafted tokens by position, 0 = the first", s->drafted_at,
              slots);
  by_position(p, "df_spec_accepted_tokens_per_pos_total", "Accepted tokens by position, 0 = the first", s->accepted_at,
              slots);
  by_position(p, "vllm:spec_decode_num_accepted_tokens_per_pos_total", "Accepted tokens by position, 0 = the first",
              s->accepted_at, slots);
  head(p, "df_spec_width_steps_total", "counter", "Steps of requests by the width taken");
  for (uint32_t i = 1; i <= v->width && i <= DF_MAX_WIDTH; i++)
    PUT(p, "df_spec_width_steps_total{width=\"%u\"} %llu\n", i, (unsigned long long)s->width_steps[i]);
  gauge(p, "sglang:spec_accept_length", "Tokens emitted by a verify step, on average, the target's own included",
        s->verify_steps ? (double)s->emitted_verify / (double)s->verify_steps : 1);
  gauge(p, "sglang:spec_accept_rate", "Share of drafted tokens accepted",
        s->drafted ? (double)s->accepted / (double)s->drafted : 0);
}

static void latency_series(page *p, const df_server_metrics *m) {
  histogram(p, "df_time_to_first_token_seconds vllm:time_to_first_token_seconds sglang:time_to_first_token_seconds",
            "From the submission to the first token", &m->ttft);
  histogram(p, "df_inter_token_latency_seconds vllm:inter_token_latency_seconds sglang:inter_token_latency_seconds",
            "Between tokens; the tokens of one step share its time", &m->itl);
  histogram(p, "df_e2e_request_latency_seconds vllm:e2e_request_latency_seconds sglang:e2e_request_latency_seconds",
            "From the submission to the end", &m->e2e);
  histogram(p, "df_queue_time_seconds vllm:request_queue_time_seconds sglang:queue_time_seconds",
            "From the submission to the start of the prefill", &m->queue);
  histogram(p, "df_request_prompt_tokens vllm:request_prompt_tokens", "Prompt tokens of a request", &m->tokens_prompt);
  histogram(p, "df_request_generation_tokens vllm:request_generation_tokens", "New tokens of a request",
            &m->tokens_generated);
}

/* A label's value: backslash, quote and line feed escaped. */
static void set_label(page *p, const char *model) {
  size_t n = (size_t)snprintf(p->label, sizeof p->label, "model_name=\"");
  for (; *model && n + 4 < sizeof p->label; model++) {
    if (*model == '\\' || *model == '"') p->label[n++] = '\\';
    if (*model == '\n') {
      p->label[n++] = '\\';
      p->label[n++] = 'n';
    } else {
      p->label[n++] = *model;
    }
  }
  p->label[n++] = '"';
  p->label[n] = '\0';
}

df_status df_metrics_write(const df_metrics_view *v, df_buf *out, df_error *err) {
  page p = {.out = out, .err = err};
  set_label(&p, v->model);
  head(&p, "df_build_info", "gauge", "What runs here");
  PUT(&p, "df_build_info{version=\"%s\",isa=\"%s\",%s} 1\n", v->version, v->isa, p.label);
  gauge(&p, "df_ready", "1 when requests can be answered", v->s && !v->s->device_lost[0] ? 1 : 0);
  gauge(&p, "df_uptime_seconds", "Since the start", v->uptime_s);
  gauge(&p, "process_start_time_seconds", "Seconds since 1970 at the start", (double)v->started);
  http_series(&p, v);
  if (!v->s) return p.st;
  gauge(&p, "df_context_tokens", "Most tokens of a request, prompt and answer", v->n_ctx);
  queue_series(&p, v);
  token_series(&p, v);
  spec_series(&p, v);
  reasons(&p, "df_requests_total", true, v->m);
  reasons(&p, "vllm:request_success_total", false, v->m);
  latency_series(&p, v->m);
  return p.st;
}
