#include "attention/leaf.h"

#include <math.h>

#include "base/mem.h"
#include "base/size.h"
#include "device/cpu/cpu_ops.h"

df_status df_leaf_create(const df_attn_ops *ops, const char *label, const df_attn_shape *shape, df_attn **out,
                         df_error *err) {
  return df_leaf_create_larger(ops, label, shape, sizeof(df_leaf), out, err);
}

df_status df_leaf_create_larger(const df_attn_ops *ops, const char *label, const df_attn_shape *shape, size_t bytes,
                                df_attn **out, df_error *err) {
  const df_attn_shape *s = shape;
  if (s->n_kv == 0 || s->n_heads % s->n_kv)
    return DF_FAIL(err, DF_ERR_UNSUPPORTED, "%u query heads do not divide among %u KV heads", s->n_heads, s->n_kv);
  if (s->head_dim % DF_QBLOCK || s->head_dim > DF_ATTN_MAX_HEAD)
    return DF_FAIL(err, DF_ERR_UNSUPPORTED, "head width %u is not a multiple of %d up to %d", s->head_dim, DF_QBLOCK,
                   DF_ATTN_MAX_HEAD);
  if (s->n_heads / s->n_kv > DF_ATTN_MAX_QUERIES)
    return DF_FAIL(err, DF_ERR_UNSUPPORTED, "%u query heads per KV head exceed %d", s->n_heads / s->n_kv,
                   DF_ATTN_MAX_QUERIES);
  df_leaf *l = df_calloc(1, bytes);
  if (!l) return DF_OOM(err, "an attention backend", bytes);
  l->base.ops = ops;
  l->base.label = label;
  l->shape = *shape;
  *out = &l->base;
  return DF_OK;
}

df_attn_caps df_leaf_mask_caps(const df_attn *a) {
  (void)a;
  return (df_attn_caps){.reads_mask = true,
                        .mask_layouts = 1u << DF_MASK_NONE | 1u << DF_MASK_QLEN | 1u << DF_MASK_FULL,
                        .causal = true,
                        .sliding_window = true,
                        .graph_safe = true,
                        .max_rows = UINT32_MAX,
                        .kv_types = 1u << DF_KV_F16 | 1u << DF_KV_F32,
                        .page_sizes = DF_PAGE_SIZES};
}

df_status df_leaf_graph_init(df_attn *a, uint32_t max_seqs, uint32_t max_rows, df_error *err) {
  (void)err;
  df_leaf *l = (df_leaf *)a;
  l->max_seqs = max_seqs;
  l->max_rows = max_rows;
  return DF_OK;
}

df_status df_leaf_plan(df_attn *a, const df_program *p, const df_batch *batch, df_mode mode, df_attn_phase phase,
                       df_error *err) {
  (void)a, (void)p, (void)batch, (void)mode, (void)phase, (void)err; /* CPU ops read the batch itself */
  return DF_OK;
}

df_attn *df_leaf_executor(df_attn *a, df_mode mode) {
  (void)mode;
  return a;
}

const df_verify_mask *df_leaf_mask(const df_attn *a) {
  (void)a;
  static const df_verify_mask none = {0};
  return &none;
}

df_attn *df_leaf_half(df_attn *a, uint32_t i) {
  (void)a, (void)i;
  return NULL;
}

df_status df_leaf_commit(df_attn *a, const df_batch *batch, const uint32_t *lens, uint32_t n_seqs, df_error *err) {
  (void)a, (void)batch, (void)lens, (void)n_seqs, (void)err; /* KV rolls back by length */
  return DF_OK;
}

static void free_parts(const df_leaf *l, float *parts, size_t bytes) {
  df_device_unmap(l->shape.device, parts);
  df_pages_free(parts, bytes);
}

void df_leaf_free(df_attn *a) {
  df_leaf *l = (df_leaf *)a;
  free_parts(l, l->parts, l->parts_bytes);
  while (l->outgrown) {
    df_leaf_scratch *old = l->outgrown;
    l->outgrown = old->next;
    free_parts(l, old->memory, old->bytes);
    df_free(old);
  }
  df_free(l);
}

uint32_t df_leaf_max_chunks(const df_leaf *l) { return (l->shape.max_positions + DF_KV_CHUNK - 1) / DF_KV_CHUNK; }

df_status df_leaf_grow_parts(df_leaf *l, size_t queries, df_error *err) {
  size_t floats, bytes;
  if (!df_mul_size(queries, df_leaf_max_chunks(l), &floats) ||
      !df_mul_size(floats, (DF_ATTN_PART + l->shape.head_dim) * sizeof(float), &bytes))
    return DF_FAIL(err, DF_ERR_LIMIT, "parts of %zu queries overflow memory", queries);
  if (bytes <= l->parts_bytes) return DF_OK;
  df_leaf_scratch *old = l->parts ? df_alloc(sizeof *old) : NULL;
  float *p = !l->parts || old ? df_pages_alloc(bytes) : NULL; /* backed only as far as contexts really reach */
  const df_status s = p ? df_device_map(l->shape.device, p, bytes, DF_MEM_SCRATCH, "parts of attention", err)
                        : DF_OOM(err, "parts of attention", bytes);
  if (s != DF_OK) {
    df_pages_free(p, bytes);
    df_free(old);
    return s;
  }
  if (old) {
    *old = (df_leaf_scratch){l->outgrown, l->parts, l->parts_bytes};
    l->outgrown = old;
  }
  l->parts = p;
  l->parts_bytes = bytes;
  return DF_OK;
}

uint32_t df_leaf_max_tile(const df_leaf *l) {
  const uint32_t group = l->shape.n_heads / l->shape.n_kv;
  return DF_MIN((uint32_t)DF_TILE_ROWS, (uint32_t)DF_ATTN_MAX_QUERIES / group);
}

enum { MIN_TILE = 4 }; /* smaller tiles even work out less than they cost in reading K and V again */

/* Query rows of one chunk: as many as the scratch holds, so that K and V are read once for all rows of a verify; fewer
 * where the chunks would not come out even among the workers (neighbouring chunks share K and V in one worker's cache).
 * Tiling moves work between workers and never changes a bit. */
static uint32_t tile_rows(const df_leaf *l, uint32_t rows, uint32_t seqs) {
  const uint32_t workers = l->shape.n_workers;
  uint32_t t = df_leaf_max_tile(l);
  while (t > 2) {
    const uint32_t chunks = seqs * l->shape.n_kv * ((rows + t - 1) / t);
    if (chunks >= workers && (chunks % workers == 0 || chunks >= 4 * workers || t <= MIN_TILE)) break;
    t /= 2;
  }
  return t;
}

void df_leaf_op(const df_leaf *l, const df_attn_pass *pass, const df_attn_layer *layer, df_op_attn *op) {
  const df_attn_shape *s = &l->shape;
  /* Rows of one sequence: uniform over the batch, or in a ragged pass up to all of them. */
  const uint32_t all = df_program_max_rows(pass->program), seqs = df_program_max_seqs(pass->program);
  const uint32_t rows = pass->mode == DF_MODE_EXTEND ? all : (all + seqs - 1) / seqs;
  *op = (df_op_attn){.batch = pass->batch,
                     .q = layer->q,
                     .q_ld = layer->q_ld,
                     .out = layer->out,
                     .kv = layer->kv,
                     .n_heads = s->n_heads,
                     .n_kv = s->n_kv,
                     .head_dim = s->head_dim,
                     .scale = 1.0f / sqrtf((float)s->head_dim),
                     .causal = layer->causal,
                     .window = layer->window,
                     .mask_layout = pass->mask_layout,
                     .mask = pass->mask,
                     .seq0 = pass->seq0};
  op->tile_rows = tile_rows(l, rows, seqs);
  op->n_tiles = (rows + op->tile_rows - 1) / op->tile_rows;
}
