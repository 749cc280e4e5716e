#!/usr/bin/env bash
# nxd-neuron-selftest passes with XLA's plug-in for the CPU, alone and in two processes, and says what
# fails with a plug-in that computes nothing, and what it looked for where there is none.
# usage: test_neuron_selftest.sh SOURCE_DIR BUILD_DIR
set -euo pipefail
. "$(dirname "$0")/lib.sh"
source=$1 build=$2
selftest=$build/tools/nxd-neuron-selftest
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export PJRT_NPROC=1 TF_CPP_MIN_LOG_LEVEL=1 NEURON_CC_FLAGS=--no_cache

fail() { echo "FAILED: $*"; cat "$work/out" "$work/err"; exit 1; }
# exits CODE ARGUMENT...
exits() {
  local wanted=$1 got=0
  shift
  "$selftest" "$@" > "$work/out" 2> "$work/err" || got=$?
  [[ $got == "$wanted" ]] || fail "nxd-neuron-selftest $*: exit $got instead of $wanted"
}
says() { grep -qE -- "$1" "$work/out" "$work/err" || fail "no \"$1\""; }

exits 0 --help
says '^usage: nxd-neuron-selftest'
exits 2 --what
exits 2 one two
exits 1 "$work/missing.so"
says '^FAILED  plug-in: .*missing.so'
exits 1 "$build/tests/libnxd_fake_pjrt.so"
says '^ok      device: fake'
says '^FAILED  product, f32: '
says '^FAILED  training: '
if ! ldconfig -p | grep libneuronpjrt > /dev/null; then
  (unset NXD_PJRT_PLUGIN NEURON_LIBRARY_PATH; exits 77)
  says 'NXD_PJRT_PLUGIN and NEURON_LIBRARY_PATH are not set, there is no libneuronpjrt.so'
fi

plugin=$("$source/scripts/fetch_pjrt_cpu" 2> "$work/err") || { cat "$work/err"; skip "the plug-in for the CPU cannot be fetched" "set NXD_PJRT_PLUGIN to one"; }
exits 0 "$plugin"
[[ $(grep -c '^ok      ' "$work/out") == 8 ]] || fail "expected 8 checks"
says '^ok      update in place: in the host.s memory'
says '^ok      rounding to bf16: to the nearest'
NEURON_LIBRARY_PATH=$plugin exits 0
code=0
"$build/tools/nxdrun" -n 2 "$selftest" "$plugin" > "$work/out" 2> "$work/err" || code=$?
[[ $code == 0 ]] || fail "two processes: exit $code"
[[ $(grep -c 'skipped all-reduce: the CPU plug-in has no collectives between processes' "$work/out") == 2 ]] ||
  fail "the all-reduce is not skipped"
