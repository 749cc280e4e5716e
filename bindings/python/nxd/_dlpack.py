"""DLPack capsules: tensors of other libraries on their way in, and the library's on their way out.

The capsule's destructor is C: one in Python would run between a consumer's refusal and the
exception it raises, and spoil both.
"""

from __future__ import annotations

import ctypes
from typing import Any

from nxd.errors import InvalidArgument, NxdError
from nxd.raw import core, ffi

CPU = (1, 0)
# A capsule keeps the address of its name, and may outlive this module: these are never freed.
_NAME, _VERSIONED = b"dltensor", b"dltensor_versioned"
_USED = {_NAME: b"used_dltensor", _VERSIONED: b"used_dltensor_versioned"}


def _function(name: str, result: Any, *arguments: Any) -> Any:
    """A function of Python's C interface. By subscript it is this module's own: attributes are
    shared with other libraries, which say for themselves what types its arguments and its result
    have."""
    function = ctypes.pythonapi[name]
    function.restype, function.argtypes = result, arguments
    return function


_new = _function("PyCapsule_New", ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p,
                 ctypes.c_void_p)
_is_valid = _function("PyCapsule_IsValid", ctypes.c_int, ctypes.py_object, ctypes.c_char_p)
_get_pointer = _function("PyCapsule_GetPointer", ctypes.c_void_p, ctypes.py_object,
                         ctypes.c_char_p)
_set_name = _function("PyCapsule_SetName", ctypes.c_int, ctypes.py_object, ctypes.c_char_p)
_keep = _function("Py_IncRef", None, ctypes.py_object)
for _name in (*_USED, *_USED.values()):
    _keep(_name)

_destructor = int(ffi.cast("intptr_t", core.nxd_python_capsule_destroy))


def capsule(managed: Any, versioned: bool = False) -> Any:
    """A capsule that owns a managed tensor of the library's."""
    address = int(ffi.cast("intptr_t", managed))
    return _new(address, _VERSIONED if versioned else _NAME, _destructor)


def produce(source: Any) -> Any:
    """The capsule that a producer makes, versioned if it can."""
    try:
        return source.__dlpack__(max_version=(1, 0))
    except TypeError:
        return source.__dlpack__()


def is_capsule(given: Any) -> bool:
    """True for a capsule that holds a tensor, or did."""
    names = (*_USED, *_USED.values())
    return any(_is_valid(given, name) for name in names)


def _open(held: Any) -> tuple[Any, bytes]:
    for name, kind in ((_NAME, "DLManagedTensor*"),
                       (_VERSIONED, "struct DLManagedTensorVersioned*")):
        if _is_valid(held, name):
            return ffi.cast(kind, _get_pointer(held, name)), name
    raise InvalidArgument("expected a DLPack capsule that nobody has consumed yet")


def borrow(held: Any) -> Any:
    """The DLTensor in a capsule, valid as long as the capsule; on the CPU."""
    managed, _ = _open(held)
    device = managed.dl_tensor.device.device_type
    if device != CPU[0]:
        raise InvalidArgument(f"expected a tensor on the CPU, got DLPack's device type {device}")
    return managed.dl_tensor


def is_read_only(held: Any, owner: Any) -> bool:
    """True if the producer says that its memory must not be written. Older capsules cannot: then
    the owner's buffers count, or the array that it gives numpy, such as JAX's of bf16, whose arrays
    never change."""
    managed, name = _open(held)
    if name == _VERSIONED:
        return bool(managed.flags & 1)
    if _lends_to_readers_only(owner):
        return True
    try:
        return not owner.__array__().flags.writeable
    except Exception:  # it gives none, or none of its elements
        return False


def _lends_to_readers_only(owner: Any) -> bool:
    """True for a buffer that is there to be read and refused to who would write, such as that of
    TensorFlow's tensors, of elements without a format too; numpy gets a copy of these."""
    try:
        with ffi.from_buffer(owner):
            pass
    except Exception:  # it has none, or not in C order
        return False
    try:
        with ffi.from_buffer(owner, require_writable=True):
            return False
    except (BufferError, ValueError):
        return True


def consume(held: Any, take: Any, take_versioned: Any) -> None:
    """Hands what is in a capsule to a call that takes it over; if that raises, the capsule has it
    still."""
    managed, name = _open(held)
    # In this order an interruption leaks the tensor, and in the other one it frees it twice.
    _set_name(held, _USED[name])
    try:
        (take if name == _NAME else take_versioned)(managed)
    except NxdError:
        _set_name(held, name)
        raise
