#include "device/program.h"

#include <string.h>

#include "base/mem.h"
#include "base/pool.h"
#include "base/size.h"

enum { MAX_OPS = 4096, ARENA_BYTES = 4 << 20, CHUNK_BYTES = 64 << 10 };

struct df_program {
  uint32_t max_rows, max_seqs, n_workers;
  uint32_t n_ops, cap_ops;
  df_op *ops;
  df_step *steps;
  uint32_t *n_chunks;
  uint8_t *arena; /* op arguments; addresses stay fixed, so it never grows */
  size_t arena_used;
  void *made; /* by a device */
  size_t made_bytes;
  void (*release)(void *made);
};

const char *df_op_name(df_op_kind k) {
  static const char *const names[] = {"embed",      "norm",        "quantize",   "linear",    "ffn-up",
                                      "rope-kv",    "tap",         "attn-naive", "attn-tile", "attn-split",
                                      "attn-merge", "attn-extern", "recurrent",  "argmax",    "accept"};
  return (unsigned)k < DF_OP_COUNT ? names[k] : "?";
}

df_status df_program_create(uint32_t max_rows, uint32_t max_seqs, uint32_t n_workers, df_program **out, df_error *err) {
  df_program *p = df_calloc(1, sizeof *p);
  if (!p) return DF_OOM(err, "a program", sizeof *p);
  p->max_rows = max_rows;
  p->max_seqs = max_seqs;
  p->n_workers = n_workers;
  p->cap_ops = MAX_OPS;
  /* Lazily backed pages: a program uses what it emits, not what it could. */
  p->ops = df_pages_alloc(MAX_OPS * sizeof *p->ops);
  p->steps = df_pages_alloc(MAX_OPS * sizeof *p->steps);
  p->n_chunks = df_pages_alloc(MAX_OPS * sizeof *p->n_chunks);
  p->arena = df_pages_alloc(ARENA_BYTES);
  if (!p->ops || !p->steps || !p->n_chunks || !p->arena) {
    df_program_free(p);
    return DF_OOM(err, "a program", ARENA_BYTES);
  }
  *out = p;
  return DF_OK;
}

void df_program_attach(df_program *p, void *made, size_t bytes, void (*release)(void *made)) {
  if (p->made) p->release(p->made);
  p->made = made;
  p->made_bytes = bytes;
  p->release = release;
}

void *df_program_attached(const df_program *p) { return p->made; }

void df_program_free(df_program *p) {
  if (!p) return;
  df_program_attach(p, NULL, 0, NULL);
  df_pages_free(p->ops, MAX_OPS * sizeof *p->ops);
  df_pages_free(p->steps, MAX_OPS * sizeof *p->steps);
  df_pages_free(p->n_chunks, MAX_OPS * sizeof *p->n_chunks);
  df_pages_free(p->arena, ARENA_BYTES);
  df_free(p);
}

void df_program_clear(df_program *p, uint32_t max_rows, uint32_t max_seqs) {
  p->max_rows = max_rows;
  p->max_seqs = max_seqs;
  p->n_ops = 0;
  p->arena_used = 0;
  df_program_attach(p, NULL, 0, NULL);
}

uint32_t df_program_max_rows(const df_program *p) { return p->max_rows; }
uint32_t df_program_max_seqs(const df_program *p) { return p->max_seqs; }
uint32_t df_program_n_workers(const df_program *p) { return p->n_workers; }
size_t df_program_bytes(const df_program *p) {
  return p->n_ops * (sizeof(df_op) + sizeof(df_step) + sizeof(uint32_t)) + p->arena_used + p->made_bytes;
}

const df_op *df_program_ops(const df_program *p, uint32_t *n) {
  *n = p->n_ops;
  return p->ops;
}
df_step *df_program_steps(df_program *p) { return p->steps; }
const uint32_t *df_program_chunks(const df_program *p) { return p->n_chunks; }

df_status df_program_keep(df_program *p, const void *data, size_t bytes, void **out, df_error *err) {
  const size_t need = df_round_up(bytes, 64);
  if (need > ARENA_BYTES - p->arena_used)
    return DF_FAIL(err, DF_ERR_LIMIT, "a program of more than %d bytes is not supported", ARENA_BYTES);
  *out = p->arena + p->arena_used;
  memcpy(*out, data, bytes);
  p->arena_used += need;
  return DF_OK;
}

static df_status push(df_program *p, df_op_kind kind, const void *args, size_t bytes, uint32_t n_chunks,
                      df_error *err) {
  void *copy;
  if (p->n_ops == p->cap_ops)
    return DF_FAIL(err, DF_ERR_LIMIT, "a program of more than %d ops is not supported", MAX_OPS);
  DF_TRY(df_program_keep(p, args, bytes, &copy, err));
  p->ops[p->n_ops] = (df_op){kind, n_chunks, copy};
  p->n_chunks[p->n_ops] = n_chunks;
  p->n_ops++;
  return DF_OK;
}

size_t df_op_args_bytes(df_op_kind k) {
  static const size_t bytes[DF_OP_COUNT] = {[DF_OP_EMBED] = sizeof(df_op_embed),
                                            [DF_OP_NORM] = sizeof(df_op_norm),
                                            [DF_OP_QUANTIZE] = sizeof(df_op_quantize),
                                            [DF_OP_LINEAR] = sizeof(df_op_linear),
                                            [DF_OP_FFN_UP] = sizeof(df_op_ffn_up),
                                            [DF_OP_ROPE_KV] = sizeof(df_op_rope_kv),
                                            [DF_OP_TAP] = sizeof(df_op_tap),
                                            [DF_OP_ATTN_NAIVE] = sizeof(df_op_attn),
                                            [DF_OP_ATTN_TILE] = sizeof(df_op_attn),
                                            [DF_OP_ATTN_SPLIT] = sizeof(df_op_attn),
                                            [DF_OP_ATTN_MERGE] = sizeof(df_op_attn),
                                            [DF_OP_ATTN_EXTERN] = sizeof(df_op_extern),
                                            [DF_OP_RECURRENT] = sizeof(df_op_recurrent),
                                            [DF_OP_ARGMAX] = sizeof(df_op_argmax),
                                            [DF_OP_ACCEPT] = sizeof(df_op_accept)};
  return (unsigned)k < DF_OP_COUNT ? bytes[k] : 0;
}

df_status df_program_copy(const df_program *p, df_program **out, df_error *err) {
  df_program *c;
  DF_TRY(df_program_create(p->max_rows, p->max_seqs, p->n_workers, &c, err));
  for (uint32_t i = 0; i < p->n_ops; i++) {
    const df_op *op = &p->ops[i];
    const df_status s = push(c, op->kind, op->args, df_op_args_bytes(op->kind), op->n_chunks, err);
    if (s == DF_OK) continue;
    df_program_free(c);
    return s;
  }
  *out = c;
  return DF_OK;
}

/* The arguments lie in the arena of p itself. */
void *df_program_args(df_program *p, uint32_t op) { return p->arena + ((const uint8_t *)p->ops[op].args - p->arena); }

/* Row-wise ops: a few rows a chunk, so that a prefill spreads and a decode stays one chunk. */
static uint32_t row_chunks(const df_program *p) { return (p->max_rows + DF_ROWS_PER_CHUNK - 1) / DF_ROWS_PER_CHUNK; }

df_status df_emit_embed(df_program *p, const df_op_embed *a, df_error *err) {
  return push(p, DF_OP_EMBED, a, sizeof *a, row_chunks(p), err);
}

df_status df_emit_norm(df_program *p, const df_op_norm *a, df_error *err) {
  if (!a->out.f && !a->out.q) return DF_FAIL(err, DF_ERR_ARGUMENT, "norm without an output");
  return push(p, DF_OP_NORM, a, sizeof *a, row_chunks(p), err);
}

df_status df_emit_quantize(df_program *p, const df_op_quantize *a, df_error *err) {
  return push(p, DF_OP_QUANTIZE, a, sizeof *a, row_chunks(p), err);
}

/* Chunks small enough to balance the workers, large enough that claiming one costs nothing. */
static uint32_t strips_per_chunk(const df_program *p, uint32_t strips, size_t strip_bytes) {
  uint32_t by_bytes = (uint32_t)(CHUNK_BYTES / (strip_bytes ? strip_bytes : 1));
  uint32_t by_balance = strips / (p->n_workers * 8);
  uint32_t n = DF_MIN(by_bytes, by_balance);
  return n ? n : 1;
}

df_status df_emit_linear(df_program *p, const df_op_linear *a, df_error *err) {
  df_op_linear op = *a;
  if (op.n_parts == 0 || op.n_parts > DF_LINEAR_PARTS)
    return DF_FAIL(err, DF_ERR_ARGUMENT, "linear with %u parts", op.n_parts);
  size_t max_strip = 0;
  op.strips = 0;
  for (uint32_t i = 0; i < op.n_parts; i++) {
    const df_weights *w = op.part[i].w;
    if (w->k != op.x.k || (df_pack_wants_q8(w->pack) ? !op.x.q : !op.x.f))
      return DF_FAIL(err, DF_ERR_ARGUMENT, "linear part %u does not fit its input (k %u, input %u)", i, w->k, op.x.k);
    op.strips += df_strips(w->n);
    max_strip = DF_MAX(max_strip, w->strip_bytes);
  }
  op.strips_per_chunk = strips_per_chunk(p, op.strips, max_strip);
  return push(p, DF_OP_LINEAR, &op, sizeof op, (op.strips + op.strips_per_chunk - 1) / op.strips_per_chunk, err);
}

df_status df_emit_ffn_up(df_program *p, const df_op_ffn_up *a, df_error *err) {
  df_op_ffn_up op = *a;
  const df_weights *g = op.gate, *u = op.up;
  if (g->n != u->n || g->k != u->k || g->k != op.x.k || op.out.k != g->n || g->n % DF_QBLOCK)
    return DF_FAIL(err, DF_ERR_ARGUMENT, "gate and up projections do not fit (%ux%u and %ux%u)", g->n, g->k, u->n,
                   u->k);
  const uint32_t blocks = g->n / DF_QBLOCK;
  op.blocks_per_chunk = strips_per_chunk(p, blocks, 2 * (g->strip_bytes + u->strip_bytes));
  op.blocks_per_chunk = DF_MIN(op.blocks_per_chunk, (uint32_t)DF_FFN_MAX_BLOCKS);
  return push(p, DF_OP_FFN_UP, &op, sizeof op, (blocks + op.blocks_per_chunk - 1) / op.blocks_per_chunk, err);
}

df_status df_emit_rope_kv(df_program *p, const df_op_rope_kv *a, df_error *err) {
  df_op_rope_kv op = *a;
  op.by_head = p->max_rows > DF_ROWS_PER_CHUNK;
  const uint32_t pages = (p->max_rows + DF_KV_PAGE - 1) / DF_KV_PAGE;
  return push(p, DF_OP_ROPE_KV, &op, sizeof op, op.by_head ? pages * df_rope_kv_chunks(&op) : 1, err);
}

df_status df_emit_tap(df_program *p, const df_op_tap *a, df_error *err) {
  return push(p, DF_OP_TAP, a, sizeof *a, row_chunks(p), err);
}

df_status df_emit_attn(df_program *p, df_op_kind kind, const df_op_attn *a, df_error *err) {
  uint32_t n = 0;
  switch (kind) {
    case DF_OP_ATTN_NAIVE: n = p->max_rows; break;
    case DF_OP_ATTN_TILE: n = p->max_seqs * a->n_kv * a->n_tiles; break;
    case DF_OP_ATTN_SPLIT: n = p->max_seqs * a->n_kv * a->n_tiles * a->n_split; break;
    case DF_OP_ATTN_MERGE: n = p->max_seqs * a->n_kv * a->n_tiles * a->n_split; break;
    default: return DF_FAIL(err, DF_ERR_INTERNAL, "op %d is no attention op", (int)kind);
  }
  return push(p, kind, a, sizeof *a, n, err);
}

df_status df_emit_attn_extern(df_program *p, const df_op_extern *a, df_error *err) {
  if (!a->launch) return DF_FAIL(err, DF_ERR_INTERNAL, "attn-extern without a launcher");
  return push(p, DF_OP_ATTN_EXTERN, a, sizeof *a, 1, err);
}

df_status df_emit_recurrent(df_program *p, const df_op_recurrent *a, df_error *err) {
  return push(p, DF_OP_RECURRENT, a, sizeof *a, p->max_seqs * a->n_kv, err);
}

df_status df_emit_argmax(df_program *p, const df_op_argmax *a, df_error *err) {
  return push(p, DF_OP_ARGMAX, a, sizeof *a, p->max_rows * a->segments, err);
}

df_status df_emit_accept(df_program *p, const df_op_accept *a, df_error *err) {
  const uint32_t rows = df_accept_rows(a);
  if (rows == 0 || rows > DF_TILE_ROWS) return DF_FAIL(err, DF_ERR_ARGUMENT, "accept: blocks of %u rows", rows);
  return push(p, DF_OP_ACCEPT, a, sizeof *a, (p->max_rows + rows - 1) / rows, err);
}
