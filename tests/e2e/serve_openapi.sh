#!/usr/bin/env bash
# /openapi.json and the server say the same about requests, valid and not. With the tiny model: nothing is downloaded.
. "$(dirname "$0")/lib.bash"
writer=$(dirname "$dflash")/tests/write_tiny_model
if [ ! -x "$writer" ]; then
  skip "$writer is not built"
  finish
  exit
fi
"$writer" "$work/tiny.gguf" "$work/tiny-draft.gguf"
DFLASH=$dflash TARGET=$work/tiny.gguf DRAFT=$work/tiny-draft.gguf PYTHONDONTWRITEBYTECODE=1 \
  python3 "$(dirname "$0")/serve_openapi.py"
exit
