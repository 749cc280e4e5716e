"""The base of all objects: a handle of the library, options, and callbacks' user data."""

from __future__ import annotations

import gc
import operator
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from enum import Enum, IntEnum
from typing import Any, TypeVar

from nxd import errors
from nxd._raw import FIELDS
from nxd.enums import Toggle
from nxd.raw import core, engine, ffi

E = TypeVar("E", bound=IntEnum)
H = TypeVar("H", bound="Handle")
R = TypeVar("R")
T = TypeVar("T")


def owned(pointer: Any, destroy: Any, kept: object) -> Any:
    """A pointer that is destroyed once, with the last reference to it or by ffi.release, which then
    lets go of what the library had borrowed. Where destroy is a function of the library, all of
    that is C: no handler of a signal runs in between, whose exception would get lost, or have it
    done by halves or twice."""
    if kept is not None:
        pointer = ffi.gc(pointer, {None: kept}.get)  # which is called with it, and does nothing
    return ffi.gc(pointer, destroy)


class Handle:
    """An object of the library. close() or the end of a with block destroys it at once, else its
    last reference does; either way by a [local] function, which no other rank waits for.

    A borrowed one, which another object owns, cannot be used once its owner is closed. The
    collector ends the handles in a cycle in any order, before or after a __del__ that uses them.
    """

    __slots__ = ("_pointer", "_owner", "__weakref__")
    # The function that destroys it; every one named here is [local].
    _destroy = ""
    _library: Any = core

    def __init__(self, pointer: Any, owner: Handle | None = None, kept: object = None) -> None:
        self._owner = owner
        self._pointer = pointer if owner is not None else owned(pointer, self._destroyer(), kept)

    def _destroyer(self) -> Any:
        """The function that is called with the pointer when the handle ends."""
        return getattr(self._library, self._destroy)

    @property
    def pointer(self) -> Any:
        """The C handle, for calls of nxd.raw."""
        pointer = self._pointer
        if pointer is None or gc.is_finalized(pointer):
            raise errors.InvalidState(f"this {type(self).__name__} is closed")
        if self._owner is not None:
            self._owner.pointer  # raises when it is closed
        return pointer

    @property
    def closed(self) -> bool:
        return (self._pointer is None or gc.is_finalized(self._pointer)
                or self._owner is not None and self._owner.closed)

    def close(self) -> None:
        """Destroys the object; closing it again does nothing."""
        pointer, self._pointer = self._pointer, None
        if pointer is not None and self._owner is None:
            ffi.release(pointer)
            errors.raise_kept()

    def __reduce_ex__(self, protocol: Any) -> Any:
        # A copy would destroy the object a second time.
        raise TypeError(f"a {type(self).__name__} can be neither copied nor pickled")

    def __enter__(self: H) -> H:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()


class _Running:
    """Around a call of a RunningHandle."""

    __slots__ = ("_handle",)

    def __init__(self, handle: RunningHandle) -> None:
        self._handle = handle

    def __enter__(self) -> None:
        self._handle._calls += 1

    def __exit__(self, *raised: object) -> None:
        self._handle._calls -= 1


class RunningHandle(Handle):
    """One whose calls run callbacks, which cannot close it: the library uses it until they are
    back."""

    __slots__ = ("_calls",)

    def __init__(self, pointer: Any, owner: Handle | None = None, kept: object = None) -> None:
        self._calls = 0
        super().__init__(pointer, owner, kept)

    def _running(self) -> _Running:
        return _Running(self)

    def close(self) -> None:
        if self._calls:
            raise errors.InvalidState(f"a callback cannot close the {type(self).__name__} that "
                                      "calls it")
        super().close()


class EngineHandle(Handle):
    """An object of libnxd."""

    __slots__ = ()
    _library = engine


def to_enum(kind: type[E], value: E | str | int) -> E:
    """A member, or the one of that name: "bf16" for DType.BF16, "1f1b" for PpScheduleKind._1F1B."""
    if isinstance(value, str):
        for member in kind:
            if member.name.lstrip("_") == value.upper():
                return member
        known = ", ".join(m.name.lstrip("_").lower() for m in kind if m.value >= 0)
        raise errors.InvalidArgument(f"{kind.__name__}: expected one of {known}, got {value!r}")
    # Another enum's member is a number too, as is a flag, and would name what was not meant.
    if isinstance(value, (Enum, bool)) and not isinstance(value, kind):
        raise errors.InvalidArgument(f"expected a member of {kind.__name__}, got {value!r}")
    try:
        return kind(value)
    except ValueError as error:
        raise errors.InvalidArgument(str(error)) from None


def text(value: Any) -> str:
    """A copy of a C string."""
    return ffi.string(value).decode("utf-8", "replace") if value != ffi.NULL else ""


def c_text(value: str) -> bytes:
    """A text for the library, which would take it to end at a NUL."""
    data = value.encode()
    if 0 in data:
        raise errors.InvalidArgument(f"expected no NUL within a text, got {value!r}")
    return data


def c_path(value: str | bytes | os.PathLike[Any]) -> bytes:
    """A path for the library, in the file system's encoding."""
    data = os.fsencode(value)
    if 0 in data:
        raise errors.InvalidArgument(f"expected no NUL within a path, got {value!r}")
    return data


def whole(value: Any) -> Any:
    """A value for an integer of the library's. cffi would cut others than floats to one, such as
    numpy.float32(1.7), a tensor or a Decimal."""
    if isinstance(value, (int, ffi.CData)):
        return value
    if getattr(getattr(value, "dtype", None), "kind", None) == "b":  # a flag of numpy's
        return int(value)
    try:
        return operator.index(value)
    except TypeError:
        raise TypeError(f"an integer is required, got {value!r}") from None


def integers(values: Iterable[Any]) -> Any:
    """An array of integers, such as a shape."""
    return ffi.new("int64_t[]", [whole(value) for value in values] or 1)


def c_number(kind: str, value: Any) -> Any:
    """An integer for the library, of a type of C that it fits in."""
    return ffi.new(kind + "*", whole(value))[0]


def told(convert: Callable[[Any], Any], value: Any, call: Callable[..., R],
         *numbers: tuple[str, Any]) -> R:
    """A collective call with a path or a text of this rank's, and numbers by their types. A value
    that is no text goes as NULL, and one that is no number as -1, which the library rejects on all
    ranks: the peers, who are in the call already or about to be, would wait otherwise."""
    given = ffi.NULL
    try:
        given = convert(value)
        taken = [c_number(*number) for number in numbers]
    except Exception:
        with suppress(Exception):
            call(given, *[-1] * len(numbers))
        raise
    return call(given, *taken)


def told_number(value: Any, call: Callable[[int], R]) -> R:
    """The same of a call with a number of 32 bits, of which -1 is rejected on all ranks."""
    try:
        given = c_number("int32_t", value)
    except Exception:
        with suppress(Exception):
            call(-1)
        raise
    return call(given)


def told_row(kind: str, given: Sequence[Any], call: Callable[[Any, int], int]) -> int:
    """The same of a row of handles: its status."""
    try:
        row = pointers(kind, given)
    except Exception:
        call(ffi.NULL, len(given))
        raise
    return call(row, len(given))


def texts(name: str, values: Iterable[T]) -> list[T]:
    """A list of texts or paths of the caller's. A single one would be taken for its characters."""
    if isinstance(values, (str, bytes, os.PathLike)):
        raise errors.InvalidArgument(f"{name}: expected a list, got {values!r}")
    return list(values)


def strings(values: Sequence[str] | None, kept: list[Any]) -> Any:
    """An array of C strings, NULL for None. It lives as long as kept."""
    if values is None:
        return ffi.NULL
    kept.extend(ffi.new("char[]", c_text(value)) for value in values)
    array = ffi.new("const char*[]", kept[len(kept) - len(values):] or 1)
    kept.append(array)
    return array


# Options that count by a flag other than has_ and their own name.
_FLAGS = {"step": "has_position", "microbatch": "has_position"}


class Struct:
    """Options of a call: defaults, then what was given by keyword. An option that counts only where
    another one says so, as seed does by has_seed, counts when it is given. `pointer` is valid as
    long as this object."""

    def __init__(self, name: str, given: Mapping[str, Any], library: Any = core) -> None:
        self.pointer = ffi.new(name + "*")
        self._kept: list[Any] = []
        init = getattr(library, name.removesuffix("_t") + "_init", None)
        if init is not None:
            errors.check(init(self.pointer, ffi.sizeof(name)))
        else:
            self.pointer.struct_size = ffi.sizeof(name)
        fields = dict(ffi.typeof(name).fields)
        for key, value in given.items():
            if key not in fields or key == "struct_size":
                known = ", ".join(f for f in fields if f not in ("struct_size", "reserved"))
                raise TypeError(f"{name}: no option {key!r}; there are {known}")
            flag = _FLAGS.get(key, "has_" + key)
            if flag in fields and flag not in given:
                setattr(self.pointer, flag, 1)
            try:
                setattr(self.pointer, key, self._convert(name, key, fields[key].type, value))
            except (TypeError, OverflowError) as error:
                raise errors.InvalidArgument(f"{name}: {key}: {error}") from None

    def _convert(self, struct: str, key: str, kind: Any, value: Any) -> Any:
        enum = FIELDS.get(struct, {}).get(key)
        if enum is Toggle and (value is None or isinstance(value, bool)):
            return {None: Toggle.DEFAULT, True: Toggle.ON, False: Toggle.OFF}[value]
        if enum is not None:
            return to_enum(enum, value)
        if kind.kind not in ("pointer", "function"):
            return whole(value) if kind.kind == "primitive" and kind.cname != "double" else value
        if value is None:
            return ffi.NULL
        if isinstance(value, str):
            self._kept.append(ffi.new("char[]", c_text(value)))
            return self._kept[-1]
        if isinstance(value, (Handle, Struct)):
            self._kept.append(value)
            return value.pointer
        if kind.cname == "double *":
            self._kept.append(ffi.new("double[]", list(value)))
            return self._kept[-1]
        if kind.cname == "char * *":
            return strings(list(value), self._kept)
        return value


def read_struct(kind: Any, struct: Any) -> Any:
    """A report: a NamedTuple of the struct's fields of the same names."""
    enums = FIELDS.get(ffi.typeof(struct[0]).cname.removeprefix("struct "), {})
    values = []
    for field in kind._fields:
        value = getattr(struct, field)
        if isinstance(value, ffi.CData):
            value = text(value)
        values.append(enums[field](value) if field in enums else value)
    return kind._make(values)


def report(name: str) -> Any:
    """An empty struct for a call to fill."""
    return ffi.new(name + "*", {"struct_size": ffi.sizeof(name)})


def get(kind: str, function: Callable[..., int], *arguments: Any) -> Any:
    """The one output of a call, of a pointer's kind."""
    out = ffi.new(kind)
    status = function(*arguments, out)
    if status != 0:
        raise errors.failure(status)
    return out[0]


def fill(function: Callable[..., int], kind: str, *arguments: Any) -> list[int]:
    """All values of a getter that takes room and gives the number there are."""
    count = ffi.new("size_t*")
    errors.check(function(*arguments, ffi.NULL, 0, count))
    room = ffi.new(f"{kind}[]", count[0] or 1)
    errors.check(function(*arguments, room, count[0], count))
    return list(room[0:count[0]])


class _UserData:
    """Python objects behind callbacks' user_data, held until the library says it is done. Without
    a lock: the collector may drop one while another is being held, on the same thread."""

    def __init__(self) -> None:
        self._held: dict[int, Any] = {}

    @contextmanager
    def given(self, value: object) -> Iterator[Any]:
        """The user_data for a call, which the library has from then on unless the call fails."""
        handle = ffi.new_handle(value)
        self._held[int(ffi.cast("intptr_t", handle))] = handle
        try:
            yield handle
        except Exception:
            self.drop(handle)
            raise
        # A Ctrl-C may have come after the library took it: then it stays.

    def drop(self, pointer: Any) -> None:
        self._held.pop(int(ffi.cast("intptr_t", pointer)), None)

    def count(self) -> int:
        return len(self._held)


user_data = _UserData()


@errors.callback("nxd_destroy_fn")
def drop_user_data(pointer: Any) -> None:
    """The destroy of every user_data."""
    user_data.drop(pointer)


def pointers(kind: str, handles: Iterable[Any]) -> Any:
    """An array of handles, NULL where there is None."""
    values = [ffi.NULL if h is None else h.pointer for h in handles]
    return ffi.new(f"{kind}*[]", values or 1)
