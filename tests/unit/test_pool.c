/* Thread pool: steps in order, every chunk once, and no waiting for threads that do not run. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/pool.h"
#include "base/size.h"

enum { MAX_STEPS = 40, MAX_CHUNKS = 60 };

static uint32_t g_seed = 12345;
static uint32_t rnd_below(uint32_t n) {
  g_seed = g_seed * 1664525u + 1013904223u;
  return (uint32_t)((uint64_t)g_seed * n >> 32);
}

static void sleep_ms(unsigned ms) {
  const struct timespec t = {.tv_sec = ms / 1000, .tv_nsec = (long)(ms % 1000) * 1000000};
  (void)nanosleep(&t, NULL);
}

/* ---- order and completeness ------------------------------------------------------------------------------ */

typedef struct ledger {
  const uint32_t *n_chunks;
  uint32_t n_threads;
  _Atomic uint32_t done[MAX_STEPS];
  _Atomic uint8_t runs[MAX_STEPS][MAX_CHUNKS];
  _Atomic uint32_t faults;
  uint32_t plain[MAX_STEPS][MAX_CHUNKS]; /* written without atomics: the pool itself must order the steps */
} ledger;

static void record(void *arg, uint32_t step, uint32_t chunk, uint32_t worker) {
  ledger *l = arg;
  if (worker >= l->n_threads || chunk >= l->n_chunks[step]) atomic_fetch_add(&l->faults, 1);
  uint32_t before = 1;
  for (uint32_t s = 0; s < step; s++) {
    if (atomic_load(&l->done[s]) != l->n_chunks[s]) atomic_fetch_add(&l->faults, 1);
    for (uint32_t c = 0; c < l->n_chunks[s]; c++) before += l->plain[s][c] & 0xff;
  }
  l->plain[step][chunk] = before;
  atomic_fetch_add(&l->runs[step][chunk], 1);
  atomic_fetch_add(&l->done[step], 1);
}

static void check_ledger(const ledger *l, uint32_t n_steps) {
  assert_int_equal(atomic_load(&l->faults), 0);
  uint32_t want = 1;
  for (uint32_t s = 0; s < n_steps; s++) {
    for (uint32_t c = 0; c < l->n_chunks[s]; c++) {
      assert_int_equal(atomic_load(&l->runs[s][c]), 1);
      assert_int_equal(l->plain[s][c], want);
    }
    want += l->n_chunks[s] * (want & 0xff);
  }
}

static void random_walks(unsigned n_threads, uint32_t walks, uint32_t max_steps) {
  df_pool *p;
  assert_int_equal(df_pool_create(n_threads, &p, NULL), DF_OK);
  assert_int_equal(df_pool_threads(p), n_threads);
  ledger *l = malloc(sizeof *l);
  df_step *steps = aligned_alloc(64, MAX_STEPS * sizeof *steps);
  memset(steps, 0, MAX_STEPS * sizeof *steps); /* once, never between walks */
  uint32_t n_chunks[MAX_STEPS];
  for (uint32_t w = 0; w < walks; w++) {
    df_pool_quiesce(p); /* n_chunks and the ledger are rewritten */
    memset(l, 0, sizeof *l);
    l->n_threads = n_threads;
    l->n_chunks = n_chunks;
    const uint32_t n_steps = rnd_below(max_steps + 1);
    for (uint32_t s = 0; s < n_steps; s++) n_chunks[s] = rnd_below(3) ? rnd_below(6) : rnd_below(MAX_CHUNKS);
    const uint64_t allocs = df_mem_alloc_count();
    df_pool_walk(p, steps, n_steps, n_chunks, record, l);
    assert_int_equal(df_mem_alloc_count(), allocs);
    check_ledger(l, n_steps);
  }
  df_pool_free(p);
  free(steps);
  free(l);
}

static void test_pool_walk__steps_in_order_every_chunk_once(void **state) {
  (void)state;
  for (unsigned t = 1; t <= 4; t++) random_walks(t, 1000, 12);
}

static void test_pool_walk__more_threads_than_processors(void **state) {
  (void)state;
  random_walks(8, 200, MAX_STEPS);
  random_walks(32, 20, MAX_STEPS);
}

/* ---- walks back to back, without waiting for the helpers -------------------------------------------------- */

typedef struct sums {
  _Atomic uint64_t total;
  uint64_t per_worker[8];
} sums;

enum { LATE_STEPS = 5 };
static const uint32_t k_late_chunks[LATE_STEPS] = {3, 1, 7, 2, 4};

typedef struct late {
  _Atomic uint64_t walk; /* number of the walk that runs */
  _Atomic uint64_t done[LATE_STEPS];
  _Atomic uint64_t total;
  _Atomic uint32_t early; /* chunks that ran before the steps before them were complete */
} late;

static void add_value(void *arg, uint32_t step, uint32_t chunk, uint32_t worker) {
  late *l = arg;
  (void)worker;
  for (uint32_t t = 0; t < step; t++)
    if (atomic_load(&l->done[t]) != atomic_load(&l->walk) * k_late_chunks[t]) atomic_fetch_add(&l->early, 1);
  atomic_fetch_add(&l->total, (uint64_t)step * 1000 + chunk + 1);
  atomic_fetch_add(&l->done[step], 1);
}

/* Many threads on few processors, the same counters again at once: helpers wake up in the middle of other walks. */
static void test_pool_walk__late_helpers_never_touch_a_newer_walk(void **state) {
  (void)state;
  df_pool *p;
  df_step steps[LATE_STEPS] = {0};
  static late l;
  uint64_t per_walk = 0;
  for (uint32_t i = 0; i < LATE_STEPS; i++)
    for (uint32_t c = 0; c < k_late_chunks[i]; c++) per_walk += (uint64_t)i * 1000 + c + 1;
  assert_int_equal(df_pool_create(8, &p, NULL), DF_OK);
  for (uint64_t w = 1; w <= 20000; w++) {
    atomic_store(&l.walk, w);
    df_pool_walk(p, steps, LATE_STEPS, k_late_chunks, add_value, &l);
    assert_int_equal(atomic_load(&l.total), w * per_walk);
    if (w % 2000 == 0) sleep_ms(2); /* let the helpers fall asleep */
  }
  assert_int_equal(atomic_load(&l.early), 0);
  df_pool_free(p);
}

static void add_plain(void *arg, uint32_t i, uint32_t worker) {
  sums *s = arg;
  s->per_worker[worker] += (uint64_t)i * i; /* own scratch per worker: no two threads share an index */
}

static void test_pool_for__sums_over_private_scratch(void **state) {
  (void)state;
  df_pool *p;
  assert_int_equal(df_pool_create(3, &p, NULL), DF_OK);
  for (uint32_t n = 0; n < 300; n++) {
    sums s = {0};
    uint64_t want = 0, got = 0;
    df_pool_for(p, n, add_plain, &s);
    for (uint64_t i = 0; i < n; i++) want += i * i;
    for (int w = 0; w < 3; w++) got += s.per_worker[w];
    assert_int_equal(got, want);
  }
  df_pool_free(p);
}

/* ---- stalled helper and busy machine ---------------------------------------------------------------------- */

typedef struct stall {
  _Atomic bool helper_stuck;
  _Atomic bool release;
  _Atomic uint32_t others; /* chunks finished while the helper is stuck */
} stall;

enum { STALL_CHUNKS = 64 };

static void one_helper_sleeps(void *arg, uint32_t step, uint32_t chunk, uint32_t worker) {
  stall *s = arg;
  (void)step;
  (void)chunk;
  bool first = false;
  if (worker != 0 && atomic_compare_exchange_strong(&s->helper_stuck, &first, true)) {
    /* Stays inside its chunk until every other chunk is done: that can only happen if nobody waits for it. */
    const uint64_t start = df_now_ns();
    while (atomic_load(&s->others) < STALL_CHUNKS - 1 && df_now_ns() - start < 20000000000u) sleep_ms(1);
    atomic_store(&s->release, atomic_load(&s->others) == STALL_CHUNKS - 1);
    return;
  }
  /* The caller leaves the helpers a chance to claim one chunk. */
  const uint64_t start = df_now_ns();
  while (worker == 0 && !atomic_load(&s->helper_stuck) && df_now_ns() - start < 5000000000u) sleep_ms(1);
  atomic_fetch_add(&s->others, 1);
}

static void test_pool_walk__a_stalled_helper_does_not_hold_unclaimed_work(void **state) {
  (void)state;
  df_pool *p;
  df_step step = {0};
  const uint32_t n = STALL_CHUNKS;
  assert_int_equal(df_pool_create(2, &p, NULL), DF_OK);
  stall s = {0};
  df_pool_walk(p, &step, 1, &n, one_helper_sleeps, &s);
  assert_true(atomic_load(&s.helper_stuck));
  assert_true(atomic_load(&s.release));
  df_pool_free(p);
}

static _Atomic bool g_stop_burning;
static void *burn(void *arg) {
  volatile uint64_t *x = arg;
  while (!atomic_load_explicit(&g_stop_burning, memory_order_relaxed)) *x = *x * 3 + 1;
  return NULL;
}

static void small_work(void *arg, uint32_t step, uint32_t chunk, uint32_t worker) {
  (void)step;
  (void)worker;
  volatile uint32_t x = chunk;
  for (int i = 0; i < 2000; i++) x = x * 5 + 1;
  atomic_fetch_add((_Atomic uint32_t *)arg, 1);
}

static void test_pool_walk__busy_competitors_do_not_stall_it(void **state) {
  (void)state;
  enum { BURNERS = 6, STEPS = 20, WALKS = 100 };
  pthread_t t[BURNERS];
  uint64_t cells[BURNERS] = {0};
  atomic_store(&g_stop_burning, false);
  for (int i = 0; i < BURNERS; i++) assert_int_equal(pthread_create(&t[i], NULL, burn, &cells[i]), 0);
  df_pool *p;
  df_step steps[STEPS] = {0};
  uint32_t n_chunks[STEPS];
  for (int i = 0; i < STEPS; i++) n_chunks[i] = 4;
  assert_int_equal(df_pool_create(4, &p, NULL), DF_OK);
  _Atomic uint32_t done = 0;
  const uint64_t start = df_now_ns();
  for (int w = 0; w < WALKS; w++) df_pool_walk(p, steps, STEPS, n_chunks, small_work, &done);
  const double seconds = (double)(df_now_ns() - start) * 1e-9;
  df_pool_free(p);
  atomic_store(&g_stop_burning, true);
  for (int i = 0; i < BURNERS; i++) (void)pthread_join(t[i], NULL);
  assert_int_equal(atomic_load(&done), WALKS * STEPS * 4);
  /* A pool that waits at a barrier for each preempted thread needs a scheduling slice per step. Generous bound:
   * this catches a stall, not a slow machine. */
  assert_true(seconds < 60.0);
}

/* ---- life cycle ------------------------------------------------------------------------------------------ */

static void test_pool_create__refuses_silly_counts_and_survives_no_memory(void **state) {
  (void)state;
  df_pool *p = NULL;
  df_error e;
  assert_int_equal(df_pool_create(0, &p, &e), DF_ERR_ARGUMENT);
  assert_int_equal(df_pool_create(257, &p, &e), DF_ERR_ARGUMENT);
  for (uint64_t n = 1; n <= 5; n++) {
    df_mem_fail_after(n, false);
    assert_int_equal(df_pool_create(4, &p, &e), DF_ERR_MEMORY);
  }
  df_mem_fail_after(0, false);
  assert_null(p);
  df_pool_free(NULL);
}

/* A chunk about as long as a waiter spins, so that it falls asleep just when the chunk ends. */
static void around_the_spin(void *arg, uint32_t step, uint32_t chunk, uint32_t worker) {
  (void)step;
  (void)worker;
  (void)chunk;
  const uint64_t end = df_now_ns() + 20000 + *(uint32_t *)arg;
  while (df_now_ns() < end) {
  }
}

/* The counters have the same values after every walk: a sleeper must not take an old value for "not done yet". */
static void test_pool_walk__a_sleeper_never_misses_the_end(void **state) {
  (void)state;
  df_pool *p;
  df_step steps[4] = {0};
  const uint32_t n[4] = {1, 1, 1, 1};
  assert_int_equal(df_pool_create(2, &p, NULL), DF_OK);
  (void)alarm(120); /* a lost wake-up hangs */
  for (uint32_t w = 0; w < 5000; w++) {
    uint32_t extra = w * 37 % 200000;
    df_pool_walk(p, steps, 4, n, around_the_spin, &extra);
  }
  (void)alarm(0);
  df_pool_free(p);
}

static void test_pool_free__works_while_helpers_are_awake_or_asleep(void **state) {
  (void)state;
  for (int i = 0; i < 60; i++) {
    df_pool *p;
    assert_int_equal(df_pool_create(1 + rnd_below(6), &p, NULL), DF_OK);
    if (i % 3 == 1) sleep_ms(1);
    _Atomic uint32_t done = 0;
    df_step step = {0};
    const uint32_t n = 5;
    if (i % 3 != 2) df_pool_walk(p, &step, 1, &n, small_work, &done);
    df_pool_free(p); /* joins, so step and n may go */
    assert_int_equal(atomic_load(&done), i % 3 != 2 ? 5 : 0);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_pool_walk__steps_in_order_every_chunk_once),
      cmocka_unit_test(test_pool_walk__more_threads_than_processors),
      cmocka_unit_test(test_pool_walk__late_helpers_never_touch_a_newer_walk),
      cmocka_unit_test(test_pool_for__sums_over_private_scratch),
      cmocka_unit_test(test_pool_walk__a_stalled_helper_does_not_hold_unclaimed_work),
      cmocka_unit_test(test_pool_walk__busy_competitors_do_not_stall_it),
      cmocka_unit_test(test_pool_create__refuses_silly_counts_and_survives_no_memory),
      cmocka_unit_test(test_pool_walk__a_sleeper_never_misses_the_end),
      cmocka_unit_test(test_pool_free__works_while_helpers_are_awake_or_asleep),
  };
  return cmocka_run_group_tests_name("pool", tests, NULL, NULL);
}
