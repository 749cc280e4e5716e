#!/usr/bin/env bash
# A short form of scripts/check_pipelines; and it sees a model, and a weight of losses, that differ.
# usage: test_random_pipelines.sh SOURCE_DIR BUILD_DIR     77: no Python with cffi, numpy and torch
set -euo pipefail
. "$(dirname "$0")/lib.sh"
source=$1 build=$2
need_python cffi numpy torch
export PYTHONDONTWRITEBYTECODE=1
NXD_RANKS="1 2" NXD_CASES=4 "$source/scripts/check_pipelines" "$build"
NXD_RANKS=4 NXD_CASES=2 "$source/scripts/check_pipelines" "$build" 100
NXD_RANKS=2 NXD_CASES=1 NXD_XLA_BACKEND=replay "$source/scripts/check_pipelines" "$build" 200

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# A kind is the same one whichever comes before it.
NXD_RANKS=1 NXD_CASES=1 NXD_KINDS="own scripted" "$source/scripts/check_pipelines" "$build" | tee "$work/log"
sed 's/.* agree with \(.*\), F64/\1/' "$work/log" | diff - <(printf "one rank's\nPyTorch's\n")
cp -r "$source/bench/pipelines" "$work/pipelines"
# FILE CHANGE [OPTION]
differs() {
  sed -i "$2" "$work/pipelines/$1"
  if LD_LIBRARY_PATH=$build/src${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH} PYTHONPATH=$source/bindings/python OMP_NUM_THREADS=1 NXD_CPU_MODE=1 "$build/tools/nxdrun" \
      -n 2 /usr/bin/python3 "$work/pipelines/train.py" "$work" 4 0 "${@:3}" > "$work/log" 2>&1; then
    echo "FAILED: $2 passes"
    exit 1
  fi
  grep -q "^FAILED: program .* differs by" "$work/log"
  cp "$source/bench/pipelines/$1" "$work/pipelines/"
}
differs reference.py 's/(weight \* own).backward()/(1.001 * weight * own).backward()/'
differs reference.py 's/copy.train(training)/copy.train(True)/'
differs solo.py 's/(own \* weight).backward()/(own * (1.001 * weight)).backward()/' --own
differs layers.py 's/return x + self.inner(x)/return x + self.inner(x) * (1 + 0.001 * (self.context.size - 1))/' --own
