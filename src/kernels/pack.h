/* kernels/pack.h - the packing functions behind df_pack_strips. Private to src/kernels. */
#ifndef DF_KERNELS_PACK_H
#define DF_KERNELS_PACK_H

#include "kernels/kernels.h"

/* One strip's sources: lane L's k-block number i starts at row[L] + i * step[L]. A missing output points at
 * zeros with step 0. */
typedef struct df_pack_src {
  const uint8_t *row[DF_LANES];
  size_t step[DF_LANES];
} df_pack_src;

static inline const uint8_t *df_pack_block(const df_pack_src *s, uint32_t lane, size_t i) {
  return s->row[lane] + i * s->step[lane];
}

/* Pack one strip of k inputs to dst. */
void df_pack_strip_q4_k(const df_pack_src *src, uint32_t k, uint8_t *dst);
void df_pack_strip_q5_k(const df_pack_src *src, uint32_t k, uint8_t *dst);
void df_pack_strip_q6_k(const df_pack_src *src, uint32_t k, uint8_t *dst);

#endif
