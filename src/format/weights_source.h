/*
 * format/weights_source.h - one view over the file kinds a model can come in: a .gguf file, a .safetensors file with
 * its config.json beside it, or a Hugging Face folder (config.json and model.safetensors, single or sharded).
 *
 * Names are GGUF names whatever the file is ("blk.0.attn_q.weight"); shapes are in ggml order (dims[0] = inputs).
 * Values are as stored: in GGUF llama files q and k rows are permuted for interleaved rotation, in Hugging Face
 * files they are not (df_config.rope.interleaved tells).
 * Ownership: the source owns mappings and names; views are plain and live as long as it does.
 * Threads:   read-only after opening; df_source_drop may be called by any thread.
 */
#ifndef DF_FORMAT_WEIGHTS_SOURCE_H
#define DF_FORMAT_WEIGHTS_SOURCE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "format/config.h"
#include "format/gguf.h"

typedef struct df_source df_source;

enum {
  DF_TENSOR_F8_E4M3 = 1000, /* df_tensor_view.dtype: 8-bit floats, no ggml id; to be multiplied with their scales */
  DF_SCALE_BLOCK = 128      /* rows and inputs that share a scale where a matrix is scaled by blocks */
};

/* Scales of an F8 matrix: the value of element (r, k) is its code times scale number
 * r / rows_each * cols + (cols > 1 ? k / DF_SCALE_BLOCK : 0). */
typedef struct df_scale_view {
  const char *name;
  const void *data; /* NULL: the matrix has none; not aligned to anything */
  int dtype;        /* ggml id of F32, F16 or BF16 */
  uint32_t count, rows_each, cols;
} df_scale_view;

typedef struct df_tensor_view {
  const char *name; /* as the file spells it */
  int dtype; /* ggml type id; safetensors F32, F16, BF16, F64 and integers are mapped, F8_E4M3 is above; -1: none */
  uint32_t n_dims;     /* 0..4 */
  uint64_t dims[4];    /* ggml order, unused ones are 1 */
  const void *data;    /* NULL when the type is unknown or has more than 4 dimensions */
  size_t n_bytes;      /* 0 with data NULL */
  df_scale_view scale; /* by df_source_get, of an F8 matrix */
} df_tensor_view;

/* Opens a path, reads its configuration and notes features that cannot run (see df_config_check_supported, which the
 * caller asks; it also knows of tensors that no model of ours has). DF_ERR_IO, DF_ERR_FORMAT, DF_ERR_UNSUPPORTED,
 * DF_ERR_LIMIT, DF_ERR_MEMORY. */
df_status df_source_open(const char *path, df_source **out, df_error *err) DF_CHECK;
void df_source_close(df_source *s); /* NULL is fine */

const char *df_source_path(const df_source *s);
const df_config *df_source_config(const df_source *s);
const df_gguf *df_source_gguf(const df_source *s); /* NULL when it is not a GGUF file */

/* False when the file has no such tensor. */
bool df_source_find(const df_source *s, const char *gguf_name, df_tensor_view *out);
/* The same for tensors that must exist and be readable: DF_ERR_FORMAT when absent, DF_ERR_UNSUPPORTED when the type is
 * unknown or the data is not aligned to its element size. An F8 matrix comes with its scales ("X_scale_inv" or
 * "X_scale" beside "X": one, one a row, or one for each 128 x 128 block): DF_ERR_FORMAT when they are missing or do not
 * fit. */
df_status df_source_get(const df_source *s, const char *gguf_name, df_tensor_view *out, df_error *err) DF_CHECK;
/* Walks all tensors, for listings and size estimates: i < df_source_count. */
size_t df_source_count(const df_source *s);
void df_source_at(const df_source *s, size_t i, df_tensor_view *out);

/* Lets the pages of a tensor go after it was copied elsewhere. */
void df_source_drop(const df_source *s, const df_tensor_view *v);
/* The same for everything: also the neighbours that reading ahead mapped. */
void df_source_drop_all(const df_source *s);

#endif
