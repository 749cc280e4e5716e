"""Calls of layers over arrays: anything with the buffer protocol or DLPack, in place, in any
strides."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

from nxd import _arrays
from nxd._handle import Struct, c_text
from nxd.enums import Axis
from nxd.errors import InvalidArgument, check
from nxd.group import collective
from nxd.raw import ffi

if TYPE_CHECKING:
    from nxd.context import Context
    from nxd.group import Group


class Arrays:
    """Arrays of a call by their names, as DLTensors that live as long as this object."""

    def __init__(self) -> None:
        self.kept: list[Any] = []
        self.buffers: list[_arrays.Buffer] = []

    def tensor(self, array: Any, name: str, writable: bool) -> Any:
        """A DLTensor over the array's memory; NULL for None."""
        if array is None:
            return ffi.NULL
        memory = _arrays.strided(array, name, writable)
        tensor, kept = _arrays.dltensor(memory)
        self.kept.append(kept)
        self.buffers.append(memory)
        return tensor

    def check(self, status: int) -> None:
        """The end of the call."""
        check(status)
        _arrays.mark_written(*self.buffers)


def tensor_group(context: Context) -> Group | None:
    """The ranks of a layer over arrays; None where the world is not laid out."""
    return context.parallel_group(Axis.TENSOR) if context.model_parallel else None


def among(context: Context) -> collective:
    """Around the arguments of a call that is collective in the tensor-parallel group."""
    return collective(lambda: tensor_group(context))


class _Call:
    """A function of the library over arrays, which are given in order or by name. Outputs are
    written in place. Options are those of the C struct."""

    def __init__(self, function: Any, get_workspace: Any, options: str, arrays: str,
                 doc: str) -> None:
        self._function, self._get_workspace, self._options = function, get_workspace, options
        before, after = arrays.split(" -> ")
        self._inputs, self._outputs = before.split(), after.split()
        self.__doc__ = doc

    @property
    def arrays(self) -> list[str]:
        """The names of inputs and outputs in their order; those with a ? may be None."""
        return self._inputs + self._outputs

    def _take(self, given: Sequence[Any], options: dict[str, Any]) -> list[Any]:
        """The array of each name."""
        if len(given) > len(self.arrays):
            raise TypeError(f"expected at most {len(self.arrays)} arrays, got {len(given)}")
        taken = list(given)
        for name in self.arrays[len(given):]:
            bare = name.rstrip("?")
            if bare not in options and not name.endswith("?"):
                raise TypeError(f"the array {bare!r} is missing")
            taken.append(options.pop(bare, None))
        return taken

    def _run(self, context: Context, function: Any, leading: Sequence[str], given: Sequence[Any],
             options: dict[str, Any], trailing: Sequence[Any]) -> None:
        arrays = Arrays()
        scope: AbstractContextManager[None] = nullcontext()
        if not trailing:  # it takes part in a call; its workspace is this rank's own
            scope = among(context)
        with scope:
            taken = self._take(given, options)
            workspace = options.pop("workspace", None)
            struct = Struct(self._options, options)
            if workspace is not None:
                memory = _arrays.buffer(workspace, "workspace")
                arrays.buffers.append(memory)
                struct.pointer.workspace = memory.pointer
                struct.pointer.workspace_bytes = memory.count * _arrays.SIZES[memory.dtype]
            n = len(self._inputs)
            tensors = [arrays.tensor(array, name.rstrip("?"), i >= n)
                       for i, (name, array) in enumerate(zip(self.arrays, taken))]
            status = function(context.pointer, *(c_text(value) for value in leading),
                              *tensors[:n], struct.pointer, *tensors[n:], *trailing)
        (check if trailing else arrays.check)(status)


class ArrayCall(_Call):
    """[collective: tensor-parallel group]"""

    def __call__(self, context: Context, *arrays: Any, **options: Any) -> None:
        self._run(context, self._function, (), arrays, options, ())

    def workspace_size(self, context: Context, *arrays: Any, **options: Any) -> int:
        """Bytes of a workspace for such a call. [local]"""
        size = ffi.new("size_t*")
        self._run(context, self._get_workspace, (), arrays, options, (size,))
        return int(size[0])


class NamedArrayCall(_Call):
    """The same of a layer whose name decides on random bits."""

    def __call__(self, context: Context, name: str, *arrays: Any, **options: Any) -> None:
        self._run(context, self._function, (name,), arrays, options, ())

    def workspace_size(self, context: Context, name: str, *arrays: Any, **options: Any) -> int:
        size = ffi.new("size_t*")
        self._run(context, self._get_workspace, (name,), arrays, options, (size,))
        return int(size[0])


def call(context: Context, function: Callable[..., int], leading: Sequence[Any],
         inputs: Sequence[tuple[str, Any]], trailing: Sequence[Any],
         outputs: Sequence[tuple[str, Any]]) -> None:
    """A call whose other arguments stand before and behind its inputs."""
    arrays = Arrays()
    read, written = described(arrays, inputs, outputs)
    arrays.check(function(context.pointer, *leading, *read, *trailing, *written))


def described(arrays: Arrays, inputs: Sequence[tuple[str, Any]],
              outputs: Sequence[tuple[str, Any]]) -> tuple[list[Any], list[Any]]:
    """DLTensors over inputs and outputs, none of which may be missing."""
    for name, array in (*inputs, *outputs):
        if array is None:
            raise InvalidArgument(f"{name}: expected an array, got None")
    return ([arrays.tensor(array, name, False) for name, array in inputs],
            [arrays.tensor(array, name, True) for name, array in outputs])


def call_lists(context: Context, function: Any, struct: str, options: dict[str, Any],
               inputs: Sequence[tuple[str, Any]], outputs: Sequence[tuple[str, Any]]) -> None:
    """A collective call with lists of as many arrays as there are weights; one whose name is
    singular, such as x, is one array. The count stands between inputs and options."""
    arrays = Arrays()

    def taken(name: str, given: Any, writable: bool) -> Any:
        if given is None or not name.endswith("s"):
            return arrays.tensor(given, name, writable)
        if len(given) != count:
            raise InvalidArgument(f"{name}: expected one for each of {count} weights, "
                                  f"got {len(given)}")
        tensors = ffi.new("DLTensor*[]", [arrays.tensor(array, f"{name}[{i}]", writable)
                                          for i, array in enumerate(given)])
        arrays.kept.append(tensors)
        return tensors

    with among(context):
        count = len(dict(inputs)["weights"])
        made = Struct(struct, options)
        read = [taken(name, given, False) for name, given in inputs]
        written = [taken(name, given, True) for name, given in outputs]
        status = function(context.pointer, *read, count, made.pointer, *written)
    arrays.check(status)
