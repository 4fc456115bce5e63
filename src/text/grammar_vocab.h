/*
 * text/grammar_vocab.h - a vocabulary as a trie of bytes, in the order of a walk.
 *
 * Left out are control, unknown, unused and empty tokens, tokens that end a generation, and texts above
 * DF_TRIE_MAX_DEPTH bytes: none of them ever spells a part of a constrained text.
 *
 * Ownership: the tokenizer owns its trie, made on first use. Threads: any; immutable once made.
 */
#ifndef DF_TEXT_GRAMMAR_VOCAB_H
#define DF_TEXT_GRAMMAR_VOCAB_H

#include "text/tokenizer.h"

enum { DF_TRIE_MAX_DEPTH = 1024 };

typedef struct df_trie_node {
  uint32_t skip;  /* first node behind the subtree */
  int32_t token;  /* a token that ends here, or -1 */
  uint16_t depth; /* 1 = first byte of a token */
  uint8_t byte;
} df_trie_node;

/* Nodes in preorder without the root: the children of node i, if any, begin at i + 1. */
typedef struct df_token_trie {
  uint32_t n;
  df_trie_node *nodes; /* [n] */
  uint32_t *parent;    /* [n] UINT32_MAX below the root */
  int32_t *same;       /* [vocabulary] another token of the same bytes, or -1 */
  bool spelled[256];   /* whether some token is this single byte */
} df_token_trie;

/* DF_ERR_MEMORY. */
df_status df_token_trie_get(const df_tokenizer *t, const df_token_trie **out, df_error *err) DF_CHECK;
/* For df_tokenizer_free. NULL is fine. */
void df_token_trie_free(df_token_trie *trie);

#endif
