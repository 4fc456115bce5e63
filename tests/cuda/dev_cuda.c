/* dev_cuda.c - device memory of a real card. */
#include <cuda_runtime_api.h>

#include "cuda/cuda_rig.h"

static cudaStream_t stream;

int dev_open(const char **why) {
  int n = 0;
  const cudaError_t e = cudaGetDeviceCount(&n);
  if (e != cudaSuccess || n == 0) {
    *why = e == cudaSuccess ? "none found" : cudaGetErrorString(e);
    return 1;
  }
  const cudaError_t s = cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
  *why = cudaGetErrorString(s);
  return s;
}

int dev_alloc(size_t bytes, void **out) { return cudaMalloc(out, bytes); }
void dev_free(void *p) { (void)cudaFree(p); }
int dev_put(void *device, const void *host, size_t bytes) {
  const int e = cudaMemcpyAsync(device, host, bytes, cudaMemcpyHostToDevice, stream);
  return e ? e : (int)cudaStreamSynchronize(stream);
}
int dev_get(void *host, const void *device, size_t bytes) {
  const int e = cudaMemcpyAsync(host, device, bytes, cudaMemcpyDeviceToHost, stream);
  return e ? e : (int)cudaStreamSynchronize(stream);
}
int dev_sync(void) { return cudaStreamSynchronize(stream); }
void *dev_stream(void) { return stream; }

void test_device(rig *r) { (void)r; } /* the card is what it is */
