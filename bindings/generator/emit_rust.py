"""Rust's raw layer: the crate nxd-sys, and the tests of its layout."""

import flags

_SCALARS = {"char": "c_char", "void": "c_void", "double": "f64", "float": "f32", "size_t": "usize",
            "int8_t": "i8", "uint8_t": "u8", "int16_t": "i16", "uint16_t": "u16", "int32_t": "i32",
            "uint32_t": "u32", "int64_t": "i64", "uint64_t": "u64",
            "DLDeviceType": "i32", "unsigned int": "u32", "int": "i32"}
_KEYWORDS = {"type", "ref", "move", "in", "fn", "box", "loop", "match", "where"}
_HEAD = "//! Generated from nxd.h by scripts/bindings.\n"


def _name(name):
    if name == "self":
        return "this"  # the one keyword that cannot be escaped
    return "r#" + name if name in _KEYWORDS else name


def _doc(text, indent=""):
    return "".join(f"{indent}/// {line}".rstrip() + "\n" for line in text.splitlines())


def _signature(result, params, named):
    args = ", ".join((f"{_name(p['name'])}: " if named and p["name"] else "") + _type(p["type"])
                     for p in params)
    nothing = result["name"] == "void" and not result["pointers"]
    return f"({args})" + ("" if nothing else f" -> {_type(result)}")


def _type(kind):
    if kind["name"] == "function":
        return f"Option<unsafe extern \"C\" fn{_signature(kind['result'], kind['params'], False)}>"
    text = _SCALARS.get(kind["name"], kind["name"])
    # The spelling has the constness of every level: "char const* const*" and the like.
    levels = kind["c"].split("*")[1:]
    for i in range(kind["pointers"]):
        const = kind["const"] if i == 0 else "const" in levels[i - 1]
        text = f"{'*const' if const else '*mut'} {text}"
    return text


def _values(enum):
    """Values with what their names have of their own: SUM of NXD_REDUCE_SUM."""
    invalid = next((v["name"] for v in enum["values"] if v["name"].endswith("_INVALID")), None)
    prefix = invalid.removesuffix("INVALID") if invalid else "NXD_"
    for v in enum["values"]:
        short = v["name"].removeprefix(prefix).removeprefix("ERROR_")
        yield ("_" + short if short[0].isdigit() else short), v


def _enum(enum):
    name, values = enum["name"], list(_values(enum))
    lines = [_doc(enum["doc"]) + "#[repr(transparent)]\n"
             "#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]\n"
             f"pub struct {name}(pub i32);\n\nimpl {name} {{\n"]
    for short, v in values:
        lines.append(_doc(v["doc"], "    ") + f"    pub const {short}: Self = Self({v['value']});\n")
    lines.append("}\n\n")
    lines.append(f"impl std::fmt::Debug for {name} {{\n"
                 "    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {\n"
                 "        match *self {\n")
    lines += [f"            Self::{short} => f.write_str(\"{short}\"),\n" for short, _ in values]
    lines.append("            Self(other) => write!(f, \"{}\", other),\n        }\n    }\n}\n\n")
    if any(v["value"] == 0 for _, v in values):
        lines.append(f"impl Default for {name} {{\n    fn default() -> Self {{\n"
                     "        Self(0)\n    }\n}\n\n")
    return "".join(lines)


def _handle(handle):
    return (_doc(handle["doc"]) + f"#[repr(C)]\npub struct {handle['name']} {{\n"
            "    _data: [u8; 0],\n    _one_thread: PhantomData<(*mut u8, PhantomPinned)>,\n}\n\n")


def _callback(callback):
    return (_doc(callback["doc"]) + f"pub type {callback['name']} = Option<\n"
            f"    unsafe extern \"C\" fn{_signature(callback['result'], callback['params'], True)},\n>;\n\n")


def _struct(struct, functions):
    name = struct["name"]
    lines = [_doc(struct["doc"]) + "#[repr(C)]\n#[derive(Clone, Copy, Debug)]\n"
             f"pub struct {name} {{\n"]
    for f in struct["fields"]:
        lines.append(_doc(f["doc"], "    ") + f"    pub {_name(f['name'])}: {_type(f['type'])},\n")
    lines.append("}\n\n")
    sized = struct["fields"][0]["name"] == "struct_size"
    if not sized:
        return "".join(lines)
    counted = [f"        if self.{field} != 0 {{\n            self.{flag} = 1;\n        }}\n"
               for field, flag in flags.counted(struct)]
    lines.append(f"unsafe impl Versioned for {name} {{\n    fn with_size(mut self) -> Self {{\n"
                 "        self.struct_size = std::mem::size_of::<Self>();\n"
                 + "".join(counted) + "        self\n    }\n}\n\n")
    init = functions.get(name.removesuffix("_t") + "_init")
    if init:
        gate = "#[cfg(feature = \"engine\")]\n" if init["library"] == "nxd" else ""
        body = (f"        let mut value = zeroed::<Self>();\n"
                f"        // Cannot fail: neither NULL nor of another size.\n"
                f"        unsafe {{ {init['name']}(&mut value, std::mem::size_of::<Self>()) }};\n"
                "        value\n")
    else:
        gate, body = "", "        zeroed::<Self>().with_size()\n"
    lines.append(f"{gate}impl Default for {name} {{\n    fn default() -> Self {{\n{body}    }}\n}}\n\n")
    return "".join(lines)


def _function(function):
    return (_doc(function["doc"], "    ") + f"    pub fn {function['name']}"
            f"{_signature(function['result'], function['params'], True)};\n")


def _named(topics):
    return "".join(f"mod {t};\npub use {t}::*;\n" for t in topics)


def _root(api, topics):
    """Declarations that the topics share, and the list of topics."""
    parts = [_HEAD, "\nuse std::marker::{PhantomData, PhantomPinned};\n"
             "use std::os::raw::{c_char, c_void};\n\n",
             "/// Structs that begin with their own size.\n///\n/// # Safety\n///\n"
             "/// All bytes zero is a value of such a struct.\n"
             "pub unsafe trait Versioned: Copy {\n"
             "    /// The same with the size that this crate knows, and the flags of fields that are not 0.\n"
             "    fn with_size(self) -> Self;\n}\n\n",
             "fn zeroed<T: Versioned>() -> T {\n    // By the contract of Versioned.\n"
             "    unsafe { std::mem::zeroed() }\n}\n\n"]
    for m in api["macros"]:
        parts.append(f"pub const {m['name']}: {'u32' if 'ABI' in m['name'] else 'i32'} = {m['value']};\n")
    return "".join([*parts, "\n", _named(topics)])


def _topic(api, topic):
    """The declarations of one topic; "" is DLPack's own."""
    functions = {f["name"]: f for f in api["functions"]}
    own = {kind: [item for item in api[kind] if item["topic"] == topic]
           for kind in ("enums", "handles", "callbacks", "structs", "functions")}
    parts = [_HEAD, "\n#[allow(unused_imports)]\nuse super::*;\n\n"]
    parts += [_enum(e) for e in own["enums"]]
    parts += [_handle(h) for h in own["handles"]]
    parts += [_callback(c) for c in own["callbacks"]]
    parts += [_struct(s, functions) for s in own["structs"]]
    if own["functions"]:
        gate = "#[cfg(feature = \"engine\")]\n" if own["functions"][0]["library"] == "nxd" else ""
        parts.append(f"{gate}extern \"C\" {{\n")
        parts.append("\n".join(_function(f) for f in own["functions"]))
        parts.append("}\n")
    return "".join(parts).rstrip() + "\n"


def _tests(api, sizes):
    parts = [_HEAD, "#![cfg_attr(rustfmt, rustfmt_skip)]\n\nuse nxd_sys::*;\nuse std::mem::{align_of, size_of, MaybeUninit};\n"
             "use std::ptr::addr_of;\n\n",
             "/// Offset and size of a field, which is not read.\n"
             "macro_rules! place {\n    ($kind:ty, $field:ident) => {{\n"
             "        fn size<T>(_: *const T) -> usize {\n            size_of::<T>()\n        }\n"
             "        let value = MaybeUninit::<$kind>::uninit();\n"
             "        let start = value.as_ptr();\n"
             "        // Addresses alone: nothing is read through them.\n"
             "        let field = unsafe { addr_of!((*start).$field) };\n"
             "        (field as usize - start as usize, size(field))\n    }};\n}\n\n"]
    for name, struct in sizes["structs"].items():
        parts.append(f"#[test]\nfn layout_of_{name.lower()}() {{\n"
                     f"    assert_eq!((size_of::<{name}>(), align_of::<{name}>()), "
                     f"({struct['size']}, {struct['align']}));\n")
        for field, (offset, size) in struct["fields"].items():
            parts.append(f"    assert_eq!(place!({name}, {_name(field)}), ({offset}, {size}), \"{field}\");\n")
        parts.append("}\n\n")
    parts.append("#[test]\nfn constants() {\n")
    for m in api["macros"]:
        parts.append(f"    assert_eq!(i64::from({m['name']}), {sizes['constants'][m['name']]});\n")
    for enum in api["enums"]:
        for short, v in _values(enum):
            parts.append(f"    assert_eq!({enum['name']}::{short}.0, {sizes['constants'][v['name']]});\n")
    parts.append("}\n")
    return "".join(parts)


def files(api, sizes):
    """The generated files of nxd-sys: a module for each topic, and a test."""
    topics = {t["name"]: t["name"] for t in api["topics"]} | {"dlpack": ""}
    out = {f"bindings/rust/nxd-sys/src/raw/{name}.rs": _topic(api, topic)
           for name, topic in topics.items()}
    return out | {"bindings/rust/nxd-sys/src/raw/mod.rs": _root(api, topics),
                  "bindings/rust/nxd-sys/tests/layout.rs": _tests(api, sizes)}
