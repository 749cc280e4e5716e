#!/usr/bin/env bash
# Small projects of users, in C and the languages of the bindings, each copied to an empty directory,
# built against the installed tree and run with two ranks.
# usage: test_consumers.sh SOURCE_DIR BUILD_DIR     NXD_PREFIX: the installed tree
#   77: this build has no libnxd.so
set -euo pipefail
source=$1
: "${NXD_PREFIX:?names the installed tree}"
compgen -G "$NXD_PREFIX/lib*/libnxd.so" > /dev/null || { echo "no libnxd.so in $NXD_PREFIX"; exit 77; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failed=0
for project in "$source"/tests/consumers/*/; do
  name=$(basename "$project")
  cp -r "$project" "$work/$name"
  rc=0
  (cd "$work/$name" && timeout 250 ./run) > "$work/log" 2>&1 || rc=$?
  case $rc in
    0) echo "$name: ok" ;;
    77) echo "$name: left out: $(tail -n 1 "$work/log")" ;;
    *) echo "$name: FAILED, exit $rc"; cat "$work/log"; failed=1 ;;
  esac
done
exit $failed
