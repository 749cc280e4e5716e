#!/usr/bin/env bash
# The long form of test_allocation_failures tries every kind of call: each row counts its own runs, one
# for each call that its stride names, and the last line has their sum. A run may make some calls more or
# fewer than the one that counted them: threads meet in another order.
# usage: test_allocation_rows.sh SOURCE_DIR BUILD_DIR
set -euo pipefail
program=$2/tests/test_allocation_failures
stride=1000 vary=50

out=$(OMP_NUM_THREADS=1 NXD_CPU_MODE=1 NXD_LOG_LEVEL=off NXD_FAILURES_OFFSET=0 \
  "$program" --whole --program alone --stride $stride)
awk -v stride=$stride -v vary=$vary '
  function runs_for(calls) { return int(((calls < 1 ? 1 : calls) + stride - 1) / stride) }
  $1 == "alone" {
    calls = $4; runs = $5; fewest = runs_for(calls - vary); most = runs_for(calls + vary)
    kinds[$2]; sum += runs
    if (runs < fewest || runs > most) {
      print "expected " fewest " to " most " runs, got: " $0; failed = 1
    }
  }
  / runs with failures:/ { total = $1 }
  END {
    if (total != sum) { print "expected " sum " runs in all, got " total; failed = 1 }
    if (length(kinds) < 3) { print "expected 3 kinds of calls, got " length(kinds); failed = 1 }
    exit failed
  }' <<< "$out" || { echo "$out"; exit 1; }
