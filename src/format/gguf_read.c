/* Opening GGUF files: every length, count, offset and product is checked against the bytes that are there. */
#include <string.h>

#include "base/mem.h"
#include "base/size.h"
#include "format/gguf.h"
#include "format/gguf_internal.h"
#include "format/limits.h"

/* Smallest possible entries, to bound counts by the file size: key length + type + one byte of value, and
 * name length + n_dims + type + offset. */
enum { MIN_KV_BYTES = 8 + 4 + 1, MIN_TENSOR_BYTES = 8 + 4 + 4 + 8 };

typedef struct cursor {
  const df_gguf *g;
  size_t pos;
  df_error *err;
} cursor;

static size_t left(const cursor *c) { return c->g->size - c->pos; }

static df_status truncated(cursor *c, const char *what) {
  df_status s = DF_FAIL(c->err, DF_ERR_FORMAT, "could not read \"%s\": the file ends at byte %zu inside %s",
                        c->g->label, c->g->size, what);
  df_error_hint(c->err, "the file is incomplete or damaged; download or copy it again");
  return s;
}

static df_status take(cursor *c, size_t n, const uint8_t **out, const char *what) {
  if (n > left(c)) return truncated(c, what);
  *out = c->g->data + c->pos;
  c->pos += n;
  return DF_OK;
}

static df_status take_u32(cursor *c, uint32_t *out, const char *what) {
  const uint8_t *p;
  DF_TRY(take(c, sizeof *out, &p, what));
  memcpy(out, p, sizeof *out);
  return DF_OK;
}

static df_status take_u64(cursor *c, uint64_t *out, const char *what) {
  const uint8_t *p;
  DF_TRY(take(c, sizeof *out, &p, what));
  memcpy(out, p, sizeof *out);
  return DF_OK;
}

static df_status take_str(cursor *c, df_gguf_str *out, const char *what) {
  uint64_t n;
  const uint8_t *p;
  DF_TRY(take_u64(c, &n, what));
  if (n > left(c)) return truncated(c, what);
  DF_TRY(take(c, (size_t)n, &p, what));
  *out = (df_gguf_str){(const char *)p, (size_t)n};
  return DF_OK;
}

/* Reads a key or tensor name, refuses what could not be a C string, and stores a zero-terminated copy. The names
 * buffer moves while it grows, so *offset is returned and turned into a pointer at the end. */
static df_status take_name(df_gguf *g, cursor *c, size_t max, const char *kind, df_gguf_str *out, size_t *offset) {
  DF_TRY(take_str(c, out, kind));
  if (out->len == 0) return DF_FAIL(c->err, DF_ERR_FORMAT, "could not read \"%s\": empty %s", g->label, kind);
  if (out->len > max)
    return DF_FAIL(c->err, DF_ERR_LIMIT, "could not read \"%s\": %s of %zu bytes, at most %zu are allowed", g->label,
                   kind, out->len, max);
  if (memchr(out->data, 0, out->len))
    return DF_FAIL(c->err, DF_ERR_FORMAT, "could not read \"%s\": %s with a zero byte", g->label, kind);
  *offset = g->names.len;
  DF_TRY(df_buf_put(&g->names, out->data, out->len, c->err));
  return df_buf_put(&g->names, "", 1, c->err);
}

static df_status check_bools(cursor *c, const df_gguf_kv *kv, df_gguf_str key) {
  for (uint64_t i = 0; i < kv->count; i++)
    if (kv->data[i] > 1)
      return DF_FAIL(c->err, DF_ERR_FORMAT, "could not read \"%s\": key \"%.*s\" holds the bool %d", c->g->label,
                     (int)DF_MIN(key.len, 200), key.data, kv->data[i]);
  return DF_OK;
}

/* Passes over kv->count elements of kv->elem. */
static df_status read_elements(cursor *c, df_gguf_kv *kv, df_gguf_str key) {
  size_t start = c->pos;
  kv->data = c->g->data + start;
  if (kv->elem == DF_GGUF_STRING) {
    if (kv->count > left(c) / 8) return truncated(c, "an array of strings");
    df_gguf_str s;
    for (uint64_t i = 0; i < kv->count; i++) DF_TRY(take_str(c, &s, "a string value"));
  } else {
    size_t size = df_gguf_value_size(kv->elem);
    const uint8_t *p;
    if (kv->count > left(c) / size) return truncated(c, "a metadata value");
    DF_TRY(take(c, (size_t)kv->count * size, &p, "a metadata value"));
  }
  kv->n_bytes = c->pos - start;
  return kv->elem == DF_GGUF_BOOL ? check_bools(c, kv, key) : DF_OK;
}

static df_status read_value(cursor *c, df_gguf_kv *kv, df_gguf_str key) {
  uint32_t type, elem;
  int shown = (int)DF_MIN(key.len, 200);
  DF_TRY(take_u32(c, &type, "a metadata entry"));
  elem = type;
  kv->count = 1;
  if (type == DF_GGUF_ARRAY) {
    DF_TRY(take_u32(c, &elem, "a metadata array"));
    DF_TRY(take_u64(c, &kv->count, "a metadata array"));
    if (elem == DF_GGUF_ARRAY)
      return DF_FAIL(c->err, DF_ERR_UNSUPPORTED, "could not read \"%s\": key \"%.*s\" is an array of arrays",
                     c->g->label, shown, key.data);
  }
  if (elem > DF_GGUF_F64)
    return DF_FAIL(c->err, DF_ERR_FORMAT, "could not read \"%s\": key \"%.*s\" has the unknown value type %u",
                   c->g->label, shown, key.data, elem);
  kv->type = (df_gguf_type)type;
  kv->elem = (df_gguf_type)elem;
  return read_elements(c, kv, key);
}

static df_status index_put(cursor *c, df_map *m, df_gguf_str name, size_t i, const char *kind) {
  bool existed;
  DF_TRY(df_map_put(m, name.data, name.len, (uint32_t)i, &existed, c->err));
  if (existed)
    return DF_FAIL(c->err, DF_ERR_FORMAT, "could not read \"%s\": %s \"%.*s\" appears twice", c->g->label, kind,
                   (int)DF_MIN(name.len, 200), name.data);
  return DF_OK;
}

/* Name offsets are kept in the pointer fields until the buffer is final. */
static const char *as_pointer(size_t offset) { return (const char *)(uintptr_t)offset; }

static df_status read_metadata(df_gguf *g, cursor *c) {
  g->kv = df_calloc(g->n_kv, sizeof *g->kv);
  if (!g->kv) return DF_OOM(c->err, "metadata", g->n_kv * sizeof *g->kv);
  DF_TRY(df_map_init(&g->kv_index, g->n_kv, c->err));
  for (size_t i = 0; i < g->n_kv; i++) {
    df_gguf_str key;
    size_t offset;
    DF_TRY(take_name(g, c, DF_LIMIT_GGUF_KEY_BYTES, "metadata key", &key, &offset));
    DF_TRY(index_put(c, &g->kv_index, key, i, "metadata key"));
    DF_TRY(read_value(c, &g->kv[i], key));
    g->kv[i].key = as_pointer(offset);
  }
  return DF_OK;
}

static df_status bad_tensor(cursor *c, df_gguf_str name, const char *why) {
  return DF_FAIL(c->err, DF_ERR_FORMAT, "could not read \"%s\": tensor \"%.*s\" %s", c->g->label, (int)name.len,
                 name.data, why);
}

/* Number of values, and of bytes when the type is known. */
static df_status tensor_extent(cursor *c, df_gguf_tensor *t, df_gguf_str name) {
  size_t values = 1;
  uint32_t per_block, block_bytes;
  for (uint32_t d = 0; d < t->n_dims; d++) {
    if (t->dims[d] == 0) return bad_tensor(c, name, "has a dimension of 0");
    if (t->dims[d] > SIZE_MAX || !df_mul_size(values, (size_t)t->dims[d], &values))
      return bad_tensor(c, name, "has dimensions whose product overflows");
  }
  t->n_values = values;
  if (!df_gguf_dtype_block(t->type, &per_block, &block_bytes)) return DF_OK;
  if (t->dims[0] % per_block != 0)
    return DF_FAIL(c->err, DF_ERR_FORMAT,
                   "could not read \"%s\": tensor \"%.*s\" has rows of %llu values, %s needs a multiple of %u",
                   c->g->label, (int)name.len, name.data, (unsigned long long)t->dims[0], df_gguf_dtype_name(t->type),
                   per_block);
  if (!df_mul_size(values / per_block, block_bytes, &t->n_bytes))
    return bad_tensor(c, name, "has a byte count that overflows");
  return DF_OK;
}

static df_status read_tensor_info(df_gguf *g, cursor *c, df_gguf_tensor *t, size_t i) {
  df_gguf_str name;
  size_t offset;
  uint32_t type;
  DF_TRY(take_name(g, c, DF_LIMIT_TENSOR_NAME_BYTES, "tensor name", &name, &offset));
  DF_TRY(index_put(c, &g->tensor_index, name, i, "tensor"));
  t->name = as_pointer(offset);
  DF_TRY(take_u32(c, &t->n_dims, "the tensor table"));
  if (t->n_dims > DF_LIMIT_DIMS)
    return DF_FAIL(c->err, DF_ERR_FORMAT, "could not read \"%s\": tensor \"%.*s\" has %u dimensions, at most %d exist",
                   g->label, (int)name.len, name.data, t->n_dims, DF_LIMIT_DIMS);
  for (int d = 0; d < 4; d++) t->dims[d] = 1;
  for (uint32_t d = 0; d < t->n_dims; d++) DF_TRY(take_u64(c, &t->dims[d], "the tensor table"));
  DF_TRY(take_u32(c, &type, "the tensor table"));
  t->type = type <= INT32_MAX ? (int)type : -1;
  DF_TRY(take_u64(c, &t->offset, "the tensor table"));
  return tensor_extent(c, t, name);
}

static df_status read_tensor_table(df_gguf *g, cursor *c) {
  g->tensors = df_calloc(g->n_tensors, sizeof *g->tensors);
  if (!g->tensors) return DF_OOM(c->err, "the tensor table", g->n_tensors * sizeof *g->tensors);
  DF_TRY(df_map_init(&g->tensor_index, g->n_tensors, c->err));
  for (size_t i = 0; i < g->n_tensors; i++) DF_TRY(read_tensor_info(g, c, &g->tensors[i], i));
  return DF_OK;
}

static df_status place_tensors(df_gguf *g, cursor *c) {
  if (g->n_tensors == 0) return DF_OK;
  size_t start = df_round_up(c->pos, g->alignment);
  for (size_t i = 0; i < g->n_tensors; i++) {
    df_gguf_tensor *t = &g->tensors[i];
    if (t->offset % g->alignment != 0)
      return DF_FAIL(c->err, DF_ERR_FORMAT,
                     "could not read \"%s\": tensor \"%s\" is at offset %llu, not a multiple of %u", g->label, t->name,
                     (unsigned long long)t->offset, g->alignment);
    if (start > g->size || t->offset > g->size - start || t->n_bytes > g->size - start - t->offset) {
      df_status s =
          DF_FAIL(c->err, DF_ERR_FORMAT,
                  "could not read \"%s\": tensor \"%s\" needs %zu bytes at offset %llu of a data section of %zu",
                  g->label, t->name, t->n_bytes, (unsigned long long)t->offset, start > g->size ? 0 : g->size - start);
      df_error_hint(c->err, "the file is incomplete or damaged; download or copy it again");
      return s;
    }
    if (t->n_bytes) t->data = g->data + start + t->offset;
  }
  return DF_OK;
}

/* A count of the header: within our limit, and no more than the rest of the file has room for. */
static df_status check_count(cursor *c, uint64_t n, uint64_t most, uint64_t min_bytes, const char *what) {
  if (n > most)
    return DF_FAIL(c->err, DF_ERR_LIMIT,
                   "could not read \"%s\": %llu %s claimed in a file of %zu bytes (at most %llu are supported)",
                   c->g->label, (unsigned long long)n, what, c->g->size, (unsigned long long)most);
  if (n <= left(c) / min_bytes) return DF_OK;
  df_status s = DF_FAIL(c->err, DF_ERR_FORMAT, "could not read \"%s\": %llu %s claimed in a file of %zu bytes",
                        c->g->label, (unsigned long long)n, what, c->g->size);
  df_error_hint(c->err, "the file is incomplete or damaged; download or copy it again");
  return s;
}

static df_status read_header(df_gguf *g, cursor *c) {
  const uint8_t *magic;
  uint64_t n_tensors, n_kv;
  DF_TRY(take(c, 4, &magic, "the header"));
  if (memcmp(magic, "GGUF", 4) != 0)
    return DF_FAIL(c->err, DF_ERR_FORMAT,
                   "could not read \"%s\": not a GGUF file (the first bytes are %02x %02x %02x %02x)", g->label,
                   magic[0], magic[1], magic[2], magic[3]);
  DF_TRY(take_u32(c, &g->version, "the header"));
  if (g->version != 0 && (g->version & 0xFFFF) == 0)
    return DF_FAIL(c->err, DF_ERR_UNSUPPORTED, "could not read \"%s\": big-endian GGUF is not supported", g->label);
  if (g->version != 2 && g->version != 3)
    return DF_FAIL(c->err, DF_ERR_UNSUPPORTED, "could not read \"%s\": GGUF version %u, only 2 and 3 are supported",
                   g->label, g->version);
  DF_TRY(take_u64(c, &n_tensors, "the header"));
  DF_TRY(take_u64(c, &n_kv, "the header"));
  DF_TRY(check_count(c, n_tensors, DF_LIMIT_TENSORS, MIN_TENSOR_BYTES, "tensors"));
  DF_TRY(check_count(c, n_kv, DF_LIMIT_GGUF_KEYS, MIN_KV_BYTES, "metadata keys"));
  g->n_tensors = (size_t)n_tensors;
  g->n_kv = (size_t)n_kv;
  return DF_OK;
}

/* Keys are looked up by hash, so their names must be readable before the alignment can be asked for. */
static void fix_names(df_gguf *g) {
  for (size_t i = 0; i < g->n_kv; i++) g->kv[i].key = g->names.data + (uintptr_t)g->kv[i].key;
  for (size_t i = 0; i < g->n_tensors; i++) g->tensors[i].name = g->names.data + (uintptr_t)g->tensors[i].name;
}

static df_status read_all(df_gguf *g, df_error *err) {
  cursor c = {g, 0, err};
  DF_TRY(read_header(g, &c));
  DF_TRY(read_metadata(g, &c));
  DF_TRY(read_tensor_table(g, &c));
  fix_names(g);
  DF_TRY(df_gguf_opt_u32(g, "general.alignment", DF_GGUF_DEFAULT_ALIGN, &g->alignment, err));
  if (g->alignment < DF_LIMIT_GGUF_ALIGN_MIN || g->alignment > DF_LIMIT_GGUF_ALIGN_MAX ||
      (g->alignment & (g->alignment - 1)) != 0)
    return DF_FAIL(err, DF_ERR_FORMAT,
                   "could not read \"%s\": general.alignment is %u, not a power of two from %d to %d", g->label,
                   g->alignment, DF_LIMIT_GGUF_ALIGN_MIN, DF_LIMIT_GGUF_ALIGN_MAX);
  return place_tensors(g, &c);
}

/* Takes over *map (may be empty) in every case. */
static df_status open_common(df_file_map *map, const void *data, size_t n, const char *label, df_gguf **out,
                             df_error *err) {
  df_status s = DF_OK;
  df_gguf *g = df_calloc(1, sizeof *g);
  if (!g) {
    df_file_map_release(map);
    return DF_OOM(err, "a GGUF file", sizeof *g);
  }
  g->map = *map;
  g->data = data;
  g->size = n;
  df_buf_init(&g->names, 0);
  g->label = df_strdup(label);
  s = g->label ? read_all(g, err) : DF_OOM(err, "a file name", strlen(label));
  if (s != DF_OK) {
    df_gguf_free(g);
    return s;
  }
  *out = g;
  return DF_OK;
}

df_status df_gguf_open(const char *path, df_gguf **out, df_error *err) {
  df_file_map map = {0};
  DF_TRY(df_file_map_open(&map, path, err));
  return open_common(&map, map.data, map.size, path, out, err);
}

df_status df_gguf_open_bytes(const void *data, size_t n, const char *label, df_gguf **out, df_error *err) {
  df_file_map none = {0};
  return open_common(&none, data, n, label, out, err);
}

void df_gguf_free(df_gguf *g) {
  if (!g) return;
  df_map_release(&g->kv_index);
  df_map_release(&g->tensor_index);
  df_buf_release(&g->names);
  df_free(g->kv);
  df_free(g->tensors);
  df_free(g->label);
  df_file_map_release(&g->map);
  df_free(g);
}
