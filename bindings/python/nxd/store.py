"""Key-value stores, through which ranks find one another."""

from __future__ import annotations

import time
from typing import Any, Protocol

from nxd import errors
from nxd._handle import Handle, Struct, c_path, c_text, drop_user_data, get, user_data, \
    whole
from nxd.errors import callback, check
from nxd.raw import core, ffi

# How long one wait in the library lasts, so that Ctrl-C comes through.
_SLICE_MS = 100


class StoreLike(Protocol):
    """The methods that a store of one's own has; used by several threads at once. Where it gives
    bytes, anything with the buffer protocol will do."""

    def set(self, key: str, value: bytes) -> None: ...
    def get(self, key: str) -> bytes | None: ...
    def add(self, key: str, amount: int) -> int: ...


class Store(Handle):
    __slots__ = ()
    _destroy = "nxd_store_destroy"

    @classmethod
    def local(cls) -> Store:
        """For ranks that live on threads of this process."""
        return cls(get("nxd_store_t**", core.nxd_store_create_local))

    @classmethod
    def file(cls, path: str) -> Store:
        """In a file that all ranks can write; its path must be fresh for each job."""
        return cls(get("nxd_store_t**", core.nxd_store_create_file, c_path(path)))

    @classmethod
    def tcp(cls, host: str, port: int, server: bool = False, timeout_ms: int = 0) -> Store:
        """Served over TCP by one rank; with server, port 0 picks a free one."""
        return cls(get("nxd_store_t**", core.nxd_store_create_tcp, c_text(host), whole(port),
                       whole(server), whole(timeout_ms)))

    @classmethod
    def custom(cls, store: StoreLike) -> Store:
        """Over an object's own set, get and add."""
        with user_data.given(store) as held:
            callbacks = Struct("nxd_store_callbacks_t", {
                "set": _set, "get": _get, "add": _add, "user_data": held,
                "destroy": drop_user_data})
            return cls(get("nxd_store_t**", core.nxd_store_create_callbacks, callbacks.pointer))

    @property
    def port(self) -> int:
        return get("int32_t*", core.nxd_store_get_port, self.pointer)

    def set(self, key: str, value: bytes) -> None:
        data = bytes(memoryview(value))
        check(core.nxd_store_set(self.pointer, c_text(key), data, len(data)))

    def get(self, key: str, timeout_ms: int = 0) -> bytes:
        """Waits for the key; Timeout when it is not there in time."""
        if whole(timeout_ms) < 0:
            raise errors.InvalidArgument(f"timeout_ms: expected 0 or more, got {timeout_ms}")
        end = time.monotonic() + timeout_ms / 1000
        room = ffi.new("char[]", 4096)
        size = ffi.new("size_t*")
        while True:
            left = max(0, min(_SLICE_MS, int(1000 * (end - time.monotonic()))))
            status = core.nxd_store_get(self.pointer, c_text(key), left, room, len(room), size)
            if status == 0:
                return ffi.buffer(room, size[0])[:]
            if size[0] > len(room):
                room = ffi.new("char[]", size[0])
            elif status != errors.Timeout.status or time.monotonic() >= end:
                raise _of_whole_wait(errors.failure(status), left, timeout_ms)

    def add(self, key: str, amount: int) -> int:
        """Adds to an integer that starts at 0, atomically, and gives the new value."""
        return get("int64_t*", core.nxd_store_add, self.pointer, c_text(key), whole(amount))


def _of_whole_wait(error: BaseException, left: int, timeout_ms: int) -> BaseException:
    """The library's Timeout names the last slice of the wait."""
    last = f"was not set within {left} ms"
    if not isinstance(error, errors.Timeout) or not error.message.endswith(last):
        return error
    return errors.Timeout(f"{error.message[:-len(last)]}was not set within {timeout_ms} ms",
                          error.info)


@callback("nxd_store_callbacks_t.set")
def _set(key: Any, value: Any, size: int, held: Any) -> None:
    ffi.from_handle(held).set(ffi.string(key).decode(), ffi.buffer(value, size)[:] if size else b"")


@callback("nxd_store_callbacks_t.get")
def _get(key: Any, room: Any, cap: int, out_size: Any, out_found: Any, held: Any) -> None:
    value = ffi.from_handle(held).get(ffi.string(key).decode())
    out_found[0] = value is not None
    data = b"" if value is None else bytes(memoryview(value))
    out_size[0] = len(data)
    if data and len(data) <= cap:
        ffi.memmove(room, data, len(data))


@callback("nxd_store_callbacks_t.add")
def _add(key: Any, amount: int, out: Any, held: Any) -> None:
    out[0] = whole(ffi.from_handle(held).add(ffi.string(key).decode(), amount))
