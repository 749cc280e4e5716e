"""Writes what bindings share: api.json, layout.json and the raw layer of each language.

usage: generate.py [--check]     --check: write nothing, fail where a committed file differs
"""

import difflib
import importlib
import json
import sys
from pathlib import Path

import layout
import read_header
import rules

ROOT = Path(__file__).resolve().parents[2]
# Each gives files(api, sizes): {path from the project's root: text}.
EMITTERS = ["emit_rust", "emit_go", "emit_julia", "emit_python"]


def _values(api, sizes):
    for enum in api["enums"]:
        for value in enum["values"]:
            value["value"] = sizes["constants"][value["name"]]


def _lines(data):
    """JSON with one line for each item of the top level's lists and dictionaries."""
    parts = []
    for key, items in data.items():
        named = isinstance(items, dict)
        rows = [(json.dumps(k) + ": " + json.dumps(v) if named else json.dumps(v))
                for k, v in (items.items() if named else enumerate(items))]
        rows = ",\n".join("  " + row for row in rows)
        parts.append(f"{json.dumps(key)}: {'{' if named else '['}\n{rows}\n{'}' if named else ']'}")
    return "{\n" + ",\n".join(parts) + "\n}\n"


def describe(include_dir):
    """The header of a directory, and its layout; HeaderError when it breaks a rule."""
    api = read_header.read(include_dir)
    sizes = layout.measure(include_dir, api)
    _values(api, sizes)
    broken = rules.problems(api)
    if broken:
        raise read_header.HeaderError("\n".join(broken))
    return api, sizes


def files():
    """Text of every generated file by its path from the project's root."""
    api, sizes = describe(ROOT / "include")
    out = {"bindings/api.json": _lines(api),
           "bindings/layout.json": _lines(sizes)}
    for name in EMITTERS:
        if Path(__file__).with_name(name + ".py").exists():
            out.update(importlib.import_module(name).files(api, sizes))
    return out


def _check(generated):
    differ = 0
    for path, text in generated.items():
        there = ROOT / path
        committed = there.read_text() if there.exists() else ""
        if committed != text:
            differ += 1
            sys.stdout.writelines(list(difflib.unified_diff(
                committed.splitlines(True), text.splitlines(True), path, "generated", n=1))[:40])
    print(f"{len(generated)} generated files, {differ} differ"
          + (": run scripts/bindings" if differ else ""))
    return 1 if differ else 0


def main():
    try:
        generated = files()
    except read_header.HeaderError as e:
        sys.exit(f"nxd.h: {e}")
    if sys.argv[1:] == ["--check"]:
        return _check(generated)
    if sys.argv[1:]:
        sys.exit(__doc__)
    for path, text in generated.items():
        (ROOT / path).parent.mkdir(parents=True, exist_ok=True)
        (ROOT / path).write_text(text)
        print(path)
    return 0


if __name__ == "__main__":
    sys.exit(main())
