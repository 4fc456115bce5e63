#include "cuda/bench_model.h"

#include <cuda_runtime_api.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

enum { MAX_ROWS = 512, MAX_SEQS = 32, SEED_BYTES = 32 << 20, SEGMENTS = 64, SLOTS = 1 << 16, LIST_BYTES = 32 << 20 };

const bench_shape bench_shapes[BENCH_SHAPES] = {{"8b", 4096, 36, 32, 8, 128, 12288, 151936, DF_Q4_K, DF_Q6_K},
                                                {"4b", 2560, 36, 32, 8, 128, 9728, 151936, DF_F32, DF_F32},
                                                {"1.5b", 1536, 28, 12, 2, 128, 8960, 151936, DF_Q4_K, DF_Q6_K},
                                                {"0.5b", 896, 24, 14, 2, 64, 4864, 151936, DF_Q4_1, DF_Q8_0},
                                                {"135m", 576, 30, 9, 3, 64, 1536, 49152, DF_Q4_1, DF_Q8_0}};

static void *take(bench_model *m, size_t bytes) {
  m->used = (m->used + 255) & ~(size_t)255;
  void *p = m->arena ? m->arena + m->used : NULL;
  m->used += bytes;
  return p;
}

static float *take_floats(bench_model *m, size_t n) { return take(m, n * sizeof(float)); }

static const df_weights *take_typed(bench_model *m, df_dtype type, uint32_t n, uint32_t k) {
  df_weights *w = &m->w[m->n_w++];
  *w = (df_weights){.pack = df_pack_of(type), .n = n, .k = k};
  (void)df_pack_strip_bytes(w->pack, k, &w->strip_bytes);
  w->data = take(m, df_cuda_weights_bytes(w));
  return w;
}

static const df_weights *take_weights(bench_model *m, uint32_t n, uint32_t k) { return take_typed(m, m->type, n, k); }

static void *add(bench_model *m, df_op_kind kind, int site) {
  bench_op *o = &m->op[m->n_ops++];
  *o = (bench_op){.kind = kind, .site = site};
  return &o->args;
}

static df_act take_act(bench_model *m, uint32_t k) {
  df_act a = {.k = k};
  if (df_pack_wants_q8(df_pack_of(m->type)))
    a.q = take(m, (size_t)MAX_ROWS * (k / DF_QBLOCK) * sizeof(df_actq));
  else
    a.f = take_floats(m, (size_t)MAX_ROWS * k);
  return a;
}

typedef struct buffers {
  float *x, *qkv, *cos, *sin, *parts;
  df_act normed, attn, h;
  const uint32_t *n_rows;
} buffers;

static void add_norm(bench_model *m, const buffers *b) {
  *(df_op_norm *)add(m, DF_OP_NORM, BENCH_NORM) =
      (df_op_norm){b->x, take_floats(m, m->shape->hidden), b->n_rows, NULL, b->normed, 1e-6f};
}

static void add_attention(bench_model *m, const buffers *b, df_batch *batch) {
  const bench_shape *s = m->shape;
  const uint32_t e = s->head_dim, q = s->heads * e, kv = s->n_kv * e, width = q + 2 * kv;
  df_op_rope_kv *r = add(m, DF_OP_ROPE_KV, BENCH_ATTN);
  *r = (df_op_rope_kv){.q = b->qkv,
                       .k = b->qkv + q,
                       .v = b->qkv + q + kv,
                       .q_ld = width,
                       .k_ld = width,
                       .v_ld = width,
                       .eps = 1e-6f,
                       .cos = b->cos,
                       .sin = b->sin,
                       .pos = batch->pos,
                       .slot = batch->slot,
                       .n_rows = b->n_rows,
                       .n_heads = s->heads,
                       .n_kv = s->n_kv,
                       .head_dim = e};
  r->q_norm = take_floats(m, e);
  r->k_norm = take_floats(m, e);
  r->kv = (df_kv_view){.k = take(m, (size_t)SLOTS * kv * 2),
                       .v = take(m, (size_t)SLOTS * kv * 2),
                       .head_bytes = 32 * e,
                       .type = DF_KV_F16,
                       .token_major = true,
                       .block_slots = 16};
  const df_op_attn a = {.batch = m->batch,
                        .q = b->qkv,
                        .q_ld = width,
                        .out = b->attn,
                        .kv = r->kv,
                        .n_heads = s->heads,
                        .n_kv = s->n_kv,
                        .head_dim = e,
                        .scale = 1.0f / sqrtf((float)e),
                        .causal = true,
                        .tile_rows = 128 * s->n_kv / s->heads < 16 ? 128 * s->n_kv / s->heads : 16,
                        .n_tiles = 1,
                        .n_split = 1,
                        .max_chunks = (m->length + MAX_ROWS) / 64 + 1,
                        .parts = b->parts};
  *(df_op_attn *)add(m, DF_OP_ATTN_SPLIT, BENCH_ATTN) = a;
  *(df_op_attn *)add(m, DF_OP_ATTN_MERGE, BENCH_ATTN) = a;
}

static void add_linear(bench_model *m, int site, df_act x, const uint32_t *n_rows, float *y, size_t ld, bool plus,
                       const df_weights *w) {
  df_op_linear *l = add(m, DF_OP_LINEAR, site);
  *l = (df_op_linear){.x = x, .n_rows = n_rows, .add = plus, .n_parts = 1};
  l->part[0] = (df_linear_part){w, NULL, y, ld};
}

static void add_layer(bench_model *m, const buffers *b, df_batch *batch) {
  const bench_shape *s = m->shape;
  const uint32_t q = s->heads * s->head_dim, kv = s->n_kv * s->head_dim, width = q + 2 * kv;
  add_norm(m, b);
  df_op_linear *p = add(m, DF_OP_LINEAR, BENCH_QKV);
  *p = (df_op_linear){.x = b->normed, .n_rows = b->n_rows, .n_parts = 3};
  p->part[0] = (df_linear_part){take_weights(m, q, s->hidden), NULL, b->qkv, width};
  p->part[1] = (df_linear_part){take_weights(m, kv, s->hidden), NULL, b->qkv + q, width};
  p->part[2] = (df_linear_part){take_weights(m, kv, s->hidden), NULL, b->qkv + q + kv, width};
  add_attention(m, b, batch);
  add_linear(m, BENCH_O, b->attn, b->n_rows, b->x, s->hidden, true, take_weights(m, s->hidden, q));
  add_norm(m, b);
  df_op_ffn_up *u = add(m, DF_OP_FFN_UP, BENCH_FFN);
  *u = (df_op_ffn_up){.x = b->normed, .n_rows = b->n_rows, .gate = take_weights(m, s->ffn, s->hidden), .out = b->h};
  u->up = take_weights(m, s->ffn, s->hidden);
  add_linear(m, BENCH_DOWN, b->h, b->n_rows, b->x, s->hidden, true, take_weights(m, s->hidden, s->ffn));
}

/* Lays everything out; with no arena it only measures. */
static void build(bench_model *m, df_batch *batch) {
  const bench_shape *s = m->shape;
  const uint32_t width = (s->heads + 2 * s->n_kv) * s->head_dim;
  m->used = m->n_ops = m->n_w = 0;
  *batch = (df_batch){.max_rows = MAX_ROWS, .max_seqs = MAX_SEQS, .max_pages = SLOTS / 16 / MAX_SEQS};
  m->batch = take(m, sizeof *m->batch);
  batch->ids = take(m, MAX_ROWS * 4);
  batch->pos = take(m, MAX_ROWS * 4);
  batch->slot = take(m, MAX_ROWS * 4);
  batch->out_row = take(m, MAX_ROWS * 4);
  batch->q_start = take(m, (MAX_SEQS + 1) * 4);
  batch->kv_len = take(m, MAX_SEQS * 4);
  batch->page_table = take(m, (size_t)MAX_SEQS * batch->max_pages * 4);
  const size_t positions = m->length + MAX_ROWS, tile = 128 * (size_t)s->n_kv;
  buffers b = {.x = take_floats(m, (size_t)MAX_ROWS * s->hidden), .qkv = take_floats(m, (size_t)MAX_ROWS * width)};
  b.cos = take_floats(m, positions * s->head_dim / 2);
  b.sin = take_floats(m, positions * s->head_dim / 2);
  b.parts = take_floats(m, MAX_SEQS * (positions / 64 + 1) * tile * (16 + s->head_dim));
  b.normed = take_act(m, s->hidden);
  b.attn = take_act(m, s->heads * s->head_dim);
  b.h = take_act(m, s->ffn);
  b.n_rows = m->batch ? &m->batch->n_rows : NULL;
  const df_weights *table = take_typed(m, m->table, s->vocab, s->hidden);
  *(df_op_embed *)add(m, DF_OP_EMBED, BENCH_EMBED) =
      (df_op_embed){.table = table, .ids = batch->ids, .n_rows = b.n_rows, .out = b.x, .scale = 1.0f};
  for (uint32_t i = 0; i < s->layers; i++) add_layer(m, &b, batch);
  add_norm(m, &b);
  float *logits = take_floats(m, (size_t)MAX_ROWS * s->vocab);
  add_linear(m, BENCH_HEAD, b.normed, b.n_rows, logits, s->vocab, false, table);
  *(df_op_argmax *)add(m, DF_OP_ARGMAX, BENCH_ARGMAX) = (df_op_argmax){.x = logits,
                                                                       .ld = s->vocab,
                                                                       .n = s->vocab,
                                                                       .segments = SEGMENTS,
                                                                       .n_rows = b.n_rows,
                                                                       .best = take_floats(m, MAX_ROWS * SEGMENTS),
                                                                       .best_id = take(m, MAX_ROWS * SEGMENTS * 4)};
}

/* Every 16-bit word a small BF16 or half of either sign: as floats, codes and scales all finite and ordinary. */
static cudaError_t fill(bench_model *m) {
  uint16_t *seed = df_alloc(SEED_BYTES);
  uint64_t x = 88172645463325252u;
  for (size_t i = 0; i < SEED_BYTES / 2; i++) {
    x ^= x << 13, x ^= x >> 7, x ^= x << 17;
    seed[i] = (uint16_t)((x >> 20 & 0x807F) | (0x3C00 + (x >> 40 & 1) * 0x80));
  }
  cudaError_t e = cudaSuccess;
  for (size_t at = 0; at < m->arena_bytes && e == cudaSuccess; at += SEED_BYTES) {
    const size_t n = m->arena_bytes - at < SEED_BYTES ? m->arena_bytes - at : SEED_BYTES;
    e = at == 0 ? cudaMemcpy(m->arena, seed, n, cudaMemcpyHostToDevice)
                : cudaMemcpy(m->arena + at, m->arena, n, cudaMemcpyDeviceToDevice);
  }
  df_free(seed);
  return e;
}

static df_batch host_batch; /* device addresses */

const char *bench_model_open(bench_model *m, const bench_shape *s, bool quant, uint32_t length) {
  *m = (bench_model){.shape = s, .length = length};
  m->type = quant ? s->quant : DF_BF16;
  m->table = quant ? s->table : DF_BF16;
  m->type_name = df_dtype_name((int)m->type);
  m->op = df_calloc((size_t)s->layers * 9 + 8, sizeof *m->op);
  m->w = df_calloc((size_t)s->layers * 7 + 2, sizeof *m->w);
  int e = df_cuda_kernels_init(&m->card);
  if (e) return df_cuda_error_text(e);
  build(m, &host_batch);
  const size_t scratch = DF_CUDA_COUNTER_BYTES + (size_t)MAX_ROWS * s->ffn * 16;
  m->arena_bytes = m->used + scratch + LIST_BYTES + 4096;
  if (cudaMalloc((void **)&m->arena, m->arena_bytes) != cudaSuccess) return "not enough memory";
  if (fill(m) != cudaSuccess) return "filling memory failed";
  build(m, &host_batch);
  m->env = (df_cuda_env){.card = &m->card, .scratch = take(m, scratch), .scratch_bytes = scratch};
  m->list_memory = take(m, LIST_BYTES);
  e = (int)cudaMemset(m->env.scratch, 0, DF_CUDA_COUNTER_BYTES);
  if (!e) e = (int)cudaStreamCreateWithFlags(&m->stream, cudaStreamNonBlocking);
  m->env.stream = m->stream;
  return e ? df_cuda_error_text(e) : NULL;
}

void bench_model_close(bench_model *m) {
  (void)cudaStreamDestroy(m->stream);
  (void)cudaFree(m->arena);
  df_free(m->op);
  df_free(m->w);
}

static void put(void *device, const void *host, size_t bytes) {
  (void)cudaMemcpy(device, host, bytes, cudaMemcpyHostToDevice);
}

void bench_model_rows(bench_model *m, uint32_t rows) {
  df_batch b = host_batch;
  static uint32_t pos[MAX_ROWS], slot[MAX_ROWS], start[MAX_SEQS + 1], len[MAX_SEQS];
  static int32_t ids[MAX_ROWS];
  uint32_t *table = df_calloc((size_t)MAX_SEQS * b.max_pages, 4);
  const uint32_t each = rows < 16 ? rows : 16, seqs = rows / each;
  for (uint32_t s = 0; s < seqs; s++) {
    len[s] = m->length + each;
    start[s + 1] = (s + 1) * each;
    for (uint32_t p = 0; p < b.max_pages; p++) table[s * b.max_pages + p] = (1 + s + p * MAX_SEQS) % (SLOTS / 16);
    for (uint32_t i = 0; i < each; i++) {
      const uint32_t r = s * each + i;
      pos[r] = m->length + i;
      slot[r] = table[s * b.max_pages + pos[r] / 16] * 16 + pos[r] % 16;
      ids[r] = (int32_t)(r * 37 + 11);
    }
  }
  b.n_rows = b.n_out = rows;
  b.n_seqs = b.n_live = seqs;
  put(b.ids, ids, sizeof ids);
  put(b.pos, pos, sizeof pos);
  put(b.slot, slot, sizeof slot);
  put(b.q_start, start, sizeof start);
  put(b.kv_len, len, sizeof len);
  put(b.page_table, table, (size_t)MAX_SEQS * b.max_pages * 4);
  put(m->batch, &b, sizeof b);
  df_free(table);
  m->rows = rows;
  m->env.max_rows = rows;
  m->env.max_seqs = seqs;
}

/* The list of ops that run as one kernel, in the place kept for it; NULL when they do not. The stream may be recording:
 * the copy goes elsewhere. */
static const df_cuda_list *make_list(bench_model *m, const df_op *ops, uint32_t n) {
  if (!df_cuda_list_plan(&m->env, ops, n, &m->list) || m->list.bytes > LIST_BYTES) return NULL;
  void *host = df_alloc(m->list.bytes);
  m->list.memory = m->list_memory;
  df_cuda_list_fill(&m->env, ops, n, &m->list, host);
  enum cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
  (void)cudaThreadExchangeStreamCaptureMode(&mode);
  cudaStream_t other;
  int e = (int)cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking);
  if (!e) e = (int)cudaMemcpyAsync(m->list_memory, host, m->list.bytes, cudaMemcpyHostToDevice, other);
  if (!e) e = (int)cudaStreamSynchronize(other);
  (void)cudaStreamDestroy(other);
  (void)cudaThreadExchangeStreamCaptureMode(&mode);
  df_free(host);
  if (e) abort();
  return &m->list;
}

uint32_t bench_model_launch(bench_model *m, uint64_t sites, bool overlap) {
  df_op *ops = df_calloc(m->n_ops, sizeof *ops);
  uint32_t n = 0, launches = 0;
  for (uint32_t i = 0; i < m->n_ops; i++)
    if (sites >> m->op[i].site & 1) ops[n++] = (df_op){m->op[i].kind, 0, &m->op[i].args};
  m->env.overlap = overlap;
  m->env.list = overlap ? make_list(m, ops, n) : NULL;
  for (uint32_t i = 0, taken = 1; i < n; i += taken, launches++)
    if (df_cuda_launch(&m->env, ops + i, n - i, &taken)) abort();
  df_free(ops);
  return launches;
}

double bench_model_bytes(const bench_model *m, uint64_t sites) {
  double bytes = 0;
  for (uint32_t i = 0; i < m->n_ops; i++) {
    const bench_op *o = &m->op[i];
    if (!(sites >> o->site & 1)) continue;
    for (uint32_t p = 0; o->kind == DF_OP_LINEAR && p < o->args.linear.n_parts; p++)
      bytes += (double)df_cuda_weights_bytes(o->args.linear.part[p].w);
    if (o->kind == DF_OP_FFN_UP)
      bytes += (double)(df_cuda_weights_bytes(o->args.ffn_up.gate) + df_cuda_weights_bytes(o->args.ffn_up.up));
  }
  return bytes;
}
