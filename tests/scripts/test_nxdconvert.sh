#!/usr/bin/env bash
# nxdconvert copies weights between files, shards and dtypes, as a reader and a rounding of Python's own
# have them, shows its progress on a terminal, and refuses what it does not understand.
# usage: test_nxdconvert.sh SOURCE_DIR BUILD_DIR
set -euo pipefail
. "$(dirname "$0")/lib.sh"
need_commands python3
nxdconvert=$2/tools/nxdconvert
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

fail() { echo "FAILED: $*"; cat "$work"/out "$work"/err; exit 1; }
run() { "$nxdconvert" "$@" > "$work/out" 2> "$work/err"; }
refuses() {
  local code=$1 message=$2 got=0
  shift 2
  run "$@" || got=$?
  [[ $got == "$code" ]] || fail "nxdconvert $*: exit $got instead of $code"
  grep -qF -- "$message" "$work/err" || fail "nxdconvert $*: no \"$message\""
}

cat > "$work/model.py" << 'PY'
"""make DIR: writes a model. check FROM TO DTYPE MOST: whether TO has FROM's tensors, in files of MOST bytes."""
import glob
import json
import os
import random
import struct
import sys


def read(path):
    """name: (dtype, shape, bytes) of a file or of all files of a directory."""
    if os.path.isdir(path):
        tensors = {}
        for file in glob.glob(path + "/*.safetensors"):
            found = read(file)
            assert not found.keys() & tensors.keys(), "a name is in two files"
            tensors.update(found)
        return tensors
    content = open(path, "rb").read()
    length, = struct.unpack("<Q", content[:8])
    header = json.loads(content[8:8 + length])
    assert header.pop("__metadata__")["format"] == "pt"
    begin = 8 + length
    return {name: (t["dtype"], t["shape"], content[begin + t["data_offsets"][0]:begin + t["data_offsets"][1]])
            for name, t in header.items()}


def bf16(value):
    bits, = struct.unpack("<I", struct.pack("<f", value))
    return struct.pack("<H", (bits + 0x7fff + (bits >> 16 & 1)) >> 16)


def converted(data, dtype):
    values = struct.unpack(f"<{len(data) // 4}f", data)
    if dtype == "BF16":
        return b"".join(map(bf16, values))
    return struct.pack(f"<{len(values)}{ {'F32': 'f', 'F64': 'd', 'F16': 'e'}[dtype]}", *values)


def make(directory):
    os.mkdir(directory)
    draw = random.Random(1)
    header, data = {}, b""
    for i in range(12):
        rows = 100 * (i + 1)
        values = struct.pack(f"<{rows * 8}f", *(draw.gauss(0, 1) for _ in range(rows * 8)))
        header[f"layer.{i}.weight"] = {"dtype": "F32", "shape": [rows, 8],
                                       "data_offsets": [len(data), len(data) + len(values)]}
        data += values
    ids = struct.pack("<3q", 1, -2, 3)
    header["ids"] = {"dtype": "I64", "shape": [3], "data_offsets": [len(data), len(data) + 24]}
    text = json.dumps(header).encode()
    with open(directory + "/model.safetensors", "wb") as out:
        out.write(struct.pack("<Q", len(text)) + text + data + ids)
    json.dump({"model_type": "llama", "torch_dtype": "float32"}, open(directory + "/config.json", "w"), indent=2)
    open(directory + "/tokenizer.json", "w").write("{}")


def check(source, target, dtype, most):
    content = open(source + "/model.safetensors", "rb").read()
    length, = struct.unpack("<Q", content[:8])
    wanted = json.loads(content[8:8 + length])
    found = read(target)
    assert found.keys() == wanted.keys(), found.keys() ^ wanted.keys()
    for name, t in wanted.items():
        data = content[8 + length + t["data_offsets"][0]:8 + length + t["data_offsets"][1]]
        kind = "I64" if name == "ids" else dtype
        assert found[name] == (kind, t["shape"], data if name == "ids" else converted(data, dtype)), name
    files = glob.glob(target + "/*.safetensors") if os.path.isdir(target) else [target]
    if most:
        assert len(files) > 3
        index = json.load(open(target + "/model.safetensors.index.json"))
        assert index["weight_map"].keys() == found.keys()
        assert all(name in read(f"{target}/{file}") for name, file in index["weight_map"].items())
        assert index["metadata"]["total_size"] == sum(len(t[2]) for t in found.values())
        for file in files:
            assert sum(len(t[2]) for t in read(file).values()) <= most, file
    else:
        assert len(files) == 1


if sys.argv[1] == "make":
    make(sys.argv[2])
else:
    check(sys.argv[2], sys.argv[3], sys.argv[4], int(sys.argv[5]))
PY
model() { python3 "$work/model.py" "$@" > "$work/out" 2> "$work/err" || fail "$*"; }

model make "$work/hf"
run --help && grep -q -- '--max-shard-size' "$work/out" || fail help
run --dtype bf16 --max-shard-size 40KB "$work/hf" "$work/bf16" || fail shards
[[ ! -s $work/err ]] || fail "no progress where it is no terminal's"
model check "$work/hf" "$work/bf16" BF16 40000
grep -q '"torch_dtype": "bfloat16"' "$work/bf16/config.json" || fail "the configuration's type"
[[ -e $work/bf16/tokenizer.json ]] || fail "the tokenizer"
run --dtype f64 "$work/hf" "$work/f64" && run --dtype f32 "$work/f64" "$work/f32" || fail "f64 and back"
model check "$work/hf" "$work/f64" F64 0
model check "$work/hf" "$work/f32" F32 0
run --dtype f16 "$work/hf/model.safetensors" "$work/half.safetensors" || fail "a file"
model check "$work/hf" "$work/half.safetensors" F16 0
run --config "$work/hf/config.json" "$work/hf/model.safetensors" "$work/from_file" || fail "a file to a directory"
model check "$work/hf" "$work/from_file" F32 0
# A checkpoint has no config.json.
mkdir "$work/step" && cp "$work/hf/model.safetensors" "$work/step" && echo '{}' > "$work/step/manifest.json"
run --config "$work/hf/config.json" "$work/step" "$work/from_step" || fail "a checkpoint"
model check "$work/hf" "$work/from_step" F32 0
[[ ! -e $work/from_step/manifest.json ]] || fail "a manifest is no file of the model"

python3 - "$nxdconvert" "$work" > "$work/out" 2> "$work/err" << 'PY' || fail "progress on a terminal"
import os
import pty
import sys
nxdconvert, work = sys.argv[1:]
shown = b""
def read(fd):
    global shown
    data = os.read(fd, 4096)
    shown += data
    return data
status = pty.spawn([nxdconvert, f"{work}/hf", f"{work}/shown"], read)
sys.exit(status != 0 or b"100 %" not in shown or b"##############################]" not in shown)
PY

refuses 2 'expected FROM and TO, got 1' "$work/hf"
refuses 2 "--dtype: expected f32, f64, bf16 or f16, got i8" --dtype i8 "$work/hf" "$work/x"
refuses 2 "--dtype: expected f32, f64, bf16 or f16, got i8" --dtype f32 --dtype i8 "$work/hf" "$work/x"
for size in 0 5XB -1 99999999999GB GB; do
  refuses 2 "--max-shard-size: expected a size such as 5GB, got $size" --max-shard-size=$size "$work/hf" "$work/x"
done
refuses 2 "unrecognized option '--colour'" --colour "$work/hf" "$work/x"
refuses 1 'absent: cannot open' "$work/absent" "$work/x"
refuses 1 'expected a directory that is not there yet' "$work/hf" "$work/f64"
# A copy has a place of its own, under whatever name; what is no configuration is not taken for one.
cp "$work/hf/model.safetensors" "$work/same.safetensors" && ln -s same.safetensors "$work/link.safetensors"
cp "$work/same.safetensors" "$work/kept"
refuses 1 'expected another file than those that are read' --dtype bf16 "$work/same.safetensors" "$work/same.safetensors"
refuses 1 'expected another file than those that are read' "$work/same.safetensors" "$work/link.safetensors"
refuses 1 'expected another file than those that are read' "$work/hf" "$work/hf/model.safetensors"
cmp -s "$work/same.safetensors" "$work/kept" || fail "a source was changed"
: > "$work/empty.json" && echo '[]' > "$work/list.json"
refuses 1 'empty.json' --config "$work/empty.json" "$work/hf" "$work/x"
refuses 1 'list.json: expected a JSON object' --config "$work/list.json" "$work/hf" "$work/x"
refuses 1 'shards of a size need a directory' --max-shard-size 1GB "$work/hf" "$work/x.safetensors"
refuses 1 'a config.json needs a directory' --config "$work/hf/config.json" "$work/hf" "$work/x.safetensors"
refuses 1 'step/config.json: cannot open: there is no such file; name one' "$work/step" "$work/x"
refuses 1 'config.json' "$work/hf/model.safetensors" "$work/x"
head -c 5000 "$work/hf/model.safetensors" > "$work/cut.safetensors"
refuses 1 'cut.safetensors' "$work/cut.safetensors" "$work/x.safetensors"
if compgen -G "$work/.*.partial" > /dev/null || [[ -e $work/x || -e $work/x.safetensors ]]; then
  fail "something is left behind"
fi
echo "nxdconvert: shards, dtypes, progress and refusals"
