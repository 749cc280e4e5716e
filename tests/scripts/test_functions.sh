#!/usr/bin/env bash
# Every public function is called by name in a test of C or C++.
# usage: test_functions.sh SOURCE_DIR [BUILD_DIR]
set -euo pipefail
source=$1

functions=$(cat "$source"/include/nxd.h "$source"/include/nxd/*.h | tr '\n' ' ' |
  grep -oE 'NXD_API [^;(]*\(' | grep -oE 'nxd_[a-z0-9_]+\(' | tr -d '(' | sort -u)
count=$(wc -w <<< "$functions")
((count > 250)) || { echo "the header has $count functions only: it was not understood" >&2; exit 1; }

# Comments do not count, nor a name within a longer one. CHECK_INIT(x, X) calls nxd_x_options_init.
words=$(find "$source/tests" \( -name '*.c' -o -name '*.cpp' -o -name '*.h' \) -print0 |
  xargs -0 sed -E 's@//.*@@; s@CHECK_INIT\(([a-z_]+),@nxd_\1_options_init @' | grep -oE '\bnxd_[a-z0-9_]+')
used=$(sort -u <<< "$words")
missing=$(comm -23 <(printf '%s\n' $functions) <(printf '%s\n' "$used"))
if [[ $missing ]]; then
  echo "functions of nxd.h that no test names:" >&2
  printf '  %s\n' $missing >&2
  exit 1
fi
echo "$count functions are named in tests"
