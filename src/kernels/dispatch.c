/* dispatch.c - builds the kernel tables, one per tier, on first use. */
#include <pthread.h>

#include "kernels/tables.h"

static df_kernels tables[DF_TIER_COUNT];
static pthread_once_t tables_once = PTHREAD_ONCE_INIT;

typedef void (*init_fn)(df_kernels *k);

/* The tier's own kernels over those of the tiers before it. Even filling a table takes instructions of its tier, since
 * the compiler may use them anywhere in that file: where the processor lacks them it must not run. */
static void add_tier(df_kernels *k, df_cpu_tier tier, init_fn mm, init_fn vec) {
  if (!df_cpu_tier_fits(tier)) return;
  k->tier = tier;
  mm(k);
  if (vec) vec(k);
  tables[tier] = *k;
}

static void tables_build(void) {
  df_kernels k = {0};
  add_tier(&k, DF_TIER_REF, df_kernels_mm_init__ref, df_kernels_vec_init__ref);
#if defined(__x86_64__)
  add_tier(&k, DF_TIER_AVX2, df_kernels_mm_init__avx2, df_kernels_vec_init__avx2);
  add_tier(&k, DF_TIER_AVXVNNI, df_kernels_mm_init__avxvnni, NULL);
  add_tier(&k, DF_TIER_AVX512, df_kernels_mm_init__avx512, df_kernels_vec_init__avx512);
#elif defined(__aarch64__)
  add_tier(&k, DF_TIER_NEON, df_kernels_mm_init__neon, df_kernels_vec_init__neon);
  add_tier(&k, DF_TIER_DOTPROD, df_kernels_mm_init__dotprod, NULL);
#endif
}

const df_kernels *df_kernels_get(df_cpu_tier tier) {
  if (!df_cpu_tier_fits(tier) || !df_cpu_tier_built(tier)) return NULL;
  pthread_once(&tables_once, tables_build);
  return &tables[tier];
}
