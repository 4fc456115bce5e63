/* base/size.h - checked size arithmetic. Every product or sum of numbers that came from a file or a
 * client goes through these; they return false on overflow and leave *out alone. */
#ifndef DF_BASE_SIZE_H
#define DF_BASE_SIZE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

static inline bool df_mul_size(size_t a, size_t b, size_t *out) {
  size_t r;
  if (__builtin_mul_overflow(a, b, &r)) return false;
  *out = r;
  return true;
}

static inline bool df_add_size(size_t a, size_t b, size_t *out) {
  size_t r;
  if (__builtin_add_overflow(a, b, &r)) return false;
  *out = r;
  return true;
}

/* Rounds up to a power-of-two multiple; the caller keeps v far from SIZE_MAX. */
static inline size_t df_round_up(size_t v, size_t align) { return (v + align - 1) & ~(align - 1); }

#define DF_COUNT_OF(a) (sizeof(a) / sizeof((a)[0]))
#define DF_MIN(a, b) ((a) < (b) ? (a) : (b))
#define DF_MAX(a, b) ((a) > (b) ? (a) : (b))

#endif
