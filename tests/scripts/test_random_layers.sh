#!/usr/bin/env bash
# A short form of scripts/check_layers; and it sees outputs and gradients that differ.
# usage: test_random_layers.sh SOURCE_DIR BUILD_DIR     77: no Python with cffi, numpy and torch
set -euo pipefail
. "$(dirname "$0")/lib.sh"
source=$1 build=$2
need_python cffi numpy torch
export PYTHONDONTWRITEBYTECODE=1
NXD_RANKS=1 NXD_CASES=28 "$source/scripts/check_layers" "$build"
NXD_RANKS=3 NXD_CASES=8 "$source/scripts/check_layers" "$build" 100

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# Runs 20 programs of a kind beside an oracle of which a line is another one; they must differ.
sees() {
  local kind=$1 file=$2 from=$3 to=$4
  rm -rf "$work/layers"
  cp -r "$source/bench/layers" "$work/layers"
  grep -qF "$from" "$work/layers/$file" || { echo "FAILED: $file has no $from"; exit 1; }
  sed -i "s/$from/$to/" "$work/layers/$file"
  if LD_LIBRARY_PATH=$build/src${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH} PYTHONPATH=$source/bindings/python OMP_NUM_THREADS=1 NXD_CPU_MODE=1 \
      /usr/bin/python3 "$work/layers/run_$kind.py" "$work" 20 0 > "$work/log" 2>&1; then
    echo "FAILED: $to instead of $from passes"
    exit 1
  fi
  grep -q "^FAILED: program .* differs: element" "$work/log" || { cat "$work/log"; exit 1; }
}

sees buffers rowwise.py "eps = eps or 1e-5" "eps = eps or 2e-5"
sees tensors layers.py "self.eps = self.eps or 1e-5" "self.eps = self.eps or 2e-5"
