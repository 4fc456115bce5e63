/*
 * text/detok.h - token ids to text, one token at a time: hands out whole characters only and holds back the bytes of
 * one that is not complete yet.
 *
 * All outputs together, the one of df_detok_flush included, are exactly df_tokenizer_decode of all ids without
 * DF_DECODE_RAW: broken UTF-8 becomes U+FFFD, one for each maximal subpart (text/utf8.h), as soon as the byte that
 * breaks it has come.
 *
 * Ownership: a df_detok is a plain value that borrows the tokenizer; copying it takes a snapshot. Nothing to release.
 * Threads: one thread at a time for each df_detok.
 */
#ifndef DF_TEXT_DETOK_H
#define DF_TEXT_DETOK_H

#include "text/tokenizer.h"

typedef struct df_detok {
  const df_tokenizer *tok; /* borrowed */
  bool show_special;       /* control tokens appear as their text */
  uint8_t n_held;          /* bytes held back, 0..3 */
  char held[4];
} df_detok;

static inline void df_detok_init(df_detok *d, const df_tokenizer *tok, bool show_special) {
  *d = (df_detok){.tok = tok, .show_special = show_special};
}

/* Appends to *out what token `id` completes (maybe nothing). A hidden control token changes nothing: a character may
 * continue behind it. DF_ERR_ARGUMENT for an id outside the vocabulary, DF_ERR_MEMORY, DF_ERR_LIMIT beyond out->max; on
 * failure both d and out->len are as before. */
df_status df_detok_push(df_detok *d, int32_t id, df_buf *out, df_error *err) DF_CHECK;

/* The same for n bytes that were already taken from tokens (a stop filter between tokens and text). */
df_status df_detok_push_bytes(df_detok *d, const char *p, size_t n, df_buf *out, df_error *err) DF_CHECK;

/* End of text: appends one U+FFFD if a character is incomplete, and forgets it. Errors as above. */
df_status df_detok_flush(df_detok *d, df_buf *out, df_error *err) DF_CHECK;

#endif
