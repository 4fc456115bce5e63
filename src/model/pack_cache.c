#define _GNU_SOURCE
#include "model/pack_cache.h"

#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/size.h"

enum { CHUNK = 1 << 20, ALIGN = 4096 };

/* The file: this, a sum for each chunk, padding, the block. In the byte order of the machine, which `magic` shows. */
typedef struct header {
  uint64_t magic, id, bytes, sums_sum;
} header;

static const uint64_t k_magic = 0x314B434150464421u; /* "!DFPACK1" */

/* Four chains, so that a sum takes no longer than reading does. */
static uint64_t sum_of(const uint8_t *p, size_t n) {
  uint64_t h[4] = {n, 1, 2, 3}, v[4];
  for (; n >= sizeof v; n -= sizeof v, p += sizeof v) {
    memcpy(v, p, sizeof v);
    for (int i = 0; i < 4; i++) {
      h[i] = (h[i] ^ v[i]) * 0xD6E8FEB86659FD93u;
      h[i] ^= h[i] >> 32;
    }
  }
  memset(v, 0, sizeof v);
  memcpy(v, p, n);
  for (int i = 0; i < 4; i++) h[0] = ((h[0] ^ h[i] ^ v[i]) * 0x9E3779B97F4A7C15u) ^ (h[0] >> 29);
  return h[0];
}

static size_t chunks_of(size_t bytes) { return (bytes + CHUNK - 1) / CHUNK; }
static size_t head_bytes(size_t bytes) {
  return df_round_up(sizeof(header) + chunks_of(bytes) * sizeof(uint64_t), ALIGN);
}

bool df_pack_cache_at(df_pack_cache *c, const char *dir, const char *source, uint64_t key, uint64_t id) {
  size_t n = strlen(source);
  while (n && source[n - 1] == '/') n--;
  size_t at = n;
  while (at && source[at - 1] != '/') at--;
  c->id = id;
  const int len = snprintf(c->path, sizeof c->path, "%s/%.*s-%016llx.dfpack", dir, (int)(n - at), source + at,
                           (unsigned long long)key);
  return len > 0 && (size_t)len < sizeof c->path;
}

static bool read_all(int fd, void *p, size_t n, size_t at) {
  for (uint8_t *to = p; n;) {
    const ssize_t got = pread(fd, to, n, (off_t)at);
    if (got <= 0) return false;
    to += got, at += (size_t)got, n -= (size_t)got;
  }
  return true;
}

static bool write_all(int fd, const void *p, size_t n, size_t at) {
  for (const uint8_t *from = p; n;) {
    const ssize_t put = pwrite(fd, from, n, (off_t)at);
    if (put <= 0) return false;
    from += put, at += (size_t)put, n -= (size_t)put;
  }
  return true;
}

typedef struct job {
  int fd;
  uint8_t *to;         /* reading */
  const uint8_t *from; /* writing */
  size_t bytes, head;
  uint64_t *sums;
  atomic_bool failed;
} job;

static void read_chunk(void *arg, uint32_t i, uint32_t worker) {
  (void)worker;
  job *j = arg;
  const size_t at = (size_t)i * CHUNK, n = DF_MIN(j->bytes - at, (size_t)CHUNK);
  if (atomic_load_explicit(&j->failed, memory_order_relaxed)) return;
  if (!read_all(j->fd, j->to + at, n, j->head + at) || sum_of(j->to + at, n) != j->sums[i])
    atomic_store_explicit(&j->failed, true, memory_order_relaxed);
}

static void sum_chunk(void *arg, uint32_t i, uint32_t worker) {
  (void)worker;
  job *j = arg;
  const size_t at = (size_t)i * CHUNK;
  j->sums[i] = sum_of(j->from + at, DF_MIN(j->bytes - at, (size_t)CHUNK));
}

/* The header is this file's, and the sums are whole. */
static bool head_is_sound(const df_pack_cache *c, int fd, size_t bytes, uint64_t *sums) {
  header h;
  struct stat st;
  const size_t n = chunks_of(bytes) * sizeof *sums;
  return fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && (uint64_t)st.st_size == head_bytes(bytes) + bytes &&
         read_all(fd, &h, sizeof h, 0) && h.magic == k_magic && h.id == c->id && h.bytes == bytes &&
         read_all(fd, sums, n, sizeof h) && sum_of((const uint8_t *)sums, n) == h.sums_sum;
}

bool df_pack_cache_read(const df_pack_cache *c, df_pool *pool, uint8_t *block, size_t bytes) {
  const int fd = open(c->path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
  if (fd < 0) return false;
  job j = {.fd = fd, .to = block, .bytes = bytes, .head = head_bytes(bytes)};
  j.sums = df_alloc(chunks_of(bytes) * sizeof *j.sums);
  bool ok = j.sums && head_is_sound(c, fd, bytes, j.sums);
  if (ok) {
    df_pool_for(pool, (uint32_t)chunks_of(bytes), read_chunk, &j);
    ok = !j.failed;
  }
  df_free(j.sums);
  (void)close(fd);
  return ok;
}

static bool write_file(const df_pack_cache *c, int fd, const job *j) {
  const size_t n = chunks_of(j->bytes) * sizeof *j->sums;
  const header h = {k_magic, c->id, j->bytes, sum_of((const uint8_t *)j->sums, n)};
  return write_all(fd, j->from, j->bytes, j->head) && write_all(fd, j->sums, n, sizeof h) &&
         write_all(fd, &h, sizeof h, 0);
}

bool df_pack_cache_write(const df_pack_cache *c, df_pool *pool, const uint8_t *block, size_t bytes) {
  char tmp[sizeof c->path + 32], dir[sizeof c->path];
  (void)snprintf(tmp, sizeof tmp, "%s.%ld.tmp", c->path, (long)getpid());
  (void)snprintf(dir, sizeof dir, "%.*s", (int)(strrchr(c->path, '/') - c->path), c->path);
  (void)mkdir(dir, 0700); /* there already, or opening says what is wrong */
  job j = {.from = block, .bytes = bytes, .head = head_bytes(bytes)};
  j.sums = df_alloc(chunks_of(bytes) * sizeof *j.sums);
  if (!j.sums) return false;
  df_pool_for(pool, (uint32_t)chunks_of(bytes), sum_chunk, &j);
  const int fd = open(tmp, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
  bool ok = fd >= 0 && write_file(c, fd, &j);
  if (fd >= 0) ok = close(fd) == 0 && ok;
  ok = ok && rename(tmp, c->path) == 0;
  if (!ok && fd >= 0) (void)unlink(tmp);
  df_free(j.sums);
  return ok;
}
