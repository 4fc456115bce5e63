/*
 * text/jinja_json.h - a strict JSON reader for template contexts.
 *
 * Ownership: values go to the arena. Threads: no shared state.
 * Source:    RFC 8259. Stricter than many readers: no trailing commas, no NaN, no invalid UTF-8, no lone surrogates.
 *            The last of two equal keys wins and keeps the place of the first. Integers stay exact: 64-bit ones become
 *            JT_INT, longer ones JT_BIG.
 */
#ifndef DF_TEXT_JINJA_JSON_H
#define DF_TEXT_JINJA_JSON_H

#include "text/jinja_value.h"

/* DF_ERR_FORMAT with the byte offset, DF_ERR_LIMIT (depth JINJA_MAX_VALUE_DEPTH, arena), DF_ERR_MEMORY. */
df_status df_jjson_parse(df_jarena *a, const char *text, size_t n, df_jv *out, df_error *err) DF_CHECK;

#endif
