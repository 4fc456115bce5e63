/* cuda: the leaf of a card. Any rows, causal or not, windows, any mask; the same chunks of 64 positions merged in the
 * same order as in flash and splitkv, hence the same bits.
 *
 * Where tiles of query rows alone do not fill the card, the KV range is shared too (splitkv's ops: every chunk yields a
 * part, parts are merged in order); where they do, a tile walks its chunks by itself and stores no parts. */
#include "attention/leaf.h"
#include "base/size.h"
#include "device/cpu/cpu_ops.h"

enum {
  FILLS_A_CARD = 256, /* tiles: about two for each multiprocessor of a large card */
  SPLIT_ROWS = 64,    /* most rows of one sequence in a pass that is split: longer ones are prefill */
  MAX_PARTS = 1 << 30 /* bytes: what the parts of a split pass may take */
};

static df_attn_caps cuda_caps(const df_attn *a) {
  df_attn_caps c = df_leaf_mask_caps(a);
  c.kv_types = 1u << DF_KV_F16;
  return c;
}

/* Rows of a pass, all sequences together, that the parts are made for. */
static uint32_t split_rows(const df_leaf *l) {
  const size_t row = (size_t)l->shape.n_heads * df_leaf_max_chunks(l) * (DF_ATTN_PART + l->shape.head_dim) * 4;
  const size_t most = MAX_PARTS / row;
  const uint32_t wanted = FILLS_A_CARD / l->shape.n_kv * df_leaf_max_tile(l);
  const uint32_t there = l->max_seqs * SPLIT_ROWS;
  return (uint32_t)DF_MIN(most, (size_t)DF_MIN(DF_MAX(wanted, 2u * SPLIT_ROWS), there));
}

static df_status cuda_graph_init(df_attn *a, uint32_t max_seqs, uint32_t max_rows, df_error *err) {
  df_leaf *l = (df_leaf *)a;
  DF_TRY(df_leaf_graph_init(a, max_seqs, max_rows, err));
  return df_leaf_grow_parts(l, (size_t)split_rows(l) * l->shape.n_heads, err);
}

static df_status cuda_emit(df_attn *a, const df_attn_pass *pass, const df_attn_layer *layer, df_error *err) {
  const df_leaf *l = (const df_leaf *)a;
  df_op_attn op;
  df_leaf_op(l, pass, layer, &op);
  const uint32_t seqs = df_program_max_seqs(pass->program), rows = op.tile_rows * op.n_tiles;
  op.tile_rows = df_leaf_max_tile(l);
  op.n_tiles = (rows + op.tile_rows - 1) / op.tile_rows;
  op.n_split = 1;
  const bool few = (uint64_t)seqs * op.n_kv * op.n_tiles < FILLS_A_CARD && rows <= SPLIT_ROWS + op.tile_rows;
  if (!few || (uint64_t)seqs * op.n_tiles * op.tile_rows > split_rows(l))
    return df_emit_attn(pass->program, DF_OP_ATTN_TILE, &op, err);
  op.parts = l->parts;
  op.max_chunks = df_leaf_max_chunks(l);
  DF_TRY(df_emit_attn(pass->program, DF_OP_ATTN_SPLIT, &op, err));
  return df_emit_attn(pass->program, DF_OP_ATTN_MERGE, &op, err);
}

static const df_attn_ops k_cuda_ops = {.caps = cuda_caps,
                                       .graph_init = cuda_graph_init,
                                       .plan = df_leaf_plan,
                                       .emit = cuda_emit,
                                       .executor = df_leaf_executor,
                                       .mask = df_leaf_mask,
                                       .half = df_leaf_half,
                                       .commit = df_leaf_commit,
                                       .free = df_leaf_free};

df_status df_attn_cuda_create(const df_attn_shape *shape, df_attn **out, df_error *err) {
  return df_leaf_create(&k_cuda_ops, "cuda", shape, out, err);
}
