/* base/buf.h - growable byte buffer with a maximum. Always zero-terminated once anything was reserved or
 * written, so data may be used as a C string when the content has no zero bytes. Not thread safe. */
#ifndef DF_BASE_BUF_H
#define DF_BASE_BUF_H

#include <stddef.h>

#include "base/error.h"

typedef struct df_buf {
  char *data; /* owned; NULL while empty */
  size_t len; /* bytes in use, without the terminating zero */
  size_t cap;
  size_t max; /* largest len allowed; 0 = no limit */
} df_buf;

static inline void df_buf_init(df_buf *b, size_t max) {
  *b = (df_buf){0};
  b->max = max;
}
void df_buf_release(df_buf *b);
/* Fail with DF_ERR_MEMORY, or DF_ERR_LIMIT beyond max; the buffer keeps what it had. */
df_status df_buf_reserve(df_buf *b, size_t extra, df_error *err) DF_CHECK;
df_status df_buf_put(df_buf *b, const void *p, size_t n, df_error *err) DF_CHECK;
df_status df_buf_puts(df_buf *b, const char *s, df_error *err) DF_CHECK;
df_status df_buf_printf(df_buf *b, df_error *err, const char *fmt, ...) DF_PRINTF(3, 4) DF_CHECK;
/* Moves the bytes out (never NULL on success of earlier puts); the buffer is empty afterwards. */
char *df_buf_take(df_buf *b);

#endif
