#!/usr/bin/env bash
# The table of what calls cost has figures of C.
# usage: test_bench_bindings.sh SOURCE_DIR BUILD_DIR
set -euo pipefail
. "$(dirname "$0")/lib.sh"
need_built "$2/bench/bench_calls"
out=$(NXD_PASSES=1 NXD_LANGUAGES=c "$1/scripts/bench_bindings" "$2")
echo "$out"
awk '$1 == "c" && $2 > 0 && $3 > 0 { found = 1 } END { exit !found }' <<< "$out"
