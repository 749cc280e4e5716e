#!/usr/bin/env bash
# Each source and header of src includes what it names, itself or through headers of the project. Builds in
# few translation units, as CI's, have neighbours' includes, and find none that lacks. The check reads text
# and takes a second, where compiling each source alone takes minutes: it knows what the standard library's
# common headers declare, and the types, constants, functions and inner namespaces of the project, but where a
# member in reach has the same name and no namespace is before it. Broken copies of a file fail.
# usage: test_own_includes.sh SOURCE_DIR BUILD_DIR
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# shellcheck source=tests/scripts/lib.sh
. "$(dirname "$0")/lib.sh"
need_commands python3

check() {
  python3 - "$1" <<'EOF'
import collections
import pathlib
import re
import sys

STANDARD = {name: header for header, names in {
    "algorithm": "all_of any_of clamp copy fill find find_if lower_bound max max_element min min_element "
                 "none_of reverse sort transform unique upper_bound",
    "array": "array", "atomic": "atomic atomic_ref atomic_thread_fence", "bit": "bit_cast countr_zero popcount",
    "charconv": "from_chars to_chars", "chrono": "chrono", "cmath": "ceil exp floor isfinite isnan log lround pow sqrt",
    "condition_variable": "condition_variable", "cstddef": "byte nullptr_t", "cstring": "memcmp memcpy memset strlen",
    "deque": "deque", "exception": "current_exception exception exception_ptr rethrow_exception",
    "filesystem": "filesystem", "fstream": "ifstream ofstream", "functional": "function",
    "future": "future promise", "initializer_list": "initializer_list", "iterator": "back_inserter",
    "limits": "numeric_limits", "list": "list", "map": "map multimap",
    "memory": "enable_shared_from_this make_shared make_unique shared_ptr unique_ptr weak_ptr",
    "mutex": "call_once lock_guard mutex once_flag scoped_lock unique_lock", "numeric": "accumulate gcd iota",
    "optional": "nullopt optional", "set": "multiset set", "span": "span", "stdexcept": "invalid_argument runtime_error",
    "string": "string to_string", "string_view": "string_view", "thread": "jthread this_thread thread",
    "tuple": "tie tuple", "type_traits": "conditional_t decay_t enable_if_t is_same is_same_v remove_reference_t",
    "unordered_map": "unordered_map", "unordered_set": "unordered_set", "utility": "exchange forward move pair swap",
    "variant": "get_if holds_alternative variant visit", "vector": "vector",
}.items() for name in names.split()}
# Headers that the standard says to include <initializer_list>, which a loop over {a, b} needs.
LISTS = set("algorithm array deque initializer_list list map set string unordered_map unordered_set utility vector"
            .split())
# The format leaves what is in a namespace without indentation, and indents members.
TYPE = (r"^(?:template <[^\n]*>\s)?(?:class|struct|enum class|enum|union) (?:\[\[\w+\]\] |alignas\([^)]*\) )?(\w+)"
        r"|^using (\w+) =")
CONSTANT = r"^(?:inline |static |constexpr |const |extern )[^\n=(]*?\b(k[A-Z]\w+)"
FUNCTION = r"^(?!return|else|using|namespace|case)(?:\[\[\w+\]\] )?[A-Za-z_][\w:<>,&* ]*?[ &*](\w+)\("
NAMESPACE = r"^namespace (?!nxd)(\w+) {"
MEMBER = (r"^ +(?:struct|class|enum class|enum|using) (\w+)"
          r"|^ +(?!return|else|throw)[A-Za-z_][\w:<>,&* ]*?[ &*](\w+)\(")


def code(text):
    text = re.sub(r"//[^\n]*|/\*.*?\*/|^#include [^\n]*", "", text, flags=re.S | re.M)
    return re.sub(r'"(?:[^"\\\n]|\\.)*"', '""', text)


def names(pattern, text):
    return {name for found in re.finditer(pattern, text, re.M) for name in found.groups() if name}


root = pathlib.Path(sys.argv[1])
whole = {}
for base in ("src", "include"):
    for path in sorted((root / base).rglob("*")):
        if path.suffix in (".h", ".cpp"):
            whole[path.relative_to(root / base).as_posix()] = path.read_text(encoding="utf-8")
texts = {name: code(text) for name, text in whole.items()}


def project_includes(name):
    for included in re.findall(r'^#include [<"]([^>"]+)[>"]', whole[name], re.M):
        beside = (pathlib.PurePosixPath(name).parent / included).as_posix()
        if included in whole or beside in whole:
            yield included if included in whole else beside


direct = {name: list(project_includes(name)) for name in whole}
standard = {name: set(re.findall(r"^#include <([^>]+)>", text, re.M)) for name, text in whole.items()}


def reached(name):
    seen, left = {name}, [name]
    while left:
        new = [included for included in direct[left.pop()] if included not in seen]
        seen.update(new)
        left += new
    return seen


declared, members = collections.defaultdict(set), collections.defaultdict(set)
for name, text in texts.items():
    if not re.search(r"^namespace nxd(?:::kernels)? {", text, re.M):
        continue
    shared = re.sub(r"^namespace (?!nxd)\w* ?{.*?^}(?!;)", "", text, flags=re.S | re.M)
    for found in (names(TYPE, shared) | names(CONSTANT, shared) | names(FUNCTION, shared)) - {"alignas"}:
        declared[found].add(name)
    for found in names(NAMESPACE, text):
        declared[found + "::"].add(name)
    for found in names(MEMBER, text):
        members[found].add(name)
declared = {found: where for found, where in declared.items() if any(name.endswith(".h") for name in where)}

problems, uses = [], 0
for name, text in texts.items():
    if name.startswith("nxd"):
        continue
    closure = reached(name)
    headers = set().union(*(standard[other] for other in closure))
    for used in sorted(set(re.findall(r"\bstd::(\w+)", text)) & STANDARD.keys()):
        uses += 1
        if STANDARD[used] not in headers:
            problems.append(f"{name}: std::{used} without <{STANDARD[used]}>")
    if re.search(r"\bfor \([^;()]*: \{", text) and not LISTS & headers:
        problems.append(f"{name}: a loop over braces without <initializer_list>")
    qualified = set(re.findall(r"\b(?:nxd|kernels)::(\w+)\b(?!::)", text))
    called = set(re.findall(r"(?<![\w.>:])([a-z]\w*)\(", text))
    named = set(re.findall(r"(?<![\w.>:])([A-Zk]\w*)\b", text))
    spaces = set(re.findall(r"(?<![\w:])(\w+::)", text))
    for used in sorted((qualified | called | named | spaces) & declared.keys()):
        uses += 1
        if declared[used] & closure or (used not in qualified and members[used] & closure):
            continue
        # A parameter, a local variable, an enumerator or another library's with this name is not it.
        own = rf"[\w>&*](?<!return|.throw|..else|..case)\s+[&*]*{used}\b *[;=({{,)\[>]|[{{,]\s*{used}\b *[=,}}]|::{used}\b"
        if used in qualified or not any(re.search(own, texts[other], re.M) for other in closure):
            problems.append(f"{name}: {used} without {sorted(h for h in declared[used] if h.endswith('.h'))[0]}")
print("\n".join(problems) or f"{uses} uses of {len(declared)} names in {len(texts)} files are checked")
sys.exit(1 if problems or uses < 5000 else 0)
EOF
}

source=$(cd "$1" && pwd -P)
check "$source"

# broken FILE INCLUDE: in a copy whose FILE lacks the include, the check fails and names the file.
broken() {
  local out
  rm -rf "${work:?}"/{src,include}
  cp -r "$source/src" "$source/include" "$work"
  sed -i "\|^#include [<\"]$2[>\"]|d" "$work/src/$1"
  ! cmp -s "$source/src/$1" "$work/src/$1" || { echo "nothing changed in $1"; exit 1; }
  if out=$(check "$work"); then
    echo "accepted $1 without $2"
    exit 1
  fi
  grep -F "$1: " <<< "$out" > "$work/named" || { echo "expected $1, got:"; echo "$out"; exit 1; }
}
broken engine/layers/parallel_embedding.cpp engine/tensor/dtype_map.h
broken core/tensor_parallel/linear_plan.h core/tensor_parallel/stacked_parts.h
broken core/world/host_map.cpp algorithm
broken core/base/blocked_signals.cpp initializer_list
