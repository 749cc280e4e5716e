"""Reads include/nxd.h and include/nxd into the description that bindings are generated from (api.json).

The C parser gives declarations; comments, which it drops, are found again by name.
"""

import re
import subprocess
from pathlib import Path

from pycparser import c_ast, c_generator, c_parser
from pycparser.plyparser import ParseError

_COMMENTED = re.compile(r"/\*\*((?:(?!\*/).)*)\*/\s*(.*?)(?=;|\{|\n\s*\n)", re.S)
_TAG = re.compile(r"\[(local|blocking|collective)(?:: ([^\]\n]*))?\]")
# Which library the topics of an umbrella are in.
_UMBRELLAS = {"core": "nxd_core", "engine": "nxd"}


class HeaderError(Exception):
    """The header breaks a rule that bindings rely on."""


def topics(include_dir):
    """Name, library and text of each topical header; each comes after those that it includes."""
    directory = Path(include_dir, "nxd")

    def included(name):
        return re.findall(r'^#include "(\w+)\.h"$', (directory / (name + ".h")).read_text(), re.M)

    libraries = {name: library for umbrella, library in _UMBRELLAS.items()
                 for name in included(umbrella) if name not in _UMBRELLAS}
    ordered = {}

    def place(name):
        for other in included(name):
            if other in libraries and other not in ordered:
                place(other)
        ordered[name] = libraries[name]

    for name in libraries:
        if name not in ordered and (directory / (name + ".h")).exists():
            place(name)
    for name, library in ordered.items():
        yield name, library, (directory / (name + ".h")).read_text()


def preprocess(include_dir):
    """The header as the compiler sees it, with nothing but its own declarations' dependencies."""
    command = ["gcc", "-E", "-P", "-std=c99", "-D__attribute__(x)=", "-nostdinc",
               "-I", "/usr/share/python3-pycparser/fake_libc_include", "-I", str(include_dir),
               str(include_dir / "nxd.h")]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise HeaderError(done.stderr)
    return done.stdout


def _plain(comment):
    lines = [re.sub(r"^\s*\*?", "", line).strip() for line in comment.strip().splitlines()]
    return "\n".join(lines).strip()


def _flat(text):
    return " ".join(text.split())


def _comments(header):
    """Doc comments by the name declared after them."""
    found = {}
    for m in _COMMENTED.finditer(header):
        declaration = re.sub(r"__attribute__\(\(.*?\)\)", "", m[2])
        name = (re.search(r"\(\*(nxd_\w+)\)", declaration)
                or re.search(r"NXD_API .*?\b(nxd_\w+)\(", declaration, re.S)
                or re.search(r"typedef struct (nxd_\w+)", declaration)
                or re.search(r"typedef \w+ (nxd_\w+)", declaration))
        if name:
            found[name[1]] = _plain(m[1])
    return found


def _trailing_comments(text):
    """Trailing comments of enumerators or fields, by declared name."""
    found = {}
    for m in re.finditer(r"\b(\w+)(?: = [^,\n]*?)?[,;]?\s*/\*\*<((?:(?!\*/).)*)\*/", text, re.S):
        found[m[1]] = _flat(re.sub(r"\n\s*\*?", " ", m[2]))
    return found


def _body(header, struct):
    """The text between the braces of a struct."""
    return re.search(rf"typedef struct {struct} {{(.*?)\n}} {struct}_t;", header, re.S)[1]


def _type(node):
    """A type as its C spelling, its base name, and the constness of each level of pointers."""
    spelling = c_generator.CGenerator().visit(node)
    pointers = []
    while isinstance(node, (c_ast.PtrDecl, c_ast.ArrayDecl)):
        if isinstance(node, c_ast.ArrayDecl):
            raise HeaderError(f"{spelling}: arrays are not part of the header's language")
        pointers.append("const" in node.quals)
        node = node.type
    if isinstance(node, c_ast.FuncDecl):
        raise HeaderError(f"{spelling}: a function type needs a typedef")
    base = node.type
    if isinstance(base, (c_ast.Enum, c_ast.Union)):
        raise HeaderError(f"{spelling}: enum and union types are not part of the header's language")
    name = base.name if isinstance(base, c_ast.Struct) else " ".join(base.names)
    return {"c": spelling.replace(" *", "*"), "name": name, "const": "const" in node.quals,
            "pointers": len(pointers)}


def _function_pointer(function):
    """A type that is spelled where it is used: a field that holds a callback."""
    params = _params(function)
    result = _result(function)
    spelling = f"{result['c']} (*)({', '.join(p['type']['c'] for p in params) or 'void'})"
    return {"c": spelling, "name": "function", "const": False, "pointers": 1,
            "result": result, "params": params}


def _unnamed(declaration):
    """The type of a parameter or field, without its name."""
    node = declaration.type
    if isinstance(node, c_ast.PtrDecl) and isinstance(node.type, c_ast.FuncDecl):
        return _function_pointer(node.type)
    inner = node
    while isinstance(inner, (c_ast.PtrDecl, c_ast.ArrayDecl)):
        inner = inner.type
    name, inner.declname = inner.declname, None
    try:
        return _type(node)
    finally:
        inner.declname = name


def _params(function):
    if not function.args:
        raise HeaderError("write (void)")
    params = []
    for p in function.args.params:
        if isinstance(p, c_ast.EllipsisParam):
            raise HeaderError("variable arguments are not part of the header's language")
        kind = _unnamed(p)
        if kind["name"] == "void" and not kind["pointers"]:
            continue
        if not p.name:
            raise HeaderError("a parameter has no name")
        params.append({"name": p.name, "type": kind})
    return params


def _result(function):
    inner = function.type
    while isinstance(inner, c_ast.PtrDecl):
        inner = inner.type
    inner.declname = None
    return _type(function.type)


def _tag(name, doc):
    tags = _TAG.findall(_flat(doc))
    if len(tags) != 1 or not _TAG.match(doc):
        raise HeaderError(f"{name}: expected a comment that begins with its one tag, [local], "
                          f"[blocking] or [collective: G], got {len(tags)} in it")
    kind, of = tags[0]
    if kind == "collective" and not of:
        raise HeaderError(f"{name}: a collective names its group")
    return {"kind": "collective" if kind == "collective" else "local",
            "blocking": kind != "local", "of": of}


def _direction(param, doc):
    kind, name = param["type"], param["name"]
    if kind["pointers"] == 0 or kind["const"] and kind["pointers"] == 1:
        return "in"
    if re.search(rf"@param\[in,out\]\s+{name}\b", doc):
        return "inout"
    if name.startswith("out_") or re.search(rf"@param\[out\]\s+{name}\b", doc):
        return "out"
    return "in"


def _ownership(function, param, doc, destroyed):
    """The owner, which destroys a handle that a call gives out: "caller" or "library"."""
    kind = param["type"]
    gives = kind["pointers"] == 2 and not kind["const"] and (
        param["direction"] == "out" or param["name"] == "outputs")
    if not gives or not kind["name"].startswith("nxd_"):
        return None
    if kind["name"] not in destroyed:
        return "library"
    if not re.search(r"_(get|find)_", function):
        return "caller"
    of_param = re.search(rf"@param\[out\]\s+{param['name']}\b(.*?)(?=@|$)", doc, re.S)
    said = doc.split("@")[0] + (of_param[1] if of_param else "")
    borrowed = re.search(r"\bborrowed\b", said, re.I)
    destroys = re.search(r"the caller destroys it", said)
    if bool(borrowed) == bool(destroys):
        raise HeaderError(f"{function}: {param['name']}: say that it is borrowed, or that the "
                          "caller destroys it")
    return "library" if borrowed else "caller"


def _since(name, doc):
    since = re.search(r"@since (\d+\.\d+)", doc)
    if not since:
        raise HeaderError(f"{name}: @since is missing")
    return since[1]


class _Reader:
    def __init__(self, parts):
        self.header = "".join(text for _, _, text in parts)
        self.docs, self.places = {}, {}
        for topic, library, text in parts:
            comments = _comments(text)
            self.docs.update(comments)
            self.places.update(dict.fromkeys(comments, (topic, library)))
        self.enumerators = _trailing_comments(self.header)
        self.enums, self.handles, self.callbacks = [], [], []
        self.structs, self.functions = [], []
        self.scalars = {}

    def doc(self, name):
        for key in (name, name.removesuffix("_t")):
            if key in self.docs:
                return self.docs[key]
        if name.startswith("DL"):
            return ""  # DLPack's own
        raise HeaderError(f"{name}: no comment")

    def place(self, name):
        """Topic and library of a declaration."""
        return self.places.get(name) or self.places.get(name.removesuffix("_t"), ("", ""))

    def typedef(self, node):
        name, inner = node.name, node.type
        if isinstance(inner, c_ast.PtrDecl) and isinstance(inner.type, c_ast.FuncDecl):
            function = inner.type
            params = _params(function)
            self.callbacks.append({"name": name, "topic": self.place(name)[0],
                                   "doc": self.doc(name), "result": _result(function), "params": params})
        elif isinstance(inner.type, c_ast.Struct):
            self.struct(name, inner.type)
        elif isinstance(inner.type, c_ast.IdentifierType):
            self.scalars[name] = " ".join(inner.type.names)

    def struct(self, name, node):
        if node.decls is None and not name.startswith("nxd_"):
            return
        if node.decls is None:
            self.handles.append({"name": name, "topic": self.place(name)[0], "doc": self.doc(name)})
            return
        for field in node.decls:
            if field.bitsize:
                raise HeaderError(f"{field.name}: bitfields are not part of the header's language")
        comments = {}
        if name.startswith("nxd_"):
            comments = _trailing_comments(_body(self.header, name.removesuffix("_t")))
        fields = [{"name": d.name, "type": _unnamed(d), "doc": comments.get(d.name, "")}
                  for d in node.decls]
        self.structs.append({"name": name, "topic": self.place(name)[0], "doc": self.doc(name),
                             "fields": fields})

    def enum(self, node, typename):
        values = [{"name": e.name, "doc": self.enumerators.get(e.name, "")}
                  for e in node.values.enumerators]
        self.enums.append({"name": typename, "topic": self.place(typename)[0],
                           "doc": self.doc(typename), "type": self.scalars[typename], "values": values})

    def function(self, declaration):
        name, function = declaration.name, declaration.type
        doc = self.doc(name)
        topic, library = self.place(name)
        params = _params(function)
        for p in params:
            p["direction"] = _direction(p, doc)
        self.functions.append({
            "name": name, "topic": topic, "library": library,
            "tag": _tag(name, doc), "since": _since(name, doc), "doc": doc,
            "result": _result(function), "params": params})

    def declaration(self, node, before):
        """One declaration; `before` is the name of the typedef in front of it."""
        if isinstance(node, c_ast.Typedef):
            if node.name.startswith(("nxd_", "DL")):
                self.typedef(node)
        elif not isinstance(node, c_ast.Decl):
            raise HeaderError("neither a type nor a function")
        elif isinstance(node.type, c_ast.Enum):
            if node.type.name is None and before in self.scalars:
                self.enum(node.type, before)
            elif node.type.name is None or not node.type.name.startswith("DL"):
                raise HeaderError("enumerators follow a typedef of int32_t")
        elif isinstance(node.type, c_ast.Struct):
            if node.type.decls is not None:
                self.struct(node.type.name, node.type)
        elif isinstance(node.type, c_ast.FuncDecl):
            self.function(node)
        else:
            raise HeaderError("neither a type nor a function")

    def read(self, tree):
        before = None
        for node in tree.ext:
            try:
                self.declaration(node, before)
            except HeaderError as e:
                name = getattr(node, "name", None) or before
                raise HeaderError(str(e) if str(e).startswith(f"{name}:") else f"{name}: {e}") from e
            if isinstance(node, c_ast.Typedef):
                before = node.name
        destroyed = {f["params"][0]["type"]["name"] for f in self.functions
                     if f["name"].endswith("_destroy")}
        for handle in self.handles:
            handle["destroy"] = next((f["name"] for f in self.functions
                                      if f["name"].endswith("_destroy")
                                      and f["params"][0]["type"]["name"] == handle["name"]), None)
        for f in self.functions:
            for p in f["params"]:
                owner = _ownership(f["name"], p, f["doc"], destroyed)
                if owner:
                    p["owner"] = owner


def read(include_dir):
    """The description of the header as plain lists and dictionaries."""
    reader = _Reader([("", "", Path(include_dir, "nxd.h").read_text()), *topics(include_dir)])
    try:
        tree = c_parser.CParser().parse(preprocess(Path(include_dir)), "nxd.h")
    except ParseError as e:
        raise HeaderError(f"as preprocessed: {e}") from e
    reader.read(tree)
    macros = re.findall(r"^#define (NXD_[A-Z0-9_]+) (-?\d+)\s*$", reader.header, re.M)
    return {
        "topics": [{"name": name, "library": library} for name, library, _ in topics(include_dir)],
        "macros": [{"name": name, "value": int(value)} for name, value in macros],
        "enums": reader.enums,
        "handles": reader.handles,
        "callbacks": reader.callbacks,
        "structs": reader.structs,
        "functions": reader.functions,
    }
