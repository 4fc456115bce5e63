/*
 * engine/json_schema.h - a JSON schema as a grammar: the text that it admits and nothing else.
 *
 * Untrusted: depth, size and the number of rules are bounded. What is not supported is refused with its path, never
 * ignored silently.
 * Ownership: the caller releases the grammar. Threads: no state.
 */
#ifndef DF_ENGINE_JSON_SCHEMA_H
#define DF_ENGINE_JSON_SCHEMA_H

#include "text/grammar.h"

/* json: the schema as JSON text; n = 0 or "{}" admits any JSON value. object_only: the value must be an object
 * (response_format json_object). DF_ERR_FORMAT (not JSON, not a schema), DF_ERR_UNSUPPORTED, DF_ERR_LIMIT. */
df_status df_json_schema_grammar(const df_tokenizer *t, const char *json, size_t n, bool object_only, df_grammar **out,
                                 df_error *err) DF_CHECK;
/* The same as GBNF text, appended to *out: what the grammar is compiled from, for users who want to read it. */
df_status df_json_schema_gbnf(const char *json, size_t n, bool object_only, df_buf *out, df_error *err) DF_CHECK;

#endif
