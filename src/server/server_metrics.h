/*
 * server/server_metrics.h - counters and histograms of the server, and the Prometheus text of /metrics.
 *
 * Threads: the loop's thread only. Source: Prometheus text format 0.0.4.
 */
#ifndef DF_SERVER_SERVER_METRICS_H
#define DF_SERVER_SERVER_METRICS_H

#include "engine/scheduler.h"

enum { DF_HIST_MAX = 24 };

typedef struct df_histogram {
  const double *bounds; /* ascending, without +Inf */
  uint32_t n;
  uint64_t count[DF_HIST_MAX + 1];
  double sum;
  uint64_t total;
} df_histogram;

typedef struct df_server_metrics {
  df_histogram ttft, itl, e2e, queue, tokens_prompt, tokens_generated;
  uint64_t requests_stop, requests_length, requests_cancelled, requests_error;
  uint64_t tokens_sent;      /* new tokens that went into replies or would have */
  uint64_t http_requests[6]; /* by status / 100; [0] = client gone */
  uint64_t clients_gone, slow_readers;
} df_server_metrics;

typedef struct df_metrics_view {
  const df_server_metrics *m;
  const df_sched_stats *s; /* NULL while loading */
  const char *model, *version, *isa;
  uint32_t n_ctx, width, max_seqs, connections;
  double uptime_s;
  int64_t started;
} df_metrics_view;

void df_server_metrics_init(df_server_metrics *m);
void df_histogram_add(df_histogram *h, double value, uint64_t times);
/* Appends the whole page. */
df_status df_metrics_write(const df_metrics_view *v, df_buf *out, df_error *err) DF_CHECK;

#endif
