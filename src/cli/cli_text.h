/*
 * cli/cli_text.h - reading what the user gives: files and standard input as checked UTF-8.
 */
#ifndef DF_CLI_TEXT_H
#define DF_CLI_TEXT_H

#include <stdio.h>

#include "base/buf.h"

/* Largest prompt, conversation or template we read: far beyond any context, small enough to hold in memory. */
#define DF_TEXT_MAX ((size_t)256 << 20)

/* Appends a whole file ("-" = standard input) to b. DF_ERR_IO (missing, a folder, unreadable), DF_ERR_LIMIT. */
df_status df_text_read(const char *path, df_buf *b, df_error *err) DF_CHECK;
/* DF_ERR_FORMAT naming the first bad byte when text is not valid UTF-8; `what` names it ("standard input"). */
df_status df_text_check(const char *text, size_t n, const char *what, df_error *err) DF_CHECK;
/* Writes a file through a temporary neighbour and a rename. */
df_status df_text_write(const char *path, const char *text, size_t n, df_error *err) DF_CHECK;

#endif
