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

# expect STATUS LAST_LINE TESTS [STEP_FILE...]: and what was printed is in $work/out.
expect() {
  local status=0 expected=$1 last=$2 tests=$3
  shift 3
  (cd "$work/build" && ctest --output-junit "$work/tests.xml" -R "$tests" > /dev/null 2>&1) || true
  "$source/scripts/test_summary" "$work/tests.xml" "$@" > "$work/out" || status=$?
  if [[ $status != "$expected" || $(tail -n 1 "$work/out") != "$last" ]]; then
    echo "for $tests: expected status $expected and \"$last\", got $status and:"
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
# Steps before add what they skipped, and nothing else.
(cd "$work/build" && ctest --output-junit "$work/TSan.xml" -R "good|part|whole" > /dev/null 2>&1)
echo "skip: fuzzers: no such compiler; install one" > "$work/fuzzers.txt"
expect 0 "1 passed, 0 failed, 2 skipped" good "$work/TSan.xml" "$work/fuzzers.txt"
grep -qx "  part under TSan: half of it: nothing is there; install everything" "$work/out"
grep -qx "  whole under TSan: all of it: no such thing; install thing" "$work/out"
grep -qx "  fuzzers: no such compiler; install one" "$work/out"

# scripts/test, with a stand-in for each step: whatever a step skips is in the list and in the last line.
mkdir -p "$work/tree/scripts" "$work/tree/build"
cp "$source/scripts/test" "$source/scripts/test_summary" "$work/tree/scripts/"
cp "$work/build/CTestTestfile.cmake" "$work/tree/build/"
cat >> "$work/tree/build/CTestTestfile.cmake" <<'END'
add_test(long "sh" "-c" "seq 1 2000; echo 'skip: the end of long: it is late; install time'")
END
for name in deps format build; do printf '#!/bin/sh\n' > "$work/tree/scripts/$name"; done
cat > "$work/tree/scripts/sanitize" <<'END'
#!/bin/bash
while [[ $1 == --tsan || $1 == --short ]]; do shift; done
exec ctest --test-dir "$(dirname "$0")/../build" -R 'good|part' "$@"
END
cat > "$work/tree/scripts/fuzz" <<'END'
#!/bin/bash
echo "skip: fuzzers: no such compiler; install one"
exit 77
END
chmod +x "$work/tree/scripts"/*
status=0
"$work/tree/scripts/test" -R 'good|long|whole' > "$work/out" 2>&1 || status=$?
if [[ $status != 0 || $(tail -n 1 "$work/out") != "2 passed, 0 failed, 2 skipped" ]]; then
  echo "scripts/test ended with $status:"
  cat "$work/out"
  exit 1
fi
for line in "part under ASan: half of it" "part under TSan: half of it" "long: the end of long" "fuzzers: no such" \
  "whole: all of it"; do
  grep -q "^  $line" "$work/out" || { echo "$line is not listed:"; cat "$work/out"; exit 1; }
done

# scripts/sanitize fails where it has built tests and ctest knows none of them.
none=$work/none
mkdir -p "$none"/{scripts,include/nxd,tests/core,tests/capi}
cp "$source/scripts/sanitize" "$none/scripts/"
echo '#include "thing.h"' > "$none/include/nxd/engine.h"
echo '#include <pthread.h>' > "$none/tests/core/test_absent.c"
printf '#include <pthread.h>\n#pragma omp parallel\n' > "$none/tests/core/test_team.c"
printf '#!/bin/sh\nmkdir -p "$1"\n: > "$1/CTestTestfile.cmake"\n' > "$none/scripts/build"
chmod +x "$none/scripts/build"
for kind in --tsan --short; do
  if "$none/scripts/sanitize" $kind > "$work/out" 2>&1; then echo "scripts/sanitize $kind passes without a test"; exit 1; fi
  grep -q "No tests were found" "$work/out" || { cat "$work/out"; exit 1; }
done
echo ok
