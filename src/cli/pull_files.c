#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/mem.h"
#include "cli/interrupt.h"
#include "cli/pull.h"

enum { CHUNK = 1 << 20 };

df_status df_folder_make(const char *path, df_error *err) {
  char copy[4096];
  if (snprintf(copy, sizeof copy, "%s", path) >= (int)sizeof copy)
    return DF_FAIL(err, DF_ERR_IO, "could not create \"%s\": the name is too long", path);
  for (char *p = copy + 1;; p++) {
    if (*p != '/' && *p != '\0') continue;
    char keep = *p;
    *p = '\0';
    if (mkdir(copy, 0777) != 0 && errno != EEXIST)
      return DF_FAIL(err, DF_ERR_IO, "could not create folder \"%s\": %s", copy, strerror(errno));
    *p = keep;
    if (keep == '\0') break;
  }
  struct stat sb;
  if (stat(path, &sb) != 0 || !S_ISDIR(sb.st_mode))
    return DF_FAIL(err, DF_ERR_IO, "could not use \"%s\": it is no folder", path);
  if (access(path, W_OK | X_OK) != 0)
    return DF_FAIL(err, DF_ERR_IO, "could not write to folder \"%s\": %s", path, strerror(errno));
  return DF_OK;
}

df_status df_space_check(const char *folder, uint64_t need, df_error *err) {
  struct statvfs v;
  if (statvfs(folder, &v) != 0) return DF_OK; /* the write will tell */
  uint64_t have = (uint64_t)v.f_bavail * v.f_frsize;
  if (have >= need) return DF_OK;
  char a[32], b[32];
  df_format_bytes(a, sizeof a, need);
  df_format_bytes(b, sizeof b, have);
  df_status st = DF_FAIL(err, DF_ERR_IO, "not enough room in \"%s\": %s needed, %s free", folder, a, b);
  df_error_hint(err, "free some space, or use another folder with --cache-dir DIR");
  return st;
}

df_status df_write_failed(const char *path, int why, const char *kept, df_error *err) {
  df_status st = DF_FAIL(err, DF_ERR_IO, "could not write \"%s\": %s", path, strerror(why));
  if (why == ENOSPC || why == EDQUOT || why == EFBIG)
    df_error_hint(err, "make room and run the command again; %s", kept);
  return st;
}

bool df_is_sha256(const char *s) { return strlen(s) == 64 && strspn(s, "0123456789abcdefABCDEF") == 64; }

bool df_name_is_safe(const char *name) {
  size_t total = strlen(name);
  if (total == 0 || total > 1024 || name[0] == '/') return false;
  for (const char *p = name; *p;) {
    size_t n = strcspn(p, "/");
    if (n == 0 || n > 255 || (n == 1 && p[0] == '.') || (n == 2 && p[0] == '.' && p[1] == '.')) return false;
    for (size_t i = 0; i < n; i++) {
      if ((unsigned char)p[i] < 0x20 || p[i] == 0x7f || p[i] == '\\') return false;
    }
    p += n;
    if (*p == '/' && *++p == '\0') return false;
  }
  return true;
}

static void hex_of(const unsigned char *digest, char hex[65]) {
  static const char digits[] = "0123456789abcdef";
  for (int i = 0; i < 32; i++) {
    hex[2 * i] = digits[digest[i] >> 4];
    hex[2 * i + 1] = digits[digest[i] & 15];
  }
  hex[64] = '\0';
}

typedef struct join_state {
  EVP_MD_CTX *md;
  char *buf; /* CHUNK bytes */
  df_progress bar;
  bool show;
  uint64_t done;
} join_state;

static df_status join_open(join_state *j, const df_term *t, const char *label, uint64_t total, df_error *err) {
  *j = (join_state){.md = EVP_MD_CTX_new(), .buf = df_alloc(CHUNK), .show = label != NULL};
  df_progress_begin(&j->bar, t, label ? label : "", total, 0, true);
  if (j->md && j->buf && EVP_DigestInit_ex(j->md, EVP_sha256(), NULL) == 1) return DF_OK;
  return DF_FAIL(err, DF_ERR_MEMORY, "could not start the checksum");
}

static df_status join_close(join_state *j, df_status st, char hex[65], df_error *err) {
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned n = 0;
  df_progress_end(&j->bar);
  if (st == DF_OK && (EVP_DigestFinal_ex(j->md, digest, &n) != 1 || n != 32))
    st = DF_FAIL(err, DF_ERR_INTERNAL, "could not finish the checksum");
  if (st == DF_OK) hex_of(digest, hex);
  EVP_MD_CTX_free(j->md);
  df_free(j->buf);
  return st;
}

/* Hashes one file and, with out, appends it there. */
static df_status join_file(join_state *j, const char *path, FILE *out, const char *out_path, df_error *err) {
  FILE *f = fopen(path, "rb");
  if (!f) return DF_FAIL(err, DF_ERR_IO, "could not open \"%s\": %s", path, strerror(errno));
  df_status st = DF_OK;
  for (;;) {
    size_t n = fread(j->buf, 1, CHUNK, f);
    if (n == 0) {
      if (ferror(f)) st = DF_FAIL(err, DF_ERR_IO, "could not read \"%s\": %s", path, strerror(errno));
      break;
    }
    if (EVP_DigestUpdate(j->md, j->buf, n) != 1) st = DF_FAIL(err, DF_ERR_INTERNAL, "could not compute a checksum");
    if (st == DF_OK && out && fwrite(j->buf, 1, n, out) != n)
      st = df_write_failed(out_path, errno, "the downloaded parts are kept", err);
    if (st == DF_OK && df_interrupted) st = DF_FAIL(err, DF_ERR_CANCELLED, "interrupted");
    if (st != DF_OK) break;
    j->done += n;
    if (j->show) df_progress_update(&j->bar, j->done);
  }
  (void)fclose(f);
  return st;
}

df_status df_file_sha256(const df_term *t, const char *path, const char *label, char hex[65], df_error *err) {
  join_state j;
  int64_t total = df_file_bytes(path);
  df_status st = join_open(&j, t, label, total > 0 ? (uint64_t)total : 0, err);
  if (st == DF_OK) st = join_file(&j, path, NULL, NULL, err);
  return join_close(&j, st, hex, err);
}

df_status df_files_join(const df_term *t, char *const *paths, unsigned n, uint64_t total, const char *out_path,
                        char hex[65], df_error *err) {
  join_state j;
  FILE *out = fopen(out_path, "wb");
  if (!out) return DF_FAIL(err, DF_ERR_IO, "could not create \"%s\": %s", out_path, strerror(errno));
  df_status st = join_open(&j, t, "joining the parts", total, err);
  for (unsigned i = 0; i < n && st == DF_OK; i++) st = join_file(&j, paths[i], out, out_path, err);
  st = join_close(&j, st, hex, err);
  if (st == DF_OK && (fflush(out) != 0 || fsync(fileno(out)) != 0))
    st = df_write_failed(out_path, errno, "the downloaded parts are kept", err);
  if (fclose(out) != 0 && st == DF_OK) st = df_write_failed(out_path, errno, "the downloaded parts are kept", err);
  if (st != DF_OK) (void)unlink(out_path);
  return st;
}

void df_folder_remove(const char *path) {
  DIR *d = opendir(path);
  if (!d) return;
  const struct dirent *e;
  while ((e = readdir(d)) != NULL) {
    char file[4096];
    if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0) continue;
    if (snprintf(file, sizeof file, "%s/%s", path, e->d_name) < (int)sizeof file) (void)unlink(file);
  }
  (void)closedir(d);
  (void)rmdir(path);
}

df_status df_lock_take(const char *path, int *fd, df_error *err) {
  struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
  *fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
  if (*fd < 0) return DF_FAIL(err, DF_ERR_IO, "could not create \"%s\": %s", path, strerror(errno));
  if (fcntl(*fd, F_SETLK, &lock) == 0) return DF_OK;
  int why = errno;
  (void)close(*fd);
  *fd = -1;
  if (why != EACCES && why != EAGAIN) return DF_FAIL(err, DF_ERR_IO, "could not lock \"%s\": %s", path, strerror(why));
  return DF_FAIL(err, DF_ERR_IO, "another dflash pull is fetching this file (lock \"%s\")", path);
}
