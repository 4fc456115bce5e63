/*
 * device/cuda/cuda_head.cuh - one head's vector in shared memory, worked on by one warp: head norm, rotation, K/V
 * store.
 */
#ifndef DF_DEVICE_CUDA_HEAD_CUH
#define DF_DEVICE_CUDA_HEAD_CUH

#include "device/cuda/cuda_math.cuh"

/* e floats from global memory; the caller's next step synchronises the warp. */
DF_DEV void head_load(const float *from, uint32_t e, uint32_t lane, float *x) {
  enum { MOST = 8 }; /* 256 / 32, all on their way before the first is stored */
  float v[MOST];
#pragma unroll
  for (uint32_t i = 0; i < MOST; i++)
    if (lane + 32 * i < e) v[i] = port_load(from + lane + 32 * i);
#pragma unroll
  for (uint32_t i = 0; i < MOST; i++)
    if (lane + 32 * i < e) x[lane + 32 * i] = v[i];
}

/* rmsnorm by w (NULL: none), then rotation, in place; all lanes see the result. */
DF_DEV void head_rotate(float *x, const float *w, float eps, const float *cos, const float *sin, uint32_t e,
                        uint32_t lane) {
  port_warp_sync();
  if (w) {
    const float f = math_rms_factor(x, e, eps, lane % 16);
    port_warp_sync();
    for (uint32_t i = lane; i < e; i += 32) x[i] = (x[i] * f) * w[i];
    port_warp_sync();
  }
  const uint32_t half = e / 2;
  for (uint32_t i = lane; i < half; i += 32) {
    const float a = x[i], b = x[i + half], c = cos[i], s = sin[i];
    x[i] = fmaf(a, c, -(b * s));
    x[i + half] = fmaf(b, c, a * s);
  }
  port_warp_sync();
}

/* Element `at` of a K or V store. */
DF_DEV void head_store(uint8_t *kv, df_kv_type type, size_t at, float v) {
  if (type == DF_KV_F32)
    ((float *)kv)[at] = v;
  else
    ((uint16_t *)kv)[at] = math_to_f16(v);
}

#endif
