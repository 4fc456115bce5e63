#include "kv/fill.h"

#include <assert.h>
#include <string.h>

enum { DF_KV_BLOCK = 16 };

void df_fill_begin(df_batch *b) {
  b->n_rows = b->n_seqs = b->n_live = b->n_out = 0;
  b->q_start[0] = 0;
  b->mask = NULL;
  b->mask_layout = DF_MASK_NONE;
}

/* The table that kernels read: blocks of 16 slots, or slots. */
static void add_pages(df_batch *b, const df_kv_seq *seq) {
  uint32_t *table = b->page_table + (size_t)b->n_seqs * b->max_pages;
  const uint32_t per = seq ? (seq->page_size > DF_KV_BLOCK ? seq->page_size / DF_KV_BLOCK : 1) : 1;
  uint32_t n = 0;
  for (uint32_t i = 0; seq && i < seq->n_pages; i++)
    for (uint32_t j = 0; j < per && n < b->max_pages; j++) table[n++] = seq->pages[i] * per + j;
  memset(table + n, 0, (b->max_pages - n) * sizeof *table);
  b->state_slot[b->n_seqs] = seq ? seq->state : 0;
}

static void add_out(df_batch *b, uint32_t row, uint32_t n, df_fill_out out) {
  uint32_t from = 0;
  if (out == DF_OUT_NONE) return;
  if (out == DF_OUT_LAST) from = n - 1;
  if (out == DF_OUT_ALL_BUT_FIRST) from = 1;
  for (uint32_t i = from; i < n; i++) b->out_row[b->n_out++] = row + i;
}

uint32_t df_fill_add(df_batch *b, const df_kv_seq *seq, const int32_t *ids, uint32_t n, uint32_t first,
                     df_fill_out out) {
  assert(b->n_seqs < b->max_seqs && b->n_rows + n <= b->max_rows);
  const uint32_t row = b->n_rows, out0 = b->n_out;
  for (uint32_t i = 0; i < n; i++) {
    b->ids[row + i] = ids[i];
    b->pos[row + i] = first + i;
    b->slot[row + i] = df_kv_slot(seq, first + i);
    b->tap_row[row + i] = row + i;
  }
  add_pages(b, seq);
  add_out(b, row, n, out);
  b->kv_len[b->n_seqs++] = first + n;
  b->n_live = b->n_seqs;
  b->n_rows += n;
  b->q_start[b->n_seqs] = b->n_rows;
  return out0;
}

void df_fill_add_rows(df_batch *b, const df_kv_seq *seq, uint32_t row0, uint32_t n, uint32_t first) {
  assert(b->n_rows + n <= b->max_rows);
  for (uint32_t i = 0; i < n; i++) {
    const uint32_t r = b->n_rows++;
    b->out_row[r] = row0 + i;
    b->pos[r] = first + i;
    b->slot[r] = df_kv_slot(seq, first + i);
  }
  b->n_seqs = b->n_live = 1; /* rows are independent: no sequence structure is read */
}

void df_fill_pad(df_batch *b, uint32_t seqs, uint32_t width) {
  assert(seqs <= b->max_seqs && b->n_rows + (seqs - b->n_seqs) * width <= b->max_rows);
  while (b->n_seqs < seqs) {
    for (uint32_t i = 0; i < width; i++) {
      const uint32_t r = b->n_rows++;
      b->ids[r] = 0;
      b->pos[r] = 0;
      b->slot[r] = 0;
      b->tap_row[r] = r;
    }
    add_pages(b, NULL);
    b->kv_len[b->n_seqs++] = 1;
    b->q_start[b->n_seqs] = b->n_rows;
  }
}
