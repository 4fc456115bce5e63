#!/usr/bin/env bash
# Drafted text is plain text behind prompts of one token and of thousands, for hundreds of new ones; and thirty fresh starts
# draft and accept exactly the same.
. "$(dirname "$0")/lib.bash"

if [ -z "$target" ] || [ -z "$draft" ]; then
  skip 'the small model or its draft is not on this machine'
  finish
  exit
fi
once='The sea is wide, and the ships upon it are many; a captain counts them in the morning and writes their names down. '
more() { for ((i = 0; i < $1; i++)); do printf '%s' "$once"; done; } # 27 tokens each time

# lengths PROMPT LEAST MOST NEW: tokens of the prompt between LEAST and MOST
lengths() {
  local args=(run -m "$target" -c 8192 --raw -p "$1" -n "$4" --ignore-eos --temp 0.8 --seed 3 --json)
  run "${args[@]}"
  expect "$2 to $3 tokens, plain" 0
  local n
  n=$(json "$work/out" 'd["usage"]["prompt_tokens"]')
  same "$2 to $3 tokens: $n" "$((n >= $2 && n <= $3))" 1
  cp "$work/out" "$work/plain.json"
  run "${args[@]}" -md "$draft" --spec-width 8
  same "$n tokens: the ids are those of plain decoding" "$(json "$work/out" 'd["ids"]')" "$(json "$work/plain.json" 'd["ids"]')"
  same "$n tokens: as many as asked for, and drafts stood" \
    "$(json "$work/out" '(len(d["ids"]), d["timings"]["draft_n_accepted"] > 0)')" "($4, True)"
}
lengths 'The' 1 1 96
lengths 'The sea' 2 2 96
lengths 'The sea is wide, and the' 6 8 96 # one less than the block
lengths "$once" 16 40 512
lengths "$(more 20)" 512 600 512
lengths "$(more 160)" 4096 4600 512

first=
for i in $(seq 30); do
  run run -m "$target" -md "$draft" -p 'Name three animals.' -n 12 --spec-width 8 --json
  now=$(json "$work/out" '(d["ids"], d["timings"]["verify_n"], d["timings"]["draft_n"], d["timings"]["draft_n_accepted"],
    d["timings"]["accepted_per_pos"])')
  if [ "$i" -eq 1 ]; then first=$now; fi
  same "fresh start $i" "$now" "$first"
done
finish
