/* format/path.h - joining file names. Results are heap strings for df_free. Thread safe. */
#ifndef DF_FORMAT_PATH_H
#define DF_FORMAT_PATH_H

#include "base/error.h"

/* folder + "/" + name (no double slash). */
df_status df_path_join(const char *folder, const char *name, char **out, df_error *err) DF_CHECK;
/* name in the folder of path. */
df_status df_path_sibling(const char *path, const char *name, char **out, df_error *err) DF_CHECK;

#endif
