/*
 * device/mirror.h - the table of mapped blocks of a device: which host range is mirrored where.
 *
 * Ownership: the table only; the memory of the mirrors belongs to the device. Threads: one owner.
 */
#ifndef DF_DEVICE_MIRROR_H
#define DF_DEVICE_MIRROR_H

#include "device/device.h"

typedef struct df_mirror {
  const uint8_t *host;
  size_t bytes;
  uint8_t *there; /* the same bytes where the device has them: its memory, or for OUTPUT the host's, pinned */
  df_mem_kind kind;
  const char *what;
  void *own;     /* the device's: what it keeps beside the mirror */
  uint32_t mark; /* for df_lower_program: last program that was found to refer to it */
} df_mirror;

typedef struct df_mirrors {
  df_mirror **items; /* [n] by address; each stays where it is until it is removed */
  uint32_t n, cap;
  uint32_t mark;
} df_mirrors;

/* Adds a mirror; `there` is filled by the caller afterwards. INTERNAL when the range overlaps another, MEMORY. */
df_status df_mirrors_add(df_mirrors *m, const void *host, size_t bytes, df_mem_kind kind, const char *what,
                         df_mirror **out, df_error *err) DF_CHECK;
/* The mirror that holds this host address, NULL when none does. */
df_mirror *df_mirrors_find(const df_mirrors *m, const void *host);
/* Takes the mirror whose range begins at `host` out of the table; the caller frees it with df_free. NULL: there is
 * none. */
df_mirror *df_mirrors_take(df_mirrors *m, const void *host);
/* Frees the table; the mirrors were taken out before. */
void df_mirrors_release(df_mirrors *m);

#endif
