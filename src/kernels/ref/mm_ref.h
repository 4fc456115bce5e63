/* ref/mm_ref.h - scalar reading of packed weights, shared by the reference matmul and unpack_row. Private. */
#ifndef DF_KERNELS_MM_REF_H
#define DF_KERNELS_MM_REF_H

#include "kernels/kernels.h"

/* One lane's 32-block: unsigned codes in k order and the floats that go with them. */
typedef struct df_ref_block {
  uint8_t code[DF_QBLOCK];
  int32_t offset;      /* value = scale * (code - offset) + min */
  float scale[2];      /* of k 0..15 and 16..31 */
  float min;           /* 0 when the form has none */
  bool has_min, split; /* split: the two halves are scaled one after the other */
} df_ref_block;

/* Reads 32-block kb of lane `lane` of a quantised strip. */
void df_ref_block_read(const df_weights *w, uint32_t strip, uint32_t kb, uint32_t lane, df_ref_block *out);

/* Element (lane, i) of a strip of a float form; of F8 without the scale. */
float df_ref_float(const df_weights *w, uint32_t strip, uint32_t i, uint32_t lane);

/* Scale of 64-block `block` of lane `lane` of a strip of F8. */
float df_ref_f8_scale(const df_weights *w, uint32_t strip, uint32_t block, uint32_t lane);

/* df_kernels.unpack_row. */
void df_unpack_row__ref(const df_weights *w, uint32_t r, float *out);

#endif
