#!/usr/bin/env bash
# A short form of scripts/check_layouts, eagerly and on the recorded device; and it sees a run that differs.
# usage: test_random_layouts.sh SOURCE_DIR BUILD_DIR     77: no Python with cffi and numpy
set -euo pipefail
. "$(dirname "$0")/lib.sh"
source=$1 build=$2
need_python cffi numpy
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export PYTHONDONTWRITEBYTECODE=1 NXD_RANKS="2 4" NXD_CASES=8

"$source/scripts/check_layouts" "$build" 100
NXD_XLA_BACKEND=replay "$source/scripts/check_layouts" "$build" 200

export LD_LIBRARY_PATH=$build/src${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH} PYTHONPATH=$source/bindings/python NXD_CPU_MODE=1 OMP_NUM_THREADS=1
python=/usr/bin/python3 layouts=$source/bench/layouts
"$python" "$layouts/train.py" "$work" 2 1 --whole
cp "$work/2-0/whole.npz" "$work/2-0/stage0.npz"
"$python" "$layouts/compare.py" "$work"
for changed in losses norms p:; do
  "$python" - "$work/2-0" "$changed" <<'END'
import sys
import numpy
directory, changed = sys.argv[1:]
values = dict(numpy.load(directory + "/whole.npz"))
name = next(each for each in values if each.startswith(changed))
values[name] = values[name] * 1.2 + 0.2
numpy.savez(directory + "/stage0.npz", **values)
END
  if "$python" "$layouts/compare.py" "$work" > "$work/log"; then echo "FAILED: other $changed pass"; exit 1; fi
done
rm "$work/2-0/stage0.npz"
if "$python" "$layouts/compare.py" "$work" > "$work/log"; then echo "FAILED: a run that is not there passes"; exit 1; fi
