/*
 * text/pretok.h - cutting text into the pieces within which BPE merges, by the pattern a vocabulary was trained with.
 *
 * A pre-tokeniser is a list of stages; each stage cuts every piece of the stage before into the matches of its pattern
 * and the gaps between them. A later stage sees one piece as if it were the whole text (a look-ahead ends with the
 * piece). Patterns are compiled by PCRE2 with UTF and UCP, just in time where the machine allows.
 *
 * White space is written out (the 25 characters with the property White_Space), because \s of PCRE2 also takes U+180E.
 * Letters and digits follow the Unicode version of the PCRE2 library: characters newer than it count as neither, and
 * may be cut differently from a tokenizer built on newer tables.
 *
 * Threads: one df_pretok may be used by any number of threads at once. Source: the pattern texts are those published
 * with the models (GPT-2, Llama 3, Qwen2, ...), names are those of the GGUF key tokenizer.ggml.pre.
 */
#ifndef DF_TEXT_PRETOK_H
#define DF_TEXT_PRETOK_H

#include <stdbool.h>
#include <stddef.h>

#include "base/error.h"

typedef struct df_pretok df_pretok;

/* Called with every piece, in order, together covering the text; n >= 1. The first status that is not DF_OK ends the
 * run and is handed back. */
typedef df_status (*df_pretok_fn)(void *arg, const char *piece, size_t n, df_error *err);

/* Compiles the patterns called `name`. DF_ERR_UNSUPPORTED for an unknown name (the hint lists the known ones),
 * DF_ERR_MEMORY. The caller frees *out. */
df_status df_pretok_create(const char *name, df_pretok **out, df_error *err) DF_CHECK;
void df_pretok_free(df_pretok *p); /* NULL is fine */

/* Whether the vocabularies that use this pre-tokeniser expect NFC text. */
bool df_pretok_wants_nfc(const df_pretok *p);

/* Cuts text[0..n), which must be valid UTF-8 (the caller validated it). DF_ERR_MEMORY, DF_ERR_LIMIT when a pattern
 * needs more backtracking than a linear one could, and whatever fn returns. */
df_status df_pretok_run(const df_pretok *p, const char *text, size_t n, df_pretok_fn fn, void *arg,
                        df_error *err) DF_CHECK;

#endif
