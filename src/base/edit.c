#include "base/edit.h"

#include <string.h>

#include "base/size.h"

unsigned df_edit_distance(const char *a, size_t na, const char *b, size_t nb, unsigned limit) {
  enum { MAX = 64 };
  unsigned row[3][MAX + 1];
  if (na > MAX || nb > MAX) return limit + 1;
  unsigned *before = row[0], *prev = row[1], *cur = row[2];
  for (size_t j = 0; j <= nb; j++) prev[j] = (unsigned)j;
  memset(row[0], 0, sizeof row[0]);
  for (size_t i = 1; i <= na; i++) {
    cur[0] = (unsigned)i;
    for (size_t j = 1; j <= nb; j++) {
      unsigned d = prev[j - 1] + (a[i - 1] != b[j - 1]);
      d = DF_MIN(d, prev[j] + 1);
      d = DF_MIN(d, cur[j - 1] + 1);
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) d = DF_MIN(d, before[j - 2] + 1);
      cur[j] = d;
    }
    unsigned *t = before;
    before = prev;
    prev = cur;
    cur = t;
  }
  return prev[nb] > limit ? limit + 1 : prev[nb];
}
