/*
 * bench/bench_identity.c - what one chain of fma per output costs matrix products (AVX2, one thread).
 *
 *   bench_identity
 *
 * The sums of an output run in k order, one fma after the other, so that they do not depend on what else is computed
 * (kernels/kernels.h). Here the same kernels run once as they are and once with four chains, every fourth block to one
 * of them, added at the end: the bits then depend on how a kernel splits k, as row-by-row kernels do. Both take turns,
 * best of many. Q4_1; weights in the cache and weights from memory.
 */
#include <stdio.h>
#include <stdlib.h>

#ifdef __AVX2__

#include "base/clock.h"
#include "base/mem.h"
#include "kernels/x86/mm8_avx2.h"
#include "kernels/x86/mm_sums_avx2.h"

#include "kernels/simd/mm_impl.h"
#include "kernels/x86/mm_tile_avx2.h"

enum { MOST_CHAINS = 4, K = 1536, SMALL = 512, LARGE = 8960, COPIES = 40 };

DF_INLINE void strip_in_chains(const uint8_t *p, const df_actq *x, uint32_t m, const int chains, const bool one,
                               float *out) {
  _Alignas(64) row_acc acc[MOST_CHAINS][DF_TILE_ROWS] = {{{0}}};
  for (size_t kb = 0; kb < K / DF_QBLOCK; kb++, x += m) {
    if (one)
      block_q4m(p + kb * DF_Q4M_BLOCK, x, 1, acc[kb % chains]);
    else
      tile_q4m(p + kb * DF_Q4M_BLOCK, x, m, acc[kb % chains]);
  }
  for (uint32_t c = 0; c < m; c++)
    for (int i = 0; i < DF_LANES; i++) {
      float v = acc[0][c][i];
      for (int a = 1; a < chains; a++) v += acc[a][c][i];
      out[c * DF_LANES + i] = v;
    }
}

static void product(const uint8_t *w, uint32_t n, size_t strip, const df_actq *x, uint32_t m, bool four, float *out) {
  for (uint32_t s = 0; s < n / DF_LANES; s++, w += strip) {
    if (m == 1 && four)
      strip_in_chains(w, x, 1, MOST_CHAINS, true, out);
    else if (m == 1)
      strip_in_chains(w, x, 1, 1, true, out);
    else if (four)
      strip_in_chains(w, x, m, MOST_CHAINS, false, out);
    else
      strip_in_chains(w, x, m, 1, false, out);
  }
}

/* Seconds of one turn through the copies, best of many, in both ways. */
static void measure(const uint8_t *w, uint32_t n, uint32_t copies, size_t strip, const df_actq *x, uint32_t m) {
  static _Alignas(64) float out[DF_TILE_ROWS * DF_LANES];
  const size_t bytes = n / DF_LANES * strip;
  double best[2] = {1e30, 1e30};
  for (int turn = 0; turn < (copies > 1 ? 8 : 2000); turn++)
    for (int four = 0; four < 2; four++) {
      const uint64_t t0 = df_now_ns();
      for (uint32_t i = 0; i < copies; i++) product(w + i * bytes, n, strip, x, m, four, out);
      const double t = (double)(df_now_ns() - t0);
      if (t < best[four]) best[four] = t;
    }
  const double work = (double)m * n * K * copies;
  printf("%-6s m=%-2u one chain %6.1f GMAC/s, four chains %6.1f: one costs %+.1f %%\n", copies > 1 ? "memory" : "cache",
         m, work / best[0], work / best[1], 100 * (best[0] / best[1] - 1));
}

int main(void) {
  size_t strip = 0;
  if (!df_kernels_get(DF_TIER_AVX2) || !df_pack_strip_bytes(DF_PACK_Q4M, K, &strip)) {
    fprintf(stderr, "bench_identity: this processor has no AVX2\n");
    return 1;
  }
  const size_t bytes = (size_t)COPIES * LARGE / DF_LANES * strip;
  uint8_t *w = df_pages_alloc_huge(bytes);
  df_actq *x = df_pages_alloc((size_t)DF_TILE_ROWS * (K / DF_QBLOCK) * sizeof *x);
  if (!w || !x) return 1;
  memset(w, 0x33, bytes); /* codes 3; halves of 0.225 */
  for (size_t i = 0; i < (size_t)DF_TILE_ROWS * (K / DF_QBLOCK); i++) {
    for (int j = 0; j < DF_QBLOCK; j++) x[i].q[j] = (int8_t)((int)(i * 7 + (size_t)j * 13) % 255 - 127);
    x[i].scale = x[i].scale_sum = 0.01f;
  }
  for (int large = 0; large < 2; large++)
    for (uint32_t m = 1; m <= DF_TILE_ROWS; m = m == 1 ? 8 : m * 2)
      measure(w, large ? LARGE : SMALL, large ? COPIES : 1, strip, x, m);
  df_pages_free(x, (size_t)DF_TILE_ROWS * (K / DF_QBLOCK) * sizeof *x);
  df_pages_free(w, bytes);
  return 0;
}

#else

int main(void) {
  puts("bench_identity: built for AVX2 only");
  return 0;
}

#endif
