/*
 * model/load.h - binding tensors to packed weights. Requests are collected first, so that one block of memory takes
 * everything; then all threads pack straight from the mapped file and the file's pages are dropped.
 *
 * Ownership: the loader owns nothing of the source; the packed block is handed to the caller by df_loader_run.
 * Threads:   one caller; df_loader_run uses the pool.
 */
#ifndef DF_MODEL_LOAD_H
#define DF_MODEL_LOAD_H

#include "base/pool.h"
#include "device/device.h"
#include "dflash/model.h"
#include "format/weights_source.h"
#include "kernels/kernels.h"

typedef struct df_loader df_loader;

/* exact: widen every matrix to float32. */
df_status df_loader_create(const df_source *src, df_pool *pool, bool exact, df_loader **out, df_error *err) DF_CHECK;
void df_loader_free(df_loader *l);
/* Rounds matrices requested from now on to `type` (one that df_encode writes), unless the file's type has as few
 * bits. */
void df_loader_round_to(df_loader *l, df_dtype type);
/* Where df_loader_run puts the weights besides the host; `what` is their name in messages, static. */
void df_loader_place(df_loader *l, df_device *device, const char *what);
/* Bytes that others will want there, and what they are ("a KV pool of ..."; borrowed): counted with the weights when
 * df_loader_run asks for room. 0: none. */
void df_loader_also(df_loader *l, uint64_t bytes, const char *text);

/* Keeps the packed matrices in a file of folder `dir` (borrowed until the run; NULL: not) and takes them from there
 * next time: model/pack_cache.h. GGUF files only. */
void df_loader_cache(df_loader *l, const char *dir);
/* Whether the last run took them from there. */
bool df_loader_was_cached(const df_loader *l);

/* Requests matrix `name` as [n outputs][k inputs]; *dst is filled by df_loader_run. FORMAT when it is missing or has
 * another shape. row_of (NULL or [n], copied) is the order in which the file's n rows are taken. */
df_status df_loader_matrix(df_loader *l, const char *name, uint32_t n, uint32_t k, const uint32_t *row_of,
                           df_weights *dst, df_error *err) DF_CHECK;
/* Requests n rows of a matrix that has file_rows of them: output i is row row_of[i], which must be below file_rows. */
df_status df_loader_gather(df_loader *l, const char *name, uint32_t n, uint32_t k, uint32_t file_rows,
                           const uint32_t *row_of, df_weights *dst, df_error *err) DF_CHECK;
/* Requests vector `name` of n values as float32. *dst stays NULL when it is missing and not required. */
df_status df_loader_vector(df_loader *l, const char *name, uint32_t n, bool required, float **dst,
                           df_error *err) DF_CHECK;
/* Same, rows permuted by row_of. */
df_status df_loader_vector_rows(df_loader *l, const char *name, uint32_t n, const uint32_t *row_of, bool required,
                                float **dst, df_error *err) DF_CHECK;

/* Allocates, packs, drops the file's pages, maps the block on the device. *block (df_pages_free with *block_bytes)
 * holds everything requested; it stays mapped until the caller unmaps it. A device without room for it says so before
 * anything is read. */
df_status df_loader_run(df_loader *l, df_progress_fn progress, void *user, void **block, size_t *block_bytes,
                        df_error *err) DF_CHECK;

#endif
