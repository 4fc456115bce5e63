/*
 * device/batch.h - the static inputs of a program: fixed addresses, refilled completely before every run.
 *
 * Rows of sequence b are q_start[b] .. q_start[b+1]-1. A padded sequence has one page (the sink page 0),
 * length 1 and rows at position 0 whose slot lies in the sink page.
 * Threads: written by the step loop between runs, read by all workers during a run.
 */
#ifndef DF_DEVICE_BATCH_H
#define DF_DEVICE_BATCH_H

#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

typedef enum df_mode {
  DF_MODE_EXTEND,        /* prefill: ragged rows */
  DF_MODE_DECODE,        /* one row a sequence */
  DF_MODE_TARGET_VERIFY, /* W rows a sequence, uniform */
  DF_MODE_DRAFT_BLOCK,   /* draft model, W rows a sequence, non-causal in the block unless the draft is causal */
  DF_MODE_IDLE,
  DF_MODE_COUNT
} df_mode;

const char *df_mode_name(df_mode m);

/* Layout of a verify mask. FULL: per sequence rows x kv_len; QLEN: per sequence rows x rows, prefix visible. */
typedef enum df_mask_layout { DF_MASK_NONE, DF_MASK_QLEN, DF_MASK_FULL } df_mask_layout;

const char *df_mask_layout_name(df_mask_layout m);

/* The static input that a captured mask is read from: bytes, 1 = may attend. A pass planned with a mask copies it here;
 * one planned without leaves what was there, which is why a program captured with a mask must not run without. */
typedef struct df_mask_buffer {
  uint8_t *bytes;
  size_t *start;    /* [max_seqs] first byte of each sequence */
  size_t cap, used; /* used: bytes of the last mask, padding included */
  uint32_t max_seqs;
} df_mask_buffer;

typedef struct df_batch {
  /* capacity */
  uint32_t max_rows, max_seqs, max_pages; /* max_pages per sequence */
  /* live values */
  uint32_t n_rows, n_seqs;
  uint32_t n_live;      /* sequences that are not padding; they come first */
  uint32_t n_out;       /* rows that leave through the output tail */
  int32_t *ids;         /* [max_rows] */
  uint32_t *pos;        /* [max_rows] absolute position */
  uint32_t *slot;       /* [max_rows] KV slot = page * 16 + offset */
  uint32_t *q_start;    /* [max_seqs + 1] */
  uint32_t *kv_len;     /* [max_seqs] positions 0..kv_len-1 exist once this pass has written its rows */
  uint32_t *page_table; /* [max_seqs][max_pages]: 16-slot blocks, or slots when the page size is 1 */
  uint32_t *state_slot; /* [max_seqs] of recurrent layers; 0 = sink */
  uint32_t *out_row;    /* [max_rows] row of the pass that output row i is computed from */
  uint32_t *tap_row;    /* [max_rows] where in the memory of tapped rows a row's taps go */
  void *block;          /* holds all arrays, the page table last (a view's q_start lies elsewhere) */
  size_t block_bytes;
  /* the mask this pass was given, if any; borrowed */
  df_mask_layout mask_layout;
  const uint8_t *mask; /* live sequence after sequence without gaps */
  size_t mask_bytes;
} df_batch;

df_status df_batch_init(df_batch *b, uint32_t max_rows, uint32_t max_seqs, uint32_t max_pages, df_error *err) DF_CHECK;
void df_batch_release(df_batch *b);
/* First bytes of the block that a pass of at most n sequences reads. */
size_t df_batch_bytes(const df_batch *b, uint32_t n_seqs);

/* Bytes of sequence b's mask in a layout. */
size_t df_mask_seq_bytes(const df_batch *b, uint32_t seq, df_mask_layout layout);

df_status df_mask_buffer_init(df_mask_buffer *m, uint32_t max_seqs, size_t cap, df_error *err) DF_CHECK;
void df_mask_buffer_release(df_mask_buffer *m);
/* Copies the pass's mask into the static input; padding sequences see all there is. MASK_CONTRACT when the mask does
 * not cover the live sequences or does not fit. */
df_status df_mask_buffer_load(df_mask_buffer *m, const df_batch *b, df_error *err) DF_CHECK;

/* A view of sequences [s0, s1) of a uniform batch, rows renumbered from 0. The view's q_start is its own memory
 * ([max_seqs + 1]); all other arrays alias b. */
void df_batch_view(df_batch *view, const df_batch *b, uint32_t s0, uint32_t s1, uint32_t width);

#endif
