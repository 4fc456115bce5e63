#!/usr/bin/env bash
# The engine on the CUDA device with the kernels emulated on the host (tests/cuda/engine). DF_TEST_LONG: every setting, long
# prompts.
program="${DF_BUILD_DIR:-build/release}/tests/test_cuda_engine"
if [ ! -x "$program" ]; then
  echo "not built (no C++ compiler, no CUDA headers, or a build with sanitizers): skipped"
  echo "0 passed, 0 failed, 1 skipped"
  exit 0
fi
long=()
if [ "${DF_TEST_LONG-0}" != 0 ]; then long=(--long); fi
if "$program" "${long[@]}"; then echo '1 passed, 0 failed'; else echo '0 passed, 1 failed'; exit 1; fi
