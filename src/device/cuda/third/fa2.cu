/*
 * fa2.cu - workspace, plan and launches of FlashInfer's paged prefill. The plan is the package's own: host code that
 * cuts a pass into tiles of packed queries and chunks of pages, and uploads the list of this work.
 */
#include "device/cuda/third/fa2_run.cuh"

#include <stdio.h>
#include <string.h>

#include <exception>
#include <new>

#include "device/cuda/third/third_rows.cuh"

namespace {

/* [head width][mask mode] */
const fa2_run_fn k_run[2][3] = {{fa2_run_64_0, fa2_run_64_1, fa2_run_64_2},
                                {fa2_run_128_0, fa2_run_128_1, fa2_run_128_2}};

enum { SLOTS = 2, MAX_TILE = 128, MIN_TILE = 16, BLOCKS_PER_SM = 2 /* as the package plans */ };

size_t padded(size_t n) { return (n + 255) & ~(size_t)255; }

/* Bytes from the start of the block of device memory. ints and lists have a twin in each pinned slot. */
struct layout {
  size_t ints, lists, uploaded; /* [ints, uploaded) is what a pass brings */
  size_t q, out, floats, total;
  size_t int_bytes, float_bytes, list_bytes;
};

/* Offsets in the lists, in entries of 4 bytes; pages come last, so that only those in use are copied. */
struct list_layout {
  size_t q_start, page_start, last, mask_start, pages, total;
};

list_layout lists_of(const df_third_shape *s) {
  list_layout l;
  l.q_start = 0;
  l.page_start = l.q_start + s->max_seqs + 1;
  l.last = l.page_start + s->max_seqs + 1;
  l.mask_start = l.last + s->max_seqs;
  l.pages = (l.mask_start + s->max_seqs + 3) & ~(size_t)3;
  l.total = l.pages + (size_t)s->max_seqs * s->max_blocks;
  return l;
}

/* Upper bounds of what the plan lays out: work items, each a tile of packed queries by a chunk of pages. */
size_t max_items(const df_third_shape *s, uint32_t n_sm) {
  const size_t group = s->n_heads / s->n_kv, spread = (size_t)BLOCKS_PER_SM * n_sm / s->n_kv;
  const size_t tiles = (s->max_rows * group + MIN_TILE - 1) / MIN_TILE + s->max_seqs;
  return spread > tiles ? spread : tiles;
}

size_t max_queries(const df_third_shape *s, uint32_t n_sm) {
  const size_t group = s->n_heads / s->n_kv, spread = (size_t)BLOCKS_PER_SM * n_sm / s->n_kv * MAX_TILE;
  const size_t tiles = s->max_rows * group + (size_t)MAX_TILE * s->max_seqs;
  return spread > tiles ? spread : tiles;
}

layout layout_of(const df_third_shape *s, uint32_t n_sm) {
  const size_t row = (size_t)s->n_heads * s->head_dim * sizeof(uint16_t);
  layout l;
  l.int_bytes = padded(max_items(s, n_sm) * 13 + ((size_t)s->max_rows + s->max_seqs) * 4 + 1024);
  l.float_bytes = padded(s->n_heads * max_queries(s, n_sm) * (s->head_dim + 1) * sizeof(float) + 1024);
  l.list_bytes = padded(lists_of(s).total * 4);
  l.ints = 0;
  l.lists = l.ints + l.int_bytes;
  l.uploaded = l.lists + l.list_bytes;
  l.q = l.uploaded;
  l.out = l.q + padded(s->max_rows * row);
  l.floats = l.out + padded(s->max_rows * row);
  l.total = l.floats + l.float_bytes;
  return l;
}

uint32_t multiprocessors(void) {
  int device = 0, n = 0;
  if (cudaGetDevice(&device) != cudaSuccess) return 1;
  return cudaDeviceGetAttribute(&n, cudaDevAttrMultiProcessorCount, device) == cudaSuccess && n > 0 ? (uint32_t)n : 1;
}

}  // namespace

struct df_fa2 {
  df_third_shape s;
  int device;
  layout at;
  list_layout lists;
  uint8_t *memory, *mask;
  uint8_t *pinned[SLOTS];
  cudaEvent_t copied[SLOTS];
  uint32_t slot; /* staged last */
  char why[200];
};

static int failed(df_fa2 *w, const char *what) {
  snprintf(w->why, sizeof w->why, "%s", what);
  for (char *c = w->why; *c; c++)
    if (*c == '\n') *c = ' ';
  return DF_THIRD_FAILED;
}

static size_t fa2_bytes(const df_third_shape *s) { return layout_of(s, multiprocessors()).total; }

static void fa2_free(df_fa2 *w) {
  if (!w) return;
  (void)cudaSetDevice(w->device);
  for (int i = 0; i < SLOTS; i++) {
    if (w->copied[i]) (void)cudaEventDestroy(w->copied[i]);
    if (w->pinned[i]) (void)cudaFreeHost(w->pinned[i]);
  }
  if (w->mask) (void)cudaFree(w->mask);
  if (w->memory) (void)cudaFree(w->memory);
  delete w;
}

static int fa2_create(const df_third_shape *s, df_fa2 **out) {
  if (!df_third_has_head(s->head_dim)) return DF_THIRD_FAILED;
  df_fa2 *w = new (std::nothrow) df_fa2();
  if (!w) return cudaErrorMemoryAllocation;
  w->s = *s;
  (void)cudaGetDevice(&w->device);
  w->at = layout_of(s, multiprocessors());
  w->lists = lists_of(s);
  cudaError_t e = cudaMalloc((void **)&w->memory, w->at.total);
  if (e == cudaSuccess) e = cudaMemset(w->memory, 0, w->at.total);
  for (int i = 0; i < SLOTS && e == cudaSuccess; i++) {
    e = cudaMallocHost((void **)&w->pinned[i], w->at.uploaded);
    if (e == cudaSuccess) e = cudaEventCreateWithFlags(&w->copied[i], cudaEventDisableTiming | cudaEventBlockingSync);
  }
  if (e == cudaSuccess) e = cudaDeviceSynchronize();
  if (e != cudaSuccess) {
    fa2_free(w);
    return e;
  }
  *out = w;
  return 0;
}

static int fa2_want_mask(df_fa2 *w) {
  if (w->mask) return 0;
  (void)cudaSetDevice(w->device);
  const size_t positions = (size_t)w->s.max_blocks * w->s.block_slots;
  const size_t bytes = (w->s.max_rows * positions + 7) / 8 + w->s.max_seqs;
  cudaError_t e = cudaMalloc((void **)&w->mask, bytes);
  if (e == cudaSuccess) e = cudaMemset(w->mask, 0, bytes);
  return e == cudaSuccess ? (int)cudaDeviceSynchronize() : (int)e;
}

static int fa2_stage(df_fa2 *w, df_paged *out) {
  w->slot = (w->slot + 1) % SLOTS;
  cudaError_t e = cudaSetDevice(w->device); /* plans come from the engine's thread */
  if (e == cudaSuccess) e = cudaEventSynchronize(w->copied[w->slot]);
  if (e != cudaSuccess) return e;
  int32_t *const l = (int32_t *)(w->pinned[w->slot] + w->at.lists);
  out->max_seqs = w->s.max_seqs;
  out->max_pages = (size_t)w->s.max_seqs * w->s.max_blocks;
  out->q_start = l + w->lists.q_start;
  out->page_start = l + w->lists.page_start;
  out->last = l + w->lists.last;
  out->mask_start = l + w->lists.mask_start;
  out->pages = l + w->lists.pages;
  return 0;
}

static int plan_pass(df_fa2 *w, const df_paged *p, uint32_t seqs, uint32_t rows, bool recorded, df_fa2_plan *out,
                     cudaStream_t stream) {
  flashinfer::PrefillPlanInfo info;
  const df_third_shape *s = &w->s;
  cudaError_t e = flashinfer::PrefillPlan<int32_t>(
      w->memory + w->at.floats, w->at.float_bytes, w->memory + w->at.ints, w->pinned[w->slot] + w->at.ints,
      w->at.int_bytes, info, p->q_start, p->page_start, rows, seqs, s->n_heads, s->n_kv, s->head_dim, s->head_dim,
      s->block_slots, recorded, sizeof(half), /* no window: chunks of any layer's lie in these */ -1,
      /* no fixed split */ -1, false, 0, stream);
  if (e != cudaSuccess) return e;
  const size_t used = (w->lists.pages + (size_t)p->page_start[seqs]) * 4;
  e = cudaMemcpyAsync(w->memory + w->at.lists, w->pinned[w->slot] + w->at.lists, used, cudaMemcpyHostToDevice, stream);
  if (e == cudaSuccess) e = cudaEventRecord(w->copied[w->slot], stream);
  if (e != cudaSuccess) return e;
  memset(out, 0, sizeof *out);
  static_assert(offsetof(flashinfer::PrefillPlanInfo, enable_cuda_graph) == 13 * sizeof(int64_t), "the plan's fields");
  memcpy(out->v, &info, 13 * sizeof(int64_t));
  out->v[13] = info.enable_cuda_graph;
  out->v[14] = info.split_kv;
  out->seqs = seqs;
  return 0;
}

static int fa2_plan(df_fa2 *w, const df_paged *staged, uint32_t seqs, uint32_t rows, bool recorded, df_fa2_plan *out,
                    void *stream) {
  try {
    return plan_pass(w, staged, seqs, rows, recorded, out, (cudaStream_t)stream);
  } catch (const std::exception &e) {
    return failed(w, e.what());
  } catch (...) {
    return failed(w, "an unknown exception");
  }
}

template <typename T>
static T *int_at(const df_fa2 *w, int64_t offset) {
  return (T *)(w->memory + w->at.ints + offset);
}

static fa2_params params_of(const df_fa2 *w, const flashinfer::PrefillPlanInfo &plan, uint32_t seqs,
                            const df_op_attn *a) {
  int32_t *const l = (int32_t *)(w->memory + w->at.lists);
  const int64_t head = a->head_dim, token = head * a->n_kv;
  const int64_t strides[3] = {token * w->s.block_slots, token, head};
  const flashinfer::paged_kv_t<half, int32_t> kv(a->n_kv, w->s.block_slots, a->head_dim, seqs,
                                                 flashinfer::QKVLayout::kNHD, (half *)a->kv.k, (half *)a->kv.v, strides,
                                                 l + w->lists.pages, l + w->lists.page_start, l + w->lists.last);
  fa2_params p((half *)(w->memory + w->at.q), kv, w->mask, l + w->lists.q_start, l + w->lists.mask_start, nullptr,
               (half *)(w->memory + w->at.out), nullptr, nullptr, a->n_heads, (int32_t)(a->n_heads * a->head_dim),
               (int32_t)a->head_dim, a->window ? (int32_t)a->window - 1 : -1, 0.0f, a->scale, 1.0f, 1.0f);
  p.request_indices = int_at<int32_t>(w, plan.request_indices_offset);
  p.qo_tile_indices = int_at<int32_t>(w, plan.qo_tile_indices_offset);
  p.kv_tile_indices = int_at<int32_t>(w, plan.kv_tile_indices_offset);
  p.o_indptr = int_at<int32_t>(w, plan.o_indptr_offset);
  p.kv_chunk_size_ptr = int_at<int32_t>(w, plan.kv_chunk_size_ptr_offset);
  if (plan.split_kv) p.merge_indptr = int_at<int32_t>(w, plan.merge_indptr_offset);
  if (plan.split_kv && plan.enable_cuda_graph) p.block_valid_mask = int_at<bool>(w, plan.block_valid_mask_offset);
  if (plan.enable_cuda_graph) p.total_num_rows = int_at<uint32_t>(w, plan.total_num_rows_offset);
  p.max_total_num_rows = (uint32_t)plan.total_num_rows;
  p.padded_batch_size = (uint32_t)plan.padded_batch_size;
  return p;
}

static int run(df_fa2 *w, const df_fa2_plan *plan, const df_op_attn *a, cudaStream_t stream) {
  flashinfer::PrefillPlanInfo info;
  memcpy(&info, plan->v, 13 * sizeof(int64_t));
  info.enable_cuda_graph = plan->v[13] != 0;
  info.split_kv = plan->v[14] != 0;
  const fa2_params p = params_of(w, info, (uint32_t)plan->seqs, a);
  half *const tmp_v = info.split_kv ? (half *)(w->memory + w->at.floats + info.v_offset) : nullptr;
  float *const tmp_s = info.split_kv ? (float *)(w->memory + w->at.floats + info.s_offset) : nullptr;
  const int mask = a->mask_layout != DF_MASK_NONE ? 2 : a->causal ? 1 : 0;
  try {
    return k_run[a->head_dim == 128][mask](p, (uint32_t)info.cta_tile_q, tmp_v, tmp_s, stream);
  } catch (const std::exception &e) {
    return failed(w, e.what());
  } catch (...) {
    return failed(w, "an unknown exception");
  }
}

static int fa2_launch(df_fa2 *w, const df_fa2_plan *plan, const df_op_extern *op, const df_cuda_env *env) {
  const df_op_attn *a = &op->attn;
  const bool masked = a->mask_layout != DF_MASK_NONE;
  if (masked && !w->mask) return failed(w, "no memory was asked for the mask");
  const int32_t *const mask_start = (const int32_t *)(w->memory + w->at.lists) + w->lists.mask_start;
  int e = masked && op->first ? third_mask(env, op, mask_start, w->mask) : 0;
  if (e == 0) e = third_q(env, op, (uint16_t *)(w->memory + w->at.q));
  if (e == 0) e = run(w, plan, a, (cudaStream_t)env->stream);
  return e ? e : third_out(env, op, (const uint16_t *)(w->memory + w->at.out));
}

static const char *fa2_text(const df_fa2 *w, int code) {
  if (code != DF_THIRD_FAILED) return cudaGetErrorString((cudaError_t)code);
  return w ? w->why : "no kernel of this shape";
}

extern "C" const df_fa2_api *df_fa2_get(void) {
  static const df_fa2_api api = {fa2_bytes, fa2_create, fa2_free,   fa2_want_mask,
                                 fa2_stage, fa2_plan,   fa2_launch, fa2_text};
  return &api;
}

extern "C" const char *df_third_version(void) { return DF_FLASHINFER_VERSION; }
