/*
 * attention/third_leaf.h - the leaves over kernels from elsewhere (device/cuda/third): flashinfer, prefill-shaped, any
 * rows, able to read a mask; xqa, decode-shaped, up to DF_XQA_MAX_ROWS rows, never reads one. Both need a card, heads
 * of 64 or 128 and a build with the package; what does not fit is refused when they are made.
 *
 * They emit DF_OP_ATTN_EXTERN and launch it themselves. The kernels sit behind tables of functions, so that all of
 * this can be tested without a card.
 * Threads: one owner.
 */
#ifndef DF_ATTENTION_THIRD_LEAF_H
#define DF_ATTENTION_THIRD_LEAF_H

#include "attention/leaf.h"
#include "device/cuda/third/third_attn.h"

/* As df_attn_flashinfer_create and df_attn_xqa_create, over the given kernels. */
df_status df_attn_flashinfer_create_over(const df_fa2_api *api, const df_attn_shape *shape, df_attn **out,
                                         df_error *err) DF_CHECK;
df_status df_attn_xqa_create_over(const df_xqa_api *api, const df_attn_shape *shape, df_attn **out,
                                  df_error *err) DF_CHECK;

/* ---- shared by the two ---- */

/* UNSUPPORTED, naming the leaf and what would do instead, when there are no kernels for a head width. */
df_status df_third_check_head(const char *label, const df_attn_shape *shape, df_error *err) DF_CHECK;
df_status df_third_not_built(const char *label, df_error *err);
/* What a launch says to the device when the kernels themselves refuse: cudaErrorNotSupported. */
enum { DF_THIRD_NOT_SUPPORTED = 801 };
static inline int df_third_launched(int code) { return code == DF_THIRD_FAILED ? DF_THIRD_NOT_SUPPORTED : code; }
/* An error of the kernels, with their own words. */
df_status df_third_failed(const df_leaf *l, const char *what, int code, const char *text, df_error *err);
/* What a workspace has to hold. */
df_third_shape df_third_shape_of(const df_attn_shape *shape, uint32_t max_seqs, uint32_t max_rows);
/* MEMORY with numbers when the leaf's device has no room for a workspace. */
df_status df_third_fits(const df_leaf *l, size_t bytes, const char *what, df_error *err) DF_CHECK;
/* The op's part that both fill alike; INTERNAL when the batch's table is not the one the workspace was made for. */
df_status df_third_op(const df_leaf *l, const df_third_shape *made, const df_attn_pass *pass,
                      const df_attn_layer *layer, df_op_extern *op, df_error *err) DF_CHECK;

#endif
