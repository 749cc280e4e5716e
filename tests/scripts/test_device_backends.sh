#!/usr/bin/env bash
# A Llama on two tensor-parallel processes by one switch, eagerly, replayed and through a PJRT
# plug-in, twice: equal losses, with collectives that are part of each step's one graph.
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

# train NAME VARIABLE=VALUE...: on two ranks
train() {
  local name=$1
  shift
  losses "$work/$name" env "$@" "$build/tools/nxdrun" -n 2 "$program" "$model"
}

# count NAME METRIC
count() { sed -n "s/^$2 //p" "$work/$1.log"; }

train eager NXD_CPU_MODE=1
train replay NXD_XLA_BACKEND=replay
runs=("$work/eager" "$work/replay")
if plugin=$(pjrt_plugin); then
  train pjrt NXD_PJRT_PLUGIN="$plugin"
  train again NXD_PJRT_PLUGIN="$plugin"
  runs+=("$work/pjrt" "$work/again")
fi
compare_losses 1e-5 "${runs[@]}"
for run in "${runs[@]:1}"; do
  name=${run##*/}
  [[ $(count "$name" steps) == 10 && $(count "$name" executions) == 10 ]]
  [[ $(count "$name" fallbacks) == 0 && $(count "$name" compiles) -le 2 ]]
  if grep host_call "$run.log"; then exit 1; fi
done
paste "${runs[@]}"
