#!/usr/bin/env bash
# A Llama on two processes by one switch, eagerly, replayed and through a PJRT plug-in, twice: equal
# losses, with collectives and updates that are part of each step's one graph. Tensor parallel, data
# parallel with ZeRO-1, and the stages of a pipeline.
# usage: test_device_backends.sh SOURCE_DIR BUILD_DIR     77: no engine
set -euo pipefail
. "$(dirname "$0")/lib.sh"
source=$1 build=$2
program=$build/tests/model_on_device
need_built "$program"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export OMP_NUM_THREADS=1 NXD_TIMEOUT_MS=60000 NXD_PJRT_FAST_COMPILE=1 PJRT_NPROC=1 TF_CPP_MIN_LOG_LEVEL=1
export NEURON_COMPILE_CACHE_URL=$work/cache
unset NXD_CPU_MODE NXD_XLA_BACKEND
model=$source/tests/oracles/llama_tiny

# train NAME VARIABLE=VALUE...: on two ranks; a name that begins with a layout's is that layout
train() {
  local name=$1 layout=()
  shift
  [[ $name != zero* ]] || layout=(zero)
  [[ $name != pipeline* ]] || layout=(pipeline)
  losses "$work/$name" env "$@" "$build/tools/nxdrun" -n 2 "$program" "$model" "${layout[@]}"
}

# count NAME METRIC
count() { sed -n "s/^$2 //p" "$work/$1.log"; }

train eager NXD_CPU_MODE=1
train replay NXD_XLA_BACKEND=replay
train zero_eager NXD_CPU_MODE=1
train zero_replay NXD_XLA_BACKEND=replay
train pipeline_eager NXD_CPU_MODE=1
train pipeline_replay NXD_XLA_BACKEND=replay
runs=("$work/eager" "$work/replay")
zero_runs=("$work/zero_eager" "$work/zero_replay")
pipeline_runs=("$work/pipeline_eager" "$work/pipeline_replay")
if plugin=$(pjrt_plugin); then
  # A run that only extracts graphs gives values of 0, and the programs that the next one needs.
  train extracted NXD_PJRT_PLUGIN="$plugin" NEURON_EXTRACT_GRAPHS_ONLY=1
  [[ $(sort -u "$work/extracted") == 0.0000000 ]]
  programs=$(ls "$work/cache")
  train pjrt NXD_PJRT_PLUGIN="$plugin"
  [[ -n $programs && $(ls "$work/cache") == "$programs" ]]
  train again NXD_PJRT_PLUGIN="$plugin"
  [[ $(count again compiles) == 0 && $(count again loads) -ge 1 ]]
  train zero_pjrt NXD_PJRT_PLUGIN="$plugin"
  # Collectives of StableHLO itself, between two ranks that are threads of one process.
  losses "$work/native" env NXD_PJRT_PLUGIN="$plugin" "$program" "$model" threads
  compare_losses 1e-6 "$work/pjrt" "$work/native"
  [[ $(count native executions) == 20 && $(($(count native compiles) + $(count native loads))) -le 2 ]]
  [[ $(count native fallbacks) == 0 && $(count native implicit_syncs) == 0 ]]
  [[ $(count native native_collectives) == 1 && $(count pjrt native_collectives) == 0 ]]
  if grep host_call "$work/native.log"; then exit 1; fi
  runs+=("$work/pjrt" "$work/again")
  zero_runs+=("$work/zero_pjrt")
  train pipeline_pjrt NXD_PJRT_PLUGIN="$plugin"
  pipeline_runs+=("$work/pipeline_pjrt")
fi
compare_losses 1e-5 "${runs[@]}"
compare_losses 1e-5 "${zero_runs[@]}"
compare_losses 1e-5 "${pipeline_runs[@]}"
for run in "${runs[@]:1}" "${zero_runs[@]:1}"; do
  name=${run##*/}
  [[ $(count "$name" steps) == 10 && $(count "$name" executions) == 10 ]]
  [[ $(count "$name" implicit_syncs) == 0 ]]
  [[ $(count "$name" fallbacks) == 0 && $(($(count "$name" compiles) + $(count "$name" loads))) -le 2 ]]
  [[ $(count "$name" copied_bytes) == 0 ]]
  if grep host_call "$run.log"; then exit 1; fi
done
# A message between stages ends a graph.
for run in "${pipeline_runs[@]:1}"; do
  [[ $(count "${run##*/}" fallbacks) == 0 && $(count "${run##*/}" executions) -gt 10 ]]
  if grep host_call "$run.log"; then exit 1; fi
done
paste "${runs[@]}"
