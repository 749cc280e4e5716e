#!/usr/bin/env bash
# A short form of scripts/check_loops; and it sees a loop that differs. It and its kin end when ranks do before any seed.
# usage: test_random_loops.sh SOURCE_DIR BUILD_DIR     77: no Python with cffi, numpy and torch
set -euo pipefail
. "$(dirname "$0")/lib.sh"
source=$1 build=$2
need_python cffi numpy torch
export PYTHONDONTWRITEBYTECODE=1
NXD_RANKS=1 NXD_CASES=40 "$source/scripts/check_loops" "$build"
NXD_RANKS="2 4" NXD_CASES=9 "$source/scripts/check_loops" "$build" 100

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cp -r "$source/bench/loops" "$work/loops"
sed -i 's/lr = h\["learning_rate"\] \* self.factor()/lr = 1.01 * h["learning_rate"] * self.factor()/' "$work/loops/reference.py"
if LD_LIBRARY_PATH=$build/src${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH} PYTHONPATH=$source/bindings/python OMP_NUM_THREADS=1 NXD_CPU_MODE=1 \
    /usr/bin/python3 "$work/loops/train.py" "$work" 5 0 > "$work/log" 2>&1; then
  echo "FAILED: another learning rate passes"
  exit 1
fi
grep -q "^FAILED: loop .* differs by" "$work/log"

# Ranks that end without a seed of their own, after others that had one.
mkdir -p "$work/build/tools"
cat > "$work/build/tools/nxdrun" <<'END'
#!/bin/sh
# The directory is an argument, or a variable of check_layouts'.
[ -e "$0.ran" ] || echo 3 > "${work:-$5}/last"
touch "$0.ran"
exit 1
END
chmod +x "$work/build/tools/nxdrun"
for script in check_loops check_layouts check_pipelines check_layers; do
  code=0
  rm -f "$work/build/tools/nxdrun.ran"
  NXD_RANKS=1 NXD_CASES=9 timeout 60 "$source/scripts/$script" "$work/build" > "$work/log" 2>&1 || code=$?
  [[ $code == 1 && -e $work/build/tools/nxdrun.ran ]] || { cat "$work/log"; echo "FAILED: $script ends with $code"; exit 1; }
done
