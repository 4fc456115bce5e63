#include "format/weights_scale.h"

#include <stdio.h>
#include <string.h>

#include "base/size.h"
#include "format/tensor_names.h"

static bool is_scale_type(int dtype) { return dtype == 0 || dtype == 1 || dtype == 30; /* F32, F16, BF16 */ }

/* "X_scale_inv" (which, too, is multiplied with) or "X_scale". */
static const df_st_tensor *scales_of(const df_st *st, const df_st_tensor *w) {
  static const char *const ends[] = {"_scale_inv", "_scale"};
  for (size_t i = 0; i < DF_COUNT_OF(ends); i++) {
    char name[DF_NAME_MAX + 16];
    const int n = snprintf(name, sizeof name, "%s%s", w->name, ends[i]);
    const df_st_tensor *s = n > 0 && (size_t)n < sizeof name ? df_st_find(st, name) : NULL;
    if (s) return s;
  }
  return NULL;
}

/* How `s` is shared among the rows and inputs of w; false when its shape is none of the known ones. */
static bool shape_fits(const df_st_tensor *w, const df_st_tensor *s, df_scale_view *out) {
  const uint64_t n = w->shape[0], k = w->shape[1];
  const uint64_t nb = (n + DF_SCALE_BLOCK - 1) / DF_SCALE_BLOCK, kb = (k + DF_SCALE_BLOCK - 1) / DF_SCALE_BLOCK;
  if (n > UINT32_MAX || s->n_values > UINT32_MAX || s->n_values == 0) return false;
  const uint64_t rows = s->n_dims ? s->shape[0] : 1, cols = s->n_dims == 2 ? s->shape[1] : 1;
  *out = (df_scale_view){.name = s->name, .data = s->data, .count = (uint32_t)s->n_values, .cols = 1};
  if (s->n_values == 1) {
    out->rows_each = UINT32_MAX;
  } else if (s->n_dims <= 2 && rows == n && cols == 1) {
    out->rows_each = 1;
  } else if (s->n_dims == 2 && rows == nb && cols == kb) {
    out->rows_each = DF_SCALE_BLOCK;
    out->cols = (uint32_t)kb;
  } else {
    return false;
  }
  return true;
}

df_status df_scale_find(const df_st *st, const char *path, const df_st_tensor *w, df_scale_view *out, df_error *err) {
  const df_st_tensor *s = scales_of(st, w);
  df_scale_view v;
  if (!s)
    return DF_FAIL(err, DF_ERR_FORMAT,
                   "could not use \"%s\": tensor \"%.200s\" is of type F8_E4M3, but its scales are missing "
                   "(\"..._scale_inv\" or \"..._scale\")",
                   path, w->name);
  if (!shape_fits(w, s, &v))
    return DF_FAIL(err, DF_ERR_FORMAT,
                   "could not use \"%s\": the %llu values of tensor \"%.200s\" are not one scale, one for each row, or "
                   "one for each block of %d x %d of a matrix of %llu x %llu",
                   path, (unsigned long long)s->n_values, s->name, DF_SCALE_BLOCK, DF_SCALE_BLOCK,
                   (unsigned long long)w->shape[0], (unsigned long long)w->shape[1]);
  v.dtype = df_st_dtype_id(s->dtype);
  if (!is_scale_type(v.dtype))
    return DF_FAIL(err, DF_ERR_UNSUPPORTED, "could not use \"%s\": tensor \"%.200s\" is of type %s, expected floats",
                   path, s->name, s->dtype);
  *out = v;
  return DF_OK;
}
