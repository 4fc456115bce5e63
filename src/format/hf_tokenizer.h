/*
 * format/hf_tokenizer.h - the byte-level BPE vocabulary in the tokenizer.json of a Hugging Face model folder, with the
 * special tokens of the tokenizer_config.json beside it.
 *
 * Everything the file asks for is either represented in the result or refused: another model than BPE, sub-word
 * prefixes, byte fallback, dropout, a normaliser other than NFC, an unknown splitting pattern, added tokens that eat
 * blanks. Format: https://huggingface.co/docs/tokenizers (the file has no specification; the fields are those its
 * library writes). Both forms of merges are read, "a b" and ["a", "b"].
 *
 * Ownership: the result owns all its strings. Threads: read-only after reading; any number of threads.
 */
#ifndef DF_FORMAT_HF_TOKENIZER_H
#define DF_FORMAT_HF_TOKENIZER_H

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "format/gguf.h" /* df_gguf_str, so that callers handle both sources alike */
#include "format/json.h"

typedef struct df_hf_tokenizer {
  uint32_t n_tokens; /* highest id + 1, or more when asked for */
  uint32_t n_merges;
  df_gguf_str *tokens; /* printable byte-level form, added tokens as they are; ids nobody names are "[PAD<id>]" */
  int32_t *types;      /* numbers of the GGUF key tokenizer.ggml.token_type: 1, 3, 4, 5 */
  df_gguf_str *merges; /* "left right" */
  const char *pre;     /* name of the splitting pattern as in the GGUF key tokenizer.ggml.pre; static */
  bool normalize_nfc, ignore_merges, add_bos;
  int32_t bos, eos, pad, unk, mask; /* -1 when the files name none */
  const char *chat_template;        /* of tokenizer_config.json (the one called "default" of several), or NULL */

  df_json *tokenizer_tree, *config_tree; /* private: strings above point into these */
  char *made;                            /* private: strings that no tree holds */
} df_hf_tokenizer;

/* Reads both texts; config may be NULL. min_tokens: number of embedding rows of the model, to which the vocabulary is
 * filled up, or 0. DF_ERR_FORMAT, DF_ERR_UNSUPPORTED, DF_ERR_LIMIT (ids from DF_LIMIT_VOCAB on), DF_ERR_MEMORY. On
 * failure *out is untouched. */
df_status df_hf_tokenizer_parse(const char *tokenizer, size_t n_tokenizer, const char *config, size_t n_config,
                                uint32_t min_tokens, df_hf_tokenizer *out, df_error *err) DF_CHECK;

/* The same for <folder>/tokenizer.json and, if there is one, <folder>/tokenizer_config.json. Also DF_ERR_IO; messages
 * begin with the file's name. */
df_status df_hf_tokenizer_load(const char *folder, uint32_t min_tokens, df_hf_tokenizer *out, df_error *err) DF_CHECK;

void df_hf_tokenizer_release(df_hf_tokenizer *t);

#endif
