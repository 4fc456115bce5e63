#include "device/cuda/cuda_archs.h"

#include <string.h>

/* One entry; major is all digits of its number but the last. */
static bool fits(const char *word, size_t n, uint32_t major, uint32_t minor) {
  const bool machine = n > 3 && memcmp(word, "sm_", 3) == 0, portable = n > 8 && memcmp(word, "compute_", 8) == 0;
  if (!machine && !portable) return false;
  uint32_t number = 0;
  size_t i = machine ? 3 : 8;
  for (; i < n && word[i] >= '0' && word[i] <= '9'; i++) number = number * 10 + (uint32_t)(word[i] - '0');
  const uint32_t x = number / 10, y = number % 10;
  if (i < n) return x == major && y == minor; /* a letter */
  if (machine) return x == major && y <= minor;
  return x < major || (x == major && y <= minor);
}

bool df_cuda_archs_fit(const char *archs, uint32_t major, uint32_t minor) {
  for (const char *p = archs; *p;) {
    const size_t n = strcspn(p, " ");
    if (fits(p, n, major, minor)) return true;
    p += n + strspn(p + n, " ");
  }
  return false;
}
