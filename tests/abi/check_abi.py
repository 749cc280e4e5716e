"""The ABI gate: see scripts/check_abi.

Two accounts of the ABI are kept, and both are compared. baseline.json is the header as the C
compiler has it; lib*.abi is what the debug information of the built libraries says.
"""

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import generate
import read_header

ROOT = Path(__file__).resolve().parents[2]
LIBRARIES = ["nxd_core", "nxd"]
TOOLS = ["abidw", "abidiff", "gcc", "nm", "readelf"]
# The core offers the engine C++ names under a node of their own, of which nothing is promised.
PRIVATE_NODE = "NXD_PRIVATE_"
# Keeps the boundary only: other exported names are the engine's, and type names need no lines.
ONLY_C = """[suppress_function]
  symbol_name_not_regexp = ^nxd_
  drop = yes
[suppress_variable]
  symbol_name_not_regexp = ^nxd_
  drop = yes
"""
ABIDW = ["abidw", "--exported-interfaces-only", "--drop-private-types", "--no-corpus-path",
         "--no-comp-dir-path", "--no-show-locs", "--no-parameter-names", "--no-elf-needed",
         "--type-id-style", "hash"]
# Fields behind the last one of a struct whose first field says how long it is.
GROWN = """[suppress_type]
  type_kind = struct
  name_regexp = ^({})$
  has_data_member_inserted_at = end
"""


def node(abi):
    return f"NXD_{abi}"


# --- What there is -------------------------------------------------------------------------------

def signature(function):
    params = ", ".join(p["type"]["c"] for p in function["params"]) or "void"
    return f"{function['result']['c']} ({params})"


def describe(api, sizes):
    """The header as baseline.json has it."""
    structs = {}
    for s in api["structs"]:
        measured = sizes["structs"][s["name"]]
        structs[s["name"]] = {
            "size": measured["size"], "align": measured["align"],
            "fields": {f["name"]: [*measured["fields"][f["name"]], f["type"]["c"]]
                       for f in s["fields"]}}
    return {
        "constants": sizes["constants"],
        "enums": {e["name"]: e["type"] for e in api["enums"]},
        "handles": {h["name"]: "" for h in api["handles"]},
        "callbacks": {c["name"]: signature(c) for c in api["callbacks"]},
        "functions": {f["name"]: f"lib{f['library']}: {signature(f)}" for f in api["functions"]},
        "structs": structs,
    }


def library_file(directory, library):
    path = Path(directory, f"lib{library}.so")
    if not path.exists():
        sys.exit(f"check_abi: {path} is missing: the gate needs both libraries")
    return path


def exported(path, abi):
    """Names in the ABI's version node, and what is wrong with the others."""
    names, problems = set(), []
    lines = run(["nm", "-D", "--defined-only", "--with-symbol-versions", str(path)]).splitlines()
    for kind, symbol in (line.split()[-2:] for line in lines):
        name, _, version = symbol.partition("@")
        version = version.lstrip("@")
        if kind == "A" and name == version or kind == "A" and not version:
            continue
        if version.startswith(PRIVATE_NODE) and not name.startswith("nxd_"):
            continue
        if version != node(abi):
            problems.append(f"{path.name}: {symbol} is not in {node(abi)}")
        names.add(name)
    return names, problems


def debug_abi(path, include, work):
    """The library's boundary by its debug information, as XML text."""
    if ".debug_info" not in run(["readelf", "-S", "-W", str(path)]):
        sys.exit(f"check_abi: {path} has no .debug_info: it was stripped, and says nothing of types")
    out, only_c = Path(work, path.name + ".abi"), Path(work, "only_c")
    only_c.write_text(ONLY_C)
    run([*ABIDW, "--suppressions", str(only_c), "--headers-dir", str(include),
         "--out-file", str(out), str(path)])
    tree = ElementTree.parse(out)
    for unit in tree.iter("abi-instr"):
        unit.set("path", "/".join(Path(unit.get("path")).parts[-2:]))
    # abidw drops no variables of threads. One of the boundary would be a mistake, and stays.
    for symbols in tree.findall("elf-variable-symbols"):
        for symbol in symbols.findall("elf-symbol"):
            if not symbol.get("name").startswith("nxd_"):
                symbols.remove(symbol)
        if not len(symbols):
            tree.getroot().remove(symbols)
    text = ElementTree.tostring(tree.getroot(), encoding="unicode")
    return "\n".join(line.strip() for line in text.replace(' />', '/>').splitlines()) + "\n"


def untyped(xml, api, library):
    """Functions whose parameters the debug information does not know."""
    known = {f.get("name"): len(f.findall("parameter"))
             for f in ElementTree.fromstring(xml).iter("function-decl")}
    return [f"lib{library}.so: the debug information has no types of {f['name']}"
            for f in api["functions"] if f["library"] == library
            and known.get(f["name"]) != len(f["params"])]


def run(command, accept=(0,)):
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode not in accept:
        sys.exit(f"check_abi: {' '.join(command)}: exit {done.returncode}\n"
                 f"{done.stdout}{done.stderr}")
    return done.stdout


# --- What there was ------------------------------------------------------------------------------

def compare_struct(name, old, new, enums):
    """A struct may only have grown at its end, and only if its first field says how long it is; and a field
    may stand where one was reserved, of its type or of an enumeration that is of this type."""
    problems = []

    def takes(field, was):
        *place, kind = new["fields"][field]
        return [*place, enums.get(kind, kind)] == was

    added = [f for f in new["fields"] if f not in old["fields"]]
    for field, was in old["fields"].items():
        now = new["fields"].get(field)
        if now is None and field == "reserved":
            taken = [f for f in added if takes(f, was)]
            if taken:
                added.remove(taken[0])
                continue
        if now != was:
            problems.append(f"{name}.{field}: was {was} (offset, bytes, type), is {now}")
    sized = next(iter(old["fields"]), "") == "struct_size"
    for field in added:
        if not sized:
            problems.append(f"{name}.{field} is added to a struct without struct_size")
        elif new["fields"][field][0] < old["size"]:
            problems.append(f"{name}.{field} is not behind the struct's former end, {old['size']}")
    if new["align"] != old["align"] or not added and new["size"] != old["size"]:
        problems.append(f"{name}: size or alignment was {old['size']}, {old['align']}, is "
                        f"{new['size']}, {new['align']}")
    return problems


def compare(old, new):
    """Changes that break programs of the baseline; and additions."""
    problems, added = [], []
    for kind, was in old.items():
        for name, value in was.items():
            if name.startswith("NXD_VERSION_"):
                continue
            now = new[kind].get(name)
            if now is None:
                problems.append(f"{kind}: {name} is gone")
            elif kind == "structs":
                problems += compare_struct(name, value, now, new["enums"])
                added += [f"{name}.{f}" for f in now["fields"] if f not in value["fields"]]
            elif now != value:
                problems.append(f"{name}: was {value}, is {now}")
        added += [name for name in new[kind] if name not in was]
    return problems, added


def abidiff(old, new, sized, work):
    grown = Path(work, "grown")
    grown.write_text(GROWN.format("|".join(name.removesuffix("_t") for name in sized)))
    command = ["abidiff", "--no-added-syms", "--suppressions", str(grown), str(old), str(new)]
    done = subprocess.run(command, capture_output=True, text=True)
    return f"abidiff {old.name}: exit {done.returncode}\n{done.stdout}{done.stderr}" \
        if done.returncode else ""


# --- The gate ------------------------------------------------------------------------------------

class Now:
    """The header and the libraries as they are."""

    def __init__(self, include, libraries, work):
        self.api, self.sizes = generate.describe(include)
        self.header = describe(self.api, self.sizes)
        self.debug, self.problems = {}, []
        abi = self.sizes["constants"]["NXD_ABI_VERSION"]
        for library in LIBRARIES:
            path = library_file(libraries, library)
            declared = {f["name"] for f in self.api["functions"] if f["library"] == library}
            names, problems = exported(path, abi)
            problems += [f"lib{library}.so: {n} is declared, not exported" for n in
                         sorted(declared - names)]
            problems += [f"lib{library}.so: {n} is exported, not declared" for n in
                         sorted(names - declared)]
            self.debug[library] = debug_abi(path, include, work)
            problems += untyped(self.debug[library], self.api, library)
            self.problems += problems

    def sized(self):
        return [s["name"] for s in self.api["structs"]
                if s["fields"] and s["fields"][0]["name"] == "struct_size"]


def update(now, baseline):
    baseline.mkdir(parents=True, exist_ok=True)
    rows = {kind: ",\n".join(f"  {json.dumps(k)}: {json.dumps(v)}" for k, v in values.items())
            for kind, values in now.header.items()}
    text = ",\n".join(f"{json.dumps(kind)}: {{\n{lines}\n}}" for kind, lines in rows.items())
    (baseline / "baseline.json").write_text("{\n" + text + "\n}\n")
    for library, xml in now.debug.items():
        (baseline / f"lib{library}.abi").write_text(xml)


def check(now, baseline, work):
    kept = baseline / "baseline.json"
    if not kept.exists():
        return [f"{kept} is missing: scripts/check_abi --update makes it"], []
    problems, added = compare(json.loads(kept.read_text()), now.header)
    for library, xml in now.debug.items():
        new = Path(work, f"lib{library}.abi")
        new.write_text(xml)
        told = abidiff(baseline / f"lib{library}.abi", new, now.sized(), work)
        problems += [told] if told else []
    return problems, added


def main():
    parser = argparse.ArgumentParser(prog="check_abi")
    parser.add_argument("--update", action="store_true")
    parser.add_argument("--baseline", type=Path, default=ROOT / "tests/abi")
    parser.add_argument("--include", type=Path, default=ROOT / "include")
    parser.add_argument("--libraries", type=Path, default=ROOT / "build/src")
    args = parser.parse_args()
    missing = [tool for tool in TOOLS if not shutil.which(tool)]
    if missing:
        sys.exit(f"check_abi: {', '.join(missing)} missing: scripts/deps installs what is needed")
    with tempfile.TemporaryDirectory() as work:
        try:
            now = Now(args.include.resolve(), args.libraries, work)
        except read_header.HeaderError as e:
            sys.exit(f"check_abi: {e}")
        problems, added = now.problems, []
        if args.update and not problems:
            update(now, args.baseline)
        elif not args.update:
            broken, added = check(now, args.baseline, work)
            problems += broken
    for line in problems:
        print(f"check_abi: {line}")
    print(f"check_abi: {len(now.header['functions'])} functions, {len(now.header['structs'])} "
          f"structs, {len(added)} additions, {len(problems)} problems"
          + (f"; new since the baseline: {', '.join(added)}" if added else ""))
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
