#!/usr/bin/env bash
# scripts/finalizations in short, where rank 0 serves the store and where something else does.
# usage: test_finalizations.sh SOURCE_DIR BUILD_DIR     77: this build has no test programs
set -euo pipefail
. "$(dirname "$0")/lib.sh"
source=$1 build=$2
need_built "$build/tests/finalizations"
# A stack of 64 KiB is enough, for the program's thread and for the library's.
for transport in gloo shared_memory; do
  (ulimit -s 64 && NXD_TRANSPORT=$transport timeout 300 "$build/tools/nxdrun" -n 2 "$build/tests/finalizations" 3)
done
NXD_FINALIZATIONS_BUILD=$build NXD_FINALIZATIONS_SECONDS=300 \
  "$source/scripts/finalizations" "${NXD_FINALIZATIONS:-150}" addresses nxdrun
