#!/usr/bin/env bash
# A short form of scripts/check_tensors; and it sees a program that differs.
# usage: test_random_tensors.sh SOURCE_DIR BUILD_DIR     77: no Python with cffi, numpy and torch
set -euo pipefail
. "$(dirname "$0")/lib.sh"
source=$1 build=$2
need_python cffi numpy torch
NXD_CASES=120 "$source/scripts/check_tensors" "$build" 1000

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export OMP_NUM_THREADS=1 NXD_CPU_MODE=1 PYTHONDONTWRITEBYTECODE=1
/usr/bin/python3 "$source/bench/tensors/draw.py" "$work/programs" 1 1 cpu
replay() {
  LD_LIBRARY_PATH=$build/src${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH} PYTHONPATH=$source/bindings/python \
    /usr/bin/python3 "$source/bench/tensors/replay.py" "$work/programs" > "$work/log" 2>&1
}
replay || { cat "$work/log"; exit 1; }
PYTHONPATH=$source/bench/tensors /usr/bin/python3 - "$work/programs" <<'END'
import pickle
import sys
with open(sys.argv[1], "rb") as file:
    programs = pickle.load(file)
value = next(value for value, *_ in programs[1][-1][1].values() if value.size and value.dtype.kind == "f")
value[...] = value * 1.2 + 0.2
with open(sys.argv[1], "wb") as file:
    pickle.dump(programs, file)
END
if replay; then echo "FAILED: another value passes"; exit 1; fi
grep -q "torch's" "$work/log"
