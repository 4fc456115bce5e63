/*
 * support/tiny_target.h - a target on a tiny model with any attention backend, driven pass by pass.
 *
 * Ownership: tiny_open's model is closed with df_model_close; a tiny_target owns what it was given like df_target does.
 * Threads: one caller. Everything but tiny_try fails the current test when it cannot be done.
 */
#ifndef DF_TEST_SUPPORT_TINY_TARGET_H
#define DF_TEST_SUPPORT_TINY_TARGET_H

#include "draft/drafter.h"
#include "support/tiny_model.h"

enum { TINY_SEQS = 5, TINY_LEN = 160, TINY_ROWS = 160 };

typedef struct tiny_options {
  df_attn *attn; /* NULL: a flash leaf */
  df_kv_type kv;
  uint32_t page_size; /* 0 = 16 */
  uint32_t max_seqs;  /* 0 = TINY_SEQS */
  bool eager;
  df_mask_layout mask;
  const uint32_t *buckets;
  uint32_t n_buckets;
  const uint32_t *taps;
  uint32_t n_taps;
} tiny_options;

typedef struct tiny_target {
  df_pages pages;
  df_target t;
  df_kv_seq seq[TINY_SEQS]; /* state slot i + 1 */
} tiny_target;

/* Rows of one sequence in a pass. */
typedef struct tiny_item {
  uint32_t seq, first, n;
} tiny_item;

df_model *tiny_open(const tiny_spec *s, uint32_t threads);
/* On a device: see df_model_params. */
df_model *tiny_open_on(const tiny_spec *s, uint32_t threads, const char *device);
/* The default draft for a target made from s. */
df_draft *tiny_open_draft(const tiny_spec *s, df_model *m);
df_attn_shape tiny_shape(const df_model *m);
/* flash, splitkv or naive. */
df_attn *tiny_leaf(const df_model *m, const char *name);

void tiny_target_init(tiny_target *x, df_model *m, const tiny_options *o);
void tiny_target_release(tiny_target *x);

/* Token of a sequence's text at a position: fixed, made up. */
int32_t tiny_id(uint32_t seq, uint32_t pos);

/* Fills the batch with these rows; every row leaves through the tail. */
void tiny_fill(tiny_target *x, const tiny_item *items, uint32_t n);
/* tiny_fill and a pass that leaves logits. */
void tiny_run(tiny_target *x, df_mode mode, const tiny_item *items, uint32_t n);
/* The same with a mask of the live sequences (NULL: none), and the status. */
df_status tiny_try(tiny_target *x, df_mode mode, const tiny_item *items, uint32_t n, df_mask_layout layout,
                   const uint8_t *mask, size_t bytes, df_error *err);
/* Logits of output row r of the last pass: m->cfg.vocab values, valid until the next one. */
const float *tiny_logits(tiny_target *x, uint32_t row);
size_t tiny_row_bytes(const tiny_target *x);

/* Positions 0 .. len-1 of a sequence in one prefill. */
void tiny_prefill(tiny_target *x, uint32_t seq, uint32_t len);

/* A table of logits [seq][position] made by decoding alone, one sequence at a time, on the naive leaf. Release with
 * df_pages_free(table, tiny_table_bytes(m)). */
float *tiny_table(df_model *m, df_kv_type kv, uint32_t len);
size_t tiny_table_bytes(const df_model *m);
/* The last pass's rows are the table's, bit for bit. */
void tiny_assert_rows(tiny_target *x, const float *table, const tiny_item *items, uint32_t n, const char *what);

/* Greedy text of all sequences, stepping together with `width` rows each, behind `prompt` tokens of each text: text[s *
 * TINY_LEN + i], i < n_new (a step may write up to 16 more). d may be NULL with width 1. Returns how many drafts were
 * accepted. */
uint32_t tiny_generate(tiny_target *x, df_drafter *d, uint32_t prompt, uint32_t n_new, uint32_t width, int32_t *text);

#endif
