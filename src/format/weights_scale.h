/* format/weights_scale.h - finds the scales of an F8_E4M3 matrix in a safetensors file. Private to src/format. */
#ifndef DF_FORMAT_WEIGHTS_SCALE_H
#define DF_FORMAT_WEIGHTS_SCALE_H

#include "format/safetensors.h"
#include "format/weights_source.h"

/* ggml id of a safetensors type, DF_TENSOR_F8_E4M3, or -1: names whose ids exist; data of the others is only listed. */
int df_st_dtype_id(const char *st_dtype);

/* w: a matrix of F8_E4M3. path: of the file, for messages. DF_ERR_FORMAT when there are no scales or their shape does
 * not fit, DF_ERR_UNSUPPORTED when their type is no float. */
df_status df_scale_find(const df_st *st, const char *path, const df_st_tensor *w, df_scale_view *out,
                        df_error *err) DF_CHECK;

#endif
