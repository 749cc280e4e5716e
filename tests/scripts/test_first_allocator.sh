#!/usr/bin/env bash
# ATen's memory comes from the pool at first, or does not: in a program that knows libnxd alone, in one
# that had libtorch before, and as NXD_ATEN_POOL says.
# usage: test_first_allocator.sh SOURCE_DIR BUILD_DIR     77: this build has no libnxd.so
set -euo pipefail
. "$(dirname "$0")/lib.sh"
build=$2
library=$build/src/libnxd.so
need_built "$library"
torch=$(ldd "$library" | awk '/libtorch_cpu\.so/ {print $3}')
unset NXD_ATEN_POOL

# The setting in a program that loads these libraries in turn, libnxd last.
first_setting() {
  python3 - "$@" "$library" <<'EOF'
import ctypes
import sys

for path in sys.argv[1:]:
    loaded = ctypes.CDLL(path)
on = ctypes.c_int32(-1)
assert loaded.nxd_memory_get_aten_pool(ctypes.byref(on)) == 0
print(on.value)
EOF
}

expect() {
  local expected=$1 found
  shift
  found=$("$@") || { echo "$*: failed"; exit 1; }
  [[ $found == "$expected" ]] || { echo "$*: expected $expected, got $found"; exit 1; }
}
expect 1 first_setting
expect 0 first_setting "$torch"
NXD_ATEN_POOL=0 expect 0 first_setting
NXD_ATEN_POOL=1 expect 1 first_setting "$torch"
# A value that is not a number is reported, and leaves ATen as it is.
NXD_ATEN_POOL=maybe expect 0 first_setting 2>/dev/null
