/*
 * cuda_persist_plan.cu - which programs run as one kernel, and the list that says how; see persist.cuh.
 *
 * A program fits when all its products have BF16, all F16 or all quantised weights, every norm has its product behind
 * it, every rotation its attention, and a ring keeps enough slots beside the largest stage's work.
 *
 * Quantised rows are made by the product that reads them. What attention and SwiGLU leave for it are floats, in the
 * op's own memory or in scratch: one place for all, since every product that reads it comes at once.
 */
#include <string.h>

#include "device/cuda/cuda_ops.cuh"
#include "device/cuda/cuda_tune.h"
#include "device/cuda/persist_planner.cuh"
#include "device/cuda/rows_block.cuh"

/* Room for the next stage, or NULL when stages are only counted. */
static persist_stage *new_stage(planner *p, persist_kind kind, uint32_t units, uint32_t shift, size_t work) {
  persist_stage *st = p->stages ? &p->stages[p->out.n_stages] : 0;
  if (st) {
    memset(st, 0, sizeof *st);
    st->kind = kind;
    st->units = units;
    st->shift = shift;
    st->in_front = p->in_front;
  }
  p->out.n_stages++;
  p->maker = {};
  p->in_front = kind == PERSIST_PRODUCT ? math_min(units, places_of(p)) * p->cluster : math_min(units, blocks_of(p));
  p->packed = 0;
  if (work > p->work) p->work = work;
  return st;
}

/* The stage just added leaves rows of `out` as operands too. */
static void leaves_packed(planner *p, persist_stage *st, const df_act *out) {
  if (p->cluster == 1) return;
  const size_t bytes = (size_t)df_frag_tiles(out->k) * p->env->max_rows * 32;
  p->packed = out->f;
  p->packed_k = out->k;
  if (bytes > p->packed_bytes) p->packed_bytes = bytes;
  if (st) st->packs |= PERSIST_PACKS_OUT;
}

/* Tiles of a warp's longest run of k. */
static uint32_t run_tiles(const planner *p, uint32_t k) {
  const uint32_t warps = p->cluster > 1 ? p->cluster * MMA_WARPS / 2 : (uint32_t)MMA_WARPS;
  return (df_frag_tiles(k) + warps - 1) / warps;
}

/* Of that, what a slot takes: as even as it comes, but for runs whose parts are chained side by side. */
static uint32_t run_piece(const planner *p, uint32_t k) {
  const uint32_t run = run_tiles(p, k);
  if (p->slot_tiles == 0 || (p->cluster == 1 && run <= PERSIST_SHORT)) return PERSIST_SLOT_TILES;
  const uint32_t n = (run + p->slot_tiles - 1) / p->slot_tiles;
  return (run + n - 1) / n;
}

static void add_run(planner *p, const df_weights *w, const df_weights *u) {
  const uint32_t tiles = run_tiles(p, w->k);
  uint32_t i = 0;
  while (i < p->n_runs && p->run[i].tiles != tiles) i++;
  if (i == RUNS) return;
  if (i == p->n_runs) p->run[p->n_runs++] = {tiles, 0};
  p->run[i].weight += (u ? 2.0 : 1.0) * df_strips(w->n) * df_frag_tiles(w->k);
}

static void add_entry(planner *p, const df_weights *w, const df_weights *u, uint32_t strip0, uint32_t shift) {
  if (p->entries)
    ((persist_entry *)p->entries)[p->out.n_entries] = {w->data,
                                                       u ? u->data : 0,
                                                       strip0,
                                                       strip0 + df_strips(w->n),
                                                       (uint16_t)df_frag_tiles(w->k),
                                                       (uint16_t)run_piece(p, w->k),
                                                       shift};
  p->out.n_entries++;
  add_run(p, w, u);
}

static bool takes_weights(planner *p, const df_weights *w) {
  weights_form form = FORM_QUANT;
  if (df_cuda_needs_repack(w->pack)) form = w->pack == DF_PACK_F16 ? FORM_F16 : FORM_BF16;
  if (form == FORM_QUANT ? !df_pack_wants_q8(w->pack) : df_frag_tiles(w->k) > UINT16_MAX) return false;
  if (p->form != FORM_ANY && p->form != form) return false;
  p->form = form;
  return true;
}

/* ---- words ---- */

/* Words in place of rows at y, ld values apart: where they are, 0 when there is no more room for such. */
static uint32_t words_of(planner *p, const float *y, size_t rows, uint32_t ld) {
  uint32_t i = 0;
  while (i < p->n_words && (p->words[i].y != y || p->words[i].ld != ld)) i++;
  if (i == WORDS) return 0;
  if (i == p->n_words) {
    p->words[p->n_words++] = {y, (uint32_t)(p->words_at + p->words_bytes), NO_STAGE, ld};
    p->words_bytes += (rows * ld * sizeof(uint2) + 127) & ~(size_t)127;
  }
  p->words[i].stage = p->out.n_stages - 1;
  return p->words[i].at;
}

/* The rows at x, k values each, come as words when the stage in front makes just these. Where; 0: they do not. */
static uint32_t words_in(planner *p, const float *x, size_t ld) {
  const persist_maker m = p->maker;
  if (p->env->max_rows > df_cuda_tune.persist_words || p->tap || !m.y || x != m.y || m.ld != ld) return 0;
  const uint32_t at = words_of(p, m.y, p->env->max_rows, (uint32_t)m.ld);
  if (m.words) m.words->to = at;
  return at;
}

/* What is added to was written as words, or plainly. */
static void words_old(planner *p, const mma_args *a, persist_words *w) {
  for (uint32_t i = 0; i < p->n_words; i++) {
    if (p->words[i].y != a->part[0].y) continue;
    if (a->add && p->words[i].stage != NO_STAGE) {
      w->old = p->words[i].at;
      w->old_stage = p->words[i].stage;
    }
    p->words[i].stage = NO_STAGE;
  }
}

/* What the next stage may take as words: one part whose rows are all of it, or q, k and v in rows of their own. */
static persist_maker maker_of(const mma_args *a, persist_stage *st) {
  const mma_part *const m = a->part;
  const bool one = a->n_parts == 1 || a->pair, qkv = a->n_parts == 3 && m[0].ld == m[1].ld && m[0].ld == m[2].ld;
  if (one ? m[0].ld != m[0].n : !qkv) return {};
  return {m[0].y, one ? 0 : m[1].y, one ? 0 : m[2].y, m[0].ld, st ? &st->words : 0};
}

/* ---- products ---- */

/* Blocks read rows and norm weights by quads. */
static bool has_quads(const mma_args *a) { return a->vector && (!a->norm_w || (uintptr_t)a->norm_w % 16 == 0); }

static persist_stage *add_product(planner *p, const mma_args *a, size_t work) {
  persist_stage *st = new_stage(p, PERSIST_PRODUCT, a->strips, p->shift, work);
  if (st) {
    st->product = *a;
    st->product.cap = p->env->max_rows;
    st->product.cluster = 1;
    st->product.early_bytes = 0;
    st->has_tap = p->tap != 0;
    if (p->tap) st->tap = *p->tap;
  }
  p->tap = 0;
  p->shift = (p->shift + a->strips) % places_of(p);
  return st;
}

static persist_stage *add_float_product(planner *p, const mma_args *a) {
  const bool packed = p->packed && !a->norm_w && a->x == p->packed && a->k == p->packed_k;
  const uint32_t rows = p->env->max_rows;
  persist_words w = {};
  if (p->cluster == 1 && !p->maker.k) w.in = words_in(p, a->x, a->k);
  words_old(p, a, &w);
  persist_stage *st = add_product(p, a,
                                  p->cluster > 1 ? persist_place_cluster(a->k, rows, a->norm_w != 0, p->cluster).bytes
                                                 : persist_place_product(a->k, rows, a->pair, a->norm_w != 0).bytes);
  if (st && packed) st->packs |= PERSIST_PACKS_IN;
  if (st) st->words = w, st->piece = run_piece(p, a->k);
  if (p->cluster == 1) p->maker = maker_of(a, st);
  return st;
}

static bool plan_linear(planner *p, const df_op_linear *op, const df_op_norm *norm) {
  if (op->add && norm) return false;
  for (uint32_t i = 0; i < op->n_parts; i++) {
    const df_linear_part *part = &op->part[i];
    if (!takes_weights(p, part->w)) return false;
    if (norm && !df_cuda_norm_goes_in(p->env, norm, &op->x, op->n_rows, part->y)) return false;
  }
  mma_args a;
  df_cuda_mma_args_linear(op, norm, &a);
  if (!has_quads(&a)) return false;
  for (uint32_t i = 0; i < op->n_parts; i++)
    add_entry(p, op->part[i].w, 0, a.part[i].strip0, i ? PERSIST_SAME : p->shift);
  (void)add_float_product(p, &a);
  return true;
}

static bool plan_ffn_up(planner *p, const df_op_ffn_up *op, const df_op_norm *norm) {
  if (!takes_weights(p, op->gate) || !takes_weights(p, op->up) || op->out.q) return false;
  if (norm && !df_cuda_norm_goes_in(p->env, norm, &op->x, op->n_rows, op->out.f)) return false;
  mma_args a;
  df_cuda_mma_args_ffn_up(op, norm, &a);
  if (!has_quads(&a)) return false;
  add_entry(p, op->gate, op->up, 0, p->shift);
  leaves_packed(p, add_float_product(p, &a), &op->out);
  return true;
}

/* ---- products of quantised weights ---- */

static pquant_matrix matrix_of(const df_weights *w) {
  pquant_matrix m = {w->data, (uint32_t)w->strip_bytes, 0, 0};
  switch (w->pack) {
    case DF_PACK_Q8: m.codes = DF_BYTES_BLOCK, m.rest = DF_HALVES; break;
    case DF_PACK_Q4: m.codes = DF_NIBS_BLOCK, m.rest = DF_HALVES; break;
    case DF_PACK_Q4M: m.codes = DF_Q4M_BLOCK; break;
    case DF_PACK_Q8M: m.codes = DF_Q8M_BLOCK; break;
    case DF_PACK_Q4K: m.codes = DF_Q4K_BLOCK / SUPER_BLOCKS; break;
    default: m.codes = DF_Q6K_BLOCK / SUPER_BLOCKS, m.rest = DF_HALVES / SUPER_BLOCKS; break;
  }
  return m;
}

/* A quantised product while it is planned. */
struct quant_product {
  mma_args a;
  persist_quant q;
  const df_weights *w[DF_LINEAR_PARTS]; /* parts; gate and up */
};

/* How much of a strip a turn takes: as much as slots and steps of some size hold, evenly. */
static void plan_turns(planner *p, quant_product *x) {
  const uint32_t nkb = x->a.k / DF_QBLOCK, rows = p->env->max_rows;
  uint32_t bytes = 0, whole = 1;
  for (uint32_t i = 0; i < x->a.n_parts; i++) {
    const df_pack pack = x->w[i]->pack;
    const pquant_matrix m = matrix_of(x->w[i]);
    x->q.pack[i] = (uint8_t)pack;
    x->q.twice |= pack == DF_PACK_Q6K;
    bytes = math_max(bytes, m.codes + m.rest);
    if (pack == DF_PACK_Q4K || pack == DF_PACK_Q6K) whole = SUPER_BLOCKS;
  }
  x->q.two = x->a.pair || (x->a.n_parts == 1 && x->a.strips > blocks_of(p));
  const uint32_t strips = x->q.two ? 2 : 1;
  const uint32_t step = strips * (rows * PQUANT_STEP * (x->q.twice ? 2 : 1) + (x->q.twice ? 0 : DF_LANES * 4));
  const bool one = x->a.strips <= blocks_of(p); /* strip, or pair, of a block */
  uint32_t most = math_min((QUANT_SLOT >> p->tries) / (strips * bytes), (QUANT_STEPS >> p->tries) / step);
  x->q.buffers = one && nkb <= most ? 1 : 2;
  if (x->q.buffers == 2) most = math_min(most, (QUANT_STEPS >> p->tries) / (2 * step));
  most = math_max(most - most % whole, whole);
  const uint32_t turns = (nkb + most - 1) / most, even = (nkb + turns - 1) / turns;
  x->q.turn = (even + whole - 1) / whole * whole;
  p->slot_bytes = math_max(p->slot_bytes, (strips * x->q.turn * bytes + 255) & ~255u);
}

static void add_quant_entry(planner *p, const quant_product *x, uint32_t part) {
  const df_weights *const w = x->w[part];
  if (p->entries) {
    pquant_entry e = {};
    e.w = matrix_of(w);
    if (x->a.pair) e.u = matrix_of(x->w[1]);
    e.strip0 = x->a.part[part].strip0;
    e.strip1 = e.strip0 + df_strips(w->n);
    e.shift = (uint16_t)(part ? PQUANT_SAME : p->shift);
    e.nkb = (uint16_t)(w->k / DF_QBLOCK);
    e.turn = (uint16_t)x->q.turn;
    e.pair = x->a.pair;
    e.two = x->q.two;
    ((pquant_entry *)p->entries)[p->out.n_entries] = e;
  }
  p->out.n_entries++;
}

/* The op in front whose rows the product quantises: a norm, a quantisation, or what is held. */
static bool quant_rows(planner *p, const df_op *front, const df_act *x, quant_product *out) {
  mma_args *const a = &out->a;
  out->q.out = x->q;
  if (!x->q || x->f || x->k % DF_QBLOCK || x->k / DF_QBLOCK >= UINT16_MAX) return false;
  if (!front) {
    if (p->held != x->q) return false;
    a->x = p->held_floats;
    p->held = 0;
    return true;
  }
  const df_act *made;
  const uint32_t *n_rows;
  if (front->kind == DF_OP_NORM) {
    const df_op_norm *norm = (const df_op_norm *)front->args;
    a->x = norm->x;
    a->norm_w = norm->w;
    a->row_map = norm->row_map;
    a->eps = norm->eps;
    made = &norm->out;
    n_rows = norm->n_rows;
  } else {
    const df_op_quantize *quant = (const df_op_quantize *)front->args;
    a->x = quant->x;
    a->row_map = quant->row_map;
    made = &quant->out;
    n_rows = quant->n_rows;
  }
  return made->q == x->q && !made->f && made->k == x->k && n_rows == a->n_rows;
}

/* Where the floats of rows lie that the next product quantises. NULL: there is no room. */
static float *hold_rows(planner *p, const df_act *out) {
  const size_t bytes = (size_t)p->env->max_rows * out->k * sizeof(float);
  if (p->held || !out->q) return 0;
  p->held = out->q;
  p->held_floats = out->f ? out->f : (float *)((uint8_t *)p->env->scratch + DF_CUDA_COUNTER_BYTES);
  return out->f || DF_CUDA_COUNTER_BYTES + bytes <= p->env->scratch_bytes ? (float *)p->held_floats : 0;
}

/* The weights of x->w, its rows in place. */
static bool add_quant(planner *p, quant_product *x) {
  const float *const end = x->a.x + (size_t)p->env->max_rows * x->a.k;
  x->a.vector = (uintptr_t)x->a.x % 16 == 0;
  if (!has_quads(&x->a)) return false;
  for (uint32_t i = 0; i < x->a.n_parts; i++) {
    const float *const y = x->a.part[i].y;
    if (y && y + 1 > x->a.x && y < end) return false; /* others still read the rows */
    if (x->w[i]->k != x->a.k || x->w[i]->strip_bytes > UINT32_MAX) return false;
  }
  plan_turns(p, x);
  p->blocks += (uint64_t)x->a.strips * (x->a.pair ? 2 : 1) * (x->a.k / DF_QBLOCK);
  for (uint32_t i = 0; i < (x->a.pair ? 1 : x->a.n_parts); i++) add_quant_entry(p, x, i);
  persist_words w = {};
  if (!p->maker.k) w.in = words_in(p, x->a.x, x->a.k);
  words_old(p, &x->a, &w);
  persist_stage *st = add_product(p, &x->a, pquant_place(x->a.k, p->env->max_rows, x->q, x->a.norm_w != 0).bytes);
  if (st) st->quant = x->q, st->words = w;
  p->maker = maker_of(&x->a, st);
  return true;
}

static bool plan_quant_linear(planner *p, const df_op_linear *op, const df_op *front) {
  quant_product x = {};
  df_cuda_mma_args_linear(op, 0, &x.a);
  if (op->add && front) return false;
  for (uint32_t i = 0; i < op->n_parts; i++) {
    x.w[i] = op->part[i].w;
    if (!takes_weights(p, x.w[i])) return false;
  }
  return quant_rows(p, front, &op->x, &x) && add_quant(p, &x);
}

static bool plan_quant_ffn_up(planner *p, const df_op_ffn_up *op, const df_op *front) {
  quant_product x = {};
  df_cuda_mma_args_ffn_up(op, 0, &x.a);
  x.w[0] = op->gate;
  x.w[1] = op->up;
  if (!takes_weights(p, op->gate) || !takes_weights(p, op->up) || !quant_rows(p, front, &op->x, &x)) return false;
  x.a.part[0].y = hold_rows(p, &op->out);
  return x.a.part[0].y && add_quant(p, &x);
}

/* ops[0] is a product of quantised rows, or what makes them with the product behind it. */
static uint32_t plan_quant(planner *p, const df_op *ops, uint32_t n) {
  const df_op *const front = ops[0].kind == DF_OP_NORM || ops[0].kind == DF_OP_QUANTIZE ? &ops[0] : 0;
  const uint32_t at = front ? 1 : 0;
  bool ok = false;
  if (at < n && ops[at].kind == DF_OP_LINEAR) ok = plan_quant_linear(p, (const df_op_linear *)ops[at].args, front);
  if (at < n && ops[at].kind == DF_OP_FFN_UP) ok = plan_quant_ffn_up(p, (const df_op_ffn_up *)ops[at].args, front);
  return ok ? at + 1 : 0;
}

/* Whether ops[0] makes or takes quantised rows. */
static bool is_quant(const df_op *op) {
  if (op->kind == DF_OP_NORM) return ((const df_op_norm *)op->args)->out.q != 0;
  if (op->kind == DF_OP_LINEAR) return ((const df_op_linear *)op->args)->x.q != 0;
  if (op->kind == DF_OP_FFN_UP) return ((const df_op_ffn_up *)op->args)->x.q != 0;
  return op->kind == DF_OP_QUANTIZE;
}

/* ops[0] is a product, or a norm with its product behind it. */
static uint32_t plan_product(planner *p, const df_op *ops, uint32_t n) {
  if (is_quant(&ops[0])) return plan_quant(p, ops, n);
  const df_op_norm *norm = ops[0].kind == DF_OP_NORM ? (const df_op_norm *)ops[0].args : 0;
  const uint32_t at = norm ? 1 : 0;
  bool ok = false;
  if (at < n && ops[at].kind == DF_OP_LINEAR) ok = plan_linear(p, (const df_op_linear *)ops[at].args, norm);
  if (at < n && ops[at].kind == DF_OP_FFN_UP) ok = plan_ffn_up(p, (const df_op_ffn_up *)ops[at].args, norm);
  return ok ? at + 1 : 0;
}

/* ---- attention ---- */

/* Whether all that the batch decides is the same in two attention stages: blocks, chunks, masks, slots, tables. */
static bool same_batch(const attn_args *a, const attn_args *b) {
  const df_op_attn *x = &a->op, *y = &b->op;
  return x->batch == y->batch && x->kv.block_slots == y->kv.block_slots && x->n_heads == y->n_heads &&
         x->n_kv == y->n_kv && x->head_dim == y->head_dim && x->causal == y->causal && x->window == y->window &&
         x->mask_layout == y->mask_layout && x->mask == y->mask && x->seq0 == y->seq0 && x->tile_rows == y->tile_rows &&
         x->n_tiles == y->n_tiles && a->queries == b->queries && a->n_sub == b->n_sub && a->shares == b->shares &&
         a->rope.pos == b->rope.pos && a->rope.slot == b->rope.slot && a->rope.cos == b->rope.cos &&
         a->rope.sin == b->rope.sin;
}

static persist_stage *add_attn(planner *p, persist_kind kind, uint32_t units, const attn_args &a,
                               const attn_args *before) {
  persist_stage *st = new_stage(p, kind, units, 0, 0);
  if (!st) return 0;
  st->attn = a;
  st->again = keeps_attn(p) && before != 0 && same_batch(before, &a);
  p->last = &st->attn;
  return st;
}

/* Where attention leaves its parts as words; 0: there are too many. */
static uint32_t parts_words(planner *p, const df_op_attn *op) {
  const size_t bytes = df_cuda_attn_parts_bytes(op, p->env->max_seqs) / sizeof(float) * sizeof(uint2);
  if (p->env->max_rows > df_cuda_tune.persist_words || bytes > PARTS_MOST) return 0;
  return words_of(p, op->parts, bytes / sizeof(uint2), 1);
}

/* ops[0] is a rotation; its attention follows. */
static uint32_t plan_attn(planner *p, const df_op *ops, uint32_t n) {
  const df_op_rope_kv *rope = (const df_op_rope_kv *)ops[0].args;
  if (n < 2 || (ops[1].kind != DF_OP_ATTN_TILE && ops[1].kind != DF_OP_ATTN_SPLIT)) return 0;
  const df_op_attn *op = (const df_op_attn *)ops[1].args;
  const bool split = ops[1].kind == DF_OP_ATTN_SPLIT;
  if (split && (n < 3 || ops[2].kind != DF_OP_ATTN_MERGE)) return 0;
  df_op_attn to = *op;
  if (op->out.q) to.out.f = hold_rows(p, &op->out);
  if (p->cluster == 1) to.tile_rows = math_min(op->tile_rows, p->env->max_rows); /* parts lie closer together */
  if (!to.out.f || !op->parts || op->kv.type != DF_KV_F16 || (op->head_dim != 64 && op->head_dim != 128)) return 0;
  if (!df_cuda_attn_takes_rope(op, rope)) return 0;
  attn_args a;
  const uint32_t places = df_cuda_attn_plan(p->env, DF_OP_ATTN_SPLIT, &to, rope, false, &a);
  a.shares = math_max(1, math_min(blocks_of(p) / places, op->max_chunks));
  const bool many = !op->out.q && (p->cluster > 1 || a.queries > PERSIST_FEW);
  const attn_layout l = attn_place(a.queries, op->head_dim, true, a.fresh_rows, true);
  const size_t front = keeps_attn(p) ? l.slots : l.bytes;
  if (p->attn && (p->attn != l.bytes || p->attn_front != front)) return 0; /* layers of one shape */
  p->attn = l.bytes;
  p->attn_front = front;
  p->queries = a.queries;
  const attn_args *before = p->last;
  const persist_maker m = p->maker;
  const bool own = m.k && rope->k == m.k && rope->v == m.v && rope->k_ld == m.ld && rope->v_ld == m.ld;
  const uint32_t in = own && !many ? words_in(p, op->q, op->q_ld) : 0;
  const uint32_t parts = many ? 0 : parts_words(p, &to);
  persist_stage *st = add_attn(p, PERSIST_ATTN, places * a.shares, a, before);
  if (st) st->words.in = in, st->words.to = parts;
  st = add_attn(p, PERSIST_MERGE, places * a.queries, a, before);
  if (st) st->words.in = parts;
  if (!many) p->maker = {to.out.f, 0, 0, op->out.k, st ? &st->words : 0};
  if (!op->out.q) leaves_packed(p, st, &op->out);
  return split ? 3 : 2;
}

/* ---- the rest ---- */

static uint32_t plan_embed(planner *p, const df_op_embed *op) {
  const uint32_t spans = (op->table->k + EMBED_SPAN - 1) / EMBED_SPAN;
  persist_stage *st = new_stage(p, PERSIST_EMBED, p->env->max_rows * spans, 0, 0);
  if (st) st->embed = {*op->table, *op};
  return 1;
}

static uint32_t plan_argmax(planner *p, const df_op_argmax *op) {
  persist_stage *st = new_stage(p, PERSIST_ARGMAX, op->segments * p->env->max_rows, 0, ROWS_SHARED);
  if (st) st->argmax = *op;
  return 1;
}

static uint32_t plan_tap(planner *p, const df_op *ops, uint32_t n) {
  const uint32_t kind = n > 1 ? ops[1].kind : DF_OP_COUNT;
  if (p->tap || p->held || (kind != DF_OP_NORM && kind != DF_OP_LINEAR && kind != DF_OP_FFN_UP)) return 0;
  p->tap = (const df_op_tap *)ops[0].args;
  return 1;
}

/* Ops that the next stage took; 0: the program does not fit. */
static uint32_t plan_next(planner *p, const df_op *ops, uint32_t n) {
  switch (ops[0].kind) {
    case DF_OP_EMBED: return plan_embed(p, (const df_op_embed *)ops[0].args);
    case DF_OP_TAP: return plan_tap(p, ops, n);
    case DF_OP_NORM:
    case DF_OP_QUANTIZE:
    case DF_OP_LINEAR:
    case DF_OP_FFN_UP: return plan_product(p, ops, n);
    case DF_OP_ROPE_KV: return plan_attn(p, ops, n);
    case DF_OP_ARGMAX: return plan_argmax(p, (const df_op_argmax *)ops[0].args);
    default: return 0;
  }
}

/* One kernel saves the time between kernels, but its products of quantised weights take longer with many rows than
 * those of many kernels do, which fill the card better. */
static bool pays(const planner *p) {
  const uint64_t steps = p->blocks / blocks_of(p) * (p->env->max_rows - 1);
  return p->form != FORM_QUANT || !df_cuda_tune.persist_steps || steps <= (uint64_t)df_cuda_tune.persist_steps * p->n;
}

static bool plan_all(planner *p) {
  for (uint32_t i = 0, taken = 0; i < p->n; i += taken) {
    taken = plan_next(p, p->ops + i, p->n - i);
    if (taken == 0) return false;
  }
  return p->form != FORM_ANY && !p->tap && !p->held && pays(p);
}

static planner planner_of(const df_cuda_env *env, const df_op *ops, uint32_t n, uint32_t tries, uint32_t cluster) {
  planner p = {};
  p.env = env;
  p.ops = ops;
  p.n = n;
  p.tries = tries;
  p.cluster = cluster;
  return p;
}

/* The plan with clusters of so many blocks; 0: it does not fit. *rather: clusters of four would be faster. */
static size_t plan_with(const df_cuda_env *env, const df_op *ops, uint32_t n, uint32_t cluster, df_cuda_list *out,
                        bool *rather) {
  for (uint32_t tries = 0; tries < QUANT_TRIES; tries++) {
    planner p = planner_of(env, ops, n, tries, cluster);
    *out = {};
    if (env->max_rows > (uint32_t)(cluster > 1 ? MOST_CLUSTER_ROWS : MOST_ROWS) || places_of(&p) == 0 || !plan_all(&p))
      return 0;
    if (p.form == FORM_QUANT && cluster > 1) return 0;
    *rather = p.form != FORM_QUANT && df_cuda_persist_clusters(&p);
    if (df_cuda_persist_place(&p, out)) return out->bytes;
    if (p.form != FORM_QUANT) break;
  }
  *out = {};
  return 0;
}

uint32_t df_cuda_list_ops(const df_op *ops, uint32_t n) { return n && ops[n - 1].kind == DF_OP_ACCEPT ? n - 1 : n; }

extern "C" size_t df_cuda_list_plan(const df_cuda_env *env, const df_op *ops, uint32_t n, df_cuda_list *out) {
  n = df_cuda_list_ops(ops, n);
  *out = {};
  if (!df_cuda_tune.persist || env->card->major < 9) return 0;
  const uint32_t want = df_cuda_tune.persist_cluster;
  bool rather = false;
  if (want) return plan_with(env, ops, n, want, out, &rather);
  df_cuda_list alone;
  const size_t bytes = plan_with(env, ops, n, 1, &alone, &rather);
  if ((bytes == 0 || rather) && plan_with(env, ops, n, MMA_CLUSTER, out, &rather)) return out->bytes;
  *out = alone;
  return bytes;
}

extern "C" void df_cuda_list_fill(const df_cuda_env *env, const df_op *ops, uint32_t n, const df_cuda_list *l,
                                  void *host) {
  planner p = planner_of(env, ops, df_cuda_list_ops(ops, n), l->quant_tries, l->cluster);
  memset(host, 0, l->bytes); /* nothing counted, no word there, no row */
  p.words_at = (uint32_t)words_at(l);
  p.stages = (persist_stage *)((uint8_t *)host + stages_at(l));
  p.entries = (uint8_t *)host + entries_at(l);
  p.slot_tiles = l->slot_tiles;
  (void)plan_all(&p);
}

int df_cuda_list_launch(const df_cuda_env *env) {
  const df_cuda_list *l = env->list;
  uint8_t *const at = (uint8_t *)l->memory;
  persist_args p = {};
  p.state = (uint32_t *)at;
  p.stages = (const persist_stage *)(at + stages_at(l));
  p.entries = at + entries_at(l);
  p.packed = at + l->packed_at;
  p.n_stages = l->n_stages;
  p.n_entries = l->n_entries;
  p.slots = l->slots;
  p.slot_tiles = l->slot_tiles;
  p.quant_slot = l->quant_slot;
  p.cluster = l->cluster;
  p.cap = l->cap;
  p.attn_at = l->attn_at;
  p.kept_at = l->kept_at;
  if (l->quant_slot) return df_cuda_persist_quant_start(env, p, env->card->n_sm, l->shared);
  const uint32_t blocks = l->cluster > 1 ? env->card->clusters[l->cluster / 2] * l->cluster : env->card->n_sm;
  return df_cuda_persist_start(env, p, blocks, l);
}
