#!/usr/bin/env bash
# The CUDA kernels on this machine's card, when it has one, against the reference kernels.
program="${DF_BUILD_DIR:-build/release}/tests/test_cuda_kernels"
if [ ! -x "$program" ]; then
  echo "built without CUDA: skipped"
  echo "0 passed, 0 failed, 1 skipped"
  exit 0
fi
"$program"
code=$?
if [ $code = 77 ]; then
  echo "0 passed, 0 failed, 1 skipped"
  exit 0
fi
exit $code
