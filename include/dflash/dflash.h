/*
 * dflash/dflash.h - everything: open a model, open a draft, make a session, generate.
 * See status.h, model.h and session.h for ownership and thread rules.
 */
#ifndef DFLASH_DFLASH_H
#define DFLASH_DFLASH_H

#include "dflash/model.h"
#include "dflash/session.h"
#include "dflash/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* "0.1.0". */
DF_API const char *df_version(void);

/* Log lines of the library go to this sink; level 0 error, 1 warning, 2 info, 3 debug. NULL = silence (default).
 * Set before other calls. */
DF_API void df_set_log(void (*sink)(void *user, int level, const char *line), void *user, int max_level);

#ifdef __cplusplus
}
#endif
#endif
