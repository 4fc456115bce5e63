#!/usr/bin/env bash
# The verbs that need a model, with the small one and its draft.
. "$(dirname "$0")/lib.bash"

if [ -z "$target" ] || [ -z "$draft" ]; then
  skip 'the small model or its draft is not on this machine'
  finish
  exit
fi
m=(-m "$target")
md=(-m "$target" -md "$draft")

# ---- run: text, JSON, equality with and without draft
run run "${m[@]}" -p 'Count from one to ten.' -n 16
expect 'run' 0 '^prompt +[0-9]+ tokens'
plain=$out
has 'run: statistics' "$err" '^generation +16 tokens .*token limit'
hasnt 'run: no colour into a pipe' "$err" $'\033'
run run "${md[@]}" -p 'Count from one to ten.' -n 16
expect 'run with a draft' 0 'up to 15 drafted tokens a step .width 16 '
# whether drafting pays is the controller's choice, and depends on what else the machine does
has 'run with a draft: what became of it' "$err" '^drafting +(accept length [0-9.]+|nothing drafted: plain decoding promised)'
same 'run with a draft: the same text' "$out" "$plain"
run run "${md[@]}" -p 'Count from one to ten.' -n 16 --spec-width 4
expect 'run with a fixed width' 0 '^drafting +accept length [0-9.]+'
same 'run with a fixed width: the same text' "$out" "$plain"
run run "${md[@]}" -p 'Count from one to ten.' -n 16 --speculative-num-draft-tokens 4 --no-stats
same 'other width: the same text' "$out" "$plain"
same '--no-stats: nothing on standard error' "$err" ''
run run "${md[@]}" -p 'Count from one to ten.' -n 16 --spec-draft-n-max 3 --json
expect 'run --json' 0
same 'run --json: standard error is empty' "$err" ''
cp "$work/out" "$work/a.json"
same 'run --json: text' "$(json "$work/a.json" 'd["text"]')" "$plain"
same 'run --json: counts' "$(json "$work/a.json" '(d["finish"], len(d["ids"]), d["usage"]["completion_tokens"],
  d["timings"]["predicted_n"], d["spec_width"], d["spec_draft_n_max"])')" "('length', 16, 16, 16, 4, 3)"
same 'run --json: drafting adds up' "$(json "$work/a.json" '(d["timings"]["draft_n_accepted"] <= d["timings"]["draft_n"]
  and d["timings"]["verify_n"] > 0 and d["timings"]["accept_length"] >= 1
  and all(0 <= x <= 1 for x in d["timings"]["accepted_per_pos"]) and len(d["timings"]["accepted_per_pos"]) <= 3)')" True
same 'run --json: the command' "$(json "$work/a.json" 'd["command"][1:3]')" "['run', '-m']"
run run "${m[@]}" -p 'Count from one to ten.' -n 16 --json --spec-type none -md "$draft"
same 'drafting off' "$(json "$work/out" '(d["timings"]["draft_n"], d["timings"]["accept_length"], d["draft"])')" "(0, 1.0, None)"
same 'drafting off: the same ids' "$(json "$work/out" 'd["ids"]')" "$(json "$work/a.json" 'd["ids"]')"

# ---- prompts: file, standard input, raw, system, stop, sampling
printf 'Count from one to ten.' >"$work/prompt.txt"
run run "${m[@]}" -f "$work/prompt.txt" -n 16 --no-stats
same '-f' "$out" "$plain"
same 'standard input' "$("$dflash" run "${m[@]}" -n 16 --no-stats <"$work/prompt.txt")" "$plain"
same 'the environment' "$(DF_MODEL=$target DF_PREDICT=16 DF_STATS=off "$dflash" run <"$work/prompt.txt")" "$plain"
run run "${m[@]}" -p 'Count from one to ten.' -n 16 --system 'Answer in French.' --json
if [ "$(json "$work/out" 'd["usage"]["prompt_tokens"]')" -eq "$(json "$work/a.json" 'd["usage"]["prompt_tokens"]')" ]; then
  bad '-sys changes the prompt'
else ok; fi
run run "${m[@]}" --raw -p 'one two three four' -n 4 --json
same '--raw: no template' "$(json "$work/out" 'd["usage"]["prompt_tokens"]')" 4
run run "${m[@]}" --raw -p x --system y
expect '--raw with a system message' 2 'needs the chat template'
word=$(sed -n 1p <<<"$plain" | awk '{print $2}')
run run "${md[@]}" -p 'Count from one to ten.' -n 16 -r "$word" --json
same 'stop text: why' "$(json "$work/out" 'd["finish"]')" stop
same 'stop text: cut before it' "$(json "$work/out" "'$word' in d['text']")" False
run run "${m[@]}" -p 'Tell a story.' -n 12 --temp 0.9 --seed 7 --json
first=$(json "$work/out" 'd["ids"]')
run run "${md[@]}" -p 'Tell a story.' -n 12 --temp 0.9 --seed 7 --json
same 'a seed gives the same text with a draft' "$(json "$work/out" 'd["ids"]')" "$first"
run run "${m[@]}" -p 'Tell a story.' -n 12 --temp 0.9
has 'a drawn seed is shown' "$err" 'seed [0-9]+$'
cat >"$work/t.jinja" <<'T'
{% for m in messages %}<|im_start|>user
{{ m.content }}<|im_end|>
{% endfor %}<|im_start|>assistant
T
run run "${m[@]}" -p 'Hi' -n 2 --chat-template-file "$work/t.jinja" --json
expect 'a template of its own' 0
same 'a template of its own: prompt' "$(json "$work/out" 'd["usage"]["prompt_tokens"] < 12')" True
echo '{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}' >"$work/loop.jinja"
run run "${m[@]}" -p 'Hi' -n 2 --chat-template-file "$work/loop.jinja"
expect 'a template that never ends' 1 'step'
echo '{% if %}' >"$work/broken.jinja"
run run "${m[@]}" -p 'Hi' -n 2 --chat-template-file "$work/broken.jinja"
expect 'a broken template' 1 '^dflash run: error: "[^"]*/broken\.jinja": .*chat template: line 1'
run run "${m[@]}" -p 'Hi' -n 2 --attention-backend nonsense
expect 'an unknown backend' 2 'nonsense'
for t in ref avx2 avxvnni avx512 neon dotprod; do
  run run "${m[@]}" -p 'Count from one to ten.' -n 6 --no-stats --cpu $t --json
  if [ "$status" -ne 0 ] && grep -q 'this processor' <<<"$err"; then skip "no $t here"; continue; fi
  same "kernels $t: the same ids" "$(json "$work/out" 'd["ids"]')" "$(json "$work/a.json" 'd["ids"][:6]')"
done

# ---- limits and failures
head -c 4000 /dev/zero | tr '\0' 'x ' >"$work/long.txt"
run run "${m[@]}" -f "$work/long.txt" -c 64 -n 4
expect 'a prompt longer than the context' 1 '64'
hasnt 'a prompt longer than the context: one line' "$(grep -c 'error:' <<<"$err")" '^[^1]'
run run "${m[@]}" -p 'Tell a long story.' -c 64 --json --ignore-eos
same 'a full context' "$(json "$work/out" '(d["finish"], d["usage"]["total_tokens"] <= 64)')" "('length', True)"
if [ -n "$other_draft" ]; then
  run run "${m[@]}" -md "$other_draft" -p x -n 1
  expect 'a draft for another target' 1 'width differs'
else skip 'no other draft'; fi
run run "${m[@]}" -md "$target" -p x -n 1
expect 'a target as draft' 1
"$dflash" run "${m[@]}" -p x -n 4 >/dev/full 2>"$work/err"
status=$? err=$(cat "$work/err")
expect 'full disk' 1 'could not write to standard output: No space left'
"$dflash" run "${m[@]}" -p 'Tell a story.' -n 200 2>"$work/err" | head -c 1 >/dev/null
same 'a closed pipe ends quietly' "$(grep -c error "$work/err")" 0
"$dflash" run "${m[@]}" -p 'Tell a long story.' --ignore-eos >"$work/out" 2>"$work/err" &
pid=$!
for _ in $(seq 100); do [ -s "$work/out" ] && break; sleep 0.1; done
kill -INT $pid
wait $pid
status=$? err=$(cat "$work/err")
expect 'Ctrl-C while generating' 0 'interrupted'
has 'Ctrl-C while generating: statistics' "$err" '^generation '

# ---- chat through a pipe
printf 'My name is Ada.\n"""\nWhat is\nmy name?\n"""\n/stats\n' | "$dflash" chat "${md[@]}" -n 12 >"$work/out" 2>"$work/err"
status=$? out=$(cat "$work/out") err=$(cat "$work/err")
expect 'chat' 0
hasnt 'chat: no prompt, no colour' "$out$err" $'\033|^> '
has 'chat: earlier turns are cached' "$err" '^\[[0-9]+.* [0-9]+ cached'
cached=$(sed -nE 's/^prompt .* ([0-9]+) cached$/\1/p' <<<"$err")
if [ "${cached:-0}" -gt 20 ]; then ok; else bad "chat: /stats shows cached tokens (${cached:-none})" "$err"; fi
printf 'Hello\n/save %s\n/clear\n/load %s\n/show\n' "$work/c.json" "$work/c.json" | "$dflash" chat "${m[@]}" -n 4 --no-stats >"$work/out" 2>"$work/err"
same 'chat: /save' "$(json "$work/c.json" '[x["role"] for x in d["messages"]]')" "['user', 'assistant']"
same 'chat: the saved answer' "$(json "$work/c.json" 'd["messages"][1]["content"]')" "$(cat "$work/out")"
has 'chat: /load' "$(cat "$work/err")" '^loaded 2 messages'
printf 'Hi\xff\n' | "$dflash" chat "${m[@]}" >"$work/out" 2>"$work/err"
status=$? err=$(cat "$work/err")
expect 'chat: invalid UTF-8' 1 'offset 2 of line 1'
printf '/load %s\n' "$work/none.json" | "$dflash" chat "${m[@]}" >"$work/out" 2>"$work/err"
status=$? err=$(cat "$work/err")
expect 'chat: a script notices a failure' 1 'none.json'
python3 -c 'print("word " * 400)' | "$dflash" chat "${m[@]}" -c 64 >"$work/out" 2>"$work/err"
status=$? err=$(cat "$work/err")
expect 'chat: a question longer than the context' 1 '64'

# ---- tokenize
text='Hello, world! ümlaut 中文 <|im_end|>'
run tokenize "${m[@]}" -p "$text"
expect 'tokenize' 0
ids=$out
run tokenize "${m[@]}" --decode -p "$ids"
same 'tokenize --decode' "$out" "$text"
run tokenize "${m[@]}" -p "$text" --json
same 'tokenize --json' "$(json "$work/out" '" ".join(map(str, d["ids"]))')" "$ids"
run tokenize "${m[@]}" -p '<|im_end|>'
same 'tokenize: control tokens' "$out" 2
run tokenize "${m[@]}" -p '<|im_end|>' --no-special
if [ "$(wc -w <<<"$out")" -gt 1 ]; then ok; else bad 'tokenize --no-special'; fi
run tokenize "${m[@]}" -d -p '504 2' --no-special
hasnt 'tokenize --decode --no-special' "$out" 'im_end'
run tokenize "${m[@]}" -d -p '[1, 99999999]'
expect 'an id out of range' 1 'outside the vocabulary'
run tokenize "${m[@]}" -d -p '12 x3'
expect 'an id that is none' 1 '"x3" at offset 3'
same 'bytes survive' "$(printf 'a\r\nb\tc\n\n' | "$dflash" tokenize "${m[@]}" | "$dflash" tokenize "${m[@]}" -d | od -c)" \
  "$(printf 'a\r\nb\tc\n\n' | od -c)"
same 'an empty text' "$("$dflash" tokenize "${m[@]}" </dev/null)" ''

# ---- perplexity
printf 'The quick brown fox jumps over the lazy dog. The sky is blue and the grass is green.' >"$work/text"
run perplexity "${m[@]}" "$work/text" --json
expect 'perplexity' 0
same 'perplexity: formula' "$(json "$work/out" 'abs(__import__("math").exp(d["mean_nll"]) - d["perplexity"]) < 1e-9 * d["perplexity"]')" True
same 'perplexity: plausible' "$(json "$work/out" '3 < d["perplexity"] < 60 and d["scored"] == d["tokens"] - 1')" True
run perplexity "${m[@]}" "$work/text" -c 16 --json
same 'perplexity: windows' "$(json "$work/out" 'd["windows"] == -(-d["tokens"] // 16) and d["scored"] == d["tokens"] - d["windows"]')" True
printf 'a' >"$work/short"
run perplexity "${m[@]}" "$work/short"
expect 'perplexity: too short' 2 'at least 2'

# ---- inspect
run inspect "$draft" "${m[@]}" --json
expect 'a draft that fits' 0
same 'a draft that fits: report' "$(json "$work/out" '(d["fit"]["fits"], [i["verdict"] for i in d["fit"]["items"]].count("ok"))')" "(True, 6)"
same 'inspect: geometry' "$(json "$work/out" '(d["geometry"]["taps"], d["geometry"]["block_size"], d["geometry"]["mask_token_id"])')" \
  "([1, 8, 14, 20, 27], 16, 16)"
run inspect "$draft"
has 'inspect: long arrays are elided' "$out" '^tokenizer.ggml.tokens +string.49152. .*\.\.\.\]$'
has 'inspect: totals' "$out" '^total +58 +19,361,152 +20,593,408 '
folder=$(model smollm2-135m-instruct-dflash)
if [ -n "$folder" ]; then
  run inspect "$folder" "${m[@]}" --json
  expect 'a folder that fits' 0
  same 'a folder: no tokenizer to compare' "$(json "$work/out" '[i["verdict"] for i in d["fit"]["items"] if i["name"] == "tokenizer"]')" \
    "['not stated']"
else skip 'no draft folder' 2; fi
if [ -n "$other_draft" ]; then
  run inspect "$other_draft" "${m[@]}"
  expect 'a draft that does not fit' 1
  has 'a draft that does not fit: width' "$out" '^width +576 +1536 +DIFFERS'
  has 'a draft that does not fit: tokenizer' "$out" '^tokenizer .*DIFFERS'
else skip 'no other draft' 3; fi

# ---- demo
run demo "${md[@]}" -n 6
expect 'demo' 0
has 'demo: table' "$out" '^total +18 .* yes$'
has 'demo: verdict' "$out" 'identical with and without'
run demo "${m[@]}" -n 2
expect 'demo without draft' 2 'no draft given'
finish
