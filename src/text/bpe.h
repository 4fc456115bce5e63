/*
 * text/bpe.h - merging the bytes of one piece into tokens (byte pair encoding): again and again the adjacent pair with
 * the lowest rank, the leftmost of equals, until no pair is left that has one.
 *
 * The table maps a pair of token ids to its rank and the id it makes. A piece of n bytes takes O(n log n) time and
 * O(n) memory whatever it holds.
 *
 * Threads: a filled table may be read by any number of threads; each brings its own df_bpe_scratch.
 * Source: Sennrich, Haddow, Birch 2016 (arXiv 1508.07909); byte-level form of GPT-2.
 */
#ifndef DF_TEXT_BPE_H
#define DF_TEXT_BPE_H

#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

/* Growable list of token ids. Zero-initialised is empty. */
typedef struct df_ids {
  int32_t *v; /* owned; df_ids_release */
  size_t n, cap;
} df_ids;

void df_ids_release(df_ids *ids);
/* Make room for `extra` more / append one. DF_ERR_MEMORY; the list keeps what it had. */
df_status df_ids_reserve(df_ids *ids, size_t extra, df_error *err) DF_CHECK;
df_status df_ids_push(df_ids *ids, int32_t id, df_error *err) DF_CHECK;

typedef struct df_bpe_slot {
  uint64_t pair; /* left id in the high half, right id in the low half; all ones = free */
  uint32_t rank;
  int32_t made;
} df_bpe_slot;

typedef struct df_bpe {
  df_bpe_slot *slots; /* owned */
  size_t mask;        /* number of slots - 1, a power of two - 1 */
  size_t count;
  int32_t byte_id[256]; /* token of each single byte, or -1: such bytes vanish before merging */
} df_bpe;

/* Reusable working memory of one thread. Zero-initialised is empty. */
typedef struct df_bpe_scratch {
  struct df_bpe_symbol *symbols;
  size_t symbols_cap;
  struct df_bpe_entry *heap;
  size_t heap_cap;
} df_bpe_scratch;

/* Room for n_merges pairs; every byte_id is -1. DF_ERR_MEMORY. */
df_status df_bpe_init(df_bpe *b, size_t n_merges, df_error *err) DF_CHECK;
void df_bpe_release(df_bpe *b);
/* Adds a pair (all ids >= 0); a pair that is there already keeps its old rank. At most n_merges times. */
void df_bpe_add(df_bpe *b, int32_t left, int32_t right, uint32_t rank, int32_t made);

/* Appends the tokens of one piece to *out. DF_ERR_MEMORY, DF_ERR_LIMIT for a piece above 1 GiB; *out may then hold
 * a part. */
df_status df_bpe_encode(const df_bpe *b, const char *piece, size_t n, df_bpe_scratch *scratch, df_ids *out,
                        df_error *err) DF_CHECK;
void df_bpe_scratch_release(df_bpe_scratch *scratch);

#endif
