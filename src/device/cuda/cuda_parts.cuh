/*
 * device/cuda/cuda_parts.cuh - the matrices of a product whose strips lie as on the host, as kernels take them. Private
 * to device/cuda.
 */
#ifndef DF_DEVICE_CUDA_PARTS_CUH
#define DF_DEVICE_CUDA_PARTS_CUH

#include "device/cuda/cuda_math.cuh"

typedef struct cuda_part {
  const uint8_t *w;
  size_t strip_bytes;
  const float *bias;
  float *y;
  size_t ld;
  uint32_t n, strip0; /* outputs; first strip in the list of all parts */
  df_pack pack;
} cuda_part;

/* Number of all strips. */
static inline uint32_t cuda_parts(const df_op_linear *op, cuda_part *out) {
  uint32_t strips = 0;
  for (uint32_t i = 0; i < op->n_parts; i++) {
    const df_linear_part *p = &op->part[i];
    out[i] = {p->w->data, p->w->strip_bytes, p->bias, p->y, p->ld, p->w->n, strips, p->w->pack};
    strips += df_strips(p->w->n);
  }
  return strips;
}

/* Of strip `strip` of the list. */
DF_DEV const cuda_part &cuda_part_of(const cuda_part *part, uint32_t n, uint32_t strip) {
  uint32_t i = 0;
  while (i + 1 < n && strip >= part[i + 1].strip0) i++;
  return part[i];
}

#endif
