"""Writes the raw layer of Python: what cffi parses, enums, and the types of options and reports."""

import os
import re
import textwrap

PACKAGE = "bindings/python/nxd/"
HEAD = "# Generated from include/nxd.h by scripts/bindings. Do not edit.\n"

# Structs a call fills; of the others, those with these endings are filled by the caller.
_REPORTS = re.compile(r"_(stats|report|prediction|info)_t$|^nxd_pp_(call|task)_t$")
_OPTIONS = re.compile(r"_(options|costs)_t$|^nxd_plan_(model|machine|layout)_t$")
_SCALARS = {"int32_t": "int", "int64_t": "int", "uint64_t": "int", "size_t": "int",
            "double": "float"}
_HIDDEN = {"struct_size", "reserved"}


def _camel(name):
    """nxd_pp_schedule_kind_t -> PpScheduleKind"""
    parts = name.removeprefix("nxd_").removesuffix("_t").split("_")
    return "".join(part.capitalize() for part in parts).replace("Dtype", "DType")


def _declaration(kind, name):
    if kind["name"] == "function":
        return kind["c"].replace("(*)", f"(*{name})", 1)
    return f"{kind['c']} {name}"


def _struct(struct):
    tag = struct["name"].removesuffix("_t")
    fields = "".join(f"  {_declaration(f['type'], f['name'])};\n" for f in struct["fields"])
    return f"struct {tag} {{\n{fields}}};\n"


def _params(params):
    return ", ".join(_declaration(p["type"], p["name"]) for p in params) or "void"


def _cdef(api):
    """The declarations, in an order in which each knows the ones before it."""
    types = ["typedef int32_t DLDeviceType;"]
    types += [f"typedef {e['type']} {e['name']};" for e in api["enums"]]
    types += [f"typedef struct {h['name'].removesuffix('_t')} {h['name']};"
              for h in api["handles"] + api["structs"]]
    types += [f"typedef {c['result']['c']} (*{c['name']})({_params(c['params'])});"
              for c in api["callbacks"]]
    types += [_struct(s).rstrip() for s in api["structs"]]
    functions = {"nxd_core": [], "nxd": []}
    for f in api["functions"]:
        functions[f["library"]].append(
            f"{f['result']['c']} {f['name']}({_params(f['params'])});")
    abi = next(m["value"] for m in api["macros"] if m["name"] == "NXD_ABI_VERSION")
    text = HEAD + '"""Declarations for cffi, and which library has which function."""\n\n'
    text += f"ABI_VERSION = {abi}\n"
    for name, lines in (("TYPES", types), ("CORE", functions["nxd_core"]),
                        ("ENGINE", functions["nxd"])):
        text += f'\n{name} = """\n' + "\n".join(lines) + '\n"""\n'
    return text


def _members(enum):
    """Names without what all of them start with; identifiers, so that 1F1B becomes _1F1B."""
    names = [v["name"] for v in enum["values"]]
    common = os.path.commonprefix(names)
    common = common[:common.rindex("_") + 1]
    for value in enum["values"]:
        short = value["name"].removeprefix(common).removeprefix("ERROR_")
        yield ("_" if short[0].isdigit() else "") + short, value


def _enums(api):
    text = HEAD + '"""The header\'s enums. Wherever one is taken, the name of a member, in small '
    text += 'letters or\nlarge, does as well."""\n\nfrom enum import IntEnum\n'
    for enum in api["enums"]:
        text += f"\n\nclass {_camel(enum['name'])}(IntEnum):\n"
        text += _docstring(enum["doc"])
        for short, value in _members(enum):
            text += _comment(value["doc"]) + f"    {short} = {value['value']}\n"
    return text


def _docstring(doc):
    doc = doc.replace("\n", " ").strip()
    lines = textwrap.wrap(f'"""{doc}', 96)
    if len(lines) == 1 and len(lines[0]) < 94:
        return f'    {lines[0]}"""\n\n'
    return "".join(f"    {line}\n" for line in lines) + '    """\n\n'


def _comment(doc):
    return "".join(f"    # {line}\n" for line in textwrap.wrap(doc, 94)) if doc else ""


def _hint(kind, enums, reading):
    """A field's type as Python sees it; options also take what is easier to write."""
    name, pointers = kind["name"], kind["pointers"]
    if name == "nxd_toggle_t":
        return "bool | Toggle | None"
    if pointers == 0 and name in enums:
        return _camel(name) if reading else f"{_camel(name)} | str"
    if pointers == 0 and name in _SCALARS:
        return _SCALARS[name]
    if name == "char":
        return "str" if pointers == 1 else "Sequence[str]"
    if name == "double" and pointers == 1:
        return "Sequence[float]"
    return "Any"


def _structs(api):
    enums = {e["name"] for e in api["enums"]}
    text = HEAD + '"""Keywords of options, and fields of reports."""\n\n'
    text += "from __future__ import annotations\n\n"
    text += "from collections.abc import Sequence\nfrom typing import Any, NamedTuple, TypedDict\n"
    text += "\nfrom nxd.enums import (\n"
    used = sorted({_camel(f["type"]["name"]) for s in api["structs"] for f in s["fields"]
                   if f["type"]["name"] in enums})
    text += textwrap.fill(", ".join(used), 96, initial_indent="    ",
                          subsequent_indent="    ") + ",\n)\n"
    for s in api["structs"]:
        report = bool(_REPORTS.search(s["name"]))
        if not report and not _OPTIONS.search(s["name"]):
            continue
        base = "NamedTuple" if report else "TypedDict, total=False"
        text += f"\n\nclass {_camel(s['name'])}({base}):\n" + _docstring(s["doc"])
        for f in s["fields"]:
            if f["name"] not in _HIDDEN:
                text += _comment(f["doc"])
                text += f"    {f['name']}: {_hint(f['type'], enums, report)}\n"
    text += "\n\n# The enum of each field that has one.\n"
    text += "FIELDS: dict[str, dict[str, type]] = {\n"
    for s in api["structs"]:
        fields = [f for f in s["fields"] if f["type"]["name"] in enums
                  and f["type"]["pointers"] == 0]
        if fields:
            text += f'    "{s["name"]}": {{\n'
            text += "".join(f'        "{f["name"]}": {_camel(f["type"]["name"])},\n'
                            for f in fields)
            text += "    },\n"
    return text + "}\n"


def files(api, sizes):
    """Text of the generated files by path. The layout is asserted by the binding's tests."""
    return {PACKAGE + "_cdef.py": _cdef(api), PACKAGE + "enums.py": _enums(api),
            PACKAGE + "_structs.py": _structs(api)}
