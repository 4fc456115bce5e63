/* cuda_rig.c - twin memory and comparison; see cuda_rig.h. */
#include "cuda/cuda_rig.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "device/cpu/cpu_exec.h"
#include "support/kernel_data.h"

enum { CANARY = 256 };

bool rig_open(rig *r, const char **why) {
  *r = (rig){.rng = 88172645463325252u};
  if (dev_open(why)) return false;
  df_error err;
  const int e = df_cuda_kernels_init(&r->card);
  if (e) {
    *why = df_cuda_error_text(e);
    return false;
  }
  if (df_pool_create(1, &r->pool, &err) || df_cpu_create(r->pool, df_kernels_get(DF_TIER_REF), &r->cpu, &err)) {
    *why = err.msg;
    return false;
  }
  r->env = (df_cuda_env){.card = &r->card, .stream = dev_stream(), .scratch_bytes = 64u << 20, .overlap = true};
  void *zero = df_calloc(1, DF_CUDA_COUNTER_BYTES);
  rig_ok(r, dev_alloc(r->env.scratch_bytes, &r->env.scratch), "scratch");
  rig_ok(r, dev_put(r->env.scratch, zero, DF_CUDA_COUNTER_BYTES), "scratch");
  df_free(zero);
  return true;
}

void rig_close(rig *r) {
  rig_clear(r);
  dev_free(r->env.scratch);
  df_cpu_free(r->cpu);
  df_pool_free(r->pool);
}

static void put_canaries(rig *r, const rig_block *b) {
  uint8_t canary[CANARY];
  memset(canary, 0xC5, sizeof canary);
  rig_ok(r, dev_put(b->device - CANARY, canary, CANARY), "upload");
  rig_ok(r, dev_put(b->device + b->bytes, canary, CANARY), "upload");
}

void *rig_new(rig *r, size_t bytes, rig_kind kind, const char *name) {
  if (r->n_blocks == RIG_BLOCKS) return NULL;
  rig_block *b = &r->block[r->n_blocks++];
  *b = (rig_block){.bytes = (bytes + 63) & ~(size_t)63, .kind = kind, .name = name};
  b->host = df_pages_alloc(b->bytes);
  void *p = NULL;
  rig_ok(r, dev_alloc(b->bytes + 2 * CANARY, &p), "device memory");
  b->device = (uint8_t *)p + CANARY;
  put_canaries(r, b);
  return b->host;
}

float *rig_floats(rig *r, size_t n, const char *name) { return rig_new(r, n * sizeof(float), RIG_F32, name); }

uint32_t rig_below(rig *r, uint32_t n) { return (uint32_t)((test_random(&r->rng) >> 33) % n); }

void rig_fill(rig *r, float *x, size_t n, uint32_t fill) {
  for (size_t i = 0; i < n; i++) {
    float v = test_uniform(&r->rng);
    if (fill == 1) v = ldexpf(v, (int)rig_below(r, 40) - 20);
    if (fill == 2 && rig_below(r, 3)) v = rig_below(r, 2) ? 0.0f : -0.0f;
    if (fill == 3 && rig_below(r, 50) == 0) v = rig_below(r, 3) == 0 ? NAN : rig_below(r, 2) ? INFINITY : -INFINITY;
    if (fill == 4) v *= 1e-38f;
    if (fill == 5) v *= 1e6f;
    x[i] = v;
  }
}

const df_weights *rig_weights(rig *r, df_dtype type, uint32_t n, uint32_t k) {
  uint32_t values = 1, bytes = 1;
  (void)df_dtype_block((int)type, &values, &bytes);
  const size_t row_bytes = (size_t)k / values * bytes;
  uint8_t *file = df_calloc(n, row_bytes);
  uint64_t seed = test_random(&r->rng) | 1;
  test_fill_blocks(type, TEST_FILL_RANDOM, &seed, (size_t)n * k, file);
  df_weights *h = &r->host_w[r->n_w], *d = &r->device_w[r->n_w++];
  *h = (df_weights){.pack = df_pack_of(type), .n = n, .k = k};
  (void)df_pack_strip_bytes(h->pack, k, &h->strip_bytes);
  h->data = rig_new(r, df_strips(n) * h->strip_bytes, RIG_RAW, "weights");
  df_pack_strips(h, type, file, row_bytes, NULL, 0, df_strips(n));
  df_free(file);
  *d = *h;
  d->data = rig_at(r, h->data);
  if (df_cuda_needs_repack(h->pack)) { /* the fragments are a block of their own; both sides hold them */
    uint8_t *f = rig_new(r, df_cuda_weights_bytes(h), RIG_RAW, "fragments");
    df_cuda_repack(h, 0, df_strips(n), f);
    d->data = rig_at(r, f);
  }
  return h;
}

void rig_clear(rig *r) {
  for (uint32_t i = 0; i < r->n_blocks; i++) {
    df_pages_free(r->block[i].host, r->block[i].bytes);
    dev_free(r->block[i].device - CANARY);
  }
  r->n_blocks = r->n_w = 0;
}

void *rig_at(rig *r, const void *host) {
  if (!host) return NULL;
  for (uint32_t i = 0; i < r->n_blocks; i++) {
    const size_t at = (size_t)((const uint8_t *)host - r->block[i].host);
    if ((const uint8_t *)host >= r->block[i].host && at < r->block[i].bytes) return r->block[i].device + at;
  }
  fprintf(stderr, "an address of the test is in no block\n");
  r->errors++;
  return NULL;
}

void rig_upload(rig *r) {
  for (uint32_t i = 0; i < r->n_blocks; i++) {
    put_canaries(r, &r->block[i]);
    rig_ok(r, dev_put(r->block[i].device, r->block[i].host, r->block[i].bytes), "upload");
  }
}

void rig_ok(rig *r, int code, const char *what) {
  if (code == 0) return;
  if (r->errors++ < 20) printf("  error %d (%s) in %s\n", code, df_cuda_error_name(code), what);
}

void rig_sync(rig *r, const char *what) { rig_ok(r, dev_sync(), what); }

void rig_fetch(rig *r, const void *host, size_t bytes, void *out) {
  rig_ok(r, dev_get(out, rig_at(r, host), bytes), "download");
}

static bool same_floats(const uint8_t *a, const uint8_t *b, size_t bytes, size_t *at) {
  for (size_t i = 0; i < bytes; i += 4) {
    float x, y;
    memcpy(&x, a + i, 4);
    memcpy(&y, b + i, 4);
    if (memcmp(a + i, b + i, 4) == 0 || (isnan(x) && isnan(y))) continue;
    *at = i;
    return false;
  }
  return true;
}

static bool same_halves(const uint8_t *a, const uint8_t *b, size_t bytes, size_t *at) {
  for (size_t i = 0; i < bytes; i += 2) {
    uint16_t x, y;
    memcpy(&x, a + i, 2);
    memcpy(&y, b + i, 2);
    if (x == y || ((x & 0x7FFF) > 0x7C00 && (y & 0x7FFF) > 0x7C00)) continue;
    *at = i;
    return false;
  }
  return true;
}

static bool same_bytes(const uint8_t *a, const uint8_t *b, size_t bytes, size_t *at) {
  for (*at = 0; *at < bytes; (*at)++)
    if (a[*at] != b[*at]) return false;
  return true;
}

/* Host side against the device's copy; says where they differ. */
static bool block_same(rig *r, const rig_block *b) {
  uint8_t *got = df_alloc(b->bytes + 2 * CANARY), *body = got + CANARY;
  size_t at = 0;
  rig_ok(r, dev_get(got, b->device - CANARY, b->bytes + 2 * CANARY), "download");
  bool ok = b->kind == RIG_SKIP  ? true
            : b->kind == RIG_F32 ? same_floats(b->host, body, b->bytes, &at)
            : b->kind == RIG_F16 ? same_halves(b->host, body, b->bytes, &at)
                                 : memcmp(b->host, body, b->bytes) == 0 || same_bytes(b->host, body, b->bytes, &at);
  if (!ok) {
    float x, y;
    memcpy(&x, b->host + (at & ~(size_t)3), 4);
    memcpy(&y, body + (at & ~(size_t)3), 4);
    printf("    %s: byte %zu of %zu, host %a, device %a\n", b->name, at, b->bytes, (double)x, (double)y);
  }
  for (size_t i = 0; i < CANARY; i++) {
    if (got[i] == 0xC5 && body[b->bytes + i] == 0xC5) continue;
    printf("    %s: written %s its block\n", b->name, got[i] == 0xC5 ? "behind" : "in front of");
    ok = false;
    break;
  }
  df_free(got);
  return ok;
}

__attribute__((format(printf, 3, 0))) static void count_case(rig *r, bool ok, const char *fmt, va_list ap) {
  if (ok) {
    r->passed++;
    return;
  }
  r->failed++;
  printf("FAILED: ");
  vprintf(fmt, ap);
  printf("\n");
}

bool rig_mine(rig *r) { return r->parts < 2 || r->turn++ % r->parts == r->part - 1; }

void rig_case(rig *r, bool ok, const char *fmt, ...) {
  va_list ap;
  va_start(ap, fmt);
  count_case(r, ok, fmt, ap);
  va_end(ap);
}

static void compare(rig *r, const char *fmt, va_list ap) {
  const uint32_t before = r->errors;
  rig_sync(r, "kernel");
  bool ok = true;
  for (uint32_t i = 0; i < r->n_blocks; i++) ok &= block_same(r, &r->block[i]);
  count_case(r, ok && r->errors == before, fmt, ap);
}

void rig_compare(rig *r, const char *fmt, ...) {
  va_list ap;
  va_start(ap, fmt);
  compare(r, fmt, ap);
  va_end(ap);
}

void rig_both(rig *r, rig_list *l, uint32_t max_rows, uint32_t max_seqs, const char *fmt, ...) {
  va_list ap;
  rig_run_device(r, l, max_rows, max_seqs, false);
  rig_run_host(r, l, max_rows, max_seqs);
  va_start(ap, fmt);
  compare(r, fmt, ap);
  va_end(ap);
}
