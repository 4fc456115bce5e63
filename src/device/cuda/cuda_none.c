/* What a build without CUDA says when it is asked for a card. */
#include "device/cuda/cuda_device.h"

#ifndef DF_HAVE_CUDA
df_status df_cuda_check(uint32_t index, df_error *err) {
  (void)index;
  (void)DF_FAIL(err, DF_ERR_UNSUPPORTED, "this build has no CUDA code");
  df_error_hint(err, "build it where nvcc is found (cmake -DDF_CUDA=ON says what is missing), or use --device cpu");
  return DF_ERR_UNSUPPORTED;
}

df_status df_cuda_device_create(uint32_t index, df_device **out, df_error *err) {
  (void)out;
  return df_cuda_check(index, err);
}

const char *df_cuda_built_for(void) { return NULL; }

void *df_cuda_device_stream(const df_device *d) {
  (void)d;
  return NULL;
}
#else
typedef int df_cuda_is_built_in;
#endif
