#!/usr/bin/env bash
# The example that pre-trains a BERT: its loss falls, tensor-parallel ranks and copies with ZeRO-1 have the
# losses of one rank, ZeRO-1 over two copies halves a rank's state, and the directory that it writes has the
# names and shapes of Hugging Face's.
# usage: test_pretrain_bert.sh SOURCE_DIR BUILD_DIR     77: this build has no examples
set -euo pipefail
. "$(dirname "$0")/lib.sh"
program=$2/examples/c/pretrain_bert
need_built "$program"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export NXD_CPU_MODE=1 OMP_NUM_THREADS=1 NXD_TIMEOUT_MS=60000
oracle=$1/tests/oracles/bert_tiny

# Few letters, so that a small model learns them, as bytes and as 16-bit numbers.
printf 'the cat sat on the mat. %.0s' {1..80} > "$work/text"
python3 -c 'import sys; sys.stdout.buffer.write(bytes(b for x in open(sys.argv[1], "rb").read() for b in (x, 0)))' \
  "$work/text" > "$work/ids.u16"

train() { # NAME OPTIONS...
  local name=$1
  shift
  timeout 300 "$program" --batch 8 --seq 16 --lr 3e-3 --steps 16 --warmup 2 "$@" > "$work/$name.log" 2>&1 ||
    { cat "$work/$name.log" >&2; exit 1; }
}
tiny=(--config "$oracle/config.json" --vocab 253)
train alone "${tiny[@]}" --text "$work/text"
train split "${tiny[@]}" --data "$work/ids.u16" --tp 2
train copies "${tiny[@]}" --text "$work/text" --tp 2 --dp 2 --zero1 --sequence-parallel --out "$work/new/parents/out"
# Sizes of its own, and dropout.
train sizes --text "$work/text" --tp 2 --hidden 32 --heads 2 --layers 1 --intermediate 64 --dtype autocast
python3 - "$work" "$oracle" <<'PY'
import json, re, struct, sys
work, oracle = sys.argv[1:]
def losses(name):
    return [float(x) for x in re.findall(r"loss ([0-9.]+)", open(f"{work}/{name}.log").read())]
def header(directory):
    with open(f"{directory}/model.safetensors", "rb") as file:
        entries = json.loads(file.read(struct.unpack("<Q", file.read(8))[0]))
    entries.pop("__metadata__", None)
    return {key: (value["dtype"], value["shape"]) for key, value in entries.items()}
alone = losses("alone")
for name in ("alone", "split", "copies", "sizes"):
    got = losses(name)
    if len(got) != 16 or not got[-1] < got[0] - 1:
        sys.exit(f"{name}: the losses do not fall: {got}")
    worst = max(abs(a - b) for a, b in zip(got, alone))
    if name != "sizes" and not worst <= 2e-4:
        sys.exit(f"{name}: {got}, and {alone} on one rank")
    print(f"{name}: {got[0]} to {got[-1]}, largest difference {worst:.2g}")
def state(name):
    line = re.search(r"^rank 0 keeps ([1-9]\d*) bytes of the optimizer's state( \(ZeRO-1 over 2 copies\))?$",
                     open(f"{work}/{name}.log").read(), re.M)
    return int(line[1]), line[2] is not None
# Buckets are rounded up to parts of one size.
(whole, of_one), (share, of_copies) = state("split"), state("copies")
if (of_one, of_copies) != (False, True) or not whole <= 2 * share <= 1.05 * whole:
    sys.exit(f"rank 0 keeps {whole} bytes of state, and {share} where two copies share it by ZeRO-1")
print(f"rank 0 keeps {whole} bytes of state, {share} with ZeRO-1 over 2 copies")
if header(f"{work}/new/parents/out") != header(oracle):
    sys.exit("the tensors have other names, shapes or dtypes than Hugging Face's")
PY
cmp "$oracle/config.json" "$work/new/parents/out/config.json"
# A directory that cannot be made fails before the first step.
if "$program" --text "$work/text" --tp 2 --steps 1 --out "$work/text/out" > "$work/log" 2>&1; then
  echo "wrote below a file"
  exit 1
fi
grep -q "cannot write to the directory $work/text/out: Not a directory" "$work/log" || { cat "$work/log"; exit 1; }
if grep "^step" "$work/log"; then exit 1; fi
rejects_options --text a --data b
# How many words a tokenizer has is not known from its ids.
rejects_options --data "$work/ids.u16" --steps 1
rejects_options --data "$work/ids.u16" --config "$oracle/config.json" --steps 1
# A rate of 0 would be the library's own one.
for rate in 0 -1 nan; do rejects_options --text "$work/text" --steps 1 --lr "$rate"; done
# All other numbers are whole.
for number in "--dp 1.5" "--steps 2.5" "--batch 4.5" "--seed 0.5"; do
  read -ra options <<< "$number"
  rejects_options --text "$work/text" --steps 1 "${options[@]}"
done
status=0
"$program" --text "$work/text" --tp 1e9 --dp 1e9 > "$work/log" 2>&1 || status=$?
if [[ $status != 2 ]] || ! grep -q "expected at most 2147483647 ranks, got 1e+18" "$work/log"; then
  cat "$work/log"
  exit 1
fi
if "$program" --text "$work/text" --batch 3 --dp 2 > "$work/log" 2>&1; then echo "took 3 rows for 2 copies"; exit 1; fi
grep -q "expected a multiple of the 2 copies, got 3" "$work/log"
