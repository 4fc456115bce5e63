/*
 * model/pack_cache.h - packed weights kept in a file between starts, so that a start reads instead of packing.
 *
 * A file is used only when it was written for the same state of the source, for the same requests and by the same
 * layout (`id`), and when every mebibyte of it has the sum that was written with it. Whatever is wrong with it, loading
 * goes on as if it were not there; a new one is written beside it and renamed, so readers never see half a file.
 *
 * Threads: one caller; the pool does the work.
 */
#ifndef DF_MODEL_PACK_CACHE_H
#define DF_MODEL_PACK_CACHE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/pool.h"

/* Where it lies (`path`) and for what (`id`). */
typedef struct df_pack_cache {
  char path[1024];
  uint64_t id;
} df_pack_cache;

/* dir/NAME-KEY.dfpack, NAME being the last part of the source's path and `key` telling apart what else may have that
 * name; false when the path is too long. */
bool df_pack_cache_at(df_pack_cache *c, const char *dir, const char *source, uint64_t key, uint64_t id);
/* Fills block[bytes]; false when there is no such file, or not a sound one: the block's content is undefined then. */
bool df_pack_cache_read(const df_pack_cache *c, df_pool *pool, uint8_t *block, size_t bytes);
/* Writes the block; false when that failed (nothing is left behind then). Creates the folder's last part. */
bool df_pack_cache_write(const df_pack_cache *c, df_pool *pool, const uint8_t *block, size_t bytes);

#endif
