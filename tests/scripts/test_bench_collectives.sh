#!/usr/bin/env bash
# The collectives' benchmark runs, checks its results and writes figures of every case it names; it
# refuses contenders it does not know.
# usage: test_bench_collectives.sh SOURCE_DIR BUILD_DIR     77: this build has no benchmarks
set -euo pipefail
. "$(dirname "$0")/lib.sh"
source=$1 build=$2
need_built "$build/bench/bench_collectives"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export NXD_TIMEOUT_MS=60000

bench() { timeout 800 "$source/scripts/bench_collectives" "$build" --short "$@"; }

bench --contenders "shm arena,shm malloc,gloo,copy,in place,in shared" --out "$work/figures.tsv" > "$work/table"
cat "$work/table"
python3 - "$work/figures.tsv" <<'PY'
import sys
rows = [line.rstrip("\n").split("\t") for line in open(sys.argv[1]) if not line.startswith("#")]
head, rows = rows[0], rows[1:]
gloo = {(r[0], r[1], r[3]): r for r in rows if r[4] == "gloo"}
want = {("all_reduce", d, b) for d in ("f32", "bf16") for b in ("4096", "1048576")}
want |= {(o, "f32", b) for o in ("reduce_scatter", "all_gather", "broadcast", "all_to_all",
                                 "ping_pong") for b in ("4096", "1048576")}
want.add(("barrier", "f32", "0"))
if set(gloo) != want:
    sys.exit(f"cases differ: {set(gloo) ^ want}")
for row in gloo.values():
    p50, p99, least = (float(x) for x in row[5:8])
    if not (0 < least <= p50 <= p99 and int(row[8]) >= 12):
        sys.exit(f"no figures: {row}")
PY
# Three ranks do not divide the bytes, nor do they divide by two cores, on which the bounds have their work.
bench --ranks 3 --operations all_gather,all_to_all,reduce_scatter,all_reduce \
  --contenders "shm arena,gloo,copy,in place,in shared" --out "$work/three.tsv" > "$work/table" ||
  { cat "$work/table"; exit 1; }
bench --ranks 3 --operations all_gather,all_to_all --contenders "torch gloo" --out "$work/torch.tsv" > "$work/table" ||
  { cat "$work/table"; exit 1; }
if grep -P "\tn/a\t" "$work/three.tsv" "$work/torch.tsv"; then exit 1; fi
# Bounds are of the pass of their all-reduce, also where another one has none.
python3 - "$source/scripts/bench_collectives" "$work/passes.tsv" <<'PY'
import importlib.machinery, importlib.util, pathlib, sys
loader = importlib.machinery.SourceFileLoader("bench_collectives", sys.argv[1])
sys.dont_write_bytecode = True
bench = importlib.util.module_from_spec(importlib.util.spec_from_loader(loader.name, loader))
loader.exec_module(bench)
row = "all_reduce\tf32\t2\t4096\t{}\t{}\t9\t1\t12\t{}"
lines = [row.format("shm arena", 5, "ok"), row.format("copy", 4, "ok"),
         row.format("shm arena", "n/a", "failed"), row.format("copy", 3, "ok"),
         row.format("shm arena", 6, "ok"), row.format("copy", 2, "ok")]
path = pathlib.Path(sys.argv[2])
path.write_text("\n".join(lines), encoding="utf-8")
best, _, notes = bench.read_results(path)
found = [best["all_reduce", "f32", 2, 4096, label][0] for label in ("shm arena", "copy")]
assert found == [5, 4] and ("shm arena", "failed") in notes, (found, notes)
PY
# A run that fails is told, whatever other passes and numbers of ranks measured.
mkdir -p "$work/told/bench" "$work/told/tools"
ln -s "$(realpath "$build/bench/bench_collectives")" "$work/told/bench/"
cat > "$work/told/tools/nxdrun" << 'END'
#!/bin/sh
echo run >> "$0.runs"
[ "$(wc -l < "$0.runs")" != 2 ] || { echo "its second run failed" >&2; exit 1; }
exec "$NXDRUN" "$@"
END
chmod +x "$work/told/tools/nxdrun"
for options in "--passes 2 --ranks 2" "--passes 1 --ranks 2,3"; do
  status=0
  rm -f "$work/told/tools/nxdrun.runs"
  # shellcheck disable=SC2086
  NXDRUN=$build/tools/nxdrun timeout 800 "$source/scripts/bench_collectives" "$work/told" --short $options \
    --contenders gloo --operations barrier > "$work/table" 2> "$work/said" || status=$?
  [[ $status == 1 ]] && grep -q "^failed: gloo with ${options: -1} ranks: its second run failed" "$work/table" ||
    { echo "$options: status $status"; cat "$work/table" "$work/said"; exit 1; }
done
if bench --ranks 3 --operations ping_pong 2> "$work/refused"; then echo "nothing is measured"; exit 1; fi
grep -q "nothing to measure" "$work/refused"
if bench --contenders "nothing known" --out "$work/none.tsv" > "$work/refused" 2>&1; then
  echo "a contender that is not known was accepted"
  exit 1
fi
grep -q "unknown: nothing known; known: shm arena" "$work/refused"
[[ ! -e $work/none.tsv ]]
