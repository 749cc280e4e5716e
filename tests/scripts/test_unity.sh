#!/usr/bin/env bash
# The sources of the boundary compile as one translation unit of each library, as builds in few units
# have them (scripts/demo, CI), which need no such test themselves.
# usage: test_unity.sh SOURCE_DIR BUILD_DIR
set -euo pipefail
source_dir=$1 build=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# shellcheck source=tests/scripts/lib.sh
. "$(dirname "$0")/lib.sh"
need_commands python3
! grep -q '^NXD_UNITY:BOOL=\(ON\|1\|TRUE\|YES\)$' "$build/CMakeCache.txt" ||
  skip "$build is built in such units itself" "give a build without NXD_UNITY"

# unit DEFINE: writes UNIT.cpp with all sources of the boundary that are compiled with the definition,
# and the command that reads it.
unit() {
  python3 - "$build/compile_commands.json" "$source_dir/src/capi/" "$1" "$work" <<'EOP'
import json
import re
import shlex
import sys

database, boundary, define, work = sys.argv[1:]
with open(database, encoding="utf-8") as opened:
    entries = json.load(opened)
found = {}
for entry in entries:
    words = shlex.split(entry["command"])
    if entry["file"].startswith(boundary) and f"-D{define}" in words:
        found.setdefault(tuple(words[:words.index("-o")]), []).append(entry)
# Sources with options of their own are in no unit.
flags, entries = max(found.items(), key=lambda item: len(item[1]))
with open(f"{work}/{define}.cpp", "w", encoding="utf-8") as unit:
    unit.writelines(f'#include "{entry["file"]}"\n' for entry in sorted(entries, key=lambda e: e["file"]))
with open(f"{work}/{define}.sh", "w", encoding="utf-8") as script:
    words = [*flags, "-fsyntax-only", f"{work}/{define}.cpp"]
    script.write(f"cd {shlex.quote(entries[0]['directory'])}\n{shlex.join(words)}\n")
print(f"{len(entries)} sources")
EOP
}

libraries=(nxd_core_EXPORTS)
[[ ! -e $build/src/libnxd.so ]] || libraries+=(nxd_EXPORTS)
for define in "${libraries[@]}"; do
  sources=$(unit "$define")
  ((${sources%% *} > 5)) || { echo "test_unity: $define has $sources, expected more than 5" >&2; exit 1; }
  bash "$work/$define.sh"
  echo "$define: one unit of $sources"
done

# Two sources with one name are what it finds.
sed -i '1i namespace nxd { namespace { constexpr int kUnityProbe = 1; } }' "$work/nxd_core_EXPORTS.cpp"
echo 'namespace nxd { namespace { constexpr int kUnityProbe = 2; } }' >> "$work/nxd_core_EXPORTS.cpp"
if bash "$work/nxd_core_EXPORTS.sh" 2> /dev/null; then
  echo "test_unity: two constants of one name were compiled" >&2
  exit 1
fi
