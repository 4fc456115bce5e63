/*
 * tests/kernels/checkkern.h - what kernel tests share: buffers between guard pages, seeded and adversarial fills,
 * bit comparison with a report that a person can read.
 *
 * Threads: one. Failures end the running cmocka test (fail_msg), so include cmocka's headers first.
 */
#ifndef DF_TESTS_CHECKKERN_H
#define DF_TESTS_CHECKKERN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kernels/kernels.h"

/* ---- guarded memory ---- */

typedef enum ck_side {
  CK_END,  /* the last byte touches the guard page: overruns fault (start is as misaligned as the size) */
  CK_START /* the first byte touches the guard page: underruns fault */
} ck_side;

typedef struct ck_buf {
  void *data;
  size_t bytes;
  uint8_t *map; /* private: whole mapping, guard pages included */
  size_t map_bytes;
} ck_buf;

/* bytes (0 is fine) of memory with an unreadable page on both sides. With CK_END and align > 1 the start is rounded
 * down to align; the slack and the rest of the page hold a canary that ck_free checks. */
ck_buf ck_alloc(size_t bytes, size_t align, ck_side side);
/* Fails the test when a byte of the canary changed. */
void ck_free(ck_buf *b);
/* Makes the contents read-only: a kernel that writes an input faults. */
void ck_read_only(ck_buf *b);

/* ---- fills ---- */

typedef struct ck_rng {
  uint64_t state;
} ck_rng;

uint64_t ck_next(ck_rng *r);
/* 0 .. n-1 */
uint32_t ck_below(ck_rng *r, uint32_t n);
/* Uniform in [-1, 1). */
float ck_unit(ck_rng *r);

typedef enum ck_fill {
  CK_UNIFORM,   /* [-1, 1) */
  CK_WIDE,      /* both signs, magnitudes 2^-40 .. 2^40 */
  CK_ZERO,      /* +0 */
  CK_NEG_ZERO,  /* -0 */
  CK_SUBNORMAL, /* both signs */
  CK_HUGE,      /* +-1e30 */
  CK_TINY,      /* +-1e-30 */
  CK_SPIKE,     /* tiny values and one 1e4 */
  CK_MIXED,     /* every value from another class above */
  CK_FILLS
} ck_fill;

const char *ck_fill_name(ck_fill f);
/* Never NaN or infinite. */
void ck_fill_f32(ck_rng *r, ck_fill f, float *x, size_t n);
/* The same classes rounded to half; huge ones stay finite (clamped to +-60000). */
void ck_fill_f16(ck_rng *r, ck_fill f, uint16_t *x, size_t n);

/* ---- comparison ---- */

/* n floats of equal bits, any NaN equal to any NaN. what: printf text that names the case. */
void ck_same_f32(const float *want, const float *got, size_t n, const char *what, ...)
    __attribute__((format(printf, 4, 5)));
/* bytes equal. */
void ck_same_bytes(const void *want, const void *got, size_t bytes, const char *what, ...)
    __attribute__((format(printf, 4, 5)));
/* Activation blocks, field by field in the report; NaN scales equal each other. */
void ck_same_actq(const df_actq *want, const df_actq *got, size_t n, const char *what, ...)
    __attribute__((format(printf, 4, 5)));

/* Tiers of this machine above ref: fills out[DF_TIER_COUNT], returns their number. */
unsigned ck_tiers(const df_kernels **out);

#endif
