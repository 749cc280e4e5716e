"""Tensors of the library: memory shared with numpy and torch, arithmetic, gradients."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from numbers import Number
from typing import Any, cast

from nxd import _arrays, _dlpack
from nxd._handle import EngineHandle, fill, get, integers, to_enum, whole
from nxd.enums import Device, DType
from nxd.errors import InvalidArgument, Unsupported, check
from nxd.raw import engine, ffi


class _Shared:
    """A tensor's memory as numpy's array interface; numpy keeps it, and it the tensor."""

    __slots__ = ("__array_interface__", "tensor")

    def __init__(self, tensor: Tensor) -> None:
        item = _arrays.SIZES[tensor.dtype]
        kind = {DType.BOOL: "|b1", DType.U8: "|u1"}.get(tensor.dtype)
        if kind is None:
            kind = f"<{'f' if tensor.dtype in (DType.F32, DType.F64, DType.F16) else 'i'}{item}"
        self.tensor = tensor
        self.__array_interface__ = {
            "version": 3, "shape": tensor.shape, "typestr": kind,
            "data": (int(ffi.cast("intptr_t", tensor.data_pointer)), False),
            "strides": tuple(item * stride for stride in tensor.strides)}


class Tensor(EngineHandle):
    """A handle on a tensor. Several may share memory. Operators are those of ATen; see nxd.ops."""

    __slots__ = ()
    _destroy = "nxd_tensor_destroy"
    # numpy leaves operators with its arrays and numbers on the left to this class.
    __array_ufunc__ = None

    @classmethod
    def retained(cls, borrowed: Any) -> Tensor:
        """A handle of its own on a tensor that somebody else has."""
        return cls(get("nxd_tensor_t**", engine.nxd_tensor_retain, borrowed))

    # Properties.

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(fill(engine.nxd_tensor_get_shape, "int64_t", self.pointer))

    @property
    def strides(self) -> tuple[int, ...]:
        """In elements."""
        return tuple(fill(engine.nxd_tensor_get_strides, "int64_t", self.pointer))

    @property
    def ndim(self) -> int:
        return get("int32_t*", engine.nxd_tensor_get_ndim, self.pointer)

    @property
    def size(self) -> int:
        """Number of elements."""
        return get("int64_t*", engine.nxd_tensor_get_element_count, self.pointer)

    @property
    def dtype(self) -> DType:
        return DType(get("nxd_dtype_t*", engine.nxd_tensor_get_dtype, self.pointer))

    @property
    def device(self) -> Device:
        return Device(get("nxd_device_t*", engine.nxd_tensor_get_device, self.pointer))

    def to_device(self, device: Device | str) -> Tensor:
        """The same values on a device; the tensor itself if it is there already."""
        return Tensor(get("nxd_tensor_t**", engine.nxd_tensor_to_device, self.pointer,
                          to_enum(Device, device)))

    def __repr__(self) -> str:
        if self.closed:
            return "<closed nxd.Tensor>"
        try:
            kind = self.dtype.name.lower()
        except Unsupported:  # complex or quantized elements, which operators alone take and give
            kind = "other"
        return f"<nxd.Tensor {kind}{list(self.shape)}>"

    # Its elements.

    @property
    def data_pointer(self) -> Any:
        """First element in memory."""
        return get("void**", engine.nxd_tensor_get_data, self.pointer)

    def item(self) -> float:
        """Value of a tensor of one element."""
        return get("double*", engine.nxd_tensor_get_item, self.pointer)

    def __bool__(self) -> bool:
        """True unless the one element is 0; a tensor of several has no truth."""
        return self.item() != 0

    def numpy(self) -> Any:
        """A writable numpy array over the same memory. After writing through it, call
        mark_modified(). numpy has no bf16: convert with to("f32")."""
        if self.dtype is DType.BF16:
            raise Unsupported("numpy has no bf16: convert with to('f32')")
        if self.requires_grad:
            raise InvalidArgument("the tensor requires grad: detach() it first")
        if self.ndim > 32:  # numpy 1 would write beyond its memory
            raise Unsupported(f"numpy has at most 32 dimensions, the tensor has {self.ndim}")
        import numpy
        shared = _Shared(Tensor.retained(self.pointer))
        if self.size == 0:  # without an address, which numpy would not take
            return numpy.empty(self.shape, shared.__array_interface__["typestr"])
        return numpy.asarray(shared)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        """For numpy.asarray and all that calls it, which would make an array of one object."""
        array = self.numpy()
        if dtype is None or array.dtype == dtype:
            return array.copy() if copy else array
        if copy is False:
            raise ValueError(f"a copy is needed of {array.dtype} as {dtype}")
        return array.astype(dtype)

    def mark_modified(self) -> None:
        """Says that the memory was written by other means than the library."""
        check(engine.nxd_tensor_mark_modified(self.pointer))

    def _marker(self) -> Callable[[], None]:
        """mark_modified for who borrows the memory, which outlives this handle."""
        return Tensor.retained(self.pointer).mark_modified

    def copy_from(self, array: Any) -> None:
        """Overwrites all elements from an array in C order; not recorded."""
        memory = _arrays.buffer(array, "array", self.dtype, writable=False)
        check(engine.nxd_tensor_copy_from_host(self.pointer, memory.pointer,
                                               memory.count * _arrays.SIZES[memory.dtype]))

    def tobytes(self) -> bytes:
        """A copy of all elements in C order."""
        size = self.size * _arrays.SIZES[self.dtype]
        room = ffi.new("char[]", max(size, 1))
        check(engine.nxd_tensor_copy_to_host(self.pointer, room, size))
        return ffi.buffer(room, size)[:]

    def __dlpack__(self, *, stream: Any = None, max_version: tuple[int, int] | None = None,
                   dl_device: tuple[int, int] | None = None, copy: bool | None = None) -> Any:
        if copy or dl_device not in (None, _dlpack.CPU):
            raise BufferError("a tensor gives its own memory, on the CPU, and no copy")
        if max_version is not None and max_version[0] >= 1:
            versioned = ffi.new("struct DLManagedTensorVersioned**")
            check(engine.nxd_tensor_to_dlpack_versioned(self.pointer, versioned))
            return _dlpack.capsule(versioned[0], versioned=True)
        return _dlpack.capsule(get("DLManagedTensor**", engine.nxd_tensor_to_dlpack, self.pointer))

    def __dlpack_device__(self) -> tuple[int, int]:
        return _dlpack.CPU

    # Differentiation.

    @property
    def requires_grad(self) -> bool:
        return bool(get("int32_t*", engine.nxd_tensor_get_requires_grad, self.pointer))

    @requires_grad.setter
    def requires_grad(self, requires: bool) -> None:
        check(engine.nxd_tensor_set_requires_grad(self.pointer, whole(requires)))

    @property
    def grad(self) -> Tensor | None:
        """Gradient accumulated in a leaf; None when there is none yet."""
        out = ffi.new("nxd_tensor_t**")
        check(engine.nxd_tensor_share_grad(self.pointer, out))
        return Tensor(out[0]) if out[0] != ffi.NULL else None

    @grad.setter
    def grad(self, grad: Tensor | None) -> None:
        check(engine.nxd_tensor_set_grad(self.pointer, ffi.NULL if grad is None else grad.pointer))

    def detach(self) -> Tensor:
        """A handle on the same memory, outside of the recorded graph."""
        return Tensor(get("nxd_tensor_t**", engine.nxd_tensor_detach, self.pointer))

    def backward(self, grad: Tensor | None = None, retain_graph: bool = False) -> None:
        """Accumulates gradients into the leaves. [collective: the groups of the layers]"""
        from nxd.autograd import backward
        backward([self], [grad], retain_graph)

    # Arithmetic and comparisons, by operators of ATen.

    def _with(self, name: str, other: Tensor | float) -> Tensor:
        from nxd.ops import call
        return call(name, "Tensor" if isinstance(other, Tensor) else "Scalar", self, other)

    def __add__(self, other: Tensor | float) -> Tensor:
        return self._with("add", other)

    def __sub__(self, other: Tensor | float) -> Tensor:
        return self._with("sub", other)

    def __mul__(self, other: Tensor | float) -> Tensor:
        return self._with("mul", other)

    def __truediv__(self, other: Tensor | float) -> Tensor:
        return self._with("div", other)

    def __rsub__(self, other: float) -> Tensor:
        return self._with("rsub", other)

    __radd__, __rmul__ = __add__, __mul__

    def __neg__(self) -> Tensor:
        from nxd.ops import call
        return call("neg", "", self)

    def _compared(self, name: str, other: object) -> Tensor:
        # The operator refuses numbers and arrays that it does not take. Texts of numpy's are none.
        kind = type(other)
        known = isinstance(other, (Tensor, Number)) or hasattr(kind, "__array__")
        if not known or isinstance(other, (str, bytes)):
            return NotImplemented  # which Python answers itself: equal to no other object
        return self._with(name, cast("Tensor | float", other))

    def __eq__(self, other: object) -> Tensor:  # type: ignore[override]
        return self._compared("eq", other)

    def __ne__(self, other: object) -> Tensor:  # type: ignore[override]
        return self._compared("ne", other)

    def __lt__(self, other: Tensor | float) -> Tensor:
        return self._compared("lt", other)

    def __le__(self, other: Tensor | float) -> Tensor:
        return self._compared("le", other)

    def __gt__(self, other: Tensor | float) -> Tensor:
        return self._compared("gt", other)

    def __ge__(self, other: Tensor | float) -> Tensor:
        return self._compared("ge", other)

    # A key of a dict is the handle.
    __hash__ = EngineHandle.__hash__

    def __matmul__(self, other: Tensor) -> Tensor:
        from nxd.ops import call
        return call("matmul", "", self, other)

    def to(self, target: DType | Device | str) -> Tensor:
        """In another element type, or on another device: to("bf16"), to(nxd.device())."""
        from nxd.ops import call
        if isinstance(target, str) and target.upper() in Device.__members__:
            target = Device[target.upper()]
        if isinstance(target, Device):
            return self.to_device(target)
        return call("to", "dtype", self, to_enum(DType, target))


def zeros(shape: Sequence[int], dtype: DType | str = DType.F32,
          device: Device | str = Device.CPU) -> Tensor:
    """A tensor of zeros in C order."""
    return Tensor(get("nxd_tensor_t**", engine.nxd_tensor_create, integers(shape), len(shape),
                      to_enum(DType, dtype), to_enum(Device, device)))


def tensor(array: Any, dtype: DType | str | None = None) -> Tensor:
    """A tensor with a copy of an array, or of numbers in lists: floats make f32, integers i64, and
    lists with numpy's numbers the dtype that numpy gives them."""
    numbers = isinstance(array, (int, float, list, tuple))
    if numbers and _has_numpys(array):
        import numpy
        try:
            array = numpy.array(array)
        except (TypeError, ValueError) as error:
            raise InvalidArgument(f"array: {error}") from error
        if dtype is not None:
            array = array.tolist()  # converted as Python's are
        numbers = dtype is not None
    if numbers:
        shape, flat = _flatten(array)
        kind = to_enum(DType, dtype) if dtype is not None else (
            DType.F32 if any(isinstance(v, float) for v in flat) else DType.I64)
        words = ffi.new({DType.F32: "float[]", DType.F64: "double[]", DType.I32: "int32_t[]",
                         DType.I64: "int64_t[]"}.get(kind, "double[]"), flat or 1)
        if kind not in (DType.F32, DType.F64, DType.I32, DType.I64):
            raise Unsupported(f"numbers as {kind.name.lower()}: give an array, or use to()")
        memory = _arrays.Buffer(words, shape, kind, words)
    elif hasattr(array, "__array_interface__"):
        import numpy
        memory = _arrays.buffer(numpy.asanyarray(array, order="C"), "array", dtype,
                                writable=False)
    else:
        memory = _arrays.buffer(array, "array", dtype, writable=False, any_strides=True)
    if memory.strides is not None:
        described, _kept = _arrays.dltensor(memory)
        return Tensor(get("nxd_tensor_t**", engine.nxd_tensor_from_dltensor, described))
    out = ffi.new("nxd_tensor_t**")
    check(engine.nxd_tensor_from_data(
        memory.pointer, memory.count * _arrays.SIZES[memory.dtype],
        ffi.new("int64_t[]", list(memory.shape) or 1), len(memory.shape), memory.dtype, out))
    return Tensor(out[0])


def _has_numpys(values: Any) -> bool:
    """True for a number or array of numpy's, or lists with one."""
    if isinstance(values, (list, tuple)):
        return any(_has_numpys(value) for value in values)
    return hasattr(values, "__array_interface__")


def _flatten(values: Any) -> tuple[tuple[int, ...], list[Any]]:
    if isinstance(values, (int, float)):
        return (), [values]
    if isinstance(values, str) or not hasattr(values, "__iter__"):
        raise InvalidArgument(f"array: expected numbers in lists, got {type(values).__name__}")
    parts = [_flatten(value) for value in values]
    if any(shape != parts[0][0] for shape, _ in parts):
        raise InvalidArgument("lists of different lengths make no tensor")
    inner = parts[0][0] if parts else ()
    return (len(parts), *inner), [value for _, flat in parts for value in flat]


def from_dlpack(source: Any) -> Tensor:
    """A tensor over the memory of a numpy array, a torch tensor or a DLPack capsule, without a
    copy. Read-only arrays are refused, such as all of JAX's: tensor() copies them."""
    if _arrays.is_negated(source):
        raise InvalidArgument("source: the memory of the view has the other sign: give "
                              "resolve_neg() of it")
    capsule = _dlpack.produce(source) if hasattr(source, "__dlpack__") else source
    if capsule is not source and _dlpack.is_read_only(capsule, source):
        raise InvalidArgument("source: the memory is read-only, and tensors can be written: "
                              "nxd.tensor() copies it")
    out = ffi.new("nxd_tensor_t**")
    _dlpack.consume(capsule, lambda managed: check(engine.nxd_tensor_from_dlpack(managed, out)),
                    lambda managed: check(engine.nxd_tensor_from_dlpack_versioned(managed, out)))
    return Tensor(out[0])


def set_aten_pool(on: bool) -> None:
    """True if ATen takes the memory of new CPU tensors from the library's pool."""
    check(engine.nxd_memory_set_aten_pool(whole(on)))


def aten_pool() -> bool:
    return bool(get("int32_t*", engine.nxd_memory_get_aten_pool))
