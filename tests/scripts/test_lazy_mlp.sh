#!/usr/bin/env bash
# One program by one switch, eagerly and recorded: equal losses to 1e-5, one graph a step, at most
# two compiles in 40 steps whose learning rates all differ, no fallbacks.
# usage: test_lazy_mlp.sh SOURCE_DIR BUILD_DIR     77: this build has no examples
set -euo pipefail
. "$(dirname "$0")/lib.sh"
program=$2/examples/c/lazy_mlp
need_built "$program"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export OMP_NUM_THREADS=1
NXD_CPU_MODE=1 timeout 100 "$program" > "$work/eager"
env -u NXD_CPU_MODE NXD_XLA_BACKEND=replay timeout 100 "$program" > "$work/recorded"
python3 - "$work/eager" "$work/recorded" << 'PY'
import re
import sys


def read(name):
    text = open(name).read()
    losses = [float(x) for x in re.findall(r"^step \d+ loss (\S+)$", text, re.M)]
    counts = dict(re.findall(r"(\w+) (\d+)", text.splitlines()[-1]))
    return losses, {name: int(value) for name, value in counts.items()}


(eager, none), (recorded, counts) = read(sys.argv[1]), read(sys.argv[2])
assert len(eager) == len(recorded) == 40 and eager[-1] < eager[0] - 0.1, (eager, recorded)
assert max(abs(a - b) for a, b in zip(eager, recorded)) <= 1e-5, (eager, recorded)
assert not any(none.values()), none
assert counts["steps"] == counts["executions"] == 40 and 1 <= counts["compiles"] <= 2, counts
assert counts["implicit_syncs"] == counts["fallbacks"] == 0, counts
print(counts)
PY
# A backend that there is not is named, with the one that there is.
if env -u NXD_CPU_MODE NXD_XLA_BACKEND=steam "$program" 2> "$work/error" > /dev/null; then exit 1; fi
grep -q 'NXD_XLA_BACKEND: expected replay, got "steam"' "$work/error"
