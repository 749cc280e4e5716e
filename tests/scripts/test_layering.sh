#!/usr/bin/env bash
# Includes run downwards only, without cycles; nothing in core knows libtorch; nothing but the C
# boundary includes the C boundary.
# usage: test_layering.sh SOURCE_DIR BUILD_DIR
set -euo pipefail
exec python3 - "$1" <<'EOF'
import pathlib
import re
import sys

# From the top down. Files directly in engine/ serve every directory of the engine.
ORDER = ["capi",
         "engine/models", "engine/training", "engine/graph", "engine/nn", "engine/device", "engine",
         "core/pipeline", "core/optim", "core/checkpoint", "core/data", "core/parallel",
         "core/comm", "core/kernels", "core/base"]

root = pathlib.Path(sys.argv[1])
src = root / "src"
problems, graph = [], {}


def layer(path):
    parts = path.relative_to(src).parts
    name = parts[0] if parts[0] == "capi" else "/".join(parts[:-1][:2])
    if name not in ORDER:
        problems.append(f"src/{path.relative_to(src)}: no directory of the house")
        return None
    return ORDER.index(name)


files = sorted(p for p in src.rglob("*") if p.suffix in (".h", ".cpp", ".in"))
for path in files:
    own, name = layer(path), path.relative_to(root)
    in_core = path.relative_to(src).parts[0] == "core"
    text = path.read_text(encoding="utf-8")
    graph[path] = []
    for number, line in enumerate(text.splitlines(), 1):
        match = re.match(r'\s*#\s*include\s*([<"])([^>"]+)[>"]', line)
        if not match:
            continue
        where, target = f"{name}:{number}", match[2]
        if in_core and re.match(r"(torch|ATen|c10|caffe2)/", target):
            problems.append(f"{where}: core includes {target}")
        if match[1] == "<":
            continue
        found = next((p for p in (src / target, path.parent / target) if p.is_file()), None)
        if found is None:
            if re.match(r"(capi|engine|core)/", target):
                problems.append(f"{where}: {target} does not exist")
            continue
        found = found.resolve()
        graph[path].append(found)
        other = layer(found)
        if own is None or other is None:
            continue
        if other < own:
            problems.append(f"{where}: {ORDER[own]} includes {target}, which is above it")

state = {}


def visit(path, trail):
    state[path] = "open"
    for target in graph.get(path, []):
        if target == path and path.name.endswith("-inl.h"):
            continue
        if state.get(target) == "open" and target != path:
            cycle = trail[trail.index(target):] + [target] if target in trail else [path, target]
            problems.append("cycle: " + " -> ".join(str(p.relative_to(src)) for p in cycle))
        elif target not in state:
            visit(target, trail + [target])
    state[path] = "done"


for path in list(graph):
    if path not in state:
        visit(path, [path])
print("\n".join(sorted(set(problems))) or f"{len(files)} files keep the order")
sys.exit(1 if problems or len(files) < 10 else 0)
EOF
