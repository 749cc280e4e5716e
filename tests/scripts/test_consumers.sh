#!/usr/bin/env bash
# A small project of a user's, in C or a language of the bindings: copied to an empty directory, built
# against the installed tree and run with two ranks.
# usage: test_consumers.sh SOURCE_DIR BUILD_DIR PROJECT     NXD_PREFIX: the installed tree
#   PROJECT: a directory of tests/consumers     77: its language, or libnxd.so, is missing
set -euo pipefail
. "$(dirname "$0")/lib.sh"
source=$1 part=$3
: "${NXD_PREFIX:?names the installed tree}"
compgen -G "$NXD_PREFIX/lib*/libnxd.so" > /dev/null || skip "no libnxd.so in $NXD_PREFIX" "build it with the engine"
case $part in
  c | cmake) need_commands gcc make cmake pkg-config ;;
  go)
    need_commands go:golang-go gcc pkg-config
    export GOFLAGS=-p=1
    cache_go_packages
    ;;
  julia) [[ -x ${NXD_JULIA:-/opt/julia15/bin/julia} ]] || command -v julia > /dev/null ||
    skip "julia is missing" "install it with scripts/install_julia" ;;
  python) need_python cffi numpy ;;
  rust)
    need_commands cargo rustc pkg-config
    # It is built once, and no debugger reads it.
    export CARGO_INCREMENTAL=0 CARGO_PROFILE_DEV_DEBUG=0
    ;;
  *) echo "no needs are known of tests/consumers/$part"; exit 1 ;;
esac
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cp -r "$source/tests/consumers/$part" "$work/project"
cd "$work/project"
timeout 300 ./run
