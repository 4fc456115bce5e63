/*
 * base/error.h - filling df_error and the propagation macros.
 *
 * Every function that can fail returns df_status and takes `df_error *err` last (may be NULL).
 * Outputs are written only on success.
 */
#ifndef DF_BASE_ERROR_H
#define DF_BASE_ERROR_H

#include "dflash/status.h"

/* Fills *err (when not NULL) and returns code. The message is one line, lower case, no final stop:
 * what failed, then why, names in double quotes. Overlong text is cut at a character border. */
df_status df_error_set(df_error *err, df_status code, const char *file, int line, const char *fmt, ...) DF_PRINTF(5, 6);

/* Adds the remedy shown under the message. */
void df_error_hint(df_error *err, const char *fmt, ...) DF_PRINTF(2, 3);

/* Puts context in front: "<prefix>: <old message>". */
void df_error_prefix(df_error *err, const char *fmt, ...) DF_PRINTF(2, 3);

/* The value is the code itself, so that compilers see that a failing path never reaches the code behind DF_TRY.
 * return DF_FAIL(err, DF_ERR_FORMAT, "could not read \"%s\": ...", path); */
#define DF_FAIL(err, code, ...) ((void)df_error_set((err), (code), __FILE__, __LINE__, __VA_ARGS__), (code))

/* Returns from the calling function when expr fails; for functions with nothing to release. */
#define DF_TRY(expr)                          \
  do {                                        \
    df_status df_try_s_ = (expr);             \
    if (df_try_s_ != DF_OK) return df_try_s_; \
  } while (0)

/* Jumps to `label` with the status in `var`; for functions with one exit label. */
#define DF_TRY_GOTO(var, expr, label) \
  do {                                \
    (var) = (expr);                   \
    if ((var) != DF_OK) goto label;   \
  } while (0)

/* Out-of-memory in one word. */
#define DF_OOM(err, what, bytes) \
  DF_FAIL(err, DF_ERR_MEMORY, "could not allocate %zu bytes for %s", (size_t)(bytes), (what))

#endif
