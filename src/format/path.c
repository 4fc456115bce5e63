#include "format/path.h"

#include <string.h>

#include "base/buf.h"

static df_status join(const char *folder, size_t n, const char *name, char **out, df_error *err) {
  df_buf b;
  df_buf_init(&b, 0);
  df_status s = df_buf_put(&b, folder, n, err);
  if (s == DF_OK && n > 0 && folder[n - 1] != '/') s = df_buf_puts(&b, "/", err);
  if (s == DF_OK) s = df_buf_puts(&b, name, err);
  if (s != DF_OK) {
    df_buf_release(&b);
    return s;
  }
  *out = df_buf_take(&b);
  return DF_OK;
}

df_status df_path_join(const char *folder, const char *name, char **out, df_error *err) {
  return join(folder, strlen(folder), name, out, err);
}

df_status df_path_sibling(const char *path, const char *name, char **out, df_error *err) {
  const char *slash = strrchr(path, '/');
  return join(path, slash ? (size_t)(slash - path) + 1 : 0, name, out, err);
}
