/*
 * kv/fill.h - writing the static inputs of a pass from sequences and their page tables. A pass is begun, gets its
 * sequences one by one, and is padded to its bucket: every input that a program reads is written on every pass.
 */
#ifndef DF_KV_FILL_H
#define DF_KV_FILL_H

#include "device/batch.h"
#include "kv/pages.h"

typedef enum df_fill_out { DF_OUT_NONE, DF_OUT_LAST, DF_OUT_ALL, DF_OUT_ALL_BUT_FIRST } df_fill_out;

void df_fill_begin(df_batch *b);
/* Appends n tokens of one sequence at positions first.. (n >= 1, room is the caller's duty). Returns the index of its
 * first output row. */
uint32_t df_fill_add(df_batch *b, const df_kv_seq *seq, const int32_t *ids, uint32_t n, uint32_t first,
                     df_fill_out out);
/* Rows without embedding or output: injection into draft KV. row0 is the first of the tapped rows. */
void df_fill_add_rows(df_batch *b, const df_kv_seq *seq, uint32_t row0, uint32_t n, uint32_t first);
/* Adds padding sequences of `width` rows until there are `seqs`: sink slot, position 0, length 1, no output. */
void df_fill_pad(df_batch *b, uint32_t seqs, uint32_t width);

#endif
