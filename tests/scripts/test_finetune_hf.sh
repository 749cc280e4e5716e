#!/usr/bin/env bash
# The example that fine-tunes a Hugging Face directory: what it writes has the names, shapes and other files
# of what it read, is read again, and goes on from the loss that was reached, on any layout.
# usage: test_finetune_hf.sh SOURCE_DIR BUILD_DIR     77: this build has no examples
set -euo pipefail
. "$(dirname "$0")/lib.sh"
program=$2/examples/c/finetune_hf
need_built "$program"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export NXD_CPU_MODE=1 OMP_NUM_THREADS=1 NXD_TIMEOUT_MS=60000

# Bytes below 250, which both vocabularies have, and the same as 16-bit numbers.
head -c 6000 "$0" /etc/services 2> /dev/null | tr '\200-\377' ' ' > "$work/text"
python3 -c 'import sys; d = open(sys.argv[1], "rb").read(); open(sys.argv[2], "wb").write(bytes(b for x in d for b in (x, 0)))' \
  "$work/text" "$work/ids.u16"

tune() { # MODEL OUT OPTIONS...: the losses
  timeout 300 "$program" --model "$1" --out "$2" --batch 4 --seq 24 --lr 3e-3 "${@:3}" > "$work/log" 2>&1 ||
    { cat "$work/log" >&2; exit 1; }
  sed -nE 's/.*loss ([0-9.]+)/\1/p' "$work/log"
}

for name in llama_tiny gpt2_tiny; do
  mkdir "$work/$name"
  cp "$1/tests/oracles/$name/"{config.json,model.safetensors} "$work/$name"
  echo '{"kind": "kept"}' > "$work/$name/tokenizer.json"
  tune "$work/$name" "$work/$name-2" --text "$work/text" --tp 2 --steps 12 > "$work/first"
  tune "$work/$name" "$work/$name-1" --ids "$work/ids.u16" --tp 1 --steps 12 > "$work/alone"
  tune "$work/$name-2" "$work/$name-3" --text "$work/text" --tp 1 --dp 2 --steps 1 > "$work/again"
  cmp "$work/$name/config.json" "$work/$name-3/config.json"
  cmp "$work/$name/tokenizer.json" "$work/$name-3/tokenizer.json"
  python3 - "$work" "$name" <<'PY'
import json, struct, sys
work, name = sys.argv[1:]
def header(directory):
    with open(f"{directory}/model.safetensors", "rb") as file:
        size = struct.unpack("<Q", file.read(8))[0]
        entries = json.loads(file.read(size))
    entries.pop("__metadata__", None)
    return {key: (value["dtype"], value["shape"]) for key, value in entries.items()}
if header(f"{work}/{name}") != header(f"{work}/{name}-3"):
    sys.exit("the tensors have other names, shapes or dtypes")
first, alone, again = ([float(line) for line in open(f"{work}/{part}")] for part in ("first", "alone", "again"))
if len(first) != 12 or max(abs(a - b) for a, b in zip(first, alone)) > 1e-4:
    sys.exit(f"{first} on two ranks, {alone} on one")
if not again[0] < first[0] - 0.5:
    sys.exit(f"it was written with a loss near {first[-1]}, and is read with one of {again[0]}; at first {first[0]}")
print(f"{name}: {first[0]} to {first[-1]}, read again {again[0]}")
PY
done
# Directories within it, and names with a dot in front, are left out, as the usage says, also where reading it does
# not tell which entries are directories.
mkdir "$work/gpt2_tiny/runs"
# So are the weights that were, in each format that repositories have.
old=(tf_model.h5 flax_model.msgpack rust_model.ot pytorch_model-00001-of-00002.bin pytorch_model.bin.index.json model.gguf)
for name in "${old[@]}"; do echo old > "$work/gpt2_tiny/$name"; done
echo "*.safetensors filter=lfs" > "$work/gpt2_tiny/.gitattributes"
cc -shared -fPIC "$1/tests/scripts/no_entry_types.c" -o "$work/no_entry_types.so" -ldl
LD_PRELOAD=$work/no_entry_types.so tune "$work/gpt2_tiny" "$work/gpt2_tiny-4" --text "$work/text" --tp 1 --steps 1
[[ -e $work/gpt2_tiny-4/tokenizer.json && ! -e $work/gpt2_tiny-4/runs && ! -e $work/gpt2_tiny-4/.gitattributes ]]
for name in "${old[@]}"; do [[ ! -e $work/gpt2_tiny-4/$name ]] || { echo "$name: old weights beside new ones"; exit 1; }; done
# The directory and its parents are made before the first step; one that cannot be made fails there.
tune "$work/gpt2_tiny" "$work/new/parents/out" --text "$work/text" --steps 1
[[ -e $work/new/parents/out/model.safetensors ]]
if "$program" --model "$work/gpt2_tiny" --text "$work/text" --tp 2 --out "$work/text/out" > "$work/log" 2>&1; then
  echo "wrote below a file"
  exit 1
fi
grep -q "cannot write to the directory $work/text/out: Not a directory" "$work/log" || { cat "$work/log"; exit 1; }
if grep "^step" "$work/log"; then exit 1; fi
# The weights are there although a file beside them cannot be copied.
mkdir -p "$work/kept/tokenizer.json"
if "$program" --model "$work/gpt2_tiny" --text "$work/text" --steps 1 --out "$work/kept" > "$work/log" 2>&1; then
  echo "copied a file onto a directory"
  exit 1
fi
grep -q "cannot write $work/kept/tokenizer.json: Is a directory" "$work/log" || { cat "$work/log"; exit 1; }
[[ -s $work/kept/model.safetensors ]]
if "$program" --model "$work/gpt2_tiny" --text "$work/text" > "$work/log" 2>&1; then echo "ran without --out"; exit 1; fi
grep -q "^usage: finetune_hf" "$work/log"
[[ $(tr '\n' ' ' < "$work/log") == *"other files of --model, but no directories and no names with a dot in front"* ]] ||
  { cat "$work/log"; exit 1; }
status=0
"$program" --model "$work/gpt2_tiny" --text "$work/text" --ids "$work/ids.u16" --out "$work/wrong" > "$work/log" 2>&1 || status=$?
[[ $status == 2 ]] && grep -q "^finetune_hf: --text has no effect beside --ids$" "$work/log" || { cat "$work/log"; exit 1; }
# Ranks and steps are whole, and one token has no next one to learn.
for wrong in "--tp 0.5" "--steps 1.5" "--seq 1"; do
  read -ra options <<< "$wrong"
  status=0
  "$program" --model "$work/gpt2_tiny" --text "$work/text" --out "$work/wrong" "${options[@]}" > "$work/log" 2>&1 || status=$?
  if [[ $status != 2 ]] || ! grep -q "^usage: finetune_hf" "$work/log"; then
    echo "$wrong: expected status 2 and the usage, got $status and:"
    cat "$work/log"
    exit 1
  fi
done
