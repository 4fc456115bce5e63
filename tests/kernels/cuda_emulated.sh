#!/usr/bin/env bash
# The CUDA kernels' own sources, run on the host thread by thread, against the reference kernels.
program="${DF_BUILD_DIR:-build/release}/tests/test_cuda_emulated"
if [ ! -x "$program" ]; then
  echo "not built (no C++ compiler, or a build with sanitizers): skipped"
  echo "0 passed, 0 failed, 1 skipped"
  exit 0
fi
exec "$program" --quick
