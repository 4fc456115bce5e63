/*
 * format/safetensors.h - reading safetensors files, single or sharded.
 *
 * Format:    u64 header length, JSON header {"name": {"dtype", "shape", "data_offsets": [begin, end]}, ...,
 *            "__metadata__": {string: string}}, data. Offsets count from the end of the header.
 *            https://github.com/huggingface/safetensors#format
 *            A sharded model has model.safetensors.index.json: {"weight_map": {tensor: file name}}.
 * Ownership: df_st owns its mappings; names and data live as long as it does.
 * Threads:   read-only after opening.
 * Trust:     untrusted; after opening every data pointer with its byte count lies inside a mapping, byte counts agree
 *            with type and shape, and tensors of one file do not overlap. Shard names cannot leave the folder.
 */
#ifndef DF_FORMAT_SAFETENSORS_H
#define DF_FORMAT_SAFETENSORS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

enum { DF_ST_MAX_DIMS = 8 };

typedef struct df_st_tensor {
  const char *name;               /* zero terminated */
  const char *dtype;              /* "BF16", "F8_E4M3", ...: static storage */
  uint32_t n_dims;                /* 0 for a scalar */
  uint64_t shape[DF_ST_MAX_DIMS]; /* outermost first: a Linear weight is [out, in] */
  uint64_t n_values;
  size_t n_bytes;   /* may be 0 when a dimension is 0 */
  const void *data; /* not aligned to anything if the writer did not care */
  uint32_t file;    /* which shard */
} df_st_tensor;

typedef struct df_st df_st;

/* One file. DF_ERR_IO, DF_ERR_FORMAT, DF_ERR_LIMIT, DF_ERR_UNSUPPORTED (unknown dtype), DF_ERR_MEMORY. */
df_status df_st_open(const char *path, df_st **out, df_error *err) DF_CHECK;
/* One file in borrowed bytes that outlive the result; label names it in messages (copied). */
df_status df_st_open_bytes(const void *data, size_t n, const char *label, df_st **out, df_error *err) DF_CHECK;
/* All shards of an index file; they are looked for in the folder of the index. */
df_status df_st_open_index(const char *index_path, df_st **out, df_error *err) DF_CHECK;
/* <folder>/model.safetensors.index.json when it exists, else <folder>/model.safetensors. */
df_status df_st_open_folder(const char *folder, df_st **out, df_error *err) DF_CHECK;
void df_st_free(df_st *st); /* NULL is fine */

size_t df_st_count(const df_st *st);
const df_st_tensor *df_st_at(const df_st *st, size_t i);
const df_st_tensor *df_st_find(const df_st *st, const char *name); /* NULL when absent */
const char *df_st_file_name(const df_st *st, uint32_t file);       /* path of a shard, for messages */
void df_st_drop(const df_st *st, const df_st_tensor *t);           /* lets its pages go */
void df_st_drop_all(const df_st *st);                              /* all pages of all files */

#endif
