"""Arrays that Python owns as the library takes them: an address, a shape, an element type.

An array is whatever has the buffer protocol, such as numpy's, or DLPack, such as torch's and JAX's,
on the CPU and in C order; or an nxd.Tensor. 16-bit words stand for bf16 where dtype says so, and
so do those of numpy arrays of ml_dtypes.bfloat16.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from typing import Any

from nxd import _dlpack
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
# sign, bytes.
_STANDS_FOR = {"H": (DType.BF16, DType.F16, DType.I16), "h": (DType.BF16, DType.F16),
               "I": (DType.I32,), "L": (DType.I64,), "Q": (DType.I64,),
               "B": (DType.I8, DType.BOOL), "b": (DType.U8, DType.BOOL), "c": (DType.U8, DType.I8),
               "?": (DType.U8, DType.I8)}
_CODES = {DType.F32: (2, 32), DType.F64: (2, 64), DType.BF16: (4, 16), DType.F16: (2, 16),
          DType.I32: (0, 32), DType.I64: (0, 64), DType.U8: (1, 8), DType.I8: (0, 8),
          DType.I16: (0, 16), DType.BOOL: (6, 8)}
_OF_CODE = {code: dtype for dtype, code in _CODES.items()}


class Buffer:
    """Memory of an array, which it keeps alive."""

    __slots__ = ("pointer", "shape", "dtype", "count", "kept", "strides")

    def __init__(self, pointer: Any, shape: Sequence[int], dtype: DType, kept: object,
                 strides: Sequence[int] | None = None) -> None:
        self.pointer, self.shape, self.dtype, self.kept = pointer, tuple(shape), dtype, kept
        # In elements; None: C order.
        self.strides = strides
        self.count = math.prod(self.shape)


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


def _words(array: Any) -> Any:
    """The 16-bit words of a numpy array of bf16, which is what ml_dtypes makes; None for others."""
    numpy = sys.modules.get("numpy")
    if numpy is None or not isinstance(array, numpy.ndarray) or array.dtype.name != "bfloat16":
        return None
    return array.view(numpy.uint16)


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


def _capsule(array: Any, name: str) -> Any:
    """The capsule that the array's owner exports. torch exports no tensor that requires a gradient, such as a
    Parameter; its memory is that of the detached one."""
    if getattr(array, "requires_grad", False) and hasattr(array, "detach"):
        array = array.detach()
    try:
        return _dlpack.produce(array)
    except (TypeError, BufferError, ValueError, RuntimeError) as error:
        raise InvalidArgument(f"{name}: {type(array).__name__} does not export its memory: "
                              f"{error}") from error


def _from_dlpack(array: Any, name: str, dtype: DType | None, writable: bool,
                 any_strides: bool = False) -> Buffer:
    capsule = _capsule(array, name)
    if writable and _dlpack.is_read_only(capsule):
        raise InvalidArgument(f"{name}: the array is read-only, and would be written")
    tensor = _dlpack.borrow(capsule)
    shape = list(tensor.shape[0:tensor.ndim])
    step = 1
    strides: list[int] = []
    for size in reversed(shape):
        strides.insert(0, step)
        step *= size
    actual = tensor.strides[0:tensor.ndim] if tensor.strides != ffi.NULL else strides
    strided = any(n > 1 and a != s for n, a, s in zip(shape, actual, strides))
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
    return Buffer(ffi.cast("void*", address), shape, found, capsule,
                  list(actual) if strided else None)


def _from_interface(array: Any, view: memoryview, name: str, dtype: DType | None,
                    writable: bool) -> Buffer:
    """The memory of an array in any strides, which numpy's interface tells: DLPack has no place for
    arrays that are read-only."""
    found = _element(view, name, dtype)
    strides = view.strides or ()
    if any(stride % SIZES[found] for stride in strides):
        raise InvalidArgument(f"{name}: elements of {SIZES[found]} bytes in strides of {strides} "
                              "bytes")
    if writable and view.readonly:
        raise InvalidArgument(f"{name}: the array is read-only, and would be written")
    address = ffi.cast("void*", array.__array_interface__["data"][0])
    return Buffer(address, view.shape or (), found, (array, view),
                  [stride // SIZES[found] for stride in strides])


def buffer(array: Any, name: str = "array", dtype: DType | str | None = None,
           writable: bool = True, any_strides: bool = False) -> Buffer:
    """The memory of an array, in place; in C order, or in any strides."""
    wanted = to_enum(DType, dtype) if dtype is not None else None
    view = _view(array)
    if view is None:
        words = _words(array)
        if words is not None:
            if wanted is not None and wanted is not DType.BF16:
                raise InvalidArgument(f"{name}: expected {wanted.name.lower()}, got bf16")
            array, view, wanted = words, memoryview(words), DType.BF16
    if view is None:
        if not hasattr(array, "__dlpack__"):
            raise InvalidArgument(f"{name}: expected an array with the buffer protocol or DLPack, "
                                  f"got {type(array).__name__}")
        return _from_dlpack(array, name, wanted, writable, any_strides)
    if any_strides and not view.c_contiguous and hasattr(array, "__array_interface__"):
        return _from_interface(array, view, name, wanted, writable)
    return _from_buffer(array, view, name, wanted, writable)


def strided(array: Any, name: str, writable: bool) -> Buffer:
    """The memory of an array in place, in any strides that its owner tells, by numpy's interface or
    DLPack. 16-bit words are bf16."""
    view = _view(array)
    if view is None:
        words = _words(array)
        array = array if words is None else words
        view = _view(array)
    if view is None:
        if not hasattr(array, "__dlpack__"):
            raise InvalidArgument(f"{name}: expected an array with the buffer protocol or DLPack, "
                                  f"got {type(array).__name__}")
        return _from_dlpack(array, name, None, writable, any_strides=True)
    dtype = DType.BF16 if view.format.lstrip("@=<") == "H" else None
    if view.c_contiguous or not hasattr(array, "__array_interface__"):
        return _from_buffer(array, view, name, dtype, writable)
    return _from_interface(array, view, name, dtype, writable)


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
    """A numpy array over memory of the library's, or without numpy a memoryview; bf16 as 16-bit
    words. It does not keep the memory alive."""
    size = max(math.prod(shape) * SIZES[dtype], 1)
    view = memoryview(ffi.buffer(address, size)).cast("B")
    if not writable:
        view = view.toreadonly()
    try:
        import numpy
    except ImportError:
        return view[:size].cast(FORMATS[dtype], list(shape)) if 0 not in shape else view[:0]
    array = numpy.frombuffer(view, FORMATS[dtype], math.prod(shape))
    return array.reshape(shape)


def over_dltensor(tensor: Any, writable: bool = True) -> Any:
    """The same over a DLTensor in C order; None for NULL."""
    if tensor == ffi.NULL:
        return None
    address = ffi.cast("char*", tensor.data) + tensor.byte_offset
    return over_memory(address, list(tensor.shape[0:tensor.ndim]), dtype_of(tensor.dtype), writable)
