/*
 * device/cuda/third/fa2_run.cuh - FlashInfer's types as they are used here, and the launcher that each combination of
 * head width and mask mode has. Private to device/cuda/third; includes the package's headers.
 */
#ifndef DF_DEVICE_CUDA_FA2_RUN_CUH
#define DF_DEVICE_CUDA_FA2_RUN_CUH

#include <flashinfer/attention/default_prefill_params.cuh>
#include <flashinfer/attention/mask.cuh>
#include <flashinfer/attention/scheduler.cuh>

typedef flashinfer::BatchPrefillPagedParams<half, half, half, int32_t> fa2_params;

/* Runs tiles of `tile` packed queries (16, 64 or 128, as planned); tmp_v, tmp_s: parts of a split pass, NULL of one
 * that is not. May throw. */
typedef cudaError_t (*fa2_run_fn)(const fa2_params &p, uint32_t tile, half *tmp_v, float *tmp_s, cudaStream_t stream);

/* fa2_run_HEAD_MASK; masks by the package's number: 0 none, 1 causal, 2 custom. */
cudaError_t fa2_run_64_0(const fa2_params &p, uint32_t tile, half *tmp_v, float *tmp_s, cudaStream_t stream);
cudaError_t fa2_run_64_1(const fa2_params &p, uint32_t tile, half *tmp_v, float *tmp_s, cudaStream_t stream);
cudaError_t fa2_run_64_2(const fa2_params &p, uint32_t tile, half *tmp_v, float *tmp_s, cudaStream_t stream);
cudaError_t fa2_run_128_0(const fa2_params &p, uint32_t tile, half *tmp_v, float *tmp_s, cudaStream_t stream);
cudaError_t fa2_run_128_1(const fa2_params &p, uint32_t tile, half *tmp_v, float *tmp_s, cudaStream_t stream);
cudaError_t fa2_run_128_2(const fa2_params &p, uint32_t tile, half *tmp_v, float *tmp_s, cudaStream_t stream);

#endif
