/* fragment.c - weights into fragment order, on the host. */
#include "device/fragment.h"

#include <string.h>

#include "device/cuda/cuda_kernels.h"

bool df_cuda_needs_repack(df_pack pack) { return pack == DF_PACK_BF16 || pack == DF_PACK_F16; }

size_t df_cuda_fragment_strip_bytes(uint32_t k) { return (size_t)df_frag_tiles(k) * DF_FRAG_BYTES; }

size_t df_cuda_weights_bytes(const df_weights *w) {
  const size_t strip = df_cuda_needs_repack(w->pack) ? df_cuda_fragment_strip_bytes(w->k) : w->strip_bytes;
  return df_strips(w->n) * strip;
}

void df_cuda_repack(const df_weights *w, uint32_t s0, uint32_t s1, void *dst) {
  uint8_t *out = dst;
  for (uint32_t s = s0; s < s1; s++) {
    const uint8_t *strip = w->data + (size_t)s * w->strip_bytes;
    for (uint32_t t = 0; t < df_frag_tiles(w->k); t++, out += DF_FRAG_BYTES) {
      const uint32_t n_k = w->k - t * DF_FRAG_K < DF_FRAG_K ? w->k - t * DF_FRAG_K : DF_FRAG_K;
      if (n_k < DF_FRAG_K) memset(out, 0, DF_FRAG_BYTES);
      for (uint32_t kk = 0; kk < n_k; kk++) {
        const uint8_t *from = strip + ((size_t)t * DF_FRAG_K + kk) * DF_LANES * 2;
        for (uint32_t m = 0; m < DF_LANES; m++) memcpy(out + df_frag_at(m, kk), from + 2 * m, 2);
      }
    }
  }
}
