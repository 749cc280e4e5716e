#!/usr/bin/env bash
# The reference is made without a warning and has every function on its topic's page; a comment that names a
# parameter that is not there, and a page with a dead link, are refused.
# usage: test_reference.sh SOURCE_DIR BUILD_DIR
set -euo pipefail
. "$(dirname "$0")/lib.sh"
source=$1
need_commands doxygen
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

"$source/scripts/reference" "$work/out"
functions=$(sed -n 's/^ *{"name": "\(nxd_[a-z0-9_]*\)", "topic": "\([a-z_]*\)", "library".*/\1:\2/p' "$source/bindings/api.json")
for entry in $functions; do
  page=${entry#*:}
  page=$work/out/html/${page//_/__}_8h.html
  grep -q ">${entry%:*}</a>" "$page" || { echo "${entry%:*} is not in the reference of its topic"; exit 1; }
done

bad="$work/bad tree"
mkdir -p "$bad/tests"
cp -r "$source"/{include,docs,scripts,README.md,CHANGELOG.md,CONTRIBUTING.md} "$bad"
cp -r "$source/tests/oracles" "$bad/tests"
(cd "$source" && cp --parents examples/*/README.md "$bad")
mkdir "$bad/bindings"
cp "$source/bindings/README.md" "$bad/bindings"
refuses() {
  if "$bad/scripts/reference" "$work/out" > "$work/log" 2>&1; then echo "FAILED: $1 passes"; exit 1; fi
  grep -q "$2" "$work/log" || { echo "FAILED: $1"; cat "$work/log"; exit 1; }
}
sed -i 's|@param buf  may be NULL|@param buffer  may be NULL|' "$bad/include/nxd/base.h"
refuses "a parameter that is not there" "argument 'buffer'"
cp "$source/include/nxd/base.h" "$bad/include/nxd"
echo '[gone](gone.md)' >> "$bad/docs/errors.md"
refuses "a dead link" "gone.md"
wc -w <<< "$functions" | sed 's/$/ functions are in the reference/'
