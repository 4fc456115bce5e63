/*
 * device/cuda/persist_stages.cuh - what one-kernel passes have beside their products: waiting for the stage in front,
 * embedding, taps, attention, argmax, the arguments of the next stages. Private to device/cuda.
 */
#ifndef DF_DEVICE_CUDA_PERSIST_STAGES_CUH
#define DF_DEVICE_CUDA_PERSIST_STAGES_CUH

#include "device/cuda/persist_attn.cuh"
#include "device/cuda/persist_many.cuh"
#include "device/cuda/persist_stream.cuh"
#include "device/cuda/rows_block.cuh"

/* What a block is in this pass. */
struct persist_self {
  const persist_args &p;
  uint8_t *work;
  uint32_t pass; /* this one's number, from 1 */
};

DF_DEV uint32_t *persist_count(const persist_args &p, uint32_t stage) { return p.state + (1 + stage) * PERSIST_LINE; }

/* All work of the stage in front is done and visible. */
DF_DEV void persist_wait(const persist_self &me, const persist_stage &st, uint32_t stage) {
  if (st.in_front && threadIdx.x == 0) port_grid_wait(persist_count(me.p, stage - 1), me.pass * st.in_front);
  port_block_sync();
}

/* ---- stages ---- */

DF_DEV void persist_run_embed(const persist_stage &st) {
  const persist_embed &a = st.embed;
  const uint32_t spans = (a.table.k + EMBED_SPAN - 1) / EMBED_SPAN, live = *a.op.n_rows;
  for (uint32_t u = persist_first(st.shift); u < st.units; u += gridDim.x) {
    const uint32_t r = u / spans, i0 = u % spans * EMBED_SPAN;
    if (r < live) rows_embed(a.table, a.op, r, i0, math_min(i0 + EMBED_SPAN, a.table.k));
  }
}

DF_DEV void persist_tap(const persist_stage &st, uint32_t first, uint32_t blocks) {
  const uint32_t live = *st.tap.n_rows;
  for (uint32_t r = 0; r < live; r++) rows_tap(st.tap, r, first * MMA_THREADS + threadIdx.x, blocks * MMA_THREADS);
}

/* Words of this stage: that come in, or that it leaves. */
DF_DEV uint2 *persist_word(const persist_self &me, uint32_t at) {
  return at ? (uint2 *)((uint8_t *)me.p.state + at) : 0;
}
DF_DEV uint32_t persist_stamp(const persist_self &me, uint32_t stage) { return me.pass * me.p.n_stages + stage; }

/* The block's share of the chunks at `place`; kept: slots, masks and tables of its only chunk are in place. */
template <bool MANY>
DF_DEV void persist_chunks(const persist_self &me, const persist_stage &st, uint32_t stage, const attn_block &t,
                           uint32_t share, bool kept, bool wait) {
  const attn_args &a = st.attn;
  const attn_layout l = attn_place(a.queries, a.op.head_dim, true, a.fresh_rows, true);
  uint8_t *const shared = me.work + me.p.attn_at;
  persist_kept *const keep = (persist_kept *)(me.work + me.p.kept_at);
  attn_view view = keep->view;
  if (!kept) chunk_tables(a, t, l, shared);
  chunk_norms(a, l, shared);
#pragma unroll 1
  for (uint32_t c = t.c0 + share; c < t.c1; c += a.shares) {
    if (!kept) {
      attn_prepare(a, t, l, shared, c);
      port_block_sync();
      if (!MANY) view = pattn_view_of(l, shared);
      if (threadIdx.x == 0) keep->view = view;
    }
    chunk_fetch_old<true>(a, t, l, shared);
    pattn_words w = {}, to = {};
    if (!MANY) w = {persist_word(me, st.words.in), a.op.q, persist_stamp(me, stage - 1)};
    if (!MANY) to = {persist_word(me, st.words.to), a.op.parts, persist_stamp(me, stage)};
    if (wait && !w.words) persist_wait(me, st, stage);
    wait = false;
    if (MANY)
      mattn_chunk(a, t, l, shared, c, c < t.c0 + a.shares);
    else
      pattn_chunk(a, t, l, shared, c, c < t.c0 + a.shares, view, w, to);
  }
}

template <bool MANY>
DF_DEV void persist_attn(const persist_self &me, const persist_stage &st, uint32_t stage) {
  const attn_args &a = st.attn;
  persist_kept *const keep = (persist_kept *)(me.work + me.p.kept_at);
  const uint32_t places = st.units / a.shares, first = persist_first(st.shift);
  const bool kept = st.again && keep->only;
  bool wait = true;
#pragma unroll 1
  for (uint32_t u = first; u < st.units; u += gridDim.x) {
    attn_block t = keep->attn;
    const bool live = kept ? keep->live : attn_find(a, u % places, &t) && t.c0 + u / places < t.c1;
    if (!kept) port_block_sync(); /* what was kept has been read */
    if (!kept && threadIdx.x == 0 && u == first) {
      keep->attn = t;
      keep->live = live;
      keep->only = u + gridDim.x >= st.units && t.c0 + u / places + a.shares >= t.c1;
    }
    if (!live) continue;
    persist_chunks<MANY>(me, st, stage, t, u / places, kept, wait);
    wait = false;
  }
}

template <bool MANY, bool F16>
DF_DEV void persist_run_merge(const persist_self &me, const persist_stage &st, uint32_t stage) {
  const attn_args &a = st.attn;
  persist_kept *const keep = (persist_kept *)(me.work + me.p.kept_at);
  const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const bool known =
      st.again && st.units <= gridDim.x; /* one query a block, the same as in the stage like this before */
  bool wait = true;
#pragma unroll 1
  for (uint32_t u0 = persist_first(st.shift); u0 < st.units; u0 += MMA_WARPS * gridDim.x) {
    const uint32_t u = u0 + warp * gridDim.x, q = u % a.queries;
    attn_block t = {};
    bool live = u < st.units;
    if (known) {
      t = keep->merge;
    } else if (live) {
      live = attn_find(a, u / a.queries, &t);
      if (!live) t.n = 0;
      if (threadIdx.x == 0) keep->merge = t;
    }
    pattn_words in = {}, to = {};
    if (!MANY) in = {persist_word(me, st.words.in), a.op.parts, persist_stamp(me, stage - 1)};
    if (!MANY) to = {persist_word(me, st.words.to), 0, persist_stamp(me, stage)};
    if (wait && !in.words) persist_wait(me, st, stage);
    wait = false;
    uint8_t *const packed = MANY && st.packs & PERSIST_PACKS_OUT ? me.p.packed : 0;
    if (live && q < t.n) pattn_merge<!MANY, F16>(a, t, q, lane, in, to, packed, me.p.cap);
  }
}

DF_DEV void persist_run_argmax(const persist_stage &st, uint8_t *work) {
  const df_op_argmax &a = st.argmax;
  const uint32_t live = *a.n_rows;
  for (uint32_t u = persist_first(st.shift); u < st.units; u += gridDim.x) {
    if (u / a.segments < live) rows_argmax(a, u % a.segments, u / a.segments, work);
    port_block_sync();
  }
}

/* Every stage but a product. */
template <bool MANY, bool F16>
DF_DEV void persist_other(const persist_self &me, const persist_stage &st, uint32_t stage) {
  if (st.kind == PERSIST_ATTN) {
    persist_attn<MANY>(me, st, stage);
    return;
  }
  if (st.kind == PERSIST_MERGE) {
    persist_run_merge<MANY, F16>(me, st, stage);
    return;
  }
  persist_wait(me, st, stage);
  if (st.kind == PERSIST_EMBED) persist_run_embed(st);
  if (st.kind == PERSIST_ARGMAX) persist_run_argmax(st, me.work);
}

/* ---- around them ---- */

/* Arguments of a stage to shared memory. */
DF_DEV void persist_open(const persist_args &p, uint8_t *to, uint32_t stage) {
  const uint8_t *const from = (const uint8_t *)(p.stages + math_min(stage, p.n_stages - 1));
  for (uint32_t i = 16 * threadIdx.x; i < sizeof(persist_stage); i += 16 * MMA_THREADS) port_copy16(to + i, from + i);
  port_copy_commit();
}

/* What the next stage reads first and nobody writes, into L2. Some blocks ask for all. */
DF_DEV void persist_foresee(const persist_stage &st, uint32_t turn) {
  if (st.kind != PERSIST_PRODUCT || !st.product.norm_w || (blockIdx.x + turn) % 8 != 0) return;
  for (uint32_t i = 32 * threadIdx.x; i < st.product.k; i += 32 * MMA_THREADS) port_prefetch(st.product.norm_w + i);
}

/* What the block is, once the list of what rings read, `bytes` of it, and the first two stages are in shared memory. */
DF_DEV persist_self persist_begin(const persist_args &p, const persist_layout &l, uint8_t *shared, uint32_t bytes) {
  const persist_self me = {p, shared + l.work, port_load_u32(p.state) + 1};
#pragma unroll 1
  for (uint32_t i = 16 * threadIdx.x; i < bytes; i += 16 * MMA_THREADS)
    port_copy16(shared + l.entries + i, (const uint8_t *)p.entries + i);
  for (uint32_t i = 0; i < 2; i++) persist_open(p, shared + l.stages + i * PERSIST_STAGE_BYTES, i);
  port_copy_wait<0>();
  port_block_sync();
  return me;
}

/* The arguments of stage i, at place `at` of PERSIST_STAGES; those of the one behind the next are on their way then. */
DF_DEV const persist_stage &persist_turn_to(const persist_args &p, uint8_t *stages, uint32_t i, uint32_t &at) {
  const persist_stage &st = *(const persist_stage *)(stages + at * PERSIST_STAGE_BYTES);
  const uint32_t next = at + 1 == PERSIST_STAGES ? 0 : at + 1, free = next + 1 == PERSIST_STAGES ? 0 : next + 1;
  persist_foresee(*(const persist_stage *)(stages + next * PERSIST_STAGE_BYTES), i);
  persist_open(p, stages + free * PERSIST_STAGE_BYTES, i + 2);
  at = next;
  return st;
}

/* One barrier ends a stage: its work is done, and the arguments of the next two are there. Its own are overwritten from
 * then on. */
DF_DEV void persist_done(const persist_args &p, uint32_t stage, bool counted) {
  port_copy_wait<0>();
  port_block_sync();
  if (counted && threadIdx.x == 0) port_grid_arrive(persist_count(p, stage));
}

/* The last block to end makes the counters ready for the next pass. */
DF_DEV void persist_end(const persist_self &me) {
  if (threadIdx.x != 0) return;
  port_fence();
  if (port_count(me.p.state + 1) + 1 < gridDim.x) return;
  me.p.state[1] = 0;
  me.p.state[0] = me.pass;
}

#endif
