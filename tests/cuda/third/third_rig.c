#include "cuda/third/third_rig.h"

#include <cuda_runtime_api.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/size.h"
#include "kv/fill.h"

enum { THREADS = 8 };

static void die(const char *what, const char *why) {
  printf("could not %s: %s\n", what, why);
  printf("0 passed, 1 failed\n");
  exit(1);
}

static void must(df_status s, const df_error *err) {
  if (s != DF_OK) die("set up", err->msg);
}

static void card_must(cudaError_t e, const char *what) {
  if (e != cudaSuccess) die(what, cudaGetErrorString(e));
}

static uint64_t next(tr_rig *r) {
  r->rng ^= r->rng << 13;
  r->rng ^= r->rng >> 7;
  r->rng ^= r->rng << 17;
  return r->rng;
}

uint32_t tr_below(tr_rig *r, uint32_t n) { return (uint32_t)(next(r) >> 33) % n; }

/* In [-1, 1). */
static float uniform(tr_rig *r) { return (float)(next(r) >> 40) * 0x1p-23f - 1.0f; }

/* ---- set-up --------------------------------------------------------------------------------------------- */

bool tr_card(df_cuda_card *card, const char **why) {
  int n = 0;
  const cudaError_t e = cudaGetDeviceCount(&n);
  if (e != cudaSuccess || n == 0) {
    *why = e != cudaSuccess ? cudaGetErrorString(e) : "none is installed";
    return false;
  }
  const int code = df_cuda_kernels_init(card);
  if (code) *why = df_cuda_error_text(code);
  return code == 0;
}

/* The block on the card, and in the table of mirrors. */
static void mirror(tr_rig *r, void *host, size_t bytes, df_mem_kind kind) {
  df_error err = {0};
  df_mirror *m;
  void *there;
  card_must(cudaMalloc(&there, bytes), "allocate memory of the card");
  card_must(cudaMemcpy(there, host, bytes, cudaMemcpyHostToDevice), "copy to the card");
  r->device[r->n_device++] = there;
  must(df_mirrors_add(&r->mirrors, host, bytes, kind, "a test", &m, &err), &err);
  m->there = there;
}

static void upload(const tr_rig *r, const void *host, size_t bytes) {
  const df_mirror *m = df_mirrors_find(&r->mirrors, host);
  card_must(cudaMemcpy(m->there, host, bytes, cudaMemcpyHostToDevice), "copy to the card");
}

static void download(const tr_rig *r, void *host, size_t bytes) {
  const df_mirror *m = df_mirrors_find(&r->mirrors, host);
  card_must(cudaMemcpy(host, m->there, bytes, cudaMemcpyDeviceToHost), "copy from the card");
}

/* Keys and values of all positions. What no sequence holds is far away: a kernel may load it, but must not count it;
 * the sink is zero. */
static void init_values(tr_rig *r) {
  const uint32_t row = r->s.n_kv * r->s.head_dim;
  const size_t n = r->kv_bytes / sizeof *r->k, sink = (size_t)r->s.page_size * row;
  for (size_t i = 0; i < n; i++) r->k[i] = r->v[i] = i < sink ? 0 : df_f32_to_f16(3000.0f);
  for (uint32_t s = 0; s < TR_SEQS; s++)
    for (uint32_t p = 0; p < TR_POSITIONS; p++)
      for (uint32_t i = 0; i < row; i++) {
        const size_t at = (size_t)df_kv_slot(&r->seq[s], p) * row + i;
        r->k[at] = df_f32_to_f16(uniform(r));
        r->v[at] = df_f32_to_f16(uniform(r));
      }
}

static void init_sequences(tr_rig *r) {
  df_error err = {0};
  const uint32_t page = r->s.page_size;
  must(df_pages_init(&r->pages, page, TR_SEQS * (TR_POSITIONS + page), &err), &err);
  for (uint32_t s = 0; s < TR_SEQS; s++) must(df_kv_seq_init(&r->seq[s], page, TR_POSITIONS, &err), &err);
  for (uint32_t n = page; n <= TR_POSITIONS; n += page) /* pages lie between those of the others */
    for (uint32_t s = TR_SEQS; s-- > 0;) must(df_kv_seq_reserve(&r->seq[s], &r->pages, n, &err), &err);
}

void tr_init(tr_rig *r, const tr_spec *s, const df_cuda_card *card) {
  df_error err = {0};
  const uint32_t entries = TR_POSITIONS / (s->page_size == 1 ? 1 : DF_KV_PAGE);
  *r = (tr_rig){.s = *s,
                .card = *card,
                .shape = {s->n_kv * s->group, s->n_kv, s->head_dim, TR_POSITIONS, THREADS, NULL, s->page_size},
                .width = s->n_kv * s->group * s->head_dim,
                .rng = 88172645463325252u};
  must(df_pool_create(THREADS, &r->pool, &err), &err);
  must(df_cpu_create(r->pool, df_kernels_get(df_cpu_best_tier()), &r->cpu, &err), &err);
  init_sequences(r);
  must(df_batch_init(&r->batch, TR_ROWS, TR_SEQS, entries, &err), &err);
  must(df_mask_buffer_init(&r->mask, TR_SEQS, (size_t)TR_ROWS * TR_POSITIONS, &err), &err);
  r->kv_bytes = (size_t)df_pages_slots(&r->pages) * s->n_kv * s->head_dim * sizeof *r->k;
  r->k = df_pages_alloc(r->kv_bytes);
  r->v = df_pages_alloc(r->kv_bytes);
  const size_t rows = (size_t)TR_ROWS * r->width * sizeof(float);
  r->q = df_pages_alloc(rows);
  r->out = df_pages_alloc(rows);
  r->want = df_pages_alloc(rows);
  r->blocks = df_pages_alloc((size_t)TR_ROWS * r->width / DF_QBLOCK * sizeof *r->blocks);
  if (!r->k || !r->v || !r->q || !r->out || !r->want || !r->blocks) die("set up", "no memory");
  init_values(r);
  mirror(r, r->k, r->kv_bytes, DF_MEM_SCRATCH);
  mirror(r, r->v, r->kv_bytes, DF_MEM_SCRATCH);
  mirror(r, r->q, rows, DF_MEM_SCRATCH);
  mirror(r, r->out, rows, DF_MEM_SCRATCH);
  mirror(r, r->blocks, (size_t)TR_ROWS * r->width / DF_QBLOCK * sizeof *r->blocks, DF_MEM_SCRATCH);
  mirror(r, &r->batch, sizeof r->batch, DF_MEM_BATCH);
  mirror(r, r->batch.block, r->batch.block_bytes, DF_MEM_INPUT);
  mirror(r, r->mask.bytes, r->mask.cap, DF_MEM_CONST);
  mirror(r, r->mask.start, TR_SEQS * sizeof *r->mask.start, DF_MEM_CONST);
  cudaStream_t stream;
  card_must(cudaStreamCreate(&stream), "make a stream");
  r->stream = stream;
}

void tr_release(tr_rig *r) {
  const size_t rows = (size_t)TR_ROWS * r->width * sizeof(float);
  const void *const hosts[] = {r->k,      r->v,           r->q,          r->out,       r->blocks,
                               &r->batch, r->batch.block, r->mask.bytes, r->mask.start};
  for (size_t i = 0; i < DF_COUNT_OF(hosts); i++) df_free(df_mirrors_take(&r->mirrors, hosts[i]));
  df_mirrors_release(&r->mirrors);
  for (uint32_t i = 0; i < r->n_device; i++) (void)cudaFree(r->device[i]);
  (void)cudaStreamDestroy((cudaStream_t)r->stream);
  df_pages_free(r->k, r->kv_bytes);
  df_pages_free(r->v, r->kv_bytes);
  df_pages_free(r->q, rows);
  df_pages_free(r->out, rows);
  df_pages_free(r->want, rows);
  df_pages_free(r->blocks, (size_t)TR_ROWS * r->width / DF_QBLOCK * sizeof *r->blocks);
  df_mask_buffer_release(&r->mask);
  df_batch_release(&r->batch);
  for (uint32_t s = 0; s < TR_SEQS; s++) df_kv_seq_release(&r->seq[s], &r->pages);
  df_pages_release(&r->pages);
  df_cpu_quiesce(r->cpu);
  df_cpu_free(r->cpu);
  df_pool_free(r->pool);
}

/* ---- a pass --------------------------------------------------------------------------------------------- */

static df_kv_view view_of(const tr_rig *r) {
  const size_t head = (size_t)DF_KV_PAGE * r->s.head_dim * sizeof *r->k;
  return (df_kv_view){.k = (uint8_t *)r->k,
                      .v = (uint8_t *)r->v,
                      .head_bytes = head,
                      .head_stride = head,
                      .type = DF_KV_F16,
                      .token_major = true,
                      .block_slots = r->s.page_size == 1 ? 1 : DF_KV_PAGE};
}

static df_attn_layer layer_of(const tr_rig *r, const tr_pass *pass) {
  return (df_attn_layer){.q = r->q,
                         .q_ld = r->width,
                         .out = {r->out, r->blocks, r->width},
                         .kv = view_of(r),
                         .causal = pass->causal,
                         .window = pass->window};
}

/* Ones with probability 2/3, a dark row, and otherwise at least the row's own position. */
static void fill_mask(tr_rig *r, const tr_pass *pass, uint8_t *bytes) {
  df_batch *b = &r->batch;
  size_t at = 0;
  for (uint32_t s = 0; s < b->n_live; s++) {
    const uint32_t rows = b->q_start[s + 1] - b->q_start[s];
    const uint32_t len = pass->layout == DF_MASK_FULL ? b->kv_len[s] : rows;
    for (uint32_t row = 0; row < rows; row++)
      for (uint32_t c = 0; c < len; c++)
        bytes[at++] = row == pass->dark ? 0 : c + rows == len + row || tr_below(r, 3) != 0;
  }
  b->mask = bytes;
  b->mask_bytes = at;
  b->mask_layout = pass->layout;
}

static void run_naive(tr_rig *r, const tr_pass *pass) {
  df_error err = {0};
  df_attn *naive;
  df_program *p;
  must(df_attn_naive_create(&r->shape, &naive, &err), &err);
  must(df_program_create(r->batch.n_rows, r->batch.n_seqs, THREADS, &p, &err), &err);
  const df_attn_pass ap = {p, &r->batch, pass->mode, pass->layout, pass->layout ? &r->mask : NULL, 0};
  df_attn_layer layer = layer_of(r, pass);
  layer.out = (df_act){.f = r->want, .k = r->width};
  must(naive->ops->emit(naive, &ap, &layer, &err), &err);
  df_cpu_run(r->cpu, p);
  df_cpu_quiesce(r->cpu);
  df_program_free(p);
  df_attn_free(naive);
}

void tr_fill(tr_rig *r, const tr_pass *pass) {
  static uint8_t mask[TR_ROWS * TR_POSITIONS];
  const int32_t ids[TR_ROWS] = {0};
  df_error err = {0};
  df_batch *b = &r->batch, there;
  df_fill_begin(b);
  for (uint32_t i = 0; i < pass->n; i++)
    (void)df_fill_add(b, &r->seq[i], ids, pass->rows[i], pass->first[i], DF_OUT_ALL);
  if (pass->seqs > pass->n && pass->mode != DF_MODE_EXTEND) df_fill_pad(b, pass->seqs, pass->rows[0]);
  for (size_t i = 0; i < (size_t)b->n_rows * r->width; i++) r->q[i] = 3.0f * uniform(r);
  if (pass->layout != DF_MASK_NONE) {
    fill_mask(r, pass, mask);
    must(df_mask_buffer_load(&r->mask, b, &err), &err);
    upload(r, r->mask.bytes, r->mask.used);
    upload(r, r->mask.start, TR_SEQS * sizeof *r->mask.start);
  }
  run_naive(r, pass);
  must(df_lower_batch(&r->mirrors, b, &there, &err), &err);
  upload(r, r->q, (size_t)b->n_rows * r->width * sizeof *r->q);
  upload(r, b->block, b->block_bytes);
  const df_mirror *m = df_mirrors_find(&r->mirrors, b);
  card_must(cudaMemcpy(m->there, &there, sizeof there, cudaMemcpyHostToDevice), "copy to the card");
}

/* ---- programs ------------------------------------------------------------------------------------------- */

static int launch_all(const tr_program *p) {
  uint32_t n;
  const df_op *ops = df_program_ops(p->lowered, &n);
  int e = 0;
  for (uint32_t i = 0, taken = 0; i < n && e == 0; i += taken) e = df_cuda_launch(&p->env, ops + i, n - i, &taken);
  return e;
}

static df_status record(tr_rig *r, tr_program *p, df_error *err) {
  cudaGraph_t graph = NULL;
  cudaGraphExec_t exec = NULL;
  card_must(cudaStreamBeginCapture((cudaStream_t)r->stream, cudaStreamCaptureModeThreadLocal), "begin a capture");
  const int code = launch_all(p);
  const cudaError_t e = cudaStreamEndCapture((cudaStream_t)r->stream, &graph);
  if (code || e != cudaSuccess)
    return DF_FAIL(err, DF_ERR_INTERNAL, "could not record a program: %s",
                   cudaGetErrorString(code ? (cudaError_t)code : e));
  card_must(cudaGraphInstantiate(&exec, graph, 0), "make a graph");
  (void)cudaGraphDestroy(graph);
  p->graph = exec;
  return DF_OK;
}

df_status tr_emit(tr_rig *r, df_attn *leaf, const tr_pass *pass, uint32_t rows, uint32_t seqs, bool recorded,
                  tr_program *out, df_error *err) {
  tr_program p = {.env = {.card = &r->card, .stream = r->stream, .max_rows = rows, .max_seqs = seqs, .overlap = true}};
  must(df_program_create(rows, seqs, 1, &p.p, err), err);
  const df_attn_pass ap = {p.p, &r->batch, pass->mode, pass->layout, pass->layout ? &r->mask : NULL, 0};
  const df_attn_layer layer = layer_of(r, pass);
  df_status s = leaf->ops->emit(leaf, &ap, &layer, err);
  if (s == DF_OK) s = df_lower_program(p.p, &r->mirrors, &p.lowered, &p.uses, err);
  if (s == DF_OK && recorded) s = record(r, &p, err);
  if (s != DF_OK) {
    tr_program_free(&p);
    return s;
  }
  *out = p;
  return DF_OK;
}

void tr_program_free(tr_program *p) {
  if (p->graph) (void)cudaGraphExecDestroy((cudaGraphExec_t)p->graph);
  df_lower_uses_release(&p->uses);
  df_program_free(p->lowered);
  df_program_free(p->p);
  *p = (tr_program){0};
}

/* ---- comparing ------------------------------------------------------------------------------------------ */

static df_status start(tr_rig *r, tr_program *p, df_error *err) {
  int e = p->graph ? (int)cudaGraphLaunch((cudaGraphExec_t)p->graph, (cudaStream_t)r->stream) : launch_all(p);
  if (e == 0) e = (int)cudaStreamSynchronize((cudaStream_t)r->stream);
  if (e == 0) return DF_OK;
  return DF_FAIL(err, DF_ERR_INTERNAL, "could not run a pass: %s", cudaGetErrorString((cudaError_t)e));
}

static bool blocks_match(const tr_rig *r) {
  const df_kernels *k = df_cpu_kernels(r->cpu);
  const uint32_t n = r->batch.n_rows, per_row = r->width / DF_QBLOCK;
  df_actq *mine = df_pages_alloc((size_t)per_row * sizeof *mine);
  bool same = mine != NULL;
  for (uint32_t row = 0; row < n && same; row++) {
    const uint32_t first = row / DF_TILE_ROWS * DF_TILE_ROWS, m = DF_MIN(n - first, (uint32_t)DF_TILE_ROWS);
    k->quantize(r->out + (size_t)row * r->width, r->width, mine, 1);
    for (uint32_t b = 0; b < per_row; b++)
      same &= memcmp(&mine[b], &r->blocks[(size_t)first * per_row + (size_t)b * m + (row - first)], sizeof *mine) == 0;
  }
  df_pages_free(mine, (size_t)per_row * sizeof *mine);
  return same;
}

static void compare(const tr_rig *r, tr_error *e) {
  double wrong = 0, all = 0;
  e->dark_is_zero = true;
  for (uint32_t s = 0; s < r->batch.n_live; s++)
    for (uint32_t row = r->batch.q_start[s]; row < r->batch.q_start[s + 1]; row++) {
      bool dark = true, zero = true;
      for (uint32_t i = 0; i < r->width; i++) {
        const double w = r->want[(size_t)row * r->width + i], g = r->out[(size_t)row * r->width + i];
        const double d = isnan(g) ? INFINITY : fabs(g - w);
        if (d > e->worst) e->worst = d;
        wrong += d * d;
        all += w * w;
        dark &= w == 0;
        zero &= g == 0;
      }
      if (dark && !zero) e->dark_is_zero = false;
    }
  e->nmse = wrong == 0 ? 0 : wrong / all;
}

df_status tr_run(tr_rig *r, df_attn *leaf, const tr_pass *pass, tr_program *p, tr_error *out, df_error *err) {
  const size_t bytes = (size_t)r->batch.n_rows * r->width * sizeof(float);
  tr_error e = {0};
  memset(r->out, 0x7F, bytes);
  upload(r, r->out, bytes);
  const df_attn_phase phase = !p->graph ? DF_PHASE_EAGER : p->started ? DF_PHASE_REPLAY : DF_PHASE_CAPTURE;
  DF_TRY(leaf->ops->plan(leaf, p->p, &r->batch, pass->mode, phase, err));
  p->started = true;
  DF_TRY(start(r, p, err));
  download(r, r->out, bytes);
  download(r, r->blocks, (size_t)DF_MIN(df_round_up(r->batch.n_rows, 16), (size_t)TR_ROWS) * r->width / DF_QBLOCK * 64);
  compare(r, &e);
  e.blocks_match = blocks_match(r);
  float *again = df_pages_alloc(bytes);
  if (!again) die("compare", "no memory");
  memcpy(again, r->out, bytes);
  DF_TRY(leaf->ops->plan(leaf, p->p, &r->batch, pass->mode, phase, err));
  DF_TRY(start(r, p, err));
  download(r, r->out, bytes);
  e.repeatable = memcmp(again, r->out, bytes) == 0;
  df_pages_free(again, bytes);
  *out = e;
  return DF_OK;
}

float tr_time(tr_rig *r, tr_program *p, uint32_t n) {
  cudaEvent_t a, b;
  float ms = 0;
  card_must(cudaEventCreate(&a), "make an event");
  card_must(cudaEventCreate(&b), "make an event");
  card_must(cudaEventRecord(a, (cudaStream_t)r->stream), "take the time");
  for (uint32_t i = 0; i < n; i++)
    if (p->graph ? (int)cudaGraphLaunch((cudaGraphExec_t)p->graph, (cudaStream_t)r->stream) : launch_all(p))
      die("run a pass", "the launch failed");
  card_must(cudaEventRecord(b, (cudaStream_t)r->stream), "take the time");
  card_must(cudaEventSynchronize(b), "take the time");
  card_must(cudaEventElapsedTime(&ms, a, b), "take the time");
  (void)cudaEventDestroy(a);
  (void)cudaEventDestroy(b);
  return ms;
}
