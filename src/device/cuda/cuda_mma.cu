/* cuda_mma.cu - BF16 and F16 products of up to 16 rows, one launch each; see mma_block.cuh. */
#include "device/cuda/cuda_start.cuh"
#include "device/cuda/cuda_tune.h"
#include "device/cuda/mma_block.cuh"

enum { RING = 16, NORM_ROWS = 8 /* with more, every block's own norm costs more than a launch */ };

template <bool F16, int NT, bool PAIR>
__global__ void __launch_bounds__(MMA_THREADS, 2) mma_kernel(const __grid_constant__ mma_args a) {
  DF_SHARED(shared);
  port_launch_next();
  const mma_self w = self_of(a, shared, RING);
  const mma_layout l = mma_place(RING, a.k, a.cap, a.cluster, NT, PAIR, a.norm_w != 0);
  if (a.cluster > 1) mma_open_boxes((port_mailbox *)(shared + l.boxes), (PAIR ? 2 : 1) * MMA_WARPS * NT * 4 * 32 * 4);
  mma_stream s = stream_begin<RING>(&a, 1, w, shared);
  mma_fetch_norm(a, l, shared);
  const uint32_t live = mma_live(a);
  port_wait_previous();
  if (live > 0)
    mma_product<RING, F16, NT, PAIR>(a, w, s, l, shared, live);
  else if (a.cluster > 1)
    port_cluster_wait();
  port_copy_wait<0>();
}

/* ---- launching ---- */

typedef struct mma_plan {
  uint32_t cluster, cap, blocks;
  size_t shared;
} mma_plan;

/* Nanoseconds, roughly: the longest block's stream at its share of the memory's rate, a little for each strip, the
 * activations, and what a launch costs, more with clusters. */
static double plan_cost(uint32_t k, uint32_t strips, uint32_t cap, uint32_t cluster, uint32_t clusters, bool pair) {
  const uint32_t turns = (strips + clusters - 1) / clusters;
  const double strip_bytes = (pair ? 2.0 : 1.0) * k * 32 / cluster, launch = 1500 * cluster * cluster;
  return turns * (strip_bytes / 32 + (cluster > 1 ? 60 : 30)) + (double)cap * k * 4 / cluster / 40 + launch;
}

/* The split of k among blocks, and the rows of one launch. */
static mma_plan plan_of(const df_cuda_env *env, uint32_t k, uint32_t strips, bool pair, bool norm) {
  const df_cuda_card *card = env->card;
  mma_plan best = {0, 0, 0, 0};
  double cost = 0;
  for (uint32_t cap = math_min(env->max_rows, MMA_ROWS); cap > 0; cap /= 2) {
    for (uint32_t c = 1, i = 0; c <= MMA_CLUSTER; c *= 2, i++) {
      const size_t shared = mma_place(RING, k, cap, c, cap > 8 ? 2 : 1, pair, norm).bytes;
      if (card->clusters[i] == 0 || shared > card->shared_bytes) continue;
      const uint32_t passes = (env->max_rows + cap - 1) / cap;
      double now = passes * plan_cost(k, strips, cap, c, card->clusters[i], pair);
      if (df_cuda_tune.cluster && df_cuda_tune.cluster != c) now += 1e9;
      if (best.cap && now >= cost) continue;
      cost = now;
      best = {c, cap, math_min(card->clusters[i], strips) * c, shared};
    }
  }
  return best;
}

template <bool F16, bool PAIR>
static int mma_start(const df_cuda_env *env, const mma_plan &plan, const mma_args &a) {
  const start_shape s = {dim3(plan.blocks), MMA_THREADS, plan.shared, plan.cluster};
  return a.cap > 8 ? start_kernel(env, mma_kernel<F16, 2, PAIR>, s, a)
                   : start_kernel(env, mma_kernel<F16, 1, PAIR>, s, a);
}

static void mma_args_norm(const df_op_norm *norm, mma_args *a) {
  if (norm) {
    a->x = norm->x;
    a->norm_w = norm->w;
    a->row_map = norm->row_map;
    a->norm_out = norm->out.f;
    a->eps = norm->eps;
  }
  a->vector = a->k % 4 == 0 && (uintptr_t)a->x % 16 == 0;
  a->early_bytes = df_cuda_tune.early_bytes;
}

void df_cuda_mma_args_linear(const df_op_linear *op, const df_op_norm *norm, mma_args *a) {
  *a = {};
  a->x = op->x.f;
  a->n_rows = op->n_rows;
  a->k = op->x.k;
  a->add = op->add;
  a->n_parts = op->n_parts;
  for (uint32_t i = 0; i < op->n_parts; i++) {
    const df_linear_part *p = &op->part[i];
    a->part[i] = {p->w->data, p->bias, p->y, p->ld, p->w->n, a->strips};
    a->strips += df_strips(p->w->n);
  }
  mma_args_norm(norm, a);
}

void df_cuda_mma_args_ffn_up(const df_op_ffn_up *op, const df_op_norm *norm, mma_args *a) {
  *a = {};
  a->x = op->x.f;
  a->n_rows = op->n_rows;
  a->k = op->x.k;
  a->n_parts = 2;
  a->pair = true;
  a->strips = df_strips(op->gate->n);
  a->part[0] = {op->gate->data, 0, op->out.f, op->out.k, op->gate->n, 0};
  a->part[1] = {op->up->data, 0, 0, 0, op->up->n, 0};
  mma_args_norm(norm, a);
}

static int mma_run(const df_cuda_env *env, mma_args *a, const df_cuda_ahead *ahead, bool f16) {
  const mma_plan plan = plan_of(env, a->k, a->strips, a->pair, a->norm_w != 0);
  if (plan.cap == 0) return 1; /* cudaErrorInvalidValue: k does not fit into shared memory even for one row */
  a->cap = plan.cap;
  a->cluster = plan.cluster;
  for (a->row0 = 0; a->row0 < env->max_rows; a->row0 += plan.cap) {
    if (ahead && a->row0 + plan.cap >= env->max_rows) a->ahead = *ahead;
    const int e = f16 ? (a->pair ? mma_start<true, true>(env, plan, *a) : mma_start<true, false>(env, plan, *a))
                      : (a->pair ? mma_start<false, true>(env, plan, *a) : mma_start<false, false>(env, plan, *a));
    if (e) return e;
  }
  return 0;
}

int df_cuda_mma_linear(const df_cuda_env *env, const df_op_linear *op, const df_op_norm *norm,
                       const df_cuda_ahead *ahead) {
  mma_args a;
  df_cuda_mma_args_linear(op, norm, &a);
  return mma_run(env, &a, ahead, op->part[0].w->pack == DF_PACK_F16);
}

int df_cuda_mma_ffn_up(const df_cuda_env *env, const df_op_ffn_up *op, const df_op_norm *norm,
                       const df_cuda_ahead *ahead) {
  mma_args a;
  df_cuda_mma_args_ffn_up(op, norm, &a);
  return mma_run(env, &a, ahead, op->gate->pack == DF_PACK_F16);
}

bool df_cuda_mma_takes_norm(const df_cuda_env *env, uint32_t k) {
  return env->max_rows <= NORM_ROWS && (uint64_t)env->max_rows * k <= df_cuda_tune.norm_floats &&
         plan_of(env, k, 1, true, true).cap >= env->max_rows;
}

void df_cuda_mma_ahead(const df_cuda_env *env, const df_weights *w, const df_weights *u, df_cuda_ahead *out) {
  const size_t strip = df_cuda_fragment_strip_bytes(w->k), all = df_strips(w->n) * strip;
  const size_t most = math_min(df_cuda_tune.ahead_bytes, (uint32_t)(env->card->l2_bytes / 4)) / (u ? 2 : 1);
  const uint32_t first = (uint32_t)(all < most ? all : most);
  *out = {{w->data, u ? u->data : w->data}, {first, u ? first : 0}};
}

int df_cuda_mma_init(size_t shared_bytes) {
  const void *const kernels[] = {(const void *)mma_kernel<false, 1, false>, (const void *)mma_kernel<false, 1, true>,
                                 (const void *)mma_kernel<false, 2, false>, (const void *)mma_kernel<false, 2, true>,
                                 (const void *)mma_kernel<true, 1, false>,  (const void *)mma_kernel<true, 1, true>,
                                 (const void *)mma_kernel<true, 2, false>,  (const void *)mma_kernel<true, 2, true>};
  for (const void *k : kernels) {
    const int e = df_cuda_prepare(k, shared_bytes);
    if (e) return e;
  }
  return 0;
}

#ifndef DF_CUDA_EMULATED

int df_cuda_mma_clusters(df_cuda_card *card) {
  card->clusters[0] = card->n_sm;
  for (uint32_t i = 1; i < 3 && card->major >= 9; i++) {
    cudaLaunchConfig_t c = {};
    cudaLaunchAttribute attr;
    attr.id = cudaLaunchAttributeClusterDimension;
    attr.val.clusterDim.x = 1u << i;
    attr.val.clusterDim.y = attr.val.clusterDim.z = 1;
    c.gridDim = dim3(card->n_sm >> i << i);
    c.blockDim = dim3(MMA_THREADS);
    c.dynamicSmemBytes = card->shared_bytes / 2 + 1024; /* one block a multiprocessor */
    c.attrs = &attr;
    c.numAttrs = 1;
    int n = 0;
    const cudaError_t e = cudaOccupancyMaxActiveClusters(&n, mma_kernel<false, 1, false>, &c);
    if (e != cudaSuccess) return (int)e;
    card->clusters[i] = (uint32_t)n;
  }
  return 0;
}

#endif
