#!/usr/bin/env bash
# Every function of nxd.h has a doc comment with exactly one [local] or [collective: group] tag, and
# says since when it exists. Bindings read the tags to know what a finalizer may call.
# usage: test_tags.sh SOURCE_DIR BUILD_DIR
set -euo pipefail
export PYTHONDONTWRITEBYTECODE=1
PYTHONPATH=$1/tests/scripts exec python3 - "$1/include/nxd.h" <<'EOF'
import re
import sys

import nxd_header

problems = []
functions = nxd_header.functions(sys.argv[1])
for function in functions:
    comment = re.sub(r"\s*\n\s*\*\s*", " ", function.comment)
    tags = re.findall(r"\[(?:local(?:, blocking: [^\]]+)?|collective: [^\]]+)\]", comment)
    for holds, what in (
        (comment.startswith("/**"), "no doc comment"),
        (len(tags) == 1, f"expected one tag, got {tags}"),
        (len(re.findall(r"@since \d+\.\d+", comment)) == 1, "no @since"),
    ):
        if not holds:
            problems.append(f"nxd.h:{function.line}: {function.name}: {what}")
names = [function.name for function in functions]
problems += [f"{name} is declared twice" for name in set(names) if names.count(name) > 1]
print("\n".join(problems) or f"{len(functions)} functions are tagged")
sys.exit(1 if problems or len(functions) < 50 else 0)
EOF
