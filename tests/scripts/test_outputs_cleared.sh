#!/usr/bin/env bash
# A call that fails leaves no output as it was: every function of nxd.h that has outputs, as
# bindings/api.json lists them, is called with arguments that it refuses.
# usage: test_outputs_cleared.sh SOURCE_DIR BUILD_DIR
set -euo pipefail
. "$(dirname "$0")/lib.sh"
if grep -q '^NXD_SANITIZE:[A-Z]*=.*address' "$2/CMakeCache.txt"; then
  skip "python3 cannot load a library that was built with AddressSanitizer" "build without it"
fi
export OMP_NUM_THREADS=1 NXD_LOG_LEVEL=off
exec timeout 300 /usr/bin/python3 - "$1" "$2" <<'PY'
import ctypes
import json
import os
import sys

source, build = sys.argv[1:]
api = json.load(open(f"{source}/bindings/api.json"))
layout = json.load(open(f"{source}/bindings/layout.json"))
sizes = {name: struct["size"] for name, struct in layout["structs"].items()}
structs = {s["name"]: s for s in api["structs"]}
handles = {h["name"]: h for h in api["handles"]}
# An enumeration whose first value is not -1 has no INVALID.
invalid = {e["name"] for e in api["enums"] if e["values"][0]["value"] == -1}
libraries = {"nxd_core": ctypes.CDLL(f"{build}/src/libnxd_core.so", mode=ctypes.RTLD_GLOBAL)}
if os.path.exists(f"{build}/src/libnxd.so"):
    libraries["nxd"] = ctypes.CDLL(f"{build}/src/libnxd.so")

POISON, ROOM = 0xA5, 4096
INTEGERS = {"size_t": ctypes.c_size_t, "uint64_t": ctypes.c_uint64, "uint32_t": ctypes.c_uint32,
            "uint16_t": ctypes.c_uint16, "uint8_t": ctypes.c_uint8, "int64_t": ctypes.c_int64}
BYTES = {"int64_t": 8, "uint64_t": 8, "size_t": 8, "double": 8, "float": 4}


def outputs_of(function):
    """Outputs of a function. A caller's buffer with its capacity after it is none."""
    found, params = [], function["params"]
    for parameter, following in zip(params, params[1:] + [{"name": ""}]):
        kind = parameter["type"]
        if (parameter["name"].startswith("out") and kind["pointers"] and not kind["const"] and
                not kind["c"].replace(" ", "").endswith("const*") and following["name"] != "cap"):
            found.append(parameter["name"])
    return found


def width(kind):
    if kind["pointers"] > 1:
        return 8
    return sizes.get(kind["name"]) or BYTES.get(kind["name"], 4)


# A rejected call leaves these functions' output of the setting before as it was, by nxd.h.
KEEPS = {"nxd_set_autocast", "nxd_set_deferred_init", "nxd_set_grad_enabled"}
ARRAYS = {"outputs", "out_grads", "out_grad_inputs", "out_weights"}


class Call:
    """One call of a function; where it has an array of outputs all its counts are 2."""

    def __init__(self, function, missing, others, live, count=2):
        self.function = function
        self.arguments, self.rooms = [], {}
        counted = any(p["name"] in ARRAYS for p in function["params"])
        for parameter in function["params"]:
            kind, name = parameter["type"], parameter["name"]
            if name in outputs_of(function):
                self.arguments.append(None if name == missing else self.room(parameter))
                continue
            if kind["pointers"]:
                self.arguments.append(ctypes.c_void_p(live.get(kind["c"])))
            elif kind["name"] == "double" or kind["name"] == "float":
                self.arguments.append(getattr(ctypes, "c_" + kind["name"])(0))
            elif counted and kind["name"] == "size_t":
                self.arguments.append(ctypes.c_size_t(count))
            else:
                self.arguments.append(INTEGERS.get(kind["name"], ctypes.c_int32)(others))

    def room(self, parameter):
        memory = ctypes.create_string_buffer(bytes([POISON]) * ROOM, ROOM)
        name = parameter["type"]["name"]
        if parameter["type"]["pointers"] == 1 and name in structs:
            fields = structs[name]["fields"]
            if fields[0]["name"] == "struct_size":
                ctypes.c_size_t.from_buffer(memory).value = sizes[name]
        self.rooms[parameter["name"]] = (memory, parameter["type"])
        return memory

    def run(self):
        called = getattr(libraries[self.function["library"]], self.function["name"])
        called.restype = ctypes.c_int32
        return called(*self.arguments)

    def left(self):
        """Outputs that are not cleared. Structs have values of their own for nothing, and a size may
        say how much room was missing."""
        found = []
        for name, (memory, kind) in self.rooms.items():
            struct = kind["pointers"] == 1 and kind["name"] in structs
            value = memory.raw[8 if struct else 0:width(kind) * (2 if name in ARRAYS else 1)]
            may_have = (struct or kind["c"] == "size_t*" or
                        (kind["name"] in invalid and value == b"\xff" * 4))
            if bytes([POISON]) * 4 in value or (not may_have and any(value)):
                found.append(name)
        return found

    def release(self):
        for memory, kind in self.rooms.values():
            handle = handles.get(kind["name"])
            pointer = ctypes.c_void_p.from_buffer(memory).value
            if kind["pointers"] == 2 and handle and handle["destroy"] and pointer:
                library = next(l for l in libraries.values() if hasattr(l, handle["destroy"]))
                getattr(library, handle["destroy"])(ctypes.c_void_p(pointer))


core = libraries["nxd_core"]
context, group = ctypes.c_void_p(), ctypes.c_void_p()
os.environ.update(RANK="0", WORLD_SIZE="1")
if core.nxd_context_create(None, ctypes.byref(context)) != 0:
    sys.exit("no context")
lives = [{}, {"nxd_context_t*": context.value}]
problems, failures, functions = set(), 0, 0
for function in api["functions"]:
    outputs = outputs_of(function)
    if not outputs or function["library"] not in libraries or function["name"] in KEEPS:
        continue
    functions += 1
    for missing in [None] + outputs:
        for others in (0, -1):
            for live in lives:
                call = Call(function, missing, others, live)
                status = call.run()
                if status == 0:
                    call.release()
                    continue
                failures += 1
                for name in call.left():
                    why = f" when {missing} is NULL" if missing else ""
                    problems.add(f"{function['name']}: {name} is left as it was{why}")
    # No array has so many: they are refused before any is written to.
    for count in (2**64 - 1, 2**60):
        if any(name in ARRAYS for name in outputs):
            for live in lives:
                if Call(function, None, 0, live, count).run() != -1:
                    problems.add(f"{function['name']}: takes {count} elements")
core.nxd_context_destroy(context)
print("\n".join(sorted(problems)) or f"{functions} functions, {failures} refused calls")
sys.exit(1 if problems or failures < 2 * functions else 0)
PY
