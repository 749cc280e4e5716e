#!/usr/bin/env bash
# The table of what calls cost has figures of C, also for a user whose numbers have a comma, and in ranks of a
# launcher. A language without its tools is named, and status 77 says that nothing was measured.
# usage: test_bench_bindings.sh SOURCE_DIR BUILD_DIR
set -euo pipefail
. "$(dirname "$0")/lib.sh"
need_built "$2/bench/bench_calls"
script=$1/scripts/bench_bindings
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
language=C.UTF-8
if localedef -i de_DE -f UTF-8 "$work/de_DE.UTF-8" > /dev/null 2>&1; then language=de_DE.UTF-8; fi
out=$(LOCPATH=$work LC_ALL=$language NXD_PASSES=1 NXD_LANGUAGES=c "$script" "$2")
echo "$out"
# Ranks of a launcher that sets no RANK are ranks.
sums=$(timeout 300 "${as_mpirun[@]}" "$2/bench/bench_calls")
[[ $(grep -c "^all_reduce_1k_us " <<< "$sums") == 1 ]] || { echo "$sums"; exit 1; }
awk '$1 == "c" && $2 ~ /^[0-9]+\.[0-9]$/ && $2 > 0 && $3 ~ /^[0-9]+\.[0-9][0-9]$/ && $3 > 0 { found = 1 } END { exit !found }' <<< "$out"
# In a build without benchmarks all that was asked for may be left out. A program that cannot be built is no such.
mkdir "$work/build"
# shellcheck disable=SC2016 # cmake's variable
echo 'file(WRITE "${CMAKE_INSTALL_PREFIX}/lib/libnxd_core.so" "")' > "$work/build/cmake_install.cmake"
# ends STATUS LANGUAGES TEXT: in that build.
ends() {
  local status=0
  NXD_LANGUAGES=$2 "$script" "$work/build" > "$work/out" 2>&1 || status=$?
  if [[ $status != "$1" ]] || ! grep -q "$3" "$work/out"; then
    echo "$2: expected status $1, got $status and:"
    cat "$work/out"
    exit 1
  fi
}
ends 77 c "skip: bench_bindings c: $work/build has no bench_calls; build it with scripts/build"
if command -v go > /dev/null; then ends 1 "c go" "^go  *-  *not built: "; fi
