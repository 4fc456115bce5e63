/*
 * support/shadow_device.h - a device that is the processor with other memory: every mapped block has a mirror, programs
 * are lowered as for a card and run by the processor's ops on the mirrors. What the host must not touch on a card is
 * taken away from it meanwhile (no access to the pages), so that a stray read or write ends the test at once.
 *
 * Ownership: as every device. Threads: one owner.
 */
#ifndef DF_TEST_SUPPORT_SHADOW_DEVICE_H
#define DF_TEST_SUPPORT_SHADOW_DEVICE_H

#include "device/device.h"

typedef struct shadow_options {
  bool like_a_card;  /* leaves, layout of K and V and argmax segments of a card; else those of the processor */
  size_t room;       /* bytes that it has for mirrors; 0 = enough */
  uint32_t fail_run; /* the run with this number (from 1) and all later ones fail; 0 = none */
} shadow_options;

/* What devices opened from now on are like; default: all zero. */
void shadow_set(const shadow_options *o);
void shadow_like(bool a_card); /* with all else by default */
/* Makes the name "shadow" known to df_device_open. */
void shadow_provide(void);

/* Counted over all shadow devices since the last call. */
typedef struct shadow_counts {
  uint64_t runs, fetches, puts, fetched_bytes;
  size_t mapped; /* bytes, now */
} shadow_counts;
shadow_counts shadow_take_counts(void);

#endif
