"""Automatic differentiation: backward passes, what is recorded, functions of one's own."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from nxd._handle import EngineHandle, Struct, drop_user_data, get, pointers, to_enum, user_data, \
    whole
from nxd.enums import DType
from nxd.errors import InvalidArgument, InvalidState, callback, check
from nxd.raw import engine, ffi
from nxd.tensors import Tensor


def _grads_of(outputs: Sequence[Tensor], grads: Sequence[Tensor | None] | None) -> Any:
    if grads is None:
        return ffi.NULL
    if len(grads) != len(outputs):
        raise InvalidArgument(f"grads: expected one for each of {len(outputs)} outputs, got "
                              f"{len(grads)}")
    return pointers("nxd_tensor_t", grads)


def _own(handle: Any) -> Tensor | None:
    return Tensor(handle) if handle != ffi.NULL else None


def backward(outputs: Sequence[Tensor], grads: Sequence[Tensor | None] | None = None,
             retain_graph: bool = False) -> None:
    """Accumulates gradients into the leaves of the graph. [collective: the groups of the layers]"""
    check(engine.nxd_backward(pointers("nxd_tensor_t", outputs), _grads_of(outputs, grads),
                              len(outputs), whole(retain_graph)))


def grad(outputs: Sequence[Tensor], inputs: Sequence[Tensor],
              grads: Sequence[Tensor | None] | None = None,
              retain_graph: bool = False) -> list[Tensor | None]:
    """Gradients of outputs with respect to inputs, without touching any leaf; None where an input
    does not influence them. [collective: the groups of the layers]"""
    out = ffi.new("nxd_tensor_t*[]", len(inputs) or 1)
    check(engine.nxd_grad(pointers("nxd_tensor_t", outputs), _grads_of(outputs, grads), len(outputs),
                               pointers("nxd_tensor_t", inputs), len(inputs), whole(retain_graph),
                               out))
    return [_own(out[i]) for i in range(len(inputs))]


@contextmanager
def grad_enabled(on: bool) -> Iterator[None]:
    """True if operations of this thread are recorded, within a with block."""
    before = ffi.new("int32_t*")
    check(engine.nxd_set_grad_enabled(whole(on), before))
    try:
        yield
    finally:
        check(engine.nxd_set_grad_enabled(before[0], ffi.NULL))


def no_grad() -> Any:
    """grad_enabled(False)"""
    return grad_enabled(False)


@contextmanager
def autocast(dtype: DType | str = DType.BF16) -> Iterator[None]:
    """Products of matrices of this thread run in 16 bits, within a with block; "invalid": off."""
    before = ffi.new("nxd_dtype_t*")
    check(engine.nxd_set_autocast(to_enum(DType, dtype), before))
    try:
        yield
    finally:
        check(engine.nxd_set_autocast(before[0], ffi.NULL))


class FunctionCall:
    """One application of a custom function; valid inside its callbacks."""

    __slots__ = ("_pointer",)

    def __init__(self, pointer: Any) -> None:
        self._pointer = pointer

    @property
    def pointer(self) -> Any:
        if self._pointer is None:
            raise InvalidState("this FunctionCall was used after the callback it was given to")
        return self._pointer

    def save(self, *tensors: Tensor) -> None:
        """Keeps tensors from forward for backward."""
        for tensor in tensors:
            check(engine.nxd_function_call_save(self.pointer, tensor.pointer))

    def saved(self, index: int) -> Tensor:
        """A tensor kept by forward."""
        return Tensor.retained(get("nxd_tensor_t**", engine.nxd_function_call_get_saved,
                                   self.pointer, whole(index)))

    def needs_grad(self, index: int) -> bool:
        """True if backward needs the gradient of an input."""
        return bool(get("int32_t*", engine.nxd_function_call_needs_grad, self.pointer,
                        whole(index)))


class Function(EngineHandle):
    """A differentiable function of one's own, applied by calling it.

    forward(call, *inputs) gives a tensor, or a tuple of num_outputs; backward(call, *grad_outputs),
    where a None means zero, gives the gradient of each input, or None; shape(*inputs) gives outputs
    of the right shape from inputs on the meta device, for tracing. Inside, nothing is recorded.
    """

    __slots__ = ("_n_outputs",)
    _destroy = "nxd_function_destroy"

    def __init__(self, name: str, forward: Callable[..., Any],
                 backward: Callable[..., Any] | None = None,
                 shape: Callable[..., Any] | None = None, num_outputs: int = 1) -> None:
        options = Struct("nxd_function_options_t", {"name": name, "num_outputs": num_outputs}, engine)
        struct = options.pointer
        struct.forward = _forward
        struct.backward = _backward if backward else ffi.NULL
        struct.shape = _shape if shape else ffi.NULL
        struct.destroy = drop_user_data
        # Graphs keep a function alive, so its user data refers to the callables alone.
        with user_data.given((forward, backward, shape)) as held:
            struct.user_data = held
            super().__init__(get("nxd_function_t**", engine.nxd_function_create, struct))
        self._n_outputs = num_outputs

    def __call__(self, *inputs: Tensor) -> Any:
        out = ffi.new("nxd_tensor_t*[]", self._n_outputs)
        check(engine.nxd_function_apply(self.pointer, pointers("nxd_tensor_t", inputs),
                                        len(inputs), out, self._n_outputs))
        return outputs_of(out, self._n_outputs)


def inputs_of(array: Any, n: int) -> list[Tensor | None]:
    """Tensors that a callback is given, with handles of their own."""
    return [Tensor.retained(array[i]) if array[i] != ffi.NULL else None for i in range(n)]


def outputs_of(array: Any, n: int) -> Any:
    """The outputs of a call: a tensor, or a tuple."""
    results = tuple(_own(array[i]) for i in range(n))
    return results[0] if n == 1 else results


def give(results: Any, array: Any, n: int, what: str) -> None:
    """Hands a callback's tensors to the library, which takes them over."""
    values = results if isinstance(results, (tuple, list)) else (results,)
    if len(values) != n:
        raise InvalidArgument(f"{what}: expected {n} tensors, got {len(values)}")
    for i, value in enumerate(values):
        if value is not None:
            out = ffi.new("nxd_tensor_t**")
            check(engine.nxd_tensor_retain(value.pointer, out))
            array[i] = out[0]


@callback("nxd_function_options_t.forward")
def _forward(call: Any, inputs: Any, num_inputs: int, outputs: Any, num_outputs: int,
             held: Any) -> None:
    function = ffi.from_handle(held)[0]
    given = FunctionCall(call)
    try:
        give(function(given, *inputs_of(inputs, num_inputs)), outputs, num_outputs, "forward")
    finally:
        given._pointer = None


@callback("nxd_function_options_t.backward")
def _backward(call: Any, grads: Any, num_outputs: int, grad_inputs: Any, num_inputs: int,
              held: Any) -> None:
    function = ffi.from_handle(held)[1]
    given = FunctionCall(call)
    try:
        give(function(given, *inputs_of(grads, num_outputs)), grad_inputs, num_inputs, "backward")
    finally:
        given._pointer = None


@callback("nxd_function_options_t.shape")
def _shape(inputs: Any, num_inputs: int, outputs: Any, num_outputs: int, held: Any) -> None:
    give(ffi.from_handle(held)[2](*inputs_of(inputs, num_inputs)), outputs, num_outputs, "shape")
