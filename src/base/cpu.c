#define _GNU_SOURCE
#include "base/cpu.h"

#include <sched.h>
#include <stdio.h>
#include <string.h>

#if defined(__x86_64__)
#include <cpuid.h>

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
uint32_t df_cpu_features(void) { return 0; }
void df_cpu_brand(char *out, size_t cap) { (void)snprintf(out, cap, "unknown"); }
#endif

void df_cpu_features_text(char *out, size_t cap) {
  static const struct {
    uint32_t bit;
    const char *name;
  } names[] = {{DF_CPU_AVX2, "avx2"},
               {DF_CPU_FMA, "fma"},
               {DF_CPU_F16C, "f16c"},
               {DF_CPU_AVX512, "avx512"},
               {DF_CPU_AVX512VNNI, "avx512vnni"},
               {DF_CPU_AVXVNNI, "avxvnni"},
               {DF_CPU_AVX512BF16, "avx512bf16"}};
  const uint32_t have = df_cpu_features();
  size_t n = 0;
  if (cap) out[0] = '\0';
  for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
    if ((have & names[i].bit) && n < cap) n += (size_t)snprintf(out + n, cap - n, "%s%s", n ? " " : "", names[i].name);
  }
}

df_cpu_tier df_cpu_best_tier(void) {
  const uint32_t f = df_cpu_features();
  const uint32_t avx2 = DF_CPU_AVX2 | DF_CPU_FMA | DF_CPU_F16C;
  if ((f & avx2) != avx2) return DF_TIER_REF;
  const uint32_t avx512 = DF_CPU_AVX512 | DF_CPU_AVX512VNNI;
  return (f & avx512) == avx512 ? DF_TIER_AVX512 : DF_TIER_AVX2;
}

static const char *const k_tier_names[] = {"ref", "avx2", "avx512"};

const char *df_cpu_tier_name(df_cpu_tier t) { return k_tier_names[t]; }

int df_cpu_tier_parse(const char *name) {
  for (int i = 0; i < 3; i++)
    if (strcmp(name, k_tier_names[i]) == 0) return i;
  return -1;
}

unsigned df_cpu_count(void) {
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) != 0) return 1;
  int n = CPU_COUNT(&set);
  return n > 0 ? (unsigned)n : 1;
}
