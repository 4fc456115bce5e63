/* cuda_persist.cu - the kernel that runs a whole program; see persist.cuh. */
#include "device/cuda/cuda_ops.cuh"
#include "device/cuda/cuda_start.cuh"
#include "device/cuda/persist_cluster.cuh"
#include "device/cuda/persist_plan.cuh"
#include "device/cuda/persist_product.cuh"
#include "device/cuda/persist_stages.cuh"

/* One kernel does all kinds of work, each for a moment: what counts is that its code stays in the instruction cache. So
 * everything is there once, in one variant, and little is unrolled. */

template <bool F16>
DF_DEV void persist_product(const persist_self &me, const persist_stage &st, uint32_t stage, persist_stream &s) {
  const mma_args &a = st.product;
  const persist_product_layout l = persist_place_product(a.k, a.cap, a.pair, a.norm_w != 0);
  const uint32_t first = persist_first(st.shift), live = mma_live(a);
  const product_words words = {st.words, (uint8_t *)me.p.state, persist_stamp(me, 0), stage};
  if (a.norm_w) product_fetch((float *)(me.work + l.norm_w), a.norm_w, a.k);
  if (!st.words.in) persist_wait(me, st, stage);
  if (st.has_tap) persist_tap(st, first, math_min(st.units, gridDim.x));
  s.take = st.piece;
  product_operand<F16>(a, l, me.work, live, first == 0, words);
  product_strips<F16>(a, l, me.work, live, first, words, s);
}

/* The same by clusters. */
template <bool F16, int NT, int C>
DF_DEV void persist_clustered(const persist_self &me, const persist_stage &st, uint32_t stage, persist_stream &s,
                              persist_cluster &c) {
  const mma_args &a = st.product;
  const persist_cluster_layout l = persist_place_cluster(a.k, a.cap, a.norm_w != 0, C);
  const uint32_t first = persist_turn(s.place, s.blocks, st.shift), live = mma_live(a);
  s.take = st.piece;
  cluster_norm n = {};
  if (a.norm_w) n = cluster_norm_of<C>(a, c.rank, live);
  persist_wait(me, st, stage);
  if (st.has_tap) persist_tap(st, first * C + c.rank, math_min(st.units, s.blocks) * C);
  const bool sent = a.norm_w && !n.alone;
  if (a.norm_w) {
    cluster_rows(a, l, me.work, n);
    cluster_normed<F16, C>(a, l, me.work, n, c, first == 0);
  } else if (st.packs & PERSIST_PACKS_IN) {
    cluster_fetch<C>(a, me.work + l.b, me.p.packed, s, c);
  } else {
    cluster_plain<F16, C>(a, l, me.work, c.rank, live);
  }
  if (sent) {
    const uint32_t tiles = df_frag_tiles(a.k);
    if (threadIdx.x == 0)
      port_mailbox_expect(c.box + PERSIST_BOX_SENT,
                          (cluster_tile<C>(tiles, c.rank + 1) - cluster_tile<C>(tiles, c.rank)) * live * 32);
    port_mailbox_wait(c.box + PERSIST_BOX_SENT, c.sent++ % 2);
  } else if (a.norm_w || !(st.packs & PERSIST_PACKS_IN)) {
    port_block_sync();
  }
  cluster_strips<F16, NT, C>(a, me.work + l.b, live, first, st.packs & PERSIST_PACKS_OUT ? me.p.packed : 0, s, c);
}

template <bool F16, int NT, bool MANY, int C>
DF_DEV void persist_run(const persist_self &me, const persist_stage &st, uint32_t stage, persist_stream &s,
                        persist_cluster &c) {
  if (st.kind == PERSIST_PRODUCT) {
    if (C > 1)
      persist_clustered<F16, NT, C>(me, st, stage, s, c);
    else
      persist_product<F16>(me, st, stage, s);
    return;
  }
  persist_other<MANY, F16>(me, st, stage);
}

/* ---- the kernel ---- */

/* Mailboxes of a cluster, open in all its blocks. */
DF_DEV persist_cluster persist_meet(const persist_args &p, const persist_layout &l, uint8_t *shared) {
  persist_cluster c = {(float *)(shared + l.sums),
                       (port_mailbox *)(shared + l.boxes) + MMA_WARPS * p.slots,
                       port_cluster_rank(),
                       0,
                       0,
                       0};
  if (threadIdx.x == 0) {
    for (uint32_t i = 0; i < PERSIST_BOXES; i++) port_mailbox_init(&c.box[i]);
    port_mailbox_publish();
  }
  port_cluster_arrive();
  port_cluster_wait();
  return c;
}

template <bool F16, int NT, bool MANY, int C>
__global__ void __launch_bounds__(MMA_THREADS, 1) persist_kernel(const __grid_constant__ persist_args p) {
  DF_SHARED(shared);
  const persist_layout l = persist_place(p.slots, p.slot_tiles, p.n_entries, C, 8 * NT);
  const persist_self me = persist_begin(p, l, shared, p.n_entries * sizeof(persist_entry));
  persist_stream s = pstream_begin<C>(p, l, shared);
  persist_cluster c = {};
  if (C > 1) c = persist_meet(p, l, shared);
  for (uint32_t i = 0, at = 0; i < p.n_stages; i++) {
    stream_rest(s);
    const persist_stage &st = persist_turn_to(p, shared + l.stages, i, at);
    const bool together = C > 1 && st.kind == PERSIST_PRODUCT;
    const bool mine = (together ? persist_turn(s.place, s.blocks, st.shift) : persist_first(st.shift)) < st.units;
    const bool counted = mine && !st.words.to, fenced = C > 1 && mine && (st.packs & PERSIST_PACKS_OUT);
    if (mine) persist_run<F16, NT, MANY, C>(me, st, i, s, c);
    if (fenced) port_fence_async();
    persist_done(p, i, counted);
  }
  persist_end(me);
}

template <bool F16>
static int persist_start(const df_cuda_env *env, const persist_args &p, const start_shape &s, bool many) {
  if (p.cap > 8) return start_kernel(env, persist_kernel<F16, 2, true, MMA_CLUSTER>, s, p);
  if (p.cluster > 1) return start_kernel(env, persist_kernel<F16, 1, true, MMA_CLUSTER>, s, p);
  return many ? start_kernel(env, persist_kernel<F16, 1, true, 1>, s, p)
              : start_kernel(env, persist_kernel<F16, 1, false, 1>, s, p);
}

int df_cuda_persist_start(const df_cuda_env *env, const persist_args &p, uint32_t blocks, const df_cuda_list *l) {
  start_shape s = {dim3(blocks), MMA_THREADS, l->shared, p.cluster};
  s.together = true;
  return l->f16 ? persist_start<true>(env, p, s, l->queries > PERSIST_FEW)
                : persist_start<false>(env, p, s, l->queries > PERSIST_FEW);
}

int df_cuda_persist_init(size_t shared_bytes) {
  const void *const kernels[] = {(const void *)persist_kernel<false, 1, false, 1>,
                                 (const void *)persist_kernel<true, 1, false, 1>,
                                 (const void *)persist_kernel<false, 1, true, 1>,
                                 (const void *)persist_kernel<true, 1, true, 1>,
                                 (const void *)persist_kernel<false, 1, true, MMA_CLUSTER>,
                                 (const void *)persist_kernel<true, 1, true, MMA_CLUSTER>,
                                 (const void *)persist_kernel<false, 2, true, MMA_CLUSTER>,
                                 (const void *)persist_kernel<true, 2, true, MMA_CLUSTER>};
  for (const void *k : kernels) {
    const int e = df_cuda_prepare(k, shared_bytes);
    if (e) return e;
  }
  return 0;
}
