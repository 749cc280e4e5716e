#!/usr/bin/env bash
# The Python binding's sources make a wheel of Python alone, without a network: it has every module,
# asks for cffi, has the library's version, and works where it is unpacked.
# usage: test_python_wheel.sh SOURCE_DIR BUILD_DIR     77: no pip, setuptools or wheel
set -euo pipefail
. "$(dirname "$0")/lib.sh"
need_python cffi pip setuptools wheel
source=$1 build=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# As bindings/python/README.md has it: pip writes beside the sources, which may be read-only.
cp -r "$source/bindings/python" "$work/python"
env -u PYTHONPATH /usr/bin/python3 -m pip --quiet --disable-pip-version-check wheel --no-build-isolation --no-deps \
  --no-index --wheel-dir "$work" "$work/python" > "$work/log" 2>&1 || { cat "$work/log"; exit 1; }
version=$(sed -nE 's/^project\(nxd VERSION ([0-9.]+) .*/\1/p' "$source/CMakeLists.txt")
wheel=$work/libnxd-$version-py3-none-any.whl
[[ -e $wheel ]] || { ls "$work"; echo "expected $(basename "$wheel")"; exit 1; }

mkdir "$work/site"
python3 -m zipfile -e "$wheel" "$work/site"
(cd "$source/bindings/python" && find nxd \( -name '*.py' -o -name py.typed \) | sort) > "$work/wanted"
(cd "$work/site" && find nxd -type f | sort) > "$work/found"
diff "$work/wanted" "$work/found" || { echo "the wheel has other files"; exit 1; }
grep -qx 'Requires-Dist: cffi.*' "$work"/site/libnxd-*.dist-info/METADATA || { echo "it does not ask for cffi"; exit 1; }

cd "$work"
LD_LIBRARY_PATH=$build/src PYTHONPATH=$work/site OMP_NUM_THREADS=1 timeout 300 /usr/bin/python3 -W error - "$version" << 'PY'
import sys

import nxd.core as nxd

assert nxd.__file__.endswith("/site/nxd/core.py"), nxd.__file__
assert nxd.version() == sys.argv[1], nxd.version()
with nxd.Context(nxd.Store.local(), 0, 1) as context:
    assert context.size == 1
PY
echo "$(basename "$wheel"): $(wc -l < "$work/found") files"
