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
export OMP_NUM_THREADS=1 NXD_PJRT_FAST_COMPILE=1 NXD_TIMEOUT_MS=60000

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
# The recorded losses are those of eager steps, of which the last ones hardly resemble the first.
if [[ -e $build/src/libnxd.so ]]; then
  exits 0 --eager
  awk -F ', recorded ' 'NF == 2 { d = $1 / $2 - 1; if (d < 0) d = -d; if (d < 1e-5) ++good; last = $1 }
    NR == 1 { first = $1 } END { exit !(good == 10 && NR == 10 && last < 0.8 * first) }' "$work/out" ||
    fail "the recorded losses are not those of eager steps"
fi
# Output that is lost is no success.
if "$selftest" --help > /dev/full 2> "$work/err"; then fail "no failure on a full disk"; fi
grep -q 'nxd-neuron-selftest: cannot write' "$work/err" || fail "no word of a full disk"
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
checks=8
if [[ -e $build/src/libnxd.so ]]; then
  checks=9
  says '^ok      Llama: 10 steps, losses off by a part of [0-9.]+e-0[6-9]'
fi
[[ $(grep -c '^ok      ' "$work/out") == "$checks" ]] || fail "expected $checks checks"
says '^ok      update in place: in the host.s memory'
says '^ok      rounding to bf16: to the nearest'
NEURON_LIBRARY_PATH=$plugin exits 0
code=0
"$build/tools/nxdrun" -n 2 "$selftest" "$plugin" > "$work/out" 2> "$work/err" || code=$?
[[ $code == 0 ]] || fail "two processes: exit $code"
[[ $(grep -c 'skipped all-reduce: the CPU plug-in has no collectives between processes' "$work/out") == 2 ]] ||
  fail "the all-reduce is not skipped"
