#include "engine/bench.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/cpu.h"
#include "base/mem.h"
#include "base/size.h"

static int32_t made_up_token(const df_bench *b, uint32_t i) {
  return (int32_t)((i * 2654435761u >> 8) % (b->e.m->cfg.vocab / 2));
}

/* Rows first .. first+n-1 of a sequence through prefill passes. */
static df_status feed(df_bench *b, df_kv_seq *seq, uint32_t first, uint32_t n, df_error *err) {
  const uint32_t step = df_spec_prefill_rows(&b->e.step);
  int32_t ids[512];
  DF_TRY(df_kv_seq_reserve(seq, &b->e.pages, first + n, err));
  for (uint32_t at = 0; at < n; at += DF_MIN(step, 512u)) {
    const uint32_t m = DF_MIN(n - at, DF_MIN(step, 512u));
    for (uint32_t i = 0; i < m; i++) ids[i] = made_up_token(b, first + at + i);
    df_prefill_item it = {.seq = seq, .ids = ids, .n = m, .first = first + at, .last = at + m == n};
    DF_TRY(df_spec_prefill(&b->e.step, &it, 1, err));
  }
  return DF_OK;
}

/* A sequence as deep as passes want it, with room for a block. */
static df_status make_seq(df_bench *b, df_kv_seq *seq, uint32_t held, df_error *err) {
  if (held < b->depth) DF_TRY(feed(b, seq, held, b->depth - held, err));
  return df_kv_seq_reserve(seq, &b->e.pages, b->depth + DF_MAX_WIDTH, err);
}

df_status df_bench_init(df_bench *b, df_model *m, df_draft *d, const df_session_params *p, uint32_t n_seqs,
                        uint32_t depth, df_error *err) {
  enum { SPARE = 8192 }; /* tokens for prompts and texts that are measured beside the sequences */
  *b = (df_bench){.n_seqs = n_seqs, .depth = depth};
  df_engine_params ep = {.session = *p, .max_seqs = n_seqs};
  if (n_seqs > 1) ep.kv_tokens = n_seqs * (depth + 4 * DF_MAX_WIDTH) + SPARE; /* full contexts could be a lot */
  if (d) ep.session.spec_draft_max = (int32_t)DF_MIN(d->cfg.block_size, (uint32_t)DF_MAX_WIDTH) - 1; /* no controller */
  DF_TRY(df_engine_init(&b->e, m, d, &ep, err));
  df_status s = DF_OK;
  if (depth + DF_MAX_WIDTH > b->e.n_ctx)
    s = DF_FAIL(err, DF_ERR_ARGUMENT, "depth %u and a block of %d do not fit the context of %u", depth, DF_MAX_WIDTH,
                b->e.n_ctx);
  for (uint32_t i = 0; i < n_seqs && s == DF_OK; i++) {
    s = df_kv_seq_init(&b->seq[i], b->e.pages.size, b->e.n_ctx, err);
    if (s == DF_OK) s = make_seq(b, &b->seq[i], 0, err);
  }
  if (s != DF_OK) df_bench_release(b);
  return s;
}

void df_bench_release(df_bench *b) {
  for (uint32_t i = 0; i < b->n_seqs; i++) df_kv_seq_release(&b->seq[i], &b->e.pages);
  df_engine_release(&b->e);
}

/* On a card injection goes on behind the call: a sample ends when nothing runs any more. The processor's calls are
 * through when they return, and waiting for its helpers would count as work. */
static void settle(const df_bench *b) {
  df_device *d = b->e.m->device;
  if (!d->is_host) d->ops->quiesce(d);
}

df_status df_bench_verify(df_bench *b, uint32_t rows, double *ms, df_error *err) {
  df_target *t = &b->e.target;
  int32_t ids[DF_MAX_WIDTH];
  for (uint32_t i = 0; i < rows; i++) ids[i] = made_up_token(b, b->depth + i);
  const uint64_t t0 = df_now_ns();
  df_fill_begin(&t->batch);
  for (uint32_t i = 0; i < b->n_seqs; i++) (void)df_fill_add(&t->batch, &b->seq[i], ids, rows, b->depth, DF_OUT_ALL);
  DF_TRY(df_target_run(t, rows == 1 ? DF_MODE_DECODE : DF_MODE_TARGET_VERIFY, DF_TAIL_ARGMAX, err));
  *ms = (double)(df_now_ns() - t0) / 1e6;
  return DF_OK;
}

df_status df_bench_draft(df_bench *b, uint32_t rows, uint32_t inject, double *ms, df_error *err) {
  int32_t drafted[DF_ENGINE_MAX_SEQS][DF_MAX_WIDTH];
  df_draft_item it[DF_ENGINE_MAX_SEQS];
  df_inject_item in[DF_ENGINE_MAX_SEQS];
  const uint64_t t0 = df_now_ns();
  for (uint32_t i = 0; i < b->n_seqs; i++) {
    it[i] = (df_draft_item){&b->seq[i], made_up_token(b, b->depth), b->depth, drafted[i], NULL};
    in[i] = (df_inject_item){&b->seq[i], i * rows, inject, b->depth};
  }
  DF_TRY(df_drafter_draft(&b->e.drafter, it, b->n_seqs, rows, err));
  DF_TRY(df_drafter_inject(&b->e.drafter, in, b->n_seqs, err));
  settle(b);
  *ms = (double)(df_now_ns() - t0) / 1e6;
  return DF_OK;
}

df_status df_bench_prefill(df_bench *b, uint32_t n, double *ms, df_error *err) {
  df_kv_seq_trim(&b->seq[0], &b->e.pages, 0);
  const uint64_t t0 = df_now_ns();
  const df_status s = feed(b, &b->seq[0], 0, n, err);
  settle(b);
  *ms = (double)(df_now_ns() - t0) / 1e6;
  return s == DF_OK ? make_seq(b, &b->seq[0], n, err) : s;
}

static df_status engine_steps(df_bench *b, df_request *q, uint32_t n, df_error *err) {
  for (uint32_t i = 0; i < n; i++) DF_TRY(df_engine_step(&b->e, &q, 1, err));
  return df_request_status(q, err);
}

static df_status time_steps(df_bench *b, df_request *q, uint32_t n, df_bench_steps *out, df_error *err) {
  df_device *d = b->e.m->device;
  df_device_info before, after;
  DF_TRY(engine_steps(b, q, 8, err)); /* the prompt, and programs that are recorded at their first use */
  settle(b);
  d->ops->info(d, &before);
  const uint64_t t0 = df_now_ns();
  DF_TRY(engine_steps(b, q, n, err));
  const double us = (double)(df_now_ns() - t0) / 1e3;
  d->ops->info(d, &after);
  out->step_us = us / n;
  out->host_us = (us - (double)(after.waited_ns - before.waited_ns) / 1e3) / n;
  out->passes = (double)(after.runs - before.runs) / n;
  out->waits = (double)(after.waits - before.waits) / n;
  return DF_OK;
}

df_status df_bench_steps_of(df_bench *b, uint32_t width, uint32_t n, df_bench_steps *out, df_error *err) {
  df_generate_params g = df_generate_params_default();
  df_request_config c = {.gen = &g};
  df_kv_seq seq;
  df_request q;
  int32_t ids[32];
  if (b->e.m->device->is_host) return DF_FAIL(err, DF_ERR_UNSUPPORTED, "the processor does not wait for itself");
  for (uint32_t i = 0; i < DF_COUNT_OF(ids); i++) ids[i] = made_up_token(b, i);
  g.max_tokens = (n + 9) * DF_MAX_WIDTH;
  g.ignore_eos = true;
  DF_TRY(df_engine_width(&b->e, (int32_t)width, &c, err));
  df_kv_seq_trim(&b->seq[0], &b->e.pages, 0); /* the pool is for no more */
  DF_TRY(df_kv_seq_init(&seq, b->e.pages.size, b->e.n_ctx, err));
  df_status s = df_request_init(&q, b->e.m, ids, DF_COUNT_OF(ids), b->e.n_ctx, &c, err);
  if (s == DF_OK) {
    s = df_engine_admit(&b->e, &q, &seq, 0, err);
    if (s == DF_OK) {
      s = time_steps(b, &q, n, out, err);
      seq = q.seq;
    }
    df_request_release(&q);
  }
  df_kv_seq_release(&seq, &b->e.pages);
  return s == DF_OK ? make_seq(b, &b->seq[0], 0, err) : s;
}

/* Seconds all processors were busy since boot; negative when the system does not say. */
static double busy_seconds(void) {
  FILE *f = fopen("/proc/stat", "re");
  if (!f) return -1;
  unsigned long long v[8] = {0};
  const int n =
      fscanf(f, "cpu %llu %llu %llu %llu %llu %llu %llu %llu", &v[0], &v[1], &v[2], &v[3], &v[4], &v[5], &v[6], &v[7]);
  (void)fclose(f);
  if (n < 4) return -1;
  /* user, nice, system, irq, softirq, steal: everything but idle and waiting for disks */
  return (double)(v[0] + v[1] + v[2] + v[5] + v[6] + v[7]) / (double)sysconf(_SC_CLK_TCK);
}

static double seconds_of(int who) {
  struct rusage r;
  if (getrusage(who, &r) != 0) return 0;
  return (double)(r.ru_utime.tv_sec + r.ru_stime.tv_sec) + (double)(r.ru_utime.tv_usec + r.ru_stime.tv_usec) / 1e6;
}

/* A peer that is timed in turn is no other process. */
static double own_seconds(void) { return seconds_of(RUSAGE_SELF) + seconds_of(RUSAGE_CHILDREN); }

/* All processors of the machine, whatever this process may use: busy_seconds is theirs. */
void df_bench_load_begin(df_bench_load *l) {
  const long cpus = sysconf(_SC_NPROCESSORS_ONLN);
  *l = (df_bench_load){busy_seconds(), own_seconds(), (double)df_now_ns() / 1e9, cpus > 0 ? (uint32_t)cpus : 1};
}

double df_bench_load_others(const df_bench_load *l) {
  const double busy = busy_seconds(), wall = (double)df_now_ns() / 1e9 - l->wall_s;
  if (busy < 0 || l->busy_s < 0 || wall <= 0) return -1;
  const double others = (busy - l->busy_s) - (own_seconds() - l->own_s);
  return DF_MAX(0.0, others / (wall * l->cpus));
}

static int by_value(const void *a, const void *b) {
  const double x = *(const double *)a, y = *(const double *)b;
  return x < y ? -1 : x > y;
}

df_spread df_bench_spread(double *samples, uint32_t n) {
  if (n == 0) return (df_spread){0, 0, 0};
  qsort(samples, n, sizeof *samples, by_value);
  const double mid = n % 2 ? samples[n / 2] : 0.5 * (samples[n / 2 - 1] + samples[n / 2]);
  return (df_spread){mid, samples[0], samples[n - 1]};
}
