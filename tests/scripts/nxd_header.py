"""Reads nxd.h: its functions, the section each is in, and their comments."""
import re
from collections import namedtuple

Function = namedtuple("Function", "name section comment line")

_PIECE = re.compile(
    r"(?P<comment>/\*.*?\*/)|(?P<function>^NXD_API\b[^;{]*?\b(?P<name>nxd_\w+)\s*\()", re.S | re.M)
_SECTION = re.compile(r"^/\* -{20,}\n \* (\d+)\. ", re.M)


def functions(path):
    with open(path, encoding="utf-8") as file:
        text = file.read()
    found, section, comment = [], 0, None
    for piece in _PIECE.finditer(text):
        if piece["comment"] is not None:
            title = _SECTION.match(piece["comment"])
            if title:
                section = int(title[1])
            comment = (piece["comment"], piece.end())
            continue
        # A comment belongs to a function when only white space is between them.
        own = comment is not None and text[comment[1]:piece.start()].strip() == ""
        line = text.count("\n", 0, piece.start()) + 1
        found.append(Function(piece["name"], section, comment[0] if own else "", line))
    return found
