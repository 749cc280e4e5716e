"""Keeps two copies of libtorch out of one process: they would share symbols, and crash.

libnxd.so.0 needs libtorch by the sonames of the system's packages. A torch that came with its own
copy, such as one from a wheel, has others. It is found by what is mapped into the process before
libnxd is loaded, and by where `import torch` would take it from afterwards. libnxd_core needs no
libtorch, and nxd.core gets along with any.
"""

from __future__ import annotations

import ctypes
import importlib.machinery
import os
import re
import struct
import sys
from collections.abc import Sequence
from types import ModuleType
from typing import Any

_PARTS = re.compile(r"^lib(torch_cpu|torch|c10)(-[0-9a-f]+)?\.so(\.[0-9.]+)?$")
_ADVICE = ("Two copies of libtorch cannot share a process. Use the torch of the system's packages "
           "(Debian: python3-torch), run libnxd in a process without this torch, or use nxd.core "
           "alone, which needs no libtorch.")


class ForeignLibtorch(ImportError):
    """The process has, or would get, a second copy of libtorch."""


def _mapped_parts() -> set[str]:
    """Files of libtorch that are mapped; the kernel gives them without symbolic links."""
    parts = set()
    with open("/proc/self/maps", encoding="utf-8", errors="surrogateescape") as maps:
        for line in maps:
            fields = line.rstrip("\n").split(maxsplit=5)
            if len(fields) == 6 and _PARTS.match(os.path.basename(fields[5]).split(" ")[0]):
                parts.add(fields[5].removesuffix(" (deleted)"))
    return parts


def mapped_file(soname: str) -> str:
    """Path of the library of that name that the process has loaded."""
    path = _loaded_path(soname)
    if path is None:
        raise ImportError(f"nxd: {soname} is not loaded")
    return path


def _loaded_path(soname: str) -> str | None:
    """Where the loader took a library from that has this soname; None when there is none."""
    class LinkMap(ctypes.Structure):
        _fields_ = [("address", ctypes.c_void_p), ("name", ctypes.c_char_p)]

    try:
        library = ctypes.CDLL(soname, mode=os.RTLD_NOLOAD | os.RTLD_LAZY)
    except OSError:
        return None
    found = ctypes.POINTER(LinkMap)()
    dlinfo = ctypes.CDLL(None).dlinfo
    dlinfo.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p]
    rtld_di_linkmap = 2
    if dlinfo(library._handle, rtld_di_linkmap, ctypes.byref(found)) != 0:
        return None
    return os.fsdecode(found.contents.name)


def needed(path: str) -> list[str]:
    """Sonames that a 64-bit ELF library asks for."""
    with open(path, "rb") as file:
        data = file.read()
    table, = struct.unpack_from("<Q", data, 32)
    size, count = struct.unpack_from("<HH", data, 54)
    segments = [struct.unpack_from("<IIQQQQ", data, table + i * size) for i in range(count)]
    pt_load, pt_dynamic, dt_needed, dt_strtab = 1, 2, 1, 5
    dynamic = next(s for s in segments if s[0] == pt_dynamic)
    entries = list(struct.iter_unpack("<QQ", data[dynamic[2]:dynamic[2] + dynamic[5]]))
    strings = next(value for tag, value in entries if tag == dt_strtab)
    strings = next(s[2] + strings - s[3] for s in segments
                   if s[0] == pt_load and s[3] <= strings < s[3] + s[5])
    names = (data[strings + value:data.index(b"\0", strings + value)]
             for tag, value in entries if tag == dt_needed)
    return [name.decode() for name in names]


def _own_parts(engine_path: str) -> set[str]:
    """Files of the libtorch already loaded that libnxd shares, or would."""
    own: set[str] = set()
    for soname in needed(engine_path):
        path = _loaded_path(soname) if _PARTS.match(soname) else None
        if path:
            # Beside it are the parts that libnxd does not name itself.
            directory = os.path.dirname(os.path.realpath(path))
            own.update(os.path.realpath(os.path.join(directory, name))
                       for name in os.listdir(directory) if _PARTS.match(name))
    return own


def refuse_foreign(engine_path: str) -> None:
    """Raises where the process has parts of a libtorch that libnxd would not share."""
    mapped = _mapped_parts()
    foreign = sorted(mapped - _own_parts(engine_path)) if mapped else []
    if foreign:
        wanted = ", ".join(name for name in needed(engine_path) if _PARTS.match(name))
        raise ForeignLibtorch(f"nxd: this process has already loaded {', '.join(foreign)}, but "
                              f"{engine_path} needs {wanted} of the system. {_ADVICE}")


class _ImportGuard:
    """Looks where a torch would be imported from, once libnxd has brought its own libtorch."""

    def __init__(self, engine_path: str) -> None:
        self._own = _own_parts(engine_path)

    def find_spec(self, name: str, path: Sequence[str] | None = None,
                  target: ModuleType | None = None) -> Any:
        if name != "torch":
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        for place in (spec.submodule_search_locations or []) if spec else []:
            libraries = os.path.join(place, "lib")
            for file in sorted(os.listdir(libraries)) if os.path.isdir(libraries) else []:
                whole = os.path.join(libraries, file)
                if _PARTS.match(file) and os.path.realpath(whole) not in self._own:
                    raise ForeignLibtorch(f"nxd: import torch would load {whole} beside the "
                                          f"libtorch that libnxd has loaded. {_ADVICE}")
        return None


def guard_imports(engine_path: str) -> None:
    """Refuses a later import of a torch with a libtorch of its own."""
    if "torch" not in sys.modules:
        sys.meta_path.insert(0, _ImportGuard(engine_path))
