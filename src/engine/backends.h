/* engine/backends.h - from the names a user gives to an attention backend with its verify-mask decision. */
#ifndef DF_ENGINE_BACKENDS_H
#define DF_ENGINE_BACKENDS_H

#include "attention/verify_mask.h"
#include "dflash/session.h"

/* Builds leaves (each distinct name once), the split wrapper where phases differ, and three of these stacks under the
 * overlap wrapper when asked for. The default for every phase is the first leaf of the device. Aliases in use are
 * logged once each in a process. Errors: ARGUMENT for unknown names or modes, MEMORY. */
df_status df_backends_create(const df_session_params *p, const df_attn_shape *shape, df_attn **out,
                             df_error *err) DF_CHECK;

#endif
