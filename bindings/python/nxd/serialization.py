"""Files of a caller's tensors, by name, and texts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from nxd._handle import EngineHandle, Struct, c_path, c_text, get, pointers, strings, text, \
    to_enum
from nxd.enums import Device
from nxd.errors import check
from nxd.group import collective
from nxd.raw import engine, ffi
from nxd.tensors import Tensor

if TYPE_CHECKING:
    from nxd.context import Context


def _save(function: Any, context: Context, path: str, tensors: Mapping[str, Tensor],
          texts: Mapping[str, str] | None, options: dict[str, Any]) -> None:
    kept: list[Any] = []
    texts = texts or {}
    with collective(lambda: context.world):
        struct = Struct("nxd_save_options_t",
                        {"keys": list(texts), "values": list(texts.values()),
                         "num_values": len(texts), **options}, engine)
        names = strings(list(tensors), kept)
        values = pointers("nxd_tensor_t", tensors.values())
        given = c_path(path)
    check(function(context.pointer, given, names, values, len(tensors), struct.pointer))


def save(context: Context, path: str, tensors: Mapping[str, Tensor],
         texts: Mapping[str, str] | None = None, **options: Any) -> None:
    """Writes tensors and texts as one safetensors file, once they are all in the host's memory.
    Options: master_only (default on: the first rank writes; off: each rank, its own path),
    each_host. [collective: world]"""
    _save(engine.nxd_save, context, path, tensors, texts, options)


def serialization_save(context: Context, path: str, tensors: Mapping[str, Tensor],
                       texts: Mapping[str, str] | None = None, **options: Any) -> None:
    """The same file, tensor by tensor: one of them is copied to the host's memory at a time.
    [collective: world]"""
    _save(engine.nxd_serialization_save, context, path, tensors, texts, options)


class Serialization(EngineHandle):
    """An open file of tensors, which are read when they are asked for, and texts."""

    __slots__ = ()
    _destroy = "nxd_serialization_destroy"

    def __init__(self, path: str) -> None:
        super().__init__(get("nxd_serialization_t**", engine.nxd_serialization_load,
                             c_path(path)))

    def __len__(self) -> int:
        return get("size_t*", engine.nxd_serialization_get_count, self.pointer)

    def __iter__(self) -> Iterator[str]:
        """The names of the tensors, in alphabetical order."""
        for index in range(len(self)):
            yield text(get("const char**", engine.nxd_serialization_get_name, self.pointer, index))

    def __getitem__(self, name: str) -> Tensor:
        """Reads a tensor."""
        return self.read(name)

    def read(self, name: str, device: Device | str = Device.CPU) -> Tensor:
        """Reads a tensor, to the CPU or the recorded device."""
        return Tensor(get("nxd_tensor_t**", engine.nxd_serialization_create_tensor, self.pointer,
                          c_text(name), to_enum(Device, device)))

    @property
    def texts(self) -> dict[str, str]:
        count = get("size_t*", engine.nxd_serialization_get_value_count, self.pointer)
        key, value = ffi.new("const char**"), ffi.new("const char**")
        found = {}
        for index in range(count):
            check(engine.nxd_serialization_get_value(self.pointer, index, key, value))
            found[text(key[0])] = text(value[0])
        return found


def serialization_load(path: str) -> Serialization:
    """Opens a file of save, serialization_save, or any other safetensors."""
    return Serialization(path)
