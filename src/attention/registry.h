/* attention/registry.h - leaves by name. Known command lines of other engines run: their backend names are aliases of
 * the nearest leaf, and every alias in use is reported once.
 * Threads: any. */
#ifndef DF_ATTENTION_REGISTRY_H
#define DF_ATTENTION_REGISTRY_H

#include "attention/backend.h"

typedef df_status (*df_attn_create_fn)(const df_attn_shape *shape, df_attn **out, df_error *err);

typedef struct df_attn_entry {
  const char *name; /* canonical */
  df_attn_create_fn create;
} df_attn_entry;

/* Finds a leaf by name or alias; *is_alias tells which. ARGUMENT, with the nearest name and the list, when unknown. */
df_status df_attn_find(const char *name, const df_attn_entry **out, bool *is_alias, df_error *err) DF_CHECK;

/* Logs that `name` is an alias and of what (level info), the first time in this process; nothing for other names. */
void df_attn_alias_report(const char *name);

#endif
