#!/usr/bin/env bash
# The example of the verify mask that nobody fills: every outcome that its README claims.
#
#   DF_FAULT_PROGRAM   a program built with DF_FAULT_INJECTION (default: build/fault/dflash, built when it is missing)
fault_program=$(realpath -m "${DF_FAULT_PROGRAM:-$(dirname "$0")/../../build/fault/dflash}")
. "$(dirname "$0")/lib.bash"

if [ -z "$target" ] || [ -z "$draft" ]; then
  skip 'the small model or its draft is not on this machine' 21
  finish
  exit
fi
if [ ! -x "$fault_program" ] && ! "$root/tools/build" fault >"$work/log" 2>&1; then
  bad 'the program with the fault is not built' "$(tail -n 20 "$work/log")"
  finish
  exit
fi
demo=$work/demo
status=0
DF_FAULT_PROGRAM=$fault_program TARGET=$target DRAFT=$draft "$root/examples/mask-corruption/run" "$demo" >"$work/log" 2>&1 ||
  status=$?
err=$(cat "$work/log")
expect 'the example runs' 0

text() { cat "$demo/$1.txt" 2>/dev/null; }
code() { cat "$demo/$1.status" 2>/dev/null; }
accept() { sed -nE 's/.*accept length ([0-9.]+).*/\1/p' "$demo/$1.err"; }
above() { awk -v a="${2:-0}" -v b="$3" 'BEGIN { exit !(a > b) }' && ok || bad "$1: accept length is ${2:-missing}, expected more than $3"; }

same 'plain decoding: exit status' "$(code plain)" 0
if [ "$(text plain | wc -w)" -gt 20 ]; then ok; else bad 'plain decoding: an answer' "$(text plain)"; fi

# 1. the fault alone: another text, no error, nothing accepted
same 'fault: no error' "$(code fault)" 0
if [ "$(text fault)" != "$(text plain)" ]; then ok; else bad 'fault: the text is not affected'; fi
same 'fault: accept length' "$(accept fault)" 1.00
has 'fault: it says what was injected' "$(cat "$demo/fault.err")" "fault injected: the mask decision looked at the wrapper's name"

# 2. the guard refuses, naming mode, bucket, executor, captured and given layout
same 'guard: exit status' "$(code guard)" 1
has 'guard: message' "$(cat "$demo/guard.err")" \
  'error: target-verify program \(bucket 1 x 8 rows, executor "flash"\) was captured with a full mask but planned with none'
hasnt 'guard: no wrong token' "$(text guard)" "$(text fault | cut -c 4-14)"

# 3. nothing injected; 4. one backend; 5. eager
same 'nothing injected: the text of plain decoding' "$(text fixed)" "$(text plain)"
above 'nothing injected' "$(accept fixed)" 1.5
same 'one backend: the text of plain decoding' "$(text single)" "$(text plain)"
same 'one backend: the same accept length' "$(accept single)" "$(accept fixed)"
same 'eager: the same corruption' "$(text eager)" "$(text fault)"

# dflash check sees the fault: where verify runs on a leaf that reads masks the tokens differ, on another it is refused.
checked=0
env DF_TEST_MASK_POLICY=force_mask DF_TEST_MASK_GUARD=off "$fault_program" check -m "$target" -md "$draft" -n 4 --json \
  >"$work/check.json" 2>"$work/check.err" || checked=$?
same 'check of the fault: exit status' "$checked" 1
same 'check of the fault: what differs' "$(json "$work/check.json" '(d["combinations"] == d["planned"],
  {c["width"] for c in d["different"] if not c["refused"]}, {c["width"] for c in d["different"] if c["refused"]},
  {c["position"] for c in d["different"] if not c["refused"]} <= {1, 2, 3},
  any(c["margin"] > 0 and c["got_text"] != c["expected_text"] for c in d["different"]),
  len(d["different"]) + d["identical"] == d["combinations"])')" '(True, {8}, {8}, True, True, True)'
# guarded, every one of them is refused before it writes a token
checked=0
env DF_TEST_MASK_POLICY=force_mask "$fault_program" check -m "$target" -md "$draft" -n 4 --json \
  >"$work/check.json" 2>"$work/check.err" || checked=$?
same 'guarded check: exit status' "$checked" 1
same 'guarded check: refused, never wrong' \
  "$(json "$work/check.json" '(d["refused"] == len(d["different"]) > 0, all("mask" in c["refused"] for c in d["different"]))')" \
  '(True, True)'

# An ordinary program does not know the switches.
run run -m "$target" -md "$draft" --prefill-attention-backend flashinfer --decode-attention-backend trtllm_mha \
  --spec-draft-n-max 7 -n 8 -p 'Count from one to ten.' --no-stats
wanted=$out
out=$(DF_TEST_MASK_POLICY=wrapper_name DF_TEST_MASK_GUARD=off "$dflash" run -m "$target" -md "$draft" \
  --prefill-attention-backend flashinfer --decode-attention-backend trtllm_mha --spec-draft-n-max 7 -n 8 \
  -p 'Count from one to ten.' --no-stats 2>"$work/err")
same 'an ordinary program has no such switch' "$out" "$wanted"
hasnt 'an ordinary program injects nothing' "$(cat "$work/err")" 'injected'
finish
