/*
 * tests/cuda/third/third_rig.h - passes through the leaves flashinfer and xqa on a card, beside the same pass through
 * the leaf naive on the processor. Programs are lowered as the device does it, and launched directly or from a recorded
 * CUDA graph.
 *
 * Threads: one. What cannot be set up ends the program.
 */
#ifndef DF_TESTS_THIRD_RIG_H
#define DF_TESTS_THIRD_RIG_H

#include "attention/third_leaf.h"
#include "device/cpu/cpu_exec.h"
#include "device/lower.h"
#include "kv/store.h"

enum { TR_SEQS = 8, TR_POSITIONS = 1024, TR_ROWS = 256 };

typedef struct tr_spec {
  uint32_t n_kv, group, head_dim, page_size;
} tr_spec;

/* rows[i] rows of sequence i behind first[i] positions; filled up to `seqs` with sequences of the sink. */
typedef struct tr_pass {
  df_mode mode;
  uint32_t n, seqs;
  uint32_t rows[TR_SEQS], first[TR_SEQS];
  bool causal;
  uint32_t window;
  df_mask_layout layout;
  uint32_t dark; /* with a mask: row `dark` of every sequence sees nothing; UINT32_MAX: none */
} tr_pass;

typedef struct tr_rig {
  tr_spec s;
  df_cuda_card card;
  df_attn_shape shape;
  uint32_t width; /* heads * head_dim */
  df_pool *pool;
  df_cpu *cpu;
  df_pages pages;
  df_kv_seq seq[TR_SEQS];
  df_batch batch;
  df_mask_buffer mask;
  uint16_t *k, *v; /* token-major */
  size_t kv_bytes;
  float *q, *out, *want;
  df_actq *blocks; /* of out */
  df_mirrors mirrors;
  void *device[16];
  uint32_t n_device;
  void *stream;
  uint64_t rng;
} tr_rig;

/* A program in which a leaf runs one layer, lowered; recorded or not. */
typedef struct tr_program {
  df_program *p, *lowered;
  df_lower_uses uses;
  void *graph; /* cudaGraphExec_t, NULL: launched directly */
  df_cuda_env env;
  bool started; /* a recorded one has run */
} tr_program;

/* How far results are apart. */
typedef struct tr_error {
  double worst, nmse; /* largest difference; mean square of differences over that of the values wanted */
  bool dark_is_zero;  /* rows that see nothing are exactly 0 */
  bool blocks_match;  /* the 8-bit blocks are those of the floats beside them */
  bool repeatable;    /* the same pass again gives the same bits */
} tr_error;

/* False without a card: *why is one line. */
bool tr_card(df_cuda_card *card, const char **why);
void tr_init(tr_rig *r, const tr_spec *s, const df_cuda_card *card);
void tr_release(tr_rig *r);

/* Fills the batch, queries and mask for a pass, and `want` by the leaf naive. */
void tr_fill(tr_rig *r, const tr_pass *pass);
/* Emits one layer for at most so many rows and sequences. A refusal is the caller's. */
df_status tr_emit(tr_rig *r, df_attn *leaf, const tr_pass *pass, uint32_t rows, uint32_t seqs, bool recorded,
                  tr_program *out, df_error *err) DF_CHECK;
void tr_program_free(tr_program *p);
/* Plans and runs what tr_fill left, and compares. */
df_status tr_run(tr_rig *r, df_attn *leaf, const tr_pass *pass, tr_program *p, tr_error *out, df_error *err) DF_CHECK;
/* Milliseconds of n runs after what tr_run has planned. */
float tr_time(tr_rig *r, tr_program *p, uint32_t n);

uint32_t tr_below(tr_rig *r, uint32_t n);

#endif
