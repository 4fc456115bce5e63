#define _GNU_SOURCE
#include "support/kernel_data.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

const df_dtype test_dtypes[TEST_DTYPES] = {DF_F32,  DF_F16,  DF_BF16, DF_Q4_0, DF_Q4_1, DF_Q5_0,
                                           DF_Q5_1, DF_Q8_0, DF_Q4_K, DF_Q5_K, DF_Q6_K, DF_F8};

uint64_t test_random(uint64_t *state) {
  uint64_t x = *state;
  x ^= x << 13;
  x ^= x >> 7;
  x ^= x << 17;
  *state = x;
  return x * 0x2545F4914F6CDD1DULL;
}

float test_uniform(uint64_t *state) { return (float)((int32_t)(test_random(state) >> 32)) * 0x1p-31f; }

static uint16_t random_half(test_fill fill, uint64_t *state) {
  const uint64_t r = test_random(state) >> 20;
  const uint32_t sign = (uint32_t)(r & 1) << 15, man = (uint32_t)(r >> 1) & 0x3FF, e = (uint32_t)(r >> 11) % 7;
  switch (fill) {
    case TEST_FILL_SUBNORMAL: return (uint16_t)(sign | man);
    case TEST_FILL_EXTREME: return (uint16_t)(sign | (e & 1 ? 0x7BFF : 0x0001));
    default: return (uint16_t)(sign | (6 + e) << 10 | man); /* 2^-9 .. 2^-2 */
  }
}

/* Byte offsets of the halves of a block, ended by -1. */
static const int *half_offsets(df_dtype type) {
  static const int first[] = {0, -1}, two[] = {0, 2, -1}, last[] = {208, -1};
  switch (type) {
    case DF_Q4_1:
    case DF_Q5_1:
    case DF_Q4_K:
    case DF_Q5_K: return two;
    case DF_Q6_K: return last;
    default: return first;
  }
}

static void fill_plain(df_dtype type, test_fill fill, uint64_t *state, size_t n, uint8_t *out) {
  for (size_t i = 0; i < n; i++) {
    const uint16_t h = random_half(fill, state);
    float f = fill == TEST_FILL_RANDOM ? test_uniform(state) : df_f16_to_f32(h);
    if (fill == TEST_FILL_EXTREME) f *= 0x1p40f;
    if (fill == TEST_FILL_SPARSE && i % 7) f = 0;
    uint32_t bits;
    memcpy(&bits, &f, 4);
    const uint16_t half = fill == TEST_FILL_SPARSE ? (uint16_t)(i % 7 ? 0 : h) : h, top = (uint16_t)(bits >> 16);
    if (type == DF_F32) memcpy(out + 4 * i, &bits, 4);
    if (type == DF_F16) memcpy(out + 2 * i, &half, 2);
    if (type == DF_BF16) memcpy(out + 2 * i, &top, 2);
  }
}

/* Any code but NaN, scales as the file's: ordinary, tiny, large, none. */
static void fill_f8(test_fill fill, uint64_t *state, size_t blocks, uint8_t *out) {
  for (size_t i = 0; i < blocks; i++, out += 4 + DF_F8_BLOCK) {
    const bool zero = fill == TEST_FILL_SPARSE && test_random(state) >> 61;
    float scale = zero ? 0 : (test_uniform(state) + 1.5f) * 0.01f;
    if (fill == TEST_FILL_SUBNORMAL) scale *= 0x1p-40f;
    if (fill == TEST_FILL_EXTREME) scale *= 0x1p40f;
    memcpy(out, &scale, 4);
    for (uint32_t e = 0; e < DF_F8_BLOCK; e++) {
      uint8_t c = (uint8_t)(test_random(state) >> 40);
      if (fill == TEST_FILL_EXTREME) c = (uint8_t)((c & 0x80) | 0x7E);
      if (fill == TEST_FILL_SUBNORMAL) c &= 0x87;
      out[4 + e] = zero ? 0 : (c & 0x7F) == 0x7F ? (uint8_t)(c ^ 1) : c;
    }
  }
}

void test_fill_blocks(df_dtype type, test_fill fill, uint64_t *state, size_t n, uint8_t *out) {
  uint32_t values = 1, bytes = 1;
  (void)df_dtype_block((int)type, &values, &bytes);
  if (values == 1) {
    fill_plain(type, fill, state, n, out);
    return;
  }
  if (type == DF_F8) {
    fill_f8(fill, state, n / values, out);
    return;
  }
  for (size_t i = 0; i < n / values; i++, out += bytes) {
    const bool zero = fill == TEST_FILL_SPARSE && test_random(state) >> 61;
    const uint64_t end = test_random(state) >> 40;
    for (uint32_t b = 0; b < bytes; b++) {
      const uint8_t r = (uint8_t)(test_random(state) >> 40);
      /* ends: all ones, all zeros, and -128 / 127 for the signed ones */
      out[b] = fill == TEST_FILL_EXTREME ? (uint8_t)((const uint8_t[]){0xFF, 0x00, 0x80, 0x7F}[end & 3]) : r;
    }
    for (const int *o = half_offsets(type); *o >= 0; o++) {
      const uint16_t h = random_half(fill, state);
      memcpy(out + *o, &h, 2);
    }
    if (zero) memset(out, 0, bytes);
  }
}

test_guard test_guard_alloc(size_t bytes, bool at_end) {
  const size_t page = (size_t)sysconf(_SC_PAGESIZE), body = (bytes + page - 1) / page * page;
  test_guard g = {.map_bytes = body + 2 * page};
  g.map = mmap(NULL, g.map_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (g.map == MAP_FAILED || mprotect((uint8_t *)g.map + page, body, PROT_READ | PROT_WRITE) != 0) abort();
  memset((uint8_t *)g.map + page, 0xA5, body);
  g.p = (uint8_t *)g.map + page + (at_end ? body - bytes : 0);
  return g;
}

void test_guard_free(test_guard *g) {
  if (g->map) (void)munmap(g->map, g->map_bytes);
  g->map = NULL;
}
