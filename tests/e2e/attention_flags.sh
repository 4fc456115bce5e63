#!/usr/bin/env bash
# Options about attention backends, pages and recorded programs: refusals, aliases, equal texts, and dflash doctor.
. "$(dirname "$0")/lib.bash"

# ---- refused at start: one line that names option, value and remedy; the model is not even opened
refused() { # WHAT PATTERN OPTION...
  local what=$1 pattern=$2
  shift 2
  run run -m "$work/no-such-model" -p x "$@"
  expect "$what" 2 "^dflash run: error: $pattern"
  same "$what: one error line" "$(grep -c 'error:' <<<"$err")" 1
}
refused 'unknown backend' '--attention-backend: unknown attention backend "flsh", did you mean "flash"\?$' --attention-backend flsh
refused 'unknown backend: an alias is near' '--prefill-attention-backend: .*"flashinfre", did you mean "flashinfer"\?' \
  --prefill-attention-backend flashinfre
refused 'unknown backend: its beginning' '--decode-attention-backend: .*"trtllm", did you mean "trtllm_mha"\?' \
  --decode-attention-backend trtllm
refused 'unknown backend: nothing is near' '--verify-attention-backend: .*"cutlass" \(use flash, splitkv or naive\)' \
  --verify-attention-backend cutlass
has 'unknown backend: the list' "$err" '^hint: known backends: flash, splitkv, naive; aliases: flashinfer,'
refused 'an empty backend name' '--attention-backend: .*""' --attention-backend ''
refused 'page size' '--page-size 32: no attention backend reads such pages \(use 1, 16 or 64\)' --page-size 32
refused 'page size: the sum of two' '--page-size 17: ' --page-size 17
refused 'page size 0' '--page-size needs a whole number from 1' --page-size 0
refused 'batch sizes descend' '--graph-bs: "4,2" does not ascend at character 3 \(write 1,2,4 or 1-8\)' --graph-bs 4,2
refused 'batch sizes repeat' '--graph-bs: "1-4,4" does not ascend at character 5' --graph-bs 1-4,4
refused 'a range that descends' '--graph-bs: "8-1" does not ascend' --cuda-graph-bs 8-1
refused 'a batch size is missing' '--graph-bs: "1,,2" needs a batch size from 1 to 64 at character 3' --graph-bs 1,,2
refused 'a batch size is no number' '--graph-bs: "x" needs a batch size' --graph-bs x
refused 'a batch size is too large' '--graph-bs: "1,65" needs a batch size from 1 to 64 at character 3' --graph-bs 1,65
refused 'a batch size is huge' '--graph-bs: ' --graph-bs 99999999999999999999
refused 'another separator' '--graph-bs: "1;2" is no list of batch sizes: unexpected ";"' --graph-bs '1;2'
refused 'no batch size' '--graph-bs: "" needs' --graph-bs ''
refused 'speculative mode' '--speculative-attention-mode needs one of prefill.decode, not "verify"' \
  --speculative-attention-mode verify
refused 'graph memory' '--graph-memory needs a whole number from 0 .* not "1T"' --graph-memory 1T
refused 'a misspelt option' 'unknown option "--page-sise", did you mean "--page-size"\?' --page-sise 16
run doctor
expect 'doctor without a model' 2 'no model given'
run check
expect 'check without a model' 2 'no model given'
run check -m "$work/no-such-model"
expect 'check with a missing model' 1 'no-such-model'
run check -m x --matrix all
expect 'check with another matrix' 2 '--matrix needs one of quick.full'

if [ -z "$target" ] || [ -z "$draft" ]; then
  skip 'the small model or its draft is not on this machine' 40
  finish
  exit
fi
md=(-m "$target" -md "$draft")
run run "${md[@]}" -p x -n 1 --graph-memory 1k
expect 'graph memory too small' 1 'graph memory of 1000 bytes is too small.*raise --graph-memory, or give --no-graph'
run run "${md[@]}" -p x -n 1 --graph-memory 1k --no-graph --no-stats
expect 'no graphs, no limit' 0

# ---- aliases are reported once a process, whatever uses them
run demo "${md[@]}" -n 2 --prefill-attention-backend flashinfer --verify-attention-backend flashinfer \
  --decode-attention-backend trtllm_mha
expect 'demo with aliases' 0
same 'an alias is reported once' \
  "$(grep -c '^note: attention backend "flashinfer" runs as "flash" on this device$' <<<"$err")" 1
same 'the other alias is reported once' "$(grep -c '^note: .*"trtllm_mha" runs as "splitkv"' <<<"$err")" 1
has 'demo with aliases: the same text' "$out" 'identical with and without'
run run "${md[@]}" -p x -n 1 --no-stats --attention-backend flashinfer --log warn
same '--log warn: no notes' "$err" ''

# ---- every setting gives the same text
ask=(-p 'Count from one to ten.' -n 12 --no-stats)
run run -m "$target" "${ask[@]}"
plain=$out
while read -r options; do
  # shellcheck disable=SC2086
  run run "${md[@]}" "${ask[@]}" $options
  same "the same text with $options" "$out" "$plain"
done <<'OPTIONS'
--page-size 1
--page-size 64 --graph-bs 1-8
--cuda-graph-bs 1,2,4 --graph-memory 16M
--disable-cuda-graph
--enable-two-batch-overlap --prefill-attention-backend fa3 --decode-attention-backend xqa --speculative-attention-mode decode
--prefill-attention-backend splitkv --decode-attention-backend flash --verify-attention-backend naive
OPTIONS

# ---- doctor
doctor() { # OPTION...: report in $work/d.json
  run doctor "${md[@]}" --json "$@"
  cp "$work/out" "$work/d.json"
}
route() { json "$work/d.json" "' > '.join(d['routes']['$1'])"; }
doctor
expect 'doctor' 0
same 'doctor: accepted' "$(json "$work/d.json" '(d["accepted"], d["problems"], d["aliases"])')" '(True, [], [])'
same 'doctor: one backend' "$(json "$work/d.json" 'sorted(set(map(str, d["routes"].values())))')" "[\"['flash']\"]"
same 'doctor: no mask' "$(json "$work/d.json" '(d["verify_mask"]["layout"], d["verify_mask"]["executor"])')" "('none', 'flash')"
same 'doctor: memory' "$(json "$work/d.json" '(d["memory"]["kv_token"] == 30 * 2 * 3 * 64 * 2 and
  d["memory"]["draft_kv_token"] == 5 * 2 * 3 * 64 * 2 and d["memory"]["kv_pool"] >= d["memory"]["kv_token"] * 8192)')" True
same 'doctor: fit' "$(json "$work/d.json" 'd["fit"]["fits"]')" True
same 'doctor: programs' "$(json "$work/d.json" '(sum(i["bytes"] for i in d["programs"]["items"]) == d["programs"]["bytes"] > 0
  and {i["mask"] for i in d["programs"]["items"]} == {"none"})')" True
doctor --prefill-attention-backend flashinfer --decode-attention-backend trtllm_mha --enable-two-batch-overlap --graph-bs 1,4
expect 'doctor: a split pair' 0
same 'doctor: extend' "$(route extend)" 'tbo > hybrid > flash'
same 'doctor: decode' "$(route decode)" 'tbo > hybrid > splitkv'
same 'doctor: verify' "$(route target-verify)" 'tbo > hybrid > flash'
same 'doctor: draft' "$(route draft-block)" 'flash'
same 'doctor: idle' "$(route idle)" 'tbo > hybrid > splitkv'
same 'doctor: batch sizes' "$(json "$work/d.json" 'd["programs"]["batch_sizes"]')" '[1, 4]'
same 'doctor: aliases' "$(json "$work/d.json" '[(a["option"], a["given"], a["backend"]) for a in d["aliases"]]')" \
  "[('prefill-attention-backend', 'flashinfer', 'flash'), ('decode-attention-backend', 'trtllm_mha', 'splitkv')]"
doctor --prefill-attention-backend flash --decode-attention-backend splitkv --speculative-attention-mode decode
same 'doctor: verify on decode' "$(route target-verify)" 'hybrid > splitkv'
doctor --prefill-attention-backend flash --decode-attention-backend splitkv --verify-attention-backend naive --no-graph
same 'doctor: verify on its own' "$(route target-verify)" 'hybrid > naive'
same 'doctor: no programs' "$(json "$work/d.json" '(d["programs"]["recorded"], d["programs"]["items"])')" '(False, [])'
doctor --attention-backend flsh --page-size 32 --graph-bs 4,2 --graph-memory 1k --spec-width 16 --decode-attention-backend zz
expect 'doctor: everything that is refused' 1
same 'doctor: all problems' "$(json "$work/d.json" 'sorted(p["option"] for p in d["problems"])')" \
  "['attention-backend', 'decode-attention-backend', 'graph-bs', 'graph-memory', 'page-size']"
same 'doctor: still a plan' "$(json "$work/d.json" '(d["accepted"], d["memory"]["page_size"])')" '(False, 16)'
run doctor -m "$target" -md "$target" --json
expect 'doctor: a target as draft' 1
same 'doctor: a target as draft: fit' "$(json "$work/out" '(d["fit"]["fits"], [p["option"] for p in d["problems"]])')" \
  "(False, ['spec-draft-model'])"
same 'doctor: a target as draft: the rest of the plan' "$(json "$work/out" 'd["routes"]["draft-block"]')" '[]'
run doctor -m "$work/no-such-model" --attention-backend zz --json
same 'doctor: without a model' "$(json "$work/out" '[p["option"] for p in d["problems"]]')" "['model', 'attention-backend']"
run doctor "${md[@]}" --page-size 32
expect 'doctor in words' 1
has 'doctor in words: refusal' "$out" '^refused  --page-size: .*pages of 32 tokens'
finish
