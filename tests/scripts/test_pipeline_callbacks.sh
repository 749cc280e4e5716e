#!/usr/bin/env bash
# The example of a caller's own stages on one, two and four ranks, with every schedule, with chunks
# and started by itself or as ranks of mpirun: losses fall, and are the same to the last digit. Timelines are written.
# usage: test_pipeline_callbacks.sh SOURCE_DIR BUILD_DIR     77: this build has no examples
set -euo pipefail
. "$(dirname "$0")/lib.sh"
build=$2
example=$build/examples/c/pipeline_callbacks
need_built "$example"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export NXD_CPU_MODE=1 OMP_NUM_THREADS=1 NXD_TIMEOUT_MS=60000

# run NAME COMMAND...: keeps the lines with a loss, without what a launcher puts before them.
run() {
  local out=$work/$1
  shift
  timeout 300 "$@" > "$out.log" 2>&1 || { cat "$out.log"; exit 1; }
  sed -nE 's/^.*(step [0-9]+ loss .*)$/\1/p' "$out.log" > "$out"
  [[ $out == "$work/one" ]] || cmp "$work/one" "$out"
}

run one "$example"
awk 'NR == 1 { first = $4 } { last = $4 }
     END { print NR " steps, loss " first " to " last; exit !(NR == 30 && last < 0.5 * first) }' "$work/one"
for n in 2 4; do
  for schedule in 1f1b gpipe zero-bubble; do
    run "$n.$schedule" "$build/tools/nxdrun" -n $n "$example" --schedule $schedule
  done
  run "$n.interleaved" "$build/tools/nxdrun" -n $n "$example" --chunks 2 --timeline "$work/$n.json"
  python3 -c 'import json, sys; assert json.load(open(sys.argv[1]))["traceEvents"]' "$work/$n.json"
done
run one.chunks "$example" --chunks 4 --schedule gpipe
run spawn env NEURON_NUM_DEVICES=2 "$example" --timeline "$work/spawn.json"
run mpirun env NEURON_NUM_DEVICES=2 "${as_mpirun[@]}" "$example"
# A picture has a box for each task: of two ranks, forth and back, 8 microbatches, 30 steps.
"$1/scripts/draw_timeline" "$work/spawn.json" "$work/spawn.svg"
python3 - "$work/spawn.svg" "$((2 * 2 * 8 * 30))" <<'END'
import sys
from xml.dom import minidom
titles = minidom.parse(sys.argv[1]).getElementsByTagName("title")
boxes = sum(not title.firstChild.data.startswith("wait") for title in titles)
assert boxes == int(sys.argv[2]), boxes
END
loads_no_libtorch "$example"
