/*
 * support/mixed_steps.h - requests whose steps are plain and drafted in turn, each after a plan of its own: whatever
 * waits to be injected into the draft's K and V must be there when a draft reads it, and when a request ends.
 *
 * Ownership and failures: as support/device_rig.h.
 */
#ifndef DF_TEST_SUPPORT_MIXED_STEPS_H
#define DF_TEST_SUPPORT_MIXED_STEPS_H

#include "support/device_rig.h"

enum { MIXED_MOST = 3, MIXED_STEPS = 64, MIXED_IDS = 240 };

typedef struct mixed {
  const char *device; /* NULL: the processor */
  uint32_t keeps;     /* requests whose rows may wait; MIXED_MOST: all, 0: every step injects at once */
  uint32_t batch;     /* 1 .. MIXED_MOST */
  /* Request i drafts `width[i]` rows with every every[i]-th step; 0: never. */
  uint32_t every[MIXED_MOST], width[MIXED_MOST];
  uint32_t page_size, n_new;
  bool eager, f32, sampled;
  uint32_t park; /* the step in front of which request 0 loses its pages, 0 = none */
  bool goes_on;  /* each request is followed by another one on its pages */
} mixed;

/* What a request showed: tokens; for every step its accepted drafts; the draft's K and V behind every drafted step and
 * at the end, as a hash. */
typedef struct mixed_text {
  int32_t ids[MIXED_IDS];
  uint32_t n, n_steps, accepted, drafted;
  uint32_t stood[2 * MIXED_STEPS];
  uint64_t kv[2 * MIXED_STEPS], end[2];
} mixed_text;

/* text[o->batch]. Checks that as many passes inject as have to, and that no rows are kept at the end. Returns how many
 * that were, prompts included. */
uint32_t mixed_run(const device_files *f, const mixed *o, mixed_text *text);
/* Fails unless both are the same. */
void mixed_same(const mixed *o, const mixed_text *got, const mixed_text *want);

#endif
