"""Julia's raw layer: one method for each function, with the header's own names."""

import os
import textwrap

_SCALARS = {"size_t": "Csize_t", "int32_t": "Int32", "int64_t": "Int64", "uint8_t": "UInt8",
            "uint16_t": "UInt16", "uint32_t": "UInt32", "uint64_t": "UInt64", "double": "Cdouble",
            "float": "Cfloat", "char": "UInt8", "void": "Cvoid", "function": "Ptr{Cvoid}",
            "int": "Cint", "DLDeviceType": "Int32"}
_HEAD = "# Generated from include/nxd.h by scripts/bindings: do not edit.\n\n"
_KEYWORDS = {"begin", "end", "function", "module", "struct", "const", "local", "global"}


def _name(name):
    return f'var"{name}"' if name in _KEYWORDS else name


def _type(kind, callbacks):
    """The Julia type that a C type is passed as."""
    name, pointers = kind["name"], kind["pointers"]
    if name in callbacks or name == "function":
        return "Ptr{Cvoid}"
    base = _SCALARS.get(name, name)
    if name == "char" and kind["const"] and pointers:
        base, pointers = "Cstring", pointers - 1
    return "Ptr{" * pointers + base + "}" * pointers


def _code(enum):
    """An enum, with the short names that symbols are compared with."""
    names = [v["name"] for v in enum["values"]]
    prefix = os.path.commonprefix(names)
    prefix = prefix[:prefix.rfind("_") + 1]
    rows = [f'    {v["name"]} = {v["value"]} => "{v["name"][len(prefix):].lower()}"\n'
            for v in enum["values"]]
    return f"@code {enum['name']} begin\n{''.join(rows)}end\n"


def _struct(struct, callbacks):
    fields = "".join(f"    {_name(f['name'])}::{_type(f['type'], callbacks)}\n" for f in struct["fields"])
    return f"struct {struct['name']}\n{fields}end\n"


def _function(function, callbacks):
    params = ", ".join(f"{_name(p['name'])}::{_type(p['type'], callbacks)}" for p in function["params"])
    library = "lib" + function["library"]
    # A macro's arguments end with the line, unless a bracket is open: no break before the name.
    head = f"@call {library} {function['name']}(".replace(" ", "\0")
    text = f"{head}{params})::{_type(function['result'], callbacks)}"
    lines = textwrap.wrap(text, 100, subsequent_indent="    ", break_long_words=False,
                          break_on_hyphens=False)
    return "\n".join(lines).replace("\0", " ") + "\n"


def _initial(api, structs):
    """Which function fills a struct with its defaults."""
    names = {f["name"] for f in api["functions"]}
    for struct in structs:
        init = struct["name"].removesuffix("_t") + "_init"
        if init in names:
            yield f"fill_defaults(r::Ref{{{struct['name']}}}) = {init}(r, sizeof({struct['name']}))\n"


def _topic(api, topic):
    """The declarations of one topic; "" is DLPack's own."""
    callbacks = {c["name"] for c in api["callbacks"]}
    own = {kind: [item for item in api[kind] if item["topic"] == topic]
           for kind in ("handles", "enums", "structs", "functions")}
    parts = ["".join(f"mutable struct {h['name']} end\n" for h in own["handles"]),
             *(_code(e) for e in own["enums"]),
             *(_struct(s, callbacks) for s in own["structs"]),
             "".join(_function(f, callbacks) for f in own["functions"]),
             "".join(_initial(api, own["structs"]))]
    return _HEAD + "\n".join(part for part in parts if part)


def files(api, sizes):
    del sizes  # asserted by the binding's tests
    topics = {"dlpack": ""} | {t["name"]: t["name"] for t in api["topics"]}
    root = [_HEAD, "".join(f"const {m['name']} = {m['value']}\n" for m in api["macros"]), "\n",
            "".join(f'include("raw/{name}.jl")\n' for name in topics)]
    return {"bindings/julia/NXD/src/raw.jl": "".join(root)} | {
        f"bindings/julia/NXD/src/raw/{name}.jl": _topic(api, topic) for name, topic in topics.items()}
