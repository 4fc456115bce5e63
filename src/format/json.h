/*
 * format/json.h - reading JSON (RFC 8259) into a tree of typed values and writing it into a buffer.
 *
 * Ownership: df_json_parse and df_json_load give a root that df_json_free releases; every value, string and
 *            array reached from it is borrowed and lives as long. Strings are zero terminated. df_json_free takes
 *            roots only. A host program that uses jansson itself must not replace its allocator functions.
 * Threads:   a tree is read-only after parsing; any number of threads may read it.
 * Trust:     text is untrusted: nesting is limited (DF_LIMIT_JSON_DEPTH), repeated object keys are refused,
 *            strings are checked UTF-8 and may contain zero bytes (written \u0000).
 */
#ifndef DF_FORMAT_JSON_H
#define DF_FORMAT_JSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/error.h"

typedef struct df_json df_json;

typedef enum df_json_kind {
  DF_JSON_NULL,
  DF_JSON_BOOL,
  DF_JSON_INT,
  DF_JSON_REAL,
  DF_JSON_STRING,
  DF_JSON_ARRAY,
  DF_JSON_OBJECT
} df_json_kind;

/* Parses n bytes holding one JSON value and nothing else. DF_ERR_FORMAT with line and column, DF_ERR_LIMIT for the
 * depth, DF_ERR_MEMORY. When some integer of the text does not fit 64 bits, all integers of it become reals. */
df_status df_json_parse(const void *text, size_t n, df_json **out, df_error *err) DF_CHECK;
/* Parses a file of at most max_bytes (DF_ERR_LIMIT beyond). */
df_status df_json_load(const char *path, size_t max_bytes, df_json **out, df_error *err) DF_CHECK;
void df_json_free(df_json *root); /* NULL is fine */

/* ---- values -------------------------------------------------------------------------------------------- */

df_json_kind df_json_kind_of(const df_json *v);            /* NULL counts as null */
const char *df_json_kind_name(df_json_kind kind);          /* "a string", "an object", ... for messages */
size_t df_json_size(const df_json *v);                     /* elements of an array, members of an object, else 0 */
const df_json *df_json_at(const df_json *array, size_t i); /* NULL when out of range or no array */
const df_json *df_json_member(const df_json *object, const char *key); /* NULL when absent or no object */
/* NULL when v is no string. *len (may be NULL) counts bytes, without the terminator. */
const char *df_json_str(const df_json *v, size_t *len);
/* Whether v is exactly this string. */
bool df_json_equals(const df_json *v, const char *text);
bool df_json_bool(const df_json *v);   /* false when v is no bool */
int64_t df_json_int(const df_json *v); /* 0 when v is no integer */
double df_json_num(const df_json *v);  /* integers and reals; 0 for others */

/* Members of an object in file order:
 *   df_json_iter it = df_json_begin(obj); const char *key; size_t len; const df_json *v;
 *   while (df_json_next(&it, &key, &len, &v)) ... */
typedef struct df_json_iter {
  const df_json *object;
  void *at;
} df_json_iter;
df_json_iter df_json_begin(const df_json *object);
bool df_json_next(df_json_iter *it, const char **key, size_t *len, const df_json **value);

/* ---- typed members ------------------------------------------------------------------------------------- */
/* Absent and null give the default. Another kind or a value out of [min, max] fails with DF_ERR_FORMAT and a message
 * that names the key and not the file: callers add df_error_prefix. Integers accept reals without fraction. */

df_status df_json_need(const df_json *object, const char *key, df_error *err) DF_CHECK; /* fails when absent or null */
df_status df_json_opt_i64(const df_json *object, const char *key, int64_t def, int64_t min, int64_t max, int64_t *out,
                          df_error *err) DF_CHECK;
df_status df_json_opt_u32(const df_json *object, const char *key, uint32_t def, uint32_t min, uint32_t max,
                          uint32_t *out, df_error *err) DF_CHECK;
df_status df_json_opt_f64(const df_json *object, const char *key, double def, double min, double max, double *out,
                          df_error *err) DF_CHECK;
df_status df_json_opt_bool(const df_json *object, const char *key, bool def, bool *out, df_error *err) DF_CHECK;
/* Refuses strings with zero bytes, so the result is a full C string. */
df_status df_json_opt_str(const df_json *object, const char *key, const char *def, const char **out,
                          df_error *err) DF_CHECK;
/* *out = NULL when absent. kind is DF_JSON_ARRAY or DF_JSON_OBJECT. */
df_status df_json_opt_tree(const df_json *object, const char *key, df_json_kind kind, const df_json **out,
                           df_error *err) DF_CHECK;
/* One value as an integer of [min, max]; what names it in messages ("element 3 of \"x\""). */
df_status df_json_to_i64(const df_json *v, const char *what, int64_t min, int64_t max, int64_t *out,
                         df_error *err) DF_CHECK;

/* ---- writing ------------------------------------------------------------------------------------------- */

/* Appends compact JSON to a buffer, commas included. The first failure sticks, is stored in *err and makes all later
 * calls do nothing; df_json_out_end returns it. Mismatched begin and end calls are our own mistake (assert).
 *   df_json_out w; df_json_out_begin(&w, &buf, err);
 *   df_json_out_object(&w); df_json_out_key(&w, "n"); df_json_out_i64(&w, 3); df_json_out_close(&w);
 *   return df_json_out_end(&w); */
typedef struct df_json_out {
  df_buf *buf;
  df_error *err;
  df_status status;
  uint32_t depth;
  bool comma;                 /* a comma is due before the next value or key */
  uint8_t is_object[128 / 8]; /* bit per open level */
} df_json_out;

void df_json_out_begin(df_json_out *w, df_buf *buf, df_error *err);
df_status df_json_out_end(df_json_out *w) DF_CHECK;
void df_json_out_object(df_json_out *w);
void df_json_out_array(df_json_out *w);
void df_json_out_close(df_json_out *w); /* ends the innermost object or array */
void df_json_out_key(df_json_out *w, const char *key);
/* Bytes that are not UTF-8 become U+FFFD, one for each maximal bad piece. */
void df_json_out_str(df_json_out *w, const char *s, size_t n);
void df_json_out_cstr(df_json_out *w, const char *s);
void df_json_out_i64(df_json_out *w, int64_t v);
void df_json_out_u64(df_json_out *w, uint64_t v);
/* A short form that reads back equal, and as a real ("1.0", not "1"); NaN and infinity become null. */
void df_json_out_f64(df_json_out *w, double v);
void df_json_out_bool(df_json_out *w, bool v);
void df_json_out_null(df_json_out *w);
void df_json_out_raw(df_json_out *w, const char *json, size_t n); /* text that is one JSON value already */
void df_json_out_value(df_json_out *w, const df_json *v);         /* a parsed value, members in file order */
/* A key and its value in one; a NULL string is null. */
void df_json_put_cstr(df_json_out *w, const char *key, const char *s);
void df_json_put_u64(df_json_out *w, const char *key, uint64_t v);
void df_json_put_f64(df_json_out *w, const char *key, double v);
void df_json_put_bool(df_json_out *w, const char *key, bool v);
void df_json_put_null(df_json_out *w, const char *key);

/* The quoted, escaped form of a string, outside any document. */
df_status df_json_quote(df_buf *b, const char *s, size_t n, df_error *err) DF_CHECK;

#endif
