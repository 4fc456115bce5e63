#include "attention/third_leaf.h"

#include "base/size.h"

df_status df_third_check_head(const char *label, const df_attn_shape *shape, df_error *err) {
  if (df_third_has_head(shape->head_dim)) return DF_OK;
  (void)DF_FAIL(err, DF_ERR_UNSUPPORTED, "attention backend \"%s\" has kernels for heads of 64 and 128, not of %u",
                label, shape->head_dim);
  df_error_hint(err, "use \"cuda\", which takes any");
  return DF_ERR_UNSUPPORTED;
}

df_status df_third_not_built(const char *label, df_error *err) {
  (void)DF_FAIL(err, DF_ERR_UNSUPPORTED, "attention backend \"%s\" is not in this build", label);
  df_error_hint(err, "tools/fetch-flashinfer, then build with -DDF_FLASHINFER=ON; or use \"cuda\"");
  return DF_ERR_UNSUPPORTED;
}

df_status df_third_failed(const df_leaf *l, const char *what, int code, const char *text, df_error *err) {
  enum { OUT_OF_MEMORY = 2, NO_KERNEL = 209 }; /* cudaErrorMemoryAllocation, cudaErrorNoKernelImageForDevice */
  const df_status s = code == DF_THIRD_FAILED ? DF_ERR_INTERNAL
                      : code == OUT_OF_MEMORY ? DF_ERR_MEMORY
                      : code == NO_KERNEL     ? DF_ERR_UNSUPPORTED
                                              : DF_ERR_DEVICE;
  return DF_FAIL(err, s, "attention backend \"%s\" could not %s: %s", l->base.label, what, text);
}

df_third_shape df_third_shape_of(const df_attn_shape *s, uint32_t max_seqs, uint32_t max_rows) {
  const uint32_t per = s->page_size == 1 ? 1 : DF_KV_PAGE;
  const uint32_t positions = s->page_size == 1 ? s->max_positions : (uint32_t)df_round_up(s->max_positions, 64);
  return (df_third_shape){.n_heads = s->n_heads,
                          .n_kv = s->n_kv,
                          .head_dim = s->head_dim,
                          .max_rows = max_rows,
                          .max_seqs = max_seqs,
                          .max_blocks = positions / per,
                          .block_slots = per};
}

df_status df_third_fits(const df_leaf *l, size_t bytes, const char *what, df_error *err) {
  df_device *d = l->shape.device;
  return d ? d->ops->fits(d, bytes, what, err) : DF_OK;
}

df_status df_third_op(const df_leaf *l, const df_third_shape *made, const df_attn_pass *pass,
                      const df_attn_layer *layer, df_op_extern *op, df_error *err) {
  if (pass->batch->max_pages != made->max_blocks || layer->kv.block_slots != made->block_slots ||
      !layer->kv.token_major)
    return DF_FAIL(err, DF_ERR_INTERNAL,
                   "attention backend \"%s\" was made for page tables of %u entries of %u slots, not %u of %u",
                   l->base.label, made->max_blocks, made->block_slots, pass->batch->max_pages, layer->kv.block_slots);
  if (df_program_max_rows(pass->program) > made->max_rows)
    return DF_FAIL(err, DF_ERR_LIMIT, "attention backend \"%s\" has room for %u rows, a pass has %u", l->base.label,
                   made->max_rows, df_program_max_rows(pass->program));
  df_leaf_op(l, pass, layer, &op->attn);
  op->page_table = pass->batch->page_table;
  return DF_OK;
}
