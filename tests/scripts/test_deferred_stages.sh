#!/usr/bin/env bash
# A model without values, cut over processes, takes on each of them the memory of its stage: at no
# time has a process more of the half gigabyte than its part, and 60 MB for all else.
# usage: test_deferred_stages.sh SOURCE_DIR BUILD_DIR     77: this build has no engine
set -euo pipefail
. "$(dirname "$0")/lib.sh"
build=$2
program=$build/tests/deferred_stages
need_built "$program"
export NXD_CPU_MODE=1 OMP_NUM_THREADS=1 NXD_TIMEOUT_MS=60000
for ranks in 2 4; do
  timeout 300 "$build/tools/nxdrun" -n $ranks "$program" |
    awk -v ranks=$ranks '
      { print; for (i = 1; i < NF; ++i) value[$i] = $(i + 1)
        sum += value["stage"]; whole = value["whole"]
        if (value["grown"] > value["stage"] + 6e7 || value["grown"] < 0.75 * value["stage"]) bad = 1 }
      END { exit bad || NR != ranks || whole < 4e8 || sum != whole }'
done
