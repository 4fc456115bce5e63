/*
 * device/program.h - the op vocabulary and the recorded op list.
 *
 * Model code emits ops into a df_program once; an executor runs it any number of times. All addresses are fixed
 * at emission; what changes between runs lives in a df_batch. An op splits into chunks that may run on any
 * worker in any order; the next op starts when all chunks of the one before are done.
 *
 * Threads: building is single-threaded; a run is started by one thread (device/device.h).
 */
#ifndef DF_DEVICE_PROGRAM_H
#define DF_DEVICE_PROGRAM_H

#include "base/error.h"
#include "device/batch.h"
#include "kernels/kernels.h"

typedef struct df_step df_step; /* base/pool.h, whose atomics C++ cannot read */

/* Rows of activations in the forms that consumers want; f and q may both be set, at least one is.
 * f: [rows][k]. q: tiles of 16 rows, each block-major (kernels.h), tile t at q + t * 16 * k/32. */
typedef struct df_act {
  float *f;
  df_actq *q;
  uint32_t k;
} df_act;

typedef enum df_op_kind {
  DF_OP_EMBED,
  DF_OP_NORM,
  DF_OP_QUANTIZE,
  DF_OP_LINEAR,
  DF_OP_FFN_UP,
  DF_OP_ROPE_KV,
  DF_OP_TAP,
  DF_OP_ATTN_NAIVE,
  DF_OP_ATTN_TILE,
  DF_OP_ATTN_SPLIT,
  DF_OP_ATTN_MERGE,
  DF_OP_ATTN_EXTERN,
  DF_OP_RECURRENT,
  DF_OP_ARGMAX,
  DF_OP_ACCEPT,
  DF_OP_COUNT
} df_op_kind;

const char *df_op_name(df_op_kind k);

/* What an argmax op left: for every row the best of each segment. Its token is the first of the largest. */
typedef struct df_best {
  const float *value; /* [row][segments]; NULL: there is none */
  const uint32_t *id; /* [row][segments] */
  const int32_t *map; /* token of each id; NULL: ids are tokens */
  uint32_t segments;
} df_best;

static inline int32_t df_best_of(const df_best *b, size_t row) {
  const float *value = b->value + row * b->segments;
  uint32_t s = 0;
  for (uint32_t i = 1; i < b->segments; i++)
    if (value[i] > value[s]) s = i;
  const uint32_t id = b->id[row * b->segments + s];
  return b->map ? b->map[id] : (int32_t)id;
}

/* Drafted tokens that stayed on the device: of rows 1 .. width-1 of each of the first *n_live sequences of a uniform
 * pass. Row i of `best` is draft i % (width - 1) of sequence i / (width - 1). */
typedef struct df_drafts {
  df_best best; /* value NULL: the pass verifies none, and nothing else is read */
  const uint32_t *n_live;
  uint32_t width;
} df_drafts;

/* out[r][0..k) = table row id * scale, where id is the draft's if row r is drafted, else ids[r] */
typedef struct df_op_embed {
  const df_weights *table;
  const int32_t *ids;
  const uint32_t *n_rows; /* live row count, read at run time, in every op */
  float *out;
  float scale;
  df_drafts drafts;
} df_op_embed;

/* out row r = rmsnorm(x row (row_map ? row_map[r] : r)); w has x_k entries; x has leading dimension x_k. */
typedef struct df_op_norm {
  const float *x;
  const float *w;
  const uint32_t *n_rows;
  const uint32_t *row_map;
  df_act out;
  float eps;
} df_op_norm;

/* out.q row r = quantize(x row (row_map ? row_map[r] : r)), x leading dimension out.k */
typedef struct df_op_quantize {
  const float *x;
  const uint32_t *n_rows;
  const uint32_t *row_map;
  df_act out;
} df_op_quantize;

enum {
  DF_LINEAR_PARTS = 16,
  DF_ROWS_PER_CHUNK = 4, /* row-wise ops */
  DF_FFN_MAX_BLOCKS = 8  /* 32-output blocks of one FFN_UP chunk: bounds the worker's scratch */
};

typedef struct df_linear_part {
  const df_weights *w;
  const float *bias; /* [n] or NULL */
  float *y;          /* y[r * ld + output] */
  size_t ld;
} df_linear_part;

/* Several products of the same input: q, k and v; or all K/V projections of a draft. */
typedef struct df_op_linear {
  df_act x;
  const uint32_t *n_rows;
  bool add; /* y += instead of y = */
  uint32_t n_parts;
  uint32_t strips, strips_per_chunk; /* filled by df_emit_linear */
  df_linear_part part[DF_LINEAR_PARTS];
} df_op_linear;

/* h = silu(gate x) * (up x), in the forms of out */
typedef struct df_op_ffn_up {
  df_act x;
  const uint32_t *n_rows;
  const df_weights *gate, *up;
  df_act out;
  uint32_t blocks_per_chunk; /* filled by df_emit_ffn_up */
} df_op_ffn_up;

/* Where one layer's K and V live. Blocks of 16 slots: block b, head g at k + g * head_stride + b * head_bytes, K
 * transposed, so that the blocks of one head form a stream that the hardware can foresee. token_major (page size 1, and
 * devices that want it): slot s, head g at k + (s * n_kv + g) * head_bytes / 16, both plain. */
typedef struct df_kv_view {
  uint8_t *k, *v;
  size_t head_bytes;  /* of one head's block: 16 * head_dim * element size */
  size_t head_stride; /* from one head's blocks to the next head's */
  df_kv_type type;
  bool token_major;
  uint32_t block_slots; /* that an entry of the page table stands for: 16, or 1 when the page size is 1 */
} df_kv_view;

/* Head norm (optional), rotation, and the K/V write of one layer. q may be NULL (draft injection). */
typedef struct df_op_rope_kv {
  float *q, *k, *v; /* q rotated in place, k in place before the write */
  size_t q_ld, k_ld, v_ld;
  const float *q_norm, *k_norm; /* [head_dim] or NULL */
  float eps;
  const float *cos, *sin; /* [position][head_dim / 2] */
  const uint32_t *pos, *slot, *n_rows;
  df_kv_view kv;
  uint32_t n_heads, n_kv, head_dim;
  bool by_head; /* filled by df_emit_rope_kv: chunks are heads and rows; else there is one */
} df_op_rope_kv;

/* Chunks of a page's worth of rows with by_head: one for the K and V of each head, then those of the queries. */
static inline uint32_t df_rope_kv_chunks(const df_op_rope_kv *a) {
  return a->n_kv + (a->q ? DF_KV_PAGE / DF_ROWS_PER_CHUNK : 0);
}

/* dst[(to_row ? to_row[r] : r) * ld + i] = x[(row_map ? row_map[r] : r) * k + i]: the residual stream after a tapped
 * layer, or gathered rows */
typedef struct df_op_tap {
  const float *x;
  float *dst;
  size_t ld;
  uint32_t k;
  const uint32_t *n_rows;
  const uint32_t *row_map, *to_row;
} df_op_tap;

/* All attention ops. out rows are the rows of the batch. */
typedef struct df_op_attn {
  const df_batch *batch;
  const float *q;
  size_t q_ld;
  df_act out; /* k = n_heads * head_dim */
  df_kv_view kv;
  uint32_t n_heads, n_kv, head_dim;
  float scale;
  bool causal;
  uint32_t window;            /* 0 = none, else a row sees positions > pos - window */
  df_mask_layout mask_layout; /* captured: NONE unless the program carries a mask */
  const df_mask_buffer *mask; /* read when mask_layout is not NONE */
  uint32_t seq0;              /* sequence of the whole batch that the batch's first one is (halves) */
  uint32_t tile_rows;         /* query rows of one chunk (TILE, SPLIT, MERGE) */
  uint32_t n_tiles;           /* per sequence */
  uint32_t n_split;           /* SPLIT: shares of the KV range; MERGE: shares of a tile's rows */
  uint32_t max_chunks;        /* SPLIT, MERGE: KV chunks the part buffer has room for */
  float *parts;               /* SPLIT, MERGE: [seq][kv head][tile][kv chunk][query][16 + head_dim] */
} df_op_attn;

/* Attention by kernels from elsewhere: who emits the op launches it too. `env` is the executor's (device/cuda:
 * df_cuda_env), addresses in op are the device's. Called once while a program is recorded, or once a pass; it neither
 * allocates nor waits. 0 or an error code of the device. */
typedef struct df_op_extern {
  df_op_attn attn;
  const uint32_t *page_table; /* that of attn.batch */
  int (*launch)(void *self, const struct df_op_extern *op, const void *env);
  void *self;      /* outlives the program */
  uint32_t record; /* the emitter's number of what this and other ops of the program share */
  bool first;      /* of those ops */
} df_op_extern;

/* A gated delta rule, one state matrix per (sequence, KV head); see attention/recurrent.h. */
typedef struct df_op_recurrent {
  const df_batch *batch;
  const float *q, *k, *v;
  size_t q_ld, kv_ld;
  df_act out;
  uint32_t n_heads, n_kv, head_dim, seq0;
  float scale;
  const float *decay, *beta; /* [n_kv] */
  float *committed;          /* of this layer in slot 0 */
  size_t slot_stride;
  float *behind; /* of this layer, sequence 0, row 0; NULL: the committed state moves at once */
  size_t seq_stride, row_stride;
} df_op_recurrent;

/* Per row: best logit of each segment; whoever reads it takes df_best_of. */
typedef struct df_op_argmax {
  const float *x;
  size_t ld;
  uint32_t n, segments;
  const uint32_t *n_rows;
  float *best;       /* [row][segments] */
  uint32_t *best_id; /* [row][segments] */
} df_op_argmax;

/* What the host is to know of a pass, of rows r < *n_rows of best: token[r] is df_best_of. A pass that verifies drafts
 * also leaves them, drafted[i] of row i of drafts.best, and accepted[s] of sequence s: its drafts in front of the first
 * that differs from the token of the row before it (row i of a block predicts what follows it). The last op. */
typedef struct df_op_accept {
  df_best best;
  df_drafts drafts;
  const uint32_t *n_rows;
  int32_t *token;     /* [row] */
  int32_t *drafted;   /* [row of drafts.best] */
  uint32_t *accepted; /* [sequence] */
} df_op_accept;

/* Rows of one chunk of it: those of a sequence when drafts are verified. */
static inline uint32_t df_accept_rows(const df_op_accept *a) { return a->drafts.best.value ? a->drafts.width : 16; }

typedef struct df_op {
  df_op_kind kind;
  uint32_t n_chunks;
  const void *args; /* owned by the program */
} df_op;

typedef struct df_program df_program;

/* max_rows and max_seqs bound the live counts of every later run and decide how ops split. */
df_status df_program_create(uint32_t max_rows, uint32_t max_seqs, uint32_t n_workers, df_program **out,
                            df_error *err) DF_CHECK;
void df_program_free(df_program *p);
/* Forgets all ops, keeps the memory, sets new bounds: eager execution emits into the same program every step. The
 * device must be quiet: late workers may still read the old list. */
void df_program_clear(df_program *p, uint32_t max_rows, uint32_t max_seqs);
uint32_t df_program_max_rows(const df_program *p);
uint32_t df_program_max_seqs(const df_program *p);
uint32_t df_program_n_workers(const df_program *p);
size_t df_program_bytes(const df_program *p);

/* Each copies its args. Errors: MEMORY, ARGUMENT when shapes do not fit together. */
df_status df_emit_embed(df_program *p, const df_op_embed *a, df_error *err) DF_CHECK;
df_status df_emit_norm(df_program *p, const df_op_norm *a, df_error *err) DF_CHECK;
df_status df_emit_quantize(df_program *p, const df_op_quantize *a, df_error *err) DF_CHECK;
df_status df_emit_linear(df_program *p, const df_op_linear *a, df_error *err) DF_CHECK;
df_status df_emit_ffn_up(df_program *p, const df_op_ffn_up *a, df_error *err) DF_CHECK;
df_status df_emit_rope_kv(df_program *p, const df_op_rope_kv *a, df_error *err) DF_CHECK;
df_status df_emit_tap(df_program *p, const df_op_tap *a, df_error *err) DF_CHECK;
df_status df_emit_attn(df_program *p, df_op_kind kind, const df_op_attn *a, df_error *err) DF_CHECK;
df_status df_emit_attn_extern(df_program *p, const df_op_extern *a, df_error *err) DF_CHECK;
df_status df_emit_recurrent(df_program *p, const df_op_recurrent *a, df_error *err) DF_CHECK;
df_status df_emit_argmax(df_program *p, const df_op_argmax *a, df_error *err) DF_CHECK;
df_status df_emit_accept(df_program *p, const df_op_accept *a, df_error *err) DF_CHECK;

/* For executors: the list and the run-time arrays that df_pool_walk wants. */
const df_op *df_program_ops(const df_program *p, uint32_t *n);
df_step *df_program_steps(df_program *p);
const uint32_t *df_program_chunks(const df_program *p);

/* What a device made of a program. It is freed with the program, when that is cleared, and when another takes its
 * place; bytes count as the program's. */
void df_program_attach(df_program *p, void *made, size_t bytes, void (*release)(void *made));
void *df_program_attached(const df_program *p); /* NULL without */

/* Size of a kind's arguments. */
size_t df_op_args_bytes(df_op_kind k);
/* A copy of the list, which takes arguments to be changed: those of op i are df_program_args(p, i). MEMORY. */
df_status df_program_copy(const df_program *p, df_program **out, df_error *err) DF_CHECK;
void *df_program_args(df_program *p, uint32_t op);
/* Bytes that live as long as the program's ops; LIMIT when there is no room left. */
df_status df_program_keep(df_program *p, const void *data, size_t bytes, void **out, df_error *err) DF_CHECK;

#endif
