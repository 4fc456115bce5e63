/*
 * attention/backend.h - the interface of attention backends.
 *
 * A leaf has kernels; a wrapper routes to children. Model code calls the outermost backend only. Everything a
 * wrapper does not own it forwards explicitly: there are no defaults that a forgotten op could fall back to.
 * Nothing compares a backend's label or type to decide behaviour; who needs to know asks an op.
 *
 * Ownership: df_attn_free releases a backend and its children.
 * Threads:   one owner; emitted ops run on the workers.
 */
#ifndef DF_ATTENTION_BACKEND_H
#define DF_ATTENTION_BACKEND_H

#include "device/device.h"

typedef struct df_attn df_attn;

/* Geometry and limits the leaves size their scratch by. */
typedef struct df_attn_shape {
  uint32_t n_heads, n_kv, head_dim;
  uint32_t max_positions; /* KV length a sequence may reach */
  uint32_t n_workers;
  df_device *device;  /* that the ops run on, borrowed; NULL = the host */
  uint32_t page_size; /* of the KV pool; 0 = DF_KV_PAGE */
} df_attn_shape;

typedef struct df_attn_caps {
  bool reads_mask;       /* can apply a mask at all */
  uint32_t mask_layouts; /* bit per df_mask_layout it can apply, NONE included */
  bool causal;           /* expresses a linear chain by itself */
  bool sliding_window;
  bool graph_safe;
  bool inexact;        /* results differ from those of the other leaves by rounding */
  bool recurrent;      /* keeps state that cannot be rolled back to an arbitrary position */
  uint32_t max_rows;   /* most rows of one sequence in one pass */
  uint32_t kv_types;   /* bit per df_kv_type */
  uint32_t page_sizes; /* sum of the sizes it can read: powers of two, so a bit each */
} df_attn_caps;

/* One layer's attention, as the model emits it. */
typedef struct df_attn_layer {
  const float *q, *k, *v; /* rows of this pass; k and v are also in the KV pool */
  size_t q_ld, kv_ld;
  df_act out;
  df_kv_view kv;
  uint32_t layer;
  bool causal;
  uint32_t window; /* 0 = none */
} df_attn_layer;

/* What a program is emitted for. */
typedef struct df_attn_pass {
  df_program *program;
  const df_batch *batch;
  df_mode mode;
  df_mask_layout mask_layout; /* captured */
  const df_mask_buffer *mask; /* the static input a captured mask is read from; NULL with NONE */
  uint32_t seq0;              /* sequence of the whole batch that the batch's first one is */
} df_attn_pass;

typedef enum df_attn_phase { DF_PHASE_EAGER, DF_PHASE_CAPTURE, DF_PHASE_REPLAY } df_attn_phase;

/* A verify mask's single owner and form; buffer NULL and layout NONE where nobody reads one. */
typedef struct df_verify_mask {
  uint8_t *buffer;
  size_t bytes;
  df_mask_layout layout;
  bool is_read;
} df_verify_mask;

typedef struct df_attn_ops {
  df_attn_caps (*caps)(const df_attn *a);
  /* Sizes fixed-address scratch; called once before any emit, and again only to grow. */
  df_status (*graph_init)(df_attn *a, uint32_t max_seqs, uint32_t max_rows, df_error *err);
  /* Before every run of a program that was emitted, recorded or not: host work, planning. */
  df_status (*plan)(df_attn *a, const df_program *p, const df_batch *batch, df_mode mode, df_attn_phase phase,
                    df_error *err);
  df_status (*emit)(df_attn *a, const df_attn_pass *pass, const df_attn_layer *layer, df_error *err);
  /* The leaf that runs a mode: a leaf returns itself, a wrapper its child (one step, not the whole way), NULL when it
   * has none or only itself. */
  df_attn *(*executor)(df_attn *a, df_mode mode);
  const df_verify_mask *(*mask)(const df_attn *a);
  /* The backend for half i (0, 1) of a batch that is run as two interleaved halves; NULL when it is not split. */
  df_attn *(*half)(df_attn *a, uint32_t i);
  /* Recurrent layers keep the state after the first lens[b] rows of the last verify; no-op elsewhere. */
  df_status (*commit)(df_attn *a, const df_batch *batch, const uint32_t *lens, uint32_t n_seqs, df_error *err);
  void (*free)(df_attn *a);
} df_attn_ops;

/* First member of every backend. */
struct df_attn {
  const df_attn_ops *ops;
  const char *label; /* for people: messages and reports */
};

static inline void df_attn_free(df_attn *a) {
  if (a) a->ops->free(a);
}

/* Leaves. */
df_status df_attn_naive_create(const df_attn_shape *shape, df_attn **out, df_error *err) DF_CHECK;
df_status df_attn_flash_create(const df_attn_shape *shape, df_attn **out, df_error *err) DF_CHECK;
df_status df_attn_splitkv_create(const df_attn_shape *shape, df_attn **out, df_error *err) DF_CHECK;
df_status df_attn_cuda_create(const df_attn_shape *shape, df_attn **out, df_error *err) DF_CHECK;
df_status df_attn_flashinfer_create(const df_attn_shape *shape, df_attn **out, df_error *err) DF_CHECK;
df_status df_attn_xqa_create(const df_attn_shape *shape, df_attn **out, df_error *err) DF_CHECK;

#endif
