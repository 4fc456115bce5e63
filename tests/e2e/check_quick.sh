#!/usr/bin/env bash
# dflash check on the small pair: every combination of the quick matrix gives the tokens and logits of plain decoding.
. "$(dirname "$0")/lib.bash"

if [ -z "$target" ] || [ -z "$draft" ]; then
  skip 'the small model or its draft is not on this machine' 8
  finish
  exit
fi
run check -m "$target" -md "$draft" --logits -n 3 --json
expect 'check --json' 0
same 'check --json: standard error is empty' "$err" ''
same 'check --json: nothing differs' "$(json "$work/out" 'd["different"]')" '[]'
same 'check --json: all that was planned' \
  "$(json "$work/out" '(d["combinations"] == d["identical"] == d["planned"], d["combinations"] >= 192, d["logits"])')" \
  '(True, True, True)'
run check -m "$target" -n 1
expect 'check without a draft' 0 'no draft given'
has 'check without a draft: table' "$out" '^prefill +decode +verify +combinations +identical'
has 'check without a draft: a row' "$out" '^flash +splitkv +flash .own slot. +[0-9]+ +[0-9]+ *$|^flash +splitkv +flash .prefill. '
has 'check without a draft: totals' "$(tail -n 1 <<<"$out")" '^([0-9]+) combinations, \1 identical, [0-9.]+ s$'
run check -m "$target" -md "$draft" -n 999
expect 'check of too many tokens' 2 '999'
"$dflash" check -m "$target" -md "$draft" -n 8 >"$work/out" 2>"$work/err" &
pid=$!
sleep 3
kill -INT $pid
status=0
wait $pid || status=$?
err=$(cat "$work/err")
expect 'Ctrl-C' 130 'combinations were not run'
finish
