/* attention/registry.h - leaves by name, for each set of them that a device may have. Known command lines of other
 * engines run: their backend names are aliases of the nearest leaf, as are the names of leaves of another device; every
 * alias in use is reported once.
 * Threads: any. */
#ifndef DF_ATTENTION_REGISTRY_H
#define DF_ATTENTION_REGISTRY_H

#include "attention/backend.h"

typedef df_status (*df_attn_create_fn)(const df_attn_shape *shape, df_attn **out, df_error *err);

typedef struct df_attn_entry {
  const char *name; /* canonical */
  df_attn_create_fn create;
  uint32_t page_sizes; /* as in df_attn_caps: what it could read, before there is one */
} df_attn_entry;

/* Finds a leaf by name or alias; *is_alias tells which. ARGUMENT, with the nearest name and the list, when unknown;
 * UNSUPPORTED for a leaf that only another device has. */
df_status df_attn_find(const char *name, df_leaf_set set, const df_attn_entry **out, bool *is_alias,
                       df_error *err) DF_CHECK;

/* All leaves of a set; the first is what runs when nobody asked for another. */
const df_attn_entry *df_attn_leaves(df_leaf_set set, uint32_t *n);
/* That leaf for a device (NULL = the host). */
const df_attn_entry *df_attn_default(const df_device *d);

/* Logs that `name` is an alias and of what (level info), the first time in this process; nothing for other names. */
void df_attn_alias_report(const char *name, df_leaf_set set);

#endif
