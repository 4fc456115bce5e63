/* tests/support/small/list_tiers.c - prints the kernel tiers that this processor has, on one line. */
#include <stdio.h>

#include "kernels/kernels.h"

int main(void) {
  for (int t = DF_TIER_REF; t < DF_TIER_COUNT; t++) {
    if (df_kernels_get((df_cpu_tier)t)) printf("%s%s", t ? " " : "", df_cpu_tier_name((df_cpu_tier)t));
  }
  puts("");
  return 0;
}
