#!/usr/bin/env bash
# Files, directories and tests that the pages name are there: `core/comm/work.h`, `work.h`, `tests/abi`,
# `cmake/*.map`, `scripts/fuzz --seconds 60`, `test_work`. docs/testing.md counts functions and fuzzers as they are.
# usage: test_page_names.sh SOURCE_DIR [BUILD_DIR]
set -euo pipefail
. "$(dirname "$0")/lib.sh"
need_commands python3
exec python3 - "$1" << 'PY'
import json
import re
import sys
from pathlib import Path

root = Path(sys.argv[1]).resolve()
# Directories by which a path begins; the second ones are left out by pages about the sources.
TOPS = "bench bindings cmake docs examples include scripts src tests tools".split()
INNER = "capi core engine".split()
# From a part on that stands for a name.
PLACEHOLDER = re.compile(r"(^|/)[^/]*(NAME|DIR|\$|<).*")
sources = {path.name for top in TOPS for path in (root / top).rglob("*") if path.suffix in (".h", ".cpp", ".sh")}


def is_there(name):
    top = name.split("/")[0]
    if "/" in name and top in TOPS + INNER:
        base = root / "src" if top in INNER else root
        return any(list(base.glob(pattern)) for pattern in (name, name + ".*"))
    if re.fullmatch(r"test_\w+", name):
        return any(root.glob(f"tests/**/{name}.*"))
    return not re.fullmatch(r"\w+\.(h|cpp|sh)", name) or name in sources


def names_of(page):
    """(line number, name): the first word of each code span, and of each line of indented code."""
    for number, line in enumerate(page.read_text().splitlines(), 1):
        spans = re.findall(r"`([^`]+)`", line)
        if line.startswith("    ") and not spans:
            spans = [line]
        for span in spans:
            for word in span.split()[:1]:
                yield number, word.rstrip("/")


pages = sorted(root.glob("*.md")) + sorted((root / "docs").glob("*.md"))
seen, absent = 0, []
for page in pages:
    for number, name in names_of(page):
        name = PLACEHOLDER.sub("", name)
        if not re.fullmatch(r"[\w./*-]+", name):
            continue
        seen += "/" in name or "." in name or name.startswith("test_")
        if not is_there(name):
            absent.append(f"{page.relative_to(root)}:{number}: {name} is not there")
libraries = [f["library"] for f in json.loads((root / "bindings/api.json").read_text())["functions"]]
counts = (f"libnxd_core has {libraries.count('nxd_core')} functions, both libraries have {len(libraries)}, and "
          f"{len(list((root / 'tests/fuzz/corpus').iterdir()))} parsers have a fuzzer")
if counts not in " ".join((root / "docs/testing.md").read_text().split()):
    absent.append(f"docs/testing.md: expected: {counts}")
print("\n".join(absent) if absent else f"{seen} names on {len(pages)} pages")
sys.exit(bool(absent) or seen < 50)
PY
