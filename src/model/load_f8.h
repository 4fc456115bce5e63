/*
 * model/load_f8.h - F8_E4M3 matrices of safetensors files: their codes and scales as rows of DF_F8 blocks, which
 * packing and decoding know. Private to the loader.
 */
#ifndef DF_MODEL_LOAD_F8_H
#define DF_MODEL_LOAD_F8_H

#include "format/weights_source.h"

/* Every scale is a finite number and not negative, no code is NaN: DF_ERR_FORMAT names the tensor. Reads it all. */
df_status df_f8_check(const df_tensor_view *t, df_error *err) DF_CHECK;
/* Row `row` of t (k a multiple of 64) as k / 64 blocks. */
void df_f8_row(const df_tensor_view *t, uint64_t row, uint8_t *blocks);

#endif
