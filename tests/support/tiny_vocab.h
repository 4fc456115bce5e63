/*
 * support/tiny_vocab.h - building small vocabularies by hand.
 */
#ifndef DF_TEST_SUPPORT_TINY_VOCAB_H
#define DF_TEST_SUPPORT_TINY_VOCAB_H

#include "text/tokenizer.h"

enum { TINY_MAX = 4096 };

typedef struct tiny_vocab {
  df_vocab_spec spec; /* tokens, types, merges point into this struct: do not copy it */
  df_slice tokens[TINY_MAX], merges[TINY_MAX];
  int32_t types[TINY_MAX];
  char arena[1 << 18];
  size_t used;
} tiny_vocab;

/* Pre-tokeniser "gpt-2". with_bytes: tokens 0..255 are the single bytes in order; otherwise empty. */
void tiny_init(tiny_vocab *v, bool with_bytes);
/* Adds a token in the printable form and returns its id. */
int32_t tiny_token(tiny_vocab *v, const char *text, int32_t type);
/* Adds the next merge, and the token it makes unless that is there; returns that token's id. */
int32_t tiny_merge(tiny_vocab *v, const char *left, const char *right);
/* Builds it; fails the current test when that fails. Caller frees. */
df_tokenizer *tiny_create(const tiny_vocab *v);

#endif
