#!/usr/bin/env bash
# The step written with torch computes what bench_step does: a small Llama, the same losses in every
# way of splitting it (NXD_LONG=1: all ways, in both dtypes); and what the script says where torch is missing.
# usage: test_bench_peers.sh SOURCE_DIR BUILD_DIR     77: no benchmarks in this build, or no torch
set -euo pipefail
. "$(dirname "$0")/lib.sh"
source=$1 build=$2
need_built "$build/bench/bench_step"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export NXD_TIMEOUT_MS=60000

printf '#!/bin/sh\nexit 1\n' > "$work/no_torch"
chmod +x "$work/no_torch"
if "$source/scripts/bench_peers" "$build" --python "$work/no_torch" 2> "$work/refused"; then
  echo "an interpreter without torch was accepted"
  exit 1
fi
grep -q "has no torch: install Debian's python3-torch" "$work/refused"

# A program of which one run fails has no figures, however good the others are.
mkdir -p "$work/told/bench" "$work/told/tools"
cat > "$work/told/bench/bench_step" << 'END'
#!/bin/sh
case "$*" in *"--tp 2"*) [ -e "$0.ran" ] || { : > "$0.ran"; echo "its first run failed" >&2; exit 1; } ;; esac
echo "128 GFLOP a step"
echo "step, ms 10.0 least 9.0"
for figure in "CPU time of a rank, ms" "loss after the last step" "page faults a step" "GEMM peak of all ranks, GFLOP/s"; do
  echo "$figure 50.0"
done
END
printf '#!/bin/sh\n' > "$work/told/bench/bench_step_weights"
printf '#!/bin/sh\nshift 2\nexec "$@"\n' > "$work/told/tools/nxdrun"
chmod +x "$work/told"/*/*
status=0
timeout 60 "$source/scripts/bench_peers" "$work/told" --summary --picture "$work/told.svg" --python "$work/no_torch" \
  --contenders one,tp --dtypes f32 > "$work/screen" || status=$?
[[ $status == 1 ]] && grep -q "^f32, TP 2: libnxd: 1 of 2 passes failed: its first run failed" "$work/screen" &&
  grep -q "^f32  one process, 2 threads .* 10 ms " "$work/screen" || { cat "$work/screen"; exit 1; }
need_python torch

cat > "$work/config.json" << 'JSON'
{"model_type": "llama", "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
 "num_key_value_heads": 2, "intermediate_size": 96, "vocab_size": 256, "max_position_embeddings": 160}
JSON
# compare ROWS OPTION...: the script itself fails where losses differ.
compare() {
  local expected=$1 rows good=1
  shift
  timeout 800 "$source/scripts/bench_peers" "$build" --short --out-of-the-box --batch 2 \
    --sequence 160 --config "$work/config.json" "$@" > "$work/table" || good=0
  cat "$work/table"
  [[ $good == 1 ]] || { echo "bench_peers found rows that differ or failed"; exit 1; }
  rows=$(grep -c ' torch [^ ]*  *[0-9]' "$work/table")
  [[ $rows == "$expected" ]] || { echo "expected $expected rows of torch, got $rows"; exit 1; }
}
# The summary has a line for each dtype and layout, in a picture too, and names what it leaves out.
timeout 800 "$source/scripts/bench" --summary "$build" --short --out-of-the-box --batch 1 \
  --sequence 64 --config "$work/config.json" --dtypes f32 --contenders tp \
  --picture "$work/picture.svg" > "$work/screen"
cat "$work/screen"
grep -q '^f32  TP 2  *[0-9]* ms  *[0-9]* ms  [0-9]* %  *[0-9]* ms  [0-9.]* x' "$work/screen"
python3 -c 'import sys, xml.dom.minidom as x; assert len(x.parse(sys.argv[1]).getElementsByTagName("rect")) == 5' \
  "$work/picture.svg"
if [[ -n ${NXD_LONG:-} ]]; then
  compare 11
else
  compare 3 --contenders sp,zero,pp --dtypes f32
fi
