/* base/cpu.h - processor features, detected once, and the kernel tier derived from them.
 * Threads: df_cpu_init before other threads use it; reads afterwards from any thread. */
#ifndef DF_BASE_CPU_H
#define DF_BASE_CPU_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The kernel tiers beside the scalar one, for each family of processors from the smallest to the best. One table: the
 * enum, the names and the choices of --cpu follow it. Which of them fit is asked with df_cpu_tier_fits: a processor may
 * have a tier without having the one before it. */
#define DF_CPU_TIERS(X)                                                          \
  X(AVX2, "avx2")       /* AVX2, FMA, F16C */                                    \
  X(AVXVNNI, "avxvnni") /* the same with 256-bit byte dot products (AVX-VNNI) */ \
  X(AVX512, "avx512")   /* AVX-512 F, BW, DQ, VL and VNNI */                     \
  X(NEON, "neon")       /* Armv8-A, 64 bit: every such processor */              \
  X(DOTPROD, "dotprod") /* the same with byte dot products (Armv8.2-A and later) */

#define DF_CPU_TIER_ID(id, name) DF_TIER_##id,
typedef enum df_cpu_tier { DF_TIER_REF, DF_CPU_TIERS(DF_CPU_TIER_ID) DF_TIER_COUNT } df_cpu_tier;

/* "ref|avx2|..." */
#define DF_CPU_TIER_CHOICE(id, name) "|" name
#define DF_CPU_TIER_CHOICES "ref" DF_CPU_TIERS(DF_CPU_TIER_CHOICE)

enum {
  DF_CPU_AVX2 = 1 << 0,
  DF_CPU_FMA = 1 << 1,
  DF_CPU_F16C = 1 << 2,
  DF_CPU_AVX512 = 1 << 3, /* F, BW, DQ, VL together, and the OS saves the state */
  DF_CPU_AVX512VNNI = 1 << 4,
  DF_CPU_AVXVNNI = 1 << 5,
  DF_CPU_AVX512BF16 = 1 << 6,
  DF_CPU_NEON = 1 << 7,
  DF_CPU_DOTPROD = 1 << 8
};

/* Feature bits of this processor and operating system. */
uint32_t df_cpu_features(void);
/* Name of bit i, NULL when there are no more. */
const char *df_cpu_feature_name(uint32_t i);
/* The names of those that are there ("avx2 fma f16c"), empty when there are none. Writes at most cap bytes. */
void df_cpu_features_text(char *out, size_t cap);
/* Whether the features allow a tier; DF_TIER_REF fits everywhere. */
bool df_cpu_tier_fits(df_cpu_tier t);
/* Whether this build has a tier: those of its own family of processors and DF_TIER_REF. */
bool df_cpu_tier_built(df_cpu_tier t);
/* The last tier that fits. */
df_cpu_tier df_cpu_best_tier(void);
/* "ref", "avx2", ... */
const char *df_cpu_tier_name(df_cpu_tier t);
/* Parses a tier name; returns -1 when unknown. */
int df_cpu_tier_parse(const char *name);
/* Whether widening half precision takes slots from multiply-adds (512-bit vectors): Intel converts on the ports that
 * multiply, AMD beside them. Both ways of using that give the same bits. */
bool df_cpu_halves_cost_fma(void);
/* Number of processors this process may run on (affinity mask), at least 1. */
unsigned df_cpu_count(void);
/* Marketing name of the processor, "unknown" when the system does not say. Writes at most cap bytes. */
void df_cpu_brand(char *out, size_t cap);

#endif
