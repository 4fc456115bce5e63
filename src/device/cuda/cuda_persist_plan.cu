/*
 * cuda_persist_plan.cu - which programs run as one kernel, and the list that says how; see persist.cuh.
 *
 * A program fits when all its products have BF16 or all F16 weights, every norm has its product behind it, every
 * rotation its attention, and a warp's ring keeps enough slots beside the largest stage's work.
 */
#include <string.h>

#include "device/cuda/cuda_ops.cuh"
#include "device/cuda/cuda_tune.h"
#include "device/cuda/persist_plan.cuh"
#include "device/cuda/rows_block.cuh"

enum { LEAST_SLOTS = 3, MOST_SLOTS = 8, MOST_ROWS = 8 };

/* The plan under way. With no room it only counts. */
struct planner {
  const df_cuda_env *env;
  const df_op *ops;
  uint32_t n;
  df_cuda_list out;
  persist_stage *stages; /* NULL: only counted */
  persist_entry *entries;
  const df_op_tap *tap; /* waits for its product */
  uint32_t shift;       /* block that the next product begins with */
  uint32_t in_front;
  bool any, f16;
  size_t work, attn;     /* most of products and the like; of attention, kept parts included */
  size_t attn_front;     /* of that: may be overwritten by products */
  const attn_args *last; /* of the attention stage before; only when stages are written */
};

static uint32_t blocks_of(const planner *p) { return p->env->card->n_sm; }

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
  p->in_front = math_min(units, blocks_of(p));
  if (work > p->work) p->work = work;
  return st;
}

static void add_entry(planner *p, const df_weights *w, const df_weights *u, uint32_t strip0, uint32_t shift) {
  if (p->entries)
    p->entries[p->out.n_entries] = {w->data, u ? u->data : 0, strip0, strip0 + df_strips(w->n), df_frag_tiles(w->k),
                                    shift};
  p->out.n_entries++;
}

static bool takes_weights(planner *p, const df_weights *w) {
  if (!df_cuda_needs_repack(w->pack)) return false;
  const bool f16 = w->pack == DF_PACK_F16;
  if (p->any && f16 != p->f16) return false;
  p->any = true;
  p->f16 = f16;
  return true;
}

/* ---- products ---- */

/* Blocks read rows and norm weights by quads. */
static bool has_quads(const mma_args *a) { return a->vector && (!a->norm_w || (uintptr_t)a->norm_w % 16 == 0); }

static void add_product(planner *p, const mma_args *a) {
  const size_t work = persist_place_product(a->k, p->env->max_rows, a->pair, a->norm_w != 0).bytes;
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
  p->shift = (p->shift + a->strips) % blocks_of(p);
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
  add_product(p, &a);
  return true;
}

static bool plan_ffn_up(planner *p, const df_op_ffn_up *op, const df_op_norm *norm) {
  if (!takes_weights(p, op->gate) || !takes_weights(p, op->up) || op->out.q) return false;
  if (norm && !df_cuda_norm_goes_in(p->env, norm, &op->x, op->n_rows, op->out.f)) return false;
  mma_args a;
  df_cuda_mma_args_ffn_up(op, norm, &a);
  if (!has_quads(&a)) return false;
  add_entry(p, op->gate, op->up, 0, p->shift);
  add_product(p, &a);
  return true;
}

/* ops[0] is a product, or a norm with its product behind it. */
static uint32_t plan_product(planner *p, const df_op *ops, uint32_t n) {
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

static void add_attn(planner *p, persist_kind kind, uint32_t units, const attn_args &a, const attn_args *before) {
  persist_stage *st = new_stage(p, kind, units, 0, 0);
  if (!st) return;
  st->attn = a;
  st->again = before != 0 && same_batch(before, &a);
  p->last = &st->attn;
}

/* ops[0] is a rotation; its attention follows. */
static uint32_t plan_attn(planner *p, const df_op *ops, uint32_t n) {
  const df_op_rope_kv *rope = (const df_op_rope_kv *)ops[0].args;
  if (n < 2 || (ops[1].kind != DF_OP_ATTN_TILE && ops[1].kind != DF_OP_ATTN_SPLIT)) return 0;
  const df_op_attn *op = (const df_op_attn *)ops[1].args;
  const bool split = ops[1].kind == DF_OP_ATTN_SPLIT;
  if (split && (n < 3 || ops[2].kind != DF_OP_ATTN_MERGE)) return 0;
  if (op->out.q || !op->out.f || !op->parts || op->kv.type != DF_KV_F16 || (op->head_dim != 64 && op->head_dim != 128))
    return 0;
  if (!df_cuda_attn_takes_rope(op, rope)) return 0;
  attn_args a;
  const uint32_t places = df_cuda_attn_plan(p->env, DF_OP_ATTN_SPLIT, op, rope, false, &a);
  a.shares = math_max(1, math_min(blocks_of(p) / places, op->max_chunks));
  const attn_layout l = attn_place(a.queries, op->head_dim, true, a.fresh_rows);
  if (p->attn && (p->attn != l.bytes || p->attn_front != l.slots)) return 0; /* layers of one shape */
  p->attn = l.bytes;
  p->attn_front = l.slots;
  const attn_args *before = p->last;
  add_attn(p, PERSIST_ATTN, places * a.shares, a, before);
  add_attn(p, PERSIST_MERGE, places * a.queries, a, before);
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
  if (p->tap || (kind != DF_OP_NORM && kind != DF_OP_LINEAR && kind != DF_OP_FFN_UP)) return 0;
  p->tap = (const df_op_tap *)ops[0].args;
  return 1;
}

/* Ops that the next stage took; 0: the program does not fit. */
static uint32_t plan_next(planner *p, const df_op *ops, uint32_t n) {
  switch (ops[0].kind) {
    case DF_OP_EMBED: return plan_embed(p, (const df_op_embed *)ops[0].args);
    case DF_OP_TAP: return plan_tap(p, ops, n);
    case DF_OP_NORM:
    case DF_OP_LINEAR:
    case DF_OP_FFN_UP: return plan_product(p, ops, n);
    case DF_OP_ROPE_KV: return plan_attn(p, ops, n);
    case DF_OP_ARGMAX: return plan_argmax(p, (const df_op_argmax *)ops[0].args);
    default: return 0;
  }
}

static bool plan_all(planner *p) {
  for (uint32_t i = 0, taken = 0; i < p->n; i += taken) {
    taken = plan_next(p, p->ops + i, p->n - i);
    if (taken == 0) return false;
  }
  return p->any && !p->tap;
}

static size_t stages_at(const df_cuda_list *l) { return (size_t)(1 + l->n_stages) * PERSIST_LINE * sizeof(uint32_t); }
static size_t entries_at(const df_cuda_list *l) { return stages_at(l) + (size_t)l->n_stages * sizeof(persist_stage); }

extern "C" size_t df_cuda_list_plan(const df_cuda_env *env, const df_op *ops, uint32_t n, df_cuda_list *out) {
  planner p = {};
  *out = {};
  p.env = env;
  p.ops = ops;
  p.n = n;
  if (!df_cuda_tune.persist || env->card->major < 9 || env->max_rows > MOST_ROWS || !plan_all(&p)) return 0;
  /* Attention's memory lies so that what it keeps comes behind the work of all products. */
  const size_t work = (p.work + 127) & ~(size_t)127;
  out->attn_at = (uint32_t)((work > p.attn_front ? work - p.attn_front + 127 : 0) & ~(size_t)127);
  out->kept_at = (uint32_t)((math_max(out->attn_at + (uint32_t)p.attn, (uint32_t)work) + 15) & ~15u);
  const size_t per_slot = MMA_WARPS * (PERSIST_SLOT + sizeof(port_mailbox));
  const size_t all = out->kept_at + sizeof(persist_kept), rest = persist_place(0, p.out.n_entries).work + 128 + all;
  if (rest + LEAST_SLOTS * per_slot > env->card->shared_bytes) return 0;
  out->n_stages = p.out.n_stages;
  out->n_entries = p.out.n_entries;
  out->slots = math_min((uint32_t)((env->card->shared_bytes - rest) / per_slot), MOST_SLOTS);
  out->shared = persist_place(out->slots, out->n_entries).work + all;
  out->f16 = p.f16;
  out->bytes = entries_at(out) + out->n_entries * sizeof(persist_entry);
  return out->bytes;
}

extern "C" void df_cuda_list_fill(const df_cuda_env *env, const df_op *ops, uint32_t n, const df_cuda_list *l,
                                  void *host) {
  planner p = {};
  p.env = env;
  p.ops = ops;
  p.n = n;
  memset(host, 0, stages_at(l));
  p.stages = (persist_stage *)((uint8_t *)host + stages_at(l));
  p.entries = (persist_entry *)((uint8_t *)host + entries_at(l));
  (void)plan_all(&p);
}

int df_cuda_list_launch(const df_cuda_env *env) {
  const df_cuda_list *l = env->list;
  uint8_t *const at = (uint8_t *)l->memory;
  persist_args p = {};
  p.state = (uint32_t *)at;
  p.stages = (const persist_stage *)(at + stages_at(l));
  p.entries = (const persist_entry *)(at + entries_at(l));
  p.n_stages = l->n_stages;
  p.n_entries = l->n_entries;
  p.slots = l->slots;
  p.attn_at = l->attn_at;
  p.kept_at = l->kept_at;
  return df_cuda_persist_start(env, p, env->card->n_sm, l->shared, l->f16);
}
