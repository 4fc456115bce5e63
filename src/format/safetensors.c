/* safetensors: header checks, tensor table, shards. */
#include "format/safetensors.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/buf.h"
#include "base/map.h"
#include "base/mem.h"
#include "base/size.h"
#include "format/file_map.h"
#include "format/json.h"
#include "format/limits.h"
#include "format/path.h"

typedef struct st_file {
  char *path;
  df_file_map map; /* empty when the bytes are borrowed */
  const uint8_t *data;
  size_t size;
  df_json *header; /* owns the tensor names */
} st_file;

struct df_st {
  st_file *files;
  uint32_t n_files, cap_files;
  df_st_tensor *tensors;
  size_t n_tensors, cap_tensors;
  df_map index;
};

typedef struct st_dtype {
  const char *name;
  uint32_t bits;
} st_dtype;

static const st_dtype k_dtypes[] = {
    {"BF16", 16}, {"F16", 16},    {"F32", 32},    {"F64", 64},    {"I8", 8},   {"U8", 8},
    {"I16", 16},  {"U16", 16},    {"I32", 32},    {"U32", 32},    {"I64", 64}, {"U64", 64},
    {"BOOL", 8},  {"F8_E4M3", 8}, {"F8_E5M2", 8}, {"F8_E8M0", 8}, {"F4", 4},
};

static df_status fail(const st_file *f, df_status code, df_error *err, const char *tensor, const char *why) {
  return DF_FAIL(err, code, "could not read \"%s\": tensor \"%.200s\" %s", f->path, tensor, why);
}

static df_status read_shape(const st_file *f, const char *name, const df_json *info, df_st_tensor *t, df_error *err) {
  const df_json *shape;
  DF_TRY(df_json_opt_tree(info, "shape", DF_JSON_ARRAY, &shape, err));
  if (!shape) return fail(f, DF_ERR_FORMAT, err, name, "has no \"shape\"");
  size_t n = df_json_size(shape), values = 1;
  if (n > DF_ST_MAX_DIMS)
    return DF_FAIL(err, DF_ERR_LIMIT,
                   "could not read \"%s\": tensor \"%.200s\" has %zu dimensions, at most %d are supported", f->path,
                   name, n, DF_ST_MAX_DIMS);
  t->n_dims = (uint32_t)n;
  for (size_t i = 0; i < n; i++) {
    int64_t d;
    DF_TRY(df_json_to_i64(df_json_at(shape, i), "a dimension", 0, INT64_MAX, &d, err));
    t->shape[i] = (uint64_t)d;
    if (!df_mul_size(values, (size_t)d, &values))
      return fail(f, DF_ERR_FORMAT, err, name, "has dimensions whose product overflows");
  }
  t->n_values = values;
  return DF_OK;
}

static df_status read_dtype(const st_file *f, const char *name, const df_json *info, df_st_tensor *t, uint32_t *bits,
                            df_error *err) {
  const char *s;
  DF_TRY(df_json_opt_str(info, "dtype", NULL, &s, err));
  if (!s) return fail(f, DF_ERR_FORMAT, err, name, "has no \"dtype\"");
  for (size_t i = 0; i < DF_COUNT_OF(k_dtypes); i++)
    if (strcmp(k_dtypes[i].name, s) == 0) {
      t->dtype = k_dtypes[i].name;
      *bits = k_dtypes[i].bits;
      return DF_OK;
    }
  return DF_FAIL(err, DF_ERR_UNSUPPORTED, "could not read \"%s\": tensor \"%.200s\" has the unknown dtype \"%.32s\"",
                 f->path, name, s);
}

static df_status read_extent(const st_file *f, size_t header_end, const char *name, const df_json *info, uint32_t bits,
                             df_st_tensor *t, df_error *err) {
  const df_json *offsets;
  int64_t begin, end;
  size_t total_bits;
  DF_TRY(df_json_opt_tree(info, "data_offsets", DF_JSON_ARRAY, &offsets, err));
  if (df_json_size(offsets) != 2) return fail(f, DF_ERR_FORMAT, err, name, "needs two \"data_offsets\"");
  DF_TRY(df_json_to_i64(df_json_at(offsets, 0), "the first offset", 0, INT64_MAX, &begin, err));
  DF_TRY(df_json_to_i64(df_json_at(offsets, 1), "the second offset", 0, INT64_MAX, &end, err));
  if (!df_mul_size((size_t)t->n_values, bits, &total_bits) || total_bits % 8 != 0)
    return fail(f, DF_ERR_FORMAT, err, name, "has no whole number of bytes or too many");
  size_t room = f->size - header_end;
  if (begin > end || (uint64_t)end > room) {
    df_status s = DF_FAIL(err, DF_ERR_FORMAT,
                          "could not read \"%s\": tensor \"%.200s\" spans bytes %lld to %lld of a data section of %zu",
                          f->path, name, (long long)begin, (long long)end, room);
    df_error_hint(err, "the file is incomplete or damaged; download or copy it again");
    return s;
  }
  t->n_bytes = total_bits / 8;
  if ((uint64_t)(end - begin) != t->n_bytes)
    return DF_FAIL(err, DF_ERR_FORMAT,
                   "could not read \"%s\": tensor \"%.200s\" spans %lld bytes, its shape and dtype need %zu", f->path,
                   name, (long long)(end - begin), t->n_bytes);
  t->data = f->data + header_end + begin;
  return DF_OK;
}

static df_status read_tensor(const st_file *f, size_t header_end, const char *name, size_t name_len,
                             const df_json *info, df_st_tensor *t, df_error *err) {
  uint32_t bits = 0;
  if (name_len == 0 || name_len > DF_LIMIT_TENSOR_NAME_BYTES || strlen(name) != name_len)
    return DF_FAIL(err, DF_ERR_FORMAT,
                   "could not read \"%s\": tensor name of %zu bytes is empty, overlong or holds a zero byte", f->path,
                   name_len);
  if (df_json_kind_of(info) != DF_JSON_OBJECT)
    return fail(f, DF_ERR_FORMAT, err, name, "is not described by an object");
  t->name = name;
  df_status s = read_dtype(f, name, info, t, &bits, err);
  if (s == DF_OK) s = read_shape(f, name, info, t, err);
  if (s == DF_OK) s = read_extent(f, header_end, name, info, bits, t, err);
  return s;
}

static int by_address(const void *a, const void *b) {
  const df_st_tensor *x = a, *y = b;
  if (x->data != y->data) return (uintptr_t)x->data < (uintptr_t)y->data ? -1 : 1;
  return x->n_bytes < y->n_bytes ? -1 : x->n_bytes > y->n_bytes;
}

/* Sorts the tensors of one file by place and refuses overlaps. */
static df_status check_overlap(const st_file *f, df_st *st, size_t first, df_error *err) {
  size_t n = st->n_tensors - first;
  if (n < 2) return DF_OK;
  df_st_tensor *t = st->tensors + first;
  qsort(t, n, sizeof *t, by_address);
  for (size_t i = 1; i < n; i++)
    if ((uintptr_t)t[i].data < (uintptr_t)t[i - 1].data + t[i - 1].n_bytes)
      return DF_FAIL(err, DF_ERR_FORMAT, "could not read \"%s\": tensors \"%.150s\" and \"%.150s\" overlap", f->path,
                     t[i - 1].name, t[i].name);
  return DF_OK;
}

static df_status read_header(st_file *f, size_t *header_end, df_error *err) {
  uint64_t n;
  if (f->size < sizeof n + 2)
    return DF_FAIL(err, DF_ERR_FORMAT, "could not read \"%s\": %zu bytes are too few for a safetensors file", f->path,
                   f->size);
  memcpy(&n, f->data, sizeof n); /* little endian, as the host */
  if (n > DF_LIMIT_ST_HEADER_BYTES || n > f->size - sizeof n) {
    df_status s =
        DF_FAIL(err, DF_ERR_FORMAT, "could not read \"%s\": header of %llu bytes in a file of %zu (at most %d)",
                f->path, (unsigned long long)n, f->size, DF_LIMIT_ST_HEADER_BYTES);
    df_error_hint(err, "the file is not safetensors, or incomplete; download or copy it again");
    return s;
  }
  if (n < 2 || f->data[sizeof n] != '{')
    return DF_FAIL(err, DF_ERR_FORMAT, "could not read \"%s\": the header is not a JSON object", f->path);
  df_status s = df_json_parse(f->data + sizeof n, (size_t)n, &f->header, err);
  if (s != DF_OK) {
    df_error_prefix(err, "could not read the header of \"%s\"", f->path);
    return s;
  }
  *header_end = sizeof n + (size_t)n;
  return DF_OK;
}

static df_status reserve_tensors(df_st *st, size_t extra, df_error *err) {
  size_t want = st->n_tensors + extra, bytes;
  if (want > DF_LIMIT_TENSORS || !df_mul_size(want, sizeof *st->tensors, &bytes))
    return DF_FAIL(err, DF_ERR_LIMIT, "could not read a checkpoint of %zu tensors: at most %d are supported", want,
                   DF_LIMIT_TENSORS);
  if (want <= st->cap_tensors) return DF_OK;
  df_st_tensor *p = df_realloc(st->tensors, bytes ? bytes : sizeof *p);
  if (!p) return DF_OOM(err, "the tensor table", bytes);
  st->tensors = p;
  st->cap_tensors = want;
  return DF_OK;
}

/* Adds the tensors of an opened file. */
static df_status add_tensors(df_st *st, uint32_t file, df_error *err) {
  st_file *f = &st->files[file];
  size_t header_end = 0, first = st->n_tensors;
  DF_TRY(read_header(f, &header_end, err));
  DF_TRY(reserve_tensors(st, df_json_size(f->header), err));
  df_json_iter it = df_json_begin(f->header);
  const char *name;
  size_t len;
  const df_json *info;
  while (df_json_next(&it, &name, &len, &info)) {
    if (strcmp(name, "__metadata__") == 0) continue;
    df_st_tensor t = {.file = file};
    df_status s = read_tensor(f, header_end, name, len, info, &t, err);
    if (s != DF_OK) {
      /* Messages of the typed getters do not know where they are. */
      if (err && strncmp(err->msg, "could not", 9) != 0)
        df_error_prefix(err, "could not read \"%s\": tensor \"%.100s\"", f->path, name);
      return s;
    }
    st->tensors[st->n_tensors++] = t;
  }
  return check_overlap(f, st, first, err);
}

/* Adds a file; the path is copied. A map (may be NULL: bytes are borrowed) is taken over in every case. */
static df_status add_file(df_st *st, const char *path, df_file_map *map, const void *data, size_t n, df_error *err) {
  if (st->n_files == st->cap_files) {
    uint32_t cap = st->cap_files ? st->cap_files * 2 : 4;
    st_file *p = df_realloc(st->files, cap * sizeof *p);
    if (!p) {
      if (map) df_file_map_release(map);
      return DF_OOM(err, "the shard table", cap * sizeof *p);
    }
    st->files = p;
    st->cap_files = cap;
  }
  st_file *f = &st->files[st->n_files++];
  *f = (st_file){.data = data, .size = n};
  if (map) f->map = *map;
  f->path = df_strdup(path);
  if (!f->path) return DF_OOM(err, "a file name", strlen(path));
  return add_tensors(st, st->n_files - 1, err);
}

static df_status map_and_add(df_st *st, const char *path, df_error *err) {
  df_file_map map;
  DF_TRY(df_file_map_open(&map, path, err));
  return add_file(st, path, &map, map.data, map.size, err);
}

static df_status build_index(df_st *st, df_error *err) {
  DF_TRY(df_map_init(&st->index, st->n_tensors, err));
  for (size_t i = 0; i < st->n_tensors; i++) {
    const df_st_tensor *t = &st->tensors[i];
    bool existed;
    DF_TRY(df_map_put(&st->index, t->name, strlen(t->name), (uint32_t)i, &existed, err));
    if (existed) return fail(&st->files[t->file], DF_ERR_FORMAT, err, t->name, "appears twice");
  }
  return DF_OK;
}

static df_status create(df_st **out, df_error *err) {
  df_st *st = df_calloc(1, sizeof *st);
  if (!st) return DF_OOM(err, "a safetensors file", sizeof *st);
  *out = st;
  return DF_OK;
}

static df_status finish(df_st *st, df_status s, df_st **out, df_error *err) {
  if (s == DF_OK) s = build_index(st, err);
  if (s != DF_OK) {
    df_st_free(st);
    return s;
  }
  *out = st;
  return DF_OK;
}

df_status df_st_open(const char *path, df_st **out, df_error *err) {
  df_st *st;
  DF_TRY(create(&st, err));
  return finish(st, map_and_add(st, path, err), out, err);
}

df_status df_st_open_bytes(const void *data, size_t n, const char *label, df_st **out, df_error *err) {
  df_st *st;
  DF_TRY(create(&st, err));
  return finish(st, add_file(st, label, NULL, data, n, err), out, err);
}

/* ---- shards -------------------------------------------------------------------------------------------- */

/* A shard must be a plain file name, so that an index cannot make us open files elsewhere. */
static bool is_plain_name(const char *s, size_t len) {
  if (!s || len == 0 || len > DF_LIMIT_FILE_NAME_BYTES || strlen(s) != len) return false;
  return strchr(s, '/') == NULL && strchr(s, '\\') == NULL && s[0] != '.';
}

/* Keeps only those tensors of a shard that the index places in it. */
static void keep_mapped(df_st *st, size_t first, const df_json *weight_map, const char *shard) {
  size_t kept = first;
  for (size_t i = first; i < st->n_tensors; i++) {
    const char *where = df_json_str(df_json_member(weight_map, st->tensors[i].name), NULL);
    if (where && strcmp(where, shard) == 0) st->tensors[kept++] = st->tensors[i];
  }
  st->n_tensors = kept;
}

static df_status add_shard(df_st *st, const char *index_path, const df_json *weight_map, const char *shard,
                           df_error *err) {
  char *path;
  size_t first = st->n_tensors;
  if (st->n_files >= DF_LIMIT_SHARDS)
    return DF_FAIL(err, DF_ERR_LIMIT, "could not read \"%s\": more than %d shards", index_path, DF_LIMIT_SHARDS);
  DF_TRY(df_path_sibling(index_path, shard, &path, err));
  df_status s = map_and_add(st, path, err);
  if (s == DF_OK) keep_mapped(st, first, weight_map, shard);
  df_free(path);
  return s;
}

/* Opens every file the map names, once. */
static df_status add_shards(df_st *st, const char *index_path, const df_json *weight_map, df_map *seen, df_error *err) {
  df_json_iter it = df_json_begin(weight_map);
  const char *name;
  const df_json *v;
  while (df_json_next(&it, &name, NULL, &v)) {
    size_t len = 0;
    bool existed;
    const char *shard = df_json_str(v, &len);
    if (!is_plain_name(shard, len))
      return DF_FAIL(err, DF_ERR_FORMAT,
                     "could not read \"%s\": tensor \"%.100s\" is placed in \"%.100s\", not a plain file name",
                     index_path, name, shard ? shard : "(no string)");
    DF_TRY(df_map_put(seen, shard, len, 0, &existed, err));
    if (!existed) DF_TRY(add_shard(st, index_path, weight_map, shard, err));
  }
  return DF_OK;
}

/* Every tensor of the index must have been found. */
static df_status check_complete(const df_st *st, const char *index_path, const df_json *weight_map, df_error *err) {
  if (st->n_tensors == df_json_size(weight_map)) return DF_OK;
  df_map have = {0};
  df_status s = df_map_init(&have, st->n_tensors, err);
  for (size_t i = 0; i < st->n_tensors && s == DF_OK; i++)
    s = df_map_put(&have, st->tensors[i].name, strlen(st->tensors[i].name), 0, NULL, err);
  df_json_iter it = df_json_begin(weight_map);
  const char *name;
  size_t len;
  const df_json *v;
  uint32_t unused;
  while (s == DF_OK && df_json_next(&it, &name, &len, &v))
    if (!df_map_get(&have, name, len, &unused))
      s = DF_FAIL(err, DF_ERR_FORMAT, "could not read \"%s\": tensor \"%.150s\" is not in its shard \"%.150s\"",
                  index_path, name, df_json_str(v, NULL));
  df_map_release(&have);
  return s;
}

static df_status open_index(df_st *st, const char *index_path, const df_json *root, df_error *err) {
  const df_json *weight_map;
  df_map seen;
  DF_TRY(df_json_opt_tree(root, "weight_map", DF_JSON_OBJECT, &weight_map, err));
  if (df_json_size(weight_map) == 0)
    return DF_FAIL(err, DF_ERR_FORMAT, "could not read \"%s\": no \"weight_map\" with tensors", index_path);
  DF_TRY(df_map_init(&seen, 16, err));
  df_status s = add_shards(st, index_path, weight_map, &seen, err);
  if (s == DF_OK) s = check_complete(st, index_path, weight_map, err);
  df_map_release(&seen);
  return s;
}

df_status df_st_open_index(const char *index_path, df_st **out, df_error *err) {
  df_st *st;
  df_json *root = NULL;
  DF_TRY(create(&st, err));
  df_status s = df_json_load(index_path, DF_LIMIT_JSON_BYTES, &root, err);
  if (s == DF_OK) s = open_index(st, index_path, root, err);
  df_json_free(root);
  return finish(st, s, out, err);
}

df_status df_st_open_folder(const char *folder, df_st **out, df_error *err) {
  char *index_path, *single = NULL;
  struct stat sb;
  DF_TRY(df_path_join(folder, "model.safetensors.index.json", &index_path, err));
  df_status s;
  if (stat(index_path, &sb) == 0) {
    s = df_st_open_index(index_path, out, err);
  } else {
    s = df_path_join(folder, "model.safetensors", &single, err);
    if (s == DF_OK) s = df_st_open(single, out, err);
  }
  df_free(index_path);
  df_free(single);
  return s;
}

void df_st_free(df_st *st) {
  if (!st) return;
  for (uint32_t i = 0; i < st->n_files; i++) {
    df_json_free(st->files[i].header);
    df_file_map_release(&st->files[i].map);
    df_free(st->files[i].path);
  }
  df_map_release(&st->index);
  df_free(st->files);
  df_free(st->tensors);
  df_free(st);
}

size_t df_st_count(const df_st *st) { return st->n_tensors; }
const df_st_tensor *df_st_at(const df_st *st, size_t i) { return &st->tensors[i]; }
const char *df_st_file_name(const df_st *st, uint32_t file) { return st->files[file].path; }

const df_st_tensor *df_st_find(const df_st *st, const char *name) {
  uint32_t i;
  return df_map_get(&st->index, name, strlen(name), &i) ? &st->tensors[i] : NULL;
}

void df_st_drop_all(const df_st *st) {
  for (uint32_t i = 0; i < st->n_files; i++) {
    const df_file_map *m = &st->files[i].map;
    df_file_map_drop(m, m->data, m->size);
  }
}

void df_st_drop(const df_st *st, const df_st_tensor *t) {
  df_file_map_drop(&st->files[t->file].map, t->data, t->n_bytes);
}
