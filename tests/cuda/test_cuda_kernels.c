/*
 * test_cuda_kernels - every CUDA kernel against the reference on the host.
 *
 *   test_cuda_kernels [--quick] [--part I/N] [group...]
 *
 * Groups: device rows products chains float attention programs passes float-passes. --part: of the programs and passes,
 * which are slow under tools that watch memory, only those of part I of N (1 to N), so that parts can run side by side.
 * Ends with "N passed, N failed". Without a card: one line, exit status 77.
 */
#include <stdio.h>
#include <string.h>

#include "cuda/cuda_rig.h"

static const struct {
  const char *name;
  void (*run)(rig *r);
} k_groups[] = {{"device", test_device},
                {"rows", test_rows},
                {"products", test_products},
                {"chains", test_chains},
                {"float", test_float_products},
                {"attention", test_attention},
                {"programs", test_programs},
                {"passes", test_passes},
                {"float-passes", test_float_passes}};

static bool wanted(const char *name, int argc, char **argv) {
  bool any = false;
  for (int i = 1; i < argc; i++) {
    if (strcmp(argv[i], "--part") == 0 && ++i) continue;
    if (argv[i][0] == '-') continue;
    any = true;
    if (strcmp(argv[i], name) == 0) return true;
  }
  return !any;
}

int main(int argc, char **argv) {
  static rig r;
  const char *why = "";
  setvbuf(stdout, NULL, _IOLBF, 0);
  if (!rig_open(&r, &why)) {
    printf("no CUDA device: skipped (%s)\n", why);
    return 77;
  }
  r.parts = 1;
  for (int i = 1; i < argc; i++) {
    r.quick |= strcmp(argv[i], "--quick") == 0;
    if (strcmp(argv[i], "--part") != 0) continue;
    if (i + 1 == argc || sscanf(argv[i + 1], "%u/%u", &r.part, &r.parts) != 2 || r.part - 1 >= r.parts) {
      fprintf(stderr, "test_cuda_kernels: --part takes I/N, 1/N to N/N\n");
      return 2;
    }
  }
  printf("%s, compute capability %u.%u, %u multiprocessors\n", r.card.name, r.card.major, r.card.minor, r.card.n_sm);
  for (size_t i = 0; i < sizeof k_groups / sizeof *k_groups; i++) {
    if (!wanted(k_groups[i].name, argc, argv)) continue;
    const uint32_t passed = r.passed, failed = r.failed;
    k_groups[i].run(&r);
    printf("%-10s %5u passed, %u failed\n", k_groups[i].name, r.passed - passed, r.failed - failed);
  }
  if (r.errors) printf("%u calls failed\n", r.errors);
  printf("%u passed, %u failed\n", r.passed, r.failed + (r.errors && !r.failed));
  const int rc = r.failed || r.errors ? 1 : 0;
  rig_close(&r);
  return rc;
}
