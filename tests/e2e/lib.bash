# Shared by the scripts of this folder: the program, the models, checks with counting. Source it, call finish last.
#
#   DFLASH            the program (default build/release/dflash, then build/dflash)
#   DF_TEST_MODELS    more folders with models, separated by colons
set -uo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
passed=0
failed=0
skipped=0
work=$(mktemp -d)
cleanups=()

cleanup() {
  for c in "${cleanups[@]+"${cleanups[@]}"}"; do eval "$c"; done
  rm -rf "$work"
}
trap cleanup EXIT

dflash=${DFLASH-}
for candidate in "$root/build/release/dflash" "$root/build/dflash"; do
  if [ -z "$dflash" ] && [ -x "$candidate" ]; then dflash=$candidate; fi
done
if [ ! -x "$dflash" ]; then
  echo "the program is not built: \"$dflash\""
  echo '0 passed, 1 failed'
  exit 1
fi
dflash=$(realpath "$dflash")

# The program must not see the caller's settings.
for v in $(compgen -e | grep '^DF_' | grep -v -e '^DF_CACHE_DIR$' -e '^DF_TEST_MODELS$'); do unset "$v"; done
unset NO_COLOR CLICOLOR CLICOLOR_FORCE HF_ENDPOINT HF_TOKEN HF_HUB_OFFLINE http_proxy https_proxy all_proxy HTTP_PROXY \
  HTTPS_PROXY ALL_PROXY
export XDG_STATE_HOME=$work/state

# model NAME: path of a model file by its name in any of the usual places, or nothing
model() {
  local dirs d
  dirs="${DF_TEST_MODELS-}:${DF_CACHE_DIR-}:$HOME/.cache/dflash:/root/models:$root/models"
  IFS=: read -ra dirs <<<"$dirs"
  for d in "${dirs[@]}"; do
    if [ -n "$d" ] && [ -e "$d/$1" ]; then
      echo "$d/$1"
      return
    fi
  done
}
target=$(model SmolLM2-135M-Instruct.Q4_1.gguf)
draft=$(model smollm2-135m-instruct-dflash.Q8_0.gguf)
other_target=$(model Qwen2.5-Coder-1.5B-Instruct.Q4_K_M.gguf)
other_draft=$(model qwen2.5-coder-1.5b-instruct-dflash.Q8_0.gguf)
unset DF_CACHE_DIR

ok() {
  passed=$((passed + 1))
}
bad() {
  failed=$((failed + 1))
  printf 'FAIL %s\n' "$1"
  if [ -n "${2-}" ]; then printf '%s\n' "$2" | head -n 20 | sed 's/^/     | /'; fi
}
skip() {
  skipped=$((skipped + ${2:-1}))
  printf 'skip %s\n' "$1"
}

# run ARGUMENTS...: runs the program; leaves status, out and err (texts)
run() {
  status=0
  "$dflash" "$@" >"$work/out" 2>"$work/err" || status=$?
  out=$(tr -d '\0' <"$work/out")
  err=$(tr -d '\0' <"$work/err")
}

# expect WHAT STATUS [PATTERN-IN-ERR]: checks the last run; the error text must match the regular expression
expect() {
  if [ "$status" -ne "$2" ]; then
    bad "$1: exit status $status, expected $2" "$err"
  elif [ -n "${3-}" ] && ! grep -qE -- "$3" <<<"$err"; then
    bad "$1: no line matches \"$3\"" "$err"
  else
    ok
  fi
}
# same WHAT GOT WANTED
same() {
  if [ "$2" = "$3" ]; then ok; else bad "$1" "got:    $2
wanted: $3"; fi
}
# has WHAT TEXT PATTERN
has() {
  if grep -qE -- "$3" <<<"$2"; then ok; else bad "$1: nothing matches \"$3\"" "$2"; fi
}
# hasnt WHAT TEXT PATTERN
hasnt() {
  if grep -qE -- "$3" <<<"$2"; then bad "$1: something matches \"$3\"" "$2"; else ok; fi
}
# json FILE EXPRESSION: evaluates a Python expression over the value d of a JSON file
json() {
  python3 -c 'import json, sys; d = json.load(open(sys.argv[1])); print(eval(sys.argv[2]))' "$1" "$2"
}

finish() {
  if [ "$skipped" -gt 0 ]; then echo "$passed passed, $failed failed, $skipped skipped"
  else echo "$passed passed, $failed failed"; fi
  [ "$failed" -eq 0 ]
}
