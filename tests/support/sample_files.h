/* tests/support/sample_files.h - temporary folders, small files and the loop that makes every allocation fail. */
#ifndef DF_TEST_SAMPLE_FILES_H
#define DF_TEST_SAMPLE_FILES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/error.h"

/* A new empty folder; the string is owned by the caller (test_dir_remove). */
char *test_dir_create(void);
/* Removes the folder with the files in it and frees the string. */
void test_dir_remove(char *dir);
/* Writes dir/name; the returned path is valid until the next call. */
const char *test_dir_write(const char *dir, const char *name, const void *data, size_t n);
/* dir/name without writing anything, valid until the next call of either. */
const char *test_dir_path(const char *dir, const char *name);

/* The whole file below the source directory ("tests/golden/x.json"); b must be empty. */
void test_read_source_file(const char *relative, df_buf *b);

/* Appends raw little-endian pieces; fails the test when memory runs out. */
void test_put(df_buf *b, const void *p, size_t n);
void test_put_u32(df_buf *b, uint32_t v);
void test_put_u64(df_buf *b, uint64_t v);
void test_put_gguf_str(df_buf *b, const char *s); /* u64 length + bytes */

/* A safetensors file: header length, header, n bytes of data. */
void test_put_safetensors(df_buf *b, const char *header, const void *data, size_t n);

/* Calls work again and again, each time with a later allocation failing, until it succeeds. Every failure must be
 * DF_ERR_MEMORY. Returns how many allocations could fail. work must release what it made on success. */
size_t test_each_allocation_fails(df_status (*work)(void *arg, df_error *err), void *arg);

#endif
