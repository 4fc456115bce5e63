/*
 * device/cuda/cuda_archs.h - do the architectures that a build holds fit a card?
 */
#ifndef DF_DEVICE_CUDA_ARCHS_H
#define DF_DEVICE_CUDA_ARCHS_H

#include <stdbool.h>
#include <stdint.h>

/* archs: "sm_80 sm_90a compute_90". Machine code of sm_XY runs on cards of the same X and at least Y, the driver makes
 * code from compute_XY for every card of at least X.Y; with a letter behind (sm_90a) it runs on exactly that one. */
bool df_cuda_archs_fit(const char *archs, uint32_t major, uint32_t minor);

#endif
