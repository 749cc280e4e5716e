#!/bin/sh
# Compiles through ccache, so that another clone of the same sources finds what this one has compiled.
# usage: ccache_compile.sh CCACHE BASE_DIR COMPILER ARGUMENT...
ccache=$1 CCACHE_BASEDIR=$2 CCACHE_NOHASHDIR=1
shift 2
# Without these ccache will not store what was compiled with a precompiled header.
CCACHE_SLOPPINESS=pch_defines,time_macros
# A precompiled header has hundreds of MiB, which ccache reads for each source that includes it, unless a
# checksum lies beside it.
CCACHE_PCH_EXTSUM=1
export CCACHE_BASEDIR CCACHE_NOHASHDIR CCACHE_SLOPPINESS CCACHE_PCH_EXTSUM
before= output=
for argument; do
  [ "$before" != -o ] || output=$argument
  before=$argument
done
case $output in
  *.gch | *.pch)
    rm -f "$output.sum"
    "$ccache" "$@" || exit
    exec sha256sum < "$output" > "$output.sum"
    ;;
esac
exec "$ccache" "$@"
