/*
 * cuda/fake/fake_cuda.h - a CUDA runtime and launchers that need no card, so that the C side of the CUDA device can be
 * tested anywhere: work is put into streams and done as late as it may be (when somebody waits), memory of the "card"
 * cannot be touched by the host, and every call is checked and can be made to fail. Kernels are the processor's ops.
 *
 * Weights of the forms F16 and BF16 have another layout on this card too: a strip is longer, every byte is flipped.
 *
 * Ownership: what the device under test makes; fake_counts tells what is left. Threads: one caller.
 */
#ifndef DF_TEST_CUDA_FAKE_H
#define DF_TEST_CUDA_FAKE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct fake_card {
  int n_cards; /* 0: the driver lists none */
  int driver;  /* version, 0: there is none */
  int major, minor;
  size_t memory;     /* bytes */
  const char *archs; /* that the build holds */
} fake_card;

/* The machine from now on. */
void fake_set(const fake_card *c);
/* One H200-like card. */
fake_card fake_card_default(void);

/* The n-th wait for the stream from now on (1 = the next) fails with this error, as do all calls behind it. 0: never.
 */
void fake_fail_wait(uint32_t n, int code);
/* The n-th launch of an op fails with this error. 0: never. */
void fake_fail_launch(uint32_t n, int code);

typedef struct fake_counts {
  /* there now */
  uint32_t blocks, pinned, streams, events, graphs;
  size_t bytes;
  /* since the last call */
  uint32_t waits, graph_launches, op_launches, copies_in, copies_out;
  uint32_t came_back; /* copies from the card that were done, those of graphs included */
  uint32_t whole;     /* of op_launches, recorded or done at once: those of whole programs */
} fake_counts;
fake_counts fake_take_counts(void);

#endif
