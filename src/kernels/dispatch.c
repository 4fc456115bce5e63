/* dispatch.c - builds the kernel tables, one per tier, on first use. */
#include <pthread.h>

#include "kernels/tables.h"

static df_kernels tables[DF_TIER_AVX512 + 1];
static pthread_once_t tables_once = PTHREAD_ONCE_INIT;

static void tables_build(void) {
  df_kernels k = {.tier = DF_TIER_REF};
  df_kernels_mm_init__ref(&k);
  df_kernels_vec_init__ref(&k);
  tables[DF_TIER_REF] = k;
#if defined(__x86_64__)
  k.tier = DF_TIER_AVX2;
  df_kernels_mm_init__avx2(&k);
  df_kernels_vec_init__avx2(&k);
  tables[DF_TIER_AVX2] = k;
  k.tier = DF_TIER_AVX512;
  df_kernels_mm_init__avx512(&k);
  df_kernels_vec_init__avx512(&k);
  tables[DF_TIER_AVX512] = k;
#endif
}

const df_kernels *df_kernels_get(df_cpu_tier tier) {
  if ((int)tier < DF_TIER_REF || tier > df_cpu_best_tier()) return NULL;
  pthread_once(&tables_once, tables_build);
  return &tables[tier];
}
