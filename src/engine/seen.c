#include "engine/seen.h"

#include <assert.h>
#include <string.h>

#include "base/mem.h"
#include "base/size.h"

df_status df_seen_init(df_seen *s, uint32_t max_distinct, df_error *err) {
  *s = (df_seen){0};
  if (max_distinct == 0) max_distinct = 1;
  if (max_distinct > (1u << 30))
    return DF_FAIL(err, DF_ERR_ARGUMENT, "a token history of %u ids is too long", max_distinct);
  uint32_t slots = 16;
  while (slots / 2 < max_distinct) slots *= 2;
  df_seen_entry *e = df_calloc(max_distinct, sizeof *e);
  uint32_t *t = df_calloc(slots, sizeof *t);
  if (!e || !t) {
    df_free(e);
    df_free(t);
    return DF_OOM(err, "a token history", (size_t)max_distinct * sizeof *e + (size_t)slots * sizeof *t);
  }
  *s = (df_seen){.entries = e, .table = t, .max = max_distinct, .mask = slots - 1};
  return DF_OK;
}

void df_seen_release(df_seen *s) {
  df_free(s->entries);
  df_free(s->table);
  *s = (df_seen){0};
}

void df_seen_reset(df_seen *s) {
  memset(s->table, 0, ((size_t)s->mask + 1) * sizeof *s->table);
  s->n = 0;
}

/* The slot that holds the id, or the free one where it belongs. */
static uint32_t *slot_of(const df_seen *s, int32_t id) {
  uint32_t i = ((uint32_t)id * 0x9E3779B1u) >> 7 & s->mask;
  while (s->table[i] && s->entries[s->table[i] - 1].id != id) i = (i + 1) & s->mask;
  return &s->table[i];
}

df_status df_seen_push(df_seen *s, int32_t id, bool generated, df_error *err) {
  uint32_t *slot = slot_of(s, id);
  if (!*slot) {
    if (s->n == s->max) return DF_FAIL(err, DF_ERR_LIMIT, "the token history is full at %u different ids", s->max);
    s->entries[s->n] = (df_seen_entry){.id = id};
    *slot = ++s->n;
  }
  df_seen_entry *e = &s->entries[*slot - 1];
  if (generated)
    e->generated++;
  else
    e->in_prompt++;
  return DF_OK;
}

void df_seen_pop(df_seen *s, int32_t id, bool generated) {
  uint32_t *slot = slot_of(s, id);
  assert(*slot != 0);
  df_seen_entry *e = &s->entries[*slot - 1];
  if (generated)
    e->generated--;
  else
    e->in_prompt--;
  if (e->generated || e->in_prompt) return;
  /* Pops run backwards, so this id was the last one to enter the table: no probe sequence passes its slot. */
  assert(*slot == s->n);
  *slot = 0;
  s->n--;
}

const df_seen_entry *df_seen_get(const df_seen *s, int32_t id) {
  const uint32_t *slot = slot_of(s, id);
  return *slot ? &s->entries[*slot - 1] : NULL;
}
