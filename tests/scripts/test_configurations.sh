#!/usr/bin/env bash
# A build without the engine links nothing with it.
# usage: test_configurations.sh SOURCE_DIR BUILD_DIR
set -euo pipefail
. "$(dirname "$0")/lib.sh"
source=$1
need_commands cmake ninja:ninja-build
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# configure DIRECTORY ARGUMENT...: without building anything; what Ninja would run is in $work/commands.
configure() {
  cmake -S "$1" -B "$work/build" -G Ninja "${@:2}" > "$work/log" 2>&1 || { cat "$work/log"; exit 1; }
  ninja -C "$work/build" -t commands > "$work/commands"
}

configure "$source" -DNXD_BUILD_ENGINE=OFF -DNXD_UNITY=ON
grep -q 'libnxd_core\.so' "$work/commands" || { echo "no command makes libnxd_core"; exit 1; }
if grep -E -- '(-lnxd|libnxd\.so)( |$)' "$work/commands" | cut -c1-300; then
  echo "a build without the engine is linked with it"
  exit 1
fi
