#!/usr/bin/env bash
# --device on every verb that runs a model: what is refused, in one line with the remedy, and what doctor and version say.
. "$(dirname "$0")/lib.bash"

# ---- refused at start, on every verb; the model is not even opened
refused() { # WHAT STATUS PATTERN HINT DEVICE
  local verb
  for verb in run chat serve demo bench eval perplexity check; do
    local more=()
    if [ "$verb" = eval ]; then more=(speed); fi
    if [ "$verb" = run ]; then more=(-p x); fi
    run "$verb" "${more[@]}" -m "$work/no-such-model" --device "$5"
    expect "$verb: $1" "$2" "^dflash $verb: error: --device $5: $3"
    same "$verb: $1: one error line" "$(grep -c 'error:' <<<"$err")" 1
    has "$verb: $1: remedy" "$err" "^hint: .*$4"
  done
}
refused 'a device nobody knows' 2 'unknown device "tpu"$' 'cpu, cuda, cuda:N' tpu
for name in cuda: cuda:x cuda:-1 cuda:0: CUDA0 'cuda:9999' ''; do
  run run -p x -m "$work/no-such-model" --device "$name"
  expect "a device nobody knows: \"$name\"" 2 "^dflash run: error: --device $name: unknown device \"$name\"\$"
done

# ---- without a card: which of the reasons holds depends on the build and the machine
built=$("$dflash" version | sed -n 's/^cuda: //p')
"$dflash" version --json >"$work/v.json"
if [ "$built" = 'not built' ]; then
  same 'version --json' "$(json "$work/v.json" 'd["cuda"]')" None
  refused 'no CUDA in this build' 1 'this build has no CUDA code$' '(-DDF_CUDA=ON|--device cpu)' cuda
elif ! nvidia-smi -L >/dev/null 2>&1; then
  same 'version --json' "$(json "$work/v.json" 'd["cuda"]')" "$built"
  refused 'no card' 1 'there is no CUDA (driver|card)' '--device cpu' cuda
  refused 'no card, by number' 1 'there is no CUDA (driver|card)' '--device cpu' cuda:3
else
  skip 'there is a card here: what is said without one' 24
fi

if [ -z "$target" ]; then
  skip 'the small model is not on this machine' 9
  finish
  exit
fi
run run -m "$target" -p 'The capital of France is' -n 8 --raw --json --device cpu
expect 'the processor by name' 0
same 'the processor by name' "$(json "$work/out" 'd["device"]')" cpu
cp "$work/out" "$work/cpu.json"
run run -m "$target" -p 'The capital of France is' -n 8 --raw --json --device auto
expect 'whatever there is' 0
same 'whatever there is: the same text' "$(json "$work/out" 'd["ids"]')" "$(json "$work/cpu.json" 'd["ids"]')"
run doctor -m "$target" --device cpu
expect 'doctor' 0
has 'doctor: the device' "$out" '^device +cpu$'
if [ "$built" = 'not built' ] || ! nvidia-smi -L >/dev/null 2>&1; then
  run doctor -m "$target" --device cuda --attention-backend flashinfer --json
  expect 'doctor without a card' 1
  same 'doctor without a card: the problem' "$(json "$work/out" '[p["option"] for p in d["problems"]]')" "['device']"
  same 'doctor without a card: the rest of the plan' \
    "$(json "$work/out" '(d["device"]["name"], d["routes"]["decode"], d["aliases"][0]["backend"])')" "('cpu', ['flash'], 'flash')"
  DF_DEVICE=cuda run run -m "$target" -p x -n 1
  expect 'from the environment' 1 '--device cuda: (this build has no CUDA code|there is no CUDA)'
else
  skip 'there is a card here: doctor without one' 4
fi
finish
