/*
 * support/device_rig.h - requests of several kinds on a device, to be compared with the processor's answers: a greedy
 * one, one that samples, one with penalties; a short prompt, one of some pages, one of more rows than a prefill pass
 * takes.
 *
 * Ownership: files are released by device_files_release. Threads: one caller. Everything fails the current test when it
 * cannot be done.
 */
#ifndef DF_TEST_SUPPORT_DEVICE_RIG_H
#define DF_TEST_SUPPORT_DEVICE_RIG_H

#include "engine/check.h"
#include "engine/engine.h"
#include "support/tiny_model.h"

enum { DEVICE_NEW = 40, DEVICE_BATCH = 3 };

typedef struct device_files {
  char *dir;
  char target[256], draft[256];
} device_files;

/* A target and its draft, both with matrices of the spec's type, the draft with a rank table. */
void device_files_write(device_files *f, const tiny_spec *s);
void device_files_release(device_files *f);
/* Setup and teardown of a group of tests: two of them, the default model and a rich one of Q8_0 with random matrices of
 * this gain (0: the default; more: drafts are accepted more often). *state becomes device_files[2]. */
int device_pair_setup(void **state, float gain);
int device_pair_teardown(void **state);
/* Vectors and forms that the plain tiny model lacks: biases, head norms, an output matrix of its own. */
tiny_spec device_rich_spec(df_dtype dtype);

typedef struct device_answer {
  int32_t ids[DEVICE_NEW];
  uint32_t n;
  uint64_t hash; /* of all logits */
} device_answer;

typedef struct device_setting {
  const char *backend, *decode;
  bool overlap, eager, f32;
  bool small; /* short prompts and answers, for slow devices */
  uint32_t page_size;
  int32_t drafts; /* -1: the controller chooses */
  uint32_t draft_vocab;
} device_setting;

/* The settings that make a difference to a device; *n of them. */
const device_setting *device_settings(uint32_t *n);

void device_answers(const device_files *f, const char *device, const device_setting *s, device_answer *out);
/* The same answers as the processor's, for every setting (K/V in f32 only where f32 is true). */
void device_compare(const device_files *f, const char *device, bool f32);

/* The quick matrix of dflash check with logits; everything identical. */
df_check_summary device_check(const device_files *f, const char *device);

#endif
