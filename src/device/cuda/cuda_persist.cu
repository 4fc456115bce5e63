/* cuda_persist.cu - the kernel that runs a whole program; see persist.cuh. */
#include "device/cuda/cuda_ops.cuh"
#include "device/cuda/cuda_start.cuh"
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
  if (a.norm_w) product_fetch((float *)(me.work + l.norm_w), a.norm_w, a.k);
  persist_wait(me, st, stage);
  if (st.has_tap) persist_tap(st, first, math_min(st.units, gridDim.x));
  product_operand<F16>(a, l, me.work, live, first == 0);
  product_strips<F16>(a, l, me.work, live, first, s);
}

template <bool F16>
DF_DEV void persist_run(const persist_self &me, const persist_stage &st, uint32_t stage, persist_stream &s) {
  if (st.kind == PERSIST_PRODUCT) {
    persist_product<F16>(me, st, stage, s);
    return;
  }
  if (st.kind == PERSIST_ATTN) {
    persist_attn<false>(me, st, stage);
    return;
  }
  if (st.kind == PERSIST_MERGE) {
    persist_run_merge<false>(me, st, stage);
    return;
  }
  persist_wait(me, st, stage);
  if (st.kind == PERSIST_EMBED) persist_run_embed(st);
  if (st.kind == PERSIST_ARGMAX) persist_run_argmax(st, me.work);
}

/* ---- the kernel ---- */

template <bool F16>
__global__ void __launch_bounds__(MMA_THREADS, 1) persist_kernel(const __grid_constant__ persist_args p) {
  DF_SHARED(shared);
  const persist_layout l = persist_place(p.slots, p.n_entries);
  const persist_self me = {p, shared + l.work, port_load_u32(p.state) + 1};
  for (uint32_t i = 16 * threadIdx.x; i < p.n_entries * sizeof(persist_entry); i += 16 * MMA_THREADS)
    port_copy16(shared + l.entries + i, (const uint8_t *)p.entries + i);
  for (uint32_t i = 0; i < 2; i++) persist_open(p, shared + l.stages + i * PERSIST_STAGE_BYTES, i);
  port_copy_wait<0>();
  port_block_sync();
  persist_stream s = pstream_begin(p, l, shared);
  for (uint32_t i = 0, at = 0, next = 1; i < p.n_stages; i++) {
    stream_rest(s);
    port_copy_wait<0>();
    port_block_sync();
    const persist_stage &st = *(const persist_stage *)(shared + l.stages + at * PERSIST_STAGE_BYTES);
    persist_foresee(*(const persist_stage *)(shared + l.stages + next * PERSIST_STAGE_BYTES), i);
    at = next;
    next = next + 1 == PERSIST_STAGES ? 0 : next + 1;
    persist_open(p, shared + l.stages + next * PERSIST_STAGE_BYTES, i + 2);
    if (persist_first(st.shift) >= st.units) continue;
    persist_run<F16>(me, st, i, s);
    port_block_sync();
    if (threadIdx.x == 0) port_grid_arrive(persist_count(p, i));
  }
  port_copy_wait<0>();
  persist_end(me);
}

int df_cuda_persist_start(const df_cuda_env *env, const persist_args &p, uint32_t blocks, size_t shared, bool f16) {
  start_shape s = {dim3(blocks), MMA_THREADS, shared, 0};
  s.together = true;
  return f16 ? start_kernel(env, persist_kernel<true>, s, p) : start_kernel(env, persist_kernel<false>, s, p);
}

int df_cuda_persist_init(size_t shared_bytes) {
  const int e = df_cuda_prepare((const void *)persist_kernel<false>, shared_bytes);
  return e ? e : df_cuda_prepare((const void *)persist_kernel<true>, shared_bytes);
}
