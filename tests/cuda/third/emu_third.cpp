/* emu_third.cpp - third_rows.cu on the host, with C names. */
#include "device/cuda/third/third_rows.cu"

extern "C" {
int emu_third_q(const df_cuda_env *env, const df_op_extern *op, uint16_t *q);
int emu_third_out(const df_cuda_env *env, const df_op_extern *op, const uint16_t *o);
int emu_third_mask(const df_cuda_env *env, const df_op_extern *op, const int32_t *mask_start, uint8_t *bits);
int emu_third_lengths(const df_cuda_env *env, const df_op_extern *op, uint32_t *len, uint32_t *first, uint32_t *mask,
                      uint32_t words);

int emu_third_q(const df_cuda_env *env, const df_op_extern *op, uint16_t *q) { return third_q(env, op, q); }
int emu_third_out(const df_cuda_env *env, const df_op_extern *op, const uint16_t *o) { return third_out(env, op, o); }
int emu_third_mask(const df_cuda_env *env, const df_op_extern *op, const int32_t *mask_start, uint8_t *bits) {
  return third_mask(env, op, mask_start, bits);
}
int emu_third_lengths(const df_cuda_env *env, const df_op_extern *op, uint32_t *len, uint32_t *first, uint32_t *mask,
                      uint32_t words) {
  return third_lengths_of(env, op, third_lengths{len, first, mask, words});
}
}
