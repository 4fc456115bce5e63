#include "base/error.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

const char *df_status_name(df_status s) {
  switch (s) {
    case DF_OK: return "ok";
    case DF_ERR_ARGUMENT: return "argument";
    case DF_ERR_MEMORY: return "memory";
    case DF_ERR_IO: return "io";
    case DF_ERR_FORMAT: return "format";
    case DF_ERR_UNSUPPORTED: return "unsupported";
    case DF_ERR_MISMATCH: return "mismatch";
    case DF_ERR_LIMIT: return "limit";
    case DF_ERR_NETWORK: return "network";
    case DF_ERR_CANCELLED: return "cancelled";
    case DF_ERR_MASK_CONTRACT: return "mask-contract";
    case DF_ERR_TEMPLATE: return "template";
    case DF_ERR_INTERNAL: return "internal";
    case DF_ERR_BUSY: return "busy";
    case DF_ERR_DEVICE: return "device";
  }
  return "unknown";
}

/* Names from files reach messages: control bytes would break "one line", a cut character the terminal. */
static void tidy(char *s, size_t cap) {
  size_t n = strlen(s);
  for (size_t i = 0; i < n; i++) {
    unsigned char c = (unsigned char)s[i];
    if (c < 0x20 || c == 0x7f) s[i] = '?';
  }
  if (n + 1 < cap) return;
  size_t i = n;
  while (i > 0 && ((unsigned char)s[i - 1] & 0xC0) == 0x80) i--;
  if (i > 0 && ((unsigned char)s[i - 1] & 0xC0) == 0xC0) s[i - 1] = '\0';
}

__attribute__((format(printf, 3, 0))) static void set_text(char *dst, size_t cap, const char *fmt, va_list ap) {
  (void)vsnprintf(dst, cap, fmt, ap);
  tidy(dst, cap);
}

df_status df_error_set(df_error *err, df_status code, const char *file, int line, const char *fmt, ...) {
  if (err) {
    va_list ap;
    va_start(ap, fmt);
    err->code = code;
    err->file = file;
    err->line = line;
    err->hint[0] = '\0';
    set_text(err->msg, sizeof err->msg, fmt, ap);
    va_end(ap);
  }
  return code;
}

void df_error_hint(df_error *err, const char *fmt, ...) {
  if (!err) return;
  va_list ap;
  va_start(ap, fmt);
  set_text(err->hint, sizeof err->hint, fmt, ap);
  va_end(ap);
}

void df_error_prefix(df_error *err, const char *fmt, ...) {
  if (!err) return;
  char old[sizeof err->msg];
  memcpy(old, err->msg, sizeof old);
  va_list ap;
  va_start(ap, fmt);
  set_text(err->msg, sizeof err->msg, fmt, ap);
  va_end(ap);
  size_t n = strlen(err->msg);
  (void)snprintf(err->msg + n, sizeof err->msg - n, ": %s", old);
  tidy(err->msg, sizeof err->msg);
}
