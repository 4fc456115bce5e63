/*
 * engine/json_schema.h - a JSON schema as a grammar: texts that fit the schema and nothing else.
 *
 * Supported: type (also lists, nullable), properties, required, additionalProperties, minProperties and maxProperties
 * of objects without properties, items, prefixItems, additionalItems, minItems, maxItems, minLength, maxLength, pattern
 * (^...$; no assertions, back references or Unicode classes), format (date, time, date-time, uuid, email, ipv4, int32,
 * int64, float, double), minimum, maximum, exclusiveMinimum, exclusiveMaximum (whole numbers), enum, const, anyOf,
 * oneOf, allOf, $ref within the document, true and false. Members that only describe are passed over; all others are
 * refused, never ignored.
 *
 * Narrower than the schema, so that a model need not choose between spellings and cannot run on for ever: members come
 * in the order of `properties`, further ones behind them; between tokens of JSON stands nothing, one space, or a line
 * feed with up to 16 blanks; enum and const values are compact; whole numbers have no fraction, exponent or more than
 * 18 digits (19 where a bound has as many), other numbers at most 18 digits, 16 of fraction and 2 of exponent, and with
 * bounds no exponent; \u escapes of surrogates come in pairs; a schema with members for objects (arrays, strings,
 * numbers) but without type is one for objects (arrays, ...).
 * Alternatives of oneOf must be such that no value can fit two of them, as far as kinds, constants, bounds, counts and
 * members show; a member that would tell two objects apart if it were required is required. Others are refused.
 * Wider in one point: objects may repeat a member that is not in `properties`.
 *
 * Untrusted: depth, size and the number of rules are bounded.
 * Ownership: the caller releases the grammar. Threads: no state.
 */
#ifndef DF_ENGINE_JSON_SCHEMA_H
#define DF_ENGINE_JSON_SCHEMA_H

#include "format/json.h"
#include "text/grammar.h"

/* json: the schema as JSON text; n = 0 or "{}" admits any JSON value. object_only: the value must be an object
 * (response_format json_object). DF_ERR_FORMAT (not JSON, not a schema, no value fits), DF_ERR_UNSUPPORTED,
 * DF_ERR_LIMIT, DF_ERR_MEMORY. Messages name the place: "#/properties/x". */
df_status df_json_schema_grammar(const df_tokenizer *t, const char *json, size_t n, bool object_only, df_grammar **out,
                                 df_error *err) DF_CHECK;
/* The same as GBNF text, appended to *out: what the grammar is compiled from, for users who want to read it. On failure
 * *out is as before. */
df_status df_json_schema_gbnf(const char *json, size_t n, bool object_only, df_buf *out, df_error *err) DF_CHECK;

/* Several schemas in one grammar: rules of each, then once the rules that all of them use. Names of rules made here are
 * "v" and a number, or one of: ws never char chars control uesc string integer number boolean null value object array
 * member and names that begin with "format-". */
typedef struct df_schema_rules {
  df_buf *out;
  uint32_t n_rules;
  uint32_t used; /* bits of shared rules */
} df_schema_rules;

enum { DF_SCHEMA_NAME_SIZE = 16, DF_SCHEMA_MAX_BYTES = 1 << 20, DF_SCHEMA_MAX_RULES = 20000 };

/* Appends the rules of a schema and writes the name of the first to name. schema NULL = any value. Text appended before
 * a failure stays. */
df_status df_schema_rules_add(df_schema_rules *r, const df_json *schema, bool object_only,
                              char name[DF_SCHEMA_NAME_SIZE], df_error *err) DF_CHECK;
/* Appends the shared rules in use. */
df_status df_schema_rules_finish(df_schema_rules *r, df_error *err) DF_CHECK;

#endif
