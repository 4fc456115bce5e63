/* attention/tbo.h - two-batch overlap: a uniform batch of two or more sequences is run as two halves whose layers
 * interleave, each through a backend of its own. On a CPU this changes nothing but the order of work. */
#ifndef DF_ATTENTION_TBO_H
#define DF_ATTENTION_TBO_H

#include "attention/backend.h"

/* primary runs whole batches (prefill, a single sequence), child[i] half i. Takes ownership of all three, also on
 * failure. */
df_status df_attn_tbo_create(df_attn *primary, df_attn *child0, df_attn *child1, df_attn **out, df_error *err) DF_CHECK;

#endif
