/* tests/support/checkkern.c - see tests/kernels/checkkern.h. */
#define _DEFAULT_SOURCE /* MAP_ANONYMOUS */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/bits.h"
#include "base/size.h"
#include "kernels/checkkern.h"

enum { CANARY = 0xa7 };

ck_buf ck_alloc(size_t bytes, size_t align, ck_side side) {
  size_t page = (size_t)sysconf(_SC_PAGESIZE);
  size_t body = df_round_up(bytes ? bytes : 1, page);
  ck_buf b = {.bytes = bytes, .map_bytes = body + 2 * page};
  void *m = mmap(NULL, b.map_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (m == MAP_FAILED) fail_msg("could not map %zu bytes", b.map_bytes);
  b.map = m;
  memset(b.map + page, CANARY, body);
  size_t at = side == CK_START ? 0 : (body - bytes) / align * align;
  b.data = b.map + page + at;
  if (mprotect(b.map, page, PROT_NONE) || mprotect(b.map + page + body, page, PROT_NONE)) fail_msg("could not protect");
  return b;
}

void ck_read_only(ck_buf *b) {
  size_t page = (size_t)sysconf(_SC_PAGESIZE);
  if (mprotect(b->map + page, b->map_bytes - 2 * page, PROT_READ)) fail_msg("could not protect");
}

void ck_free(ck_buf *b) {
  if (!b->map) return;
  size_t page = (size_t)sysconf(_SC_PAGESIZE);
  const uint8_t *lo = b->map + page, *hi = b->map + b->map_bytes - page, *data = b->data;
  for (const uint8_t *p = lo; p < hi; p++) {
    if (p >= data && p < data + b->bytes) continue;
    if (*p != CANARY) fail_msg("stray write at byte %td of a buffer of %zu", p - data, b->bytes);
  }
  munmap(b->map, b->map_bytes);
  memset(b, 0, sizeof *b);
}

uint64_t ck_next(ck_rng *r) { /* splitmix64, Steele et al. 2014 */
  uint64_t z = r->state += 0x9e3779b97f4a7c15u;
  z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
  z = (z ^ z >> 27) * 0x94d049bb133111ebu;
  return z ^ z >> 31;
}

uint32_t ck_below(ck_rng *r, uint32_t n) { return (uint32_t)(ck_next(r) >> 32) % n; }

float ck_unit(ck_rng *r) { return (float)(ck_next(r) >> 40) * 0x1p-23f - 1.0f; }

const char *ck_fill_name(ck_fill f) {
  static const char *const name[CK_FILLS] = {"uniform", "wide", "zero",  "neg_zero", "subnormal",
                                             "huge",    "tiny", "spike", "mixed"};
  return name[f];
}

static float one(ck_rng *r, ck_fill f) {
  float s = ck_next(r) >> 63 ? 1.0f : -1.0f;
  switch (f) {
    case CK_WIDE: return ldexpf(ck_unit(r), (int)ck_below(r, 81) - 40);
    case CK_ZERO: return 0.0f;
    case CK_NEG_ZERO: return -0.0f;
    case CK_SUBNORMAL: return s * ldexpf((float)(1 + ck_below(r, (1u << 23) - 1)), -149);
    case CK_HUGE: return s * 1e30f;
    case CK_TINY: return s * 1e-30f;
    case CK_SPIKE: return s * 1e-3f * ck_unit(r);
    case CK_MIXED: return one(r, (ck_fill)ck_below(r, CK_MIXED));
    default: return ck_unit(r);
  }
}

void ck_fill_f32(ck_rng *r, ck_fill f, float *x, size_t n) {
  for (size_t i = 0; i < n; i++) x[i] = one(r, f);
  if (f == CK_SPIKE && n) x[ck_below(r, (uint32_t)n)] = 1e4f;
}

void ck_fill_f16(ck_rng *r, ck_fill f, uint16_t *x, size_t n) {
  for (size_t i = 0; i < n; i++) x[i] = df_f32_to_f16(fmaxf(-60000.0f, fminf(60000.0f, one(r, f))));
}

static bool same(float a, float b) { return df_bits_of_float(a) == df_bits_of_float(b) || (isnan(a) && isnan(b)); }

void ck_same_f32(const float *want, const float *got, size_t n, const char *what, ...) {
  size_t bad = 0, first = 0;
  for (size_t i = 0; i < n; i++) {
    if (same(want[i], got[i])) continue;
    if (!bad++) first = i;
  }
  if (!bad) return;
  char name[256];
  va_list ap;
  va_start(ap, what);
  vsnprintf(name, sizeof name, what, ap);
  va_end(ap);
  fail_msg("%s: %zu of %zu floats differ, first at %zu: want %.9g (%08x), got %.9g (%08x)", name, bad, n, first,
           (double)want[first], df_bits_of_float(want[first]), (double)got[first], df_bits_of_float(got[first]));
}

void ck_same_bytes(const void *want, const void *got, size_t bytes, const char *what, ...) {
  if (!memcmp(want, got, bytes)) return;
  const uint8_t *w = want, *g = got;
  size_t first = 0;
  while (w[first] == g[first]) first++;
  char name[256];
  va_list ap;
  va_start(ap, what);
  vsnprintf(name, sizeof name, what, ap);
  va_end(ap);
  fail_msg("%s: byte %zu of %zu differs: want %02x, got %02x", name, first, bytes, w[first], g[first]);
}

static bool same_actq(const df_actq *a, const df_actq *b) {
  df_actq x = *a, y = *b;
  if (!same(x.scale, y.scale) || !same(x.scale_sum, y.scale_sum)) return false;
  x.scale = y.scale = x.scale_sum = y.scale_sum = 0.0f;
  return !memcmp(&x, &y, sizeof x);
}

void ck_same_actq(const df_actq *want, const df_actq *got, size_t n, const char *what, ...) {
  size_t i = 0;
  while (i < n && same_actq(&want[i], &got[i])) i++;
  if (i == n) return;
  char name[256];
  va_list ap;
  va_start(ap, what);
  vsnprintf(name, sizeof name, what, ap);
  va_end(ap);
  const df_actq *w = &want[i], *g = &got[i];
  int q = 0;
  while (q < 31 && w->q[q] == g->q[q]) q++;
  fail_msg("%s: block %zu: scale %a / %a, sum %a / %a, off4 %d / %d, off8 %d / %d, off6 %d,%d / %d,%d, q[%d] %d / %d",
           name, i, (double)w->scale, (double)g->scale, (double)w->scale_sum, (double)g->scale_sum, w->off4, g->off4,
           w->off8, g->off8, w->off6_lo, w->off6_hi, g->off6_lo, g->off6_hi, q, w->q[q], g->q[q]);
}

unsigned ck_tiers(const df_kernels **out) {
  unsigned n = 0;
  for (int t = DF_TIER_REF + 1; t < DF_TIER_COUNT; t++) {
    const df_kernels *k = df_kernels_get((df_cpu_tier)t);
    if (k) out[n++] = k;
  }
  return n;
}
