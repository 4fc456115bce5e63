/*
 * format/gguf.h - reading and writing GGUF files (versions 2 and 3, little endian).
 *
 * Format:    "GGUF", u32 version, u64 tensor count, u64 key count, the keys (string name, u32 type, value), the
 *            tensor table (string name, u32 n_dims, u64 dims[], u32 type, u64 offset), padding to
 *            general.alignment, the data section. Strings are u64 length + bytes without terminator.
 *            https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
 * Ownership: df_gguf owns its mapping; every key, string, array and tensor pointer lives as long as it does.
 * Threads:   a df_gguf is read-only after opening, any number of threads may query it. A writer belongs to one.
 * Trust:     the file is untrusted. After a successful open every pointer handed out lies inside the mapping,
 *            names are unique, non-empty and free of zero bytes.
 */
#ifndef DF_FORMAT_GGUF_H
#define DF_FORMAT_GGUF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/error.h"

typedef enum df_gguf_type {
  DF_GGUF_U8 = 0,
  DF_GGUF_I8 = 1,
  DF_GGUF_U16 = 2,
  DF_GGUF_I16 = 3,
  DF_GGUF_U32 = 4,
  DF_GGUF_I32 = 5,
  DF_GGUF_F32 = 6,
  DF_GGUF_BOOL = 7,
  DF_GGUF_STRING = 8,
  DF_GGUF_ARRAY = 9,
  DF_GGUF_U64 = 10,
  DF_GGUF_I64 = 11,
  DF_GGUF_F64 = 12
} df_gguf_type;

/* Bytes that are not zero terminated. */
typedef struct df_gguf_str {
  const char *data;
  size_t len;
} df_gguf_str;

/* One metadata entry. A scalar is an array of one as far as count and data go. */
typedef struct df_gguf_kv {
  const char *key;     /* zero terminated */
  df_gguf_type type;   /* DF_GGUF_ARRAY for arrays */
  df_gguf_type elem;   /* type of the elements; equals type for scalars */
  uint64_t count;      /* elements; 1 for scalars */
  const uint8_t *data; /* first element as stored, UNALIGNED; strings start at their length */
  size_t n_bytes;      /* bytes of all elements */
} df_gguf_kv;

typedef struct df_gguf_tensor {
  const char *name;  /* zero terminated */
  int type;          /* ggml tensor type id, possibly one this table does not know */
  uint32_t n_dims;   /* 0..4 */
  uint64_t dims[4];  /* dims[0] is contiguous (inputs of a matrix); unused ones are 1 */
  uint64_t n_values; /* product of dims */
  uint64_t offset;   /* from the start of the data section, a multiple of the alignment */
  size_t n_bytes;    /* 0 when the type is unknown (its extent cannot be computed) */
  const void *data;  /* inside the mapping; NULL when the type is unknown */
} df_gguf_tensor;

typedef struct df_gguf df_gguf;

/* Opens and checks a file. DF_ERR_IO, DF_ERR_FORMAT, DF_ERR_UNSUPPORTED (version 1, big endian, nested arrays),
 * DF_ERR_LIMIT, DF_ERR_MEMORY. */
df_status df_gguf_open(const char *path, df_gguf **out, df_error *err) DF_CHECK;
/* The same over borrowed bytes, 8-aligned, that outlive the result. label is what messages call it (copied). */
df_status df_gguf_open_bytes(const void *data, size_t n, const char *label, df_gguf **out, df_error *err) DF_CHECK;
void df_gguf_free(df_gguf *g); /* NULL is fine */

const char *df_gguf_label(const df_gguf *g); /* path or label */
uint32_t df_gguf_version(const df_gguf *g);
uint32_t df_gguf_alignment(const df_gguf *g);

/* ---- metadata ------------------------------------------------------------------------------------------ */

size_t df_gguf_kv_count(const df_gguf *g);
const df_gguf_kv *df_gguf_kv_at(const df_gguf *g, size_t i);       /* file order, i < count */
const df_gguf_kv *df_gguf_find(const df_gguf *g, const char *key); /* NULL when absent */
static inline bool df_gguf_has(const df_gguf *g, const char *key) { return df_gguf_find(g, key) != NULL; }

/* Required values: DF_ERR_FORMAT naming file and key when it is absent, of another kind or out of range. Integers
 * of every width are accepted when the value fits; floats accept f32 and f64 and must be finite. */
df_status df_gguf_get_u32(const df_gguf *g, const char *key, uint32_t *out, df_error *err) DF_CHECK;
df_status df_gguf_get_u64(const df_gguf *g, const char *key, uint64_t *out, df_error *err) DF_CHECK;
df_status df_gguf_get_i64(const df_gguf *g, const char *key, int64_t *out, df_error *err) DF_CHECK;
df_status df_gguf_get_f32(const df_gguf *g, const char *key, float *out, df_error *err) DF_CHECK;
df_status df_gguf_get_bool(const df_gguf *g, const char *key, bool *out, df_error *err) DF_CHECK;
df_status df_gguf_get_str(const df_gguf *g, const char *key, df_gguf_str *out, df_error *err) DF_CHECK;

/* The same, but *out = def when the key is absent (a wrong kind still fails). def strings are borrowed. */
df_status df_gguf_opt_u32(const df_gguf *g, const char *key, uint32_t def, uint32_t *out, df_error *err) DF_CHECK;
df_status df_gguf_opt_i64(const df_gguf *g, const char *key, int64_t def, int64_t *out, df_error *err) DF_CHECK;
df_status df_gguf_opt_f32(const df_gguf *g, const char *key, float def, float *out, df_error *err) DF_CHECK;
df_status df_gguf_opt_bool(const df_gguf *g, const char *key, bool def, bool *out, df_error *err) DF_CHECK;
df_status df_gguf_opt_str(const df_gguf *g, const char *key, df_gguf_str def, df_gguf_str *out, df_error *err) DF_CHECK;

/* *out = the entry when key is an array of the wanted kind, NULL when absent; another kind fails. "int" takes every
 * integer width, "float" f32 and f64. */
df_status df_gguf_opt_int_array(const df_gguf *g, const char *key, const df_gguf_kv **out, df_error *err) DF_CHECK;
df_status df_gguf_opt_float_array(const df_gguf *g, const char *key, const df_gguf_kv **out, df_error *err) DF_CHECK;
df_status df_gguf_opt_bool_array(const df_gguf *g, const char *key, const df_gguf_kv **out, df_error *err) DF_CHECK;
df_status df_gguf_opt_str_array(const df_gguf *g, const char *key, const df_gguf_kv **out, df_error *err) DF_CHECK;

/* Element i < count of an integer or bool / float entry. U64 values above INT64_MAX are returned as INT64_MAX. */
int64_t df_gguf_int_at(const df_gguf_kv *kv, uint64_t i);
double df_gguf_float_at(const df_gguf_kv *kv, uint64_t i);

/* Walks the strings of a string entry in order:
 *   df_gguf_str_iter it = df_gguf_str_begin(kv); df_gguf_str s;
 *   while (df_gguf_str_next(&it, &s)) ... */
typedef struct df_gguf_str_iter {
  const uint8_t *p;
  uint64_t left;
} df_gguf_str_iter;
df_gguf_str_iter df_gguf_str_begin(const df_gguf_kv *kv);
bool df_gguf_str_next(df_gguf_str_iter *it, df_gguf_str *out);

/* ---- tensors ------------------------------------------------------------------------------------------- */

size_t df_gguf_tensor_count(const df_gguf *g);
const df_gguf_tensor *df_gguf_tensor_at(const df_gguf *g, size_t i);
const df_gguf_tensor *df_gguf_tensor_find(const df_gguf *g, const char *name); /* NULL when absent */
/* Lets the pages of a tensor go (no effect on files opened from bytes). */
void df_gguf_tensor_drop(const df_gguf *g, const df_gguf_tensor *t);
/* Lets all pages of the file go; they are read again when touched. */
void df_gguf_drop(const df_gguf *g);
/* Differs when the file was replaced or changed; 0 when opened from bytes. */
uint64_t df_gguf_stamp(const df_gguf *g);

/* Name of a tensor type id ("Q4_K"), NULL when unknown. */
const char *df_gguf_dtype_name(int type);
/* Values and bytes of one block of a tensor type; false when unknown. */
bool df_gguf_dtype_block(int type, uint32_t *values, uint32_t *bytes);

/* ---- writing ------------------------------------------------------------------------------------------- */

typedef struct df_gguf_writer df_gguf_writer;

df_status df_gguf_writer_create(df_gguf_writer **out, df_error *err) DF_CHECK;
void df_gguf_writer_free(df_gguf_writer *w); /* NULL is fine */

/* Every put fails with DF_ERR_ARGUMENT for an empty, overlong or repeated key, DF_ERR_MEMORY; contents are copied.
 * put_scalar and put_array take value(s) in host form of the given type (bool as one byte); not STRING or ARRAY.
 * "general.alignment" (u32) given before the first tensor is honoured. */
df_status df_gguf_put_scalar(df_gguf_writer *w, const char *key, df_gguf_type type, const void *value,
                             df_error *err) DF_CHECK;
df_status df_gguf_put_array(df_gguf_writer *w, const char *key, df_gguf_type elem, const void *values, uint64_t n,
                            df_error *err) DF_CHECK;
df_status df_gguf_put_str(df_gguf_writer *w, const char *key, df_gguf_str s, df_error *err) DF_CHECK;
df_status df_gguf_put_str_array(df_gguf_writer *w, const char *key, const df_gguf_str *s, uint64_t n,
                                df_error *err) DF_CHECK;
df_status df_gguf_put_u32(df_gguf_writer *w, const char *key, uint32_t v, df_error *err) DF_CHECK;
df_status df_gguf_put_f32(df_gguf_writer *w, const char *key, float v, df_error *err) DF_CHECK;
df_status df_gguf_put_bool(df_gguf_writer *w, const char *key, bool v, df_error *err) DF_CHECK;
df_status df_gguf_put_cstr(df_gguf_writer *w, const char *key, const char *s, df_error *err) DF_CHECK;
/* Copies an entry of another file unchanged. */
df_status df_gguf_put_kv(df_gguf_writer *w, const df_gguf_kv *kv, df_error *err) DF_CHECK;

/* Adds a tensor. dims as in df_gguf_tensor; the byte count follows from type and dims. data is borrowed until the
 * file is written, or NULL when a fill callback delivers it then. */
df_status df_gguf_put_tensor(df_gguf_writer *w, const char *name, int type, uint32_t n_dims, const uint64_t *dims,
                             const void *data, df_error *err) DF_CHECK;

/* Delivers the bytes of a tensor that was put without data; *data must stay valid until the next call. */
typedef df_status (*df_gguf_fill)(void *user, const char *name, size_t n_bytes, const void **data, df_error *err);

/* Appends the complete file to b. fill may be NULL when every tensor has data. */
df_status df_gguf_write_buf(const df_gguf_writer *w, df_gguf_fill fill, void *user, df_buf *b, df_error *err) DF_CHECK;
/* Writes path through a temporary neighbour that is renamed at the end, so path is never half written. */
df_status df_gguf_write_file(const df_gguf_writer *w, df_gguf_fill fill, void *user, const char *path,
                             df_error *err) DF_CHECK;

#endif
