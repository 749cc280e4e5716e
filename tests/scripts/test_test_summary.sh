#!/usr/bin/env bash
# scripts/test_summary counts what ctest reports, names each skip with its reason, and fails when a
# test failed, could not be started, or none ran.
# usage: test_test_summary.sh SOURCE_DIR BUILD_DIR
set -euo pipefail
source=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

mkdir "$work/build"
cat > "$work/build/CTestTestfile.cmake" <<'END'
add_test(good "true")
add_test(part "echo" "skip: half of it: nothing is there; install everything")
add_test(whole "sh" "-c" "echo 'skip: all of it: no such thing; install thing'; exit 77")
set_tests_properties(whole PROPERTIES SKIP_RETURN_CODE 77)
add_test(bad "false")
add_test(absent "/nowhere/program")
END

# expect STATUS LAST_LINE TESTS: and what was printed is in $work/out.
expect() {
  local status=0
  (cd "$work/build" && ctest --output-junit "$work/tests.xml" -R "$3" > /dev/null 2>&1) || true
  "$source/scripts/test_summary" "$work/tests.xml" > "$work/out" || status=$?
  if [[ $status != "$1" || $(tail -n 1 "$work/out") != "$2" ]]; then
    echo "for $3: expected status $1 and \"$2\", got $status and:"
    cat "$work/out"
    exit 1
  fi
}
expect 0 "1 passed, 0 failed, 0 skipped" good
expect 0 "2 passed, 0 failed, 1 skipped" "good|part|whole"
grep -qx "  part: half of it: nothing is there; install everything" "$work/out"
grep -qx "  whole: all of it: no such thing; install thing" "$work/out"
expect 1 "1 passed, 1 failed, 0 skipped" "good|bad"
grep -qx "  bad" "$work/out"
expect 1 "1 passed, 1 failed, 0 skipped" "good|absent"
expect 1 "0 passed, 0 failed, 1 skipped" whole
echo ok
