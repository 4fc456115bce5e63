#define _GNU_SOURCE
#include "format/file_map.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/map.h"

static df_status fail_errno(const char *path, int e, df_error *err) {
  df_status s = DF_FAIL(err, DF_ERR_IO, "could not open \"%s\": %s", path, strerror(e));
  if (e == ENOENT) df_error_hint(err, "check the path; relative paths start at the current folder");
  if (e == EACCES) df_error_hint(err, "the file must be readable by the user that runs this program");
  return s;
}

static uint64_t stamp_of(const struct stat *st) {
  const uint64_t v[] = {(uint64_t)st->st_dev,         (uint64_t)st->st_ino,          (uint64_t)st->st_size,
                        (uint64_t)st->st_mtim.tv_sec, (uint64_t)st->st_mtim.tv_nsec, (uint64_t)st->st_ctim.tv_sec,
                        (uint64_t)st->st_ctim.tv_nsec};
  return df_hash_bytes(v, sizeof v, 0);
}

static df_status map_fd(df_file_map *m, int fd, const char *path, df_error *err) {
  struct stat st;
  if (fstat(fd, &st) != 0) return fail_errno(path, errno, err);
  if (S_ISDIR(st.st_mode)) return DF_FAIL(err, DF_ERR_IO, "could not open \"%s\": it is a folder, not a file", path);
  if (!S_ISREG(st.st_mode)) return DF_FAIL(err, DF_ERR_IO, "could not open \"%s\": not a regular file", path);
  if (st.st_size == 0) return DF_FAIL(err, DF_ERR_IO, "could not open \"%s\": the file is empty", path);
  if ((uintmax_t)st.st_size > PTRDIFF_MAX)
    return DF_FAIL(err, DF_ERR_LIMIT, "could not open \"%s\": larger than the address space", path);
  void *p = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
  if (p == MAP_FAILED) {
    int e = errno;
    return DF_FAIL(err, e == ENOMEM ? DF_ERR_MEMORY : DF_ERR_IO, "could not map \"%s\": %s", path, strerror(e));
  }
  m->data = p;
  m->size = (size_t)st.st_size;
  m->stamp = stamp_of(&st);
  return DF_OK;
}

df_status df_file_map_open(df_file_map *m, const char *path, df_error *err) {
  /* O_NONBLOCK: a named pipe in place of the file must not hang us; it has no effect on regular files. */
  int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
  if (fd < 0) return fail_errno(path, errno, err);
  df_status s = map_fd(m, fd, path, err);
  (void)close(fd);
  return s;
}

void df_file_map_release(df_file_map *m) {
  if (m->data) (void)munmap((void *)(uintptr_t)m->data, m->size);
  *m = (df_file_map){0};
}

void df_file_map_drop(const df_file_map *m, const void *p, size_t n) {
  uintptr_t base = (uintptr_t)m->data, at = (uintptr_t)p;
  if (!m->data || n == 0 || at < base || at - base > m->size || n > m->size - (at - base)) return;
  long page = sysconf(_SC_PAGESIZE);
  if (page <= 0) return;
  /* Outward rounding: neighbours on the edge pages are simply read again when needed. */
  uintptr_t mask = (uintptr_t)page - 1;
  uintptr_t from = at & ~mask, to = (at + n + mask) & ~mask;
  (void)madvise((void *)from, to - from, MADV_DONTNEED);
}
