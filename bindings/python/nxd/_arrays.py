"""Arrays that Python owns as the library takes them: an address, a shape, an element type.

An array is whatever has the buffer protocol, such as numpy's, or DLPack, such as torch's and JAX's,
on the CPU, in C order or where a call says so in any strides; or an nxd.Tensor. 16-bit words stand
for bf16 where dtype says so, and so do those of numpy arrays of ml_dtypes.bfloat16.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from nxd import _bf16, _dlpack
from nxd._handle import to_enum
from nxd.enums import DType
from nxd.errors import InvalidArgument, Unsupported
from nxd.raw import ffi

SIZES = {DType.F32: 4, DType.F64: 8, DType.BF16: 2, DType.F16: 2, DType.I32: 4, DType.I64: 8,
         DType.U8: 1, DType.I8: 1, DType.I16: 2, DType.BOOL: 1}
FORMATS = {DType.F32: "f", DType.F64: "d", DType.BF16: "H", DType.F16: "e", DType.I32: "i",
           DType.I64: "q", DType.U8: "B", DType.I8: "b", DType.I16: "h", DType.BOOL: "?"}
_OF_FORMAT = {"f": DType.F32, "d": DType.F64, "e": DType.F16, "i": DType.I32, "l": DType.I64,
              "q": DType.I64, "B": DType.U8, "b": DType.I8, "h": DType.I16, "?": DType.BOOL}
# Elements that a caller may name as others of their size: words as 16-bit floats, numbers without a
# sign, bytes; two opaque bytes, as which numpy loads bf16 from its files.
_STANDS_FOR = {"H": (DType.BF16, DType.F16, DType.I16), "h": (DType.BF16, DType.F16),
               "I": (DType.I32,), "L": (DType.I64,), "Q": (DType.I64,),
               "B": (DType.I8, DType.BOOL), "b": (DType.U8, DType.BOOL), "c": (DType.U8, DType.I8),
               "?": (DType.U8, DType.I8), "2x": (DType.BF16,)}
_CODES = {DType.F32: (2, 32), DType.F64: (2, 64), DType.BF16: (4, 16), DType.F16: (2, 16),
          DType.I32: (0, 32), DType.I64: (0, 64), DType.U8: (1, 8), DType.I8: (0, 8),
          DType.I16: (0, 16), DType.BOOL: (6, 8)}
_OF_CODE = {code: dtype for dtype, code in _CODES.items()}


class Buffer:
    """Memory of an array, which it keeps alive."""

    __slots__ = ("pointer", "shape", "dtype", "count", "kept", "strides", "mark")

    def __init__(self, pointer: Any, shape: Sequence[int], dtype: DType, kept: object,
                 strides: Sequence[int] | None = None) -> None:
        self.pointer, self.shape, self.dtype, self.kept = pointer, tuple(shape), dtype, kept
        # In elements; None: C order.
        self.strides = strides
        self.count = math.prod(self.shape)
        # Tells an nxd.Tensor that a call has written its memory; None: of one that is only read,
        # and of other arrays.
        self.mark: Callable[[], None] | None = None


def mark_written(*buffers: Buffer | None) -> None:
    """After a call, or the start of one that goes on, that writes buffers: masters and graphs that
    nxd.Tensors have do not go with their memory any more."""
    for written in buffers:
        if written is not None and written.mark is not None:
            written.mark()


def dtype_of(dltype: Any) -> DType:
    """The element type that DLPack describes."""
    found = _OF_CODE.get((dltype.code, dltype.bits))
    if found is None or dltype.lanes != 1:
        raise Unsupported(f"elements of DLPack code {dltype.code}, {dltype.bits} bits and "
                          f"{dltype.lanes} lanes")
    return found


def _view(array: Any) -> memoryview | None:
    """The array by the buffer protocol; None for one that does not have it, or not for its elements:
    a format for bf16 does not exist."""
    try:
        return memoryview(array)
    except (TypeError, BufferError, ValueError):
        return None


def _element(view: memoryview, name: str, dtype: DType | None) -> DType:
    """The element type of a buffer: its own, or the one given where its elements may stand for it.
    Elements of another byte order than this machine's have none."""
    letter = view.format.lstrip("@=<")
    found = _OF_FORMAT.get(letter)
    if dtype is not None and dtype in _STANDS_FOR.get(letter, ()):
        found = dtype
    if found is None or view.itemsize != SIZES[found] or dtype is not None and found is not dtype:
        raise InvalidArgument(f"{name}: elements of format {view.format!r}"
                              + (f", expected {dtype.name.lower()}" if dtype is not None else
                                 " have no DType of their own"))
    return found


def _from_buffer(array: Any, view: memoryview, name: str, dtype: DType | None,
                 writable: bool) -> Buffer:
    found = _element(view, name, dtype)
    if not view.c_contiguous:
        raise InvalidArgument(f"{name}: the array of shape {view.shape} is not in C order")
    if writable and view.readonly:
        raise InvalidArgument(f"{name}: the array is read-only, and would be written")
    memory = ffi.from_buffer("char[]", array) if view.nbytes else None
    return Buffer(ffi.cast("void*", memory) if memory is not None else ffi.NULL, view.shape or (),
                  found, memory)


def is_negated(array: Any) -> bool:
    """True for a view of torch's whose values are those of its memory with the other sign, which
    DLPack does not tell."""
    negated = getattr(array, "is_neg", None)
    return negated is not None and hasattr(array, "resolve_neg") and negated()


def _capsule(array: Any, name: str, writable: bool) -> Any:
    """The capsule that the array's owner exports. torch exports no tensor that requires a gradient, such as a
    Parameter; its memory is that of the detached one."""
    if getattr(array, "requires_grad", False) and hasattr(array, "detach"):
        array = array.detach()
    if is_negated(array):
        if writable:
            raise InvalidArgument(f"{name}: the memory of the view has the other sign, and would "
                                  "be written: give resolve_neg() of it")
        array = array.resolve_neg()
    try:
        return _dlpack.produce(array)
    except (TypeError, BufferError, ValueError, RuntimeError) as error:
        raise InvalidArgument(f"{name}: {type(array).__name__} does not export its memory: "
                              f"{error}") from error


def _from_dlpack(array: Any, name: str, dtype: DType | None, writable: bool,
                 any_strides: bool = False) -> Buffer:
    capsule = _capsule(array, name, writable)
    tensor = _dlpack.borrow(capsule)
    if writable and _dlpack.is_read_only(capsule, array):
        raise InvalidArgument(f"{name}: the array is read-only, and would be written")
    shape = list(tensor.shape[0:tensor.ndim])
    step = 1
    strides: list[int] = []
    for size in reversed(shape):
        strides.insert(0, step)
        step *= size
    actual = tensor.strides[0:tensor.ndim] if tensor.strides != ffi.NULL else strides
    # An array without elements has no order, whatever strides its owner tells.
    strided = 0 not in shape and any(n > 1 and a != s for n, a, s in zip(shape, actual, strides))
    if strided and not any_strides:
        raise InvalidArgument(f"{name}: the array of shape {tuple(shape)} is not in C order")
    found = dtype_of(tensor.dtype)
    if dtype is not None and found is not dtype:
        # Some frameworks have no words without a sign.
        if found is DType.BF16 or dtype not in _STANDS_FOR.get(FORMATS[found], ()):
            raise InvalidArgument(f"{name}: expected {dtype.name.lower()}, got "
                                  f"{found.name.lower()}")
        found = dtype
    address = ffi.cast("char*", tensor.data) + tensor.byte_offset
    memory = Buffer(ffi.cast("void*", address), shape, found, capsule,
                    list(actual) if strided else None)
    marker = getattr(type(array), "_marker", None) if writable else None
    if marker is not None:
        memory.mark = marker(array)
    return memory


class _PyBuffer(ctypes.Structure):
    """Py_buffer of Python's C interface."""

    _fields_ = [("buf", ctypes.c_void_p), ("obj", ctypes.c_void_p), ("len", ctypes.c_ssize_t),
                ("itemsize", ctypes.c_ssize_t), ("readonly", ctypes.c_int), ("ndim", ctypes.c_int),
                ("format", ctypes.c_char_p), ("shape", ctypes.c_void_p),
                ("strides", ctypes.c_void_p), ("suboffsets", ctypes.c_void_p),
                ("internal", ctypes.c_void_p)]


# Functions by subscript are this module's own: their argument types change nobody else's.
_get_buffer = ctypes.pythonapi["PyObject_GetBuffer"]
_get_buffer.argtypes = [ctypes.py_object, ctypes.POINTER(_PyBuffer), ctypes.c_int]
_release_buffer = ctypes.pythonapi["PyBuffer_Release"]
_release_buffer.argtypes, _release_buffer.restype = [ctypes.POINTER(_PyBuffer)], None
_FULL_RO = 0x11c  # PyBUF_FULL_RO


def _address(view: memoryview) -> int:
    """Where a view's first element is, in any strides. It stays there as long as the view."""
    described = _PyBuffer()
    _get_buffer(view, described, _FULL_RO)
    try:
        return described.buf or 0
    finally:
        _release_buffer(described)


def start(array: Any) -> Any:
    """Where the memory of an array begins, though it have no elements."""
    memory = strided(array, "array", writable=True)
    if memory.count:
        return memory.pointer
    words = _bf16.words_of(array)
    view = _view(array if words is None else words)
    return memory.pointer if view is None else ffi.cast("void*", _address(view))


def _from_strides(view: memoryview, name: str, dtype: DType | None, writable: bool) -> Buffer:
    """The memory of a view in any strides, which DLPack would not tell of arrays that are
    read-only."""
    found = _element(view, name, dtype)
    strides = view.strides or ()
    if view.suboffsets or any(stride % SIZES[found] for stride in strides):
        raise InvalidArgument(f"{name}: elements of {SIZES[found]} bytes in strides of {strides} "
                              "bytes" + (" by way of pointers" if view.suboffsets else ""))
    if writable and view.readonly:
        raise InvalidArgument(f"{name}: the array is read-only, and would be written")
    return Buffer(ffi.cast("void*", _address(view)), view.shape or (), found, view,
                  [stride // SIZES[found] for stride in strides])


def _refuse(array: Any, name: str) -> NoReturn:
    if _dlpack.is_capsule(array):
        raise InvalidArgument(f"{name}: got a DLPack capsule: give the object itself, which has "
                              "__dlpack__")
    raise InvalidArgument(f"{name}: expected an array with the buffer protocol or DLPack, got "
                          f"{type(array).__name__}")


def _is_foreign(array: Any, view: memoryview) -> bool:
    """True for elements that a buffer has no format for and DLPack may have: some frameworks write
    "bfloat16". numpy's DLPack has no more than its buffers."""
    letter = view.format.lstrip("@=<")
    return (letter not in _OF_FORMAT and letter not in _STANDS_FOR and hasattr(array, "__dlpack__")
            and not hasattr(array, "__array_interface__"))


def _memory(array: Any, name: str, wanted: DType | None, writable: bool, any_strides: bool,
            words_are_bf16: bool) -> Buffer:
    view = _view(array)
    if view is None or view.format == "2x":
        words = _bf16.words_of(array)
        if words is not None:
            if wanted is not None and wanted is not DType.BF16:
                raise InvalidArgument(f"{name}: expected {wanted.name.lower()}, got bf16")
            array, view, wanted = words, memoryview(words), DType.BF16
    if view is None:
        if not hasattr(array, "__dlpack__"):
            _refuse(array, name)
        return _from_dlpack(array, name, wanted, writable, any_strides)
    if _is_foreign(array, view):
        if writable and view.readonly:  # which an older capsule cannot say
            raise InvalidArgument(f"{name}: the array is read-only, and would be written")
        return _from_dlpack(array, name, wanted, writable, any_strides)
    if words_are_bf16 and view.format.lstrip("@=<") in ("H", "2x"):
        wanted = DType.BF16
    if any_strides and not view.c_contiguous:
        return _from_strides(view, name, wanted, writable)
    return _from_buffer(array, view, name, wanted, writable)


def buffer(array: Any, name: str = "array", dtype: DType | str | None = None,
           writable: bool = True, any_strides: bool = False) -> Buffer:
    """The memory of an array, in place; in C order, or in any strides."""
    wanted = to_enum(DType, dtype) if dtype is not None else None
    return _memory(array, name, wanted, writable, any_strides, words_are_bf16=False)


def strided(array: Any, name: str, writable: bool) -> Buffer:
    """The memory of an array in place, in any strides. 16-bit words are bf16."""
    return _memory(array, name, None, writable, any_strides=True, words_are_bf16=True)


def dltensor(memory: Buffer) -> tuple[Any, Any]:
    """A borrowed DLTensor over a buffer, and what it needs to live."""
    shape = ffi.new("int64_t[]", list(memory.shape) or 1)
    code, bits = _CODES[memory.dtype]
    strides = ffi.NULL if memory.strides is None else ffi.new("int64_t[]", memory.strides)
    tensor = ffi.new("DLTensor*", {
        "data": memory.pointer, "device": {"device_type": 1}, "ndim": len(memory.shape),
        "dtype": {"code": code, "bits": bits, "lanes": 1}, "shape": shape, "strides": strides})
    return tensor, (shape, strides, tensor, memory)


def over_memory(address: Any, shape: Sequence[int], dtype: DType, writable: bool = True) -> Any:
    """A numpy array over memory of the library's, or without numpy a memoryview. bf16 comes as
    _bf16 has it, and in a memoryview as 16-bit words. It does not keep the memory alive."""
    size = max(math.prod(shape) * SIZES[dtype], 1)
    view = memoryview(ffi.buffer(address, size)).cast("B")
    if not writable:
        view = view.toreadonly()
    try:
        import numpy
    except ImportError:
        return view[:size].cast(FORMATS[dtype], list(shape)) if 0 not in shape else view[:0]
    array = numpy.frombuffer(view, FORMATS[dtype], math.prod(shape)).reshape(shape)
    return _bf16.of_words(array) if dtype is DType.BF16 else array


def over_dltensor(tensor: Any, writable: bool = True) -> Any:
    """The same over a DLTensor in C order; None for NULL."""
    if tensor == ffi.NULL:
        return None
    address = ffi.cast("char*", tensor.data) + tensor.byte_offset
    return over_memory(address, list(tensor.shape[0:tensor.ndim]), dtype_of(tensor.dtype), writable)
