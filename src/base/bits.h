/*
 * base/bits.h - a float and the 32 bits it is made of (IEEE 754 binary32), NaN payloads included.
 *
 * Threads: pure functions.
 */
#ifndef DF_BASE_BITS_H
#define DF_BASE_BITS_H

#include <stdint.h>
#include <string.h>

static inline uint32_t df_bits_of_float(float f) {
  uint32_t u;
  memcpy(&u, &f, sizeof u);
  return u;
}

static inline float df_float_of_bits(uint32_t u) {
  float f;
  memcpy(&f, &u, sizeof f);
  return f;
}

#endif
