#include "format/weights_source.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/mem.h"
#include "base/size.h"
#include "format/path.h"
#include "format/safetensors.h"
#include "format/tensor_names.h"
#include "format/weights_scale.h"

struct df_source {
  char *path;
  df_gguf *gguf; /* exactly one of the two */
  df_st *st;
  df_config config;
};

int df_st_dtype_id(const char *st_dtype) {
  static const struct {
    const char *name;
    int id;
  } map[] = {{"F32", 0},  {"F16", 1},  {"BF16", 30},
             {"F64", 28}, {"I8", 24},  {"I16", 25},
             {"I32", 26}, {"I64", 27}, {"F8_E4M3", DF_TENSOR_F8_E4M3}};
  for (size_t i = 0; i < DF_COUNT_OF(map); i++)
    if (strcmp(map[i].name, st_dtype) == 0) return map[i].id;
  return -1;
}

static void view_gguf(const df_gguf_tensor *t, df_tensor_view *v) {
  *v = (df_tensor_view){.name = t->name, .dtype = t->type, .n_dims = t->n_dims, .data = t->data, .n_bytes = t->n_bytes};
  memcpy(v->dims, t->dims, sizeof v->dims);
}

static void view_st(const df_st_tensor *t, df_tensor_view *v) {
  *v = (df_tensor_view){.name = t->name, .dtype = df_st_dtype_id(t->dtype), .dims = {1, 1, 1, 1}};
  if (t->n_dims > 4) {
    v->dtype = -1;
    return;
  }
  v->n_dims = t->n_dims;
  for (uint32_t i = 0; i < t->n_dims; i++) v->dims[i] = t->shape[t->n_dims - 1 - i];
  if (v->dtype < 0) return;
  v->data = t->data;
  v->n_bytes = t->n_bytes;
}

/* Features that only the list of tensors tells. Known-but-unsupported ones were named by the config reader already. */
static void note_strange_tensors(df_source *s) {
  df_config *c = &s->config;
  size_t n = df_source_count(s);
  for (size_t i = 0; i < n; i++) {
    char mapped[DF_NAME_MAX];
    const char *name = s->gguf ? df_gguf_tensor_at(s->gguf, i)->name : df_st_at(s->st, i)->name;
    const char *ours = s->gguf ? name : df_name_from_hf(name, mapped) ? mapped : name;
    if (df_name_is_ignorable(name)) continue;
    /* Long-context frequency factors of llama files; the model loader applies them. */
    if (s->gguf && !c->is_draft && strcmp(name, "rope_freqs.weight") == 0) continue;
    if (strcmp(name, "d2t") == 0) df_config_note_unsupported(c, "a reduced draft vocabulary (tensor \"d2t\")");
    if (strcmp(name, "mask_embedding") == 0)
      df_config_note_unsupported(c, "a mask embedding of its own (tensor \"mask_embedding\")");
    if (strstr(name, "attention_sink_bias")) df_config_note_unsupported(c, "attention sinks (tensor \"%.100s\")", name);
    if (!df_name_is_known(ours, c->is_draft, c->n_layers))
      df_config_note_unsupported(c, "the tensor \"%.100s\", which is no part of a %s %s,", name, c->arch,
                                 c->is_draft ? "draft" : "model");
  }
}

static df_status open_gguf(df_source *s, const char *path, df_error *err) {
  uint32_t splits;
  DF_TRY(df_gguf_open(path, &s->gguf, err));
  DF_TRY(df_gguf_opt_u32(s->gguf, "split.count", 1, &splits, err));
  if (splits > 1) {
    df_status st =
        DF_FAIL(err, DF_ERR_UNSUPPORTED, "could not use \"%s\": it is one of %u parts of a split model", path, splits);
    df_error_hint(err, "merge the parts into one file first, for example with llama-gguf-split --merge");
    return st;
  }
  return df_config_from_gguf(s->gguf, &s->config, err);
}

static df_status open_safetensors(df_source *s, const char *path, df_error *err) {
  char *config;
  DF_TRY(df_path_sibling(path, "config.json", &config, err));
  df_status st = df_config_load_hf(config, &s->config, err);
  if (st == DF_ERR_IO) df_error_hint(err, "a .safetensors file needs its config.json in the same folder");
  df_free(config);
  if (st == DF_OK) st = df_st_open(path, &s->st, err);
  return st;
}

static df_status open_folder(df_source *s, const char *path, df_error *err) {
  char *config;
  DF_TRY(df_path_join(path, "config.json", &config, err));
  df_status st = df_config_load_hf(config, &s->config, err);
  if (st == DF_ERR_IO)
    df_error_hint(err,
                  "a model folder needs config.json and model.safetensors; for GGUF give the file, not its folder");
  df_free(config);
  if (st != DF_OK) return st;
  st = df_st_open_folder(path, &s->st, err);
  if (st == DF_ERR_IO)
    df_error_hint(err, "a model folder needs model.safetensors, or its index and every shard that it names");
  return st;
}

/* A file of four bytes or more that starts with the GGUF magic. */
static bool is_gguf(const char *path) {
  char magic[4];
  FILE *f = fopen(path, "rb");
  if (!f) return false;
  bool yes = fread(magic, 1, sizeof magic, f) == sizeof magic && memcmp(magic, "GGUF", 4) == 0;
  (void)fclose(f);
  return yes;
}

static bool ends_with(const char *s, const char *end) {
  size_t n = strlen(s), m = strlen(end);
  return n >= m && strcmp(s + n - m, end) == 0;
}

static df_status open_any(df_source *s, const char *path, df_error *err) {
  struct stat sb;
  if (stat(path, &sb) != 0) {
    int e = errno;
    df_status st = DF_FAIL(err, DF_ERR_IO, "could not open \"%s\": %s", path, strerror(e));
    if (e == ENOENT) df_error_hint(err, "check the path; relative paths start at the current folder");
    return st;
  }
  if (S_ISDIR(sb.st_mode)) return open_folder(s, path, err);
  if (ends_with(path, ".gguf") || (S_ISREG(sb.st_mode) && is_gguf(path))) return open_gguf(s, path, err);
  if (ends_with(path, ".safetensors")) return open_safetensors(s, path, err);
  df_status st = DF_FAIL(err, DF_ERR_FORMAT, "could not open \"%s\": not a GGUF or safetensors file", path);
  df_error_hint(err, "give a .gguf file, a .safetensors file or a folder with config.json and model.safetensors");
  return st;
}

df_status df_source_open(const char *path, df_source **out, df_error *err) {
  df_source *s = df_calloc(1, sizeof *s);
  if (!s) return DF_OOM(err, "a model file", sizeof *s);
  s->path = df_strdup(path);
  df_status st = s->path ? open_any(s, path, err) : DF_OOM(err, "a file name", strlen(path));
  if (st != DF_OK) {
    df_source_close(s);
    return st;
  }
  note_strange_tensors(s);
  *out = s;
  return DF_OK;
}

void df_source_close(df_source *s) {
  if (!s) return;
  df_gguf_free(s->gguf);
  df_st_free(s->st);
  df_free(s->path);
  df_free(s);
}

const char *df_source_path(const df_source *s) { return s->path; }
const df_config *df_source_config(const df_source *s) { return &s->config; }
const df_gguf *df_source_gguf(const df_source *s) { return s->gguf; }
size_t df_source_count(const df_source *s) { return s->gguf ? df_gguf_tensor_count(s->gguf) : df_st_count(s->st); }

void df_source_at(const df_source *s, size_t i, df_tensor_view *out) {
  if (s->gguf)
    view_gguf(df_gguf_tensor_at(s->gguf, i), out);
  else
    view_st(df_st_at(s->st, i), out);
}

bool df_source_find(const df_source *s, const char *gguf_name, df_tensor_view *out) {
  if (s->gguf) {
    const df_gguf_tensor *t = df_gguf_tensor_find(s->gguf, gguf_name);
    if (t) view_gguf(t, out);
    return t != NULL;
  }
  for (unsigned i = 0; i < DF_NAME_SPELLINGS; i++) {
    char name[DF_NAME_MAX];
    if (!df_name_to_hf(gguf_name, i, name)) continue;
    const df_st_tensor *t = df_st_find(s->st, name);
    if (t) {
      view_st(t, out);
      return true;
    }
  }
  return false;
}

static df_status unreadable(const df_source *s, const char *gguf_name, const df_tensor_view *v, df_error *err) {
  char hf[DF_NAME_MAX];
  const char *type = NULL;
  if (s->st && v) {
    const df_st_tensor *t = df_st_find(s->st, v->name);
    type = t ? t->dtype : NULL;
  }
  if (v) {
    if (type)
      return DF_FAIL(err, DF_ERR_UNSUPPORTED,
                     "could not use \"%s\": tensor \"%.200s\" is of type %s with %u dimensions", s->path, v->name, type,
                     v->n_dims);
    return DF_FAIL(err, DF_ERR_UNSUPPORTED, "could not use \"%s\": tensor \"%.200s\" has the unknown type %d", s->path,
                   v->name, v->dtype);
  }
  if (s->st && df_name_to_hf(gguf_name, 0, hf))
    return DF_FAIL(err, DF_ERR_FORMAT, "could not read \"%s\": tensor \"%s\" is missing", s->path, hf);
  return DF_FAIL(err, DF_ERR_FORMAT, "could not read \"%s\": tensor \"%s\" is missing", s->path, gguf_name);
}

/* Whether v can be read as it is; scales come along. */
static df_status readable(const df_source *s, const char *gguf_name, df_tensor_view *v, df_error *err) {
  uint32_t values, bytes;
  if (v->dtype == DF_TENSOR_F8_E4M3 && s->st && v->n_dims == 2)
    return df_scale_find(s->st, s->path, df_st_find(s->st, v->name), &v->scale, err);
  if (!v->data || !df_gguf_dtype_block(v->dtype, &values, &bytes)) return unreadable(s, gguf_name, v, err);
  /* GGUF data is aligned by its own rule; a safetensors header of odd length moves everything behind it. */
  const uintptr_t need = values == 1 ? bytes : 2;
  if ((uintptr_t)v->data % need == 0) return DF_OK;
  const df_status st =
      DF_FAIL(err, DF_ERR_UNSUPPORTED, "could not use \"%s\": tensor \"%.200s\" is not aligned to %u bytes", s->path,
              v->name, (unsigned)need);
  df_error_hint(err, "save the file again with a current safetensors release, which pads the header");
  return st;
}

df_status df_source_get(const df_source *s, const char *gguf_name, df_tensor_view *out, df_error *err) {
  df_tensor_view v;
  if (!df_source_find(s, gguf_name, &v)) return unreadable(s, gguf_name, NULL, err);
  DF_TRY(readable(s, gguf_name, &v, err));
  *out = v;
  return DF_OK;
}

void df_source_drop_all(const df_source *s) {
  if (s->gguf)
    df_gguf_drop(s->gguf);
  else
    df_st_drop_all(s->st);
}

void df_source_drop(const df_source *s, const df_tensor_view *v) {
  if (s->gguf) {
    const df_gguf_tensor *t = df_gguf_tensor_find(s->gguf, v->name);
    if (t) df_gguf_tensor_drop(s->gguf, t);
  } else {
    const df_st_tensor *t = df_st_find(s->st, v->name);
    if (t) df_st_drop(s->st, t);
  }
}
