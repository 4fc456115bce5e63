#include "eval/run_log.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/mem.h"
#include "eval/eval_file.h"

/* ---- rows ----------------------------------------------------------------------------------------------- */

static df_status keep_row(df_run_log *l, df_eval_row *row, df_error *err) {
  if (l->n == l->cap) {
    const uint32_t cap = l->cap ? l->cap * 2 : 64;
    df_eval_row *rows = df_realloc(l->rows, cap * sizeof *rows);
    if (!rows) return DF_OOM(err, "rows of a run", cap * sizeof *rows);
    l->rows = rows;
    l->cap = cap;
  }
  l->rows[l->n++] = *row;
  *row = (df_eval_row){0};
  return DF_OK;
}

const df_eval_row *df_run_log_find(const df_run_log *l, uint32_t index) {
  for (uint32_t i = 0; i < l->n; i++)
    if (l->rows[i].index == index) return &l->rows[i];
  return NULL;
}

df_eval_tally df_run_log_tally(const df_run_log *l, uint32_t limit) {
  df_eval_tally t = {0};
  for (uint32_t i = 0; i < l->n; i++)
    if (l->rows[i].index < limit) df_eval_tally_add(&t, &l->rows[i]);
  return t;
}

/* ---- reading -------------------------------------------------------------------------------------------- */

static df_status take_row(df_run_log *l, const df_json *line, df_error *err) {
  df_eval_row row;
  DF_TRY(df_eval_row_read(line, &row, err));
  df_status st = DF_OK;
  if (df_run_log_find(l, row.index))
    st = DF_FAIL(err, DF_ERR_FORMAT, "question %u is there twice", row.index);
  else
    st = keep_row(l, &row, err);
  df_eval_row_release(&row);
  return st;
}

static df_status take_line(df_run_log *l, const char *line, size_t n, uint32_t number, df_error *err) {
  df_json *root;
  DF_TRY(df_json_parse(line, n, &root, err));
  if (number == 1) {
    if (df_json_kind_of(df_json_member(root, "settings")) == DF_JSON_OBJECT) {
      l->header = root;
      return DF_OK;
    }
    df_json_free(root);
    return DF_FAIL(err, DF_ERR_FORMAT, "the first line of a run holds its settings, this one does not");
  }
  const df_status st = take_row(l, root, err);
  df_json_free(root);
  return st;
}

/* *good = bytes of complete lines. A first line that is broken is not cut: the file may be something else. */
static df_status take_lines(df_run_log *l, const df_buf *b, size_t *good, df_error *err) {
  uint32_t number = 0;
  for (size_t at = 0; at < b->len;) {
    const size_t n = df_line_length(b, at), end = at + n + 1;
    const bool last = end >= b->len, whole = end <= b->len;
    number++;
    const df_status st = whole || number == 1 ? take_line(l, b->data + at, n, number, err) : DF_ERR_FORMAT;
    if (st == DF_ERR_FORMAT && last && number > 1) {
      l->cut_line = number;
      return DF_OK;
    }
    if (st != DF_OK) {
      df_error_prefix(err, "\"%s\" line %u", l->path, number);
      return st;
    }
    at = *good = end;
  }
  return DF_OK;
}

/* From l->fd: a lock of this process would end with the closing of a second descriptor. */
static df_status read_run(df_run_log *l, const char *path, size_t *good, df_error *err) {
  df_buf b;
  *good = 0;
  l->path = df_strdup(path);
  if (!l->path) return DF_OOM(err, "a file name", strlen(path) + 1);
  DF_TRY(df_eval_read_fd(l->fd, path, &b, err));
  const df_status st = take_lines(l, &b, good, err);
  df_buf_release(&b);
  return st;
}

df_status df_run_log_read(df_run_log *l, const char *path, df_error *err) {
  size_t good;
  *l = (df_run_log){.fd = open(path, O_RDONLY | O_CLOEXEC)};
  df_status st = l->fd >= 0 ? read_run(l, path, &good, err)
                            : DF_FAIL(err, DF_ERR_IO, "could not open \"%s\": %s", path, strerror(errno));
  if (l->fd >= 0) (void)close(l->fd);
  l->fd = -1;
  if (st == DF_OK && !l->header) st = DF_FAIL(err, DF_ERR_FORMAT, "\"%s\" is empty: no run was begun", path);
  if (st != DF_OK) df_run_log_close(l);
  return st;
}

/* ---- writing -------------------------------------------------------------------------------------------- */

static df_status put_bytes(const df_run_log *l, const char *p, size_t n, df_error *err) {
  while (n) {
    const ssize_t k = write(l->fd, p, n);
    if (k < 0 && errno == EINTR) continue;
    if (k < 0) return DF_FAIL(err, DF_ERR_IO, "could not write \"%s\": %s", l->path, strerror(errno));
    p += k;
    n -= (size_t)k;
  }
  if (fdatasync(l->fd) != 0) return DF_FAIL(err, DF_ERR_IO, "could not write \"%s\": %s", l->path, strerror(errno));
  return DF_OK;
}

/* Writes at the end of the file; a part that was written before a failure is taken back as far as that works. */
static df_status write_all(df_run_log *l, const char *p, size_t n, df_error *err) {
  const df_status st = put_bytes(l, p, n, err);
  if (st == DF_OK) {
    l->size += n;
    return DF_OK;
  }
  if (ftruncate(l->fd, (off_t)l->size) == 0) (void)lseek(l->fd, (off_t)l->size, SEEK_SET);
  return st;
}

/* The first member that differs, in one line. */
static df_status compare_settings(const df_run_log *l, const char *header, df_error *err) {
  df_json *mine;
  DF_TRY(df_json_parse(header, strlen(header), &mine, err));
  const df_json *old = df_json_member(l->header, "settings"), *new = df_json_member(mine, "settings");
  df_json_iter it = df_json_begin(new);
  const char *key;
  size_t len;
  const df_json *v;
  df_status st = df_json_size(old) == df_json_size(new)
                     ? DF_OK
                     : DF_FAIL(err, DF_ERR_MISMATCH, "\"%s\" was written by another version", l->path);
  while (st == DF_OK && df_json_next(&it, &key, &len, &v)) {
    df_buf a, b;
    df_json_out w;
    df_buf_init(&a, 0);
    df_buf_init(&b, 0);
    df_json_out_begin(&w, &a, err), df_json_out_value(&w, df_json_member(old, key));
    st = df_json_out_end(&w);
    df_json_out_begin(&w, &b, err), df_json_out_value(&w, v);
    if (st == DF_OK) st = df_json_out_end(&w);
    if (st == DF_OK && strcmp(a.data, b.data) != 0)
      st = DF_FAIL(err, DF_ERR_MISMATCH, "\"%s\" holds a run with other settings: %s was %.80s, is now %.80s", l->path,
                   key, a.data, b.data);
    df_buf_release(&a);
    df_buf_release(&b);
  }
  if (st == DF_ERR_MISMATCH) df_error_hint(err, "give another --out, or remove the old run");
  df_json_free(mine);
  return st;
}

static df_status begin_file(df_run_log *l, const char *header, df_error *err) {
  df_buf b;
  df_buf_init(&b, 0);
  df_status st = df_buf_printf(&b, err, "%s\n", header);
  if (st == DF_OK) st = write_all(l, b.data, b.len, err);
  df_buf_release(&b);
  if (st == DF_OK) st = df_json_parse(header, strlen(header), &l->header, err);
  return st;
}

static df_status lock_file(df_run_log *l, const char *path, df_error *err) {
  struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
  l->fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  if (l->fd < 0) return DF_FAIL(err, DF_ERR_IO, "could not open \"%s\": %s", path, strerror(errno));
  if (fcntl(l->fd, F_SETLK, &lock) == 0) return DF_OK;
  if (errno == EACCES || errno == EAGAIN) return DF_FAIL(err, DF_ERR_BUSY, "another process is writing \"%s\"", path);
  return DF_FAIL(err, DF_ERR_IO, "could not lock \"%s\": %s", path, strerror(errno));
}

static df_status open_run(df_run_log *l, const char *path, const char *header, df_error *err) {
  size_t good;
  DF_TRY(lock_file(l, path, err));
  DF_TRY(read_run(l, path, &good, err));
  if (!l->header) return begin_file(l, header, err);
  DF_TRY(compare_settings(l, header, err));
  if (ftruncate(l->fd, (off_t)good) != 0 || lseek(l->fd, (off_t)good, SEEK_SET) < 0)
    return DF_FAIL(err, DF_ERR_IO, "could not write \"%s\": %s", path, strerror(errno));
  l->size = good;
  return DF_OK;
}

df_status df_run_log_open(df_run_log *l, const char *path, const char *header, df_error *err) {
  *l = (df_run_log){.fd = -1};
  const df_status st = open_run(l, path, header, err);
  if (st != DF_OK) df_run_log_close(l);
  return st;
}

df_status df_run_log_add(df_run_log *l, df_eval_row *row, df_error *err) {
  df_buf b;
  if (l->fd < 0) return keep_row(l, row, err);
  df_buf_init(&b, 0);
  df_status st = df_eval_row_write(row, &b, err);
  if (st == DF_OK) st = df_buf_puts(&b, "\n", err);
  if (st == DF_OK) st = write_all(l, b.data, b.len, err);
  df_buf_release(&b);
  return st == DF_OK ? keep_row(l, row, err) : st;
}

void df_run_log_close(df_run_log *l) {
  for (uint32_t i = 0; i < l->n; i++) df_eval_row_release(&l->rows[i]);
  df_free(l->rows);
  df_json_free(l->header);
  df_free(l->path);
  if (l->fd >= 0) (void)close(l->fd);
  *l = (df_run_log){.fd = -1};
}
