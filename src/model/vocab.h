/*
 * model/vocab.h - the tokenizer that a model file carries.
 */
#ifndef DF_MODEL_VOCAB_H
#define DF_MODEL_VOCAB_H

#include "format/gguf.h"
#include "text/tokenizer.h"

/* From GGUF metadata (tokenizer.ggml.*). FORMAT when it is absent or broken, UNSUPPORTED for other tokenizer models
 * than byte-level BPE ("gpt2"). */
df_status df_vocab_from_gguf(const df_gguf *g, df_tokenizer **out, df_error *err) DF_CHECK;

/* From the tokenizer.json of a Hugging Face folder (or of the folder a weight file lies in), filled up to min_tokens
 * entries. *chat (may be NULL) receives the chat template, owned by the caller (df_free), or NULL. */
df_status df_vocab_from_folder(const char *path, uint32_t min_tokens, df_tokenizer **out, char **chat,
                               df_error *err) DF_CHECK;

/* From a GGUF file or a Hugging Face folder (tokenizer.json), without touching weights. */
df_status df_vocab_open(const char *path, df_tokenizer **out, df_error *err) DF_CHECK;

#endif
