/*
 * format/file_map.h - a file mapped read-only into memory.
 *
 * Ownership: the map owns the mapping; everything that points into it dies with df_file_map_release.
 * Threads:   opening and releasing by one thread, reading by any number.
 * Caveat:    a file that is shortened while mapped makes reads fault, as for every mmap user; replace model
 *            files by renaming, never by rewriting in place.
 */
#ifndef DF_FORMAT_FILE_MAP_H
#define DF_FORMAT_FILE_MAP_H

#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

typedef struct df_file_map {
  const uint8_t *data; /* page aligned; NULL when released */
  size_t size;         /* bytes, never 0 while open */
  uint64_t stamp;      /* differs when the file was replaced or changed: device, inode, size, times of change */
} df_file_map;

/* Maps the whole file. DF_ERR_IO when it is missing, unreadable, a folder, not a regular file or empty. */
df_status df_file_map_open(df_file_map *m, const char *path, df_error *err) DF_CHECK;
void df_file_map_release(df_file_map *m);

/* Tells the system that [p, p + n) will not be read again soon, so its pages leave our resident set. The bytes
 * stay valid (they are read from the file again). p must lie in the mapping; a wrong range is ignored. */
void df_file_map_drop(const df_file_map *m, const void *p, size_t n);

#endif
