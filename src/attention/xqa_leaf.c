/* xqa: the decode-shaped kernel that TensorRT-LLM's MHA uses on Hopper. Several rows of a sequence (verify, short
 * prefills) go through its form for speculative decoding, whose mask covers the rows of the pass alone and is always a
 * chain here. What a pass needs is derived on the card, so there is nothing to plan. */
#include "attention/third_leaf.h"
#include "base/size.h"

typedef struct xqa_leaf {
  df_leaf leaf;
  const df_xqa_api *api;
  df_xqa *work;
  df_third_shape made;
  const df_program *program; /* that the last op went to, and how long it was */
  uint32_t n_ops;
} xqa_leaf;

static df_attn_caps xqa_caps(const df_attn *a) {
  (void)a;
  return (df_attn_caps){.reads_mask = false,
                        .mask_layouts = 1u << DF_MASK_NONE,
                        .causal = true,
                        .sliding_window = false,
                        .graph_safe = true,
                        .inexact = true,
                        .max_rows = DF_XQA_MAX_ROWS,
                        .kv_types = 1u << DF_KV_F16,
                        .page_sizes = DF_PAGE_SIZES & ~1u};
}

static df_status xqa_graph_init(df_attn *a, uint32_t max_seqs, uint32_t max_rows, df_error *err) {
  xqa_leaf *x = (xqa_leaf *)a;
  if (x->work && max_seqs <= x->made.max_seqs && max_rows <= x->made.max_rows) return DF_OK;
  if (x->work)
    return DF_FAIL(err, DF_ERR_LIMIT, "attention backend \"xqa\" cannot grow from %u rows of %u sequences to %u of %u",
                   x->made.max_rows, x->made.max_seqs, max_rows, max_seqs);
  DF_TRY(df_leaf_graph_init(a, max_seqs, max_rows, err));
  x->made = df_third_shape_of(&x->leaf.shape, max_seqs, max_rows);
  DF_TRY(df_third_fits(&x->leaf, x->api->bytes(&x->made), "the workspace of attention backend \"xqa\"", err));
  const int e = x->api->create(&x->made, &x->work);
  return e ? df_third_failed(&x->leaf, "make its workspace", e, x->api->text(NULL, e), err) : DF_OK;
}

static int launch(void *self, const df_op_extern *op, const void *env) {
  const xqa_leaf *x = self;
  return df_third_launched(x->api->launch(x->work, op->record, op, env));
}

/* Rows that a sequence of the program may have. */
static uint32_t most_rows(const df_attn_pass *pass) {
  const uint32_t all = df_program_max_rows(pass->program), seqs = df_program_max_seqs(pass->program);
  return pass->mode == DF_MODE_EXTEND ? DF_MIN(all, (uint32_t)DF_XQA_MAX_ROWS) : (all + seqs - 1) / seqs;
}

static df_status xqa_emit(df_attn *a, const df_attn_pass *pass, const df_attn_layer *layer, df_error *err) {
  xqa_leaf *x = (xqa_leaf *)a;
  if (pass->mask_layout != DF_MASK_NONE)
    return DF_FAIL(err, DF_ERR_UNSUPPORTED, "attention backend \"xqa\" cannot read a %s mask",
                   df_mask_layout_name(pass->mask_layout));
  if (layer->window)
    return DF_FAIL(err, DF_ERR_UNSUPPORTED, "attention backend \"xqa\" has no sliding window (layer %u has one of %u)",
                   layer->layer, layer->window);
  df_op_extern op = {.launch = launch, .self = x, .record = most_rows(pass)};
  if (op.record > DF_XQA_MAX_ROWS)
    return DF_FAIL(err, DF_ERR_LIMIT, "attention backend \"xqa\" runs at most %d rows of a sequence in one pass",
                   DF_XQA_MAX_ROWS);
  DF_TRY(df_third_op(&x->leaf, &x->made, pass, layer, &op, err));
  uint32_t n;
  (void)df_program_ops(pass->program, &n);
  op.first = x->program != pass->program || n <= x->n_ops; /* shorter: the program was begun anew */
  x->program = pass->program;
  x->n_ops = n;
  return df_emit_attn_extern(pass->program, &op, err);
}

static void xqa_free(df_attn *a) {
  xqa_leaf *x = (xqa_leaf *)a;
  x->api->free(x->work);
  df_leaf_free(a);
}

static const df_attn_ops k_xqa_ops = {.caps = xqa_caps,
                                      .graph_init = xqa_graph_init,
                                      .plan = df_leaf_plan,
                                      .emit = xqa_emit,
                                      .executor = df_leaf_executor,
                                      .mask = df_leaf_mask,
                                      .half = df_leaf_half,
                                      .commit = df_leaf_commit,
                                      .free = xqa_free};

df_status df_attn_xqa_create_over(const df_xqa_api *api, const df_attn_shape *s, df_attn **out, df_error *err) {
  if (!api) return df_third_not_built("xqa", err);
  DF_TRY(df_third_check_head("xqa", s, err));
  if (s->n_kv && s->n_heads / s->n_kv > DF_XQA_MAX_GROUP)
    return DF_FAIL(
        err, DF_ERR_UNSUPPORTED,
        "attention backend \"xqa\" has kernels for up to %d query heads per KV head, not for %u (use \"cuda\")",
        DF_XQA_MAX_GROUP, s->n_heads / s->n_kv);
  if (s->page_size == 1)
    return DF_FAIL(err, DF_ERR_UNSUPPORTED,
                   "attention backend \"xqa\" reads KV pages of 16 or 64 tokens, not of 1 "
                   "(--page-size)");
  DF_TRY(df_leaf_create_larger(&k_xqa_ops, "xqa", s, sizeof(xqa_leaf), out, err));
  ((xqa_leaf *)*out)->api = api;
  return DF_OK;
}

df_status df_attn_xqa_create(const df_attn_shape *shape, df_attn **out, df_error *err) {
  return df_attn_xqa_create_over(df_xqa_get(), shape, out, err);
}
