/*
 * bench_cuda - time of the CUDA kernels with made-up weights in the shapes of real models.
 *
 *   bench_cuda [--json FILE] [--shape NAME] [--length N] [--sweep] [--quick] [--quant] [--float]
 *
 * Whole passes (embedding, layers, head, argmax) and one kind of op at a time over all layers, for several row counts;
 * as a graph, timed with events, median of replays. "share" is the weights' bytes over time, as part of the rate of a
 * large copy on the same card (bytes read and written). --sweep tries other tuning numbers.
 */
#include <cuda_runtime_api.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cuda/bench_model.h"
#include "device/cuda/cuda_tune.h"

enum { REPLAYS = 31, COPY_BYTES = 1 << 30 };

static FILE *json;
static uint32_t n_results;
static double copy_rate; /* bytes a nanosecond */

static int compare_floats(const void *a, const void *b) {
  const float x = *(const float *)a, y = *(const float *)b;
  return x < y ? -1 : x > y;
}

static void must(cudaError_t e, const char *what) {
  if (e == cudaSuccess) return;
  fprintf(stderr, "bench_cuda: %s: %s\n", what, cudaGetErrorString(e));
  exit(1);
}

/* Median microseconds of a graph of the ops that `kinds` has set (bit = op kind). */
static double time_ops(bench_model *m, uint64_t kinds, bool overlap, uint32_t *launches) {
  cudaGraph_t graph;
  cudaGraphExec_t exec;
  cudaEvent_t t0, t1;
  float us[REPLAYS];
  must(cudaStreamBeginCapture(m->stream, cudaStreamCaptureModeThreadLocal), "capture");
  *launches = bench_model_launch(m, kinds, overlap);
  must(cudaStreamEndCapture(m->stream, &graph), "capture");
  must(cudaGraphInstantiate(&exec, graph, 0), "graph");
  must(cudaEventCreate(&t0), "event");
  must(cudaEventCreate(&t1), "event");
  for (int i = -3; i < REPLAYS; i++) {
    must(cudaEventRecord(t0, m->stream), "event");
    must(cudaGraphLaunch(exec, m->stream), "launch");
    must(cudaEventRecord(t1, m->stream), "event");
    must(cudaEventSynchronize(t1), "pass");
    float ms = 0;
    must(cudaEventElapsedTime(&ms, t0, t1), "time");
    if (i >= 0) us[i] = ms * 1000;
  }
  qsort(us, REPLAYS, sizeof *us, compare_floats);
  must(cudaGraphExecDestroy(exec), "graph");
  must(cudaGraphDestroy(graph), "graph");
  must(cudaEventDestroy(t0), "event");
  must(cudaEventDestroy(t1), "event");
  return (double)us[REPLAYS / 2];
}

static double measure_copy(void) {
  void *a, *b;
  cudaEvent_t t0, t1;
  double best = 0;
  must(cudaMalloc(&a, COPY_BYTES), "memory");
  must(cudaMalloc(&b, COPY_BYTES), "memory");
  must(cudaMemset(a, 1, COPY_BYTES), "memory");
  must(cudaEventCreate(&t0), "event");
  must(cudaEventCreate(&t1), "event");
  for (int i = 0; i < 20; i++) {
    must(cudaEventRecord(t0, 0), "event");
    for (int j = 0; j < 4; j++) must(cudaMemcpyAsync(b, a, COPY_BYTES, cudaMemcpyDeviceToDevice, 0), "copy");
    must(cudaEventRecord(t1, 0), "event");
    must(cudaEventSynchronize(t1), "copy");
    float ms = 0;
    must(cudaEventElapsedTime(&ms, t0, t1), "time");
    const double rate = 4 * 2.0 * COPY_BYTES / ((double)ms * 1e6);
    if (rate > best) best = rate;
  }
  must(cudaFree(a), "memory");
  must(cudaFree(b), "memory");
  return best;
}

static void report(const bench_model *m, const char *what, const char *note, double us, double bytes,
                   uint32_t launches) {
  const double rate = bytes / (us * 1e3);
  printf("%-6s %-5s %-9s rows %3u  %9.1f us  %7.1f GB/s  %5.1f %%  %4u launches  %s\n", m->shape->name, m->type_name,
         what, m->rows, us, rate, 100 * rate / copy_rate, launches, note);
  if (!json) return;
  fprintf(
      json,
      "%s\n    {\"shape\": \"%s\", \"type\": \"%s\", \"what\": \"%s\", \"note\": \"%s\", \"rows\": %u, \"length\": %u, "
      "\"us\": %.2f, \"bytes\": %.0f, \"share\": %.4f, \"launches\": %u}",
      n_results++ ? "," : "", m->shape->name, m->type_name, what, note, m->rows, m->length, us, bytes, rate / copy_rate,
      launches);
}

/* One pass, and what each kind of op takes by itself. */
static void run_rows(bench_model *m, uint32_t rows, bool parts) {
  static const struct {
    const char *name;
    uint64_t kinds;
    int site;
  } k_parts[] = {{"qkv", 0, BENCH_QKV},   {"o", 0, BENCH_O},       {"ffn_up", 0, BENCH_FFN},
                 {"down", 0, BENCH_DOWN}, {"head", 0, BENCH_HEAD}, {"attention", 0, BENCH_ATTN},
                 {"norm", 0, BENCH_NORM}};
  uint32_t n;
  bench_model_rows(m, rows);
  const double us = time_ops(m, ~(uint64_t)0, true, &n);
  report(m, "pass", "", us, bench_model_bytes(m, ~(uint64_t)0), n);
  if (n == 1) {
    df_cuda_tune.persist = 0;
    const double many = time_ops(m, ~(uint64_t)0, true, &n);
    report(m, "pass", "many kernels", many, bench_model_bytes(m, ~(uint64_t)0), n);
    df_cuda_tune.persist = 1;
  }
  if (!parts) return;
  const double plain = time_ops(m, ~(uint64_t)0, false, &n);
  report(m, "pass", "no overlap", plain, bench_model_bytes(m, ~(uint64_t)0), n);
  for (size_t i = 0; i < sizeof k_parts / sizeof *k_parts; i++) {
    const uint64_t kinds = (uint64_t)1 << k_parts[i].site;
    const double t = time_ops(m, kinds, true, &n);
    report(m, k_parts[i].name, "", t, bench_model_bytes(m, kinds), n);
  }
}

/* Other numbers than the defaults, one at a time. */
static void sweep(bench_model *m, uint32_t rows) {
  static const struct {
    const char *note;
    size_t at; /* offset in df_cuda_tuning */
    uint32_t value;
  } k_tries[] = {{"early 0", offsetof(df_cuda_tuning, early_bytes), 0},
                 {"early 32K", offsetof(df_cuda_tuning, early_bytes), 32 << 10},
                 {"ahead 0", offsetof(df_cuda_tuning, ahead_bytes), 0},
                 {"ahead 4M", offsetof(df_cuda_tuning, ahead_bytes), 4 << 20},
                 {"ahead 15M", offsetof(df_cuda_tuning, ahead_bytes), 15 << 20},
                 {"cluster 1", offsetof(df_cuda_tuning, cluster), 1},
                 {"cluster 2", offsetof(df_cuda_tuning, cluster), 2},
                 {"cluster 4", offsetof(df_cuda_tuning, cluster), 4},
                 {"norm apart", offsetof(df_cuda_tuning, norm_floats), 0},
                 {"rope apart", offsetof(df_cuda_tuning, rope_in_attn), 0},
                 {"attention 1", offsetof(df_cuda_tuning, attn_blocks), 1},
                 {"attention 4", offsetof(df_cuda_tuning, attn_blocks), 4},
                 {"many kernels", offsetof(df_cuda_tuning, persist), 0}};
  const df_cuda_tuning usual = df_cuda_tune;
  bench_model_rows(m, rows);
  for (size_t i = 0; i < sizeof k_tries / sizeof *k_tries; i++) {
    uint32_t n;
    memcpy((char *)&df_cuda_tune + k_tries[i].at, &k_tries[i].value, sizeof(uint32_t));
    const double us = time_ops(m, ~(uint64_t)0, true, &n);
    report(m, "pass", k_tries[i].note, us, bench_model_bytes(m, ~(uint64_t)0), n);
    df_cuda_tune = usual;
  }
}

static void run_shape(const bench_shape *s, bool quant, uint32_t length, bool tries, bool quick) {
  static const uint32_t rows[] = {1, 2, 3, 4, 6, 8, 16, 32, 64, 512};
  bench_model m;
  const char *e = bench_model_open(&m, s, quant, length);
  if (e) {
    printf("%s %s: %s\n", s->name, m.type_name, e);
    return;
  }
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    if (quick && rows[i] != 1 && rows[i] != 16) continue;
    if (quant && rows[i] > 16) continue;
    run_rows(&m, rows[i], rows[i] == 1 || rows[i] == 16);
  }
  for (uint32_t r = 1; tries && r <= 16; r += 15) sweep(&m, r);
  bench_model_close(&m);
}

int main(int argc, char **argv) {
  const char *only = NULL, *file = NULL;
  bool tries = false, quick = false;
  char type = 0;
  uint32_t length = 512;
  setvbuf(stdout, NULL, _IOLBF, 0);
  for (int i = 1; i < argc; i++) {
    if (strcmp(argv[i], "--json") == 0 && i + 1 < argc) file = argv[++i];
    if (strcmp(argv[i], "--shape") == 0 && i + 1 < argc) only = argv[++i];
    if (strcmp(argv[i], "--length") == 0 && i + 1 < argc) length = (uint32_t)strtoul(argv[++i], NULL, 10);
    if (strcmp(argv[i], "--sweep") == 0) tries = true;
    if (strcmp(argv[i], "--quick") == 0) quick = true;
    if (strcmp(argv[i], "--quant") == 0) type = 'q';
    if (strcmp(argv[i], "--float") == 0) type = 'f';
  }
  int n = 0;
  if (cudaGetDeviceCount(&n) != cudaSuccess || n == 0) {
    printf("no CUDA device: skipped\n");
    return 77;
  }
  if (file && !(json = fopen(file, "w"))) {
    fprintf(stderr, "bench_cuda: could not write \"%s\"\n", file);
    return 1;
  }
  copy_rate = measure_copy();
  printf("copy %.1f GB/s\n", copy_rate);
  if (json) fprintf(json, "{\n  \"copy_gbps\": %.1f,\n  \"results\": [", copy_rate);
  for (uint32_t i = 0; i < BENCH_SHAPES; i++) {
    const bench_shape *s = &bench_shapes[i];
    if (only && strcmp(only, s->name) != 0) continue;
    if (type != 'q') run_shape(s, false, length, tries, quick);
    if (quick || type == 'f' || s->quant == s->table) continue;
    run_shape(s, true, length, false, false);
  }
  if (json) {
    fprintf(json, "\n  ]\n}\n");
    (void)fclose(json);
  }
  return 0;
}
