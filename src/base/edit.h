/* base/edit.h - how far apart two words are, for "did you mean". Threads: pure function. */
#ifndef DF_BASE_EDIT_H
#define DF_BASE_EDIT_H

#include <stddef.h>

/* Levenshtein distance with transpositions of neighbours, bounded: returns limit + 1 when larger, or when a word is
 * longer than 64 bytes. */
unsigned df_edit_distance(const char *a, size_t na, const char *b, size_t nb, unsigned limit);

#endif
