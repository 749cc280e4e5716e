#!/usr/bin/env bash
# The table of rooms in docs/architecture.md holds: each source lies in a room, each room includes the
# rooms that its row names, and rows name rooms below them. Includes make no cycle, nothing in core
# knows libtorch, nothing below capi knows a handle or an options struct of the header, and a
# permission that nothing uses is taken back. Broken copies of the tree fail.
# usage: test_layering.sh SOURCE_DIR BUILD_DIR
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

check() {
  python3 - "$1" <<'EOF'
import functools
import pathlib
import re
import sys

root = pathlib.Path(sys.argv[1])
src = root / "src"
problems, includes, used = [], {}, set()

rooms, granted = [], {}
for line in (root / "docs/architecture.md").read_text(encoding="utf-8").splitlines():
    row = re.match(r"\| `((?:core|engine|capi)[\w/]*)` \|[^|]*\|([^|]*)\|$", line)
    if row:
        rooms.append(row[1])
        granted[row[1]] = row[2].split()
names = {room.split("/")[-1]: room for room in rooms}
for place, room in enumerate(rooms):
    below = rooms[place + 1:]
    if granted[room] == ["all"]:
        granted[room] = below
        used.update((room, other) for other in below)
        continue
    for name in granted[room]:
        if names.get(name) not in below:
            problems.append(f"docs/architecture.md: {room} names {name}, which is no room below it")
    granted[room] = [names.get(name) for name in granted[room]]

# Handles are the structs that the header only declares; callbacks that are given one count, too.
header = "".join(p.read_text(encoding="utf-8") for p in sorted((root / "include/nxd").glob("*.h")))
handles = set(re.findall(r"typedef struct (nxd_\w+) \1_t;", header))
for name, arguments in re.findall(r"typedef \w+ \(\*(nxd_\w+)\)\(([^;]*)\);", header):
    if any(re.search(rf"\b{handle}_t\b", arguments) for handle in handles):
        handles.add(name)
handle_name = re.compile(r"\b(" + "|".join(sorted(handles)) + r")(?:_t)?\b")


@functools.cache
def room_of(path):
    parts = path.relative_to(src).parts
    # A stand-in for a header of somebody else's belongs to the room that it lies in.
    foreign = next((i for i, part in enumerate(parts) if part.endswith("_missing")), len(parts) - 1)
    room = "capi" if parts[0] == "capi" else "/".join(parts[:foreign])
    if room not in granted:
        problems.append(f"src/{path.relative_to(src)}: docs/architecture.md knows no room {room}")
        return None
    return room


@functools.cache
def located(path):
    return path.resolve() if path.is_file() else None


files = sorted(p for p in src.rglob("*") if p.suffix in (".h", ".cpp", ".in"))
for path in files:
    own, name = room_of(path), path.relative_to(root)
    includes[path] = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        if "nxd_" not in line and "include" not in line:
            continue
        known = handle_name.search(re.sub(r'"[^"]*"|//.*', "", line))
        if own != "capi" and known:
            problems.append(f"{name}:{number}: the handle {known[0]}, which belongs in capi")
        if own != "capi" and re.search(r"\bnxd_\w+_options_t\b", line):
            problems.append(f"{name}:{number}: options of the header, which end in capi")
        match = re.match(r'\s*#\s*include\s*([<"])([^>"]+)[>"]', line)
        if not match:
            continue
        where, target = f"{name}:{number}", match[2]
        if str(own).startswith("core") and re.match(r"(torch|ATen|c10|caffe2)/", target):
            problems.append(f"{where}: core includes {target}")
        if match[1] == "<":
            continue
        found = located(src / target) or located(path.parent / target)
        if found is None:
            if re.match(r"(capi|engine|core)/", target):
                problems.append(f"{where}: {target} does not exist")
            continue
        includes[path].append(found)
        other = room_of(found)
        if own is None or other is None or own == other:
            continue
        used.add((own, other))
        if other not in granted[own]:
            problems.append(f"{where}: {own} may not include {target}")
for room in rooms:
    for other in granted[room]:
        if other in rooms and (room, other) not in used:
            problems.append(f"docs/architecture.md: {room} includes nothing of {other}")

state = {}


def visit(path, trail):
    state[path] = "open"
    for target in includes.get(path, []):
        if target == path and path.name.endswith("-inl.h"):
            continue
        if state.get(target) == "open" and target != path:
            cycle = trail[trail.index(target):] + [target] if target in trail else [path, target]
            problems.append("cycle: " + " -> ".join(str(p.relative_to(src)) for p in cycle))
        elif target not in state:
            visit(target, trail + [target])
    state[path] = "done"


for path in list(includes):
    if path not in state:
        visit(path, [path])
print("\n".join(sorted(set(problems))) or f"{len(files)} files in {len(rooms)} rooms keep the order")
sys.exit(1 if problems or min(len(files), len(rooms), len(handles)) < 10 else 0)
EOF
}

check "$(cd "$1" && pwd -P)"

# broken MESSAGE COMMAND...: in a copy that the command has changed, the check fails and says so.
broken() {
  local message=$1 out
  shift
  rm -rf "$work/tree"
  mkdir -p "$work/tree/docs"
  cp "$source/docs/architecture.md" "$work/tree/docs/"
  cp -r "$source/src" "$source/include" "$work/tree/"
  (cd "$work/tree" && "$@")
  if out=$(check "$work/tree"); then
    echo "accepted: $*"
    exit 1
  fi
  grep -qF -- "$message" <<< "$out" || { echo "expected \"$message\" after $*, got:"; echo "$out"; exit 1; }
}
append() { echo "$2" >> "$1"; }
source=$(cd "$1" && pwd -P)
broken "core/base may not include core/comm/store/store.h" append src/core/base/log.h '#include "core/comm/store/store.h"'
broken "core includes ATen/ATen.h" append src/core/optim/optimizer.cpp '#include <ATen/ATen.h>'
broken "the handle nxd_work," append src/core/comm/work.h 'struct nxd_work { int value; };'
broken "the handle nxd_tensor_t," append src/engine/module/module.h 'nxd_tensor_t* handle_of(Module& module);'
broken "the handle nxd_forward_fn," append src/engine/module/module.h 'nxd_forward_fn forward_of(Module& module);'
broken "options of the header" append src/core/optim/bucket_plan.h 'void plan(const nxd_ddp_options_t&);'
broken "options of the header" append src/engine/training/loss_weights.cpp '// See nxd_pp_options_t.'
broken "knows no room core/attic" install -D src/core/base/log.h src/core/attic/log.h
broken "core/base/gone.h does not exist" append src/core/base/log.cpp '#include "core/base/gone.h"'
broken "cycle: " append src/core/base/error.h '#include "core/base/log.h"'
broken "names world, which is no room below it" sed -i '/^| `core\/layout`/s/ comm kernels base / world comm kernels base /' docs/architecture.md
broken "core/data includes nothing of core/kernels" sed -i '/^| `core\/data`/s/ base / kernels base /' docs/architecture.md
