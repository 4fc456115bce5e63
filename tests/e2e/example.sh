#!/usr/bin/env bash
# The example of the public interface: it builds with the project, is short, and says what the program says.
. "$(dirname "$0")/lib.bash"

source_file=$root/examples/generate.c
example=$(dirname "$dflash")/generate
lines=$(wc -l <"$source_file")
if [ "$lines" -le 60 ]; then ok; else bad "examples/generate.c has $lines lines, at most 60 are allowed"; fi
hasnt 'the example uses the public interface only' "$(cat "$source_file")" '#include "(base|format|text|kernels|device|kv|attention|model|draft|spec|engine|cli)/'

if [ ! -x "$example" ] || [ -z "$target" ] || [ -z "$draft" ]; then
  skip 'the example is not built, or the small model or its draft is not on this machine'
  finish
  exit
fi

question=(-p 'Why is the sky blue?' -n 128)
run run -m "$target" "${question[@]}" --no-stats
plain=$out

status=0
out=$("$example" "$target" 2>"$work/err") || status=$?
err=$(cat "$work/err")
expect 'example without a draft' 0 'accept length 1\.00'
same 'example without a draft: the text of the program' "$out" "$plain"
out=$("$example" "$target" "$draft" 2>"$work/err") || status=$?
err=$(cat "$work/err")
expect 'example with a draft' 0 'tok/s, accept length'
same 'example with a draft: the same text' "$out" "$plain"

out=$("$example" /nowhere/model.gguf 2>"$work/err") && status=0 || status=$?
err=$(cat "$work/err")
expect 'example: a missing model' 1 '^error: .*/nowhere/model.gguf'
finish
