/* naive: the plainest form of the contract. One query at a time, every chunk from position 0, visibility asked position
 * by position, any mask. Same operations per query as the other leaves, hence the same bits: what tiling, splitting or
 * a shared range could get wrong shows as a difference to it. (Values are held against double precision in the tests.)
 */
#include "attention/leaf.h"

static df_status naive_emit(df_attn *a, const df_attn_pass *pass, const df_attn_layer *layer, df_error *err) {
  df_op_attn op;
  df_leaf_op((const df_leaf *)a, pass, layer, &op);
  return df_emit_attn(pass->program, DF_OP_ATTN_NAIVE, &op, err);
}

static const df_attn_ops k_naive_ops = {.caps = df_leaf_mask_caps,
                                        .graph_init = df_leaf_graph_init,
                                        .plan = df_leaf_plan,
                                        .emit = naive_emit,
                                        .executor = df_leaf_executor,
                                        .mask = df_leaf_mask,
                                        .half = df_leaf_half,
                                        .commit = df_leaf_commit,
                                        .free = df_leaf_free};

df_status df_attn_naive_create(const df_attn_shape *shape, df_attn **out, df_error *err) {
  return df_leaf_create(&k_naive_ops, "naive", shape, out, err);
}
