#!/usr/bin/env bash
# Models with F8_E4M3 weights, made up on the spot, through the whole engine: the same bits in every tier and however
# they are computed, near the same values in F32, and one line for what cannot be used.
. "$(dirname "$0")/lib.bash"

text=$work/text.txt
echo 'The quick brown fox jumps over the lazy dog. Pack my box with five dozen liquor jugs.' >"$text"
for kind in tensor rows blocks f32; do
  mkdir "$work/$kind"
  python3 "$root/tests/tools/make_fp8_model.py" "$work/$kind" $kind || exit 1
done

nll() {
  run perplexity -m "$work/$1" -f "$text" --json "${@:2}"
  expect "perplexity of $1 ${*:2}" 0
  json "$work/out" 'd["mean_nll"]'
}

for kind in tensor rows blocks; do
  run check -m "$work/$kind" --logits -n 4 --json
  expect "check $kind" 0
  same "check $kind: nothing differs" "$(json "$work/out" '(d["combinations"] == d["identical"], d["combinations"] >= 96)')" \
    '(True, True)'
done
best=$(nll blocks)
same 'the tiers agree to the last bit' "$(nll blocks --cpu ref)" "$best"
plain=$(nll f32)
same 'near the same values in F32' "$(python3 -c "print(abs($best - $plain) < 0.002 and $best != $plain)")" 'True'
run inspect "$work/blocks"
has 'inspect names the type' "$out" 'F8_E4M3'

sed 's/_scale_inv/_scale_xyz/g' "$work/blocks/model.safetensors" >"$work/tensor/model.safetensors"
run run -m "$work/tensor" -p x -n 1
if [ $status -ne 0 ]; then ok; else bad 'a model without scales runs'; fi
has 'what is missing is said' "$err" '_scale'
finish
