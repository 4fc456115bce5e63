/*
 * text/utf8.h - the one UTF-8 decoder of the project: strict (no surrogates, no overlong forms, nothing above
 * U+10FFFF), and with the "maximal subpart" rule of the Unicode standard (section 3.9, table 3-7) for broken text, so
 * that replacement gives the same characters as Python's errors="replace" and the WHATWG decoder.
 *
 * Ownership: nothing is kept. Threads: pure functions, any thread.
 */
#ifndef DF_TEXT_UTF8_H
#define DF_TEXT_UTF8_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"

typedef enum df_utf8_kind {
  DF_UTF8_CHAR,      /* a whole character */
  DF_UTF8_BAD,       /* bytes that stand for one U+FFFD, whatever follows */
  DF_UTF8_INCOMPLETE /* the text ends inside a so far valid character */
} df_utf8_kind;

/* One step of decoding; n >= 1. Stores what was found in *kind and the character in *cp (only for DF_UTF8_CHAR, may be
 * NULL). Returns the number of bytes it covers: 1..4, for DF_UTF8_INCOMPLETE all n (1..3). */
size_t df_utf8_step(const char *p, size_t n, df_utf8_kind *kind, uint32_t *cp);

/* Length of the longest prefix that is whole, valid UTF-8 (n when all of it is). */
size_t df_utf8_valid_prefix(const char *p, size_t n);

static inline bool df_utf8_valid(const char *p, size_t n) { return df_utf8_valid_prefix(p, n) == n; }

/* Characters of valid UTF-8. */
size_t df_utf8_count(const char *p, size_t n);

/* Writes cp (a scalar value: below 0x110000 and no surrogate) to out and returns its length, 1..4. */
size_t df_utf8_encode(uint32_t cp, char out[4]);

/* Appends p[0..n) to out with every broken part replaced by U+FFFD. DF_ERR_MEMORY, or DF_ERR_LIMIT beyond out->max;
 * out then holds a prefix of the result. */
df_status df_utf8_put_replaced(df_buf *out, const char *p, size_t n, df_error *err) DF_CHECK;

#endif
