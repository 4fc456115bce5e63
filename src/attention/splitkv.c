/* splitkv: decode-shaped. Workers share the KV range of a sequence: every chunk of 64 positions yields a part, parts
 * are merged in order with flash's own operations, so both leaves give equal bits. Never reads a mask. */
#include "attention/leaf.h"
#include "base/size.h"

enum { MAX_ROWS = 64 }; /* bounds the part buffer: prefill through this leaf goes in passes of 64 rows */

static df_attn_caps splitkv_caps(const df_attn *a) {
  (void)a;
  return (df_attn_caps){.reads_mask = false,
                        .mask_layouts = 1u << DF_MASK_NONE,
                        .causal = true,
                        .sliding_window = true,
                        .graph_safe = true,
                        .max_rows = MAX_ROWS,
                        .kv_types = 1u << DF_KV_F16 | 1u << DF_KV_F32,
                        .page_sizes = DF_PAGE_SIZES};
}

static df_status splitkv_graph_init(df_attn *a, uint32_t max_seqs, uint32_t max_rows, df_error *err) {
  df_leaf *l = (df_leaf *)a;
  const uint32_t rows = DF_MIN(max_rows, (uint32_t)MAX_ROWS);
  /* Row tiles round up, and need not divide 16: room for one more tile per sequence. */
  DF_TRY(df_leaf_grow_parts(l, ((size_t)rows + DF_TILE_ROWS) * l->shape.n_heads * max_seqs, err));
  return df_leaf_graph_init(a, max_seqs, max_rows, err);
}

static df_status splitkv_emit(df_attn *a, const df_attn_pass *pass, const df_attn_layer *layer, df_error *err) {
  const df_leaf *l = (const df_leaf *)a;
  if (pass->mask_layout != DF_MASK_NONE)
    return DF_FAIL(err, DF_ERR_UNSUPPORTED, "attention backend \"%s\" cannot read a %s mask", a->label,
                   df_mask_layout_name(pass->mask_layout));
  df_op_attn op;
  df_leaf_op(l, pass, layer, &op);
  /* Workers share the KV range, so one tile may take all rows that fit: K and V are read once. */
  const uint32_t rows = op.tile_rows * op.n_tiles;
  op.tile_rows = df_leaf_max_tile(l);
  op.n_tiles = (rows + op.tile_rows - 1) / op.tile_rows;
  if (op.n_tiles * op.tile_rows > DF_MIN(l->max_rows, (uint32_t)MAX_ROWS) + DF_TILE_ROWS)
    return DF_FAIL(err, DF_ERR_LIMIT, "attention backend \"%s\" runs at most %u rows of a sequence in one pass",
                   a->label, DF_MIN(l->max_rows, (uint32_t)MAX_ROWS));
  op.parts = l->parts;
  op.max_chunks = df_leaf_max_chunks(l);
  const uint32_t tiles = df_program_max_seqs(pass->program) * op.n_kv * op.n_tiles;
  op.n_split = (2 * l->shape.n_workers + tiles - 1) / tiles;
  while (tiles * op.n_split % l->shape.n_workers) op.n_split++; /* no worker has one share more than another */
  DF_TRY(df_emit_attn(pass->program, DF_OP_ATTN_SPLIT, &op, err));
  op.n_split = DF_MIN(op.tile_rows, (2 * l->shape.n_workers + tiles - 1) / tiles); /* of a tile's rows */
  return df_emit_attn(pass->program, DF_OP_ATTN_MERGE, &op, err);
}

static const df_attn_ops k_splitkv_ops = {.caps = splitkv_caps,
                                          .graph_init = splitkv_graph_init,
                                          .plan = df_leaf_plan,
                                          .emit = splitkv_emit,
                                          .executor = df_leaf_executor,
                                          .mask = df_leaf_mask,
                                          .half = df_leaf_half,
                                          .commit = df_leaf_commit,
                                          .free = df_leaf_free};

df_status df_attn_splitkv_create(const df_attn_shape *shape, df_attn **out, df_error *err) {
  return df_leaf_create(&k_splitkv_ops, "splitkv", shape, out, err);
}
