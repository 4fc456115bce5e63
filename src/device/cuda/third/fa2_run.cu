/*
 * fa2_run.cu - one combination of head width and mask mode of FlashInfer's paged prefill kernel, with all its tiles.
 * Compiled once per combination: DF_FA2_HEAD 64 or 128, DF_FA2_MASK 0, 1 or 2. The window is always compiled in; it
 * costs a comparison where a tile touches its edge.
 */
#include <flashinfer/attention/prefill.cuh>
#include <flashinfer/attention/variants.cuh>

#include "device/cuda/third/fa2_run.cuh"

#define FA2_NAME2(head, mask) fa2_run_##head##_##mask
#define FA2_NAME(head, mask) FA2_NAME2(head, mask)

static const flashinfer::MaskMode k_mask = (flashinfer::MaskMode)DF_FA2_MASK;
typedef flashinfer::DefaultAttention<DF_FA2_MASK == 2, true, false, false> fa2_variant;

template <uint32_t TILE>
static cudaError_t run(const fa2_params &p, half *tmp_v, float *tmp_s, cudaStream_t stream) {
  return flashinfer::BatchPrefillWithPagedKVCacheDispatched<
      TILE, DF_FA2_HEAD, DF_FA2_HEAD, flashinfer::PosEncodingMode::kNone, false, k_mask, fa2_variant, fa2_params>(
      p, tmp_v, tmp_s, false, stream);
}

cudaError_t FA2_NAME(DF_FA2_HEAD, DF_FA2_MASK)(const fa2_params &p, uint32_t tile, half *tmp_v, float *tmp_s,
                                               cudaStream_t stream) {
  switch (tile) {
    case 16: return run<16>(p, tmp_v, tmp_s, stream);
    case 64: return run<64>(p, tmp_v, tmp_s, stream);
    case 128: return run<128>(p, tmp_v, tmp_s, stream);
    default: return cudaErrorInvalidValue;
  }
}
