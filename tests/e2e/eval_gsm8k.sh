#!/usr/bin/env bash
# dflash eval: runs that go on, refuse and lose nothing; the mask table; prompt sets; runs side by side.
#
#   DF_FAULT_PROGRAM   a program built with DF_FAULT_INJECTION (default: build/fault/dflash; row a is skipped without it)
fault_program=$(realpath -m "${DF_FAULT_PROGRAM:-$(dirname "$0")/../../build/fault/dflash}")
. "$(dirname "$0")/lib.bash"
cd "$root"

# ---- what needs no model --------------------------------------------------------------------------------
run eval
expect 'nothing to do' 2 'say what to evaluate'
run eval gsm9k -m x
expect 'an unknown part' 2 'gsm9k'
run eval gsm8k
expect 'no model' 2 'no model given'
run eval gsm8k -m "$work/missing.gguf"
expect 'a missing model' 1 'could not find model'
run eval gsm8k -m "$work/missing.gguf" --limit 1320
expect 'more questions than there are' 1 '--limit 1320 is more than the 1319 questions'
run eval gsm8k -m "$work/missing.gguf" --data "$work/nowhere"
expect 'a missing folder' 1 'nowhere'
mkdir "$work/data"
head -n 3 data/gsm8k/test.jsonl >"$work/data/test.jsonl"
{ head -n 4 data/gsm8k/train.jsonl; echo '{"question": "What is'; } >"$work/data/train.jsonl"
run eval gsm8k -m "$work/missing.gguf" --data "$work/data"
expect 'a broken line of the data' 1 'train.jsonl" line 5'
echo '{"question": 5, "answer": "#### 5"}' >>"$work/data/test.jsonl"
run eval gsm8k -m "$work/missing.gguf" --data "$work/data"
expect 'a question that is no text' 1 'test.jsonl" line 4: "question"'
run eval compare
expect 'nothing to compare' 2 '0 runs'
run eval compare "$work/data"
expect 'a folder without a run' 1 'answers.jsonl'
run eval mask-table -m x -md y
expect 'a table without a folder' 2 '--out DIR'

if [ -z "$target" ] || [ -z "$draft" ]; then
  skip 'the small model or its draft is not on this machine' 40
  finish
  exit
fi

# ---- a run ----------------------------------------------------------------------------------------------
quick=(-m "$target" --shots 1 -n 16)
rows() { grep -c '"question"' "$1/answers.jsonl"; }
# the texts of a run in the order of the questions
texts() {
  python3 -c 'import json, sys
rows = [json.loads(l) for l in open(sys.argv[1] + "/answers.jsonl")][1:]
print([(r["question"], r["text"], r["ids_hash"]) for r in sorted(rows, key=lambda r: r["question"])])' "$1"
}
run eval gsm8k "${quick[@]}" -md "$draft" --spec-width 4 --limit 5 --parallel 2 --out "$work/a" --json
expect 'a run' 0
same 'standard output is the summary' "$(cat "$work/out")" "$(cat "$work/a/summary.json")"
same 'summary: questions, backends, width' \
  "$(json "$work/out" 'd["results"]["questions"], d["backends"]["verify"], d["block_width"], d["backends"]["verify_mask_captured"]')" \
  "(5, 'flash', 4, 'none')"
same 'summary: checksums are of the files' \
  "$(json "$work/out" 'd["settings"]["model_sha256"] + " " + d["settings"]["draft_sha256"]')" \
  "$(sha256sum "$target" "$draft" | cut -d' ' -f1 | tr '\n' ' ' | sed 's/ $//')"
has 'summary: the command' "$(json "$work/out" 'd["command"]')" 'eval gsm8k -m .* --spec-width 4 --limit 5 --parallel 2 --out '
same 'summary: accept length' "$(json "$work/out" '1 < d["results"]["accept_length"] <= 4')" True
run eval gsm8k "${quick[@]}" --limit 5 --parallel 5 --out "$work/b"
expect 'the same without a draft' 0
same 'the same texts' "$(texts "$work/b")" "$(texts "$work/a")"
run eval compare "$work/a" "$work/b"
expect 'compare' 0
has 'compare: all texts the same' "$out" '5 questions in both, 5 texts the same'
has 'compare: commands' "$out" "^$work/b: .*eval gsm8k .* --parallel 5"
run eval compare "$work/a" "$work/b" --json
same 'compare --json' "$(json "$work/out" '[r.get("against", {}).get("same_text") for r in d["runs"]]')" '[None, 5]'
run eval gsm8k "${quick[@]}" --limit 5 --fewshot first --out "$work/first"
expect 'the same examples for all' 0
same 'their beginning is computed once' \
  "$(json "$work/first/summary.json" 'd["results"]["cache_n"] % (16 * 5) == 0 < d["results"]["cache_n"]')" True
run eval gsm8k "${quick[@]}" --limit 5 --fewshot first --no-prefix-cache --parallel 3 --out "$work/first2"
same 'or not' "$(json "$work/first2/summary.json" 'd["results"]["cache_n"]')" 0
same 'with the same texts' "$(texts "$work/first2")" "$(texts "$work/first")"
run eval gsm8k "${quick[@]}" --limit 2 --format chat
expect 'as chat' 0
has 'as chat: says so' "$out" 'chat prompts: 2 questions'
if "$dflash" eval compare "$work/a" >/dev/full 2>"$work/err"; then bad 'a full standard output goes unnoticed'; else ok; fi

# ---- going on -------------------------------------------------------------------------------------------
"$dflash" eval gsm8k "${quick[@]}" --limit 200 --out "$work/killed" >/dev/null 2>&1 &
pid=$!
for _ in $(seq 600); do
  if [ -e "$work/killed/answers.jsonl" ] && [ "$(rows "$work/killed")" -ge 3 ]; then break; fi
  sleep 0.1
done
kill -KILL $pid
wait $pid 2>/dev/null
kept=$(rows "$work/killed")
printf '{"question":199,"target":"3","fl' >>"$work/killed/answers.jsonl"
run eval gsm8k "${quick[@]}" --limit 6 --out "$work/killed"
expect 'going on after a kill' 0 "ended in a broken line \\($((kept + 2))\\)"
has 'going on: what was there counts' "$err" "going on after $kept answers"
run eval gsm8k "${quick[@]}" --limit 6 --out "$work/whole"
same 'going on: the texts of a run in one go' "$(texts "$work/killed" | head -c 400)" "$(texts "$work/whole" | head -c 400)"
run eval gsm8k "${quick[@]}" --limit 6 --shots 2 --out "$work/whole"
expect 'other settings' 1 'shots was 1, is now 2'
sed -i '3s/"target"/"tar/' "$work/whole/answers.jsonl"
run eval gsm8k "${quick[@]}" --limit 6 --out "$work/whole"
expect 'a broken earlier line' 1 'answers.jsonl" line 3'
same 'a broken earlier line: nothing is lost' "$(rows "$work/whole")" 6
(
  trap '' XFSZ
  ulimit -f 3
  exec "$dflash" eval gsm8k "${quick[@]}" --limit 8 --out "$work/full" >"$work/out" 2>"$work/err"
)
status=$?
err=$(cat "$work/err")
expect 'a full disk' 1 'could not write ".*answers.jsonl"'
kept=$(rows "$work/full")
run eval gsm8k "${quick[@]}" --limit 8 --out "$work/full"
expect 'after a full disk' 0 "going on after $kept answers"
same 'after a full disk: all answers' "$(rows "$work/full")" 8
run eval gsm8k "${quick[@]}" --limit 2 -c 64
expect 'a context that is too small' 1 'needs [0-9]+ positions with its answer, --ctx-size gives 64'

# ---- the table ------------------------------------------------------------------------------------------
table=(eval mask-table "${quick[@]}" -md "$draft" --limit 3 --parallel 3)
run "${table[@]}" --rows abde --out "$work/table"
expect 'the table without a faulty program' 0 'row a is left out'
has 'the table: texts' "$out" 'every run without the fault gave the same texts'
same 'the table: rows and their backends' \
  "$(json "$work/table/table.json" '[(r["run"][-3:], r["settings"]["width"]) for r in d["runs"]]')" \
  "[('lit', 8), ('gle', 8), ('aft', 1)]"
same 'the table: who verified' "$(json "$work/table/b-split/summary.json" 'd["backends"]["outermost"], d["backends"]["decode"]')" \
  "('hybrid', 'splitkv')"
sed -i '2s/"text":"/"text":"x/' "$work/table/d-single/answers.jsonl"
run "${table[@]}" --rows bd --out "$work/table"
expect 'the table: a text that differs' 1
has 'the table: it says which' "$out" 'first difference: question [0-9]+, byte 0'
if [ -x "$fault_program" ] && "$fault_program" help eval >/dev/null 2>&1; then
  run "${table[@]}" --rows ab --out "$work/table2" --fault-binary "$fault_program" -n 32
  expect 'the table with the fault' 0
  same 'the fault: nothing is accepted, texts differ' \
    "$(json "$work/table2/table.json" '[r["results"]["accept_length"] < 1.2 for r in d["runs"]], d["runs"][0]["against"]["same_text"] < 3')" \
    '([True, False], True)'
  same 'the fault: it is in the settings' "$(json "$work/table2/a-fault/summary.json" 'len(d["settings"]["faults"])')" 2
else
  skip 'no program with the fault' 3
fi

# ---- prompt sets ----------------------------------------------------------------------------------------
sets=(-m "$target" -md "$draft" --sets code,chat --limit 2 -n 12 --widths 3,8)
run eval losslessness "${sets[@]}" --json
expect 'losslessness' 0
same 'losslessness: every width' \
  "$(json "$work/out" '[[m["texts_equal_to_plain"] for m in s["modes"]] for s in d["sets"]]')" '[[2, 2, 2, 2], [2, 2, 2, 2]]'
run eval accept "${sets[@]}" --parallel 2 --svg "$work/plot.svg"
expect 'accept' 0
has 'accept: a row of a set' "$out" '^code +2 +- +[12]\.[0-9]+ +[1-8]\.[0-9]+'
same 'accept: the plot is XML' "$(python3 -c 'import sys, xml.etree.ElementTree as t
print(t.parse(sys.argv[1]).getroot().tag.split("}")[1])' "$work/plot.svg")" svg
run eval speed "${sets[@]}" --sets code
expect 'speed' 0
has 'speed: against plain' "$out" '^code +2 +[0-9.]+ \(1\.00x\) +[0-9.]+ \([0-9.]+x\)'
run eval speed "${sets[@]}" --widths 3,99
expect 'a width beyond the block' 2 '3,99'
run eval accept "${sets[@]}" --sets nothing
expect 'a set that is not there' 1 'nothing.jsonl'
run eval accept "${sets[@]}" --limit 40
expect 'more prompts than a set may have' 2 '--limit'
finish
