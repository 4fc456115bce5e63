#include "base/buf.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/size.h"

void df_buf_release(df_buf *b) {
  df_free(b->data);
  b->data = NULL;
  b->len = b->cap = 0;
}

df_status df_buf_reserve(df_buf *b, size_t extra, df_error *err) {
  size_t need;
  if (!df_add_size(b->len, extra, &need) || need == SIZE_MAX)
    return DF_FAIL(err, DF_ERR_LIMIT, "buffer size overflows");
  if (b->max && need > b->max)
    return DF_FAIL(err, DF_ERR_LIMIT, "text of %zu bytes exceeds the limit of %zu", need, b->max);
  if (need + 1 <= b->cap) return DF_OK;
  size_t cap = b->cap ? b->cap : 64;
  while (cap < need + 1) cap = cap > SIZE_MAX / 2 ? need + 1 : cap * 2;
  char *p = df_realloc(b->data, cap);
  if (!p) return DF_OOM(err, "a text buffer", cap);
  b->data = p;
  b->cap = cap;
  b->data[b->len] = '\0';
  return DF_OK;
}

df_status df_buf_put(df_buf *b, const void *p, size_t n, df_error *err) {
  DF_TRY(df_buf_reserve(b, n, err));
  if (n) memcpy(b->data + b->len, p, n);
  b->len += n;
  b->data[b->len] = '\0';
  return DF_OK;
}

df_status df_buf_puts(df_buf *b, const char *s, df_error *err) { return df_buf_put(b, s, strlen(s), err); }

df_status df_buf_printf(df_buf *b, df_error *err, const char *fmt, ...) {
  va_list ap, ap2;
  va_start(ap, fmt);
  va_copy(ap2, ap);
  int n = vsnprintf(NULL, 0, fmt, ap);
  va_end(ap);
  df_status s = DF_OK;
  if (n < 0) s = DF_FAIL(err, DF_ERR_INTERNAL, "could not format text");
  if (s == DF_OK) s = df_buf_reserve(b, (size_t)n, err);
  if (s == DF_OK) {
    (void)vsnprintf(b->data + b->len, (size_t)n + 1, fmt, ap2);
    b->len += (size_t)n;
  }
  va_end(ap2);
  return s;
}

char *df_buf_take(df_buf *b) {
  char *p = b->data;
  b->data = NULL;
  b->len = b->cap = 0;
  return p;
}
