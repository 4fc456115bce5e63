#include "attention/verify_mask.h"

df_status df_attn_resolve(df_attn *a, df_mode mode, df_attn **leaf, uint32_t *depth, df_error *err) {
  const char *outer = a->label;
  const df_attn *path[DF_ATTN_MAX_DEPTH + 1];
  for (uint32_t d = 0;; d++) {
    df_attn *next = a->ops->executor(a, mode);
    if (!next)
      return DF_FAIL(err, DF_ERR_INTERNAL, "attention backend \"%s\" has nobody to run %s", a->label,
                     df_mode_name(mode));
    if (next == a) {
      *leaf = a;
      if (depth) *depth = d;
      return DF_OK;
    }
    path[d] = a;
    for (uint32_t i = 0; i <= d; i++)
      if (path[i] == next)
        return DF_FAIL(err, DF_ERR_ARGUMENT, "attention backend \"%s\" leads back to \"%s\" when asked who runs %s",
                       outer, next->label, df_mode_name(mode));
    if (d + 1 > DF_ATTN_MAX_DEPTH)
      return DF_FAIL(err, DF_ERR_ARGUMENT, "attention backend \"%s\" is nested deeper than %d", outer,
                     DF_ATTN_MAX_DEPTH);
    a = next;
  }
}

df_status df_verify_mask_policy(df_attn *a, df_draft_shape shape, df_mask_decision *out, df_error *err) {
  df_attn *leaf;
  df_mask_decision d = {0};
  DF_TRY(df_attn_resolve(a, DF_MODE_TARGET_VERIFY, &leaf, &d.depth, err));
  const df_attn_caps c = leaf->ops->caps(leaf);
  d.executor = leaf;
  if (shape == DF_DRAFT_CHAIN && c.causal) {
    d.layout = DF_MASK_NONE;
    d.reason = "a linear chain is plain causal attention, and the executor is causal";
  } else if (c.reads_mask && c.mask_layouts & (1u << DF_MASK_QLEN | 1u << DF_MASK_FULL)) {
    d.layout = c.mask_layouts & 1u << DF_MASK_QLEN ? DF_MASK_QLEN : DF_MASK_FULL;
    d.reason = shape == DF_DRAFT_TREE ? "a tree needs a mask" : "the executor cannot express causality without a mask";
  } else {
    return DF_FAIL(err, DF_ERR_UNSUPPORTED, "%s verify runs on \"%s\" (through \"%s\"), which cannot read a mask",
                   shape == DF_DRAFT_TREE ? "a tree" : "a chain", leaf->label, a->label);
  }
  *out = d;
  return DF_OK;
}
