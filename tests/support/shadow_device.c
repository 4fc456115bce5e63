#include "support/shadow_device.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#include <string.h>
#include <sys/mman.h>

#include "base/mem.h"
#include "base/size.h"
#include "device/cpu/cpu_exec.h"
#include "device/lower.h"

enum { PAGE = 4096 };

typedef struct shadow {
  df_device base;
  df_cpu *cpu;
  df_mirrors m;
  shadow_options o;
  size_t used;
  uint32_t runs;
} shadow;

/* What is made of a program. */
typedef struct made {
  df_program *lowered;
  df_lower_uses uses;
} made;

static shadow_options g_options;
static shadow_counts g_counts;

void shadow_set(const shadow_options *o) { g_options = *o; }

void shadow_like(bool a_card) {
  const shadow_options o = {.like_a_card = a_card};
  shadow_set(&o);
}

shadow_counts shadow_take_counts(void) {
  const shadow_counts c = g_counts;
  g_counts = (shadow_counts){.mapped = c.mapped};
  return c;
}

/* Kinds whose pages the host may not touch. */
static bool hidden(const df_mirror *x) { return x->kind == DF_MEM_SCRATCH || x->kind == DF_MEM_WEIGHTS; }

static void allow(const void *from, size_t bytes, bool access) {
  const uintptr_t first = (uintptr_t)from & ~(uintptr_t)(PAGE - 1);
  const size_t n = df_round_up((uintptr_t)from + bytes - first, PAGE);
  assert_int_equal(mprotect((void *)first, n, access ? PROT_READ | PROT_WRITE : PROT_NONE), 0);
}

/* ---- memory --------------------------------------------------------------------------------------------- */

static df_status shadow_fits(df_device *d, uint64_t bytes, const char *what, df_error *err) {
  const shadow *s = (const shadow *)d;
  if (!s->o.room || s->used + bytes <= s->o.room) return DF_OK;
  return DF_FAIL(err, DF_ERR_MEMORY, "%s: %llu bytes do not fit, %zu of %zu are free", what, (unsigned long long)bytes,
                 s->o.room - s->used, s->o.room);
}

static df_status shadow_map(df_device *d, void *base, size_t bytes, df_mem_kind kind, const char *what, df_error *err) {
  shadow *s = (shadow *)d;
  df_mirror *x;
  DF_TRY(shadow_fits(d, bytes, what, err));
  DF_TRY(df_mirrors_add(&s->m, base, bytes, kind, what, &x, err));
  x->there = df_pages_alloc(bytes);
  if (!x->there) {
    df_free(df_mirrors_take(&s->m, base));
    return DF_OOM(err, what, bytes);
  }
  if (kind != DF_MEM_SCRATCH) memcpy(x->there, base, bytes);
  if (hidden(x)) {
    assert_int_equal((uintptr_t)base % PAGE, 0);
    allow(base, bytes, false);
  }
  s->used += bytes;
  g_counts.mapped += bytes;
  return DF_OK;
}

static df_status shadow_map_weights(df_device *d, void *block, size_t bytes, const df_weights *w, size_t n,
                                    const char *what, df_error *err) {
  for (size_t i = 0; i < n; i++) { /* all of them lie inside */
    assert_true(w[i].data >= (uint8_t *)block);
    assert_true(w[i].data + w[i].strip_bytes * df_strips(w[i].n) <= (uint8_t *)block + bytes);
  }
  return shadow_map(d, block, bytes, DF_MEM_WEIGHTS, what, err);
}

static void shadow_unmap(df_device *d, void *base) {
  shadow *s = (shadow *)d;
  df_mirror *x = df_mirrors_take(&s->m, base);
  if (!x) return;
  if (hidden(x)) allow(base, x->bytes, true);
  s->used -= x->bytes;
  g_counts.mapped -= x->bytes;
  df_pages_free(x->there, x->bytes);
  df_free(x);
}

/* The mirror that holds a range of one kind or another. */
static df_mirror *range_of(shadow *s, const void *from, size_t bytes) {
  df_mirror *x = df_mirrors_find(&s->m, from);
  assert_non_null(x);
  assert_true((const uint8_t *)from + bytes <= x->host + x->bytes);
  return x;
}

static df_status shadow_fetch(df_device *d, const void *from, size_t bytes, df_error *err) {
  (void)err;
  df_mirror *x = range_of((shadow *)d, from, bytes);
  assert_int_equal(x->kind, DF_MEM_SCRATCH);
  allow(from, bytes, true);
  memcpy((void *)from, x->there + ((const uint8_t *)from - x->host), bytes);
  x->own = x; /* until the next program that refers to it */
  g_counts.fetches++;
  g_counts.fetched_bytes += bytes;
  return DF_OK;
}

static df_status shadow_put(df_device *d, const void *from, size_t bytes, df_error *err) {
  (void)err;
  df_mirror *x = range_of((shadow *)d, from, bytes);
  assert_int_equal(x->kind, DF_MEM_CONST);
  memcpy(x->there + ((const uint8_t *)from - x->host), from, bytes);
  g_counts.puts++;
  return DF_OK;
}

/* ---- programs ------------------------------------------------------------------------------------------- */

static void release_made(void *p) {
  made *x = p;
  df_program_free(x->lowered);
  df_lower_uses_release(&x->uses);
  df_free(x);
}

static df_status shadow_prepare(df_device *d, df_program *p, bool recorded, df_error *err) {
  (void)recorded;
  shadow *s = (shadow *)d;
  made *x = df_calloc(1, sizeof *x);
  if (!x) return DF_OOM(err, "a program", sizeof *x);
  const df_status st = df_lower_program(p, &s->m, &x->lowered, &x->uses, err);
  if (st != DF_OK) {
    df_free(x);
    return st;
  }
  df_program_attach(p, x, df_program_bytes(x->lowered), release_made);
  return DF_OK;
}

/* What the host wrote since the last run, and what it must not read any more. */
static df_status take_inputs(shadow *s, const made *x, df_error *err) {
  for (uint32_t i = 0; i < x->uses.n; i++) {
    df_mirror *u = x->uses.items[i];
    if (u->kind == DF_MEM_INPUT) memcpy(u->there, u->host, u->bytes);
    if (u->kind == DF_MEM_SCRATCH && u->own) {
      allow(u->host, u->bytes, false);
      u->own = NULL;
    }
    if (u->kind != DF_MEM_BATCH) continue;
    DF_TRY(df_lower_batch(&s->m, (const df_batch *)(const void *)u->host, (df_batch *)(void *)u->there, err));
  }
  return DF_OK;
}

static df_status shadow_run(df_device *d, df_program *p, df_error *err) {
  shadow *s = (shadow *)d;
  const made *x = df_program_attached(p);
  assert_non_null(x);
  s->runs++;
  g_counts.runs++;
  if (s->o.fail_run && s->runs >= s->o.fail_run)
    return DF_FAIL(err, DF_ERR_DEVICE, "the device is lost: run %u failed", s->o.fail_run);
  DF_TRY(take_inputs(s, x, err));
  df_cpu_run(s->cpu, x->lowered);
  for (uint32_t i = 0; i < x->uses.n; i++) {
    const df_mirror *u = x->uses.items[i];
    if (u->kind == DF_MEM_OUTPUT) memcpy((void *)u->host, u->there, u->bytes);
  }
  return DF_OK;
}

static void shadow_quiesce(df_device *d) { df_cpu_quiesce(((shadow *)d)->cpu); }

static void shadow_info(const df_device *d, df_device_info *out) {
  *out = (df_device_info){.name = "shadow"};
  const df_mirrors *m = &((const shadow *)d)->m;
  for (uint32_t i = 0; i < m->n; i++) out->mapped[m->items[i]->kind] += m->items[i]->bytes;
}

static void shadow_free(df_device *d) {
  shadow *s = (shadow *)d;
  while (s->m.n) shadow_unmap(d, (void *)s->m.items[s->m.n - 1]->host);
  df_mirrors_release(&s->m);
  df_cpu_free(s->cpu);
  df_free(s);
}

static const df_device_ops k_ops = {.map = shadow_map,
                                    .map_weights = shadow_map_weights,
                                    .unmap = shadow_unmap,
                                    .fits = shadow_fits,
                                    .prepare = shadow_prepare,
                                    .run = shadow_run,
                                    .fetch = shadow_fetch,
                                    .put = shadow_put,
                                    .quiesce = shadow_quiesce,
                                    .info = shadow_info,
                                    .free = shadow_free};

static df_status create(df_pool *pool, const df_kernels *kernels, df_device **out, df_error *err) {
  shadow *s = df_calloc(1, sizeof *s);
  if (!s) return DF_OOM(err, "a device", sizeof *s);
  s->o = g_options;
  s->base = (df_device){.ops = &k_ops,
                        .token_major = s->o.like_a_card,
                        .leaves = s->o.like_a_card ? DF_LEAVES_CUDA : DF_LEAVES_HOST,
                        .n_workers = df_pool_threads(pool),
                        .argmax_segments = s->o.like_a_card ? 64 : 4};
  const df_status st = df_cpu_create(pool, kernels, &s->cpu, err);
  if (st != DF_OK) {
    df_free(s);
    return st;
  }
  *out = &s->base;
  return DF_OK;
}

void shadow_provide(void) { df_device_provide("shadow", create); }
