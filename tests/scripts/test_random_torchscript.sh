#!/usr/bin/env bash
# A short form of scripts/check_torchscript, eagerly and on the recorded device; and it sees a module that becomes another.
# usage: test_random_torchscript.sh SOURCE_DIR BUILD_DIR     77: no Python with cffi, numpy and torch
set -euo pipefail
. "$(dirname "$0")/lib.sh"
source=$1 build=$2
need_python cffi numpy torch
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export PYTHONDONTWRITEBYTECODE=1
NXD_CASES=8 "$source/scripts/check_torchscript" "$build" 300
NXD_CASES=6 NXD_XLA_BACKEND=replay NXD_LOG_LEVEL=error "$source/scripts/check_torchscript" "$build" 400

export OMP_NUM_THREADS=1 NXD_CPU_MODE=1
python=/usr/bin/python3
"$python" "$source/bench/torchscript/draw.py" "$work" 1
train() { LD_LIBRARY_PATH=$build/src${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH} PYTHONPATH=$source/bindings/python "$python" "$source/bench/torchscript/train.py" "$work"; }
train
for changed in losses p:embedding.weight; do
  cp "$work/0.npz" "$work/kept"
  "$python" - "$work/0.npz" "$changed" <<'END'
import sys
import numpy
path, changed = sys.argv[1:]
values = dict(numpy.load(path))
values[changed] = values[changed] * 1.05
numpy.savez(path, **values)
END
  if train > "$work/log"; then echo "FAILED: other $changed pass"; exit 1; fi
  mv "$work/kept" "$work/0.npz"
done
