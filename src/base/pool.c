#define _GNU_SOURCE
#include "base/pool.h"

#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"

enum { SPIN_ROUNDS = 64, SPIN_PAUSES = 32, IDLE_SPIN_NS = 200000 };

typedef struct walk {
  df_step *steps;
  const uint32_t *n_chunks;
  df_chunk_fn fn;
  void *arg;
  uint32_t n_steps;
  uint32_t epoch;
} walk;

struct df_pool {
  unsigned n_threads;
  pthread_t *threads;
  unsigned started;
  _Alignas(64) _Atomic uint32_t generation; /* odd while a walk is published */
  _Atomic uint32_t inside;                  /* helpers between entering and leaving a walk */
  _Atomic uint32_t sleepers;                /* threads in futex_wait on wakes */
  _Atomic uint32_t wakes;                   /* times a finished step woke sleepers */
  _Atomic uint32_t idle_sleepers;           /* helpers in futex_wait on generation */
  /* The published walk. Relaxed atomics because a late helper may copy them while the caller writes the
   * next one; it notices by the generation and throws the copy away. */
  _Atomic(df_step *) steps;
  _Atomic(const uint32_t *) n_chunks;
  _Atomic(df_chunk_fn) fn;
  _Atomic(void *) arg;
  _Atomic uint32_t n_steps;
  _Atomic bool quit;
};

typedef struct helper_arg {
  df_pool *pool;
  uint32_t worker;
} helper_arg;

static void futex_wait(_Atomic uint32_t *word, uint32_t expected) {
  (void)syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, expected, NULL, NULL, 0);
}

static void futex_wake_all(_Atomic uint32_t *word) {
  (void)syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, 0x7fffffff, NULL, NULL, 0);
}

static inline void cpu_relax(void) {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#else
  __asm__ volatile("" ::: "memory");
#endif
}

enum { NONE = 0xFFFFFFFF };

/* The count of our epoch in v: 0 when v is of an older one. *newer tells that the walk of our epoch is over. */
static inline uint32_t count_of(uint64_t v, uint32_t epoch, bool *newer) {
  const int32_t age = (int32_t)((uint32_t)(v >> 32) - epoch);
  *newer = age > 0;
  return age == 0 ? (uint32_t)v : 0;
}

/* Takes the next chunk of range q, or returns NONE. Compare-and-swap, not fetch-add: a helper that slept through the
 * end of its walk must not take a chunk of the next one before that step may start. */
static uint32_t claim(df_step *s, uint32_t q, uint32_t n_queues, uint32_t epoch, uint32_t n) {
  const uint32_t lo = (uint32_t)((uint64_t)n * q / n_queues), hi = (uint32_t)((uint64_t)n * (q + 1) / n_queues);
  uint64_t v = atomic_load_explicit(&s->claimed[q].v, memory_order_relaxed);
  for (;;) {
    bool newer;
    const uint32_t taken = count_of(v, epoch, &newer);
    if (newer || lo + taken >= hi) return NONE;
    const uint64_t next = (uint64_t)epoch << 32 | (taken + 1);
    if (atomic_compare_exchange_weak_explicit(&s->claimed[q].v, &v, next, memory_order_acq_rel, memory_order_relaxed))
      return lo + taken;
  }
}

/* Counts one finished chunk and wakes who sleeps when it was the last. The order of "done" and "sleepers" is
 * sequentially consistent on both sides: either the finisher sees the sleeper, or the sleeper sees the step done. */
static void finish(df_pool *p, df_step *s, uint32_t epoch, uint32_t n) {
  uint64_t v = atomic_load(&s->done.v), next;
  do {
    bool newer;
    next = (uint64_t)epoch << 32 | (count_of(v, epoch, &newer) + 1);
  } while (!atomic_compare_exchange_weak(&s->done.v, &v, next));
  if ((uint32_t)next == n && atomic_load(&p->sleepers)) {
    atomic_fetch_add(&p->wakes, 1);
    futex_wake_all(&p->wakes);
  }
}

/* Waits until all chunks of the step are done; false when the step has moved to a newer epoch. */
static bool wait_done(df_pool *p, df_step *s, uint32_t epoch, uint32_t n) {
  for (int round = 0;; round++) {
    bool newer;
    for (int i = 0; i < SPIN_PAUSES; i++) {
      const uint32_t d = count_of(atomic_load_explicit(&s->done.v, memory_order_acquire), epoch, &newer);
      if (d >= n) return true;
      if (newer) return false;
      cpu_relax();
    }
    if (round < SPIN_ROUNDS) continue;
    /* The thread that holds the chunk is not running: give it this core. What is slept on is a count of wake-ups, read
     * before the last look at the step: a step's own count has the same value after every walk, so a sleep on it could
     * begin behind the wake-up it waits for. */
    atomic_fetch_add(&p->sleepers, 1);
    const uint32_t seen = atomic_load(&p->wakes);
    if (count_of(atomic_load(&s->done.v), epoch, &newer) < n && !newer) futex_wait(&p->wakes, seen);
    atomic_fetch_sub(&p->sleepers, 1);
  }
}

static void walk_steps(df_pool *p, const walk *w, uint32_t worker) {
  const uint32_t n_queues = p->n_threads < DF_POOL_QUEUES ? p->n_threads : DF_POOL_QUEUES;
  for (uint32_t i = 0; i < w->n_steps; i++) {
    df_step *s = &w->steps[i];
    const uint32_t n = w->n_chunks[i];
    if (n == 0) continue;
    for (uint32_t k = 0; k < n_queues; k++) { /* the own range first */
      const uint32_t q = (worker + k) % n_queues;
      uint32_t c;
      while ((c = claim(s, q, n_queues, w->epoch, n)) != NONE) {
        w->fn(w->arg, i, c, worker);
        finish(p, s, w->epoch, n);
      }
    }
    if (!wait_done(p, s, w->epoch, n)) return;
  }
}

/* Copies the published walk; false when it was replaced meanwhile. The epoch follows from the generation,
 * so a copy can never carry the counters of one walk and the epoch of another. */
static bool enter_walk(df_pool *p, uint32_t gen, walk *out) {
  atomic_fetch_add(&p->inside, 1);
  out->steps = atomic_load(&p->steps);
  out->n_chunks = atomic_load(&p->n_chunks);
  out->fn = atomic_load(&p->fn);
  out->arg = atomic_load(&p->arg);
  out->n_steps = atomic_load(&p->n_steps);
  out->epoch = gen;
  if (atomic_load(&p->generation) == gen) return true;
  atomic_fetch_sub(&p->inside, 1);
  return false;
}

static void *helper_main(void *arg) {
  const helper_arg ha = *(helper_arg *)arg;
  df_free(arg);
  df_pool *p = ha.pool;
  uint32_t seen = 0;
  for (;;) {
    uint64_t idle_since = df_now_ns();
    uint32_t gen;
    for (unsigned spin = 0;; spin++) {
      if (atomic_load_explicit(&p->quit, memory_order_relaxed)) return NULL;
      gen = atomic_load_explicit(&p->generation, memory_order_acquire);
      if ((gen & 1) && gen != seen) break;
      cpu_relax();
      if ((spin & 63) == 63 && df_now_ns() - idle_since > IDLE_SPIN_NS) {
        atomic_fetch_add(&p->idle_sleepers, 1);
        if (atomic_load(&p->generation) == gen && !atomic_load(&p->quit)) futex_wait(&p->generation, gen);
        atomic_fetch_sub(&p->idle_sleepers, 1);
        idle_since = df_now_ns();
      }
    }
    seen = gen;
    walk w;
    if (!enter_walk(p, gen, &w)) continue;
    walk_steps(p, &w, ha.worker);
    atomic_fetch_sub(&p->inside, 1);
  }
}

df_status df_pool_create(unsigned n_threads, df_pool **out, df_error *err) {
  if (n_threads < 1 || n_threads > 256)
    return DF_FAIL(err, DF_ERR_ARGUMENT, "thread count %u is outside 1..256", n_threads);
  df_pool *p = df_pages_alloc(sizeof *p);
  if (!p) return DF_OOM(err, "a thread pool", sizeof *p);
  p->n_threads = n_threads;
  p->threads = df_calloc(n_threads, sizeof *p->threads);
  if (!p->threads) {
    df_pool_free(p);
    return DF_OOM(err, "a thread pool", n_threads * sizeof *p->threads);
  }
  for (unsigned i = 1; i < n_threads; i++) {
    helper_arg *ha = df_alloc(sizeof *ha);
    if (ha) *ha = (helper_arg){p, i};
    if (!ha || pthread_create(&p->threads[i], NULL, helper_main, ha) != 0) {
      df_free(ha);
      df_pool_free(p);
      return DF_FAIL(err, DF_ERR_MEMORY, "could not start thread %u of %u", i, n_threads);
    }
    p->started = i;
  }
  *out = p;
  return DF_OK;
}

void df_pool_free(df_pool *p) {
  if (!p) return;
  atomic_store(&p->quit, true);
  atomic_fetch_add(&p->generation, 2);
  futex_wake_all(&p->generation);
  for (unsigned i = 1; i <= p->started; i++) (void)pthread_join(p->threads[i], NULL);
  df_free(p->threads);
  df_pages_free(p, sizeof *p);
}

unsigned df_pool_threads(const df_pool *p) { return p->n_threads; }

void df_pool_quiesce(df_pool *p) {
  for (unsigned spin = 0; atomic_load(&p->inside); spin++) {
    if (spin < 1000)
      cpu_relax();
    else
      sched_yield();
  }
}

void df_pool_walk(df_pool *p, df_step *steps, uint32_t n_steps, const uint32_t *n_chunks, df_chunk_fn fn, void *arg) {
  if (p->n_threads == 1) {
    for (uint32_t i = 0; i < n_steps; i++)
      for (uint32_t c = 0; c < n_chunks[i]; c++) fn(arg, i, c, 0);
    return;
  }
  /* The epoch is the odd generation under which the walk is published: unique until it wraps after two
   * thousand million walks, far longer than a helper can sleep inside one. */
  const uint32_t epoch = atomic_load_explicit(&p->generation, memory_order_relaxed) + 1;
  atomic_store(&p->steps, steps);
  atomic_store(&p->n_chunks, n_chunks);
  atomic_store(&p->fn, fn);
  atomic_store(&p->arg, arg);
  atomic_store(&p->n_steps, n_steps);
  atomic_fetch_add(&p->generation, 1); /* odd: published */
  if (atomic_load(&p->idle_sleepers)) futex_wake_all(&p->generation);
  const walk w = {steps, n_chunks, fn, arg, n_steps, epoch};
  walk_steps(p, &w, 0);
  atomic_fetch_add(&p->generation, 1); /* even: nobody may enter any more */
}

typedef struct for_arg {
  void (*fn)(void *, uint32_t, uint32_t);
  void *arg;
} for_arg;

static void for_chunk(void *arg, uint32_t step, uint32_t chunk, uint32_t worker) {
  (void)step;
  const for_arg *f = arg;
  f->fn(f->arg, chunk, worker);
}

void df_pool_for(df_pool *p, uint32_t n, void (*fn)(void *, uint32_t, uint32_t), void *arg) {
  df_step step = {0};
  for_arg f = {fn, arg};
  df_pool_walk(p, &step, 1, &n, for_chunk, &f);
  df_pool_quiesce(p);
}
