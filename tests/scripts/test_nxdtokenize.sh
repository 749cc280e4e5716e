#!/usr/bin/env bash
# nxdtokenize writes the bytes of texts as ids of 16 bits, and what there is to know of them.
# usage: test_nxdtokenize.sh SOURCE_DIR BUILD_DIR
set -euo pipefail
. "$(dirname "$0")/lib.sh"
need_commands python3
nxdtokenize=$2/tools/nxdtokenize
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

fail() { echo "FAILED: $*"; cat "$work"/out "$work"/err; exit 1; }
run() { "$nxdtokenize" "$@" > "$work/out" 2> "$work/err"; }
refuses() {
  local code=$1 message=$2 got=0
  shift 2
  run "$@" || got=$?
  [[ $got == "$code" ]] || fail "nxdtokenize $*: exit $got instead of $code"
  grep -qF -- "$message" "$work/err" || fail "nxdtokenize $*: no \"$message\""
}

printf 'h\xc3\xa9\0\n' > "$work/a.txt"
head -c 3000001 /dev/urandom > "$work/b.txt" # more than is held at a time
: > "$work/empty.txt"
for end in "" --end-of-text; do
  run $end "$work/a.txt" "$work/empty.txt" "$work/b.txt" "$work/ids.bin" || fail "tokenize $end"
  python3 - "$work" "$end" << 'PY' || fail "ids $end"
import array
import json
import sys
work, end = sys.argv[1:]
wanted = array.array("H")
for name in ("a", "empty", "b"):
    wanted.extend(open(f"{work}/{name}.txt", "rb").read())
    if end:
        wanted.append(256)
ids = array.array("H", open(f"{work}/ids.bin", "rb").read())
note = json.load(open(f"{work}/ids.bin.json"))
expected = {"tokenizer": "bytes", "format": "uint16", "vocab_size": 257 if end else 256, "tokens": len(wanted)}
if end:
    expected["end_of_text"] = 256
sys.exit(ids != wanted or note != expected)
PY
done

# A run that is killed once it has written the note leaves none of the ids that were there before.
python3 - "$nxdtokenize" "$work" > "$work/out" 2> "$work/err" << 'PY' || fail "a run that is killed"
import json
import os
import subprocess
import sys
tool, work = sys.argv[1:]
ids, note = f"{work}/killed.bin", f"{work}/killed.bin.json"
for _ in range(5):
    subprocess.run([tool, f"{work}/a.txt", ids], check=True)
    before = os.stat(note).st_ino
    run = subprocess.Popen([tool, f"{work}/b.txt", ids])
    while os.stat(note).st_ino == before and run.poll() is None:
        pass
    run.kill()
    run.wait()
    tokens = json.load(open(note))["tokens"]
    assert not os.path.exists(ids) or os.path.getsize(ids) == 2 * tokens, tokens
PY

run --help && grep -q -- '--end-of-text' "$work/out" || fail help
refuses 2 'expected TEXT and OUT, got 1' "$work/a.txt"
cp "$work/b.txt" "$work/kept.txt" # without OUT the last text would be it
refuses 2 'b.txt: expected OUT as the last argument' "$work/a.txt" "$work/b.txt"
cmp "$work/b.txt" "$work/kept.txt" || fail "a text was written over"
cp "$work/b.txt" "$work/b.md"
refuses 2 'b.md: expected OUT as the last argument' "$work/a.txt" "$work/b.md"
cmp "$work/b.md" "$work/kept.txt" || fail "a text without .txt was written over"
# The note of the ids has the name of the text.
cp "$work/b.txt" "$work/corpus.json"
refuses 2 'corpus.json: expected an OUT by which no TEXT is written over' "$work/corpus.json" "$work/corpus"
refuses 2 'corpus.json: expected an OUT by which no TEXT is written over' "$work/corpus.json" "$work/./corpus.json"
cmp "$work/corpus.json" "$work/kept.txt" && [[ ! -e $work/corpus ]] || fail "a text was written over by a note"
# A file that is no note of its own, such as a model's, is not taken for one.
cp "$work/b.txt" "$work/model.json"
refuses 2 'model.json: expected a note of ids' "$work/a.txt" "$work/model"
: > "$work/none.json"
refuses 2 'none.json: expected a note of ids' "$work/a.txt" "$work/none"
cmp "$work/model.json" "$work/kept.txt" && [[ ! -e $work/model ]] || fail "another file was written over by a note"
refuses 2 'ids.u32: expected OUT as the last argument' "$work/a.txt" "$work/ids.u32"
refuses 2 'tokenizer.json: unsupported' --tokenizer tokenizer.json "$work/a.txt" "$work/x.bin"
refuses 1 'absent.txt: cannot open' "$work/a.txt" "$work/absent.txt" "$work/x.bin"
refuses 1 'expected a regular file, got a directory' "$work" "$work/x.bin"
[[ ! -e $work/x.bin && ! -e $work/x.bin.json ]] || fail "something is left behind"
echo "nxdtokenize: bytes, notes and refusals"
