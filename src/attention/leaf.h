/* attention/leaf.h - what the leaves share. Private to src/attention. */
#ifndef DF_ATTENTION_LEAF_H
#define DF_ATTENTION_LEAF_H

#include "attention/backend.h"
#include "kv/pages.h"

typedef struct df_leaf {
  df_attn base;
  df_attn_shape shape;
  uint32_t max_seqs, max_rows; /* of graph_init */
  float *parts;                /* splitkv: partial results of all KV chunks */
  size_t parts_bytes;
  struct df_leaf_scratch *outgrown; /* former parts: programs recorded before still point there; owned */
} df_leaf;

typedef struct df_leaf_scratch {
  struct df_leaf_scratch *next;
  float *memory;
  size_t bytes;
} df_leaf_scratch;

/* Checks the shape and allocates a leaf with the given ops. */
df_status df_leaf_create(const df_attn_ops *ops, const char *label, const df_attn_shape *shape, df_attn **out,
                         df_error *err) DF_CHECK;
/* The same with room for more: `bytes` begin with a df_leaf, the rest is zero. */
df_status df_leaf_create_larger(const df_attn_ops *ops, const char *label, const df_attn_shape *shape, size_t bytes,
                                df_attn **out, df_error *err) DF_CHECK;
/* Capabilities of the leaves that read any mask and take any number of rows. */
df_attn_caps df_leaf_mask_caps(const df_attn *a);
/* The ops that are the same for every leaf. */
df_status df_leaf_graph_init(df_attn *a, uint32_t max_seqs, uint32_t max_rows, df_error *err) DF_CHECK;
df_status df_leaf_plan(df_attn *a, const df_program *p, const df_batch *batch, df_mode mode, df_attn_phase phase,
                       df_error *err) DF_CHECK;
df_attn *df_leaf_executor(df_attn *a, df_mode mode);
const df_verify_mask *df_leaf_mask(const df_attn *a);
df_attn *df_leaf_half(df_attn *a, uint32_t i);
df_status df_leaf_commit(df_attn *a, const df_batch *batch, const uint32_t *lens, uint32_t n_seqs,
                         df_error *err) DF_CHECK;
void df_leaf_free(df_attn *a);

/* Room for parts of so many queries in all: allocated, mapped, zero. LIMIT, MEMORY. */
df_status df_leaf_grow_parts(df_leaf *l, size_t queries, df_error *err) DF_CHECK;
/* KV chunks of the longest sequence. */
uint32_t df_leaf_max_chunks(const df_leaf *l);

/* Most query rows of one chunk. */
uint32_t df_leaf_max_tile(const df_leaf *l);
/* Fills the op fields common to all leaves, and the row tiling for a program. */
void df_leaf_op(const df_leaf *l, const df_attn_pass *pass, const df_attn_layer *layer, df_op_attn *op);

#endif
