/* cuda_card.cu - the current card: what it is, and whether the kernels run on it. */
#include <string.h>

#include "device/cuda/cuda_ops.cuh"
#include "device/cuda/cuda_port.cuh"

#ifndef DF_CUDA_BUILT_ARCHS
#define DF_CUDA_BUILT_ARCHS "unknown"
#endif

extern "C" const char *df_cuda_built_archs(void) { return DF_CUDA_BUILT_ARCHS; }

#ifdef DF_CUDA_EMULATED

extern "C" const char *df_cuda_error_name(int code) { return code ? "emulated" : "none"; }
extern "C" const char *df_cuda_error_text(int code) { return code ? "emulated error" : "no error"; }
int df_cuda_prepare(const void *, size_t) { return 0; }

extern "C" int df_cuda_kernels_init(df_cuda_card *card) {
  memset(card, 0, sizeof *card);
  strcpy(card->name, "emulated"); /* checksrc: allow strcpy */
  card->major = 9;
  card->n_sm = 4;
  card->clusters[0] = 4;
  card->clusters[1] = 2;
  card->clusters[2] = 1;
  card->shared_bytes = 227 << 10;
  card->l2_bytes = 1 << 20;
  return 0;
}

#else

extern "C" const char *df_cuda_error_name(int code) { return cudaGetErrorName((cudaError_t)code); }
extern "C" const char *df_cuda_error_text(int code) { return cudaGetErrorString((cudaError_t)code); }

int df_cuda_prepare(const void *kernel, size_t shared_bytes) {
  cudaFuncAttributes at;
  cudaError_t e = cudaFuncGetAttributes(&at, kernel);
  if (e == cudaSuccess)
    e = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                             (int)(shared_bytes - at.sharedSizeBytes));
  if (e == cudaSuccess)
    e = cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout, cudaSharedmemCarveoutMaxShared);
  return (int)e;
}

static uint32_t attribute(cudaDeviceAttr a, int device) {
  int v = 0;
  return cudaDeviceGetAttribute(&v, a, device) == cudaSuccess ? (uint32_t)v : 0;
}

static int prepare_all(size_t shared_bytes) {
  int (*const init[])(size_t) = {df_cuda_rows_init,    df_cuda_mma_init,          df_cuda_gemm_init,
                                 df_cuda_quant_init,   df_cuda_f8_init,           df_cuda_attn_init,
                                 df_cuda_persist_init, df_cuda_persist_quant_init};
  for (int (*f)(size_t) : init) {
    const int e = f(shared_bytes);
    if (e) return e;
  }
  return 0;
}

#ifdef DF_FAULT_INJECTION
__global__ static void trap_kernel(void) { asm volatile("trap;"); }

extern "C" int df_cuda_trap(void *stream) {
  cudaLaunchConfig_t c = {};
  c.gridDim = c.blockDim = dim3(1);
  c.stream = (cudaStream_t)stream;
  return (int)cudaLaunchKernelEx(&c, trap_kernel);
}
#endif

extern "C" int df_cuda_kernels_init(df_cuda_card *card) {
  int device = 0;
  cudaError_t e = cudaGetDevice(&device);
  cudaDeviceProp prop;
  if (e == cudaSuccess) e = cudaGetDeviceProperties(&prop, device);
  if (e != cudaSuccess) return (int)e;
  memset(card, 0, sizeof *card);
  memcpy(card->name, prop.name, sizeof card->name - 1);
  card->major = (uint32_t)prop.major;
  card->minor = (uint32_t)prop.minor;
  card->n_sm = (uint32_t)prop.multiProcessorCount;
  card->shared_bytes = attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
  card->l2_bytes = attribute(cudaDevAttrL2CacheSize, device);
  card->memory_bytes = prop.totalGlobalMem;
  size_t total = 0;
  e = cudaMemGetInfo(&card->memory_free, &total);
  if (e != cudaSuccess) return (int)e;
  const int p = prepare_all(card->shared_bytes);
  return p ? p : df_cuda_mma_clusters(card);
}

#endif
