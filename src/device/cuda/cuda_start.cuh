/*
 * device/cuda/cuda_start.cuh - starting a kernel with everything a launch here can carry. Private to device/cuda.
 */
#ifndef DF_DEVICE_CUDA_START_CUH
#define DF_DEVICE_CUDA_START_CUH

#include "device/cuda/cuda_kernels.h"
#include "device/cuda/cuda_port.cuh"

struct start_shape {
  dim3 grid;
  uint32_t threads;
  size_t shared;
  uint32_t cluster;      /* blocks of a cluster along x; 0 and 1: none */
  bool together = false; /* all blocks run at once, or none; no overlap then */
};

#ifdef DF_CUDA_EMULATED

template <typename... P, typename... A>
static int start_kernel(const df_cuda_env *, void (*kernel)(P...), const start_shape &s, A... args) {
  const uint32_t cluster = s.cluster ? s.cluster : 1;
  emu_run(s.grid, s.threads, s.shared, s.together ? s.grid.x : cluster, cluster, [=] { kernel(args...); });
  return 0;
}

#else

template <typename... P, typename... A>
static int start_kernel(const df_cuda_env *env, void (*kernel)(P...), const start_shape &s, A... args) {
  cudaLaunchConfig_t c = {};
  cudaLaunchAttribute attr[3];
  c.gridDim = s.grid;
  c.blockDim = dim3(s.threads);
  c.dynamicSmemBytes = s.shared;
  c.stream = (cudaStream_t)env->stream;
  c.attrs = attr;
  if (s.together) {
    attr[c.numAttrs].id = cudaLaunchAttributeCooperative;
    attr[c.numAttrs++].val.cooperative = 1;
  } else if (env->overlap && env->card->major >= 9) {
    attr[c.numAttrs].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attr[c.numAttrs++].val.programmaticStreamSerializationAllowed = 1;
  }
  if (s.cluster > 1) {
    attr[c.numAttrs].id = cudaLaunchAttributeClusterDimension;
    attr[c.numAttrs].val.clusterDim.x = s.cluster;
    attr[c.numAttrs].val.clusterDim.y = attr[c.numAttrs].val.clusterDim.z = 1;
    c.numAttrs++;
  }
  return (int)cudaLaunchKernelEx(&c, kernel, args...);
}

#endif
#endif
