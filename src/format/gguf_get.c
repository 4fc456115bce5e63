/* Queries over an opened GGUF file. Stored values are unaligned, so every load goes through memcpy. */
#include <math.h>
#include <string.h>

#include "format/gguf.h"
#include "format/gguf_internal.h"

const char *df_gguf_label(const df_gguf *g) { return g->label; }
uint32_t df_gguf_version(const df_gguf *g) { return g->version; }
uint32_t df_gguf_alignment(const df_gguf *g) { return g->alignment; }
size_t df_gguf_kv_count(const df_gguf *g) { return g->n_kv; }
const df_gguf_kv *df_gguf_kv_at(const df_gguf *g, size_t i) { return &g->kv[i]; }
size_t df_gguf_tensor_count(const df_gguf *g) { return g->n_tensors; }
const df_gguf_tensor *df_gguf_tensor_at(const df_gguf *g, size_t i) { return &g->tensors[i]; }

const df_gguf_kv *df_gguf_find(const df_gguf *g, const char *key) {
  uint32_t i;
  return df_map_get(&g->kv_index, key, strlen(key), &i) ? &g->kv[i] : NULL;
}

const df_gguf_tensor *df_gguf_tensor_find(const df_gguf *g, const char *name) {
  uint32_t i;
  return df_map_get(&g->tensor_index, name, strlen(name), &i) ? &g->tensors[i] : NULL;
}

void df_gguf_tensor_drop(const df_gguf *g, const df_gguf_tensor *t) {
  if (t->data) df_file_map_drop(&g->map, t->data, t->n_bytes);
}

uint64_t df_gguf_stamp(const df_gguf *g) { return g->map.stamp; }

void df_gguf_drop(const df_gguf *g) { df_file_map_drop(&g->map, g->map.data, g->map.size); }

static bool is_int(df_gguf_type t) {
  switch (t) {
    case DF_GGUF_U8:
    case DF_GGUF_I8:
    case DF_GGUF_U16:
    case DF_GGUF_I16:
    case DF_GGUF_U32:
    case DF_GGUF_I32:
    case DF_GGUF_U64:
    case DF_GGUF_I64: return true;
    case DF_GGUF_F32:
    case DF_GGUF_F64:
    case DF_GGUF_BOOL:
    case DF_GGUF_STRING:
    case DF_GGUF_ARRAY: break;
  }
  return false;
}

static bool is_float(df_gguf_type t) { return t == DF_GGUF_F32 || t == DF_GGUF_F64; }

#define LOAD(type_)                                   \
  do {                                                \
    type_ v_;                                         \
    memcpy(&v_, kv->data + i * sizeof v_, sizeof v_); \
    return v_;                                        \
  } while (0)

static uint64_t u64_at(const df_gguf_kv *kv, uint64_t i) { LOAD(uint64_t); }

int64_t df_gguf_int_at(const df_gguf_kv *kv, uint64_t i) {
  switch (kv->elem) {
    case DF_GGUF_U8:
    case DF_GGUF_BOOL: LOAD(uint8_t);
    case DF_GGUF_I8: LOAD(int8_t);
    case DF_GGUF_U16: LOAD(uint16_t);
    case DF_GGUF_I16: LOAD(int16_t);
    case DF_GGUF_U32: LOAD(uint32_t);
    case DF_GGUF_I32: LOAD(int32_t);
    case DF_GGUF_I64: LOAD(int64_t);
    case DF_GGUF_U64: {
      uint64_t v = u64_at(kv, i);
      return v > INT64_MAX ? INT64_MAX : (int64_t)v;
    }
    case DF_GGUF_F32:
    case DF_GGUF_F64:
    case DF_GGUF_STRING:
    case DF_GGUF_ARRAY: break;
  }
  return 0;
}

double df_gguf_float_at(const df_gguf_kv *kv, uint64_t i) {
  if (kv->elem == DF_GGUF_F32) LOAD(float);
  if (kv->elem == DF_GGUF_F64) LOAD(double);
  return 0;
}

static df_status missing(const df_gguf *g, const char *key, df_error *err) {
  return DF_FAIL(err, DF_ERR_FORMAT, "could not read \"%s\": key \"%s\" is missing", g->label, key);
}

static df_status wrong_kind(const df_gguf *g, const df_gguf_kv *kv, const char *want, df_error *err) {
  return DF_FAIL(err, DF_ERR_FORMAT, "could not read \"%s\": key \"%s\" is of type %s%s, expected %s", g->label,
                 kv->key, kv->type == DF_GGUF_ARRAY ? "array of " : "", df_gguf_value_type_name(kv->elem), want);
}

static df_status scalar_u64(const df_gguf *g, const df_gguf_kv *kv, uint64_t max, uint64_t *out, df_error *err) {
  if (!is_int(kv->type)) return wrong_kind(g, kv, "an integer", err);
  int64_t v = df_gguf_int_at(kv, 0);
  uint64_t u = kv->type == DF_GGUF_U64 ? u64_at(kv, 0) : (uint64_t)v;
  if (v < 0) {
    return DF_FAIL(err, DF_ERR_FORMAT, "could not read \"%s\": key \"%s\" is %lld, must not be negative", g->label,
                   kv->key, (long long)v);
  }
  if (u > max)
    return DF_FAIL(err, DF_ERR_FORMAT, "could not read \"%s\": key \"%s\" is %llu, at most %llu fit", g->label, kv->key,
                   (unsigned long long)u, (unsigned long long)max);
  *out = u;
  return DF_OK;
}

df_status df_gguf_get_u64(const df_gguf *g, const char *key, uint64_t *out, df_error *err) {
  const df_gguf_kv *kv = df_gguf_find(g, key);
  return kv ? scalar_u64(g, kv, UINT64_MAX, out, err) : missing(g, key, err);
}

df_status df_gguf_get_u32(const df_gguf *g, const char *key, uint32_t *out, df_error *err) {
  const df_gguf_kv *kv = df_gguf_find(g, key);
  uint64_t v;
  if (!kv) return missing(g, key, err);
  DF_TRY(scalar_u64(g, kv, UINT32_MAX, &v, err));
  *out = (uint32_t)v;
  return DF_OK;
}

df_status df_gguf_get_i64(const df_gguf *g, const char *key, int64_t *out, df_error *err) {
  const df_gguf_kv *kv = df_gguf_find(g, key);
  if (!kv) return missing(g, key, err);
  if (!is_int(kv->type)) return wrong_kind(g, kv, "an integer", err);
  if (kv->type == DF_GGUF_U64 && u64_at(kv, 0) > INT64_MAX)
    return DF_FAIL(err, DF_ERR_FORMAT, "could not read \"%s\": key \"%s\" is out of range", g->label, key);
  *out = df_gguf_int_at(kv, 0);
  return DF_OK;
}

df_status df_gguf_get_f32(const df_gguf *g, const char *key, float *out, df_error *err) {
  const df_gguf_kv *kv = df_gguf_find(g, key);
  if (!kv) return missing(g, key, err);
  if (!is_float(kv->type)) return wrong_kind(g, kv, "a float", err);
  double v = df_gguf_float_at(kv, 0);
  /* An f64 beyond the range of f32 would be undefined to convert. */
  if (!isfinite(v) || fabs(v) > (double)3.4028234e38f)
    return DF_FAIL(err, DF_ERR_FORMAT, "could not read \"%s\": key \"%s\" is not a finite number", g->label, key);
  *out = (float)v;
  return DF_OK;
}

df_status df_gguf_get_bool(const df_gguf *g, const char *key, bool *out, df_error *err) {
  const df_gguf_kv *kv = df_gguf_find(g, key);
  if (!kv) return missing(g, key, err);
  if (kv->type != DF_GGUF_BOOL) return wrong_kind(g, kv, "bool", err);
  *out = kv->data[0] != 0;
  return DF_OK;
}

df_status df_gguf_get_str(const df_gguf *g, const char *key, df_gguf_str *out, df_error *err) {
  const df_gguf_kv *kv = df_gguf_find(g, key);
  if (!kv) return missing(g, key, err);
  if (kv->type != DF_GGUF_STRING) return wrong_kind(g, kv, "string", err);
  df_gguf_str_iter it = df_gguf_str_begin(kv);
  (void)df_gguf_str_next(&it, out);
  return DF_OK;
}

#define DEFINE_OPT(name_, type_)                                                                           \
  df_status df_gguf_opt_##name_(const df_gguf *g, const char *key, type_ def, type_ *out, df_error *err) { \
    if (df_gguf_has(g, key)) return df_gguf_get_##name_(g, key, out, err);                                 \
    *out = def;                                                                                            \
    return DF_OK;                                                                                          \
  }

DEFINE_OPT(u32, uint32_t)
DEFINE_OPT(i64, int64_t)
DEFINE_OPT(f32, float)
DEFINE_OPT(bool, bool)
DEFINE_OPT(str, df_gguf_str)

static bool is_bool(df_gguf_type t) { return t == DF_GGUF_BOOL; }
static bool is_string(df_gguf_type t) { return t == DF_GGUF_STRING; }

static df_status opt_array(const df_gguf *g, const char *key, bool (*match)(df_gguf_type), const char *want,
                           const df_gguf_kv **out, df_error *err) {
  const df_gguf_kv *kv = df_gguf_find(g, key);
  if (kv && (kv->type != DF_GGUF_ARRAY || !match(kv->elem))) return wrong_kind(g, kv, want, err);
  *out = kv;
  return DF_OK;
}

df_status df_gguf_opt_int_array(const df_gguf *g, const char *key, const df_gguf_kv **out, df_error *err) {
  return opt_array(g, key, is_int, "an array of integers", out, err);
}

df_status df_gguf_opt_float_array(const df_gguf *g, const char *key, const df_gguf_kv **out, df_error *err) {
  return opt_array(g, key, is_float, "an array of floats", out, err);
}

df_status df_gguf_opt_bool_array(const df_gguf *g, const char *key, const df_gguf_kv **out, df_error *err) {
  return opt_array(g, key, is_bool, "an array of bools", out, err);
}

df_status df_gguf_opt_str_array(const df_gguf *g, const char *key, const df_gguf_kv **out, df_error *err) {
  return opt_array(g, key, is_string, "an array of strings", out, err);
}

df_gguf_str_iter df_gguf_str_begin(const df_gguf_kv *kv) {
  return (df_gguf_str_iter){kv->data, kv->elem == DF_GGUF_STRING ? kv->count : 0};
}

bool df_gguf_str_next(df_gguf_str_iter *it, df_gguf_str *out) {
  uint64_t n;
  if (it->left == 0) return false;
  memcpy(&n, it->p, sizeof n);
  *out = (df_gguf_str){(const char *)it->p + sizeof n, (size_t)n};
  it->p += sizeof n + n;
  it->left--;
  return true;
}
