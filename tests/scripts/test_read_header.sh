#!/usr/bin/env bash
# The generator of the bindings reads headers: its account of a good one, and what it says of
# one that breaks a rule.
# usage: test_read_header.sh SOURCE_DIR BUILD_DIR
set -euo pipefail
. "$(dirname "$0")/lib.sh"
need_python pycparser
export PYTHONDONTWRITEBYTECODE=1
PYTHONPATH=$1/bindings/generator exec /usr/bin/python3 - "$1/tests/abi/fake" <<'PYTHON'
import sys
import tempfile
from pathlib import Path

import generate
from read_header import HeaderError

# The files of the small header as one text: each begins with a line that names it.
FILES = ["nxd.h", "nxd/core.h", "nxd/engine.h", "nxd/box.h", "nxd/thing.h"]
GOOD = "".join(f"=== {name}\n{Path(sys.argv[1], name).read_text()}" for name in FILES)
LOOK = "NXD_API nxd_status_t nxd_box_look(nxd_box_t* box, nxd_look_fn look, void* user_data);"
FIELD = "  int32_t height;\n"
MOVE = "int64_t steps"
HIDE = "\n/** [local] Hides it.\n *  @since 0.1 */\nNXD_API void nxd_box_hide(void);\n"


def describe(header):
    with tempfile.TemporaryDirectory() as directory:
        Path(directory, "nxd").mkdir()
        for part in header.split("=== ")[1:]:
            name, text = part.split("\n", 1)
            Path(directory, name).write_text(text)
        return generate.describe(Path(directory))


def check(holds, what):
    if not holds:
        sys.exit(f"FAILED: {what}")


api, sizes = describe(GOOD)
functions = {f["name"]: f for f in api["functions"]}
check(functions["nxd_box_create"]["params"][1]["owner"] == "caller", "who owns a new box")
check(functions["nxd_thing_move"]["tag"] == {"kind": "collective", "blocking": True, "of": "world"}
      and functions["nxd_box_destroy"]["tag"]["kind"] == "local", "tags")
check(functions["nxd_thing_move"]["library"] == "nxd"
      and functions["nxd_box_look"]["library"] == "nxd_core", "libraries")
check([functions[f"nxd_{f}"]["topic"] for f in ("box_look", "thing_move")] == ["box", "thing"],
      "topics")
check(api["handles"][0]["destroy"] == "nxd_box_destroy", "how a handle is destroyed")
check([v["value"] for v in api["enums"][0]["values"]] == [0, -1, -2], "values")
check(api["callbacks"][0]["params"][0]["type"]["c"] == "int32_t", "callbacks")
check(sizes["structs"]["nxd_box_options_t"]["fields"]["weight"] == [24, 8], "offsets")
check({f["name"]: f["doc"] for f in api["structs"][0]["fields"]}["weight"] == "0: weightless",
      "comments of fields")

BAD = [  # what is replaced, by what, what is said of it
    ("[local] Shows what is in it.", "Shows what is in it.", "nxd_box_look: expected a comment that begins"),
    ("[local] Shows what is in it.", "Shows what is in it.\n * [local]", "got 1 in it"),
    ("[local] Shows what is in it.", "[local] Shows it. [collective: world]", "got 2 in it"),
    ("[collective: world]", "[collective]", "nxd_thing_move: a collective names its group"),
    ("[local] Throws it away.", "[collective: world] Throws it away.",
     "nxd_box_destroy: destroying is [local]"),
    ("/** [local] Throws it away.\n *  @since 0.1 */\n", "", "nxd_box_destroy: no comment"),
    ("[local] Throws it away.\n *  @since 0.1", "[local] Throws it away.",
     "nxd_box_destroy: @since is missing"),
    (LOOK, LOOK + "\n" + LOOK, "nxd_box_look: is declared twice"),
    (LOOK, LOOK.replace("void* user_data", "void*"), "nxd_box_look: a parameter has no name"),
    (LOOK, LOOK.replace("nxd_look_fn look", "nxd_status_t (*look)(int32_t thing)"), None),
    (LOOK, LOOK.replace("void* user_data", "..."), "nxd_box_look: variable arguments"),
    (LOOK, LOOK.replace("nxd_box_look", "Look"), "Look: no comment"),
    (LOOK, LOOK.replace(");", ") {}"), "neither a type nor a function"),
    (LOOK, LOOK.replace(");", ""), "as preprocessed"),
    (LOOK, '#include "gone.h"\n', "gone.h"),
    (MOVE, "long steps", "nxd_thing_move, steps: long: not a type of fixed width"),
    (MOVE, "int steps", "steps: int: not a type of fixed width"),
    (MOVE, "_Bool steps", "not a type of fixed width"),
    (MOVE, "enum nxd_step steps", "nxd_thing_move: enum nxd_step: enum and union types"),
    (MOVE, "const char** steps", None),
    (MOVE, "long* steps", "steps: long*: not a type of the header's language"),
    (MOVE, "int64_t steps[3]", "arrays are not part of the header's language"),
    ("nxd_place_t* place", "nxd_place_t place", "nxd_place_t: structs are passed by pointers"),
    ("NXD_API void nxd_box_destroy(nxd_box_t* box)", "NXD_API void nxd_box_destroy()",
     "nxd_box_destroy: write (void)"),
    (", NXD_ERROR_EMPTY = -1, NXD_ERROR_FULL = -2", ", NXD_ERROR_EMPTY = 1",
     "nxd_status_t: has no negative member"),
    ("typedef int32_t nxd_status_t", "typedef uint32_t nxd_status_t",
     "nxd_status_t: enumerations are int32_t"),
    ("enum { NXD_OK", "enum nxd_codes { NXD_OK", "enumerators follow a typedef"),
    (FIELD, "  int32_t height[2];\n", "arrays are not part"),
    (FIELD, "  int32_t height : 3;\n", "bitfields are not part"),
    (FIELD, "  union { int32_t a; float b; } height;\n", "enum and union types are not part"),
    (FIELD, "  long height;\n", "nxd_box_options_t.height: long: not a type of fixed width"),
    ("  size_t struct_size;\n  int32_t width;\n", "  int32_t width;\n  size_t struct_size;\n",
     "struct_size is a size_t and the first field"),
    ("  size_t struct_size;\n", "", "nxd_box_options_t: options begin with struct_size"),
    ("/** A box. */\n", "", "nxd_box_t: no comment"),
    ('#include "nxd/engine.h"\n', '#include "nxd/engine.h"\n' + HIDE, "nxd_box_hide: is in no topic"),
    ('#include "box.h"\n\n#endif\n===', "#endif\n===", "nxd_status_t: no comment"),
]
for old, new, said in BAD:
    check(old in GOOD, f"{old!r} is not in the good header")
    try:
        describe(GOOD.replace(old, new))
        got = None
    except HeaderError as e:
        got = str(e)
    check(said == got if said is None else got and said in got,
          f"{new!r}: expected {said!r}, got {got!r}")
print(f"a good header is understood, {len(BAD)} others are told apart")
PYTHON
