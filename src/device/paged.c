#include "device/paged.h"

#include <string.h>

static df_status add(df_paged *p, const df_batch *b, uint32_t s, uint32_t block_slots, df_error *err) {
  const uint32_t len = df_seq_len(b, s), n = (len + block_slots - 1) / block_slots;
  const size_t at = (size_t)p->page_start[s];
  if (n > b->max_pages || n > p->max_pages - at)
    return DF_FAIL(err, DF_ERR_LIMIT, "%u positions of sequence %u pass its %u pages of %u", len, s, b->max_pages,
                   block_slots);
  memcpy(p->pages + at, b->page_table + (size_t)s * b->max_pages, n * sizeof *p->pages);
  p->q_start[s + 1] = (int32_t)b->q_start[s + 1];
  p->page_start[s + 1] = (int32_t)(at + n);
  p->last[s] = n ? (int32_t)(len - (n - 1) * block_slots) : 0;
  return DF_OK;
}

/* One that is not there. */
static void add_none(df_paged *p, uint32_t s) {
  p->q_start[s + 1] = p->q_start[s];
  p->page_start[s + 1] = p->page_start[s];
  p->last[s] = 0;
}

static df_status place_masks(df_paged *p, const df_batch *b, uint32_t seqs, df_error *err) {
  size_t at = 0;
  for (uint32_t s = 0; s < seqs; s++) {
    p->mask_start[s] = (int32_t)at;
    if (s < b->n_seqs) at += df_mask_bits_bytes(b->q_start[s + 1] - b->q_start[s], df_seq_len(b, s));
    if (at > INT32_MAX) return DF_FAIL(err, DF_ERR_LIMIT, "verify masks of more than 2 GiB");
  }
  return DF_OK;
}

df_status df_paged_build(df_paged *p, const df_batch *b, uint32_t block_slots, uint32_t seqs, bool with_mask,
                         df_error *err) {
  if (b->n_seqs > seqs || seqs > p->max_seqs)
    return DF_FAIL(err, DF_ERR_INTERNAL, "%u sequences where a program has %u, room for %u", b->n_seqs, seqs,
                   p->max_seqs);
  p->q_start[0] = p->page_start[0] = 0;
  for (uint32_t s = 0; s < seqs; s++) {
    if (s < b->n_seqs)
      DF_TRY(add(p, b, s, block_slots, err));
    else
      add_none(p, s);
  }
  return with_mask ? place_masks(p, b, seqs, err) : DF_OK;
}
