#define _GNU_SOURCE
#include "base/cpu.h"

#include <sched.h>
#include <stdio.h>
#include <string.h>

#if defined(__x86_64__)
#include <cpuid.h>
#elif defined(__aarch64__)
#include <sys/auxv.h>
#endif

#if defined(__x86_64__)
/* XCR0 says which register files the operating system saves on a context switch. */
static uint64_t xcr0(void) {
  uint32_t lo, hi;
  __asm__ volatile("xgetbv" : "=a"(lo), "=d"(hi) : "c"(0));
  return ((uint64_t)hi << 32) | lo;
}

uint32_t df_cpu_features(void) {
  uint32_t a, b, c, d, f = 0;
  if (!__get_cpuid(1, &a, &b, &c, &d) || !(c & (1u << 27))) return 0; /* OSXSAVE */
  const uint64_t x = xcr0();
  if ((x & 6) != 6) return 0; /* XMM and YMM state */
  if (c & (1u << 12)) f |= DF_CPU_FMA;
  if (c & (1u << 29)) f |= DF_CPU_F16C;
  if (!__get_cpuid_count(7, 0, &a, &b, &c, &d)) return f;
  const uint32_t max_sub = a;
  if (b & (1u << 5)) f |= DF_CPU_AVX2;
  const uint32_t need512 = (1u << 16) | (1u << 17) | (1u << 30) | (1u << 31); /* F DQ BW VL */
  if ((x & 0xE0) == 0xE0 && (b & need512) == need512) {
    f |= DF_CPU_AVX512;
    if (c & (1u << 11)) f |= DF_CPU_AVX512VNNI;
  }
  if (max_sub >= 1 && __get_cpuid_count(7, 1, &a, &b, &c, &d)) {
    if (a & (1u << 4)) f |= DF_CPU_AVXVNNI;
    if ((f & DF_CPU_AVX512) && (a & (1u << 5))) f |= DF_CPU_AVX512BF16;
  }
  return f;
}

bool df_cpu_halves_cost_fma(void) {
  uint32_t a, b, c, d;
  return !__get_cpuid(0, &a, &b, &c, &d) || b != signature_AMD_ebx;
}

void df_cpu_brand(char *out, size_t cap) {
  uint32_t r[12] = {0};
  for (uint32_t i = 0; i < 3; i++) {
    if (!__get_cpuid(0x80000002u + i, &r[i * 4], &r[i * 4 + 1], &r[i * 4 + 2], &r[i * 4 + 3])) {
      (void)snprintf(out, cap, "unknown");
      return;
    }
  }
  char name[49];
  memcpy(name, r, 48);
  name[48] = '\0';
  const char *s = name;
  while (*s == ' ') s++;
  (void)snprintf(out, cap, "%s", s);
}
#else
#if defined(__aarch64__)
enum { HWCAP_BIT_ASIMD = 1 << 1, HWCAP_BIT_ASIMDDP = 1 << 20 }; /* Linux, arm64: asm/hwcap.h */

uint32_t df_cpu_features(void) {
  const unsigned long have = getauxval(AT_HWCAP);
  uint32_t f = 0;
  if (have & HWCAP_BIT_ASIMD) f |= DF_CPU_NEON;
  if (have & HWCAP_BIT_ASIMDDP) f |= DF_CPU_DOTPROD;
  return f;
}
#else
uint32_t df_cpu_features(void) { return 0; }
#endif
bool df_cpu_halves_cost_fma(void) { return true; }
void df_cpu_brand(char *out, size_t cap) { (void)snprintf(out, cap, "unknown"); }
#endif

const char *df_cpu_feature_name(uint32_t i) {
  static const char *const names[] = {"avx2",    "fma",        "f16c", "avx512", "avx512vnni",
                                      "avxvnni", "avx512bf16", "neon", "dotprod"};
  return i < sizeof names / sizeof names[0] ? names[i] : NULL;
}

void df_cpu_features_text(char *out, size_t cap) {
  const uint32_t have = df_cpu_features();
  size_t n = 0;
  if (cap) out[0] = '\0';
  for (uint32_t i = 0; df_cpu_feature_name(i); i++) {
    if ((have >> i & 1) && n < cap)
      n += (size_t)snprintf(out + n, cap - n, "%s%s", n ? " " : "", df_cpu_feature_name(i));
  }
}

bool df_cpu_tier_fits(df_cpu_tier t) {
  static const uint32_t need[DF_TIER_COUNT] = {
      [DF_TIER_AVX2] = DF_CPU_AVX2 | DF_CPU_FMA | DF_CPU_F16C,
      [DF_TIER_AVXVNNI] = DF_CPU_AVX2 | DF_CPU_FMA | DF_CPU_F16C | DF_CPU_AVXVNNI,
      [DF_TIER_AVX512] = DF_CPU_AVX2 | DF_CPU_FMA | DF_CPU_F16C | DF_CPU_AVX512 | DF_CPU_AVX512VNNI,
      [DF_TIER_NEON] = DF_CPU_NEON,
      [DF_TIER_DOTPROD] = DF_CPU_NEON | DF_CPU_DOTPROD};
  return (int)t >= 0 && t < DF_TIER_COUNT && (df_cpu_features() & need[t]) == need[t];
}

bool df_cpu_tier_built(df_cpu_tier t) {
#if defined(__x86_64__)
  return (int)t >= 0 && t <= DF_TIER_AVX512;
#elif defined(__aarch64__)
  return t == DF_TIER_REF || t == DF_TIER_NEON || t == DF_TIER_DOTPROD;
#else
  return t == DF_TIER_REF;
#endif
}

df_cpu_tier df_cpu_best_tier(void) {
  int t = DF_TIER_COUNT - 1;
  while (!df_cpu_tier_fits((df_cpu_tier)t)) t--;
  return (df_cpu_tier)t;
}

#define TIER_NAME(id, name) name,
static const char *const k_tier_names[DF_TIER_COUNT] = {"ref", DF_CPU_TIERS(TIER_NAME)};

const char *df_cpu_tier_name(df_cpu_tier t) { return k_tier_names[t]; }

int df_cpu_tier_parse(const char *name) {
  for (int i = 0; i < DF_TIER_COUNT; i++)
    if (strcmp(name, k_tier_names[i]) == 0) return i;
  return -1;
}

unsigned df_cpu_count(void) {
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) != 0) return 1;
  int n = CPU_COUNT(&set);
  return n > 0 ? (unsigned)n : 1;
}
