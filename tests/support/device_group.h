/*
 * support/device_group.h - requests that draft blocks of one width together on a device, to be compared with the
 * processor's: the texts, and how many drafts stood.
 *
 * Ownership and failures: as support/device_rig.h.
 */
#ifndef DF_TEST_SUPPORT_DEVICE_GROUP_H
#define DF_TEST_SUPPORT_DEVICE_GROUP_H

#include "support/device_rig.h"

enum { GROUP_MOST = 4, GROUP_NEW = 24 };

typedef struct device_group {
  uint32_t width, batch;
  uint32_t draft_vocab; /* 0: the whole one */
  bool eager;
  uint32_t sampled; /* set of requests that sample: bit i for request i */
  uint32_t held;    /* those that a grammar holds */
  bool padded;      /* recorded for one and four sequences only */
  bool few;         /* tokens, for slow devices */
} device_group;

typedef struct device_text {
  int32_t ids[GROUP_NEW];
  uint32_t n, blocks, drafted, accepted;
} device_text;

/* text[g->batch]. Returns the drafts that stood. */
uint32_t device_group_run(const device_files *f, const char *device, const device_group *g, device_text *text);
/* Fails unless both are the same, numbers included. */
void device_group_same(const device_group *g, const device_text *got, const device_text *want);
/* Both, on the processor and on the device. Returns the drafts that stood. */
uint32_t device_group_both(const device_files *f, const char *device, const device_group *g);
/* Widths 2 .. 16 in these steps, batches of 1 to 4, both draft vocabularies, recorded and eager: as on the processor.
 * Returns the drafts that stood. */
uint32_t device_group_compare(const device_files *f, const char *device, uint32_t step);

#endif
