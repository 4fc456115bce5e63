#!/usr/bin/env bash
# The command line itself: help, wrong usage, bad inputs. Needs no model for most of it.
. "$(dirname "$0")/lib.bash"

run
expect 'no arguments' 2 'Usage'
run help
expect 'help' 0
has 'help lists the verbs' "$out" '^  perplexity '
run --help
expect '--help' 0
for verb in run chat demo perplexity tokenize inspect pull check doctor version completion; do
  run help "$verb"
  expect "help $verb" 0
  first=$out
  run "$verb" --help
  expect "$verb --help" 0
  same "help $verb and $verb --help agree" "$out" "$first"
done
run run --help=penalty
has '--help=keyword' "$out" 'frequency-penalty'
hasnt '--help=keyword hides the rest' "$out" '--ctx-size'
run --version
has '--version' "$out" '^dflash [0-9]+\.[0-9]+\.[0-9]+'
run --cpu-info
has '--cpu-info' "$out" '^processor '
run version --json
same 'version --json' "$(json "$work/out" 'sorted(d)[0:4]')" "['compiler', 'cpu', 'cuda', 'features']"

run man
same 'manual page is the committed one' "$(sha256sum <"$work/out")" "$(sha256sum <"$root/man/dflash.1")"
for shell in bash zsh fish; do
  run completion $shell
  expect "completion $shell" 0
done
run completion bash
same 'bash completion of a flag' \
  "$(bash -c 'source "$1"; COMP_WORDS=(dflash run --repeat-p); COMP_CWORD=2; _dflash; echo "${COMPREPLY[@]}"' - "$work/out")" \
  '--repeat-penalty'
same 'bash completion of a choice' \
  "$(bash -c 'source "$1"; COMP_WORDS=(dflash run --cpu av); COMP_CWORD=3; _dflash; echo "${COMPREPLY[@]}"' - "$work/out")" \
  'avx2 avxvnni avx512'
same 'bash completion of a verb' \
  "$(bash -c 'source "$1"; COMP_WORDS=(dflash tok); COMP_CWORD=1; _dflash; echo "${COMPREPLY[@]}"' - "$work/out")" 'tokenize'
run completion tcsh
expect 'completion for an unknown shell' 2 'bash, zsh, fish'

# ---- wrong usage: status 2, one line and perhaps a hint, nothing on standard output
usage() {
  local what=$1 pattern=$2
  shift 2
  run "$@"
  expect "$what" 2 "$pattern"
  same "$what: standard output is empty" "$out" ''
  if [ "$(grep -c . <<<"$err")" -gt 2 ]; then bad "$what: more than two lines" "$err"; else ok; fi
}
usage 'unknown verb' 'did you mean "chat"' chta
usage 'verb missing' 'a verb comes first' -m x
usage 'unknown flag' 'did you mean "--temperature"' run --temprature 1
usage 'flag of another verb' 'belongs to: pull' run --list
usage 'flag of another engine' 'a model runs on one device as a whole' run -m x -ngl 99
usage 'removed flag' 'use --spec-draft-n-max' run -m x --draft-max 4
usage 'no model' 'no model given' run -p x
usage '-n 0' '-n needs a whole number from 1' run -m x -p x -n 0
usage '-n -5' '-n needs a whole number from 1' run -m x -p x -n -5
usage '-c too large' '-c needs a whole number from 2 to 1048576' run -m x -p x -c 16777216
usage 'value missing, an option follows' '--temp needs a value .X., but "-p" follows' run -m x --temp -p hi
usage '-n x' '-n needs a whole number' run -m x -p x -n x
usage 'value missing' 'needs a value' run -m
usage 'temperature out of range' '--temp needs a number from 0' run -m x --temp -1
usage 'unknown kernel tier' 'one of ref.avx2.avxvnni.avx512' run -m x --cpu sse2
usage 'other drafting' 'draft-dflash' run -m x --spec-type draft-eagle3
usage 'other algorithm' 'draft-dflash' run -m x --speculative-algorithm EAGLE
usage 'positional prompt' 'with -p TEXT' run -m x hello
usage '-p and -f' 'not both' run -m x -p a -f b
usage 'empty prompt' 'the prompt is empty' run -m x -p ''
usage 'width without draft' '--spec-width needs a draft' run -m x -p a --spec-width 4
usage 'widths that contradict' 'contradict' run -m x -md y -p a --spec-width 4 --spec-draft-n-max 4
usage 'two KV types' 'share one type' run -m x -p a -ctk f16 -ctv f32
DF_TOP_P=7 usage 'bad environment' 'DF_TOP_P needs a number from 0 to 1' run -m x -p a

# ---- bad inputs: status 1 (or 2 for usage), a reason, nothing on standard output
run run -m "$work/none.gguf" -p x
expect 'missing model' 1 'could not find model'
run run -m smollm2-135m-instruct -p x --cache-dir "$work/empty"
expect 'known model that is not there' 1 'dflash pull smollm2-135m-instruct'
mkdir "$work/folder"
run run -m "$work/folder" -p x
expect 'a folder without a model' 1
echo 'no model at all, only text' >"$work/text.gguf"
run run -m "$work/text.gguf" -p x
expect 'a text file as model' 1
: >"$work/empty.gguf"
run inspect "$work/empty.gguf"
expect 'an empty file' 1
printf 'GGUF\003\000\000\000\377\377\377\377\377\377\377\377' >"$work/broken.gguf"
run inspect "$work/broken.gguf"
expect 'a broken header' 1 'broken.gguf'
printf 'GGUF\003\000\000\000\020\001\000\000\000\000\000\000\040\000\000\000\000\000\000\000' >"$work/cut.gguf"
run inspect "$work/cut.gguf"
expect 'a model cut in its header' 1 '272 tensors claimed in a file of 24 bytes$'
has 'a model cut in its header: the hint' "$err" 'incomplete or damaged'
run run -m x -f "$work/none.txt"
expect 'missing prompt file' 1 'No such file'
run run -m x -f "$work/folder"
expect 'a folder as prompt' 1 'it is a folder'
printf 'good\xff\xfebad' | "$dflash" run -m x >"$work/out" 2>"$work/err"
status=$? out=$(cat "$work/out") err=$(cat "$work/err")
expect 'invalid UTF-8 on standard input' 1 'byte 0xff at offset 4'
same 'invalid UTF-8: nothing was run' "$out" ''
printf 'x\xe2\x82' >"$work/cut.txt"
run run -m x -f "$work/cut.txt"
expect 'a character cut at the end' 1 'byte 0xe2 at offset 1'

# ---- quantize never writes over what it reads, whatever the name
draft_file=$root/models/smollm2-135m-instruct-dflash.Q8_0.gguf
cp "$draft_file" "$work/in.gguf"
ln -s in.gguf "$work/soft.gguf"
ln "$work/in.gguf" "$work/hard.gguf"
before=$(sha256sum <"$work/in.gguf")
for to in "$work/in.gguf" "$work/./in.gguf" "$work/soft.gguf" "$work/hard.gguf"; do
  run quantize "$work/in.gguf" "$to" Q4_0
  expect "quantize onto itself: $(basename "$to")" 2 'is the input file itself'
  same 'quantize onto itself: one line' "$(grep -c . <<<"$err")" 1
  same 'quantize onto itself: the input is as it was' "$(sha256sum <"$work/in.gguf")" "$before"
done
run quantize "$work/soft.gguf" "$work/in.gguf" Q4_0
expect 'quantize onto what a link names' 2 'is the input file itself'
run quantize "$work/in.gguf" "$work/other.gguf" Q4_0
expect 'quantize into another file' 0
[ "$(wc -c <"$work/other.gguf")" -lt "$(wc -c <"$work/in.gguf")" ] && ok || bad 'quantize into another file: it is smaller'
run quantize "$work/in.gguf" "$work/other.gguf" Q4_0
expect 'quantize over another file' 0

# ---- prompt sets: here, beside the program, or one line that says how to name them
alone=$work/alone/bin
mkdir -p "$alone" "$work/away"
cp "$dflash" "$alone/dflash"
for what in speed accept losslessness; do
  (cd "$work/away" && "$alone/dflash" eval $what -m "$work/none.gguf" >"$work/out" 2>"$work/err")
  status=$? err=$(cat "$work/err")
  expect "eval $what without prompt sets" 1 'no folder bench/prompts here or beside the program.*--prompts-dir'
  same "eval $what without prompt sets: one line" "$(grep -c . <<<"$err")" 1
done
mkdir -p "$work/alone/share/dflash/bench"
cp -r "$root/bench/prompts" "$work/alone/share/dflash/bench/"
(cd "$work/away" && "$alone/dflash" eval speed -m "$work/none.gguf" >"$work/out" 2>"$work/err")
status=$? err=$(cat "$work/err")
expect 'eval with installed prompt sets goes on to the model' 1 'could not find model'
has 'prompt sets are installed' "$(cat "$root/cmake/install.cmake")" 'bench/prompts DESTINATION \$\{CMAKE_INSTALL_DATADIR\}/dflash/bench'

# ---- the environment
DF_COLOR=on run help
has 'DF_COLOR=on colours' "$out" $'\033'
CLICOLOR_FORCE=1 run help
has 'CLICOLOR_FORCE colours a pipe' "$out" $'\033'
NO_COLOR=1 CLICOLOR_FORCE=1 run help
hasnt 'NO_COLOR wins' "$out" $'\033'
NO_COLOR=1 run help --color on
has '--color beats NO_COLOR' "$out" $'\033'
run help
hasnt 'no colour into a pipe' "$out" $'\033'

# ---- writing
"$dflash" help >/dev/full 2>"$work/err"
status=$? err=$(cat "$work/err")
expect 'full disk' 1 'could not write to standard output: No space left'
finish
