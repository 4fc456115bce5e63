/*
 * bench/bench_vec.c - time per call of the vector and attention kernels, every tier of this machine.
 *
 * Usage: bench_vec [TIER]. Best of several rounds, one thread, data in cache. attn_chunk: one full chunk
 * of 64 positions in half precision; GB/s counts K and V once per call, GF/s two operations per fma of q.k and p.v.
 */
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/size.h"
#include "kernels/kernels.h"

enum { MAX_Q = 128, MAX_E = 256, MAX_N = 151936, ROUNDS = 15 };

typedef struct arena {
  float *x, *y, *w; /* MAX_N each */
  df_actq *q;       /* MAX_N / 32 */
  uint16_t *kv;     /* 8 pages of 16 * MAX_E */
  float *query;     /* MAX_Q * MAX_E */
  float *part;      /* MAX_Q * (16 + MAX_E) */
} arena;

static void *must(size_t bytes) {
  void *p = df_pages_alloc(bytes);
  if (!p) fprintf(stderr, "out of memory\n");
  return p;
}

static bool arena_init(arena *a) {
  a->x = must(MAX_N * sizeof(float));
  a->y = must(MAX_N * sizeof(float));
  a->w = must(MAX_N * sizeof(float));
  a->q = must(MAX_N / 32 * sizeof(df_actq));
  a->kv = must((size_t)8 * 16 * MAX_E * 2);
  a->query = must((size_t)MAX_Q * MAX_E * sizeof(float));
  a->part = must((size_t)MAX_Q * (16 + MAX_E) * sizeof(float));
  if (!a->x || !a->y || !a->w || !a->q || !a->kv || !a->query || !a->part) return false;
  uint32_t s = 1;
  for (size_t i = 0; i < MAX_N; i++) {
    s = s * 1664525u + 1013904223u;
    a->x[i] = (float)(s >> 8) * 0x1p-24f - 0.5f;
    a->w[i] = 1.0f;
  }
  for (size_t i = 0; i < (size_t)8 * 16 * MAX_E; i++) a->kv[i] = df_f32_to_f16(a->x[i % 4096]);
  memcpy(a->query, a->x, (size_t)MAX_Q * MAX_E * sizeof(float));
  return true;
}

static void report(const char *what, double ns, double bytes, double flops) {
  printf("  %-34s %10.0f ns %8.1f GB/s", what, ns, bytes / ns);
  if (flops > 0) printf(" %8.1f GF/s", flops / ns);
  printf("\n");
}

typedef void call_fn(const df_kernels *k, arena *a, uint32_t n, uint32_t e);

static double time_call(call_fn *f, const df_kernels *k, arena *a, uint32_t n, uint32_t e) {
  double best = 1e30;
  uint64_t reps = 1;
  for (int round = 0; round < ROUNDS; round++) {
    uint64_t t0 = df_now_ns();
    for (uint64_t i = 0; i < reps; i++) f(k, a, n, e);
    uint64_t ns = df_now_ns() - t0;
    if (round == 0) {
      reps = DF_MAX((uint64_t)1, 3000000 / (ns + 1)); /* about 3 ms a round */
      continue;
    }
    best = DF_MIN(best, (double)ns / (double)reps);
  }
  return best;
}

static void chunk_of(const df_kernels *k, arena *a, uint32_t n, uint32_t e, uint64_t visible) {
  const void *kp[4], *vp[4];
  const float *q[MAX_Q];
  float *part[MAX_Q];
  uint64_t vis[MAX_Q];
  for (uint32_t i = 0; i < 4; i++) {
    kp[i] = a->kv + (size_t)i * 16 * e;
    vp[i] = a->kv + (size_t)(4 + i) * 16 * e;
  }
  for (uint32_t i = 0; i < n; i++) {
    q[i] = a->query + (size_t)i * e;
    part[i] = a->part + (size_t)i * (16 + e);
    vis[i] = visible;
  }
  df_attn_chunk c = {kp, vp, q, vis, part, 0.1f, n, e, NULL, NULL};
  k->attn_chunk[DF_KV_F16](&c);
}

static void call_attn(const df_kernels *k, arena *a, uint32_t n, uint32_t e) { chunk_of(k, a, n, e, ~(uint64_t)0); }
/* The chunk that has just begun: 8 positions, in one page. */
static void call_attn_begun(const df_kernels *k, arena *a, uint32_t n, uint32_t e) { chunk_of(k, a, n, e, 0xff); }

static void call_merge(const df_kernels *k, arena *a, uint32_t n, uint32_t e) {
  k->attn_merge(a->part, a->part + (size_t)n * (16 + e), 16 + e, n, e);
}
static void call_store(const df_kernels *k, arena *a, uint32_t n, uint32_t e) {
  k->kv_store(DF_KV_F16, a->x, 512, a->x + 8192, 512, n, e, a->kv, a->kv + (size_t)16 * e, 3);
}
static void call_quantize(const df_kernels *k, arena *a, uint32_t n, uint32_t e) {
  (void)e;
  k->quantize(a->x, n, a->q, 1);
}
static void call_rmsnorm(const df_kernels *k, arena *a, uint32_t n, uint32_t e) {
  (void)e;
  k->rmsnorm(a->x, a->w, n, 1e-6f, a->y);
}
static void call_rmsnorm_quantize(const df_kernels *k, arena *a, uint32_t n, uint32_t e) {
  (void)e;
  k->rmsnorm_quantize(a->x, a->w, n, 1e-6f, NULL, a->q, 1);
}
static void call_silu(const df_kernels *k, arena *a, uint32_t n, uint32_t e) {
  (void)e;
  k->silu_mul(a->x, a->w, n, a->y);
}
static void call_silu_quantize(const df_kernels *k, arena *a, uint32_t n, uint32_t e) {
  (void)e;
  k->silu_mul_quantize(a->x, a->w, n, a->q, 1);
}
static void call_argmax(const df_kernels *k, arena *a, uint32_t n, uint32_t e) {
  (void)e;
  a->y[0] = (float)k->argmax(a->x, n);
}
static void call_exp_sum(const df_kernels *k, arena *a, uint32_t n, uint32_t e) {
  (void)e;
  a->y[0] = k->exp_sum(a->x, n, 4.0f);
}
static void call_rope(const df_kernels *k, arena *a, uint32_t n, uint32_t e) {
  (void)e;
  k->rope(a->y, a->w, a->w + n, n);
}

static void bench_tier(const df_kernels *k, arena *a) {
  static const uint32_t counts[] = {1, 3, 12, 48}, widths[] = {64, 128};
  static const struct {
    const char *name;
    call_fn *fn;
    uint32_t n;
    double bytes; /* read and written per element */
  } ops[] = {{"quantize 4096", call_quantize, 4096, 6},
             {"rmsnorm 4096", call_rmsnorm, 4096, 12},
             {"rmsnorm_quantize 4096", call_rmsnorm_quantize, 4096, 10},
             {"silu_mul 11008", call_silu, 11008, 12},
             {"silu_mul_quantize 11008", call_silu_quantize, 11008, 10},
             {"argmax 151936", call_argmax, MAX_N, 4},
             {"exp_sum 8192", call_exp_sum, 8192, 4},
             {"rope 64 pairs", call_rope, 64, 24}};
  char name[64];
  printf("%s\n", df_cpu_tier_name(k->tier));
  for (size_t w = 0; w < DF_COUNT_OF(widths); w++) {
    for (size_t i = 0; i < DF_COUNT_OF(counts); i++) {
      uint32_t n = counts[i], e = widths[w];
      snprintf(name, sizeof name, "attn_chunk f16 n_q %u e %u", n, e);
      report(name, time_call(call_attn, k, a, n, e), 2.0 * 64 * e * 2, 4.0 * 64 * e * n);
      snprintf(name, sizeof name, "attn_chunk begun n_q %u e %u", n, e);
      report(name, time_call(call_attn_begun, k, a, n, e), 2.0 * 8 * e * 2, 4.0 * 8 * e * n);
    }
    for (uint32_t n = 3; n <= 48; n *= 4) {
      snprintf(name, sizeof name, "attn_merge n_q %u e %u", n, widths[w]);
      report(name, time_call(call_merge, k, a, n, widths[w]), 12.0 * widths[w] * n, 0);
    }
    for (uint32_t n = 1; n <= 8; n *= 2) {
      snprintf(name, sizeof name, "kv_store f16 n %u e %u", n, widths[w]);
      report(name, time_call(call_store, k, a, n, widths[w]), 12.0 * widths[w] * n, 0);
    }
  }
  for (size_t i = 0; i < DF_COUNT_OF(ops); i++) {
    report(ops[i].name, time_call(ops[i].fn, k, a, ops[i].n, 0), ops[i].bytes * ops[i].n, 0);
  }
}

int main(int argc, char **argv) {
  arena a;
  int only = argc > 1 ? df_cpu_tier_parse(argv[1]) : -1;
  if (argc > 1 && only < 0) {
    fprintf(stderr, "usage: bench_vec [" DF_CPU_TIER_CHOICES "]\n");
    return 2;
  }
  if (!arena_init(&a)) return 1;
  for (int t = 0; t < DF_TIER_COUNT; t++) {
    const df_kernels *k = df_kernels_get((df_cpu_tier)t);
    if (k && (only < 0 || only == t)) bench_tier(k, &a);
  }
  return 0;
}
