/*
 * bench_mm - speed of the matmul kernels on one thread.
 *
 *   bench_mm [n k [tier [form]]]        default: 8960 1536, best tier, all forms
 *
 * For every packed form and 1, 2, 4, 8, 16 rows: milliseconds of one product, GB/s of packed weights, GMAC/s and the
 * time relative to one row. "memory": matrices taken in turn from 640 MB, mean over one turn, best turn; "cache": one
 * matrix of at most 512 KB again and again, best call. The limit is a loop that only reads. The best is taken because
 * other work on the machine only ever adds time.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/size.h"
#include "kernels/kernels.h"

enum { ARENA_BYTES = 640 << 20, CACHE_BYTES = 512 << 10 };

static const struct {
  const char *name;
  df_pack pack;
  df_dtype type; /* a file type that is packed in this form */
} k_forms[] = {
    {"F32", DF_PACK_F32, DF_F32},  {"F16", DF_PACK_F16, DF_F16},  {"BF16", DF_PACK_BF16, DF_BF16},
    {"Q8", DF_PACK_Q8, DF_Q8_0},   {"Q4", DF_PACK_Q4, DF_Q4_0},   {"Q4M", DF_PACK_Q4M, DF_Q4_1},
    {"Q8M", DF_PACK_Q8M, DF_Q5_K}, {"Q4K", DF_PACK_Q4K, DF_Q4_K}, {"Q6K", DF_PACK_Q6K, DF_Q6_K},
};

static uint64_t rng = 88172645463325252u;

static uint64_t next_random(void) {
  rng ^= rng << 13;
  rng ^= rng >> 7;
  rng ^= rng << 17;
  return rng;
}

/* File data with ordinary scales: every 16-bit word is a half between 2^-9 and 2^-2 of either sign, which as codes
 * is as good as any. */
static void fill_file(uint8_t *p, size_t bytes) {
  for (size_t i = 0; i + 2 <= bytes; i += 2) {
    const uint64_t r = next_random() >> 20;
    const uint16_t h = (uint16_t)((r & 0x83FF) | (6 + (r >> 16) % 7) << 10);
    memcpy(p + i, &h, 2);
  }
}

/* As many copies of one packed matrix as fit into the arena. Returns their number. */
static uint32_t fill_arena(uint8_t *arena, size_t arena_bytes, df_weights *w, df_dtype type, double *pack_gbps) {
  uint32_t values = 1, bytes = 1;
  (void)df_dtype_block((int)type, &values, &bytes);
  const size_t row_bytes = (size_t)w->k / values * bytes, size = df_strips(w->n) * w->strip_bytes;
  const uint32_t copies = (uint32_t)(arena_bytes / size);
  uint8_t *file = df_alloc(w->n * row_bytes);
  if (!file || copies == 0) {
    df_free(file);
    return 0;
  }
  fill_file(file, w->n * row_bytes);
  w->data = arena;
  uint64_t best = UINT64_MAX;
  for (int i = 0; i < 3; i++) {
    const uint64_t t0 = df_now_ns();
    df_pack_strips(w, type, file, row_bytes, NULL, 0, df_strips(w->n));
    best = DF_MIN(best, df_now_ns() - t0);
  }
  *pack_gbps = (double)(w->n * row_bytes) / (double)best;
  for (uint32_t i = 1; i < copies; i++) memcpy(arena + i * size, arena, size);
  df_free(file);
  return copies;
}

static void *make_rows(df_pack pack, uint32_t m, uint32_t k) {
  if (!df_pack_wants_q8(pack)) {
    float *x = df_alloc((size_t)m * k * sizeof *x);
    for (size_t i = 0; x && i < (size_t)m * k; i++) x[i] = (float)(int)(next_random() % 2001) * 1e-3f - 1.0f;
    return x;
  }
  df_actq *x = df_pages_alloc((size_t)m * (k / DF_QBLOCK) * sizeof *x);
  for (size_t i = 0; x && i < (size_t)m * (k / DF_QBLOCK); i++) {
    int32_t lo = 0, hi = 0;
    for (int j = 0; j < DF_QBLOCK; j++) {
      x[i].q[j] = (int8_t)((int)(next_random() % 255) - 127);
      *(j < 16 ? &lo : &hi) += x[i].q[j];
    }
    x[i].scale = 0.01f;
    x[i].scale_sum = 0.01f * (float)(lo + hi);
    x[i].off4 = -8 * (lo + hi);
    x[i].off8 = -128 * (lo + hi);
    x[i].off6_lo = -32 * lo;
    x[i].off6_hi = -32 * hi;
  }
  return x;
}

static void free_rows(df_pack pack, void *x, uint32_t m, uint32_t k) {
  if (df_pack_wants_q8(pack))
    df_pages_free(x, (size_t)m * (k / DF_QBLOCK) * sizeof(df_actq));
  else
    df_free(x);
}

/* Nanoseconds of one product: mean over one turn through the copies, best of `turns`. */
static double time_mm(const df_kernels *kern, df_weights w, uint32_t copies, const void *x, uint32_t m, float *out,
                      uint32_t turns) {
  const size_t size = df_strips(w.n) * w.strip_bytes, ld = (size_t)df_strips(w.n) * DF_LANES;
  uint8_t *const first = w.data;
  uint64_t best = UINT64_MAX;
  for (uint32_t turn = 0; turn < turns; turn++) {
    const uint64_t t0 = df_now_ns();
    for (uint32_t i = 0; i < copies; i++) {
      w.data = first + i * size;
      kern->mm[w.pack](&w, 0, df_strips(w.n), x, m, out, ld);
    }
    best = DF_MIN(best, df_now_ns() - t0);
  }
  return (double)best / copies;
}

static void bench_form(const df_kernels *kern, int form, uint32_t n, uint32_t k, uint8_t *arena, const char *label) {
  df_weights w = {.pack = k_forms[form].pack, .n = n, .k = k};
  double pack_gbps = 0;
  if (!df_pack_strip_bytes(w.pack, k, &w.strip_bytes)) return; /* k does not fit this form */
  const bool cached = label[0] == 'c';
  const size_t fit = CACHE_BYTES / w.strip_bytes * DF_LANES;
  if (cached) w.n = (uint32_t)DF_MIN(n, DF_MAX(fit, (size_t)64));
  const size_t size = df_strips(w.n) * w.strip_bytes;
  const uint32_t copies = fill_arena(arena, cached ? size : (size_t)ARENA_BYTES, &w, k_forms[form].type, &pack_gbps);
  float *out = df_alloc((size_t)DF_TILE_ROWS * df_strips(w.n) * DF_LANES * sizeof *out);
  if (!out || copies == 0) {
    printf("%s: no memory\n", k_forms[form].name);
    df_free(out);
    return;
  }
  double one = 1;
  for (uint32_t m = 1; m <= DF_TILE_ROWS; m *= 2) {
    void *x = make_rows(w.pack, m, k);
    if (!x) break;
    const double best = time_mm(kern, w, copies, x, m, out, cached ? 1000 : 5);
    if (m == 1) one = best;
    printf("%-6s %-5s m=%-2u %9.4f ms %7.1f GB/s %7.1f GMAC/s  %5.2fx", label, k_forms[form].name, m, best * 1e-6,
           (double)size / best, (double)m * w.n * w.k / best, best / one);
    if (m == 1 && !cached) printf("   (packed at %.2f GB/s)", pack_gbps);
    printf("\n");
    fflush(stdout);
    free_rows(w.pack, x, m, k);
  }
  df_free(out);
}

/* GB/s of reading `bytes` (one word of every cache line), best round. */
static double stream_read(const uint8_t *p, size_t bytes, int rounds) {
  uint64_t best = UINT64_MAX;
  volatile uint64_t sink = 0;
  for (int r = 0; r < rounds; r++) {
    uint64_t sum[4] = {0};
    const uint64_t t0 = df_now_ns();
    for (size_t i = 0; i < bytes; i += 256)
      for (size_t j = 0; j < 4; j++) {
        __builtin_prefetch(p + i + 64 * j + 2048, 0, 3);
        sum[j] += *(const uint64_t *)(const void *)(p + i + 64 * j);
      }
    best = DF_MIN(best, df_now_ns() - t0);
    sink = sink + sum[0] + sum[1] + sum[2] + sum[3];
  }
  return (double)bytes / (double)best;
}

int main(int argc, char **argv) {
  const uint32_t n = argc > 2 ? (uint32_t)strtoul(argv[1], NULL, 10) : 8960;
  const uint32_t k = argc > 2 ? (uint32_t)strtoul(argv[2], NULL, 10) : 1536;
  const int tier = argc > 3 ? df_cpu_tier_parse(argv[3]) : (int)df_cpu_best_tier();
  const df_kernels *kern = df_kernels_get((df_cpu_tier)tier);
  uint8_t *arena = df_pages_alloc(ARENA_BYTES);
  if (!kern || !arena || n == 0) {
    fprintf(stderr, "bench_mm: no such tier here, or no memory\n");
    return 1;
  }
  memset(arena, 1, ARENA_BYTES);
  printf("n=%u k=%u tier=%s, one thread\n", n, k, df_cpu_tier_name(kern->tier));
  for (int i = 0; i < 2; i++)
    printf("%-6s read only: %.1f GB/s\n", i ? "cache" : "memory",
           i ? stream_read(arena, CACHE_BYTES, 200) : stream_read(arena, ARENA_BYTES, 4));
  for (int cached = 0; cached < 2; cached++)
    for (int f = 0; f < (int)DF_COUNT_OF(k_forms); f++)
      if (argc <= 4 || strcmp(argv[4], k_forms[f].name) == 0)
        bench_form(kern, f, n, k, arena, cached ? "cache" : "memory");
  df_pages_free(arena, ARENA_BYTES);
  return 0;
}
