/* cuda_persist_quant.cu - the kernel that runs a whole program of quantised weights; see persist.cuh. */
#include "device/cuda/cuda_ops.cuh"
#include "device/cuda/cuda_start.cuh"
#include "device/cuda/persist_plan.cuh"
#include "device/cuda/persist_quant.cuh"
#include "device/cuda/persist_stages.cuh"

DF_DEV void persist_product(const persist_self &me, const persist_stage &st, uint32_t stage, pquant_stream &s) {
  const mma_args &a = st.product;
  const pquant_layout l = pquant_place(a.k, a.cap, st.quant, a.norm_w != 0);
  const uint32_t first = persist_first(st.shift), live = mma_live(a);
  const product_words words = {st.words, (uint8_t *)me.p.state, persist_stamp(me, 0), stage};
  const pquant_self w = pquant_self_of(a, st.quant, live);
  const pquant_goal goal = pquant_goal_of(a, st.quant, w, first);
  if (a.norm_w) product_fetch((float *)(me.work + l.norm_w), a.norm_w, a.k);
  if (!st.words.in) persist_wait(me, st, stage);
  if (st.has_tap) persist_tap(st, first, math_min(st.units, gridDim.x));
  pquant_input(a, st.quant, l, me.work, live, first == 0 && st.quant.out, words);
  pquant_strips(a, st.quant, w, l, me.work, first, goal, words, s);
}

DF_DEV void persist_run(const persist_self &me, const persist_stage &st, uint32_t stage, pquant_stream &s) {
  if (st.kind == PERSIST_PRODUCT)
    persist_product(me, st, stage, s);
  else
    persist_other<false, false>(me, st, stage);
}

__global__ void __launch_bounds__(MMA_THREADS, 1) persist_quant_kernel(const __grid_constant__ persist_args p) {
  DF_SHARED(shared);
  const persist_layout l = persist_place_quant(p.slots, p.quant_slot, p.n_entries);
  const persist_self me = persist_begin(p, l, shared, p.n_entries * sizeof(pquant_entry));
  pquant_stream s = pquant_begin(p, l, shared);
  for (uint32_t i = 0, at = 0; i < p.n_stages; i++) {
    stream_rest(s);
    const persist_stage &st = persist_turn_to(p, shared + l.stages, i, at);
    const bool mine = persist_first(st.shift) < st.units, counted = mine && !st.words.to;
    if (mine) persist_run(me, st, i, s);
    persist_done(p, i, counted);
  }
  persist_end(me);
}

int df_cuda_persist_quant_start(const df_cuda_env *env, const persist_args &p, uint32_t blocks, size_t shared) {
  start_shape s = {dim3(blocks), MMA_THREADS, shared, 0};
  s.together = true;
  return start_kernel(env, persist_quant_kernel, s, p);
}

int df_cuda_persist_quant_init(size_t shared_bytes) {
  return df_cuda_prepare((const void *)persist_quant_kernel, shared_bytes);
}
