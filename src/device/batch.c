#include "device/batch.h"

#include <string.h>

#include "base/mem.h"
#include "base/size.h"

const char *df_mode_name(df_mode m) {
  static const char *const names[] = {"extend", "decode", "target-verify", "draft-block", "idle"};
  return (unsigned)m < DF_MODE_COUNT ? names[m] : "?";
}

const char *df_mask_layout_name(df_mask_layout m) {
  static const char *const names[] = {"none", "qlen", "full"};
  return (unsigned)m < 3 ? names[m] : "?";
}

/* Places an array of n items of 4 bytes behind those before it; with block NULL only its room is counted. */
static void *place(uint8_t *block, size_t *at, size_t n) {
  void *p = block ? block + *at : NULL;
  *at = df_round_up(*at + 4 * n, 64);
  return p;
}

static size_t place_all(df_batch *b, uint8_t *block) {
  size_t at = 0;
  b->ids = place(block, &at, b->max_rows);
  b->pos = place(block, &at, b->max_rows);
  b->slot = place(block, &at, b->max_rows);
  b->out_row = place(block, &at, b->max_rows);
  b->tap_row = place(block, &at, b->max_rows);
  b->q_start = place(block, &at, (size_t)b->max_seqs + 1);
  b->kv_len = place(block, &at, b->max_seqs);
  b->state_slot = place(block, &at, b->max_seqs);
  b->page_table = place(block, &at, (size_t)b->max_seqs * b->max_pages);
  return at;
}

df_status df_batch_init(df_batch *b, uint32_t max_rows, uint32_t max_seqs, uint32_t max_pages, df_error *err) {
  df_batch t = {.max_rows = max_rows, .max_seqs = max_seqs, .max_pages = max_pages};
  t.block_bytes = place_all(&t, NULL);
  t.block = df_calloc(1, t.block_bytes);
  if (!t.block) return DF_OOM(err, "batch inputs", t.block_bytes);
  (void)place_all(&t, t.block);
  *b = t;
  return DF_OK;
}

void df_batch_release(df_batch *b) {
  df_free(b->block);
  *b = (df_batch){0};
}

size_t df_batch_bytes(const df_batch *b, uint32_t n_seqs) {
  const size_t fixed = (size_t)((const uint8_t *)b->page_table - (const uint8_t *)b->block);
  return fixed + (size_t)n_seqs * b->max_pages * sizeof *b->page_table;
}

size_t df_mask_seq_bytes(const df_batch *b, uint32_t seq, df_mask_layout layout) {
  const size_t rows = b->q_start[seq + 1] - b->q_start[seq];
  if (layout == DF_MASK_NONE) return 0;
  return rows * (layout == DF_MASK_FULL ? b->kv_len[seq] : rows);
}

df_status df_mask_buffer_init(df_mask_buffer *m, uint32_t max_seqs, size_t cap, df_error *err) {
  df_mask_buffer t = {.cap = cap, .max_seqs = max_seqs};
  t.bytes = df_pages_alloc(cap);
  t.start = df_calloc(max_seqs, sizeof *t.start);
  if (!t.bytes || !t.start) {
    df_mask_buffer_release(&t);
    return DF_OOM(err, "the verify mask", cap);
  }
  *m = t;
  return DF_OK;
}

void df_mask_buffer_release(df_mask_buffer *m) {
  df_pages_free(m->bytes, m->cap);
  df_free(m->start);
  *m = (df_mask_buffer){0};
}

df_status df_mask_buffer_load(df_mask_buffer *m, const df_batch *b, df_error *err) {
  size_t at = 0, live = 0;
  for (uint32_t s = 0; s < b->n_seqs; s++) {
    m->start[s] = at;
    at += df_mask_seq_bytes(b, s, b->mask_layout);
    if (s < b->n_live) live = at;
  }
  if (live > b->mask_bytes || at > m->cap)
    return DF_FAIL(err, DF_ERR_MASK_CONTRACT,
                   "a %s mask of %zu bytes does not cover the batch (%zu needed, %zu with padding, room for %zu)",
                   df_mask_layout_name(b->mask_layout), b->mask_bytes, live, at, m->cap);
  memcpy(m->bytes, b->mask, live);
  memset(m->bytes + live, 1, at - live);
  m->used = at;
  return DF_OK;
}

void df_batch_view(df_batch *view, const df_batch *b, uint32_t s0, uint32_t s1, uint32_t width) {
  uint32_t *q_start = view->q_start;
  const uint32_t r0 = s0 * width;
  *view = *b;
  view->q_start = q_start;
  view->n_seqs = s1 - s0;
  view->n_live = b->n_live <= s0 ? 0 : DF_MIN(b->n_live, s1) - s0;
  view->n_rows = (s1 - s0) * width;
  view->ids = b->ids + r0;
  view->pos = b->pos + r0;
  view->slot = b->slot + r0;
  view->tap_row = b->tap_row + r0;
  view->kv_len = b->kv_len + s0;
  view->state_slot = b->state_slot + s0;
  view->page_table = b->page_table + (size_t)s0 * b->max_pages;
  for (uint32_t i = 0; i <= view->n_seqs; i++) q_start[i] = i * width;
}
