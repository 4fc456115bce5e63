/*
 * support/attn_rig.h - attention leaves without a model: made-up queries, keys and values, whose pages this file writes
 * by itself, and the answer in double precision.
 *
 * Ownership: attn_rig_init and attn_rig_release; backends handed to attn_rig_run stay the caller's. Threads: one
 * caller. Everything fails the current test when it cannot be done.
 */
#ifndef DF_TEST_SUPPORT_ATTN_RIG_H
#define DF_TEST_SUPPORT_ATTN_RIG_H

#include "attention/backend.h"
#include "device/cpu/cpu_exec.h"
#include "kv/fill.h"
#include "kv/store.h"

enum { RIG_SEQS = 3, RIG_LEN = 146, RIG_BATCH = 8, RIG_ROWS = 160, RIG_LEAVES = 3 };

typedef struct attn_rig_spec {
  uint32_t n_kv, group, head_dim, page_size, threads;
  df_kv_type kv;
  uint32_t window; /* 0 = none */
  bool block;      /* draft block: not causal among the rows of a pass */
  uint64_t seed;
} attn_rig_spec;

typedef struct attn_rig {
  attn_rig_spec s;
  df_attn_shape shape;
  df_pool *pool;
  df_cpu *cpu;
  df_pages pages;
  df_kv_store store;
  df_kv_seq seq[RIG_SEQS];
  df_batch batch;
  df_mask_buffer mask;
  float *k, *v;   /* [seq][position][kv head][e], already rounded to the KV type */
  float *q, *out; /* [row][heads * e] of the last pass */
  uint32_t width; /* heads * e */
} attn_rig;

/* A run of rows of one stored sequence; the same one may occur in a batch more than once. */
typedef struct attn_rig_item {
  uint32_t seq, first, n;
} attn_rig_item;

void attn_rig_init(attn_rig *r, const attn_rig_spec *s);
void attn_rig_release(attn_rig *r);
/* Every byte of the store becomes NaN, the sink included. */
void attn_rig_poison(attn_rig *r);
/* Keys and values of positions [from, to). */
void attn_rig_write(attn_rig *r, uint32_t seq, uint32_t from, uint32_t to);
/* A leaf by index: flash, splitkv, naive. */
df_attn *attn_rig_leaf(const attn_rig *r, uint32_t i);
const char *attn_rig_leaf_name(uint32_t i);
/* Most rows of one pass. */
uint32_t attn_rig_leaf_rows(uint32_t i);

/* One pass. pad: sequences the program is made for (0 = as many as there are); uniform passes are filled up. mask:
 * bytes of all sequences in turn, NULL with DF_MASK_NONE. */
void attn_rig_run(attn_rig *r, df_attn *leaf, df_mode mode, const attn_rig_item *items, uint32_t n, uint32_t pad,
                  df_mask_layout layout, const uint8_t *mask, size_t mask_bytes);

/* The answer for one row in double: positions [0, len) that may_see allows (NULL: what the spec says; len = rows there
 * are). */
typedef bool (*attn_rig_see)(const void *ctx, uint32_t position);
void attn_rig_oracle(const attn_rig *r, uint32_t seq, uint32_t pos, uint32_t len, attn_rig_see may_see, const void *ctx,
                     double *out);

/* The whole programme for one spec: a table of all positions by decoding one row at a time, held against the oracle;
 * then every leaf, in ragged prefills, decodes of 1 to 8 sequences and verifies of 1 to 16 rows, has to give the
 * table's bits, also with NaN wherever no key has been written. */
void attn_rig_check_all(const attn_rig_spec *s);

#endif
