#!/usr/bin/env bash
# tools/soak works: a few seconds of each mode with the tiny model, its counts, its exit status.
. "$(dirname "$0")/lib.bash"
build=$(basename "$(dirname "$dflash")")
if [ ! -x "$root/build/$build/tests/write_tiny_model" ]; then
  skip 'the program is not in build/KIND with its tests'
  finish
  exit
fi
soak() { # MODE [OPTION...]: leaves status and out
  status=0
  out=$(timeout 300 "$root/tools/soak" "$@" --tiny --build "$build" 2>&1) || status=$?
}
soak streams --streams 12 --seconds 3
same 'streams: status' "$status" 0
has 'streams: answers' "$out" '^ +[1-9][0-9]*  answers$'
has 'streams: passed' "$out" '^[0-9]+ passed, 0 failed$'
soak aborts --count 200
same 'aborts: status' "$status" 0
has 'aborts: all left' "$out" '^ +[1-9][0-9]*  streams left$'
soak idle --connections 60 --streams 3 --seconds 2
same 'idle: status' "$status" 0
has 'idle: every held connection answers' "$out" '^ +60  answers on held connections$'
soak mixed --streams 4 --seconds 4
same 'mixed: status' "$status" 0
has 'mixed: wrong requests too' "$out" '^ +[1-9][0-9]*  wrong requests$'

# What it finds wrong ends it with 1: a text that is not the expected one.
python3 - "$root/tools/soak" "$work/soak" <<'PY'
import sys
text = open(sys.argv[1]).read()
text = text.replace("os.path.dirname(os.path.dirname(os.path.abspath(__file__)))", repr(sys.argv[1][: -len("/tools/soak")]))
old = 'w.references.append((body, text, reason,'
assert old in text
open(sys.argv[2], "w").write(text.replace(old, 'w.references.append((body, text + "x", reason,'))
PY
status=0
out=$(timeout 300 python3 "$work/soak" streams --streams 2 --seconds 2 --tiny --build "$build" 2>&1) || status=$?
same 'a wrong text: status' "$status" 1
has 'a wrong text: said' "$out" 'FAIL an answer'
status=0
"$root/tools/soak" streams --build nothing >"$work/out" 2>&1 || status=$?
same 'no such build: status' "$status" 1
has 'no such build: said' "$(cat "$work/out")" 'tools/build nothing makes it'
finish
