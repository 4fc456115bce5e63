/* format/gguf_internal.h - what the reader, the getters and the writer share. */
#ifndef DF_FORMAT_GGUF_INTERNAL_H
#define DF_FORMAT_GGUF_INTERNAL_H

#include "base/map.h"
#include "format/file_map.h"
#include "format/gguf.h"

/* Data is used in place, so host and file order must agree. */
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "GGUF data is used in place: little-endian hosts only");

enum { DF_GGUF_DEFAULT_ALIGN = 32, DF_GGUF_VERSION = 3 };

struct df_gguf {
  df_file_map map;     /* owned; empty when opened from bytes */
  const uint8_t *data; /* the whole file */
  size_t size;
  char *label;
  uint32_t version;
  uint32_t alignment;
  size_t n_kv, n_tensors;
  df_gguf_kv *kv;
  df_gguf_tensor *tensors;
  df_map kv_index, tensor_index; /* keys borrowed from the file bytes */
  df_buf names;                  /* zero-terminated copies of all names */
};

const char *df_gguf_value_type_name(df_gguf_type type);
/* Bytes of one fixed-size value, 0 for strings, arrays and unknown types. */
size_t df_gguf_value_size(df_gguf_type type);

#endif
