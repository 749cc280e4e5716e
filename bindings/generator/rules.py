"""Rules that every declaration of the header keeps, since bindings rely on them."""

import re

# These have one size and signedness wherever a binding runs; bool, long, int and enums have not.
_SCALARS = {"int32_t", "int64_t", "uint32_t", "uint64_t", "size_t", "float", "double"}
_POINTED_AT = _SCALARS | {"void", "char", "uint8_t"}


def _known(api):
    return {item["name"]: kind for kind in ("enums", "handles", "callbacks", "structs")
            for item in api[kind]}


def _type_problems(where, kind, known, is_result=False):
    if kind["name"] == "function":
        yield from _type_problems(where, kind["result"], known, is_result=True)
        for p in kind["params"]:
            yield from _type_problems(f"{where}, {p['name']}", p["type"], known)
        return
    name, pointers = kind["name"], kind["pointers"]
    is_struct = known.get(name) in ("handles", "structs")
    if name.startswith("DL") or (name == "void" and is_result):
        return
    if pointers == 0 and is_struct:
        yield f"{where}: {kind['c']}: structs are passed by pointers"
    elif pointers == 0 and name not in _SCALARS and name not in known:
        yield f"{where}: {kind['c']}: not a type of fixed width"
    elif pointers > 0 and not is_struct and name not in _POINTED_AT and name not in known:
        yield f"{where}: {kind['c']}: not a type of the header's language"


def _is_name(name):
    return bool(re.fullmatch(r"nxd_[a-z0-9_]+", name))


def _function_problems(function, known):
    name = function["name"]
    if not _is_name(name):
        yield f"{name}: expected a name of the form nxd_<object>_<verb>"
    if not function["topic"]:
        yield f"{name}: is in no topic that nxd/core.h or nxd/engine.h includes"
    yield from _type_problems(f"{name}, result", function["result"], known, is_result=True)
    for p in function["params"]:
        yield from _type_problems(f"{name}, {p['name']}", p["type"], known)
    if name.endswith("_destroy") and (function["result"]["c"] != "void"
                                      or function["tag"]["kind"] != "local"):
        yield f"{name}: destroying is [local] and gives no result"


def _struct_problems(struct, known):
    name, fields = struct["name"], struct["fields"]
    for f in fields:
        if f["name"] == "struct_size" and (f is not fields[0] or f["type"]["c"] != "size_t"):
            yield f"{name}: struct_size is a size_t and the first field"
        yield from _type_problems(f"{name}.{f['name']}", f["type"], known)
    if name.endswith("_options_t") and fields[0]["name"] != "struct_size":
        yield f"{name}: options begin with struct_size"


def problems(api):
    """Broken rules, one line each. Enumerators have their values."""
    known = _known(api)
    out = []
    for f in api["functions"]:
        out += _function_problems(f, known)
    for c in api["callbacks"]:
        out += _type_problems(f"{c['name']}, result", c["result"], known, is_result=True)
        for p in c["params"]:
            out += _type_problems(f"{c['name']}, {p['name']}", p["type"], known)
    for s in api["structs"]:
        out += [] if s["name"].startswith("DL") else _struct_problems(s, known)
    for e in api["enums"]:
        if e["type"] != "int32_t":
            out.append(f"{e['name']}: enumerations are int32_t")
        if min(v["value"] for v in e["values"]) >= 0:
            out.append(f"{e['name']}: has no negative member, so that some languages take it for "
                       "unsigned")
    names = [f["name"] for f in api["functions"]]
    out += [f"{n}: is declared twice" for n in sorted({n for n in names if names.count(n) > 1})]
    return out
