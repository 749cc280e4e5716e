#!/usr/bin/env bash
# What is generated from nxd.h is what is committed.
# usage: test_bindings_raw.sh SOURCE_DIR BUILD_DIR
set -euo pipefail
/usr/bin/python3 -c 'import pycparser' 2>/dev/null || { echo "python3-pycparser is missing"; exit 77; }
exec "$1/scripts/bindings" --check
