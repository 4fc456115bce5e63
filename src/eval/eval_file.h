/* eval/eval_file.h - reading whole files of JSON lines. Threads: any. */
#ifndef DF_EVAL_FILE_H
#define DF_EVAL_FILE_H

#include "base/buf.h"

/* A regular file of at most 1 GiB. *out is initialised here; on failure it is empty. IO, LIMIT, MEMORY. */
df_status df_eval_read_file(const char *path, df_buf *out, df_error *err) DF_CHECK;
/* The same from an open file, from where it stands to its end; path is for messages. */
df_status df_eval_read_fd(int fd, const char *path, df_buf *out, df_error *err) DF_CHECK;
/* Bytes of the line that begins at `at`, without its end. */
size_t df_line_length(const df_buf *b, size_t at);

#endif
