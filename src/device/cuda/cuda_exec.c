/*
 * Programs on a card. A recorded program becomes one CUDA graph: the copy of its inputs and its kernels, the last of
 * which writes what the host reads to pinned memory. An eager one is the same sequence of calls, made anew every time.
 *
 * A run fills the pinned twins of the inputs, launches, and waits only when the host will read results: drafting,
 * injection and prefill go on while the host prepares what comes next.
 */
#include "device/cuda/cuda_device.h"

#ifdef DF_HAVE_CUDA

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/size.h"
#include "device/cuda/cuda_state.h"

/* Pinned to the card, in front of the kernels. */
typedef struct transfer {
  uint8_t *there, *pinned;
  size_t bytes;
} transfer;

/* One input as it goes to its pinned twin. */
typedef struct input {
  df_mirror *x;
  size_t bytes; /* from the front: of a batch's arrays those that this program's sequences fill */
} input;

typedef struct cuda_program {
  cuda_device *d;
  df_program *lowered;
  df_lower_uses uses;
  input *inputs;
  transfer *in;
  uint32_t n_inputs, n_in;
  bool answers; /* the host reads results of it */
  void *scratch;
  size_t scratch_bytes;
  df_cuda_list list;     /* memory NULL: one kernel for an op or a few */
  cudaGraphExec_t graph; /* NULL: launched op by op */
} cuda_program;

static void release_program(void *made) {
  cuda_program *x = made;
  if (x->graph || x->list.memory) (void)cudaSetDevice((int)x->d->index);
  if (x->graph) (void)cudaGraphExecDestroy(x->graph);
  if (x->list.memory) (void)cudaFree(x->list.memory);
  df_program_free(x->lowered);
  df_lower_uses_release(&x->uses);
  df_free(x->inputs);
  df_free(x->in);
  df_free(x);
}

/* ---- what goes in --------------------------------------------------------------------------------------- */

/* Bytes of an INPUT that a program reads. */
static size_t live_bytes(const cuda_program *x, const df_mirror *u) {
  const uint32_t seqs = df_program_max_seqs(x->lowered);
  size_t most = 0;
  for (uint32_t i = 0; i < x->uses.n; i++) {
    const df_mirror *b = x->uses.items[i];
    if (b->kind != DF_MEM_BATCH) continue;
    const df_batch *batch = (const df_batch *)(const void *)b->host;
    if ((const uint8_t *)batch->block != u->host) continue;
    const uint32_t n = DF_MIN(seqs, batch->max_seqs);
    most = DF_MAX(most, DF_MIN(df_batch_bytes(batch, n), u->bytes));
  }
  return most ? most : u->bytes;
}

/* Inputs that lie near each other go over together. */
static void add_in(cuda_program *x, const df_mirror *u, size_t bytes) {
  const cuda_block *k = u->own;
  for (uint32_t i = 0; i < x->n_in; i++) {
    transfer *t = &x->in[i];
    const uint8_t *lo = DF_MIN(t->there, u->there), *hi = DF_MAX(t->there + t->bytes, u->there + bytes);
    if (lo < k->inbox->there || hi > k->inbox->there + k->inbox->bytes) continue;
    t->pinned = k->inbox->pinned + (lo - k->inbox->there);
    t->there = k->inbox->there + (lo - k->inbox->there);
    t->bytes = (size_t)(hi - lo);
    return;
  }
  x->in[x->n_in++] = (transfer){u->there, k->pinned, bytes};
}

static df_status find_inputs(cuda_program *x, df_error *err) {
  const size_t n = x->uses.n ? x->uses.n : 1;
  x->inputs = df_calloc(n, sizeof *x->inputs);
  x->in = df_calloc(n, sizeof *x->in);
  if (!x->inputs || !x->in) return DF_OOM(err, "the inputs of a program", n * sizeof *x->in);
  for (uint32_t i = 0; i < x->uses.n; i++) {
    df_mirror *u = x->uses.items[i];
    if (u->kind != DF_MEM_INPUT && u->kind != DF_MEM_BATCH) continue;
    const size_t bytes = u->kind == DF_MEM_BATCH ? u->bytes : live_bytes(x, u);
    x->inputs[x->n_inputs++] = (input){u, bytes};
    add_in(x, u, bytes);
  }
  return DF_OK;
}

static df_status fill_inputs(cuda_device *d, const cuda_program *x, df_error *err) {
  bool wait = false;
  for (uint32_t i = 0; i < x->n_inputs; i++) wait |= ((cuda_block *)x->inputs[i].x->own)->sent == d->waits;
  if (wait) DF_TRY(cuda_sync(d, "the pass before ran", err));
  for (uint32_t i = 0; i < x->n_inputs; i++) {
    const df_mirror *u = x->inputs[i].x;
    cuda_block *k = u->own;
    if (u->kind == DF_MEM_BATCH)
      DF_TRY(df_lower_batch(&d->m, (const df_batch *)(const void *)u->host, (df_batch *)(void *)k->pinned, err));
    else
      memcpy(k->pinned, u->host, x->inputs[i].bytes);
    k->sent = d->waits;
  }
  return DF_OK;
}

/* ---- what comes out ------------------------------------------------------------------------------------- */

static void find_results(cuda_program *x) {
  for (uint32_t i = 0; i < x->uses.n; i++) x->answers |= x->uses.items[i]->kind == DF_MEM_OUTPUT;
}

static void take_results(const cuda_program *x) {
  for (uint32_t i = 0; i < x->uses.n; i++) {
    const df_mirror *u = x->uses.items[i];
    if (u->kind == DF_MEM_OUTPUT) memcpy((uint8_t *)u->host, u->there, u->bytes);
  }
}

/* ---- launching ------------------------------------------------------------------------------------------ */

static df_status grow_scratch(cuda_device *d, size_t bytes, df_error *err) {
  if (d->scratch && bytes <= d->scratch_bytes) return DF_OK;
  cuda_scratch *s = df_calloc(1, sizeof *s);
  if (!s) return DF_OOM(err, "scratch", sizeof *s);
  df_status st = cuda_alloc(d, bytes, "scratch of passes", &s->memory, err);
  if (st == DF_OK)
    st = cuda_result(d, cudaMemsetAsync(s->memory, 0, DF_CUDA_COUNTER_BYTES, d->stream), "scratch was cleared", err);
  if (st != DF_OK) {
    (void)cudaFree(s->memory);
    df_free(s);
    return st;
  }
  s->next = d->scratch;
  d->scratch = s;
  d->scratch_bytes = bytes;
  return DF_OK;
}

static int send_inputs(const cuda_device *d, const cuda_program *x) {
  int e = 0;
  for (uint32_t i = 0; i < x->n_in && e == 0; i++) {
    const transfer *t = &x->in[i];
    e = cudaMemcpyAsync(t->there, t->pinned, t->bytes, cudaMemcpyHostToDevice, d->stream);
  }
  return e;
}

static df_cuda_env env_of(const cuda_device *d, const cuda_program *x) {
  return (df_cuda_env){.card = &d->card,
                       .stream = d->stream,
                       .max_rows = df_program_max_rows(x->lowered),
                       .max_seqs = df_program_max_seqs(x->lowered),
                       .scratch = x->scratch,
                       .scratch_bytes = x->scratch_bytes,
                       .overlap = d->card.major >= 9,
                       .list = x->list.memory ? &x->list : NULL};
}

/* The whole sequence, to the stream or to a graph that is being recorded there. */
static int launch_all(const cuda_device *d, const cuda_program *x) {
  const df_cuda_env env = env_of(d, x);
  uint32_t n;
  const df_op *ops = df_program_ops(x->lowered, &n);
  int e = send_inputs(d, x);
  for (uint32_t i = 0, taken = 0; i < n && e == 0; i += taken) e = df_cuda_launch(&env, ops + i, n - i, &taken);
  return e;
}

/* The list of a program that can run as one kernel. */
static df_status make_list(cuda_device *d, cuda_program *x, df_error *err) {
  uint32_t n;
  const df_op *ops = df_program_ops(x->lowered, &n);
  const df_cuda_env env = env_of(d, x);
  df_cuda_list l;
  if (df_cuda_list_plan(&env, ops, n, &l) == 0) return DF_OK;
  void *host = df_calloc(1, l.bytes);
  if (!host) return DF_OOM(err, "the list of a program", l.bytes);
  df_cuda_list_fill(&env, ops, n, &l, host);
  df_status s = cuda_alloc(d, l.bytes, "the list of a program", &l.memory, err);
  if (s == DF_OK) {
    x->list = l;
    s = cuda_send(d, l.memory, host, l.bytes, err);
  }
  df_free(host);
  return s;
}

static df_status record(cuda_device *d, cuda_program *x, df_error *err) {
  cudaGraph_t graph = NULL;
  DF_TRY(cuda_result(d, cudaStreamBeginCapture(d->stream, cudaStreamCaptureModeThreadLocal), "a program was recorded",
                     err));
  const int launched = launch_all(d, x);
  int e = cudaStreamEndCapture(d->stream, &graph); /* also after a failure: the stream must leave the recording */
  if (launched) e = launched;
  if (e == 0) e = cudaGraphInstantiate(&x->graph, graph, 0);
  if (graph) (void)cudaGraphDestroy(graph);
  if (e == 0) e = cudaGraphUpload(x->graph, d->stream);
  return cuda_result(d, e, "a program was recorded", err);
}

/* Ops that have no kernel here are refused by name, not in the middle of a pass. */
static df_status check_ops(const cuda_device *d, const df_program *p, df_error *err) {
  uint32_t n;
  const df_op *ops = df_program_ops(p, &n);
  for (uint32_t i = 0; i < n; i++)
    if (ops[i].kind == DF_OP_RECURRENT)
      return DF_FAIL(err, DF_ERR_UNSUPPORTED, "%s has no kernel for the op %s", d->name, df_op_name(ops[i].kind));
  return DF_OK;
}

static df_status make(cuda_device *d, const df_program *p, cuda_program *x, bool recorded, df_error *err) {
  DF_TRY(check_ops(d, p, err));
  DF_TRY(df_lower_program(p, &d->m, &x->lowered, &x->uses, err));
  DF_TRY(find_inputs(x, err));
  find_results(x);
  uint32_t n;
  const df_op *ops = df_program_ops(x->lowered, &n);
  DF_TRY(grow_scratch(d, df_cuda_scratch_bytes(ops, n, df_program_max_rows(p), df_program_max_seqs(p)), err));
  x->scratch = d->scratch->memory;
  x->scratch_bytes = d->scratch_bytes;
  if (!recorded) return DF_OK; /* what runs once is not worth a list */
  DF_TRY(make_list(d, x, err));
  return record(d, x, err);
}

df_status cuda_prepare(df_device *base, df_program *p, bool recorded, df_error *err) {
  cuda_device *d = (cuda_device *)base;
  DF_TRY(cuda_enter(d, err));
  cuda_program *x = df_calloc(1, sizeof *x);
  if (!x) return DF_OOM(err, "a program", sizeof *x);
  x->d = d;
  const df_status s = make(d, p, x, recorded, err);
  if (s != DF_OK) {
    release_program(x);
    return s;
  }
  df_program_attach(p, x, df_program_bytes(x->lowered), release_program);
  return DF_OK;
}

#ifdef DF_FAULT_INJECTION
/* DF_TEST_DEVICE_LOST=N: a kernel fails in front of the N-th pass. */
static int injected_loss(const cuda_device *d) {
  const char *v = getenv("DF_TEST_DEVICE_LOST");
  return v && strtoull(v, NULL, 10) == d->runs ? df_cuda_trap(d->stream) : 0;
}
#else
static int injected_loss(const cuda_device *d) {
  (void)d;
  return 0;
}
#endif

df_status cuda_run(df_device *base, df_program *p, df_error *err) {
  cuda_device *d = (cuda_device *)base;
  const cuda_program *x = df_program_attached(p);
  DF_TRY(cuda_enter(d, err));
  if (!x) return DF_FAIL(err, DF_ERR_INTERNAL, "a program was run that was not prepared");
  d->runs++;
  DF_TRY(fill_inputs(d, x, err));
  int e = injected_loss(d);
  if (e == 0) e = x->graph ? (int)cudaGraphLaunch(x->graph, d->stream) : launch_all(d, x);
  if (e) return cuda_lose(d, e, "a pass was started", err);
  if (!x->answers) return DF_OK;
  DF_TRY(cuda_sync(d, "a pass ran", err));
  take_results(x);
  return DF_OK;
}

void cuda_exec_release(cuda_device *d) {
  while (d->scratch) {
    cuda_scratch *s = d->scratch;
    d->scratch = s->next;
    (void)cudaFree(s->memory);
    df_free(s);
  }
}

#else
typedef int df_cuda_exec_is_left_out;
#endif
