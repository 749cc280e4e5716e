#!/usr/bin/env bash
# One program by one switch, eagerly, recorded and replayed, and through a PJRT plug-in where there is
# one: equal losses to 1e-5, one graph a step, at most two compiles in 40 steps whose learning rates
# all differ and none in a second process, no fallbacks. The plug-in is found by a variable, by Neuron's
# variable, and as Neuron's library; where there is none, the error has all that was looked for.
# usage: test_lazy_mlp.sh SOURCE_DIR BUILD_DIR     77: this build has no examples
set -euo pipefail
. "$(dirname "$0")/lib.sh"
program=$2/examples/c/lazy_mlp
need_built "$program"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export OMP_NUM_THREADS=1 NXD_PJRT_FAST_COMPILE=1 PJRT_NPROC=1 TF_CPP_MIN_LOG_LEVEL=1
unset NXD_CPU_MODE NXD_XLA_BACKEND NXD_PJRT_PLUGIN NEURON_LIBRARY_PATH
runs=()
# train NAME VARIABLE=VALUE...
train() {
  local name=$1
  shift
  env "$@" timeout 300 "$program" > "$work/$name"
  runs+=("$work/$name")
}
# fails VARIABLE=VALUE...: and leaves the error in $work/error
fails() {
  if env "$@" "$program" 2> "$work/error" > /dev/null; then exit 1; fi
}

train eager NXD_CPU_MODE=1
train replay NXD_XLA_BACKEND=replay
if plugin=$(pjrt_plugin); then
  train pjrt NXD_PJRT_PLUGIN="$plugin" NEURON_COMPILE_CACHE_URL="$work/programs"
  train again NXD_PJRT_PLUGIN="$plugin" NEURON_COMPILE_CACHE_URL="$work/programs"
  # Neuron's library trains without another word. Programs in a cache of its own tell that it has compiled.
  mkdir "$work/lib"
  cp "$plugin" "$work/lib/libneuronpjrt.so"
  train by_loader LD_LIBRARY_PATH="$work/lib:${LD_LIBRARY_PATH:-}" NEURON_COMPILE_CACHE_URL="$work/loader"
  train by_variable NEURON_LIBRARY_PATH="$work/lib/libneuronpjrt.so" NEURON_COMPILE_CACHE_URL="$work/variable"
  [[ -n $(ls "$work/loader") && -n $(ls "$work/variable") ]]
fi
python3 - "${runs[@]}" << 'PY'
import os
import re
import sys


def read(name):
    text = open(name).read()
    losses = [float(x) for x in re.findall(r"^step \d+ loss (\S+)$", text, re.M)]
    counts = dict(re.findall(r"(\w+) (\d+)", text.splitlines()[-1]))
    return losses, {name: int(value) for name, value in counts.items()}


runs = {os.path.basename(name): read(name) for name in sys.argv[1:]}
eager, none = runs.pop("eager")
assert len(eager) == 40 and eager[-1] < eager[0] - 0.1, eager
assert not any(none.values()), none
for name, (recorded, counts) in runs.items():
    assert len(recorded) == 40, (name, recorded)
    assert max(abs(a - b) for a, b in zip(eager, recorded)) <= 1e-5, (name, eager, recorded)
    assert counts["steps"] == counts["executions"] == 40, (name, counts)
    new, old = ("loads", "compiles") if name == "again" else ("compiles", "loads")
    assert 1 <= counts[new] <= 2 and counts[old] == 0, (name, counts)
    assert counts["implicit_syncs"] == counts["fallbacks"] == 0, (name, counts)
    print(name, counts)
for step in (0, 19, 39):
    print("step", step, "loss", eager[step], *(losses[step] for losses, _ in runs.values()))
PY
# A backend that there is not is named, with those that there are; and a plug-in that is missing.
fails NXD_XLA_BACKEND=steam
grep -q 'NXD_XLA_BACKEND: expected replay or pjrt, got "steam"' "$work/error"
for path in NXD_PJRT_PLUGIN NEURON_LIBRARY_PATH; do
  fails "$path=/no/plugin.so"
  grep -q '/no/plugin.so' "$work/error"
done
# Where the CPU is asked for, a program that asks for device XLA does not open Neuron's library.
need_built "$2/tests/test_device_rendezvous"
NXD_CPU_MODE=1 NEURON_LIBRARY_PATH=/no/library.so "$2/tests/test_device_rendezvous" > "$work/cpu" 2>&1 ||
  { cat "$work/cpu"; exit 1; }
if ldconfig -p | grep libneuronpjrt > /dev/null; then exit 0; fi
fails NXD_XLA_BACKEND=pjrt
grep -q 'no PJRT plug-in was found: NXD_PJRT_PLUGIN and NEURON_LIBRARY_PATH are not set' "$work/error"
fails NXD_CPU_MODE=0
for place in NXD_CPU_MODE NXD_XLA_BACKEND NXD_PJRT_PLUGIN NEURON_LIBRARY_PATH libneuronpjrt.so \
  /opt/aws/neuron/lib/libneuronpjrt.so; do
  grep -q "no device to train on: .*$place" "$work/error"
done
