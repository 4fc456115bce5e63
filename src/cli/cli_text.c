#include "cli/cli_text.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "text/utf8.h"

static df_status read_stream(FILE *f, const char *name, df_buf *b, df_error *err) {
  char chunk[16384];
  for (;;) {
    errno = 0;
    size_t n = fread(chunk, 1, sizeof chunk, f);
    if (n && b->len + n > DF_TEXT_MAX)
      return DF_FAIL(err, DF_ERR_LIMIT, "%s is longer than %zu bytes", name, DF_TEXT_MAX);
    if (n) DF_TRY(df_buf_put(b, chunk, n, err));
    if (n == sizeof chunk) continue;
    if (ferror(f)) {
      if (errno == EINTR) return DF_FAIL(err, DF_ERR_CANCELLED, "interrupted while reading %s", name);
      return DF_FAIL(err, DF_ERR_IO, "could not read %s: %s", name, strerror(errno));
    }
    if (feof(f)) return DF_OK;
  }
}

df_status df_text_read(const char *path, df_buf *b, df_error *err) {
  if (strcmp(path, "-") == 0) return read_stream(stdin, "standard input", b, err);
  FILE *f = fopen(path, "rb");
  if (!f) return DF_FAIL(err, DF_ERR_IO, "could not open \"%s\": %s", path, strerror(errno));
  struct stat sb;
  if (fstat(fileno(f), &sb) == 0 && S_ISDIR(sb.st_mode)) {
    (void)fclose(f);
    return DF_FAIL(err, DF_ERR_IO, "could not read \"%s\": it is a folder", path);
  }
  char name[300];
  (void)snprintf(name, sizeof name, "\"%.280s\"", path);
  df_status st = read_stream(f, name, b, err);
  (void)fclose(f);
  return st;
}

df_status df_text_check(const char *text, size_t n, const char *what, df_error *err) {
  size_t ok = df_utf8_valid_prefix(text, n);
  if (ok == n) return DF_OK;
  df_status st = DF_FAIL(err, DF_ERR_FORMAT, "%s is not valid UTF-8: byte 0x%02x at offset %zu", what,
                         (unsigned char)text[ok], ok);
  df_error_hint(err, "convert it first, for example: iconv -f latin1 -t utf-8");
  return st;
}

df_status df_text_write(const char *path, const char *text, size_t n, df_error *err) {
  char tmp[4096];
  if (snprintf(tmp, sizeof tmp, "%s.tmp%ld", path, (long)getpid()) >= (int)sizeof tmp)
    return DF_FAIL(err, DF_ERR_IO, "could not write \"%s\": the name is too long", path);
  FILE *f = fopen(tmp, "wb");
  if (!f) return DF_FAIL(err, DF_ERR_IO, "could not create \"%s\": %s", path, strerror(errno));
  bool ok = fwrite(text, 1, n, f) == n;
  int why = errno;
  if (fclose(f) != 0 && ok) ok = false, why = errno;
  if (ok && rename(tmp, path) != 0) ok = false, why = errno;
  if (ok) return DF_OK;
  (void)unlink(tmp);
  return DF_FAIL(err, DF_ERR_IO, "could not write \"%s\": %s", path, strerror(why));
}
