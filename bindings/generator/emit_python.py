"""Writes the raw layer of Python: the declarations that cffi reads, enums, and the types of options and reports."""

import contextlib
import io
import os
import pprint
import re
import tempfile
import textwrap
from pathlib import Path

import cffi

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


def _names(own):
    """Declarations of the names of types."""
    return [f"typedef {e['type']} {e['name']};" for e in own["enums"]] + [
        f"typedef struct {h['name'].removesuffix('_t')} {h['name']};"
        for h in own["handles"] + own["structs"]]


def _types(own):
    return [f"typedef {c['result']['c']} (*{c['name']})({_params(c['params'])});"
            for c in own["callbacks"]] + [_struct(s) for s in own["structs"]]


def _functions(own):
    return [f"{f['result']['c']} {f['name']}({_params(f['params'])});" for f in own["functions"]]


def _declarations(topics):
    """The tables that cffi makes of all declarations: to parse them takes most of a second, and would be
    done by every program that imports the package."""
    declared = ["typedef int32_t DLDeviceType;"]
    for part in (_names, _types, _functions):
        for own in topics:
            declared += part(own)
    ffi = cffi.FFI()
    ffi.set_source("nxd._declarations", None)
    ffi.cdef("\n".join(declared))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "declarations.py"
        with contextlib.redirect_stdout(io.StringIO()):  # it says what it writes
            ffi.emit_python_code(str(path))
        tables = {}
        source = path.read_text().replace("ffi = _cffi_backend.FFI(", "tables = dict(_name=", 1)
        exec(source.replace("import _cffi_backend", ""), tables)
    text = HEAD + '"""The header\'s declarations, as cffi\'s compiler writes them for a library that is loaded'
    text += ' when the\nprogram runs."""\n\nimport _cffi_backend\n\nffi = _cffi_backend.FFI(\n'
    given = tables["tables"]
    text += f'    "{given.pop("_name")}",\n    _version=0x{given.pop("_version"):04X},\n'
    for key, value in given.items():
        shown = textwrap.indent(pprint.pformat(value, width=92), "        ")
        text += f"    {key}=(\n{shown}\n    ),\n"
    return text + ")\n"


def _members(enum):
    """Names without what all of them start with; identifiers, so that 1F1B becomes _1F1B."""
    names = [v["name"] for v in enum["values"]]
    common = os.path.commonprefix(names)
    common = common[:common.rindex("_") + 1]
    for value in enum["values"]:
        short = value["name"].removeprefix(common).removeprefix("ERROR_")
        yield ("_" if short[0].isdigit() else "") + short, value


def _enum(enum):
    return f"\n\nclass {_camel(enum['name'])}(IntEnum):\n" + _docstring(enum["doc"]) + "".join(
        _comment(value["doc"]) + f"    {short} = {value['value']}\n" for short, value in _members(enum))


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


def _base(struct):
    """The Python type of a struct that is filled on one side; None for all others."""
    if _REPORTS.search(struct["name"]):
        return "NamedTuple"
    return "TypedDict, total=False" if _OPTIONS.search(struct["name"]) else None


def _fields(struct):
    return [f for f in struct["fields"] if f["name"] not in _HIDDEN]


def _class(struct, enums):
    text = f"\n\nclass {_camel(struct['name'])}({_base(struct)}):\n" + _docstring(struct["doc"])
    for f in _fields(struct):
        hint = _hint(f["type"], enums, _base(struct) == "NamedTuple")
        text += _comment(f["doc"]) + f"    {f['name']}: {hint}\n"
    return text


def _enum_fields(own, enums):
    """The enum of each field that has one."""
    text = ""
    for s in own["structs"]:
        fields = [f for f in s["fields"] if f["type"]["name"] in enums and f["type"]["pointers"] == 0]
        if fields:
            text += f'    "{s["name"]}": {{\n' + "".join(
                f'        "{f["name"]}": {_camel(f["type"]["name"])},\n' for f in fields) + "    },\n"
    return f"\n\nFIELDS: dict[str, dict[str, type]] = {{\n{text}}}\n" if text else ""


def _imports(own, enums, text):
    """Lines that import what the text of a topic uses."""
    lines = [f"from {module} import {', '.join(found)}\n"
             for module, names in (("collections.abc", ["Sequence"]), ("enum", ["IntEnum"]),
                                   ("typing", ["Any", "NamedTuple", "TypedDict"]))
             if (found := [n for n in names if re.search(rf"\b{n}\b", text)])]
    used = {}
    for s in own["structs"]:
        for f in s["fields"] if _base(s) else [f for f in s["fields"] if not f["type"]["pointers"]]:
            topic = enums.get(f["type"]["name"], own["name"])
            if topic != own["name"]:
                used.setdefault(topic, set()).add(_camel(f["type"]["name"]))
    other = [f"from nxd._raw.{topic} import {', '.join(sorted(used[topic]))}\n" for topic in sorted(used)]
    return "\n".join("".join(part) for part in (lines, other) if part)


def _topic(own, enums):
    """A topic's module: enums, and the types of options and reports. Empty without any."""
    text = "".join(_enum(e) for e in own["enums"])
    text += "".join(_class(s, enums) for s in own["structs"] if _base(s))
    text += _enum_fields(own, enums)
    if not text:
        return ""
    imports = _imports(own, enums, text)
    head = f'{HEAD}"""nxd/{own["name"]}.h."""\n\nfrom __future__ import annotations\n'
    head += "\n" + imports if imports else ""
    return head + text


def _package(api, topics, with_fields):
    """Where the topics are put together."""
    abi = next(m["value"] for m in api["macros"] if m["name"] == "NXD_ABI_VERSION")
    text = HEAD + '"""The header\'s topics, a module for each that has enums, keywords of options or fields '
    text += 'of\nreports; nxd._declarations has what cffi knows of all."""\n\n'
    text += "from nxd._raw import " + _listed(with_fields)
    exported = []
    for t in sorted(topics, key=lambda t: t["name"]):
        names = [_camel(e["name"]) for e in t["enums"]]
        names += [_camel(s["name"]) for s in t["structs"] if _base(s)]
        if names:
            text += f"from nxd._raw.{t['name']} import " + _listed(sorted(names))
            exported += names
    text += f"\nABI_VERSION = {abi}\n\n"
    text += "# The enum of each field that has one, by struct.\nFIELDS: dict[str, dict[str, type]] = {}\n"
    text += "for _topic in " + textwrap.fill(", ".join(with_fields), 86, initial_indent="(",
                                              subsequent_indent="               ").strip() + "):\n"
    text += "    FIELDS.update(_topic.FIELDS)\n\n"
    return text + _all(["ABI_VERSION", "FIELDS", *sorted(exported)])


def _all(names):
    return "__all__ = [\n" + textwrap.fill(", ".join(f'"{n}"' for n in names), 96, initial_indent="    ",
                                            subsequent_indent="    ") + ",\n]\n"


def _listed(names):
    one = ", ".join(names) + "\n"
    if len(one) < 60:
        return one
    return "(\n" + textwrap.fill(one.strip(), 96, initial_indent="    ", subsequent_indent="    ") + ",\n)\n"


def _enums(topics):
    """The public module of all enums."""
    text = HEAD + '"""The header\'s enums. Wherever one is taken, the name of a member, in small '
    text += 'letters or\nlarge, does as well."""\n\nfrom nxd._raw import '
    names = sorted(_camel(e["name"]) for t in topics for e in t["enums"])
    return text + _listed(names) + "\n" + _all(names)


def files(api, sizes):
    """Text of the generated files by path. The layout is asserted by the binding's tests."""
    enums = {e["name"]: e["topic"] for e in api["enums"]}
    topics = [{"name": name or "dlpack"} | {
        kind: [item for item in api[kind] if item["topic"] == name]
        for kind in ("enums", "handles", "callbacks", "structs", "functions")}
        for name in ["", *(t["name"] for t in api["topics"])]]
    modules = {t["name"]: text for t in topics if (text := _topic(t, enums))}
    with_fields = sorted(name for name, text in modules.items() if "\nFIELDS:" in text)
    return {PACKAGE + "enums.py": _enums(topics),
            PACKAGE + "_raw/__init__.py": _package(api, topics, with_fields),
            PACKAGE + "_declarations.py": _declarations(topics)} | {
        PACKAGE + f"_raw/{name}.py": text for name, text in modules.items()}
