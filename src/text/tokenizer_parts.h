/*
 * text/tokenizer_parts.h - the inside of a df_tokenizer, for the files tokenizer*.c and grammar_vocab.c only.
 */
#ifndef DF_TEXT_TOKENIZER_PARTS_H
#define DF_TEXT_TOKENIZER_PARTS_H

#include <stdatomic.h>

#include "base/map.h"
#include "text/bpe.h"
#include "text/grammar_vocab.h"
#include "text/pretok.h"
#include "text/tokenizer.h"

/* Many byte strings in one block: string i is data[at[i] .. at[i + 1]). */
typedef struct df_strings {
  char *data;
  uint32_t *at;
} df_strings;

static inline df_slice df_strings_get(const df_strings *s, uint32_t i) {
  return (df_slice){s->data + s->at[i], s->at[i + 1] - s->at[i]};
}

/* Added tokens sorted by their bytes. Tokens that begin with byte c are [first[c], first[c + 1]). */
typedef struct df_added {
  df_slice *texts; /* owned array; the bytes are the tokenizer's */
  int32_t *ids;
  uint32_t n;
  uint32_t first[257];
} df_added;

/* Sorts n texts, each 1..DF_ADDED_TOKEN_MAX bytes and borrowed; of equal ones the first counts. DF_ERR_MEMORY. */
df_status df_added_init(df_added *a, const df_slice *texts, const int32_t *ids, uint32_t n, df_error *err) DF_CHECK;
void df_added_release(df_added *a);
/* Finds the leftmost, and there the longest, added token in text[from..n). false when there is none; otherwise its
 * place and id. */
bool df_added_find(const df_added *a, const char *text, size_t n, size_t from, size_t *begin, size_t *end, int32_t *id);

/* The character that stands for byte b in token texts: writes it to out, returns its length in UTF-8 (1 or 2). */
size_t df_bytelevel_put(uint8_t b, char out[2]);
/* Bytes that the text of a token stands for: at most n of them, written to out. A text with a character that stands for
 * no byte is taken as it is. Returns the number of bytes. */
size_t df_bytelevel_decode(const char *text, size_t n, char *out);

/* Whether text[0..n) is certainly in NFC already (a fast test that may say no too often). */
bool df_nfc_is_plain(const char *text, size_t n);
/* Replaces the content of *out by the NFC form of text[0..n), which must be valid UTF-8. Linear time but for sorting
 * runs of combining marks (n log n). DF_ERR_MEMORY. */
df_status df_nfc_normalize(const char *text, size_t n, df_buf *out, df_error *err) DF_CHECK;

struct df_tokenizer {
  uint32_t n_tokens;
  df_strings texts; /* as in the vocabulary */
  df_strings bytes; /* what they stand for */
  uint8_t *types;
  df_map by_text; /* keys point into texts */
  df_bpe bpe;
  df_pretok *pretok;
  df_added added_always; /* user-defined tokens */
  df_added added_all;    /* and control tokens */
  bool nfc, add_bos, ignore_merges;
  int32_t bos, eos, eot, pad, mask, unk;
  int32_t *eog;
  size_t n_eog;
  uint64_t hash;
  df_token_trie *_Atomic trie; /* NULL until a grammar asks for it */
};

static inline bool df_token_type_is_special(int type) { return type == DF_TOKEN_CONTROL || type == DF_TOKEN_UNKNOWN; }

/* Whether merging may make token `id`: not a control token, and its bytes are those that its text encodes. A
 * user-defined token stands for its text as it is, a byte token for one byte: made from other bytes they would decode
 * to another text than the one that was encoded. */
static inline bool df_token_is_mergeable(const struct df_tokenizer *t, uint32_t id) {
  if (df_token_type_is_special(t->types[id]) || t->types[id] == DF_TOKEN_BYTE) return false;
  if (t->types[id] != DF_TOKEN_USER) return true;
  const df_slice s = df_strings_get(&t->texts, id);
  for (size_t i = 0; i < s.n; i++)
    if (s.p[i] <= ' ' || s.p[i] > '~') return false;
  return true;
}

#endif
