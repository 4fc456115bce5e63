/* cuda/fake/fake_state.h - what runtime and launchers share. Private to tests/cuda/fake. */
#ifndef DF_TEST_CUDA_FAKE_STATE_H
#define DF_TEST_CUDA_FAKE_STATE_H

#include "cuda/fake/fake_cuda.h"
#include "device/program.h"

/* A copy (from), a fill (value), or a call (run). */
typedef struct fake_work {
  void *to;
  const void *from;
  size_t bytes;
  int value;
  void (*run)(const struct fake_work *w);
  df_op op; /* of a launch */
} fake_work;

typedef struct fake_state {
  fake_card card;
  fake_counts counts;
  bool recording;
  int failed; /* every call says so from now on */
  uint32_t fail_wait, fail_launch;
  int fail_code;
} fake_state;

extern fake_state g_fake;

/* To the stream, or to what is being recorded. */
void fake_enqueue(const fake_work *w);

#endif
