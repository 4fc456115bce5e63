/* format/hf_tokenizer_parts.h - shared by the files hf_tokenizer*.c only. */
#ifndef DF_FORMAT_HF_TOKENIZER_PARTS_H
#define DF_FORMAT_HF_TOKENIZER_PARTS_H

#include "format/hf_tokenizer.h"

/* A token id below DF_LIMIT_VOCAB; what names it in messages. */
df_status df_hf_tokenizer_read_id(const df_json *v, const char *what, uint32_t *id, df_error *err) DF_CHECK;

/* Normaliser, pre-tokeniser and post-processor of tokenizer.json: sets normalize_nfc, pre and add_bos, or refuses what
 * has no counterpart. */
df_status df_hf_tokenizer_read_pipeline(const df_json *root, df_hf_tokenizer *t, df_error *err) DF_CHECK;

/* Special tokens and the template of tokenizer_config.json, if there is one; tokens and types are filled already. */
df_status df_hf_tokenizer_read_config(df_hf_tokenizer *t, df_error *err) DF_CHECK;

#endif
