/* dispatch.c - builds the kernel tables, one per tier, on first use. */
#include <pthread.h>

#include "kernels/tables.h"

static df_kernels tables[DF_TIER_COUNT];
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
  k.tier = DF_TIER_AVXVNNI;
  df_kernels_mm_init__avxvnni(&k);
  tables[DF_TIER_AVXVNNI] = k;
  k.tier = DF_TIER_AVX512;
  df_kernels_mm_init__avx512(&k);
  df_kernels_vec_init__avx512(&k);
  tables[DF_TIER_AVX512] = k;
#elif defined(__aarch64__)
  k.tier = DF_TIER_NEON;
  df_kernels_mm_init__neon(&k);
  df_kernels_vec_init__neon(&k);
  tables[DF_TIER_NEON] = k;
  k.tier = DF_TIER_DOTPROD;
  df_kernels_mm_init__dotprod(&k);
  tables[DF_TIER_DOTPROD] = k;
#endif
}

const df_kernels *df_kernels_get(df_cpu_tier tier) {
  if (!df_cpu_tier_fits(tier) || !df_cpu_tier_built(tier)) return NULL;
  pthread_once(&tables_once, tables_build);
  return &tables[tier];
}
