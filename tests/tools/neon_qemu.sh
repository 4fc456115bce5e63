#!/usr/bin/env bash
# The Arm kernels without an Arm processor: cross-compiles the kernels and their tests (DF_KERNELS_ONLY) and runs them in
# an emulator. Every comparison with ref on a processor that has everything (tiers neon and dotprod), and enough of them
# on one without dot products to see that the neon tier does without them.
#
# Needs gcc-aarch64-linux-gnu, libc6-dev-arm64-cross, qemu-user (tools/bootstrap --full). Without them it is skipped;
# in continuous integration (CI is set) that is a failure.
set -uo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
build=$(mktemp -d)
trap 'rm -rf "$build"' EXIT
passed=0
failed=0

missing=''
command -v aarch64-linux-gnu-gcc >/dev/null || missing+=' gcc-aarch64-linux-gnu'
[ -e /usr/aarch64-linux-gnu/include/stdlib.h ] || missing+=' libc6-dev-arm64-cross'
qemu=$(command -v qemu-aarch64 || command -v qemu-aarch64-static) || missing+=' qemu-user'
if [ -n "$missing" ]; then
  echo "missing:$missing (tools/bootstrap --full installs them)"
  if [ -n "${CI-}" ]; then echo '0 passed, 1 failed'; exit 1; fi
  echo '0 passed, 0 failed, 1 skipped'
  exit 0
fi

finish() {
  echo "$passed passed, $failed failed"
  [ "$failed" -eq 0 ]
  exit
}

log=$build/log
if ! { cmake -S "$root" -B "$build" -G Ninja -DCMAKE_TOOLCHAIN_FILE="$root/cmake/aarch64.cmake" -DDF_KERNELS_ONLY=ON \
  -DDF_WERROR=ON && cmake --build "$build"; } >"$log" 2>&1; then
  echo 'FAIL could not build for aarch64'
  tail -n 40 "$log"
  failed=1
  finish
fi

# start LABEL CPU PROGRAM [PATTERN]: one program in the background; its output in a file of that label
labels=()
start() {
  labels+=("$1")
  SMALL_ONLY=${4-*} "$qemu" -cpu "$2" "$build/tests/$3" >"$build/$1.out" 2>&1 &
  pids+=($!)
}

# collect: waits for what was started and counts it; a program that ran no test has failed
pids=()
collect() {
  local i code n bad
  for i in "${!labels[@]}"; do
    code=0
    wait "${pids[$i]}" || code=$?
    n=$(sed -n 's/^\[  PASSED  \] \([0-9]*\) test(s).*/\1/p' "$build/${labels[$i]}.out")
    bad=$(sed -n 's/^\[  FAILED  \] \([0-9]*\) test(s).*/\1/p' "$build/${labels[$i]}.out")
    passed=$((passed + ${n:-0}))
    failed=$((failed + ${bad:-0}))
    if [ "$code" -ne 0 ] || [ "${n:-0}" -lt 1 ]; then
      [ "${bad:-0}" -gt 0 ] || failed=$((failed + 1))
      echo "FAIL ${labels[$i]} (exit $code)"
      grep -v '       OK ' "$build/${labels[$i]}.out" | tail -n 20
    fi
  done
  labels=()
  pids=()
}

# That there are two tiers to compare is itself a thing to check: an emulator without the features would compare nothing.
tiers() { # CPU WANTED
  local got
  got=$("$qemu" -cpu "$1" "$build/tests/list_tiers" 2>&1)
  if [ "$got" = "$2" ]; then passed=$((passed + 1)); else
    failed=$((failed + 1))
    echo "FAIL tiers of $1: \"$got\", wanted \"$2\""
  fi
}
tiers max 'ref neon dotprod'
tiers cortex-a57 'ref neon'

start max-attn max test_attn
start max-mm max test_mm
collect
start max-vec max test_vec
start old-mm cortex-a57 test_mm '*_all_rows'
collect
start old-attn cortex-a57 test_attn '*_wide_heads'
start old-merge cortex-a57 test_attn '*merge*'
collect
start old-fold cortex-a57 test_attn '*fold*'
start old-vec cortex-a57 test_vec '*agree'
collect
start old-exp cortex-a57 test_exp '*_bits'
start old-kv cortex-a57 test_vec '*kv_store*'
collect
start max-exp max test_exp
start old-sum cortex-a57 test_exp '*exp_sum*'
collect
finish
