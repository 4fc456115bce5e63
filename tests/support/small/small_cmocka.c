/* tests/support/small/small_cmocka.c - see cmocka.h beside it. */
#include <cmocka.h>
#include <fnmatch.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

static jmp_buf next_test;

_Noreturn void small_fail(const char *file, int line, const char *fmt, ...) {
  va_list ap;
  va_start(ap, fmt);
  vprintf(fmt, ap);
  va_end(ap);
  printf("\n%s:%d: error: Failure!\n", file, line);
  longjmp(next_test, 1);
}

int small_run(const char *group, const struct CMUnitTest *tests, size_t n) {
  const char *only = getenv("SMALL_ONLY");
  volatile int failed = 0, passed = 0;
  for (volatile size_t i = 0; i < n; i++) {
    void *state = NULL;
    if (only && fnmatch(only, tests[i].name, 0) != 0) continue;
    printf("[ RUN      ] %s\n", tests[i].name);
    fflush(stdout);
    if (setjmp(next_test)) {
      printf("[  FAILED  ] %s\n", tests[i].name);
      failed = failed + 1;
      continue;
    }
    tests[i].run(&state);
    printf("[       OK ] %s\n", tests[i].name);
    passed = passed + 1;
  }
  printf("[==========] %s: %d test(s) run.\n[  PASSED  ] %d test(s).\n", group, passed + failed, passed);
  if (failed) printf("[  FAILED  ] %d test(s)\n", failed);
  fflush(stdout);
  return failed;
}
