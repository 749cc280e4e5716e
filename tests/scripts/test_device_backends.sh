#!/usr/bin/env bash
# A Llama on two processes by one switch, eagerly, replayed and through a PJRT plug-in, twice: equal
# losses, with collectives and updates that are part of each step's one graph. Tensor parallel, and
# data parallel with ZeRO-1.
# usage: test_device_backends.sh SOURCE_DIR BUILD_DIR     77: no engine
set -euo pipefail
. "$(dirname "$0")/lib.sh"
source=$1 build=$2
program=$build/tests/llama_on_device
need_built "$program"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export OMP_NUM_THREADS=1 NXD_TIMEOUT_MS=60000 NXD_PJRT_FAST_COMPILE=1 PJRT_NPROC=1 TF_CPP_MIN_LOG_LEVEL=1
export NEURON_COMPILE_CACHE_URL=$work/cache
unset NXD_CPU_MODE NXD_XLA_BACKEND
model=$source/tests/oracles/llama_tiny

# train NAME VARIABLE=VALUE...: on two ranks; a name that begins with zero is that layout
train() {
  local name=$1 layout=()
  shift
  [[ $name != zero* ]] || layout=(zero)
  losses "$work/$name" env "$@" "$build/tools/nxdrun" -n 2 "$program" "$model" "${layout[@]}"
}

# count NAME METRIC
count() { sed -n "s/^$2 //p" "$work/$1.log"; }

train eager NXD_CPU_MODE=1
train replay NXD_XLA_BACKEND=replay
train zero_eager NXD_CPU_MODE=1
train zero_replay NXD_XLA_BACKEND=replay
runs=("$work/eager" "$work/replay")
zero_runs=("$work/zero_eager" "$work/zero_replay")
if plugin=$(pjrt_plugin); then
  train pjrt NXD_PJRT_PLUGIN="$plugin"
  train again NXD_PJRT_PLUGIN="$plugin"
  train zero_pjrt NXD_PJRT_PLUGIN="$plugin"
  runs+=("$work/pjrt" "$work/again")
  zero_runs+=("$work/zero_pjrt")
fi
compare_losses 1e-5 "${runs[@]}"
compare_losses 1e-5 "${zero_runs[@]}"
for run in "${runs[@]:1}" "${zero_runs[@]:1}"; do
  name=${run##*/}
  [[ $(count "$name" steps) == 10 && $(count "$name" executions) == 10 ]]
  [[ $(count "$name" implicit_syncs) == 0 ]]
  [[ $(count "$name" fallbacks) == 0 && $(count "$name" compiles) -le 2 ]]
  if grep host_call "$run.log"; then exit 1; fi
done
paste "${runs[@]}"
