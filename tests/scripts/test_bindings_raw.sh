#!/usr/bin/env bash
# The generated sources that are committed are those that nxd.h gives.
# usage: test_bindings_raw.sh SOURCE_DIR BUILD_DIR
set -euo pipefail
. "$(dirname "$0")/lib.sh"
need_python pycparser cffi
exec "$1/scripts/bindings" --check
