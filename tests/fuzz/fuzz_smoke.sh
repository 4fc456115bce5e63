#!/usr/bin/env bash
# A few seconds of every fuzz target: the committed corpus and little more. Needs build/fuzz (tools/build fuzz).
set -uo pipefail
cd "$(dirname "$0")/../.."
if [ ! -d build/fuzz/fuzz ]; then
  echo 'skip the fuzz targets are not built: tools/build fuzz'
  echo '0 passed, 0 failed, 1 skipped'
  exit
fi
DF_FUZZ_SECONDS=${DF_FUZZ_SECONDS:-5} exec tools/fuzz
