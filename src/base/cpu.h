/* base/cpu.h - processor features, detected once, and the kernel tier derived from them.
 * Threads: df_cpu_init before other threads use it; reads afterwards from any thread. */
#ifndef DF_BASE_CPU_H
#define DF_BASE_CPU_H

#include <stddef.h>
#include <stdint.h>

/* Ordered: a higher tier includes the lower ones. */
typedef enum df_cpu_tier { DF_TIER_REF, DF_TIER_AVX2, DF_TIER_AVX512 } df_cpu_tier;

enum {
  DF_CPU_AVX2 = 1 << 0,
  DF_CPU_FMA = 1 << 1,
  DF_CPU_F16C = 1 << 2,
  DF_CPU_AVX512 = 1 << 3, /* F, BW, DQ, VL together, and the OS saves the state */
  DF_CPU_AVX512VNNI = 1 << 4,
  DF_CPU_AVXVNNI = 1 << 5,
  DF_CPU_AVX512BF16 = 1 << 6
};

/* Feature bits of this processor and operating system. */
uint32_t df_cpu_features(void);
/* Their names ("avx2 fma f16c"), empty when there are none. Writes at most cap bytes. */
void df_cpu_features_text(char *out, size_t cap);
/* Best tier the features allow (AVX512 here means AVX-512 with VNNI). */
df_cpu_tier df_cpu_best_tier(void);
/* "ref", "avx2", "avx512". */
const char *df_cpu_tier_name(df_cpu_tier t);
/* Parses a tier name; returns -1 when unknown. */
int df_cpu_tier_parse(const char *name);
/* Number of processors this process may run on (affinity mask), at least 1. */
unsigned df_cpu_count(void);
/* Marketing name of the processor, "unknown" when the system does not say. Writes at most cap bytes. */
void df_cpu_brand(char *out, size_t cap);

#endif
