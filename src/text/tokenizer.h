/*
 * text/tokenizer.h - byte-level BPE: text to token ids and back.
 *
 * Encoding: added tokens are cut out of the text first (leftmost, longest first); what lies between is brought to NFC
 * where the vocabulary wants it, cut into pieces by the pre-tokeniser (text/pretok.h), and the bytes of every piece are
 * merged (text/bpe.h). A byte for which the vocabulary has no token vanishes before merging, so that its neighbours
 * become adjacent. A byte that is no valid UTF-8 is a piece of its own.
 *
 * Token texts come in the printable form of GPT-2, where every byte stands for a character of its own (space is U+0120,
 * line feed U+010A, ...). Added tokens and texts that are not of this form stand for themselves.
 *
 * Ownership: a df_tokenizer holds copies of all it was given. Threads: immutable once created; any number of threads
 * may use one at a time, each with its own output.
 */
#ifndef DF_TEXT_TOKENIZER_H
#define DF_TEXT_TOKENIZER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/error.h"
#include "text/bpe.h"

/* Borrowed bytes, not zero-terminated. */
typedef struct df_slice {
  const char *p;
  size_t n;
} df_slice;

/* Kinds of tokens, numbered as in the GGUF key tokenizer.ggml.token_type. */
typedef enum df_token_type {
  DF_TOKEN_NORMAL = 1,
  DF_TOKEN_UNKNOWN = 2, /* stands for what cannot be encoded; handled like a control token */
  DF_TOKEN_CONTROL = 3, /* found in text only with DF_ENCODE_PARSE_SPECIAL, never made by merging */
  DF_TOKEN_USER = 4,    /* an added token that is text: always found, always shown */
  DF_TOKEN_UNUSED = 5,
  DF_TOKEN_BYTE = 6 /* "<0x0A>": decodes to that byte */
} df_token_type;

/* Everything that defines a tokenizer, borrowed during df_tokenizer_create only. */
typedef struct df_vocab_spec {
  const df_slice *tokens; /* n_tokens texts; the index is the id */
  const int32_t *types;   /* n_tokens of df_token_type, or NULL: all normal */
  uint32_t n_tokens;      /* 1 .. INT32_MAX */
  const df_slice *merges; /* n_merges of "left right", best rank first */
  uint32_t n_merges;
  const char *pre;    /* pre-tokeniser, see df_pretok_create: "smollm", "gpt-2", "qwen2", "llama-bpe", ... */
  bool normalize_nfc; /* also implied by some pre-tokenisers */
  bool add_bos;       /* DF_ENCODE_ADD_BOS has an effect */
  bool ignore_merges; /* a piece that is a token as a whole is not merged (Llama 3) */
  int32_t bos, eos, eot, pad, mask, unk; /* ids or -1 */
} df_vocab_spec;

/* An empty spec: ids -1, all else zero. */
df_vocab_spec df_vocab_spec_default(void);

enum {
  DF_ADDED_TOKEN_MAX = 1024,   /* bytes of one added token: bounds the work at every position of the text */
  DF_ENCODE_PARSE_SPECIAL = 1, /* the texts of control tokens become these tokens; otherwise they are plain text */
  DF_ENCODE_ADD_BOS = 2,       /* begin with bos, if the vocabulary has add_bos set */
  DF_DECODE_SHOW_SPECIAL = 1,  /* control tokens appear as their text; otherwise they leave nothing */
  DF_DECODE_RAW = 2            /* leave broken UTF-8 as it is; otherwise it becomes U+FFFD */
};

typedef struct df_tokenizer df_tokenizer;

/* Builds a tokenizer. DF_ERR_ARGUMENT (no tokens, a special id outside the vocabulary), DF_ERR_FORMAT (a merge that is
 * not two tokens making a third one, an unknown token type, a bad byte token), DF_ERR_UNSUPPORTED (pre-tokeniser),
 * DF_ERR_LIMIT (an added token too long, 4 GiB of texts), DF_ERR_MEMORY. Merges that involve control tokens are left
 * out, as text must never turn into those. Of several tokens with one text the first normal one counts. */
df_status df_tokenizer_create(const df_vocab_spec *spec, df_tokenizer **out, df_error *err) DF_CHECK;
void df_tokenizer_free(df_tokenizer *t); /* NULL is fine */

/* Appends the tokens of text[0..n) to *out (any bytes, zeros included). flags: DF_ENCODE_*. On failure (DF_ERR_MEMORY,
 * DF_ERR_LIMIT for one word above 1 GiB) *out holds what it held before. */
df_status df_tokenizer_encode(const df_tokenizer *t, const char *text, size_t n, unsigned flags, df_ids *out,
                              df_error *err) DF_CHECK;

/* Appends the text of ids[0..n) to *out. flags: DF_DECODE_*. DF_ERR_ARGUMENT for an id outside the vocabulary,
 * DF_ERR_MEMORY, DF_ERR_LIMIT beyond out->max; on failure out->len is what it was before. */
df_status df_tokenizer_decode(const df_tokenizer *t, const int32_t *ids, size_t n, unsigned flags, df_buf *out,
                              df_error *err) DF_CHECK;

/* The bytes one token stands for (control tokens: their text), possibly part of a character. Borrowed from t, not
 * zero-terminated. false, with *bytes = "" and *n = 0, for an id outside the vocabulary. */
bool df_tokenizer_piece(const df_tokenizer *t, int32_t id, const char **bytes, size_t *n);

uint32_t df_tokenizer_size(const df_tokenizer *t);
/* The token's text as the vocabulary has it; p NULL for an id outside. Borrowed. */
df_slice df_tokenizer_text(const df_tokenizer *t, int32_t id);
/* Id of the token with this text as the vocabulary has it, or -1. */
int32_t df_tokenizer_find(const df_tokenizer *t, const char *text, size_t n);
/* DF_TOKEN_UNUSED for an id outside the vocabulary. */
df_token_type df_tokenizer_type(const df_tokenizer *t, int32_t id);
/* Control and unknown tokens: the ones hidden without DF_DECODE_SHOW_SPECIAL. */
bool df_tokenizer_is_special(const df_tokenizer *t, int32_t id);

/* Ids given in the spec, or -1. */
int32_t df_tokenizer_bos(const df_tokenizer *t);
int32_t df_tokenizer_eos(const df_tokenizer *t);
int32_t df_tokenizer_pad(const df_tokenizer *t);
int32_t df_tokenizer_mask(const df_tokenizer *t);
bool df_tokenizer_adds_bos(const df_tokenizer *t);

/* Tokens that end a generation: eos, eot and every control token whose text is a known end of text or turn
 * ("<|im_end|>", "<|endoftext|>", "<|eot_id|>", "<|eom_id|>", "<|end_of_text|>", "<end_of_turn>", "<|return|>"),
 * ascending and without repeats. Borrowed. */
const int32_t *df_tokenizer_eog_ids(const df_tokenizer *t, size_t *n);
bool df_tokenizer_is_eog(const df_tokenizer *t, int32_t id);

/* Hash of all token texts and merges in order. Equal vocabularies have equal hashes, on every machine of one byte
 * order. */
uint64_t df_tokenizer_hash(const df_tokenizer *t);
/* First id whose text differs in a and b (an id only one of them has differs), or -1 when there is none. */
int32_t df_tokenizer_first_difference(const df_tokenizer *a, const df_tokenizer *b);

#endif
