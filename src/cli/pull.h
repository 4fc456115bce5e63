/*
 * cli/pull.h - parts of "dflash pull": files and checksums (pull_files.c), Python packages (pull_pip.c), HTTP
 * (pull_http.c), model repositories (pull_repo.c).
 *
 * A file appears in the cache under its name only when it is complete and its checksum, where one is known, is right.
 * What is unfinished ends in ".incomplete" or lies in ".parts/", and is used again by the next pull.
 * Threads: main thread. Signals: df_interrupted ends every step with DF_ERR_CANCELLED.
 */
#ifndef DF_CLI_PULL_H
#define DF_CLI_PULL_H

#include "base/buf.h"
#include "cli/known.h"
#include "cli/verbs.h"

typedef struct df_pull {
  df_cli *cli;
  char *cache; /* owned */
  bool offline;
  char path[4096]; /* of the file that was fetched or found */
  uint64_t bytes;
  char sha256[65]; /* "" when it was not computed */
  bool found;      /* it was in the cache already */
} df_pull;

/* ---- pull_files.c ---- */

/* Creates folder `path` and its parents. */
df_status df_folder_make(const char *path, df_error *err) DF_CHECK;
/* Fails unless the file system of `folder` has `need` bytes for us. */
df_status df_space_check(const char *folder, uint64_t need, df_error *err) DF_CHECK;
/* SHA-256 of a file as lower-case hex; label != NULL shows a progress bar. */
df_status df_file_sha256(const df_term *t, const char *path, const char *label, char hex[65], df_error *err) DF_CHECK;
/* Appends files to out_path (created) in order and hashes the whole. */
df_status df_files_join(const df_term *t, char *const *paths, unsigned n, uint64_t total, const char *out_path,
                        char hex[65], df_error *err) DF_CHECK;
/* Removes a folder with the plain files in it (one level). */
void df_folder_remove(const char *path);
/* Takes a lock file for this process; *fd to close. DF_ERR_IO when another process holds it. */
df_status df_lock_take(const char *path, int *fd, df_error *err) DF_CHECK;
/* True when `name` may be created below the cache: relative, no empty, "." or ".." parts, no control characters. */
bool df_name_is_safe(const char *name);
/* err with the system's reason; a full disk gets a hint with what is kept. */
df_status df_write_failed(const char *path, int why, const char *kept, df_error *err);
/* True for 64 hex digits. */
bool df_is_sha256(const char *s);

/* ---- sources ---- */

df_status df_pull_known(df_pull *p, const df_known_model *k, df_error *err) DF_CHECK;
/* Fetches url to cache/rel. sha256: expected checksum or NULL; token: access token for the host of url, or NULL. */
df_status df_pull_url(df_pull *p, const char *url, const char *rel, const char *sha256, const char *token,
                      df_error *err) DF_CHECK;
/* Small document into *out (zero-terminated). */
df_status df_fetch_text(df_pull *p, const char *url, const char *token, df_buf *out, df_error *err) DF_CHECK;
/* "org/name", "org/name:file" or "org/name:quant". */
df_status df_pull_repo(df_pull *p, const char *spec, const char *sha256, df_error *err) DF_CHECK;
/* True for ORG/NAME and ORG/NAME:FILE. */
bool df_is_repo_spec(const char *spec);

#endif
