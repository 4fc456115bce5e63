/*
 * xqa.cu - workspace and launches of XQA. Everything about a batch is prepared on the device, so nothing has to be
 * planned: programs may be replayed as they are.
 */
#include <math.h>
#include <new>

#include "device/cuda/third/third_rows.cuh"
#include "device/cuda/third/xqa_kernel.cuh"

namespace {

struct form {
  xqa_prepare_fn prepare;
  xqa_launch_fn launch;
};

#define XQA_ENTRY(head, form) {xqa_prepare_##head##_##form, xqa_launch_##head##_##form},
/* [head width][0: several rows, else the group of plain decoding] */
const form k_forms[2][1 + DF_XQA_MAX_GROUP] = {{XQA_FORMS(64, XQA_ENTRY)}, {XQA_FORMS(128, XQA_ENTRY)}};

enum { MASK_WORDS = DF_XQA_MAX_ROWS / 32, SLACK_WORDS = 64 /* the kernel reads masks of rows behind the last */ };

size_t padded(size_t n) { return (n + 255) & ~(size_t)255; }

/* What a workspace's one block of device memory holds, in bytes from its start. */
struct layout {
  size_t q, out, len, first, mask, counters, parts, total;
};

/* Blocks that share a sequence's positions: enough to occupy the card, not more than steps there can be. */
uint32_t sub_blocks(uint32_t n_sm, uint32_t seqs, uint32_t n_kv, uint32_t max_blocks) {
  const uint32_t spread = n_sm / (seqs * n_kv), positions = max_blocks * DF_XQA_BLOCK;
  const uint32_t steps = (positions + XQA_BLOCK_POSITIONS - 1) / XQA_BLOCK_POSITIONS;
  const uint32_t n = spread < steps ? spread : steps;
  return n ? n : 1;
}

layout layout_of(const df_third_shape *s, uint32_t n_sm) {
  const size_t row = (size_t)s->n_heads * s->head_dim * sizeof(uint16_t);
  const size_t row_blocks = (DF_XQA_MAX_ROWS * (s->n_heads / s->n_kv) + XQA_BLOCK_ROWS - 1) / XQA_BLOCK_ROWS;
  const size_t tiles = (size_t)s->max_seqs * s->n_kv * row_blocks;
  /* n_sub * seqs * n_kv is at most the larger of n_sm and max_seqs * n_kv. */
  const size_t spread = (size_t)s->max_seqs * s->n_kv > n_sm ? (size_t)s->max_seqs * s->n_kv : n_sm;
  const size_t part = 2 * XQA_BLOCK_ROWS * sizeof(float) + (size_t)XQA_BLOCK_ROWS * s->head_dim * sizeof(uint16_t);
  layout l;
  l.q = 0;
  l.out = l.q + padded(s->max_rows * row);
  l.len = l.out + padded(s->max_rows * row);
  l.first = l.len + padded(s->max_seqs * sizeof(uint32_t));
  l.mask = l.first + padded((s->max_seqs + 1) * sizeof(uint32_t));
  l.counters = l.mask + padded(((size_t)s->max_rows + SLACK_WORDS) * MASK_WORDS * sizeof(uint32_t));
  l.parts = l.counters + padded(tiles * sizeof(uint32_t));
  l.total = l.parts + padded(spread * row_blocks * part) + 4096;
  return l;
}

uint32_t multiprocessors(void) {
  int device = 0, n = 0;
  if (cudaGetDevice(&device) != cudaSuccess) return 1;
  return cudaDeviceGetAttribute(&n, cudaDevAttrMultiProcessorCount, device) == cudaSuccess && n > 0 ? (uint32_t)n : 1;
}

}  // namespace

struct df_xqa {
  df_third_shape s;
  int device;
  uint32_t n_sm;
  const form *forms; /* of the head width */
  layout at;
  uint8_t *memory;
};

static size_t xqa_bytes(const df_third_shape *s) { return layout_of(s, multiprocessors()).total; }

static void xqa_free(df_xqa *w) {
  if (!w) return;
  (void)cudaSetDevice(w->device);
  if (w->memory) (void)cudaFree(w->memory);
  delete w;
}

static int xqa_create(const df_third_shape *s, df_xqa **out) {
  const uint32_t group = s->n_heads / s->n_kv;
  if (!df_third_has_head(s->head_dim) || group > DF_XQA_MAX_GROUP || s->block_slots != DF_XQA_BLOCK)
    return DF_THIRD_FAILED;
  df_xqa *w = new (std::nothrow) df_xqa();
  if (!w) return cudaErrorMemoryAllocation;
  w->s = *s;
  (void)cudaGetDevice(&w->device);
  w->n_sm = multiprocessors();
  w->forms = k_forms[s->head_dim == 128];
  w->at = layout_of(s, w->n_sm);
  cudaError_t e = cudaMalloc((void **)&w->memory, w->at.total);
  if (e == cudaSuccess) e = cudaMemset(w->memory, 0, w->at.total); /* counters start at zero */
  if (e == cudaSuccess) e = w->forms[0].prepare();
  if (e == cudaSuccess) e = w->forms[group].prepare();
  if (e == cudaSuccess) e = cudaDeviceSynchronize();
  if (e != cudaSuccess) {
    xqa_free(w);
    return e;
  }
  *out = w;
  return 0;
}

static int xqa_launch(df_xqa *w, uint32_t rows, const df_op_extern *op, const df_cuda_env *pass_env) {
  const df_op_attn *a = &op->attn;
  df_cuda_env here = *pass_env;
  const df_cuda_env *const env = &here;
  if (here.max_seqs > w->s.max_seqs) here.max_seqs = w->s.max_seqs; /* a half of a split pass */
  const third_lengths lengths = {(uint32_t *)(w->memory + w->at.len), (uint32_t *)(w->memory + w->at.first),
                                 (uint32_t *)(w->memory + w->at.mask), (rows + 31) / 32};
  uint16_t *const q = (uint16_t *)(w->memory + w->at.q), *const o = (uint16_t *)(w->memory + w->at.out);
  if (rows > DF_XQA_MAX_ROWS || env->max_rows > w->s.max_rows) return DF_THIRD_FAILED;
  int e = op->first ? third_lengths_of(env, op, lengths) : 0;
  if (e == 0) e = third_q(env, op, q);
  if (e) return e;
  xqa_call c = {};
  c.n_kv = a->n_kv;
  c.group = a->n_heads / a->n_kv;
  c.rows = rows;
  c.seqs = env->max_seqs;
  c.n_sub = sub_blocks(w->n_sm, c.seqs, c.n_kv, w->s.max_blocks);
  c.scale = a->scale * sqrtf((float)a->head_dim);
  c.q = q;
  c.k = a->kv.k;
  c.v = a->kv.v;
  c.out = o;
  c.table = op->page_table;
  c.max_blocks = w->s.max_blocks;
  c.len = lengths.len;
  c.first = lengths.first;
  c.mask = lengths.mask;
  c.counters = (uint32_t *)(w->memory + w->at.counters);
  c.parts = w->memory + w->at.parts;
  c.stream = (cudaStream_t)env->stream;
  e = (int)w->forms[rows == 1 ? c.group : 0].launch(&c);
  return e ? e : third_out(env, op, o);
}

static const char *xqa_text(const df_xqa *w, int code) {
  (void)w;
  return code == DF_THIRD_FAILED ? "no kernel of this shape" : cudaGetErrorString((cudaError_t)code);
}

extern "C" const df_xqa_api *df_xqa_get(void) {
  static const df_xqa_api api = {xqa_bytes, xqa_create, xqa_free, xqa_launch, xqa_text};
  return &api;
}
