#!/usr/bin/env bash
# One program by one switch, eagerly, recorded and replayed, and through a PJRT plug-in where there is
# one: equal losses to 1e-5, one graph a step, at most two compiles in 40 steps whose learning rates
# all differ, no fallbacks.
# usage: test_lazy_mlp.sh SOURCE_DIR BUILD_DIR     77: this build has no examples
set -euo pipefail
. "$(dirname "$0")/lib.sh"
program=$2/examples/c/lazy_mlp
need_built "$program"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export OMP_NUM_THREADS=1
NXD_CPU_MODE=1 timeout 300 "$program" > "$work/eager"
env -u NXD_CPU_MODE NXD_XLA_BACKEND=replay timeout 300 "$program" > "$work/recorded"
recorded=("$work/recorded")
if plugin=$(pjrt_plugin); then
  env -u NXD_CPU_MODE NXD_PJRT_PLUGIN="$plugin" NXD_PJRT_FAST_COMPILE=1 PJRT_NPROC=1 \
    TF_CPP_MIN_LOG_LEVEL=1 timeout 300 "$program" > "$work/pjrt"
  recorded+=("$work/pjrt")
fi
python3 - "$work/eager" "${recorded[@]}" << 'PY'
import re
import sys


def read(name):
    text = open(name).read()
    losses = [float(x) for x in re.findall(r"^step \d+ loss (\S+)$", text, re.M)]
    counts = dict(re.findall(r"(\w+) (\d+)", text.splitlines()[-1]))
    return losses, {name: int(value) for name, value in counts.items()}


runs = [read(name) for name in sys.argv[1:]]
(eager, none) = runs[0]
assert len(eager) == 40 and eager[-1] < eager[0] - 0.1, eager
assert not any(none.values()), none
for recorded, counts in runs[1:]:
    assert len(recorded) == 40, recorded
    assert max(abs(a - b) for a, b in zip(eager, recorded)) <= 1e-5, (eager, recorded)
    assert counts["steps"] == counts["executions"] == 40 and 1 <= counts["compiles"] <= 2, counts
    assert counts["implicit_syncs"] == counts["fallbacks"] == 0, counts
    print(counts)
for step in (0, 19, 39):
    print("step", step, "loss", *(losses[step] for losses, _ in runs))
PY
# A backend that there is not is named, with those that there are; and a plug-in that is missing.
if env -u NXD_CPU_MODE NXD_XLA_BACKEND=steam "$program" 2> "$work/error" > /dev/null; then exit 1; fi
grep -q 'NXD_XLA_BACKEND: expected replay or pjrt, got "steam"' "$work/error"
if env -u NXD_CPU_MODE -u NXD_PJRT_PLUGIN -u NEURON_LIBRARY_PATH NXD_XLA_BACKEND=pjrt "$program" 2> "$work/error" > /dev/null; then exit 1; fi
grep -q 'no PJRT plug-in was found: NXD_PJRT_PLUGIN and NEURON_LIBRARY_PATH are not set' "$work/error"
if env -u NXD_CPU_MODE NXD_PJRT_PLUGIN=/no/plugin.so "$program" 2> "$work/error" > /dev/null; then exit 1; fi
grep -q '/no/plugin.so' "$work/error"
