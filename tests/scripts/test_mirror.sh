#!/usr/bin/env bash
# Topics and rooms have one name everywhere. Each topic of the header has its file of src/capi, tests in
# tests/capi that include nothing of src, and a file in each raw layer of the bindings, Python's only if it
# has types for it. Each room of src/core and src/engine has a directory of its name in tests, or is named
# below with its reason.
# Broken copies of the tree fail.
# usage: test_mirror.sh SOURCE_DIR BUILD_DIR
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

check() {
  python3 - "$1" <<'EOF'
import pathlib
import re
import sys

root = pathlib.Path(sys.argv[1])
problems = []

# Rooms without tests from inside.
BY_THE_C_API = {
    "core/comm/transports": "tests/capi/test_group* over all transports",
    "engine": "headers that all rooms share",
    "engine/ops": "tests/capi/test_op*, test_autograd_autocast",
    "engine/tensor": "tests/capi/test_tensor*",
}


def topics_of(library):
    text = (root / "include/nxd" / f"{library}.h").read_text(encoding="utf-8")
    return [name for name in re.findall(r'^#include "(\w+)\.h"$', text, re.M) if name != "core"]


core, engine = topics_of("core"), topics_of("engine")
topics = core + engine


def stems(pattern):
    return {path.stem for path in root.glob(pattern)}


def compare(where, found, wanted):
    for name in sorted(wanted - found):
        problems.append(f"{where} has no file for the topic {name}")
    for name in sorted(found - wanted):
        problems.append(f"{where} has {name}, which is no topic")


headers = stems("include/nxd/*.h") - {"core", "engine", "dlpack"}
compare("include/nxd", headers, set(topics))
compare("src/capi", stems("src/capi/*.cpp"), set(topics))


def topic_of(test):
    name = test.stem.removeprefix("test_")
    return max((t for t in topics if name == t or name.startswith(t + "_")), key=len, default=None)


tests = sorted(root.glob("tests/capi/test_*.c*"))
compare("tests/capi", {topic_of(test) or test.stem for test in tests}, set(topics))
for path in sorted(root.glob("tests/capi/*")):
    for target in re.findall(r'^#include "([^"]+)"', path.read_text(encoding="utf-8"), re.M):
        if (root / "src" / target).is_file():
            problems.append(f"tests/capi/{path.name} includes {target}, which no user can")

rooms = {path.parent for path in (root / "src").rglob("*.h")}
rooms = {str(room.relative_to(root / "src")) for room in rooms if "_missing" not in str(room)}
tested = {str(path.parent.relative_to(root / "tests")) for path in root.glob("tests/*/**/test_*.cpp")
          if path.relative_to(root / "tests").parts[0] in ("core", "engine")}
for room in sorted(rooms - {"capi"} - tested - BY_THE_C_API.keys()):
    problems.append(f"src/{room} has no tests in tests/{room}")
for room in sorted(tested - rooms - {"core", "engine"}):
    problems.append(f"tests/{room} is named after no room of src")
for room in sorted(BY_THE_C_API.keys() & tested - {"engine"} | BY_THE_C_API.keys() - rooms):
    problems.append(f"test_mirror.sh: {room} needs no exception")

RAW = {
    "Rust's raw layer": "bindings/rust/nxd-sys/src/raw/*.rs",
    "Go's raw layer": "bindings/go/raw*/*.go",
    "Julia's raw layer": "bindings/julia/NXD/src/raw/*.jl",
    "Python's raw layer": "bindings/python/nxd/_raw/*.py",
}
for layer, pattern in RAW.items():
    names = {path.stem for path in root.glob(pattern) if not path.stem.endswith("_test")
             and re.match(r"\W* (Code g|G)enerated ", path.read_text(encoding="utf-8"))}
    names -= {"mod", "dlpack", "__init__"}
    # cffi has the functions of all topics; a topic's file has its enums, options and reports.
    compare(layer, names, set(topics) if "Python" not in layer else names & set(topics))

print("\n".join(problems) or f"{len(topics)} topics, {len(rooms)} rooms, {len(tests)} tests of topics")
sys.exit(1 if problems or len(topics) < 20 or len(rooms) < 20 else 0)
EOF
}

source=$(cd "$1" && pwd -P)
check "$source"

mkdir -p "$work/whole"
(cd "$source" && cp -r --parents include src tests/capi tests/core tests/engine \
  bindings/rust/nxd-sys/src/raw bindings/go/raw* bindings/julia/NXD/src/raw bindings/python/nxd/_raw \
  "$work/whole/")

# broken MESSAGE COMMAND...: in a copy that the command has changed, the check fails and says so. The
# copy has links to the files, so that a command replaces them and does not write into them.
broken() {
  local message=$1 out
  shift
  rm -rf "$work/tree"
  cp -rl "$work/whole" "$work/tree"
  (cd "$work/tree" && "$@")
  if out=$(check "$work/tree"); then
    echo "accepted: $*"
    exit 1
  fi
  grep -qF -- "$message" <<< "$out" || { echo "expected \"$message\" after $*, got:"; echo "$out"; exit 1; }
}
append() { sed -i "\$ a $2" "$1"; }
broken "src/capi has no file for the topic store" mv src/capi/store.cpp src/capi/stores.cpp
broken "include/nxd has attic, which is no topic" touch include/nxd/attic.h
broken "tests/capi has no file for the topic memory" rm tests/capi/test_memory.c
broken "tests/capi has test_attic, which is no topic" touch tests/capi/test_attic.c
broken "test_base.c includes core/base/log.h" append tests/capi/test_base.c '#include "core/base/log.h"'
broken "src/core/agree has no tests" rm -r tests/core/agree
broken "tests/core/attic is named after no room" install -D tests/core/agree/test_agree.cpp tests/core/attic/test_a.cpp
broken "core/comm/transports needs no exception" install -D tests/core/agree/test_agree.cpp tests/core/comm/transports/test_a.cpp
broken "Julia's raw layer has no file for the topic work" rm bindings/julia/NXD/src/raw/work.jl
broken "Go's raw layer has no file for the topic op" rm bindings/go/raw/op.go bindings/go/rawengine/op.go
broken "Python's raw layer has attic, which is no topic" cp bindings/python/nxd/_raw/data.py bindings/python/nxd/_raw/attic.py
