#!/usr/bin/env bash
# The table of what calls cost has figures of C, also for a user whose numbers have a comma, and in ranks of a
# launcher.
# usage: test_bench_bindings.sh SOURCE_DIR BUILD_DIR
set -euo pipefail
. "$(dirname "$0")/lib.sh"
need_built "$2/bench/bench_calls"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
language=C.UTF-8
if localedef -i de_DE -f UTF-8 "$work/de_DE.UTF-8" > /dev/null 2>&1; then language=de_DE.UTF-8; fi
out=$(LOCPATH=$work LC_ALL=$language NXD_PASSES=1 NXD_LANGUAGES=c "$1/scripts/bench_bindings" "$2")
echo "$out"
# Ranks of a launcher that sets no RANK are ranks.
sums=$(timeout 300 "${as_mpirun[@]}" "$2/bench/bench_calls")
[[ $(grep -c "^all_reduce_1k_us " <<< "$sums") == 1 ]] || { echo "$sums"; exit 1; }
awk '$1 == "c" && $2 ~ /^[0-9]+\.[0-9]$/ && $2 > 0 && $3 ~ /^[0-9]+\.[0-9][0-9]$/ && $3 > 0 { found = 1 } END { exit !found }' <<< "$out"
