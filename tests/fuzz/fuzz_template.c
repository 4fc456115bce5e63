/* A template and a context, separated by a zero byte. Whatever they are: a status, a one-line message, and a second
 * render that agrees with the first. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "text/chat_template.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_error(df_status s, const df_error *err) {
  if (s == DF_ERR_INTERNAL || s == DF_ERR_ARGUMENT) abort();
  if (err->code != s || strncmp(err->msg, "could not ", 10) != 0 || strchr(err->msg, '\n')) abort();
}

/* Every output the engine writes must be valid UTF-8, as its inputs are. */
static void check_utf8(const char *p, size_t n) {
  for (size_t i = 0; i < n;) {
    unsigned char c = (unsigned char)p[i];
    size_t len = c < 0x80 ? 1 : c < 0xC2 ? 0 : c < 0xE0 ? 2 : c < 0xF0 ? 3 : c < 0xF5 ? 4 : 0;
    if (len == 0 || len > n - i) abort();
    for (size_t k = 1; k < len; k++)
      if (((unsigned char)p[i + k] & 0xC0) != 0x80) abort();
    i += len;
  }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  const char *text = (const char *)data, *context = "{}";
  const uint8_t *cut = size ? memchr(data, 0, size) : NULL;
  size_t len = cut ? (size_t)(cut - data) : size, n = 2;
  if (cut && size - len > 1) {
    context = (const char *)cut + 1;
    n = size - len - 1;
  }
  df_render_options opt = {.now_unix = 1700000000, .max_steps = 20000, .max_output = 1 << 20, .max_memory = 8 << 20};
  df_chat_template *t = NULL;
  df_error err = {0};
  df_buf first, second;
  df_status s = df_chat_template_parse(text, len, &t, &err);
  if (s != DF_OK) {
    if (t) abort();
    check_error(s, &err);
    return 0;
  }
  df_buf_init(&first, 0);
  df_buf_init(&second, 0);
  s = df_chat_template_render(t, context, n, &opt, &first, &err);
  if (s != DF_OK) check_error(s, &err);
  if (s != DF_OK && first.len) abort();
  check_utf8(first.data, first.len);
  if (df_chat_template_render(t, context, n, &opt, &second, NULL) != s) abort();
  if (first.len != second.len || (first.len && memcmp(first.data, second.data, first.len) != 0)) abort();
  df_buf_release(&first);
  df_buf_release(&second);
  df_chat_template_free(t);
  return 0;
}
