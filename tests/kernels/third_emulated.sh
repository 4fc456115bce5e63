#!/usr/bin/env bash
# What lies between this project's rows and the kernels of flashinfer-python, run on the host thread by thread.
program="${DF_BUILD_DIR:-build/release}/tests/test_third_emulated"
if [ ! -x "$program" ]; then
  echo "not built (no C++ compiler, or a build with sanitizers): skipped"
  echo "0 passed, 0 failed, 1 skipped"
  exit 0
fi
out=$(CMOCKA_MESSAGE_OUTPUT=tap "$program" 2>&1)
code=$?
passed=$(grep -c '^ok' <<<"$out")
failed=$(grep -c '^not ok' <<<"$out")
[ $code = 0 ] || echo "$out"
[ $code = 0 ] || [ "$failed" -gt 0 ] || failed=1 # it crashed
echo "$passed passed, $failed failed"
exit $code
