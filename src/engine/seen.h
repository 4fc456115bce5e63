/*
 * engine/seen.h - the token history of one request as distinct ids with counts, for penalties.
 *
 * A verify row sees the drafts before it as history, and rejected drafts have to vanish again: df_seen_pop undoes
 * pushes in reverse order at no cost.
 *
 * Ownership: one block owned by the struct. Threads: none of its own; one writer.
 */
#ifndef DF_ENGINE_SEEN_H
#define DF_ENGINE_SEEN_H

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"

typedef struct df_seen_entry {
  int32_t id;
  uint32_t in_prompt; /* occurrences in the prompt */
  uint32_t generated; /* occurrences in the output */
} df_seen_entry;

typedef struct df_seen {
  df_seen_entry *entries; /* distinct ids in order of first appearance */
  uint32_t *table;        /* open addressing: index into entries + 1, 0 = free */
  uint32_t n;             /* distinct ids */
  uint32_t max;           /* room for distinct ids */
  uint32_t mask;          /* table size - 1 */
} df_seen;

/* Room for max_distinct different ids (the context length, or the vocabulary if that is smaller; at least 1).
 * DF_ERR_MEMORY, DF_ERR_ARGUMENT above 2^30. */
df_status df_seen_init(df_seen *s, uint32_t max_distinct, df_error *err) DF_CHECK;
void df_seen_release(df_seen *s);
void df_seen_reset(df_seen *s); /* empty, memory kept */

/* Adds one occurrence. DF_ERR_LIMIT when max_distinct ids are there already (nothing changes). No allocation. */
df_status df_seen_push(df_seen *s, int32_t id, bool generated, df_error *err) DF_CHECK;
/* Undoes the latest push that was not undone yet; the caller passes the same arguments. */
void df_seen_pop(df_seen *s, int32_t id, bool generated);
/* NULL when the id never occurred. The pointer is valid until the next push or pop. */
const df_seen_entry *df_seen_get(const df_seen *s, int32_t id);

#endif
