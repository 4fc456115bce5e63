/* The runtime. See fake_cuda.h. */
#define _GNU_SOURCE
#include "cuda/fake/fake_cuda.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#include <cuda_runtime_api.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/mem.h"
#include "base/size.h"
#include "cuda/fake/fake_state.h"

enum { PAGE = 4096, MAX_BLOCKS = 512, MAX_WORK = 4096 };

/* ---- the machine ---------------------------------------------------------------------------------------- */

fake_state g_fake;

fake_card fake_card_default(void) {
  return (fake_card){
      .n_cards = 1, .driver = 13000, .major = 9, .minor = 0, .memory = (size_t)1 << 30, .archs = "sm_90a compute_90"};
}

void fake_set(const fake_card *c) {
  g_fake.card = *c;
  g_fake.failed = 0;
  g_fake.fail_wait = g_fake.fail_launch = 0;
}

void fake_fail_wait(uint32_t n, int code) {
  g_fake.fail_wait = n;
  g_fake.fail_code = code;
}

void fake_fail_launch(uint32_t n, int code) {
  g_fake.fail_launch = n;
  g_fake.fail_code = code;
}

fake_counts fake_take_counts(void) {
  const fake_counts c = g_fake.counts;
  g_fake.counts = (fake_counts){.blocks = c.blocks,
                                .pinned = c.pinned,
                                .streams = c.streams,
                                .events = c.events,
                                .graphs = c.graphs,
                                .bytes = c.bytes};
  return c;
}

/* ---- memory --------------------------------------------------------------------------------------------- */

typedef struct block {
  uint8_t *p;
  size_t bytes;
  bool pinned;
} block;

static block g_blocks[MAX_BLOCKS];
static uint32_t g_n_blocks;
static bool g_open; /* the card's memory is accessible: work is being done */

static void access_all(bool yes) {
  g_open = yes;
  for (uint32_t i = 0; i < g_n_blocks; i++)
    if (!g_blocks[i].pinned)
      assert_int_equal(mprotect(g_blocks[i].p, g_blocks[i].bytes, yes ? PROT_READ | PROT_WRITE : PROT_NONE), 0);
}

static const block *block_of(const void *p) {
  for (uint32_t i = 0; i < g_n_blocks; i++)
    if ((const uint8_t *)p >= g_blocks[i].p && (const uint8_t *)p < g_blocks[i].p + g_blocks[i].bytes)
      return &g_blocks[i];
  return NULL;
}

static void *new_block(size_t bytes, bool pinned) {
  const size_t whole = df_round_up(bytes, PAGE);
  assert_true(g_n_blocks < MAX_BLOCKS);
  uint8_t *p = mmap(NULL, whole, pinned ? PROT_READ | PROT_WRITE : PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  assert_true(p != MAP_FAILED);
  g_blocks[g_n_blocks++] = (block){p, whole, pinned};
  return p;
}

static void free_block(void *p, bool pinned) {
  for (uint32_t i = 0; i < g_n_blocks; i++) {
    if (g_blocks[i].p != p) continue;
    assert_true(g_blocks[i].pinned == pinned);
    (void)munmap(p, g_blocks[i].bytes);
    if (!pinned) g_fake.counts.bytes -= g_blocks[i].bytes;
    g_blocks[i] = g_blocks[--g_n_blocks];
    *(pinned ? &g_fake.counts.pinned : &g_fake.counts.blocks) -= 1;
    return;
  }
  assert_null(p); /* freeing what is not there */
}

cudaError_t cudaMemGetInfo(size_t *free_now, size_t *total) {
  *total = g_fake.card.memory;
  *free_now = g_fake.card.memory - g_fake.counts.bytes;
  return cudaSuccess;
}

cudaError_t cudaMalloc(void **out, size_t bytes) {
  const size_t whole = df_round_up(bytes, PAGE);
  assert_false(g_fake.recording); /* forbidden while a stream is recorded */
  if (g_fake.counts.bytes + whole > g_fake.card.memory) return cudaErrorMemoryAllocation;
  *out = new_block(bytes, false);
  g_fake.counts.bytes += whole;
  g_fake.counts.blocks++;
  return cudaSuccess;
}

cudaError_t cudaFree(void *p) {
  free_block(p, false);
  return cudaSuccess;
}

cudaError_t cudaMallocHost(void **out, size_t bytes) {
  assert_false(g_fake.recording);
  *out = new_block(bytes, true);
  g_fake.counts.pinned++;
  return cudaSuccess;
}

cudaError_t cudaFreeHost(void *p) {
  free_block(p, true);
  return cudaSuccess;
}

/* ---- streams -------------------------------------------------------------------------------------------- */

typedef struct list {
  fake_work *items; /* [MAX_WORK] */
  uint32_t n;
} list;

static list g_stream, g_recorded;

static void do_work(const fake_work *w) {
  if (w->run) {
    w->run(w);
  } else if (w->from) {
    memcpy(w->to, w->from, w->bytes);
    if (!block_of(w->to)->pinned) return;
    g_fake.counts.came_back++;
  } else {
    memset(w->to, w->value, w->bytes);
  }
}

static void do_all(void) {
  access_all(true);
  for (uint32_t i = 0; i < g_stream.n; i++) do_work(&g_stream.items[i]);
  access_all(false);
  g_stream.n = 0;
}

static void append(list *l, const fake_work *w) {
  if (!l->items) l->items = df_calloc(MAX_WORK, sizeof *l->items);
  assert_non_null(l->items);
  if (l->n == MAX_WORK && l == &g_stream) do_all();
  assert_true(l->n < MAX_WORK);
  l->items[l->n++] = *w;
}

void fake_enqueue(const fake_work *w) { append(g_fake.recording ? &g_recorded : &g_stream, w); }

/* A call that meets an earlier failure reports it, as a broken card does. */
static cudaError_t broken(void) { return (cudaError_t)g_fake.failed; }

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *s, unsigned flags) {
  assert_int_equal(flags, cudaStreamNonBlocking);
  g_fake.counts.streams++;
  *s = (cudaStream_t)&g_stream;
  return cudaSuccess;
}

cudaError_t cudaStreamDestroy(cudaStream_t s) {
  assert_true(s == (cudaStream_t)&g_stream);
  if (--g_fake.counts.streams == 0) {
    df_free(g_stream.items);
    df_free(g_recorded.items);
    g_stream = g_recorded = (list){0};
  }
  return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t s) {
  assert_true(s == (cudaStream_t)&g_stream && !g_fake.recording);
  g_fake.counts.waits++;
  if (g_fake.failed) return broken();
  do_all();
  if (g_fake.fail_wait && --g_fake.fail_wait == 0) g_fake.failed = g_fake.fail_code;
  return broken();
}

cudaError_t cudaMemsetAsync(void *p, int value, size_t bytes, cudaStream_t s) {
  (void)s;
  const block *b = block_of(p);
  assert_true(b && !b->pinned && (uint8_t *)p + bytes <= b->p + b->bytes);
  fake_enqueue(&(fake_work){.to = p, .bytes = bytes, .value = value});
  return broken();
}

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind, cudaStream_t s) {
  (void)s;
  const block *t = block_of(to), *f = block_of(from);
  const bool in = kind == cudaMemcpyHostToDevice;
  assert_true(in || kind == cudaMemcpyDeviceToHost);
  assert_true(t && t->pinned == !in && (uint8_t *)to + bytes <= t->p + t->bytes); /* pinned, else it would wait */
  assert_true(f && f->pinned == in && (const uint8_t *)from + bytes <= f->p + f->bytes);
  fake_enqueue(&(fake_work){.to = to, .from = from, .bytes = bytes});
  *(in ? &g_fake.counts.copies_in : &g_fake.counts.copies_out) += 1;
  return broken();
}

/* An event is where the stream was: waiting for it does all there is. */
cudaError_t cudaEventCreateWithFlags(cudaEvent_t *e, unsigned flags) {
  (void)flags;
  g_fake.counts.events++;
  *e = (cudaEvent_t)&g_fake;
  return cudaSuccess;
}

cudaError_t cudaEventDestroy(cudaEvent_t e) {
  (void)e;
  g_fake.counts.events--;
  return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t e, cudaStream_t s) {
  (void)e, (void)s;
  return broken();
}

cudaError_t cudaEventSynchronize(cudaEvent_t e) {
  (void)e;
  if (!g_fake.failed) do_all();
  return broken();
}

/* ---- graphs --------------------------------------------------------------------------------------------- */

cudaError_t cudaStreamBeginCapture(cudaStream_t s, enum cudaStreamCaptureMode mode) {
  (void)s, (void)mode;
  assert_false(g_fake.recording);
  g_fake.recording = true;
  g_recorded.n = 0;
  return broken();
}

cudaError_t cudaStreamEndCapture(cudaStream_t s, cudaGraph_t *out) {
  (void)s;
  assert_true(g_fake.recording);
  g_fake.recording = false;
  list *l = df_calloc(1, sizeof *l);
  assert_non_null(l);
  for (uint32_t i = 0; i < g_recorded.n; i++) append(l, &g_recorded.items[i]);
  g_fake.counts.graphs++;
  *out = (cudaGraph_t)l;
  return broken();
}

static void free_list(list *l) {
  df_free(l->items);
  df_free(l);
  g_fake.counts.graphs--;
}

cudaError_t cudaGraphDestroy(cudaGraph_t g) {
  free_list((list *)g);
  return cudaSuccess;
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t *out, cudaGraph_t g, unsigned long long flags) {
  (void)flags;
  list *l = df_calloc(1, sizeof *l);
  assert_non_null(l);
  for (uint32_t i = 0; i < ((list *)g)->n; i++) append(l, &((list *)g)->items[i]);
  g_fake.counts.graphs++;
  *out = (cudaGraphExec_t)l;
  return broken();
}

cudaError_t cudaGraphUpload(cudaGraphExec_t g, cudaStream_t s) {
  (void)g, (void)s;
  return broken();
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t g, cudaStream_t s) {
  (void)s;
  assert_false(g_fake.recording);
  const list *l = (const list *)g;
  for (uint32_t i = 0; i < l->n; i++) fake_enqueue(&l->items[i]);
  g_fake.counts.graph_launches++;
  return broken();
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t g) {
  free_list((list *)g);
  return cudaSuccess;
}

/* ---- cards ---------------------------------------------------------------------------------------------- */

cudaError_t cudaGetDeviceCount(int *n) {
  *n = g_fake.card.n_cards;
  if (g_fake.card.driver < 13000) return cudaErrorInsufficientDriver;
  return *n ? cudaSuccess : cudaErrorNoDevice;
}

cudaError_t cudaDriverGetVersion(int *v) {
  *v = g_fake.card.driver;
  return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int *v) {
  *v = 13000;
  return cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *p, int i) {
  assert_true(i < g_fake.card.n_cards);
  memset(p, 0, sizeof *p);
  memcpy(p->name, "made up", 8);
  p->major = g_fake.card.major;
  p->minor = g_fake.card.minor;
  return cudaSuccess;
}

cudaError_t cudaSetDevice(int i) {
  assert_true(i < g_fake.card.n_cards);
  return cudaSuccess;
}

cudaError_t cudaGetLastError(void) { return broken(); }
const char *cudaGetErrorString(cudaError_t e) {
  return e == cudaErrorIllegalAddress ? "an illegal access" : "an error";
}
