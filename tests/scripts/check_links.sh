#!/usr/bin/env bash
# Names the links of Markdown pages that lead nowhere: to a file that is absent, or a heading that a page
# does not have. Links to other hosts are not looked at.
# usage: check_links.sh ROOT PAGE...     ROOT: what links must stay within
set -euo pipefail
exec /usr/bin/python3 - "$@" << 'PY'
import re
import sys
from pathlib import Path

root, pages = Path(sys.argv[1]).resolve(), [Path(page).resolve() for page in sys.argv[2:]]


def anchors(page):
    """The headings of a page as GitHub names them."""
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.M | re.S)
    for title in re.findall(r"^#+ +(.*)$", text, re.M):
        title = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", title).lower()
        yield re.sub(r"[^\w\- ]", "", title).strip().replace(" ", "-")


dead, seen = [], 0
for page in pages:
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.M | re.S)
    for link in re.findall(r"\]\(([^)\s]+)\)", text):
        if re.match(r"[a-z]+:", link):
            continue
        seen += 1
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        if not target.exists() or root not in (target, *target.parents):
            dead.append(f"{page.relative_to(root)}: {link} does not exist")
        elif anchor and target.suffix == ".md" and anchor not in anchors(target):
            dead.append(f"{page.relative_to(root)}: {link}: no such heading")
print("\n".join(dead) if dead else f"{seen} links of {len(pages)} pages")
sys.exit(bool(dead) or seen == 0)
PY
