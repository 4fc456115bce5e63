#define _GNU_SOURCE
#include "support/sample_files.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/mem.h"

#ifndef DF_SOURCE_DIR
#define DF_SOURCE_DIR "."
#endif

static char g_path[1024];

char *test_dir_create(void) {
  char name[] = "/tmp/dflash-test-XXXXXX";
  assert_non_null(mkdtemp(name));
  char *copy = df_strdup(name);
  assert_non_null(copy);
  return copy;
}

static int remove_one(const char *path, const struct stat *st, int flag, struct FTW *ftw) {
  (void)st;
  (void)flag;
  (void)ftw;
  return remove(path);
}

void test_dir_remove(char *dir) {
  (void)nftw(dir, remove_one, 8, FTW_DEPTH | FTW_PHYS);
  df_free(dir);
}

const char *test_dir_path(const char *dir, const char *name) {
  int n = snprintf(g_path, sizeof g_path, "%s/%s", dir, name);
  assert_true(n > 0 && (size_t)n < sizeof g_path);
  return g_path;
}

const char *test_dir_write(const char *dir, const char *name, const void *data, size_t n) {
  const char *path = test_dir_path(dir, name);
  FILE *f = fopen(path, "wb");
  assert_non_null(f);
  if (n) assert_int_equal(fwrite(data, 1, n, f), n);
  assert_int_equal(fclose(f), 0);
  return path;
}

void test_read_source_file(const char *relative, df_buf *b) {
  char path[1024], part[4096];
  int len = snprintf(path, sizeof path, "%s/%s", DF_SOURCE_DIR, relative);
  assert_true(len > 0 && (size_t)len < sizeof path);
  FILE *f = fopen(path, "rb");
  if (!f) fail_msg("could not open %s", path);
  for (size_t n; (n = fread(part, 1, sizeof part, f)) > 0;) test_put(b, part, n);
  (void)fclose(f);
}

void test_put(df_buf *b, const void *p, size_t n) { assert_int_equal(df_buf_put(b, p, n, NULL), DF_OK); }
void test_put_u32(df_buf *b, uint32_t v) { test_put(b, &v, sizeof v); }
void test_put_u64(df_buf *b, uint64_t v) { test_put(b, &v, sizeof v); }

void test_put_gguf_str(df_buf *b, const char *s) {
  test_put_u64(b, strlen(s));
  test_put(b, s, strlen(s));
}

void test_put_safetensors(df_buf *b, const char *header, const void *data, size_t n) {
  test_put_u64(b, strlen(header));
  test_put(b, header, strlen(header));
  test_put(b, data, n);
}

size_t test_each_allocation_fails(df_status (*work)(void *arg, df_error *err), void *arg) {
  for (int sticky = 0; sticky < 2; sticky++) {
    for (uint64_t n = 1;; n++) {
      df_error err = {0};
      df_mem_fail_after(n, sticky);
      df_status s = work(arg, &err);
      df_mem_fail_after(0, false);
      if (s == DF_OK && sticky) return (size_t)n - 1;
      if (s == DF_OK) break;
      if (s != DF_ERR_MEMORY) fail_msg("allocation %d failed and gave %s: %s", (int)n, df_status_name(s), err.msg);
      assert_true(n < 100000);
    }
  }
  return 0;
}
