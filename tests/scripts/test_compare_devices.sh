#!/usr/bin/env bash
# A few steps of scripts/compare_devices, whose whole table docs/device.md has: a row for each layout,
# and losses that differ by no more than rounding.
# usage: test_compare_devices.sh SOURCE_DIR BUILD_DIR     77: no engine
set -euo pipefail
. "$(dirname "$0")/lib.sh"
source=$1 build=$2
need_built "$build/tests/model_on_device"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export NEURON_COMPILE_CACHE_URL=${XDG_CACHE_HOME:-${HOME:-$build}/.cache}/nxd/test_programs

"$source/scripts/compare_devices" --build "$build" --steps 3 bert | tee "$work/table"
[[ $(grep -c '^| bert | ' "$work/table") == 4 ]]
if plugin=$(pjrt_plugin); then
  [[ $(grep -c '^| bert | .* | [0-9.]* | [0-9.]* | [0-9.]* | [0-9.]* | [0-9.e+-]* |$' "$work/table") == 4 ]]
fi
