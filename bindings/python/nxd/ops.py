"""Operators of ATen by name: nxd.ops.relu(x), nxd.ops.softmax(x, dim=-1, overload="int")."""

from __future__ import annotations

import functools
import re
import sys
from collections.abc import Callable
from typing import Any

from nxd._handle import EngineHandle, c_text, get, integers, pointers, text
from nxd.enums import DType
from nxd.errors import InvalidArgument, check, failure
from nxd.raw import engine, ffi
from nxd.tensors import Tensor


class Op(EngineHandle):
    """One call of an operator: arguments are set by name, then it runs; any number of times."""

    __slots__ = ("_gives_one", "_names")
    _destroy = "nxd_op_destroy"

    def __init__(self, name: str, overload: str = "") -> None:
        out = ffi.new("nxd_op_t**")
        check(engine.nxd_op_create(c_text(name), c_text(overload), out))
        super().__init__(out[0])
        schema = self.schema
        self._names = _argument_names(schema)
        given = schema.rpartition(" -> ")[2]
        self._gives_one = not given.endswith("[]") and not given.startswith("(")

    @property
    def schema(self) -> str:
        """Such as "aten::relu(Tensor self) -> Tensor"."""
        return text(get("const char**", engine.nxd_op_get_schema, self.pointer))

    def set(self, name: str, value: Any) -> None:
        """Sets an argument, by the kind of the value."""
        op, key = self.pointer, c_text(name)
        if value is None:
            check(engine.nxd_op_set_tensor(op, key, ffi.NULL))
        elif isinstance(value, Tensor):
            check(engine.nxd_op_set_tensor(op, key, value.pointer))
        elif isinstance(value, bool):
            check(engine.nxd_op_set_bool(op, key, value))
        elif isinstance(value, DType):
            check(engine.nxd_op_set_dtype(op, key, value))
        elif isinstance(value, int):
            check(engine.nxd_op_set_int(op, key, value))
        elif isinstance(value, float):
            check(engine.nxd_op_set_double(op, key, value))
        elif isinstance(value, str):
            check(engine.nxd_op_set_string(op, key, c_text(value)))
        elif isinstance(value, (list, tuple)):
            self._set_list(key, value)
        elif (number := _plain(value)) is not value:
            self.set(name, number)
        else:
            raise InvalidArgument(f"{name}: expected a tensor, a number, a string, a DType or a "
                                  f"list, got {type(value).__name__}")

    def _set_list(self, key: bytes, values: Any) -> None:
        values = [_plain(value) for value in values]
        if any(isinstance(value, Tensor) for value in values):  # index takes a None for a dimension
            array = pointers("nxd_tensor_t", values)
            check(engine.nxd_op_set_tensors(self.pointer, key, array, len(values)))
        elif any(isinstance(value, float) for value in values):
            floats = ffi.new("double[]", values)
            check(engine.nxd_op_set_doubles(self.pointer, key, floats, len(values)))
        else:
            check(engine.nxd_op_set_ints(self.pointer, key, integers(values), len(values)))

    def __call__(self, /, *positional: Any, **named: Any) -> Any:
        """Runs it; gives its result, or a tuple of several or of a list's members. None is one that
        the operator leaves out, as an output_mask may ask."""
        if len(positional) > len(self._names):
            raise InvalidArgument(f"{self.schema}: {len(positional)} arguments")
        for name, value in (*zip(self._names, positional), *named.items()):
            self.set(name, value)
        check(engine.nxd_op_run(self.pointer))
        count = ffi.new("size_t*")
        check(engine.nxd_op_get_result_count(self.pointer, count))
        results = tuple(self._result(i) for i in range(count[0]))
        return results[0] if self._gives_one and len(results) == 1 else results

    def _result(self, index: int) -> Any:
        tensor, number = ffi.new("nxd_tensor_t**"), ffi.new("double*")
        status = engine.nxd_op_share_tensor(self.pointer, index, tensor)
        if status == 0:
            return Tensor(tensor[0]) if tensor[0] != ffi.NULL else None
        error = failure(status)
        if engine.nxd_op_get_double(self.pointer, index, number) != 0:
            raise error
        return number[0]


def _plain(value: Any) -> Any:
    """A number of Python's for one of numpy's; anything else as it is."""
    numpy = sys.modules.get("numpy")
    if numpy is None or not isinstance(value, numpy.generic):
        return value
    kind = {"b": bool, "i": int, "u": int, "f": float}.get(value.dtype.kind)
    if value.dtype.name == "bfloat16":
        kind = float
    return value if kind is None else kind(value)


@functools.lru_cache(maxsize=256)
def _argument_names(schema: str) -> tuple[str, ...]:
    """Names of a schema's arguments, in order."""
    inside = schema[schema.index("(") + 1:schema.rindex(") ->")]
    inside = re.sub(r"\([a-z]!?[^)]*\)|\[[^\]]*\]", "", inside)
    parts = [part.split("=")[0].split() for part in inside.split(",")]
    return tuple(part[-1] for part in parts if part and part != ["*"])


def call(name: str, overload: str = "", /, *positional: Any, **named: Any) -> Any:
    """Runs an operator once; arguments not given take the schema's defaults."""
    with Op(name, overload) as op:
        return op(*positional, **named)


def __getattr__(name: str) -> Callable[..., Any]:
    """nxd.ops.NAME(...), where overload="..." chooses among several."""
    if name.startswith("__"):
        raise AttributeError(name)

    def operator(*positional: Any, overload: str = "", **named: Any) -> Any:
        return call(name, overload, *positional, **named)

    operator.__name__ = name
    return operator
