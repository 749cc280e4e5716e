#!/usr/bin/env bash
# The examples of data parallelism, and of tensor parallelism over a caller's arrays, on one, two and
# three or four ranks: losses fall, and do not depend on the number of ranks. The toy model also under nxd_spawn, by NEURON_NUM_DEVICES.
# usage: test_data_parallel_examples.sh SOURCE_DIR BUILD_DIR     77: this build has no examples
set -euo pipefail
. "$(dirname "$0")/lib.sh"
build=$2
need_built "$build/examples/c/ddp_toy"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export NXD_CPU_MODE=1 OMP_NUM_THREADS=1 NXD_TIMEOUT_MS=60000

# Runs a command and keeps the numbers of its lines with a loss; a launcher may put a rank's name
# in front of them.
losses() {
  local out=$1
  shift
  timeout 100 "$@" > "$out.log" 2>&1 || { cat "$out.log"; exit 1; }
  sed -nE 's/^.*(step|epoch) [0-9]+ loss ([0-9.]+).*$/\2/p' "$out.log" > "$out"
}

compare() {
  python3 - "$@" <<'PY'
import sys
tolerance, files = float(sys.argv[1]), sys.argv[2:]
runs = [[float(line) for line in open(f)] for f in files]
first = runs[0]
if len(first) < 10 or not first[-1] < 0.8 * first[0]:
    sys.exit(f"{files[0]}: {len(first)} losses, {first[:1]} to {first[-1:]}")
for name, run in zip(files[1:], runs[1:]):
    if len(run) != len(first):
        sys.exit(f"{name}: expected {len(first)} losses, got {len(run)}")
    worst = max(abs(a - b) for a, b in zip(run, first))
    print(f"{name.split('/')[-1]}: {run[0]:.6f} to {run[-1]:.6f}, largest difference {worst:.2g}")
    if not worst <= tolerance:
        sys.exit("the losses depend on the number of ranks")
PY
}

losses "$work/zero1.1" "$build/examples/c/embed_zero1"
for n in 2 3; do losses "$work/zero1.$n" "$build/tools/nxdrun" -n $n "$build/examples/c/embed_zero1"; done
compare 2e-6 "$work"/zero1.[123]
grep -h "bytes of state" "$work"/zero1.*.log
loads_no_libtorch "$build/examples/c/embed_zero1"

# Two ranks are tensor parallel, or data parallel; of four, two are tensor parallel.
embedded=$build/examples/c/embed_tensor_parallel
losses "$work/tensor.1" "$embedded"
losses "$work/tensor.tp2" "$build/tools/nxdrun" -n 2 "$embedded" 2
losses "$work/tensor.dp2" "$build/tools/nxdrun" -n 2 "$embedded" 1
losses "$work/tensor.tp2dp2" "$build/tools/nxdrun" -n 4 "$embedded" 2
compare 2e-6 "$work"/tensor.{1,tp2,dp2,tp2dp2}
loads_no_libtorch "$embedded"

losses "$work/toy.1" "$build/examples/c/ddp_toy"
for n in 2 4; do losses "$work/toy.$n" "$build/tools/nxdrun" -n $n "$build/examples/c/ddp_toy"; done
losses "$work/toy.spawn" env NEURON_NUM_DEVICES=2 "$build/examples/c/ddp_toy"
compare 1e-5 "$work"/toy.1 "$work"/toy.2 "$work"/toy.4 "$work"/toy.spawn
