#!/usr/bin/env bash
# Runs the programs in C once, which the tests of bindings compare those of their languages with; what they
# write is in BUILD_DIR/programs_in_c.
# usage: programs_in_c.sh SOURCE_DIR BUILD_DIR     77: this build has no examples in C
set -euo pipefail
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/programs.sh"
kept=$2/programs_in_c
rm -rf "$kept"
examples=$(find_c_examples "$2")
[[ -n $examples ]] || skip "there are no examples in C" "build them with scripts/build"
export NXD_CPU_MODE=1 OMP_NUM_THREADS=1
keep_programs "$1" "$examples" "$kept"
keep_lazy_programs "$examples" "$kept"
