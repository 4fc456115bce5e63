/*
 * device/cuda/cuda_device.h - a CUDA card as a device. Builds without CUDA have these calls too: they say so.
 */
#ifndef DF_DEVICE_CUDA_DEVICE_H
#define DF_DEVICE_CUDA_DEVICE_H

#include "device/device.h"

/* Is there a card of this number that this build's kernels run on? UNSUPPORTED, in one line with the remedy: a build
 * without CUDA, no driver, a driver that is too old, no card, no such card, no kernels for its compute capability. */
df_status df_cuda_check(uint32_t index, df_error *err) DF_CHECK;

/* Opens card `index`. Errors as df_cuda_check, MEMORY. */
df_status df_cuda_device_create(uint32_t index, df_device **out, df_error *err) DF_CHECK;

/* The architectures that this build has kernels for ("sm_90a compute_90"), NULL for builds without CUDA; static. */
const char *df_cuda_built_for(void);

/* The stream that programs run on (a cudaStream_t), for leaves with work of their own beside them; NULL for other
 * devices and in builds without CUDA. */
void *df_cuda_device_stream(const df_device *d);

#endif
