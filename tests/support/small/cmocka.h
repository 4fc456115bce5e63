/*
 * tests/support/small/cmocka.h - the part of cmocka's interface that the kernel tests use, for machines whose libraries
 * are not at hand (cross builds, DF_KERNELS_ONLY in CMakeLists.txt). Same output. One program includes it from several
 * files: the state is the program's main file's, the others reach it through small_fail.
 *
 * Threads: one.
 */
#ifndef DF_TESTS_SMALL_CMOCKA_H
#define DF_TESTS_SMALL_CMOCKA_H

#include <setjmp.h>
#include <stddef.h>

struct CMUnitTest {
  const char *name;
  void (*run)(void **state);
};

#define cmocka_unit_test(f) \
  { #f, f }

/* Prints the message with its place and leaves the running test. */
_Noreturn void small_fail(const char *file, int line, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
/* Runs all, or those whose names match the shell pattern in the environment's SMALL_ONLY; prints and returns the number
 * of failures. */
int small_run(const char *group, const struct CMUnitTest *tests, size_t n);

#define cmocka_run_group_tests_name(group, tests, setup, teardown) \
  small_run(group, tests, sizeof(tests) / sizeof((tests)[0]))

#define fail_msg(...) small_fail(__FILE__, __LINE__, __VA_ARGS__)
#define assert_true(c)                     \
  do {                                     \
    if (!(c)) fail_msg("%s is false", #c); \
  } while (0)
#define assert_false(c) assert_true(!(c))
#define assert_null(p) assert_true((p) == NULL)
#define assert_non_null(p) assert_true((p) != NULL)
#define assert_int_equal(a, b)                                                                     \
  do {                                                                                             \
    const unsigned long long small_a = (unsigned long long)(a), small_b = (unsigned long long)(b); \
    if (small_a != small_b) fail_msg("%s: %#llx is not %#llx", #a, small_a, small_b);              \
  } while (0)
#define assert_memory_equal(a, b, n) assert_true(memcmp((a), (b), (n)) == 0)

#endif
