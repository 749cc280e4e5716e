#!/usr/bin/env bash
# What is generated from nxd.h is what is committed.
# usage: test_bindings_raw.sh SOURCE_DIR BUILD_DIR
set -euo pipefail
. "$(dirname "$0")/lib.sh"
need_python pycparser cffi
exec "$1/scripts/bindings" --check
