/* Writing GGUF version 3. Metadata is kept in file form, so finishing is header + metadata + tensor table + data. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/size.h"
#include "format/gguf.h"
#include "format/gguf_internal.h"
#include "format/limits.h"

typedef struct out_tensor {
  char *name;
  int type;
  uint32_t n_dims;
  uint64_t dims[4];
  size_t n_bytes;
  uint64_t offset;
  const void *data; /* borrowed, or NULL */
} out_tensor;

struct df_gguf_writer {
  df_buf kv; /* finished entries */
  uint64_t n_kv;
  char **keys; /* to refuse repeated keys */
  size_t cap_keys;
  out_tensor *tensors;
  size_t n_tensors, cap_tensors;
  uint64_t data_bytes; /* end of the last tensor, padded */
  uint32_t alignment;
};

/* Where the bytes go: a buffer or a file. */
typedef struct sink {
  df_buf *buf;
  FILE *file;
  const char *path;
  uint64_t pos;
} sink;

df_status df_gguf_writer_create(df_gguf_writer **out, df_error *err) {
  df_gguf_writer *w = df_calloc(1, sizeof *w);
  if (!w) return DF_OOM(err, "a GGUF writer", sizeof *w);
  df_buf_init(&w->kv, 0);
  w->alignment = DF_GGUF_DEFAULT_ALIGN;
  *out = w;
  return DF_OK;
}

void df_gguf_writer_free(df_gguf_writer *w) {
  if (!w) return;
  for (size_t i = 0; i < w->n_kv; i++) df_free(w->keys[i]);
  for (size_t i = 0; i < w->n_tensors; i++) df_free(w->tensors[i].name);
  df_free(w->keys);
  df_free(w->tensors);
  df_buf_release(&w->kv);
  df_free(w);
}

/* Makes room for one more element of an array that doubles. */
static df_status grow(void **array, size_t *cap, size_t n, size_t elem, df_error *err) {
  size_t bytes, want = *cap ? *cap * 2 : 16;
  if (n < *cap) return DF_OK;
  if (!df_mul_size(want, elem, &bytes)) return DF_FAIL(err, DF_ERR_LIMIT, "could not grow a GGUF table: too large");
  void *p = df_realloc(*array, bytes);
  if (!p) return DF_OOM(err, "a GGUF table", bytes);
  *array = p;
  *cap = want;
  return DF_OK;
}

static df_status put_u32(df_buf *b, uint32_t v, df_error *err) { return df_buf_put(b, &v, sizeof v, err); }
static df_status put_u64(df_buf *b, uint64_t v, df_error *err) { return df_buf_put(b, &v, sizeof v, err); }

static df_status put_bytes(df_buf *b, const char *p, size_t n, df_error *err) {
  DF_TRY(put_u64(b, n, err));
  return df_buf_put(b, p, n, err);
}

static df_status check_key(df_gguf_writer *w, const char *key, df_error *err) {
  size_t n = strlen(key);
  if (n == 0 || n > DF_LIMIT_GGUF_KEY_BYTES)
    return DF_FAIL(err, DF_ERR_ARGUMENT, "could not add a metadata key of %zu bytes: 1 to %d are allowed", n,
                   DF_LIMIT_GGUF_KEY_BYTES);
  for (size_t i = 0; i < w->n_kv; i++)
    if (strcmp(w->keys[i], key) == 0)
      return DF_FAIL(err, DF_ERR_ARGUMENT, "could not add metadata key \"%s\": it is there already", key);
  return DF_OK;
}

/* Adds an entry whose elements are already in file form. On failure the writer is as before. */
static df_status put_entry(df_gguf_writer *w, const char *key, df_gguf_type type, df_gguf_type elem, uint64_t n,
                           const void *bytes, size_t n_bytes, df_error *err) {
  DF_TRY(check_key(w, key, err));
  DF_TRY(grow((void **)&w->keys, &w->cap_keys, (size_t)w->n_kv, sizeof *w->keys, err));
  char *copy = df_strdup(key);
  if (!copy) return DF_OOM(err, "a metadata key", strlen(key));
  size_t mark = w->kv.len;
  df_status s = put_bytes(&w->kv, key, strlen(key), err);
  if (s == DF_OK) s = put_u32(&w->kv, type, err);
  if (s == DF_OK && type == DF_GGUF_ARRAY) s = put_u32(&w->kv, elem, err);
  if (s == DF_OK && type == DF_GGUF_ARRAY) s = put_u64(&w->kv, n, err);
  if (s == DF_OK) s = df_buf_put(&w->kv, bytes, n_bytes, err);
  if (s != DF_OK) {
    w->kv.len = mark;
    df_free(copy);
    return s;
  }
  w->keys[w->n_kv++] = copy;
  return DF_OK;
}

df_status df_gguf_put_scalar(df_gguf_writer *w, const char *key, df_gguf_type type, const void *value, df_error *err) {
  size_t size = df_gguf_value_size(type);
  if (size == 0) return DF_FAIL(err, DF_ERR_ARGUMENT, "could not add metadata key \"%s\": not a scalar type", key);
  if (strcmp(key, "general.alignment") == 0) {
    uint32_t a;
    if (type != DF_GGUF_U32)
      return DF_FAIL(err, DF_ERR_ARGUMENT, "could not add metadata key \"%s\": it must be u32", key);
    memcpy(&a, value, sizeof a);
    if (w->n_tensors || a < DF_LIMIT_GGUF_ALIGN_MIN || a > DF_LIMIT_GGUF_ALIGN_MAX || (a & (a - 1)) != 0)
      return DF_FAIL(err, DF_ERR_ARGUMENT, "could not set the alignment to %u: not a power of two, or too late", a);
    DF_TRY(put_entry(w, key, type, type, 1, value, size, err));
    w->alignment = a;
    return DF_OK;
  }
  return put_entry(w, key, type, type, 1, value, size, err);
}

df_status df_gguf_put_array(df_gguf_writer *w, const char *key, df_gguf_type elem, const void *values, uint64_t n,
                            df_error *err) {
  size_t bytes, size = df_gguf_value_size(elem);
  if (size == 0 || n > SIZE_MAX || !df_mul_size((size_t)n, size, &bytes))
    return DF_FAIL(err, DF_ERR_ARGUMENT, "could not add metadata key \"%s\": not an array of scalars", key);
  return put_entry(w, key, DF_GGUF_ARRAY, elem, n, values, bytes, err);
}

df_status df_gguf_put_str_array(df_gguf_writer *w, const char *key, const df_gguf_str *s, uint64_t n, df_error *err) {
  df_buf b;
  df_status st = DF_OK;
  df_buf_init(&b, 0);
  for (uint64_t i = 0; i < n && st == DF_OK; i++) st = put_bytes(&b, s[i].data, s[i].len, err);
  if (st == DF_OK) st = put_entry(w, key, DF_GGUF_ARRAY, DF_GGUF_STRING, n, b.data, b.len, err);
  df_buf_release(&b);
  return st;
}

df_status df_gguf_put_str(df_gguf_writer *w, const char *key, df_gguf_str v, df_error *err) {
  df_buf b;
  df_buf_init(&b, 0);
  df_status s = put_bytes(&b, v.data, v.len, err);
  if (s == DF_OK) s = put_entry(w, key, DF_GGUF_STRING, DF_GGUF_STRING, 1, b.data, b.len, err);
  df_buf_release(&b);
  return s;
}

df_status df_gguf_put_u32(df_gguf_writer *w, const char *key, uint32_t v, df_error *err) {
  return df_gguf_put_scalar(w, key, DF_GGUF_U32, &v, err);
}

df_status df_gguf_put_f32(df_gguf_writer *w, const char *key, float v, df_error *err) {
  return df_gguf_put_scalar(w, key, DF_GGUF_F32, &v, err);
}

df_status df_gguf_put_bool(df_gguf_writer *w, const char *key, bool v, df_error *err) {
  uint8_t b = v;
  return df_gguf_put_scalar(w, key, DF_GGUF_BOOL, &b, err);
}

df_status df_gguf_put_cstr(df_gguf_writer *w, const char *key, const char *s, df_error *err) {
  return df_gguf_put_str(w, key, (df_gguf_str){s, strlen(s)}, err);
}

df_status df_gguf_put_kv(df_gguf_writer *w, const df_gguf_kv *kv, df_error *err) {
  if (kv->type != DF_GGUF_ARRAY && kv->type != DF_GGUF_STRING)
    return df_gguf_put_scalar(w, kv->key, kv->type, kv->data, err);
  return put_entry(w, kv->key, kv->type, kv->elem, kv->count, kv->data, kv->n_bytes, err);
}

static df_status tensor_bytes(const char *name, int type, uint32_t n_dims, const uint64_t *dims, size_t *out,
                              df_error *err) {
  uint32_t per_block, block_bytes;
  size_t values = 1;
  if (n_dims > DF_LIMIT_DIMS)
    return DF_FAIL(err, DF_ERR_ARGUMENT, "could not add tensor \"%s\": %u dimensions", name, n_dims);
  if (!df_gguf_dtype_block(type, &per_block, &block_bytes))
    return DF_FAIL(err, DF_ERR_ARGUMENT, "could not add tensor \"%s\": unknown type %d", name, type);
  for (uint32_t d = 0; d < n_dims; d++)
    if (dims[d] == 0 || dims[d] > SIZE_MAX || !df_mul_size(values, (size_t)dims[d], &values))
      return DF_FAIL(err, DF_ERR_ARGUMENT, "could not add tensor \"%s\": dimension %u is %llu", name, d,
                     (unsigned long long)dims[d]);
  if ((n_dims ? dims[0] : 1) % per_block != 0)
    return DF_FAIL(err, DF_ERR_ARGUMENT, "could not add tensor \"%s\": rows of %llu values, %s needs a multiple of %u",
                   name, (unsigned long long)(n_dims ? dims[0] : 1), df_gguf_dtype_name(type), per_block);
  if (!df_mul_size(values / per_block, block_bytes, out) || *out > PTRDIFF_MAX)
    return DF_FAIL(err, DF_ERR_ARGUMENT, "could not add tensor \"%s\": too large", name);
  return DF_OK;
}

df_status df_gguf_put_tensor(df_gguf_writer *w, const char *name, int type, uint32_t n_dims, const uint64_t *dims,
                             const void *data, df_error *err) {
  out_tensor t = {.type = type, .n_dims = n_dims, .offset = w->data_bytes, .data = data};
  size_t len = strlen(name);
  if (len == 0 || len > DF_LIMIT_TENSOR_NAME_BYTES)
    return DF_FAIL(err, DF_ERR_ARGUMENT, "could not add a tensor with a name of %zu bytes: 1 to %d are allowed", len,
                   DF_LIMIT_TENSOR_NAME_BYTES);
  for (size_t i = 0; i < w->n_tensors; i++)
    if (strcmp(w->tensors[i].name, name) == 0)
      return DF_FAIL(err, DF_ERR_ARGUMENT, "could not add tensor \"%s\": it is there already", name);
  DF_TRY(tensor_bytes(name, type, n_dims, dims, &t.n_bytes, err));
  if (n_dims) memcpy(t.dims, dims, n_dims * sizeof *dims);
  DF_TRY(grow((void **)&w->tensors, &w->cap_tensors, w->n_tensors, sizeof *w->tensors, err));
  t.name = df_strdup(name);
  if (!t.name) return DF_OOM(err, "a tensor name", len);
  w->tensors[w->n_tensors++] = t;
  w->data_bytes += df_round_up(t.n_bytes, w->alignment);
  return DF_OK;
}

static df_status emit(sink *s, const void *p, size_t n, df_error *err) {
  s->pos += n;
  if (s->buf) return df_buf_put(s->buf, p, n, err);
  if (n && fwrite(p, 1, n, s->file) != n)
    return DF_FAIL(err, DF_ERR_IO, "could not write \"%s\": %s", s->path, strerror(errno));
  return DF_OK;
}

static df_status pad(sink *s, uint32_t alignment, df_error *err) {
  static const char zeros[64];
  size_t n = (size_t)((alignment - s->pos % alignment) % alignment);
  for (size_t part; n > 0; n -= part) {
    part = DF_MIN(n, sizeof zeros);
    DF_TRY(emit(s, zeros, part, err));
  }
  return DF_OK;
}

static df_status build_head(const df_gguf_writer *w, df_buf *b, df_error *err) {
  DF_TRY(df_buf_put(b, "GGUF", 4, err));
  DF_TRY(put_u32(b, DF_GGUF_VERSION, err));
  DF_TRY(put_u64(b, w->n_tensors, err));
  DF_TRY(put_u64(b, w->n_kv, err));
  DF_TRY(df_buf_put(b, w->kv.data, w->kv.len, err));
  for (size_t i = 0; i < w->n_tensors; i++) {
    const out_tensor *t = &w->tensors[i];
    DF_TRY(put_bytes(b, t->name, strlen(t->name), err));
    DF_TRY(put_u32(b, t->n_dims, err));
    DF_TRY(df_buf_put(b, t->dims, t->n_dims * sizeof t->dims[0], err));
    DF_TRY(put_u32(b, (uint32_t)t->type, err));
    DF_TRY(put_u64(b, t->offset, err));
  }
  return DF_OK;
}

static df_status write_all(const df_gguf_writer *w, df_gguf_fill fill, void *user, sink *to, df_error *err) {
  df_buf head;
  df_buf_init(&head, 0);
  df_status s = build_head(w, &head, err);
  if (s == DF_OK) s = emit(to, head.data, head.len, err);
  df_buf_release(&head);
  if (s == DF_OK) s = pad(to, w->alignment, err);
  for (size_t i = 0; i < w->n_tensors && s == DF_OK; i++) {
    const out_tensor *t = &w->tensors[i];
    const void *data = t->data;
    if (!data && !fill)
      s = DF_FAIL(err, DF_ERR_ARGUMENT, "could not write tensor \"%s\": it has no data", t->name);
    else if (!data)
      s = fill(user, t->name, t->n_bytes, &data, err);
    if (s == DF_OK) s = emit(to, data, t->n_bytes, err);
    if (s == DF_OK) s = pad(to, w->alignment, err);
  }
  return s;
}

df_status df_gguf_write_buf(const df_gguf_writer *w, df_gguf_fill fill, void *user, df_buf *b, df_error *err) {
  sink to = {.buf = b};
  size_t mark = b->len;
  df_status s = write_all(w, fill, user, &to, err);
  if (s != DF_OK) b->len = mark;
  return s;
}

/* Flushes to the disk before the rename, so that a crash leaves the old file or the new one. */
static df_status finish_file(FILE *f, const char *tmp, const char *path, df_error *err) {
  int bad = fflush(f) != 0 || fsync(fileno(f)) != 0;
  int e = errno;
  if (fclose(f) != 0 && !bad) {
    bad = 1;
    e = errno;
  }
  if (!bad && rename(tmp, path) != 0) {
    bad = 1;
    e = errno;
  }
  return bad ? DF_FAIL(err, DF_ERR_IO, "could not write \"%s\": %s", path, strerror(e)) : DF_OK;
}

static FILE *open_new(const char *path) {
  int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (fd < 0) return NULL;
  FILE *f = fdopen(fd, "wb");
  if (!f) {
    (void)close(fd);
    (void)unlink(path);
  }
  return f;
}

df_status df_gguf_write_file(const df_gguf_writer *w, df_gguf_fill fill, void *user, const char *path, df_error *err) {
  df_buf tmp;
  df_buf_init(&tmp, 0);
  DF_TRY(df_buf_printf(&tmp, err, "%s.tmp%ld", path, (long)getpid()));
  FILE *f = open_new(tmp.data);
  df_status s;
  if (!f) {
    s = DF_FAIL(err, DF_ERR_IO, "could not create \"%s\": %s", tmp.data, strerror(errno));
  } else {
    sink to = {.file = f, .path = path};
    s = write_all(w, fill, user, &to, err);
    if (s == DF_OK)
      s = finish_file(f, tmp.data, path, err);
    else
      (void)fclose(f);
    if (s != DF_OK) (void)unlink(tmp.data);
  }
  df_buf_release(&tmp);
  return s;
}
