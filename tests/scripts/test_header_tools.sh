#!/usr/bin/env bash
# Tools that read headers take nxd.h as it is.
# usage: test_header_tools.sh SOURCE_DIR BUILD_DIR     NXD_LONG=1: bindgen too, which takes minutes to build
set -euo pipefail
. "$(dirname "$0")/lib.sh"
export PATH=/usr/bin:$PATH
exec timeout 880 "$1/scripts/header_tools" "$2"
