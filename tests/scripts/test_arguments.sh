#!/usr/bin/env bash
# Measurements and examples that take numbers or words end with status 2 and their usage where they
# cannot understand one, instead of taking it for another number.
# usage: test_arguments.sh SOURCE_DIR BUILD_DIR     77: this build lacks a program
set -euo pipefail
. "$(dirname "$0")/lib.sh"
build=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# rejects PROGRAM [arguments]
rejects() {
  need_built "$build/$1"
  local status=0
  timeout 60 "$build/$1" "${@:2}" > "$work/out" 2>&1 < /dev/null || status=$?
  if [[ $status != 2 ]] || ! grep -q "usage: " "$work/out"; then
    echo "$*: expected status 2 and the usage, got $status and:"
    cat "$work/out"
    exit 1
  fi
}
export NXD_CPU_MODE=1 OMP_NUM_THREADS=1
cd "$work"
rejects bench/bench_kernels one two
rejects bench/bench_kernels --no-such
rejects bench/bench_kernels --long one two
rejects bench/bench_kernels no-such-kernel
for number in 1 64x "" -3 99999999999999999999; do rejects bench/bench_scaling "$number"; done
for ranks in 2x 0 "" 1000; do rejects examples/c/embed_tensor_parallel "$ranks"; done
for chunks in 2x 0 ""; do rejects examples/c/pipeline_callbacks --chunks "$chunks"; done
# One spelling for all programs.
rejects examples/c/pipeline_callbacks --schedule zero_bubble
need_built "$build/src/libnxd.so"
rejects bench/bench_checkpoints
for mib in 0 1G ""; do rejects bench/bench_checkpoints directory "$mib"; done
rejects bench/bench_checkpoints directory 1 3x
for rounds in 0 11x 1e3 1001; do rejects bench/bench_device_step "$rounds"; done
rejects bench/bench_step_weights config
rejects bench/bench_step_weights no-such-config out
rejects bench/bench_step --steps 3x
rejects bench/bench_step --schedule zero_bubble
echo ok
