#!/usr/bin/env bash
# Two steps of scripts/bench_devices, whose table docs/device.md has: a tiny Llama by each backend that
# is here reaches the loss that it reaches eagerly, and JAX does where it has been fetched.
# usage: test_bench_devices.sh SOURCE_DIR BUILD_DIR     77: no benchmarks in this build
set -euo pipefail
. "$(dirname "$0")/lib.sh"
source=$1 build=$2
need_built "$build/bench/bench_step"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

timeout 800 "$source/scripts/bench_devices" "$build" --short | tee "$work/table"
row='[0-9.]* | [0-9.]* | [0-9.]*'
grep -q "^| tiny | eagerly | $row | - | [0-9.]* |\$" "$work/table"
grep -q "^| tiny | recorded, replayed | $row | [0-9.]* | [0-9.]* |\$" "$work/table"
if plugin=$(pjrt_plugin); then
  grep -q "^| tiny | recorded, plug-in | $row | [0-9.]* | [0-9.]* |\$" "$work/table"
fi
