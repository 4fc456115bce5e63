/*
 * device/mask_bits.h - a verify mask as bits: per sequence rows x length, row by row without padding between rows, bit
 * i in byte i / 8 from the lowest bit up. Causality goes into the bits, since kernels that read them ask nothing else.
 *
 * For C and for kernels. Threads: any.
 */
#ifndef DF_DEVICE_MASK_BITS_H
#define DF_DEVICE_MASK_BITS_H

#include <stdbool.h>

#include "device/batch.h"

#if defined(__CUDACC__)
#define DF_BOTH static __host__ __device__ inline
#else
#define DF_BOTH static inline
#endif

/* One sequence. bytes: its part of the mask (df_mask_buffer); NULL: everything may be seen. */
typedef struct df_mask_bits {
  const uint8_t *bytes;
  df_mask_layout layout;
  uint32_t rows, len;
  bool causal;
} df_mask_bits;

/* Length of sequence s, as paged.h has it. */
DF_BOTH uint32_t df_seq_len(const df_batch *b, uint32_t s) {
  const uint32_t rows = b->q_start[s + 1] - b->q_start[s], len = b->kv_len[s];
  return s >= b->n_live && len < rows ? rows : len;
}

DF_BOTH size_t df_mask_bits_bytes(uint32_t rows, uint32_t len) { return ((size_t)rows * len + 7) / 8; }

/* Whether row r may see position c. */
DF_BOTH bool df_mask_bit(const df_mask_bits *m, uint32_t r, uint32_t c) {
  if (m->causal && c + m->rows > m->len + r) return false;
  if (!m->bytes || m->layout == DF_MASK_NONE) return true;
  if (m->layout == DF_MASK_FULL) return m->bytes[(size_t)r * m->len + c] != 0;
  return c + m->rows < m->len || m->bytes[(size_t)r * m->rows + (c + m->rows - m->len)] != 0;
}

/* Byte i of the sequence's bits; those behind the last row are 0. */
DF_BOTH uint8_t df_mask_bits_byte(const df_mask_bits *m, size_t i) {
  const size_t n = (size_t)m->rows * m->len;
  uint32_t r = (uint32_t)(8 * i / m->len), c = (uint32_t)(8 * i - (size_t)r * m->len), byte = 0;
  for (uint32_t j = 0; j < 8 && 8 * i + j < n; j++) {
    if (df_mask_bit(m, r, c)) byte |= 1u << j;
    if (++c == m->len) {
      c = 0;
      r++;
    }
  }
  return (uint8_t)byte;
}

#endif
