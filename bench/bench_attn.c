/*
 * bench/bench_attn.c - attention leaves against the memory they have to read.
 *
 *   bench_attn [depth [reps]]            default: 4096 positions, 15 repetitions
 *
 * One pass = the attention of many layers of a model's shape, each with keys and values of its own (half precision):
 * as many layers as make half a gigabyte, so that no cache keeps them from one pass to the next. For every leaf, 1 and
 * 2 threads and 1 to 16 rows: milliseconds, GB/s over the bytes of K and V that exist, and that as a share of a loop
 * which only reads the same memory with the same threads. A verify that read K and V once for each row would show n
 * times the time of one row. Read loop and passes take turns; medians.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "attention/backend.h"
#include "base/clock.h"
#include "base/mem.h"
#include "base/size.h"
#include "device/cpu/cpu_exec.h"
#include "kv/fill.h"
#include "kv/store.h"

enum { MAX_ROWS = 16, MAX_REPS = 101, PAGE = 16, N_ROWS = 6, N_LEAVES = 2, READ_CHUNKS = 64 };

static const double k_bytes = 512e6; /* of K and V together */

static const uint32_t k_rows[N_ROWS] = {1, 2, 4, 8, 12, 16};

typedef struct shape {
  const char *name;
  uint32_t n_kv, group, head_dim;
} shape;

static const shape k_shapes[] = {{"shape of S: 9 heads on 3, width 64", 3, 3, 64},
                                 {"shape of Q: 12 heads on 2, width 128", 2, 6, 128}};

typedef struct rig {
  const shape *s;
  df_pool *pool;
  df_cpu *cpu;
  df_pages pages;
  df_kv_store store;
  df_kv_seq seq;
  df_batch batch;
  float *q, *out;
  uint32_t depth, width, layers;
  uint64_t sum[READ_CHUNKS];
} rig;

static void must(df_status s, const df_error *err) {
  if (s == DF_OK) return;
  fprintf(stderr, "bench_attn: %s\n", err->msg);
  exit(1);
}

static void rig_init(rig *r, const shape *s, uint32_t depth, uint32_t threads) {
  df_error err = {0};
  *r = (rig){.s = s, .depth = depth, .width = s->n_kv * s->group * s->head_dim};
  r->layers = (uint32_t)(k_bytes / ((double)depth * s->n_kv * s->head_dim * 4));
  must(df_pool_create(threads, &r->pool, &err), &err);
  must(df_cpu_create(r->pool, df_kernels_get(df_cpu_best_tier()), &r->cpu, &err), &err);
  must(df_pages_init(&r->pages, PAGE, depth + MAX_ROWS, &err), &err);
  must(df_kv_store_init(&r->store, DF_KV_F16, r->layers, s->n_kv, s->head_dim, &r->pages, NULL, &err), &err);
  must(df_kv_seq_init(&r->seq, PAGE, depth + MAX_ROWS, &err), &err);
  must(df_kv_seq_reserve(&r->seq, &r->pages, depth + MAX_ROWS, &err), &err);
  must(df_batch_init(&r->batch, MAX_ROWS, 1, (depth + MAX_ROWS + 63) / 64 * 4, &err), &err);
  r->q = df_pages_alloc(MAX_ROWS * r->width * sizeof(float));
  r->out = df_pages_alloc(MAX_ROWS * r->width * sizeof(float));
  if (!r->q || !r->out) exit(1);
  for (uint32_t i = 0; i < MAX_ROWS * r->width; i++) r->q[i] = (float)(i * 2654435761u >> 8) * 0x1p-24f - 0.5f;
  uint16_t *kv[2] = {(uint16_t *)(void *)r->store.k, (uint16_t *)(void *)r->store.v};
  for (size_t i = 0; i < r->store.total_bytes / 2; i++)
    kv[0][i] = kv[1][i] = df_f32_to_f16((float)((uint32_t)i * 2654435761u >> 8) * 0x1p-24f - 0.5f);
}

static void rig_release(rig *r) {
  df_cpu_quiesce(r->cpu);
  df_pages_free(r->q, MAX_ROWS * r->width * sizeof(float));
  df_pages_free(r->out, MAX_ROWS * r->width * sizeof(float));
  df_batch_release(&r->batch);
  df_kv_seq_release(&r->seq, &r->pages);
  df_kv_store_release(&r->store);
  df_pages_release(&r->pages);
  df_cpu_free(r->cpu);
  df_pool_free(r->pool);
}

/* Bytes of K and V up to the sequence's last position, all layers. */
static double kv_bytes(const rig *r) { return (double)r->depth * (double)df_kv_store_token_bytes(&r->store); }

/* A program of all layers' attention for n rows that end at the depth. */
static df_program *emit(rig *r, df_attn *leaf, uint32_t n) {
  static const int32_t ids[MAX_ROWS];
  df_error err = {0};
  df_program *p;
  const df_mode mode = n == 1 ? DF_MODE_DECODE : DF_MODE_TARGET_VERIFY;
  df_fill_begin(&r->batch);
  (void)df_fill_add(&r->batch, &r->seq, ids, n, r->depth - n, DF_OUT_NONE);
  must(df_program_create(n, 1, df_pool_threads(r->pool), &p, &err), &err);
  const df_attn_pass pass = {p, &r->batch, mode, DF_MASK_NONE, NULL, 0};
  for (uint32_t l = 0; l < r->layers; l++) {
    const df_attn_layer layer = {.q = r->q,
                                 .q_ld = r->width,
                                 .out = {.f = r->out, .k = r->width},
                                 .kv = df_kv_store_layer(&r->store, l),
                                 .layer = l,
                                 .causal = true};
    must(leaf->ops->emit(leaf, &pass, &layer, &err), &err);
  }
  must(leaf->ops->plan(leaf, p, &r->batch, mode, DF_PHASE_EAGER, &err), &err);
  return p;
}

static void read_share(void *arg, uint32_t i, uint32_t worker) {
  (void)worker;
  rig *r = arg;
  const size_t lines = r->store.total_bytes / 64, from = lines * i / READ_CHUNKS, to = lines * (i + 1) / READ_CHUNKS;
  uint64_t sum[2] = {0};
  for (size_t at = from * 64; at < to * 64; at += 64) {
    __builtin_prefetch(r->store.k + at + 2048, 0, 3);
    __builtin_prefetch(r->store.v + at + 2048, 0, 3);
    sum[0] += *(const uint64_t *)(const void *)(r->store.k + at);
    sum[1] += *(const uint64_t *)(const void *)(r->store.v + at);
  }
  r->sum[i] = sum[0] + sum[1];
}

static int by_value(const void *a, const void *b) {
  const double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

static double median(double *v, uint32_t n) {
  qsort(v, n, sizeof *v, by_value);
  return v[n / 2];
}

static void bench_leaf(rig *r, df_attn *leaf, uint32_t reps) {
  static double ms[N_ROWS][MAX_REPS], read[MAX_REPS];
  for (uint32_t rep = 0; rep < reps; rep++) {
    uint64_t t0 = df_now_ns();
    df_pool_for(r->pool, READ_CHUNKS, read_share, r);
    read[rep] = (double)(df_now_ns() - t0) / 1e6;
    for (uint32_t i = 0; i < N_ROWS; i++) {
      df_program *p = emit(r, leaf, k_rows[i]);
      t0 = df_now_ns();
      df_cpu_run(r->cpu, p);
      df_cpu_quiesce(r->cpu);
      ms[i][rep] = (double)(df_now_ns() - t0) / 1e6;
      df_program_free(p);
    }
  }
  const double loop = (double)(2 * r->store.total_bytes) / median(read, reps) / 1e6;
  double one = 0;
  printf("%-8s %u thread%s   read loop %.1f GB/s\n", leaf->label, df_pool_threads(r->pool),
         df_pool_threads(r->pool) == 1 ? " " : "s", loop);
  for (uint32_t i = 0; i < N_ROWS; i++) {
    const double t = median(ms[i], reps), gbps = kv_bytes(r) / t / 1e6;
    if (i == 0) one = t;
    const double queries = (double)k_rows[i] * r->s->n_kv * r->s->group * r->layers * ((r->depth + 63) / 64);
    printf("  rows %2u %9.3f ms %7.1f GB/s %5.0f %% of the loop  %5.2fx one row  %5.3f us per query and chunk\n",
           k_rows[i], t, gbps, 100 * gbps / loop, t / one, t * 1e3 * df_pool_threads(r->pool) / queries);
  }
}

int main(int argc, char **argv) {
  const uint32_t depth = argc > 1 ? (uint32_t)strtoul(argv[1], NULL, 10) : 4096;
  const uint32_t reps = argc > 2 ? (uint32_t)strtoul(argv[2], NULL, 10) : 15;
  static df_status (*const k_create[N_LEAVES])(const df_attn_shape *, df_attn **, df_error *) = {
      df_attn_flash_create, df_attn_splitkv_create};
  if (depth < MAX_ROWS || depth > 1 << 20 || reps == 0 || reps > MAX_REPS) {
    fprintf(stderr, "bench_attn: depth %d..%d, repetitions 1..%d\n", MAX_ROWS, 1 << 20, MAX_REPS);
    return 2;
  }
  for (size_t s = 0; s < DF_COUNT_OF(k_shapes); s++)
    for (uint32_t threads = 1; threads <= 2; threads++) {
      rig r;
      rig_init(&r, &k_shapes[s], depth, threads);
      if (threads == 1)
        printf("%s, depth %u, %u layers, %.1f MB of K and V\n", k_shapes[s].name, depth, r.layers, kv_bytes(&r) / 1e6);
      const df_attn_shape as = {r.s->n_kv * r.s->group, r.s->n_kv, r.s->head_dim, depth + MAX_ROWS, threads, NULL, 16};
      for (uint32_t i = 0; i < N_LEAVES; i++) {
        df_error err = {0};
        df_attn *leaf;
        must(k_create[i](&as, &leaf, &err), &err);
        must(leaf->ops->graph_init(leaf, 1, MAX_ROWS, &err), &err);
        bench_leaf(&r, leaf, reps);
        df_attn_free(leaf);
      }
      rig_release(&r);
    }
  return 0;
}
