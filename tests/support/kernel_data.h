/* support/kernel_data.h - seeded random tensors in file form, quantised activations and guarded memory. */
#ifndef DF_TEST_KERNEL_DATA_H
#define DF_TEST_KERNEL_DATA_H

#include <stddef.h>
#include <stdint.h>

#include "kernels/kernels.h"

/* xorshift generator; the state must not be 0. */
uint64_t test_random(uint64_t *state);
/* Uniform in [-1, 1). */
float test_uniform(uint64_t *state);

enum { TEST_DTYPES = 12 };
extern const df_dtype test_dtypes[TEST_DTYPES];

typedef enum test_fill {
  TEST_FILL_RANDOM,    /* any codes, scales of either sign and ordinary size */
  TEST_FILL_EXTREME,   /* all codes and sub-scales at one end or the other, large scales */
  TEST_FILL_SUBNORMAL, /* scales and mins are subnormal halves */
  TEST_FILL_SPARSE,    /* most blocks zero */
  TEST_FILLS
} test_fill;

/* Fills n values (a multiple of the block) with valid blocks; every scale is finite. */
void test_fill_blocks(df_dtype type, test_fill fill, uint64_t *state, size_t n, uint8_t *out);

/* Memory whose end (or start) touches an inaccessible page. `bytes` from p are usable, everything next to them on
 * that side faults. Contents 0xA5. Release with test_guard_free. */
typedef struct test_guard {
  uint8_t *p;
  void *map;
  size_t map_bytes;
} test_guard;
test_guard test_guard_alloc(size_t bytes, bool at_end);
void test_guard_free(test_guard *g);

#endif
