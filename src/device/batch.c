#include "device/batch.h"

#include "base/mem.h"

const char *df_mode_name(df_mode m) {
  static const char *const names[] = {"extend", "decode", "target-verify", "draft-block", "idle"};
  return (unsigned)m < DF_MODE_COUNT ? names[m] : "?";
}

const char *df_mask_layout_name(df_mask_layout m) {
  static const char *const names[] = {"none", "qlen", "full"};
  return (unsigned)m < 3 ? names[m] : "?";
}

df_status df_batch_init(df_batch *b, uint32_t max_rows, uint32_t max_seqs, uint32_t max_pages, df_error *err) {
  df_batch t = {.max_rows = max_rows, .max_seqs = max_seqs, .max_pages = max_pages};
  t.ids = df_calloc(max_rows, sizeof *t.ids);
  t.pos = df_calloc(max_rows, sizeof *t.pos);
  t.slot = df_calloc(max_rows, sizeof *t.slot);
  t.out_row = df_calloc(max_rows, sizeof *t.out_row);
  t.q_start = df_calloc((size_t)max_seqs + 1, sizeof *t.q_start);
  t.kv_len = df_calloc(max_seqs, sizeof *t.kv_len);
  t.mask_start = df_calloc(max_seqs, sizeof *t.mask_start);
  t.page_table = df_calloc((size_t)max_seqs * max_pages, sizeof *t.page_table);
  if (!t.ids || !t.pos || !t.slot || !t.out_row || !t.q_start || !t.kv_len || !t.mask_start || !t.page_table) {
    df_batch_release(&t);
    return DF_OOM(err, "batch inputs", max_rows);
  }
  *b = t;
  return DF_OK;
}

void df_batch_release(df_batch *b) {
  df_free(b->ids);
  df_free(b->pos);
  df_free(b->slot);
  df_free(b->out_row);
  df_free(b->q_start);
  df_free(b->kv_len);
  df_free(b->mask_start);
  df_free(b->page_table);
  *b = (df_batch){0};
}
