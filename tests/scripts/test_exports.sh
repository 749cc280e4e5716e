#!/usr/bin/env bash
# What nxd.h declares is what the libraries export, in the version node of the ABI: sections 1 to 8
# from libnxd_core.so, the others from libnxd.so, which exports nothing else.
# usage: test_exports.sh SOURCE_DIR BUILD_DIR     77: this build has no libnxd.so
set -euo pipefail
source=$1 build=$2
[[ -e $build/src/libnxd.so ]] || { echo "no libnxd.so in this build"; exit 77; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
for library in nxd_core nxd; do
  nm -D --defined-only --with-symbol-versions "$build/src/lib$library.so" | awk '{print $2, $3}' > "$work/$library"
done
export PYTHONDONTWRITEBYTECODE=1
PYTHONPATH=$source/tests/scripts python3 - "$source/include/nxd.h" "$work" <<'EOF'
import sys

import nxd_header

NODE, PRIVATE = "NXD_0", "NXD_PRIVATE_0_1_0"
header, work = sys.argv[1:]
problems = []
for library, is_ours in (("nxd_core", lambda s: s <= 8), ("nxd", lambda s: s > 8)):
    declared = {f.name for f in nxd_header.functions(header) if is_ours(f.section)}
    exported = set()
    for line in open(f"{work}/{library}", encoding="utf-8"):
        kind, symbol = line.split()
        name, _, node = symbol.partition("@@") if "@@" in symbol else symbol.partition("@")
        if name in (NODE, PRIVATE) and kind == "A":
            continue
        if library == "nxd_core" and node == PRIVATE:
            if name.startswith("nxd_"):
                problems.append(f"{library}: {name} is in {PRIVATE}")
            continue
        if node != NODE:
            problems.append(f"{library}: {symbol} is not in {NODE}")
        exported.add(name)
    problems += [f"{library}: {n} is declared, not exported" for n in sorted(declared - exported)]
    problems += [f"{library}: {n} is exported, not declared" for n in sorted(exported - declared)]
    print(f"lib{library}.so: {len(declared)} declared, {len(exported)} exported")
print("\n".join(problems))
sys.exit(1 if problems else 0)
EOF
