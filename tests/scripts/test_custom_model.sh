#!/usr/bin/env bash
# The example with a model, an activation and a loss of its own, on one rank and on two: its losses
# are those that tests/oracles/custom_model/make.py computes with numpy.
# usage: test_custom_model.sh SOURCE_DIR BUILD_DIR     77: this build has no examples
set -euo pipefail
. "$(dirname "$0")/lib.sh"
source=$1 build=$2
example=$build/examples/c/custom_model
need_built "$example"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export NXD_CPU_MODE=1 OMP_NUM_THREADS=1 NXD_TIMEOUT_MS=60000

compare() {
  python3 - "$source/tests/oracles/custom_model/expected.json" "$1" <<'PY'
import json, sys
want = json.load(open(sys.argv[1]))["losses"]
got = [float(line.split()[3]) for line in open(sys.argv[2]) if line.startswith("step ")]
if len(got) != len(want):
    sys.exit(f"expected {len(want)} losses, got {len(got)}")
worst = max(abs(g - w) / max(1.0, abs(w)) for g, w in zip(got, want))
print(f"largest difference {worst:.2g}; loss {got[0]:.6f} to {got[-1]:.6f}")
if not worst <= 1e-5:
    sys.exit("the losses differ from numpy's")
PY
}

timeout 300 "$example" > "$work/one" || { cat "$work/one"; exit 1; }
compare "$work/one"
timeout 300 "$build/tools/nxdrun" -n 2 "$example" > "$work/two" || { cat "$work/two"; exit 1; }
# The launcher may put a rank's name in front of its lines.
sed -E 's/^.*(step [0-9]+ loss )/\1/' "$work/two" > "$work/two.lines"
compare "$work/two.lines"
