/* Builds without the package flashinfer-python. */
#include "device/cuda/third/third_attn.h"

#ifndef DF_HAVE_FLASHINFER
const df_fa2_api *df_fa2_get(void) { return NULL; }
const df_xqa_api *df_xqa_get(void) { return NULL; }
const char *df_third_version(void) { return ""; }
#else
typedef int df_third_is_built_in;
#endif
