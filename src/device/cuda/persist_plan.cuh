/*
 * device/cuda/persist_plan.cuh - between the plan of a whole program (cuda_persist_plan.cu) and its kernel. Private to
 * device/cuda.
 */
#ifndef DF_DEVICE_CUDA_PERSIST_PLAN_CUH
#define DF_DEVICE_CUDA_PERSIST_PLAN_CUH

#include "device/cuda/persist_cluster.cuh"
#include "device/cuda/persist_product.cuh"

int df_cuda_persist_start(const df_cuda_env *env, const persist_args &p, uint32_t blocks, const df_cuda_list *l);
int df_cuda_persist_quant_start(const df_cuda_env *env, const persist_args &p, uint32_t blocks, size_t shared);

#endif
