/*
 * device/cuda/persist_quant.cuh - a block's part in a product of quantised weights, as a stage of a pass: the bits of
 * kernels/ref.
 *
 * The rows come as floats and are normed (or not) and quantised by every block for itself, into shared memory. A turn
 * is a span of 32-blocks of one strip, or of two: gate and up, or neighbours of the block's own. Its exact sums are
 * made by all warps side by side and left in shared memory with the products of scales; then half a warp to a row and
 * strip runs the chains of scale-and-add over them, one output a lane, while the other warps are at the next turn.
 *
 * Weights lie in shared memory as strips of a turn's k. One ring of slots, a turn each, runs through all products of
 * the pass; one thread asks for what comes next where slots have become free.
 */
#ifndef DF_DEVICE_CUDA_PERSIST_QUANT_CUH
#define DF_DEVICE_CUDA_PERSIST_QUANT_CUH

#include "device/cuda/persist_product.cuh"
#include "device/cuda/quant_codes.cuh"

enum {
  PQUANT_ASKER = MMA_THREADS - 32,
  PQUANT_STEP = 2 * DF_LANES * 4 /* bytes of a block's scales and sums of a row */
};

/* Shared memory of the stage's work: quantised rows; steps of one turn, or of two in turns, on top of which rows and
 * norm weights lie before. Rows are so far apart that eight of them meet no bank twice. */
typedef struct pquant_layout {
  uint32_t q_step, meta, meta_step; /* bytes of a row: codes; from `meta` on scale, scale_sum, sums of both halves */
  uint32_t steps, row_step, second, half, buffer; /* second: of a half, what the chain adds second */
  uint32_t norm_w, cols, bytes;                   /* cols: of the rows that lie there at once */
} pquant_layout;

DF_FRAG_FN pquant_layout pquant_place(uint32_t k, uint32_t cap, const persist_quant &q, bool norm) {
  pquant_layout l;
  const uint32_t nkb = k / DF_QBLOCK, most = 48 << 10;
  l.q_step = ((k + 127) & ~127u) + 32;
  l.meta = cap * l.q_step;
  l.meta_step = ((nkb * 16 + 127) & ~127u) + 16;
  l.steps = (l.meta + cap * l.meta_step + 127) & ~127u;
  l.row_step = q.turn * PQUANT_STEP + 16;
  l.second = cap * l.row_step;
  l.half = l.second + (q.twice ? cap * l.row_step : q.turn * DF_LANES * 4);
  l.buffer = (q.two ? 2 : 1) * l.half;
  const uint32_t steps = q.buffers * l.buffer, all = cap * k * 4;
  const uint32_t rows = norm ? all : math_max(steps, math_min(all, most));
  l.cols = math_min(k, rows / (cap * 4) & ~31u);
  l.norm_w = l.steps + all;
  l.bytes = l.steps + math_max(steps, rows + (norm ? k * 4 : 0));
  return l;
}

/* ---- weights ---- */

struct pquant_stream {
  /* What is asked for next: 32-blocks from kb on of one strip or two. The asker's alone. */
  const pquant_entry *next, *end; /* entries that are not open yet */
  const uint8_t *w, *u;           /* the strips; u: gate's up, or the block's next */
  uint32_t w_codes, w_rest, u_codes, u_rest, turn, nkb, kb;
  size_t w_step, u_step; /* to the next strips */
  uint32_t strip, strips, each;
  bool more, pair, two;
  uint32_t ask; /* slot for it */
  /* What is used next, and slots that wait for being asked for again; the same in all threads. */
  uint32_t slot, parity, freed;
  uint32_t slots, slot_bytes;
  uint8_t *ring;
  port_mailbox *box;
  uint64_t once;
};

/* To the first turn of the entries that follow. */
DF_DEV void pquant_open(pquant_stream &s) {
  s.more = false;
#pragma unroll 1
  while (s.next != s.end) {
    const pquant_entry &e = *s.next++;
    if (e.shift != PQUANT_SAME) s.strip = persist_first(e.shift);
    s.strips = e.strip1;
    if (s.strip >= e.strip1) continue;
    const pquant_matrix &u = e.pair ? e.u : e.w;
    s.pair = e.pair;
    s.two = e.two;
    s.each = e.two && !e.pair ? 2 * gridDim.x : gridDim.x;
    s.w = e.w.w + (size_t)(s.strip - e.strip0) * e.w.strip_bytes;
    s.u = u.w + (size_t)(s.strip - e.strip0 + (e.pair ? 0 : gridDim.x)) * u.strip_bytes;
    s.w_step = (size_t)s.each * e.w.strip_bytes;
    s.u_step = (size_t)s.each * u.strip_bytes;
    s.w_codes = e.w.codes;
    s.w_rest = e.w.rest;
    s.u_codes = u.codes;
    s.u_rest = u.rest;
    s.turn = e.turn;
    s.nkb = e.nkb;
    s.kb = 0;
    s.more = true;
    return;
  }
}

/* n 32-blocks of a strip to shared memory, as a strip of a turn's k. */
DF_DEV void pquant_fetch(const pquant_stream &s, const uint8_t *strip, uint32_t codes, uint32_t rest, uint32_t n,
                         uint8_t *to) {
  port_mailbox_fetch(to, strip + s.kb * codes, n * codes, &s.box[s.ask], s.once);
  if (rest)
    port_mailbox_fetch(to + s.turn * codes, strip + s.nkb * codes + s.kb * rest, n * rest, &s.box[s.ask], s.once);
}

/* Asks for the next turn, into the slot that was freed first. */
DF_DEV void pquant_ask(pquant_stream &s) {
  if (!s.more) return;
  uint8_t *const to = s.ring + s.ask * s.slot_bytes;
  const uint32_t n = math_min(s.turn, s.nkb - s.kb);
  const bool second = s.two && (s.pair || s.strip + gridDim.x < s.strips);
  port_mailbox_expect(&s.box[s.ask], n * (s.w_codes + s.w_rest + (second ? s.u_codes + s.u_rest : 0)));
  pquant_fetch(s, s.w, s.w_codes, s.w_rest, n, to);
  if (second) pquant_fetch(s, s.u, s.u_codes, s.u_rest, n, to + s.slot_bytes / 2);
  s.ask = s.ask + 1 == s.slots ? 0 : s.ask + 1;
  s.kb += s.turn;
  if (s.kb < s.nkb) return;
  s.kb = 0;
  s.strip += s.each;
  s.w += s.w_step;
  s.u += s.u_step;
  if (s.strip >= s.strips) pquant_open(s);
}

/* Asks for as much as has been freed; behind a barrier of all that read it. */
DF_DEV void stream_rest(pquant_stream &s) {
  if (threadIdx.x == PQUANT_ASKER)
#pragma unroll 1
    for (uint32_t i = 0; i < s.freed; i++) pquant_ask(s);
  s.freed = 0;
}

DF_DEV pquant_stream pquant_begin(const persist_args &p, const persist_layout &l, uint8_t *shared) {
  pquant_stream s = {};
  s.once = port_read_once();
  s.slots = s.freed = p.slots;
  s.slot_bytes = p.quant_slot;
  s.ring = shared;
  s.box = (port_mailbox *)(shared + l.boxes);
  if (threadIdx.x == PQUANT_ASKER) {
    for (uint32_t i = 0; i < p.slots; i++) port_mailbox_init(&s.box[i]);
    port_mailbox_publish();
  }
  port_block_sync();
  s.next = (const pquant_entry *)(shared + l.entries);
  s.end = s.next + p.n_entries;
  pquant_open(s);
  return s;
}

/* ---- rows ---- */

/* A block that four neighbouring lanes have quantised, 8 values each: what math_quantized gives, for lane 0. */
struct pquant_block {
  uint2 words; /* the lane's 8 values */
  float scale, scale_sum;
  int32_t lo, hi;
};

/* The bits of math_quantized, with less for each value. All 32 lanes of the warp must call it. */
DF_DEV pquant_block pquant_quantized(const float x[8]) {
  uint32_t m = 0, r[8];
#pragma unroll
  for (int i = 0; i < 8; i++) m = math_max(m, port_bits(x[i]) & 0x7fffffffu);
  m = math_max(m, port_xor(m, 1));
  m = math_max(m, port_xor(m, 2));
  const float amax = port_float(m);
  const bool bad = m >= 0x7f800000u, zero = bad || amax < DF_QUANT_MIN;
  const float inv = 127.0f / (zero ? 1.0f : amax);
  pquant_block out = {};
  /* The sum's last bits are the value; zeros come out as 0 all the same. */
#pragma unroll
  for (int i = 0; i < 8; i++) {
    r[i] = bad ? 0 : port_bits(x[i] * inv + DF_EXP_MAGIC) - QUANT_MAGIC;
    out.lo += (int32_t)r[i];
  }
  out.words.x = (r[0] & 255u) | (r[1] & 255u) << 8 | (r[2] & 255u) << 16 | r[3] << 24;
  out.words.y = (r[4] & 255u) | (r[5] & 255u) << 8 | (r[6] & 255u) << 16 | r[7] << 24;
  out.lo += port_xor(out.lo, 1);
  out.hi = port_xor(out.lo, 2);
  out.scale = bad ? port_float(DF_QUANT_NAN_BITS) : zero ? 0.0f : amax / 127.0f;
  out.scale_sum = bad ? out.scale : zero ? 0.0f : out.scale * (float)(out.lo + out.hi);
  return out;
}

/* What lane `w` of four has of a block: to shared memory, and (NULL: no) to the op's own place. */
DF_DEV void pquant_put(uint8_t *codes, uint8_t *meta, uint32_t w, const pquant_block &v, df_actq *out) {
  uint8_t *const to = codes + w % 2 * 16 + w / 2 * 4; /* quads j and j + 4 side by side */
  *(uint32_t *)to = v.words.x;
  *(uint32_t *)(to + 8) = v.words.y;
  if (w == 0) *(uint4 *)meta = make_uint4(port_bits(v.scale), port_bits(v.scale_sum), (uint32_t)v.lo, (uint32_t)v.hi);
  if (!out) return;
  *(uint2 *)(out->q + 8 * w) = v.words;
  if (w == 0) math_put_q8({v.words.x, v.scale, v.scale_sum, v.lo, v.hi}, 0, out);
}

/* Columns [k0, k0 + n) of the live rows, which lie in shared memory. As many warps to a row as there are. */
DF_DEV void pquant_columns(const mma_args &a, const persist_quant &q, const pquant_layout &l, uint8_t *work,
                           uint32_t live, uint32_t k0, uint32_t n, bool write) {
  const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32, w = lane % 4;
  uint32_t shift = 0;
  while ((1u << shift) < live) shift++;
  const uint32_t r = warp & ((1u << shift) - 1), eights = n / 8, first = warp >> shift << 5;
  if (r >= live || first >= eights) return;
  const float *const x = (const float *)(work + l.steps) + r * l.cols, *const norm = (const float *)(work + l.norm_w);
  const bool normed = a.norm_w != 0;
  const float f = normed ? math_rms_factor_short(x, n, a.eps) : 1.0f;
  uint32_t stride = 0;
  df_actq *out = write ? math_act_row(q.out, a.k, r, live, &stride) : 0;
  uint8_t *const codes = work + r * l.q_step + k0, *const meta = work + l.meta + r * l.meta_step + k0 / 2;
#pragma unroll 1
  for (uint32_t i0 = first; i0 < eights; i0 += MMA_THREADS >> shift) {
    const uint32_t i = i0 + lane, at = 8 * math_min(i, eights - 1), kb = i / 4;
    const float4 lo = *(const float4 *)(x + at), hi = *(const float4 *)(x + at + 4);
    float v[8] = {lo.x, lo.y, lo.z, lo.w, hi.x, hi.y, hi.z, hi.w};
    if (normed) {
      const float4 ul = *(const float4 *)(norm + at), uh = *(const float4 *)(norm + at + 4);
      const float u[8] = {ul.x, ul.y, ul.z, ul.w, uh.x, uh.y, uh.z, uh.w};
#pragma unroll
      for (int j = 0; j < 8; j++) v[j] = (v[j] * f) * u[j];
    }
    const pquant_block b = pquant_quantized(v);
    if (i < eights)
      pquant_put(codes + kb * DF_QBLOCK, meta + kb * 16, w, b, out ? out + (size_t)(k0 / DF_QBLOCK + kb) * stride : 0);
  }
}

/* The live rows quantised in shared memory; norm weights are on the way already. */
DF_DEV void pquant_input(const mma_args &a, const persist_quant &q, const pquant_layout &l, uint8_t *work,
                         uint32_t live, bool write, const product_words &words) {
  const uint32_t stamp = words.pass + words.stage - 1, rows = a.row_map || l.cols < a.k ? live : 1;
#pragma unroll 1
  for (uint32_t k0 = 0; k0 < a.k; k0 += l.cols) {
    const uint32_t n = math_min(l.cols, a.k - k0), all = rows == live ? n : live * n; /* rows side by side: at once */
#pragma unroll 1
    for (uint32_t r = 0; r < rows; r++) {
      float *const to = (float *)(work + l.steps) + r * l.cols;
      const float *const from = mma_row(a, r) + k0;
      if (words.at.in)
        product_look(to, product_word(words, words.at.in, from - a.x), all, stamp);
      else
        product_fetch(to, from, all);
    }
    port_copy_commit();
    port_copy_wait<0>();
    port_block_sync();
    pquant_columns(a, q, l, work, live, k0, n, write);
    port_block_sync();
  }
}

/* ---- sums ---- */

/* Where a turn's parts lie: weights of a half, the rows' codes and scales at the turn's first block, the half's steps.
 */
struct pquant_turn {
  const uint8_t *w, *codes, *meta;
  uint8_t *steps;
  uint32_t n, k; /* blocks; k of the strip in shared memory */
};

/* The sums of one block and the products of scales: outputs 2g, 2g + 1, rows 2j, 2j + 1. */
template <int PACK>
struct pquant_step {
  float first[4], dot[4], second[4], dot2[4];
};

template <int PACK>
DF_DEV pquant_step<PACK> pquant_prepare(const quant_raw &raw, uint2 b, const uint4 m[2], uint32_t j) {
  pquant_step<PACK> out;
  uint32_t a[4];
  quant_codes<PACK>(raw, j, a);
  int32_t d[4], e[4];
#pragma unroll
  for (int i = 0; i < 4; i++) {
    const int32_t lo = (int32_t)m[i & 1].z, hi = (int32_t)m[i & 1].w;
    d[i] = QUANT_MAGIC + (PACK == DF_PACK_Q8    ? -128 * (lo + hi)
                          : PACK == DF_PACK_Q4  ? -8 * (lo + hi)
                          : PACK == DF_PACK_Q6K ? -32 * lo
                                                : 0);
    e[i] = QUANT_MAGIC - 32 * hi;
  }
  if (PACK == DF_PACK_Q6K) {
    port_mma_u8s8_k16(d, a[0], a[1], b.x);
    port_mma_u8s8_k16(e, a[2], a[3], b.y);
  } else {
    port_mma_u8s8_k32(d, a, b.x, b.y);
  }
  const float2 s[2] = {quant_scales<PACK>(raw, 0), quant_scales<PACK>(raw, 1)};
#pragma unroll
  for (int i = 0; i < 4; i++) {
    const float x = port_float(m[i & 1].x);
    out.first[i] = s[i >> 1].x * x;
    out.dot[i] = quant_float(d[i]);
    out.second[i] = PACK == DF_PACK_Q6K ? s[i >> 1].y * x : s[i >> 1].y;
    out.dot2[i] = quant_float(e[i]);
  }
  return out;
}

template <int PACK>
DF_DEV void pquant_store(const pquant_step<PACK> &s, const pquant_layout &l, uint8_t *at, uint32_t g, uint32_t j,
                         uint32_t live, uint32_t i) {
#pragma unroll
  for (uint32_t c = 0; c < 2; c++) {
    if (2 * j + c >= live) continue;
    uint8_t *const to = at + (2 * j + c) * l.row_step + i * PQUANT_STEP + 16 * g;
    *(float4 *)to = make_float4(s.first[c], s.dot[c], s.first[2 + c], s.dot[2 + c]);
    if (PACK == DF_PACK_Q6K)
      *(float4 *)(to + l.second) = make_float4(s.second[c], s.dot2[c], s.second[2 + c], s.dot2[2 + c]);
  }
  if (quant_two<PACK>() && PACK != DF_PACK_Q6K && j == 0)
    *(float2 *)(at + l.second + i * DF_LANES * 4 + 8 * g) = {s.second[0], s.second[2]};
}

/* The warp's blocks of a half: from `from` on every eighth. Loads of a few come before their stores. */
template <int PACK>
DF_DEV void pquant_dots(const pquant_layout &l, const pquant_turn &t, uint32_t live, uint32_t from) {
  enum { DEEP = 3 };
  const uint32_t lane = threadIdx.x % 32, g = lane / 4, j = lane % 4, last = math_max(live, 1) - 1;
  const uint8_t *const codes = t.codes + math_min(g, last) * l.q_step + 8 * j;
  const uint8_t *const m0 = t.meta + math_min(2 * j, last) * l.meta_step, *const m1 =
                                                                              t.meta +
                                                                              math_min(2 * j + 1, last) * l.meta_step;
#pragma unroll 1
  for (uint32_t i0 = from; i0 < t.n; i0 += MMA_WARPS * DEEP) {
    quant_raw raw[DEEP];
    uint2 b[DEEP];
    uint4 m[DEEP][2];
#pragma unroll
    for (uint32_t d = 0; d < DEEP; d++) {
      const uint32_t i = math_min(i0 + d * MMA_WARPS, t.n - 1);
      raw[d] = quant_load<PACK, true>(t.w, t.k, i, g, j);
      b[d] = *(const uint2 *)(codes + i * DF_QBLOCK);
      m[d][0] = *(const uint4 *)(m0 + i * 16);
      m[d][1] = *(const uint4 *)(m1 + i * 16);
    }
    pquant_step<PACK> step[DEEP];
#pragma unroll
    for (uint32_t d = 0; d < DEEP; d++) step[d] = pquant_prepare<PACK>(raw[d], b[d], m[d], j);
#pragma unroll
    for (uint32_t d = 0; d < DEEP; d++)
      if (i0 + d * MMA_WARPS < t.n) pquant_store<PACK>(step[d], l, t.steps, g, j, live, i0 + d * MMA_WARPS);
  }
}

DF_DEV void pquant_dots_of(uint32_t pack, const pquant_layout &l, const pquant_turn &t, uint32_t live, uint32_t from) {
  switch (pack) {
    case DF_PACK_Q8: pquant_dots<DF_PACK_Q8>(l, t, live, from); break;
    case DF_PACK_Q4: pquant_dots<DF_PACK_Q4>(l, t, live, from); break;
    case DF_PACK_Q4M: pquant_dots<DF_PACK_Q4M>(l, t, live, from); break;
    case DF_PACK_Q8M: pquant_dots<DF_PACK_Q8M>(l, t, live, from); break;
    case DF_PACK_Q4K: pquant_dots<DF_PACK_Q4K>(l, t, live, from); break;
    default: pquant_dots<DF_PACK_Q6K>(l, t, live, from); break;
  }
}

/* acc after n blocks: output o of row r. */
DF_DEV float pquant_chain(uint32_t pack, const pquant_layout &l, const pquant_turn &t, uint32_t r, uint32_t o,
                          float acc) {
  const uint8_t *const a = t.steps + r * l.row_step + 8 * o;
  if (pack == DF_PACK_Q8 || pack == DF_PACK_Q4) {
#pragma unroll 6
    for (uint32_t i = 0; i < t.n; i++) {
      const float2 x = *(const float2 *)(a + i * PQUANT_STEP);
      acc = fmaf(x.x, x.y, acc);
    }
  } else if (pack == DF_PACK_Q6K) {
#pragma unroll 4
    for (uint32_t i = 0; i < t.n; i++) {
      const float2 x = *(const float2 *)(a + i * PQUANT_STEP), y = *(const float2 *)(a + l.second + i * PQUANT_STEP);
      acc = fmaf(y.x, y.y, fmaf(x.x, x.y, acc));
    }
  } else {
    const uint8_t *const b = t.steps + l.second + 4 * o, *const m = t.meta + r * l.meta_step + 4;
#pragma unroll 6
    for (uint32_t i = 0; i < t.n; i++) {
      const float2 x = *(const float2 *)(a + i * PQUANT_STEP);
      const float y = *(const float *)(b + i * DF_LANES * 4), s = *(const float *)(m + i * 16);
      acc = fmaf(y, s, fmaf(x.x, x.y, acc));
    }
  }
  return acc;
}

/* ---- strips ---- */

/* What a thread of a chain needs of a strip beside its sum: known before the rows are. */
struct pquant_goal {
  float *y; /* NULL: the thread finishes nothing */
  float bias;
  bool has_bias;
  uint32_t pack[2]; /* of the turn's strips */
};

/* The product as all threads hold it: what shared memory has of it is read once. */
struct pquant_self {
  uint32_t turn, buffers, nkb, strips, k;
  uint32_t live, warp, lane, mine; /* mine: the strip of a turn that the thread finishes */
  uint32_t step;                   /* to the block's next strips */
  bool two, pair, add;
  const float *y0; /* words lie as the plain values from here on */
};

DF_DEV pquant_self pquant_self_of(const mma_args &a, const persist_quant &q, uint32_t live) {
  pquant_self w;
  w.turn = q.turn;
  w.buffers = q.buffers;
  w.k = a.k;
  w.nkb = a.k / DF_QBLOCK;
  w.strips = a.strips;
  w.live = live;
  w.warp = threadIdx.x / 32;
  w.lane = threadIdx.x % 32;
  w.mine = w.lane / 16;
  w.two = q.two;
  w.pair = a.pair;
  w.add = a.add;
  w.step = (q.two && !a.pair ? 2 : 1) * gridDim.x;
  w.y0 = a.part[0].y;
  return w;
}

DF_DEV pquant_goal pquant_goal_of(const mma_args &a, const persist_quant &q, const pquant_self &w, uint32_t strip) {
  pquant_goal g = {};
  const uint32_t i = w.pair ? 0 : mma_part_of(a, strip);
  const mma_part &p = a.part[i];
  g.pack[0] = q.pack[i];
  g.pack[1] = q.pack[w.pair ? 1 : i];
  const uint32_t own = strip - p.strip0 + (w.pair ? 0 : w.mine * gridDim.x), o = own * DF_LANES + w.lane % 16;
  if (w.warp >= w.live || o >= p.n || (w.mine && (w.pair || !w.two))) return g;
  g.y = p.y + (size_t)w.warp * p.ld + o;
  g.has_bias = p.bias != 0;
  if (g.has_bias) g.bias = p.bias[o];
  return g;
}

/* What the output is added to, on its way. */
DF_DEV uint2 pquant_old(const pquant_self &w, const pquant_goal &g, const product_words &words) {
  if (!w.add || !g.y) return make_uint2(0, 0);
  if (words.at.old) return port_word(product_word(words, words.at.old, g.y - w.y0));
  return make_uint2(port_bits(port_load(g.y)), 0);
}

/* The outputs when their chains are through. All lanes of the warp call. */
DF_DEV void pquant_finish(const pquant_self &w, const pquant_goal &g, uint2 old, const product_words &words,
                          float acc) {
  float v = acc;
  if (w.pair) v = math_silu_mul(acc, port_xor(acc, 16));
  if (!g.y) return;
  const size_t i = g.y - w.y0;
  if (g.has_bias) v = v + g.bias;
  if (w.add) v = (words.at.old ? product_settled(words, old, i) : port_float(old.x)) + v;
  if (words.at.to) port_word_put(product_word(words, words.at.to, i), v, words.pass + words.stage);
  *g.y = v;
}

/* The turn of strip h in slot s.slot, its blocks from kb on. */
DF_DEV pquant_turn pquant_turn_of(const pquant_self &w, const pquant_layout &l, const pquant_stream &s, uint8_t *work,
                                  uint32_t kb, uint32_t h, uint32_t buffer) {
  pquant_turn t;
  t.w = s.ring + s.slot * s.slot_bytes + h * (s.slot_bytes / 2);
  t.codes = work + kb * DF_QBLOCK;
  t.meta = work + l.meta + kb * 16;
  t.steps = work + l.steps + buffer * l.buffer + h * l.half;
  t.n = math_min(w.turn, w.nkb - kb);
  t.k = w.turn * DF_QBLOCK;
  return t;
}

/* The block's strips from `strip` on, whose goal is g. */
DF_DEV void pquant_strips(const mma_args &a, const persist_quant &q, const pquant_self &w, const pquant_layout &l,
                          uint8_t *work, uint32_t strip, pquant_goal g, const product_words &words, pquant_stream &s) {
  uint32_t buffer = 0;
#pragma unroll 1
  for (; strip < w.strips; g = pquant_goal_of(a, q, w, strip)) {
    const uint32_t halves = w.two && (w.pair || strip + gridDim.x < w.strips) ? 2 : 1;
    const bool chains = w.warp < w.live && w.mine < halves;
    const uint2 old = pquant_old(w, g, words);
    float acc = 0;
    strip += w.step;
#pragma unroll 1
    for (uint32_t kb = 0; kb < w.nkb; kb += w.turn) {
      port_mailbox_wait_own(&s.box[s.slot], s.parity);
#pragma unroll 1
      for (uint32_t h = 0, done = w.live; h < halves; h++) {
        const pquant_turn t = pquant_turn_of(w, l, s, work, kb, h, buffer);
        pquant_dots_of(h ? g.pack[1] : g.pack[0], l, t, w.live, (w.warp - done) % MMA_WARPS);
        done += t.n;
      }
      const pquant_turn t = pquant_turn_of(w, l, s, work, kb, w.mine, buffer);
      s.slot = s.slot + 1 == s.slots ? 0 : s.slot + 1;
      s.parity ^= s.slot == 0;
      s.freed++;
      port_block_sync();
      if (kb + w.turn < w.nkb || strip < w.strips) stream_rest(s); /* else in front of the next stage */
      if (chains) acc = pquant_chain(w.mine ? g.pack[1] : g.pack[0], l, t, w.warp, w.lane % 16, acc);
      buffer = buffer + 1 == w.buffers ? 0 : buffer + 1;
    }
    if (w.warp < w.live) pquant_finish(w, g, old, words, acc);
    if (strip >= w.strips) break;
  }
}

#endif
