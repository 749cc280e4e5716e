"""The C API as cffi sees it: `raw.core.nxd_*` are the functions of nxd/core.h, `raw.engine.nxd_*`
those of nxd/engine.h. Everything else in this package is written with these; what has no wrapper is
called here, with `raw.ffi` for memory and `nxd.check` for statuses.

libnxd.so.0, and with it libtorch, is loaded by the first use of `raw.engine`.
"""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Any

from nxd import _libtorch, _raw
from nxd._declarations import ffi

CORE_NAME, ENGINE_NAME = "libnxd_core.so.0", "libnxd.so.0"
# Libraries stay: objects that Python forgets at its end may still be destroyed.
_FLAGS = os.RTLD_NOW | os.RTLD_NODELETE

__all__ = ["core", "engine", "ffi"]


def _core_path() -> str:
    """The library of the tree this file is installed in (PREFIX/share/nxd/python), or by its name
    what the dynamic loader finds."""
    parents = Path(__file__).resolve().parents
    if len(parents) > 4 and parents[1].parts[-3:] == ("share", "nxd", "python"):
        for place in ("lib", "lib64", "lib/*"):
            for path in parents[4].glob(f"{place}/{CORE_NAME}"):
                return str(path)
    return CORE_NAME


def _check_abi(library: Any) -> None:
    found = library.nxd_abi_version()
    if found != _raw.ABI_VERSION:
        version = ffi.string(library.nxd_version()).decode()
        raise ImportError(
            f"nxd: this binding is for ABI {_raw.ABI_VERSION} of libnxd, and the library loaded "
            f"is release {version} with ABI {found}: install the binding of that release "
            "(PREFIX/share/nxd/python)")


def _load_core() -> Any:
    path = _core_path()
    try:
        library = ffi.dlopen(path, _FLAGS)
    except OSError as error:
        raise ImportError(f"nxd: cannot load {path}: {error}. Install libnxd, or name the "
                          "directory it is in by LD_LIBRARY_PATH") from None
    _check_abi(library)
    return library


class _Engine:
    """Loads libnxd.so.0 when a function of it is first asked for."""

    def __init__(self) -> None:
        self._lock = threading.RLock()

    def __getattr__(self, name: str) -> Any:
        # Reached once per function: what is found is kept in the instance.
        if not name.startswith("nxd_"):
            raise AttributeError(name)
        with self._lock:
            if "_library" not in self.__dict__:
                self.__dict__["_library"] = _load_engine()
        function = getattr(self.__dict__["_library"], name)
        self.__dict__[name] = function
        return function


def _load_engine() -> Any:
    core_path = _libtorch.mapped_file(CORE_NAME)
    path = os.path.join(os.path.dirname(core_path), ENGINE_NAME)
    if not os.path.exists(path):
        raise ImportError(f"nxd: {ENGINE_NAME} is not beside {core_path}: this installation has "
                          "the functions of nxd/core.h only (nxd.core)")
    _libtorch.refuse_foreign(path)
    library = ffi.dlopen(path, _FLAGS)
    _check_abi(library)
    _libtorch.guard_imports(path)
    return library


core = _load_core()
engine = _Engine()
