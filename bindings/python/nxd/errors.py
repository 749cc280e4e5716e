"""Failures of calls as exceptions, and exceptions of callbacks on their way through the library."""

from __future__ import annotations

import _thread
import functools
import threading
import traceback
from collections.abc import Callable
from enum import IntEnum
from types import TracebackType
from typing import Any

from nxd._raw import ErrorInfo
from nxd.enums import ParameterState, Status
from nxd.raw import core, ffi


class NxdError(Exception):
    """A call that failed. `info` says of which rank, group, operation and step."""

    status = Status.INTERNAL
    info: ErrorInfo

    def __init__(self, message: str, info: ErrorInfo | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.info = info or ErrorInfo(self.status, -1, 0, "", "", -1, ParameterState.NONE)


class InvalidArgument(NxdError, ValueError):
    status = Status.INVALID_ARGUMENT


class InvalidState(NxdError, RuntimeError):
    status = Status.INVALID_STATE


class Unsupported(NxdError, NotImplementedError):
    status = Status.UNSUPPORTED


class OutOfMemory(NxdError, MemoryError):
    status = Status.OUT_OF_MEMORY


class Timeout(NxdError, TimeoutError):
    status = Status.TIMEOUT


class PeerLost(NxdError, ConnectionError):
    status = Status.PEER_LOST


class Aborted(NxdError):
    status = Status.ABORTED


class InputOutput(NxdError, OSError):
    status = Status.IO


class Corrupt(NxdError, ValueError):
    status = Status.CORRUPT


class Internal(NxdError):
    status = Status.INTERNAL


class AbiMismatch(NxdError):
    status = Status.ABI_MISMATCH


class UserError(NxdError):
    """A callback failed, on this rank or another; one of this thread raises its own exception."""

    status = Status.USER


_CLASSES: dict[int, type[NxdError]] = {
    c.status: c for c in (InvalidArgument, InvalidState, Unsupported, OutOfMemory, Timeout,
                          PeerLost, Aborted, InputOutput, Corrupt, Internal, AbiMismatch,
                          UserError)}


class _Kept(threading.local):
    """The exception that a callback on this thread has raised, until the call it was in returns."""

    exception: BaseException | None = None


_kept = _Kept()


def keep_exception(kind: Any, value: BaseException | None, trace: TracebackType | None) -> int:
    """The onerror of callbacks that give a status, which it returns. An exception of a signal's
    handler on the way into one comes here, too."""
    _kept.exception = value
    return _tell_exception(kind, value, trace)


def _tell_exception(kind: Any, value: BaseException | None, trace: TracebackType | None) -> int:
    """The onerror of callbacks on the library's own threads, which no call of Python's waits on."""
    if value is None:
        return Status.USER
    status = status_of(value)
    core.nxd_set_last_error(status, _line(value))
    return status


def status_of(value: BaseException) -> int:
    """The status that the library gets of a callback that raises."""
    if isinstance(value, NxdError) and type(value) is not NxdError:
        return value.status
    return Status.USER


def _line(value: BaseException) -> bytes:
    """The text that peers get of an exception; one whose own text fails is named by its type. That
    of a call that failed is the library's own, so that it is known for the same failure."""
    try:
        line = value.message if isinstance(value, NxdError) else \
            traceback.format_exception_only(type(value), value)[-1].strip()
    except Exception:
        line = type(value).__name__
    return line.replace("\0", "").encode("utf-8", "replace")


def _print_exception(kind: Any, value: BaseException | None, trace: Any) -> None:
    """The onerror where the library takes no status: nobody to raise it to. Ctrl-C comes again."""
    if isinstance(value, KeyboardInterrupt):
        _thread.interrupt_main()
    else:
        traceback.print_exception(value)


def callback(name: str, apart: bool = False) -> Callable[[Callable[..., None]], Any]:
    """Makes a function one that the library calls, of the type that the header gives that name, or
    of that field, as "struct.field": of user_data, a handle of what Python gave it.
    When it raises, the library gets the status of a call that failed, or USER, and the outermost
    call raises the same exception. One that runs apart is only called by the library's threads."""
    def make(function: Callable[..., None]) -> Any:
        owner, _, field = name.partition(".")
        signature = ffi.typeof(owner)
        if field:
            signature = dict(signature.fields)[field].type
        if signature.result.kind == "void":
            return ffi.callback(signature, function, onerror=_print_exception)

        @functools.wraps(function)
        def call(*arguments: Any) -> int:
            # Calls that fail within are not those that an earlier callback has failed in.
            earlier, _kept.exception = _kept.exception, None
            function(*arguments)
            _kept.exception = earlier
            return 0

        return ffi.callback(signature, call, error=Status.USER,
                            onerror=_tell_exception if apart else keep_exception)

    return make


def _known(kind: type[IntEnum], value: int) -> Any:
    """A member; INVALID, or the number where there is no such member, for one that a later library
    has: no error gets lost for that."""
    try:
        return kind(value)
    except ValueError:
        return kind.__members__.get("INVALID", value)


def info_from(struct: Any) -> ErrorInfo:
    """An nxd_error_info_t, with copies of its strings."""
    return ErrorInfo(
        _known(Status, struct.status), struct.root_rank, struct.sequence,
        ffi.string(struct.group).decode("utf-8", "replace"),
        ffi.string(struct.operation).decode("utf-8", "replace"),
        struct.step, _known(ParameterState, struct.parameters))


def failure(status: int) -> BaseException:
    """The exception for a status that a call of this thread has just returned."""
    kept, _kept.exception = _kept.exception, None
    if kept is not None and status == status_of(kept):
        return kept
    message = ffi.string(core.nxd_last_error()).decode("utf-8", "replace")
    info = ffi.new("nxd_error_info_t*", {"struct_size": ffi.sizeof("nxd_error_info_t")})
    core.nxd_last_error_info(info)
    # A status that is not this thread's last error has no message to go with it.
    if info.status != status:
        name = ffi.string(core.nxd_status_string(status)).decode()
        return _CLASSES.get(status, NxdError)(name)
    error = _CLASSES.get(status, NxdError)(message, info_from(info))
    error.__context__ = kept
    return error


def raise_kept() -> None:
    """Raises what a callback has raised in a call that gives no status: Ctrl-C, when it waited."""
    kept, _kept.exception = _kept.exception, None
    if kept is not None:
        raise kept


def look(function: Callable[..., int], *arguments: Any) -> int:
    """The status of a call that may end well though a callback has failed in it, such as one of a
    store of Python's: nothing is kept of that then, but Ctrl-C."""
    earlier = _kept.exception
    status = function(*arguments)
    if status == 0 and isinstance(_kept.exception, Exception):
        _kept.exception = earlier
    return status


def check(status: int) -> None:
    """Raises what a status other than OK stands for."""
    if status != 0:
        raise failure(status)
