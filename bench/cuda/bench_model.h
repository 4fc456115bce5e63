/* bench/cuda/bench_model.h - a model of made-up weights on the card, as the op list that the engine would emit. */
#ifndef DF_BENCH_CUDA_MODEL_H
#define DF_BENCH_CUDA_MODEL_H

#include "device/cuda/cuda_kernels.h"

typedef struct bench_shape {
  const char *name;
  uint32_t hidden, layers, heads, n_kv, head_dim, ffn, vocab;
  df_dtype quant, table; /* quantised: layers, and the embedding that is the head too; equal: not measured */
} bench_shape;

enum { BENCH_SHAPES = 5 };
extern const bench_shape bench_shapes[BENCH_SHAPES];

/* Where an op sits in the list. */
enum { BENCH_EMBED, BENCH_NORM, BENCH_QKV, BENCH_ATTN, BENCH_O, BENCH_FFN, BENCH_DOWN, BENCH_HEAD, BENCH_ARGMAX };

typedef struct bench_op {
  df_op_kind kind;
  int site;
  union {
    df_op_embed embed;
    df_op_norm norm;
    df_op_linear linear;
    df_op_ffn_up ffn_up;
    df_op_rope_kv rope_kv;
    df_op_attn attn;
    df_op_argmax argmax;
  } args;
} bench_op;

typedef struct bench_model {
  const bench_shape *shape;
  const char *type_name;
  df_dtype type, table;  /* of layers; of the embedding, which is the head too */
  uint32_t rows, length; /* of the pass; positions behind it */
  struct CUstream_st *stream;
  df_cuda_card card;
  df_cuda_env env;
  df_cuda_list list;
  void *list_memory;
  bench_op *op;
  uint32_t n_ops;
  df_weights *w;
  uint32_t n_w;
  uint8_t *arena; /* device memory of everything */
  size_t used, arena_bytes;
  df_batch *batch; /* device */
} bench_model;

/* NULL, or why not. */
const char *bench_model_open(bench_model *m, const bench_shape *s, bool quant, uint32_t length);
void bench_model_close(bench_model *m);
/* The rows of later passes: one sequence up to 16, sequences of 16 rows beyond. */
void bench_model_rows(bench_model *m, uint32_t rows);
/* Launches the ops whose site is in the set; number of launches. */
uint32_t bench_model_launch(bench_model *m, uint64_t sites, bool overlap);
/* Bytes of weights that those ops read. */
double bench_model_bytes(const bench_model *m, uint64_t sites);

#endif
