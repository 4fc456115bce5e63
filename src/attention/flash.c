/* flash: tiled online softmax, any number of rows, able to read a mask. Whether a program reads one is fixed when
 * it is captured: the op carries the layout. */
#include "attention/leaf.h"

static df_status flash_emit(df_attn *a, const df_attn_pass *pass, const df_attn_layer *layer, df_error *err) {
  df_op_attn op;
  df_leaf_op((const df_leaf *)a, pass, layer, &op);
  return df_emit_attn(pass->program, DF_OP_ATTN_TILE, &op, err);
}

static const df_attn_ops k_flash_ops = {.caps = df_leaf_mask_caps,
                                        .graph_init = df_leaf_graph_init,
                                        .plan = df_leaf_plan,
                                        .emit = flash_emit,
                                        .executor = df_leaf_executor,
                                        .mask = df_leaf_mask,
                                        .half = df_leaf_half,
                                        .commit = df_leaf_commit,
                                        .free = df_leaf_free};

df_status df_attn_flash_create(const df_attn_shape *shape, df_attn **out, df_error *err) {
  return df_leaf_create(&k_flash_ops, "flash", shape, out, err);
}
