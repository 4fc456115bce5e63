#include "eval/eval_file.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const size_t k_most = (size_t)1 << 30; /* a thousand runs of the whole test set */

static df_status read_all(int fd, const char *path, df_buf *out, df_error *err) {
  char chunk[65536];
  struct stat sb;
  if (fstat(fd, &sb) == 0 && !S_ISREG(sb.st_mode))
    return DF_FAIL(err, DF_ERR_IO, "could not read \"%s\": it is no regular file", path);
  for (;;) {
    const ssize_t n = read(fd, chunk, sizeof chunk);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return DF_FAIL(err, DF_ERR_IO, "could not read \"%s\": %s", path, strerror(errno));
    DF_TRY(df_buf_put(out, chunk, (size_t)n, err));
    if (n == 0) return DF_OK;
  }
}

df_status df_eval_read_fd(int fd, const char *path, df_buf *out, df_error *err) {
  df_buf_init(out, k_most);
  const df_status st = read_all(fd, path, out, err);
  if (st != DF_OK) {
    df_buf_release(out);
    df_buf_init(out, k_most);
  }
  return st;
}

df_status df_eval_read_file(const char *path, df_buf *out, df_error *err) {
  df_buf_init(out, k_most);
  const int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return DF_FAIL(err, DF_ERR_IO, "could not open \"%s\": %s", path, strerror(errno));
  const df_status st = df_eval_read_fd(fd, path, out, err);
  (void)close(fd);
  return st;
}

size_t df_line_length(const df_buf *b, size_t at) {
  const char *end = memchr(b->data + at, '\n', b->len - at);
  return end ? (size_t)(end - b->data) - at : b->len - at;
}
