#!/usr/bin/env bash
# The test runner's selection and memory, the table of suites, and the grammar of commands in comments.
set -uo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
passed=0
failed=0
ok() { passed=$((passed + 1)); }
bad() { failed=$((failed + 1)); echo "FAIL $1"; shift; printf '%s\n' "$@" | sed 's/^/  /'; }

# ---- a tree of four tests
mkdir -p "$work"/r/tests/{unit,kernels,e2e} "$work/r/b/tests"
cp "$root/tests/run" "$work/r/tests/run"
program() { # FOLDER NAME SCRIPT
  : >"$work/r/tests/$1/$2.c"
  printf '#!/bin/sh\n%s\n' "$3" >"$work/r/b/tests/$2"
  chmod +x "$work/r/b/tests/$2"
}
good='echo "[  PASSED  ] 1 test(s)."'
program unit test_a "$good"
program unit test_b "$good"
program kernels test_c "$good"
echo 'echo "2 passed, 0 failed"' >"$work/r/tests/e2e/d.sh"
cat >"$work/r/tests/suites.txt" <<'T'
# a comment
unit/test_a    one  two   # behind the line too
unit/test_?    three
e2e/*.sh       two
T
out=
code=0
runner() {
  code=0
  out=$("$root/tests/run" --root "$work/r" --build "$work/r/b" "$@" 2>&1) || code=$?
}
last() { # WHAT CODE LAST-LINE
  if [ "$code" -eq "$2" ] && [ "$(tail -n 1 <<<"$out")" = "$3" ]; then ok; else bad "$1 (exit $code)" "$out"; fi
}
listed() { # WHAT NAMES OPTION...
  local what=$1 want=$2
  shift 2
  runner --list "$@"
  local got
  got=$(awk '{ print $1 }' <<<"$out" | paste -sd ' ')
  if [ "$code" -eq 0 ] && [ "$got" = "$want" ]; then ok; else bad "$what (exit $code)" "got:    $got" "wanted: $want"; fi
}
listed 'everything' 'unit/test_a unit/test_b kernels/test_c e2e/d.sh'
listed 'a folder' 'unit/test_a unit/test_b' --suite unit
listed 'a suite' 'unit/test_a e2e/d.sh' --suite two
listed 'a pattern in the table' 'unit/test_a unit/test_b' --suite three
listed 'two suites, no test twice' 'unit/test_a unit/test_b' --suite one,three
listed 'single tests' 'unit/test_b e2e/d.sh' --suite unit/test_b,e2e/d.sh
listed 'a filter' 'unit/test_b' --filter '_b$'
listed 'a filter within a suite' '' --suite one --filter '_b$'
listed 'all but a suite' 'unit/test_b' --suite unit --without one
listed 'all but a test' 'unit/test_a' --suite unit --without unit/test_b
listed 'first share' 'unit/test_a kernels/test_c' --shard 1/2
listed 'second share' 'unit/test_b e2e/d.sh' --shard 2/2
listed 'more shares than tests' '' --shard 5/5
runner --list
if grep -qE '^unit/test_a +one three two$' <<<"$out"; then ok; else bad 'suites are listed' "$out"; fi
runner --shard 3/2; last 'a share that is none' 2 'run: error: argument --shard: "3/2" is no share: write 1/3, 2/3 or 3/3'
runner --filter '('; if [ "$code" -eq 2 ]; then ok; else bad 'a broken filter' "$out"; fi
runner --suite thre; last 'a misspelt suite' 2 'tests/run: there is no suite or test "thre", did you mean "three"?'
runner --suite zzzzzz
last 'an unknown suite' 2 \
  'tests/run: there is no suite or test "zzzzzz"; suites: e2e fuzz golden kernels one three tools two unit'
runner; last 'all pass' 0 '5 passed, 0 failed'
runner --failed; last 'nothing failed' 0 '0 passed, 0 failed'
runner --shard 5/5; last 'an empty share' 0 '0 passed, 0 failed'
runner --filter zzz; last 'nothing matches' 1 '0 passed, 1 failed'

# ---- what failed is remembered until it passes
program unit test_b 'echo "[  FAILED  ] 1 test(s), listed below:"; exit 1'
program kernels test_c 'exit 3'
runner; last 'two failures' 1 '3 passed, 2 failed'
listed 'the failed ones' 'unit/test_b kernels/test_c' --failed
runner --suite unit/test_a
listed 'others do not wipe the memory' 'unit/test_b kernels/test_c' --failed
program unit test_b "$good"
runner --failed; last 'one is repaired' 1 '1 passed, 1 failed'
listed 'one is left' 'kernels/test_c' --failed
listed 'within a suite' '' --failed --suite unit
echo 'not JSON' >"$work/r/b/last-tests.json"
runner --failed; last 'a broken memory' 0 '0 passed, 0 failed'

# ---- mistakes in the table
table() { # WHAT LINE MESSAGE
  printf '%s\n' "$2" >"$work/r/tests/suites.txt"
  runner --list
  last "$1" 2 "tests/run: tests/suites.txt:1: $3"
}
table 'a test that is gone' 'unit/test_gone x' 'there is no test "unit/test_gone"'
table 'no suite' 'unit/test_a' 'a test and its suites are expected'
table 'a strange name' 'unit/test_a x;y' 'a test and its suites are expected'
if "$root/tests/run" --list >/dev/null; then ok; else bad 'the table of this tree'; fi
for suite in attn-dense attn-swa attn-policy dflash format text cli; do
  if [ -n "$("$root/tests/run" --list --suite $suite)" ]; then ok; else bad "suite $suite is empty"; fi
done
if [ "$("$root/tools/run-tests" --list)" = "$("$root/tests/run" --list)" ]; then ok; else bad 'tools/run-tests is the same'; fi

# ---- commands in comments
comment() { # WHAT CODE OUTPUT TEXT
  local got code=0
  got=$(printf '%b' "$4" | "$root/tools/ci-comment" 2>"$work/err") || code=$?
  if [ "$code" -eq "$2" ] && [ "$(paste -sd ' ' <<<"$got")" = "$3" ]; then ok
  else bad "comment: $1 (exit $code)" "$got" "$(cat "$work/err")"; fi
  if [ "$code" -eq 0 ] || { [ -z "$got" ] && [ "$(wc -l <"$work/err")" -eq 1 ]; }; then ok
  else bad "comment: $1: one line says why" "$got" "$(cat "$work/err")"; fi
}
comment 'a suite' 0 'action=rerun-test name=attn-dense' '/rerun-test attn-dense'
comment 'a folder' 0 'action=rerun-test name=unit' '/rerun-test unit\n'
comment 'a test' 0 'action=rerun-test name=unit/test_accept' '/rerun-test  unit/test_accept \r\nplease'
comment 'a script' 0 'action=rerun-test name=e2e/mask_corruption.sh' '/rerun-test e2e/mask_corruption.sh'
comment 'failed jobs' 0 'action=rerun-failed-ci' '/rerun-failed-ci'
comment 'label' 0 'action=tag-and-rerun-ci' '/tag-and-rerun-ci\n\nthanks'
comment 'a text' 0 'action=none' 'Looks good to me'
comment 'nothing' 0 'action=none' ''
comment 'another command' 0 'action=none' '/assign @somebody'
comment 'nearly a command' 0 'action=none' '/rerun-tests attn-dense'
comment 'not on the first line' 0 'action=none' 'hello\n/rerun-test attn-dense'
comment 'quoted' 0 'action=none' '> /rerun-test attn-dense'
comment 'indented' 0 'action=none' ' /rerun-test attn-dense'
comment 'no name' 2 '' '/rerun-test'
comment 'two names' 2 '' '/rerun-test unit kernels'
comment 'a list' 2 '' '/rerun-test unit,kernels'
comment 'an unknown name' 2 '' '/rerun-test attn-sparse'
comment 'an argument too many' 2 '' '/rerun-failed-ci now'
comment 'a shell command' 2 '' '/rerun-test unit;id'
comment 'a substitution' 2 '' '/rerun-test $(id)'
comment 'backticks' 2 '' '/rerun-test `id`'
comment 'a quote' 2 '' '/rerun-test unit"'
comment 'an option' 2 '' '/rerun-test --build=/tmp'
comment 'a path' 2 '' '/rerun-test ../../etc/passwd'
comment 'a pattern' 2 '' '/rerun-test unit/*'
comment 'upper case' 2 '' '/rerun-test UNIT'
comment 'another kind of blank' 0 'action=none' '/rerun-test\tunit'
comment 'a carriage return inside' 2 '' '/rerun-test unit\rname=evil'
comment 'a second output line' 0 'action=rerun-test name=unit' '/rerun-test unit\nname=evil\naction=evil'
comment 'other letters' 2 '' '/rerun-test un\xc4\xb1t'
comment 'broken text' 2 '' '/rerun-test \xff\xfe'
comment 'a zero byte' 2 '' '/rerun-test unit\0kernels'
if [ "$(head -c 300000 /dev/zero | tr '\0' x | "$root/tools/ci-comment")" = action=none ]; then ok; else bad 'comment: a long one'; fi

# ---- workflows: nothing a user wrote is part of a shell line
python3 - "$root" <<'P' && ok || bad 'workflows pass values through the environment'
import re, sys
bad = 0
for name in ("ci.yml", "comment-commands.yml"):
    text, block = open(f"{sys.argv[1]}/.github/workflows/{name}").read().split("\n"), None
    for number, line in enumerate(text, 1):
        indent = len(line) - len(line.lstrip())
        m = re.match(r"\s*(?:- )?run:(.*)", line)
        if m:
            block = indent if m[1].strip() == "|" else None
            code = m[1]
        elif block is not None and (not line.strip() or indent > block):
            code = line
        else:
            block, code = None, ""
        if re.search(r"\$\{\{(?!\s*matrix\.)", code):
            print(f"{name}:{number}: {line.strip()}")
            bad = 1
sys.exit(bad)
P

echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
