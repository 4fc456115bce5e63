/*
 * third_rows.cu - rows to f16 and back, masks to bits, lengths. One block works on one row or one sequence; live counts
 * are read on the device.
 */
#include "device/cuda/third/third_rows.cuh"

#include "device/cuda/cuda_math.cuh"
#include "device/cuda/cuda_start.cuh"

enum { THREADS = 128, MASK_BLOCKS = 8 };

/* ---- queries ---- */

__global__ void __launch_bounds__(THREADS) third_q_kernel(const df_op_attn a, uint16_t *to) {
  const uint32_t r = blockIdx.x, k = a.n_heads * a.head_dim;
  port_launch_next();
  port_wait_previous();
  if (r >= a.batch->n_rows) return;
  const float *from = a.q + (size_t)r * a.q_ld;
  for (uint32_t i = 4 * threadIdx.x; i < k; i += 4 * THREADS) {
    const float4 v = port_load4(from + i);
    *(uint2 *)(to + (size_t)r * k + i) = make_uint2(port_pack_f16(v.x, v.y), port_pack_f16(v.z, v.w));
  }
}

int third_q(const df_cuda_env *env, const df_op_extern *op, uint16_t *q) {
  return start_kernel(env, third_q_kernel, start_shape{dim3(env->max_rows), THREADS, 0, 0}, op->attn, q);
}

/* ---- results ---- */

__global__ void __launch_bounds__(THREADS) third_out_kernel(const df_op_attn a, const uint16_t *from) {
  const uint32_t r = blockIdx.x, k = a.out.k, quads = k / 4, all = (quads + 31) & ~31u;
  port_launch_next();
  port_wait_previous();
  const uint32_t n = a.batch->n_rows;
  if (r >= n) return;
  uint32_t stride = 0;
  df_actq *q = a.out.q ? math_act_row(a.out.q, k, r, n, &stride) : NULL;
  for (uint32_t i = threadIdx.x; i < all; i += THREADS) {
    const uint16_t *x = from + (size_t)r * k + 4 * math_min(i, quads - 1);
    const uint32_t lo = port_load_u32(x), hi = port_load_u32(x + 2);
    const float4 v = make_float4(port_f16_value((uint16_t)lo), port_f16_value((uint16_t)(lo >> 16)),
                                 port_f16_value((uint16_t)hi), port_f16_value((uint16_t)(hi >> 16)));
    if (a.out.f && i < quads) *(float4 *)(a.out.f + (size_t)r * k + 4 * i) = v;
    if (q) math_quantize(v, i % 8, q + (size_t)(i / 8) * stride, i < quads);
  }
}

int third_out(const df_cuda_env *env, const df_op_extern *op, const uint16_t *o) {
  return start_kernel(env, third_out_kernel, start_shape{dim3(env->max_rows), THREADS, 0, 0}, op->attn, o);
}

/* ---- masks ---- */

__global__ void __launch_bounds__(THREADS)
    third_mask_kernel(const df_op_attn a, const df_mask_buffer mask, const int32_t *mask_start, uint8_t *bits) {
  const uint32_t s = blockIdx.x;
  port_launch_next();
  port_wait_previous();
  const df_batch *b = a.batch;
  if (s >= b->n_seqs) return;
  const df_mask_bits m = {s < b->n_live ? mask.bytes + mask.start[a.seq0 + s] : NULL, a.mask_layout,
                          b->q_start[s + 1] - b->q_start[s], df_seq_len(b, s), a.causal};
  const size_t n = df_mask_bits_bytes(m.rows, m.len);
  for (size_t i = (size_t)blockIdx.y * THREADS + threadIdx.x; i < n; i += MASK_BLOCKS * THREADS)
    bits[(size_t)mask_start[s] + i] = df_mask_bits_byte(&m, i);
}

int third_mask(const df_cuda_env *env, const df_op_extern *op, const int32_t *mask_start, uint8_t *bits) {
  return start_kernel(env, third_mask_kernel, start_shape{dim3(env->max_seqs, MASK_BLOCKS), THREADS, 0, 0}, op->attn,
                      *op->attn.mask, mask_start, bits);
}

/* ---- lengths ---- */

__global__ void __launch_bounds__(THREADS)
    third_lengths_kernel(const df_op_attn a, const third_lengths to, uint32_t max_seqs) {
  port_launch_next();
  port_wait_previous();
  const df_batch *b = a.batch;
  const uint32_t live = b->n_seqs, end = b->q_start[live];
  if (threadIdx.x == 0) to.first[max_seqs] = end;
  for (uint32_t s = threadIdx.x; s < max_seqs; s += THREADS) {
    const uint32_t q0 = s < live ? b->q_start[s] : end, rows = s < live ? b->q_start[s + 1] - q0 : 0;
    to.first[s] = q0;
    to.len[s] = s < live ? math_max(math_max(b->kv_len[s], rows), 1) : 1;
    for (uint32_t r = 0; r < rows; r++) {
      const uint32_t sees = a.causal ? r + 1 : rows; /* rows 0..sees-1 */
      for (uint32_t w = 0; w < to.words; w++)
        to.mask[(size_t)(q0 + r) * to.words + w] = sees >= 32 * (w + 1) ? 0xffffffffu
                                                   : sees <= 32 * w     ? 0u
                                                                        : (1u << (sees - 32 * w)) - 1;
    }
  }
}

int third_lengths_of(const df_cuda_env *env, const df_op_extern *op, third_lengths out) {
  return start_kernel(env, third_lengths_kernel, start_shape{dim3(1), THREADS, 0, 0}, op->attn, out, env->max_seqs);
}
