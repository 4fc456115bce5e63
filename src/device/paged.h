/*
 * device/paged.h - a batch as paged kernels from elsewhere want it: one list of pages without gaps, where each
 * sequence's rows and pages begin, and custom masks as bits.
 *
 * Length of a sequence: its positions; of one that fills the batch up, at least its rows, so that every row has a
 * position of its own to see (they read the sink).
 *
 * Ownership: the arrays are the caller's (pinned memory on a card). Threads: one.
 */
#ifndef DF_DEVICE_PAGED_H
#define DF_DEVICE_PAGED_H

#include "device/mask_bits.h"

typedef struct df_paged {
  uint32_t max_seqs;
  size_t max_pages;    /* room in pages */
  int32_t *q_start;    /* [max_seqs + 1] first row of each sequence */
  int32_t *page_start; /* [max_seqs + 1] its first entry in pages */
  int32_t *last;       /* [max_seqs] positions on its last page, 0 without a page */
  int32_t *mask_start; /* [max_seqs] first byte of its mask as bits */
  int32_t *pages;      /* entries of the page table */
} df_paged;

/* Fills the arrays for sequences [0, seqs): those of the batch, then sequences without rows and pages. block_slots:
 * slots an entry of the page table stands for. with_mask: mask_start too (df_mask_bits_bytes each, no gaps). LIMIT when
 * a sequence has more pages than the table or the list has room for, or masks pass 2 GiB; INTERNAL when the batch has
 * more sequences than `seqs`. */
df_status df_paged_build(df_paged *p, const df_batch *b, uint32_t block_slots, uint32_t seqs, bool with_mask,
                         df_error *err) DF_CHECK;

#endif
