#!/usr/bin/env bash
# The checking tools see what they are made to see: good trees pass, one bad tree per rule fails with its message.
set -uo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
passed=0
failed=0

ok() { passed=$((passed + 1)); }
bad() { failed=$((failed + 1)); echo "FAIL $1"; shift; printf '  %s\n' "$@"; }

fresh() {
  rm -rf "$work/t"
  mkdir -p "$work"/t/src/{base,format,text,kernels,device,kv,attention,model,engine,cli} "$work"/t/{include/dflash,tests/unit}
  echo '#define A 1' >"$work/t/src/base/mem.h"
  echo '#define A 1' >"$work/t/src/kv/pages.h"
  echo '#define A 1' >"$work/t/src/engine/engine.h"
  echo '#define A 1' >"$work/t/src/text/utf8.h"
  echo '#define A 1' >"$work/t/include/dflash/status.h"
  printf '%s\n' '#include <stdio.h>' '#include "base/mem.h"' '#include "dflash/status.h"' 'int x(void) { return 1; }' \
    >"$work/t/src/model/good.c"
}

# expect TOOL RULE PATTERN: the tree in $work/t fails and says PATTERN
expect() {
  local out code=0
  out=$("$root/tools/$1" "$work/t" 2>&1) || code=$?
  if [ "$code" -eq 1 ] && grep -qE -- "$3" <<<"$out"; then ok; else bad "$1: $2 (exit $code, wanted /$3/)" "$out"; fi
}

expect_clean() {
  local out
  if out=$("$root/tools/$1" "$work/t" 2>&1); then ok; else bad "$1: $2 should pass" "$out"; fi
}

include() { # FILE INCLUDE: adds one include line to a file of a fresh tree
  fresh
  echo "#include $2" >>"$work/t/$1"
}

source_line() { # FILE LINE: adds one line to a file of a fresh tree
  fresh
  printf '%s\n' "$2" >>"$work/t/$1"
}

for tool in fetch-flashinfer make-results run-bench check-lm-eval; do # --help starts nothing
  if out=$("$root/tools/$tool" --help 2>&1) && grep -q "tools/$tool" <<<"$out"; then ok; else bad "$tool --help" "$out"; fi
done
mkdir "$work/no-lm-eval"
echo 'raise ImportError("none", name="lm_eval")' >"$work/no-lm-eval/lm_eval.py"
if out=$(PYTHONPATH=$work/no-lm-eval "$root/tools/check-lm-eval" x 1 "$work/lm" 2>&1); then
  bad 'check-lm-eval without lm-eval' "$out"
elif [[ $out == "check-lm-eval: lm_eval is not installed: python3 -m pip install "* ]]; then
  ok
else
  bad 'check-lm-eval without lm-eval: what is said' "$out"
fi

fresh; expect_clean check-includes 'good tree'
include src/base/a.c '"kv/pages.h"'; expect check-includes 'upward include' 'src/base/a.c:1: layer "base" must not include "kv/pages.h"'
include src/model/a.c '"engine/engine.h"'; expect check-includes 'model includes engine' 'layer "model" must not include'
include src/format/a.c '"text/utf8.h"'; expect check-includes 'siblings' 'layer "format" must not include'
include src/kv/a.c '"attention/x.h"'; echo '#define B' >"$work/t/src/attention/x.h"; expect check-includes 'kv includes attention' 'layer "kv" must not'
include src/attention/a.c '"kv/pages.h"'; expect_clean check-includes 'attention may include kv'
include src/model/a.c '<jansson.h>'; expect check-includes 'jansson outside json.c' 'belongs to src/format/json.c'
include src/format/a.c '<jansson.h>'; expect check-includes 'jansson beside json.c' 'belongs to src/format/json.c'
include src/format/json.c '<jansson.h>'; expect_clean check-includes 'jansson in json.c'
include src/model/a.c '<pcre2.h>'; expect check-includes 'pcre2 outside text' 'belongs to src/text/'
include src/engine/a.c '<curl/curl.h>'; expect check-includes 'curl outside cli' 'belongs to src/cli/'
include src/engine/a.c '<histedit.h>'; expect check-includes 'libedit outside cli' 'belongs to src/cli/'
include src/model/a.c '"base/missing.h"'; expect check-includes 'missing header' 'does not exist'
include src/model/a.c '<base/mem.h>'; expect check-includes 'project header in angles' 'use quotes'
include include/dflash/a.h '"base/mem.h"'; expect check-includes 'public header includes internal one' 'only public headers'
fresh; mkdir -p "$work/t/src/misc"; echo '#include "base/mem.h"' >"$work/t/src/misc/a.c"; expect check-includes 'unknown folder' 'in no layer'
rm -rf "$work/t"; mkdir "$work/t"; expect check-includes 'empty tree' '0 files'

long_function() { # LINES
  echo 'int f(int a,'
  echo '      int b) {'
  for ((i = 0; i < $1 - 3; i++)); do echo '  a++;'; done
  echo '}'
}

fresh; expect_clean checksrc 'good tree'
source_line src/model/a.c 'void f(char *a) { strcpy(a, "x"); }'; expect checksrc 'banned call' 'a.c:1: strcpy is banned'
source_line tests/unit/a.c 'int f(char *a) { return atoi(a); }'; expect checksrc 'banned call in a test' 'atoi is banned'
source_line src/model/a.c '/* strcpy(a, b) */ static const char *k = "gets(x)";'; expect_clean checksrc 'calls in comments and strings'
source_line src/model/a.c 'void *f(void) { return malloc(3); }'; expect checksrc 'malloc' 'malloc outside src/base/mem.c'
source_line src/model/a.c 'void f(char *s) { free(s); } // checksrc: allow free'; expect_clean checksrc 'exempt line'
source_line src/model/a.c 'void f(struct o *s) { s->free(s); df_free(s); }'; expect_clean checksrc 'members and own functions'
source_line tests/unit/a.c 'void *f(void) { return malloc(3); }'; expect_clean checksrc 'malloc in a test'
source_line src/base/mem.c 'void *f(void) { return malloc(3); }'; expect_clean checksrc 'malloc in mem.c'
source_line src/model/a.c 'void f(int a) { assert(a++ > 1); }'; expect checksrc 'assert ++' 'assert with a side effect'
source_line src/model/a.c 'void f(int a) { assert((a = 1)); }'; expect checksrc 'assert =' 'assert with a side effect'
source_line src/model/a.c 'void f(int a) { assert(a >= 1 && a <= 2 && a != 3 && a == 1); }'; expect_clean checksrc 'assert with comparisons'
source_line src/model/a.c '/* TODO faster */'; expect checksrc 'TODO' 'TODO without a number'
source_line src/model/a.c '/* TODO(#12) faster */'; expect_clean checksrc 'TODO with a number'
source_line src/model/a.c "$(printf '/* %0120d */' 1)"; expect checksrc 'long line' 'line has 126 characters'
source_line src/model/a.c "$(printf 'int\tx;')"; expect checksrc 'tab' 'a.c:1: tab'
source_line src/model/a.c 'int x; '; expect checksrc 'trailing blank' 'blank at the end'
fresh; printf 'int x;' >"$work/t/src/model/a.c"; expect checksrc 'no final newline' 'no newline'
source_line src/kv/good.c 'int y;'; expect checksrc 'same name' 'same file name as src/kv/good.c|same file name as src/model/good.c'
source_line src/engine/a.c 'int f(struct b *b) { return strcmp(b->name, "naive"); }'; expect checksrc 'backend name' 'must not depend on a backend'
source_line src/cli/a.c 'int f(struct b *b) { return strcmp(b->name, "naive"); }'; expect_clean checksrc 'names elsewhere'
fresh; long_function 120 >"$work/t/src/model/a.c"; expect_clean checksrc 'function of 120 lines'
fresh; long_function 121 >"$work/t/src/model/a.c"; expect checksrc 'function of 121 lines' 'function f has 121 lines'
fresh; long_function 61 >"$work/t/src/model/a.c"
said=$("$root/tools/checksrc" "$work/t")
if grep -q 'warning: function f has 61 lines' <<<"$said"; then ok; else bad 'checksrc: warning at 61 lines' "$said"; fi
fresh; for i in $(seq 1001); do echo "int x$i;"; done >"$work/t/src/model/a.c"; expect checksrc 'file of 1001 lines' 'file has 1001 lines'
sed -i '1s|$| /* checksrc: table */|' "$work/t/src/model/a.c"; expect_clean checksrc 'table of 1001 lines'

# The test runner: totals, crashes, timeouts, missing programs.
runner_tree() {
  rm -rf "$work/r"
  mkdir -p "$work/r/tests/unit" "$work/r/tests/tools" "$work/r/b/tests"
}
program() { # NAME SCRIPT
  : >"$work/r/tests/unit/$1.c"
  printf '#!/bin/sh\n%s\n' "$2" >"$work/r/b/tests/$1"
  chmod +x "$work/r/b/tests/$1"
}
runs() { # WHAT EXIT LAST-LINE [OPTION...]
  local what=$1 want=$2 last=$3 out code=0
  shift 3
  out=$("$root/tools/run-tests" --root "$work/r" --build "$work/r/b" "$@" 2>&1) || code=$?
  if [ "$code" -eq "$want" ] && [ "$(tail -n 1 <<<"$out")" = "$last" ]; then ok; else bad "run-tests: $what" "$out"; fi
}
runner_tree; program test_a 'echo "[  PASSED  ] 3 test(s)."'; runs 'all pass' 0 '3 passed, 0 failed'
program test_b 'echo "[  PASSED  ] 1 test(s)."; echo "[  SKIPPED ] 2 test(s), listed below:"'; runs 'skips' 0 '4 passed, 0 failed, 2 skipped'
program test_c 'echo "[  PASSED  ] 1 test(s)."; echo "[  FAILED  ] 1 test(s), listed below:"; exit 1'; runs 'failure' 1 '5 passed, 1 failed, 2 skipped'
runner_tree; program test_a 'echo "[  PASSED  ] 3 test(s)."; kill -SEGV $$'; runs 'crash after success' 1 '3 passed, 1 failed'
runner_tree; program test_a 'exit 0'; runs 'no test' 1 '0 passed, 1 failed'
runner_tree; program test_a 'echo "[  PASSED  ] 3 test(s)."; exit 3'; runs 'bad exit code' 1 '3 passed, 1 failed'
runner_tree; program test_a 'sleep 60'; runs 'timeout' 1 '0 passed, 1 failed' --timeout 1
runner_tree; : >"$work/r/tests/unit/test_gone.c"; runs 'not built' 1 '0 passed, 1 failed'
runner_tree; runs 'nothing at all' 1 '0 passed, 1 failed'
runner_tree; echo 'echo "9 passed, 9 failed"; echo "2 passed, 0 failed"' >"$work/r/tests/tools/x.sh"; runs 'script' 0 '2 passed, 0 failed'

# Ending the runner ends the test it is in.
runner_tree; program test_a "echo \$\$ >$work/r/pid; sleep 60"
"$root/tools/run-tests" --root "$work/r" --build "$work/r/b" >/dev/null 2>&1 & runner=$!
for ((i = 0; i < 100; i++)); do [ -s "$work/r/pid" ] && break; sleep 0.1; done
kill -TERM "$runner"; wait "$runner"
sleep 0.2
# Gone, or dead and not yet collected by the system.
alive() { kill -0 "$1" 2>/dev/null && ! grep -q '^State:[[:space:]]*[ZX]' "/proc/$1/status" 2>/dev/null; }
if [ -s "$work/r/pid" ] && ! alive "$(cat "$work/r/pid")"; then ok; else bad 'run-tests: left a test behind'; fi

echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
